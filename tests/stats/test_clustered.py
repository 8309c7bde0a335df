"""Means over clusters: what they equal, what they never do, and how often their intervals hold the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from rm_gallery.core.stats.clustered import ClusteredMean, clustered_mean, combined, from_draws, from_variance
from rm_gallery.core.stats.intervals import wilson_interval


def mean(values: Any, clusters: Any = None, **more: Any) -> ClusteredMean:
    found = clustered_mean(values, clusters, **more)
    assert found is not None
    return found


@pytest.mark.parametrize(("k", "n"), [(8, 10), (0, 7), (7, 7), (1, 2), (1, 1), (499, 500)])
def test_it_is_wilsons_interval_where_every_sample_stands_alone(k: int, n: int) -> None:
    found = mean([1.0] * k + [0.0] * (n - k)).interval()
    assert found == pytest.approx(wilson_interval(k, n), abs=1e-12)
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    assert found == pytest.approx(proportion.proportion_confint(k, n, method="wilson"), abs=1e-12)


def test_copies_of_an_outcome_are_no_new_information() -> None:
    outcomes = [1.0] * 70 + [0.0] * 30
    once = mean(outcomes).interval()
    ninefold = mean(np.repeat(outcomes, 9), np.repeat(np.arange(100), 9)).interval()
    assert ninefold == pytest.approx(once, abs=0.002)
    assert mean(np.repeat(outcomes, 9)).interval().low > once.low + 0.04, "which is what not knowing would claim"


def test_the_variance_of_a_mean_of_strata_is_that_of_its_parts() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.random(400) < 0.3).astype(float), (rng.random(80) < 0.9).astype(float)
    found = mean(np.concatenate([a, b]), strata=["a"] * 400 + ["b"] * 80)
    assert found.variance == pytest.approx((a.var() / 399 + b.var() / 79) / 4, rel=0.12)


def test_a_prompt_in_two_strata_is_one_witness() -> None:
    outcomes = (np.random.default_rng(1).random(300) < 0.5).astype(float)
    both, strata, prompts = np.tile(outcomes, 2), ["a"] * 300 + ["b"] * 300, np.tile(np.arange(300), 2)
    shared, apart = mean(both, prompts, strata=strata), mean(both, strata=strata)
    assert shared.variance == pytest.approx(2 * apart.variance, rel=0.02)


@pytest.mark.parametrize("strata", [1, 3])
def test_the_p_value_and_the_interval_agree(strata: int) -> None:
    found = mean([1.0] * 62 + [0.0] * 38, strata=[k % strata for k in range(100)])
    for level in (0.9, 0.95, 0.99):
        for end in found.interval(level):
            assert found.p_value(end) == pytest.approx(1 - level, abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 4, 5, 12, 19])
@pytest.mark.parametrize("null", [0.5, 0.3])
def test_few_rows_have_an_exact_p_value(n: int, null: float) -> None:
    for k in range(n + 1):
        tails = binom.cdf(k, n, null), binom.sf(k - 1, n, null)
        assert mean([1.0] * k + [0.0] * (n - k)).p_value(null) == pytest.approx(min(1.0, 2 * min(tails)), abs=1e-12)
    rejected = [k for k in range(n + 1) if mean([1.0] * k + [0.0] * (n - k)).p_value(null) < 0.05]
    assert binom.pmf(rejected, n, null).sum() <= 0.05


def test_from_twenty_rows_on_the_p_value_is_that_of_the_score_test() -> None:
    z = abs(0.25 - 0.5) / math.sqrt(0.25 / 20)
    assert mean([1.0] * 5 + [0.0] * 15).p_value(0.5) == pytest.approx(2 * norm.sf(z))
    with_ties = [[0.5] * 300 + [1.0] * won + [0.0] * lost for won, lost in ((0, 4), (14, 5), (15, 5))]
    found = [mean(values).p_value(0.5) for values in with_ties]
    assert found[:2] == pytest.approx([0.125, binomtest(5, 19).pvalue]), "ties say nothing"
    assert found[2] == pytest.approx(2 * norm.sf(10 / math.sqrt(20)), rel=0.05), "the others are enough for the limit"
    assert mean([0.5] * 96 + [0.0] * 4).p_value(0.45) > mean([0.5] * 96 + [0.0] * 4).p_value(0.55)


def test_other_figures_take_the_same_form() -> None:
    assert from_draws(0.3, np.array([0.2, math.nan, 0.4]), 50).standard_error == pytest.approx(0.1, rel=0.02)
    whole = combined([(from_variance(0.2, 0.01, 10), 1), (from_variance(0.8, 0.01, 10), 3)])
    assert whole is not None and whole.estimate == pytest.approx(0.65) and whole.effective_clusters == pytest.approx(16)
    assert whole.variance == pytest.approx((1 / 16 + 9 / 16) * from_variance(0.2, 0.01, 10).variance)
    assert combined([]) is None


def test_what_few_clusters_cannot_show_is_not_taken_for_certain() -> None:
    pairs = [k // 2 for k in range(40)]
    twenty, forty = mean([0.25] * 20).interval(), mean([0.25] * 40).interval()
    assert mean([0.25] * 40, pairs).interval() == pytest.approx(twenty) != pytest.approx(forty), "twenty witnesses"
    agreeing = mean([1.0, 0.0] * 20, [k // 10 for k in range(40)])
    assert agreeing.variance >= 0.25 / 40, "clusters that agree say no more than independent outcomes would"
    lone = mean([1.0, 0.0] * 205, [0] * 10 + list(range(1, 401)), strata=["a"] * 10 + ["b"] * 400)
    assert lone.standard_error == pytest.approx(0.25, abs=0.001), "one cluster says nothing about its stratum"


@pytest.mark.parametrize("share", [0.0, 1e-5, 0.01, 0.3, 0.5, 0.9, 0.999, 1 - 1e-9, 1.0])
def test_equal_outcomes_are_no_less_certain_than_a_coin_of_their_share(share: float) -> None:
    low, high = wilson_interval(100 * share, 100)
    for found in (mean([share] * 100), from_variance(share, 0.0, 100)):
        assert low - 1e-9 <= found.interval().low < found.interval().high <= high + 1e-9


def test_one_common_correlation_counts_where_the_jackknife_sees_too_little() -> None:
    sizes, outcomes = np.array([8, 1, 5, 1, 4, 1]), np.array([float(bit) for bit in "11101111111111111010"])
    sums = np.add.reduceat(outcomes - 0.85, np.cumsum(sizes) - sizes)
    between, all_squares = float(np.sum(sums**2 / sizes)), float(np.sum((outcomes - 0.85) ** 2))
    within, typical = (all_squares - between) / 14, (20 - float(np.sum(sizes**2)) / 20) / 5
    correlation = (between / 5 - within) / (between / 5 + (typical - 1) * within)
    design = 1 + (float(np.sum(sizes**2)) / 20 - 1) * correlation
    found = mean(outcomes, np.repeat(np.arange(6), sizes))
    # and a quarter of a cluster as extreme as can be
    expected = (6 * all_squares / 380 * design * 5 / 6 + 0.25 * 0.1275 * float(np.sum(sizes**2)) / 400) / 6.25
    assert found.variance == pytest.approx(expected) and design > 1.5


def test_strata_near_an_end_move_the_middle() -> None:
    """Price and Bonett: two more outcomes to each of two equal strata, one of them a failure."""
    found = mean([1.0] * 20 + [1.0] * 19 + [0.0], strata=["a"] * 20 + ["b"] * 20)
    assert found.shift == pytest.approx((21 / 22 - 1 + (19 * 0.95 + 1) / 21 - 0.95) / 2)
    twice = combined([(found, 1), (found, 3)])
    assert twice is not None and twice.shift == pytest.approx(found.shift)


def beta_binomial(rng: np.random.Generator, sizes: Any, p: float, icc: float) -> np.ndarray[Any, Any]:
    """One 0/1 outcome per item; items of a cluster share a chance of their own."""
    chance = rng.beta(p * (1 - icc) / icc, (1 - p) * (1 - icc) / icc, len(sizes)) if icc else np.full(len(sizes), p)
    return (rng.random(int(sizes.sum())) < np.repeat(chance, sizes)).astype(float)


def covered(draw: Callable[[], ClusteredMean], truth: float, repeats: int = 1000) -> float:
    found = [draw().interval() for _ in range(repeats)]
    return sum(low - 1e-12 <= truth <= high + 1e-12 for low, high in found) / repeats


EQUAL, UNEVEN = [4] * 75, [1, 2, 3, 4, 10] * 15


@pytest.mark.parametrize(
    ("sizes", "p", "icc"),
    [
        ([1] * 300, 0.7, 0.0),
        ([1] * 300, 0.1, 0.0),
        (EQUAL, 0.6, 0.1),
        (EQUAL, 0.8, 0.4),
        (EQUAL, 0.93, 0.3),
        (UNEVEN, 0.5, 0.2),
        (UNEVEN, 0.7, 0.5),
        (UNEVEN, 0.85, 0.3),
    ],
)
def test_coverage_of_shares(sizes: list[int], p: float, icc: float) -> None:
    rng, numbers = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    weights = np.array(sizes)
    assert 0.925 <= covered(lambda: mean(beta_binomial(rng, weights, p, icc), numbers), p) <= 0.97


def test_coverage_of_a_mean_of_subsets_and_of_graded_credits() -> None:
    rng = np.random.default_rng(0)
    strata = np.repeat(np.arange(5), (20, 40, 60, 100, 200))
    chances = np.array([0.9, 0.5, 0.7, 0.8, 0.3])
    weights = {0: 3.0, 1: 1.0, 2: 1.0, 3: 2.0, 4: 1.0}
    truth = float(np.dot(chances, list(weights.values())) / 8)

    def subsets() -> ClusteredMean:
        return mean((rng.random(len(strata)) < chances[strata]).astype(float), strata=strata, weights=weights)

    def graded() -> ClusteredMean:
        return mean(np.round(rng.beta(3, 1.5, 80) * 9) / 9)

    assert 0.925 <= covered(subsets, truth) <= 0.97
    assert 0.925 <= covered(graded, float(np.mean(np.round(rng.beta(3, 1.5, 200_000) * 9) / 9))) <= 0.97
