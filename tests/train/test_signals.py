"""Correlations inside groups and changes of means against figures worked out by hand, and how often chance is called a change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rm_gallery import ConfigError
from rm_gallery.train.signals import group_means, length_bias, link, shift

NAN = math.nan


def test_a_correlation_inside_groups_is_free_of_the_prompts() -> None:
    # between prompts long answers score low, inside every prompt they score high
    lengths = [1, 2, 11, 12, 21, 22, 31, 32, 41, 42]
    rewards = [5, 6, 4, 5, 3, 4, 2, 3, 1, 2]
    found = link(rewards, lengths, 2)
    assert found is not None
    assert found.correlation == pytest.approx(1) and found.slope == pytest.approx(1)
    assert (found.n, found.n_groups, found.sure) == (10, 5, True)


def test_the_interval_of_a_change_is_welchs() -> None:
    from scipy import stats

    early, late = [1.0, 2.0, 2.5, 4.0, 7.0, NAN], [3.0, 3.1, 2.9, 3.3, 3.2, 3.0, 3.4]
    found = shift(early, late, level=0.9)
    assert found is not None
    known = stats.ttest_ind(late, early[:-1], equal_var=False).confidence_interval(0.9)
    assert tuple(found.interval) == pytest.approx((known.low, known.high))
    assert [found.early, found.late, *found.n] == pytest.approx([3.3, np.mean(late), 5, 7])


def test_a_slope_is_in_the_units_it_was_given() -> None:
    rewards, lengths = np.array([5, 6, 4, 7, 3, 4, 2, 4, 1, 2.5]), np.array([1, 2, 11, 13, 21, 22, 31, 33, 41, 42.5])
    plain, large = link(rewards, lengths, 2), link(rewards * 1e200, lengths * 1e180, 2)
    assert plain is not None and large is not None
    assert large.slope == pytest.approx(plain.slope * 1e20) and large.correlation == pytest.approx(plain.correlation)


def test_means_of_groups_leave_out_what_is_not_there() -> None:
    found = group_means(np.array([1.0, NAN, 3.0, NAN, 5.0]), np.array([0, 0, 2, 3, 2]))
    assert found == pytest.approx([1, 4, NAN], nan_ok=True)  # there is no group 1, and group 3 has no value


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0, 1] * 5, [0, 1, 0, 1, 0, 1, 0, 1, 1, 0], 0.6),  # four groups agree, one does not
        ([0, 1, None, 0] * 5, [0, 1, 5, NAN] * 5, 1.0),
        ([0, 1] * 4, [0, 1] * 4, None),  # too few groups
        ([1, 1] * 9, [0, 1] * 9, None),  # nothing varies
        ([None] * 10, [1.0] * 10, None),
        ([], [], None),
    ],
)
def test_what_a_correlation_is_made_of(first: Any, second: Any, expected: float | None) -> None:
    found = link(first, second, 4 if len(first) == 20 else 2)
    assert (found.correlation if found else None) == (pytest.approx(expected) if expected is not None else None)


def test_a_doubling_of_the_length_has_a_price() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(10, 2000, 400)
    rewards = 0.125 * np.log2(lengths + 1) + np.repeat(rng.normal(size=100), 4)
    found = length_bias(rewards, lengths, 4)
    assert found is not None
    assert found.slope == pytest.approx(0.125)
    assert found.correlation == pytest.approx(1.0)


def test_intervals_hold() -> None:
    """Of 300 correlations and changes where there is nothing, about 5 % are called sure."""
    rng = np.random.default_rng(3)
    wrong = {"link": 0, "shift": 0, "in a row": 0}
    for _ in range(300):
        prompts = np.repeat(rng.normal(size=40), 4)
        found = link(prompts + rng.normal(size=160), (prompts + rng.normal(size=160)) > 0, 4)
        assert found is not None
        wrong["link"] += found.sure
        moved = shift(rng.normal(size=12), rng.exponential(size=20) - 1)
        assert moved is not None
        wrong["shift"] += moved.sure
        walk = np.zeros(80)
        for at in range(1, 80):  # neighbours resemble one another
            walk[at] = 0.5 * walk[at - 1] + rng.normal()
        moved = shift(walk[:24], walk[-24:], in_a_row=True)
        assert moved is not None
        wrong["in a row"] += moved.sure
    assert wrong["link"] <= 26 and wrong["shift"] <= 30 and wrong["in a row"] <= 36, wrong
    assert min(wrong.values()) >= 3, wrong


def test_changes() -> None:
    found = shift([0, 0, 0, 0, 0, NAN], [1, 1, 1, 1, 1])
    assert found is not None
    assert (found.early, found.late, found.change, found.sure, found.n) == (0, 1, 1, True, (5, 5))
    same = shift([1] * 5, [1] * 5)
    assert same is not None and not same.sure
    assert shift([0, 0, 0, 0], [1] * 9) is None


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ConfigError, match="2 values and 3: one of each is needed"):
        link([1, 2], [1, 2, 3], 1)
