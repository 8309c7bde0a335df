from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest

from rm_gallery.core.stats.intervals import bootstrap_interval, wilson_interval
from rm_gallery.core.utils.errors import ConfigError


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


OUTCOMES = [1.0] * 70 + [0.0] * 30


def test_same_seed_same_interval_and_the_global_state_is_untouched() -> None:
    random.seed(3)
    state = random.getstate()
    assert bootstrap_interval(OUTCOMES, mean, seed=5) == bootstrap_interval(OUTCOMES, mean, seed=5)
    assert bootstrap_interval(OUTCOMES, mean, seed=5) != bootstrap_interval(OUTCOMES, mean, seed=6)
    assert random.getstate() == state


def test_agrees_with_wilson_on_a_proportion() -> None:
    assert bootstrap_interval(OUTCOMES, mean) == pytest.approx(wilson_interval(70, 100), abs=0.02)


def test_any_statistic() -> None:
    interval = bootstrap_interval([1.0, 2.0, 3.0, 4.0, 100.0], median)
    assert interval is not None
    assert (interval.low, interval.high) == (1.0, 100.0)


def test_clusters_widen_the_interval_of_repeated_items() -> None:
    copies = [value for value in OUTCOMES for _ in range(9)]
    clusters = [i // 9 for i in range(len(copies))]
    naive = bootstrap_interval(copies, mean, n_resamples=500)
    clustered = bootstrap_interval(copies, mean, clusters=clusters, n_resamples=500)
    assert naive is not None
    assert clustered is not None
    # nine copies of everything are no new information: three times the naive width
    assert (clustered.high - clustered.low) / (naive.high - naive.low) == pytest.approx(3.0, rel=0.15)


def test_resamples_on_which_the_statistic_is_undefined_are_left_out() -> None:
    def share_of_ones(values: Sequence[float]) -> float:
        known = [value for value in values if value >= 0]
        return mean(known) if known else math.nan

    assert bootstrap_interval([-1.0, 1.0], share_of_ones) == (1.0, 1.0)
    assert bootstrap_interval([-1.0], share_of_ones) is None
    assert bootstrap_interval([], share_of_ones) is None


@pytest.mark.parametrize(
    "options", [{"clusters": ["a"]}, {"n_resamples": 0}, {"level": 1.5}], ids=["clusters", "resamples", "level"]
)
def test_refuses_options_that_do_not_fit(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        bootstrap_interval([1.0, 0.0], mean, **options)  # type: ignore[arg-type]
