"""Differences of two judges on the same samples: interval, p-value, samples needed, several tests at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from rm_gallery.core.stats.intervals import wilson_interval
from rm_gallery.core.stats.paired import benjamini_hochberg, holm, mcnemar, paired_difference, pairs_needed
from rm_gallery.core.utils.errors import ConfigError


def test_sees_what_two_separate_intervals_cannot() -> None:
    # 75 against 80 of 100, and the better one is right wherever the other is
    result = paired_difference([1.0] * 80 + [0.0] * 20, [1.0] * 75 + [0.0] * 25)
    assert result.difference == pytest.approx(0.05)
    assert result.interval is not None
    assert 0.0 < result.interval.low < 0.05 < result.interval.high < 0.11
    assert (result.n, result.n_clusters, result.n_left_out) == (100, 100, 0)


def test_n10_twelve_against_five() -> None:
    first, second = [1.0] * 12 + [0.0] * 5 + [1.0] * 83, [0.0] * 12 + [1.0] * 5 + [1.0] * 83
    found = paired_difference(first, second)
    assert found.difference == pytest.approx(0.07)
    # Wald's limits are -0.009638 and 0.149638
    assert found.interval == pytest.approx((-0.009638, 0.149638), abs=0.001)
    assert found.p_value == pytest.approx(mcnemar([x > 0 for x in first], [x > 0 for x in second]).p_value, abs=0.015)


def test_half_width_is_that_of_the_difference() -> None:
    # differences 1, -1, 0, 0: variance 1/2, so 1.96 * sqrt(0.5 / 400)
    found = paired_difference([1.0, 0.0, 0.0, 1.0] * 100, [0.0, 1.0, 0.0, 1.0] * 100)
    assert found.difference == 0.0 and found.needed is None and found.p_value == pytest.approx(1.0)
    assert found.interval == pytest.approx((-0.0693, 0.0693), abs=0.001)


def test_clusters_count_and_none_is_certain() -> None:
    first, second = [1.0, 0.0] * 50, [0.0, 1.0] * 50
    for clusters in (None, [k // 2 for k in range(100)]):
        found = paired_difference(first, second, clusters=clusters)
        assert found.interval is not None and found.interval.low < -0.005 < 0.005 < found.interval.high
    copies = paired_difference([1.0] * 60 + [0.0] * 40, [0.5] * 100, clusters=[k // 4 for k in range(100)])
    rows = paired_difference([1.0] * 60 + [0.0] * 40, [0.5] * 100)
    assert copies.interval is not None and rows.interval is not None
    assert copies.interval.high - copies.interval.low == pytest.approx(
        2 * (rows.interval.high - rows.interval.low), rel=0.05
    )
    same = paired_difference([1.0] * 50, [1.0] * 50)
    assert same.interval is not None and same.p_value == 1.0 and same.interval.low < -0.005 < 0.005 < same.interval.high


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_judges_that_never_differ_are_near_each_other(n: int) -> None:
    # a share of samples above this one would have shown itself; separate intervals would be 5 to 50 times as wide
    unseen = wilson_interval(0, n).high
    for outcomes in ([1.0, 0.0] * (n // 2), [1.0] * n):
        found = paired_difference(outcomes, outcomes)
        assert found.interval == pytest.approx((-unseen, unseen), rel=0.05)
    several = paired_difference(outcomes, outcomes, strata=[k % 5 for k in range(n)])
    assert several.interval == pytest.approx((-unseen, unseen), rel=0.05)


def test_samples_without_both_outcomes_are_counted_not_compared() -> None:
    result = paired_difference([1.0, None, 0.0, 1.0], [0.0, 1.0, math.nan, 1.0])
    assert (result.difference, result.n, result.n_left_out) == (0.5, 2, 2)
    nothing = paired_difference([None], [1.0])
    assert (nothing.difference, nothing.interval, nothing.p_value, nothing.n, nothing.n_left_out) == (None,) * 3 + (
        0,
        1,
    )


def test_a_mean_of_subsets_is_compared_as_such() -> None:
    first, second = [1.0] * 10 + [0.0] * 90, [0.0] * 100
    strata = ["small"] * 10 + ["large"] * 90
    assert paired_difference(first, second).difference == pytest.approx(0.1)
    assert paired_difference(first, second, strata=strata).difference == pytest.approx(0.5)
    assert paired_difference(first, second, strata=strata, weights={"small": 1, "large": 3}).difference == 0.25


@pytest.mark.parametrize(
    ("first", "second", "more"),
    [([1.0], [], {}), ([1.0], [1.0], {"clusters": []}), ([1.0], [1.0], {"strata": [1, 2]}), ([5.0], [1.0], {})],
)
def test_what_does_not_fit_is_refused(first: list[float], second: list[float], more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        paired_difference(first, second, **more)


def test_n13_pairs_needed() -> None:
    assert pairs_needed(0.03, 0.2) == 1742
    assert pairs_needed(-0.03, 0.2) == 1742
    assert pairs_needed(0.03, 0.2, power=0.9) > 2300
    for wrong in ({"difference": 0.0}, {"difference": 0.5}, {"power": 1.0}):
        with pytest.raises(ConfigError):
            pairs_needed(**{"difference": 0.03, "disagreement": 0.2, **wrong})


def test_needed_is_what_a_difference_like_this_one_takes() -> None:
    """About half of the runs of that size see the difference again when it was just significant."""
    rng = np.random.default_rng(0)
    chances = (0.12, 0.06, 0.82)

    def found(n: int) -> tuple[float, int]:
        outcome = rng.choice(3, size=n, p=chances)
        result = paired_difference((outcome != 1).astype(float), (outcome != 0).astype(float))
        return result.p_value or 0.0, result.needed or 0

    needed = pairs_needed(0.06, 0.18)
    assert found(200_000)[1] == pytest.approx(needed, rel=0.05)
    assert np.mean([found(needed)[0] < 0.05 for _ in range(400)]) == pytest.approx(0.8, abs=0.06)


P = [0.001, 0.04, 0.03, 0.2, 0.012]


@pytest.mark.parametrize(
    ("rule", "adjusted"),
    [(holm, [0.005, 0.09, 0.09, 0.2, 0.048]), (benjamini_hochberg, [0.005, 0.05, 0.05, 0.2, 0.03])],
)
def test_n11_several_tests(rule: Callable[[Sequence[float]], list[float]], adjusted: list[float]) -> None:
    assert rule(P) == pytest.approx(adjusted)
    assert rule([]) == [] and rule([0.7]) == [0.7] and rule([0.9, 0.8]) <= [1.0, 1.0]


def test_benjamini_hochberg_equals_scipy() -> None:
    p = np.random.default_rng(0).random(50) ** 2
    assert benjamini_hochberg(p.tolist()) == pytest.approx(false_discovery_control(p))


@pytest.mark.parametrize(("per_prompt", "shared"), [(1, 0.0), (4, 0.5)])
def test_the_difference_is_covered_and_false_alarms_are_as_rare_as_said(per_prompt: int, shared: float) -> None:
    """Two judges with one part of their mistakes in common, and prompts that are hard for both."""
    rng, repeats, prompts = np.random.default_rng(1), 1500, 240 // per_prompt
    clusters = np.repeat(np.arange(prompts), per_prompt)
    inside = alarms = 0
    for _ in range(repeats):
        chance = 0.75 + shared * np.repeat(rng.uniform(-0.5, 0.5, prompts), per_prompt)
        favour = shared * np.repeat(rng.uniform(-0.3, 0.3, prompts), per_prompt)
        draws = rng.random((3, len(clusters)))
        common = draws[0] < 0.5
        a = np.where(common, draws[1] < chance, draws[1] < chance + favour).astype(float)
        b = np.where(common, draws[1] < chance, draws[2] < chance - favour).astype(float)
        found = paired_difference(a, b, clusters=clusters)
        assert found.interval is not None and found.p_value is not None
        assert (found.p_value < 0.05) == (not found.interval.covers(0.0))
        alarms += found.p_value < 0.05
        inside += found.interval.covers(0.0)
    assert 0.93 <= inside / repeats <= 0.97
    assert 0.03 <= alarms / repeats <= 0.07
