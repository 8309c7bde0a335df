"""How often chance is called a change, and that the units of what is compared do not count; figures are golden."""

from __future__ import annotations

import numpy as np
import pytest

from rm_gallery import ConfigError
from rm_gallery.train.signals import length_bias, link, shift


def test_a_slope_is_in_the_units_it_was_given() -> None:
    rewards, lengths = np.array([5, 6, 4, 7, 3, 4, 2, 4, 1, 2.5]), np.array([1, 2, 11, 13, 21, 22, 31, 33, 41, 42.5])
    plain, large = link(rewards, lengths, 2), link(rewards * 1e200, lengths * 1e180, 2)
    assert plain is not None and large is not None
    assert large.slope == pytest.approx(plain.slope * 1e20) and large.correlation == pytest.approx(plain.correlation)
    wide = link(rewards, lengths, 2, level=0.5)
    assert wide is not None and wide.interval.high - wide.interval.low < plain.interval.high - plain.interval.low


def test_a_level_that_is_none_is_refused() -> None:
    for call in (lambda: link([1, 2] * 5, [1, 3] * 5, 2, level=95), lambda: shift([1, 2] * 5, [1, 3] * 5, level=95)):
        with pytest.raises(ConfigError, match="95"):
            call()


def test_of_300_changes_where_there_is_nothing_about_5_percent_are_called_sure() -> None:
    rng = np.random.default_rng(3)
    wrong = {"link": 0, "shift": 0, "in a row": 0, "length": 0}
    for _ in range(300):
        prompts = np.repeat(rng.normal(size=40), 4)
        linked = link(prompts + rng.normal(size=160), (prompts + rng.normal(size=160)) > 0, 4)
        long = length_bias(prompts + rng.normal(size=160), rng.integers(1, 900, 160), 4)
        moved = shift(rng.normal(size=12), rng.exponential(size=20) - 1)
        walk = np.zeros(80)
        for at in range(1, 80):  # neighbours resemble one another
            walk[at] = 0.5 * walk[at - 1] + rng.normal()
        row = shift(walk[:24], walk[-24:], in_a_row=True)
        for name, found in zip(wrong, (linked, moved, row, long), strict=True):
            assert found is not None
            wrong[name] += found.sure
    assert max(wrong["link"], wrong["length"]) <= 26 and wrong["shift"] <= 30 and wrong["in a row"] <= 36, wrong
    assert min(wrong.values()) >= 3, wrong
