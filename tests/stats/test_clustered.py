"""Means and other figures over clusters: what they equal, how often their intervals hold the truth,
and what resampling draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, binomtest, norm

from rm_gallery.core.stats import clustered
from rm_gallery.core.stats.intervals import wilson_interval


def mean(values: Any, clusters: Any = None, **more: Any) -> clustered.ClusteredMean:
    found = clustered.clustered_mean(values, clusters, **more)
    assert found is not None
    return found


@pytest.mark.parametrize(("k", "n"), [(8, 10), (0, 7), (7, 7), (1, 2), (1, 1), (499, 500)])
def test_it_is_wilsons_interval_where_every_sample_stands_alone(k: int, n: int) -> None:
    found = mean([1.0] * k + [0.0] * (n - k)).interval()
    assert found == pytest.approx(wilson_interval(k, n), abs=1e-12)
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    assert found == pytest.approx(proportion.proportion_confint(k, n, method="wilson"), abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 4, 5, 12, 19])
@pytest.mark.parametrize("null", [0.5, 0.3])
def test_few_rows_have_an_exact_p_value(n: int, null: float) -> None:
    for k in range(n + 1):
        tails = binom.cdf(k, n, null), binom.sf(k - 1, n, null)
        assert mean([1.0] * k + [0.0] * (n - k)).p_value(null) == pytest.approx(
            min(1.0, 2 * min(tails)), abs=1e-12
        )
    rejected = [k for k in range(n + 1) if mean([1.0] * k + [0.0] * (n - k)).p_value(null) < 0.05]
    assert binom.pmf(rejected, n, null).sum() <= 0.05


def test_from_twenty_rows_on_the_p_value_is_that_of_the_score_test() -> None:
    z = abs(0.25 - 0.5) / math.sqrt(0.25 / 20)
    assert mean([1.0] * 5 + [0.0] * 15).p_value(0.5) == pytest.approx(2 * norm.sf(z))
    with_ties = [
        [0.5] * 300 + [1.0] * won + [0.0] * lost for won, lost in ((0, 4), (14, 5), (15, 5))
    ]
    found = [mean(values).p_value(0.5) for values in with_ties]
    assert found[:2] == pytest.approx([0.125, binomtest(5, 19).pvalue]), "ties say nothing"
    assert found[2] == pytest.approx(2 * norm.sf(10 / math.sqrt(20)), rel=0.05), (
        "the others are enough for the limit"
    )
    assert mean([0.5] * 96 + [0.0] * 4).p_value(0.45) > mean([0.5] * 96 + [0.0] * 4).p_value(0.55)


def test_other_figures_take_the_same_form() -> None:
    assert clustered.from_draws(
        0.3, np.array([0.2, math.nan, 0.4]), 50
    ).standard_error == pytest.approx(0.1, rel=0.02)
    whole = clustered.combined(
        [(clustered.from_variance(0.2, 0.01, 10), 1), (clustered.from_variance(0.8, 0.01, 10), 3)]
    )
    assert (
        whole is not None
        and whole.estimate == pytest.approx(0.65)
        and whole.effective_clusters == pytest.approx(16)
    )
    assert whole.variance == pytest.approx(
        (1 / 16 + 9 / 16) * clustered.from_variance(0.2, 0.01, 10).variance
    )
    assert clustered.combined([]) is None
    # near an end, which moves the middle
    found = mean([1.0] * 39 + [0.0], strata=["a"] * 20 + ["b"] * 20)
    twice = clustered.combined([(found, 1), (found, 3)])
    assert (
        twice is not None
        and twice.shift == pytest.approx(found.shift)
        and found.shift not in (None, 0.0)
    )


def beta_binomial(
    rng: np.random.Generator, sizes: Any, p: float, icc: float
) -> np.ndarray[Any, Any]:
    """One 0/1 outcome per item; items of a cluster share a chance of their own."""
    chance = (
        rng.beta(p * (1 - icc) / icc, (1 - p) * (1 - icc) / icc, len(sizes))
        if icc
        else np.full(len(sizes), p)
    )
    return (rng.random(int(sizes.sum())) < np.repeat(chance, sizes)).astype(float)


def covered(
    draw: Callable[[], clustered.ClusteredMean], truth: float, repeats: int = 1000
) -> float:
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
    ]
    + [(UNEVEN, 0.5, 0.2), (UNEVEN, 0.7, 0.5), (UNEVEN, 0.85, 0.3)],
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

    def subsets() -> clustered.ClusteredMean:
        return mean(
            (rng.random(len(strata)) < chances[strata]).astype(float),
            strata=strata,
            weights=weights,
        )

    def graded() -> clustered.ClusteredMean:
        return mean(np.round(rng.beta(3, 1.5, 80) * 9) / 9)

    assert 0.925 <= covered(subsets, truth) <= 0.97
    assert (
        0.925
        <= covered(graded, float(np.mean(np.round(rng.beta(3, 1.5, 200_000) * 9) / 9)))
        <= 0.97
    )


@pytest.mark.parametrize(
    ("value", "low", "high"), [(1.0, 0.97, 1.0), (0.0, 0.0, 0.03), (0.25, 0.16, 0.35)]
)
def test_outcomes_all_alike_are_not_taken_as_certain(value: float, low: float, high: float) -> None:
    interval = clustered.draws_interval(
        clustered.mean_draws({value: 100}, clustered.named_generator(0, "x"))
    )
    assert interval is not None and low < interval.low < interval.high <= high


def test_stream_depends_on_seed_and_name_only() -> None:
    counts = {0.0: 5, 1.0: 7}
    first = clustered.mean_draws(counts, clustered.named_generator(1, "Math"))
    assert np.array_equal(
        first, clustered.mean_draws({1.0: 7, 0.0: 5}, clustered.named_generator(1, "Math"))
    )
    assert not np.array_equal(
        first, clustered.mean_draws(counts, clustered.named_generator(1, "Focus"))
    )
    assert not np.array_equal(
        first, clustered.mean_draws(counts, clustered.named_generator(2, "Math"))
    )
    assert np.array_equal(
        first, clustered.mean_draws(counts, clustered.named_generator(1 + 2**32, "Math"))
    )


def test_undefined_draws_are_left_out() -> None:
    assert (
        clustered.draws_interval(np.array([np.nan, 0.5, 0.5])) == (0.5, 0.5)
        and clustered.draws_interval(np.array([np.nan])) is None
    )


def _median_of_three(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """A figure that is no mean: the middle of three shares."""
    return np.median(sums[:, :3] / sums[:, 3:], axis=1)


def test_any_figure_of_column_sums_has_an_interval_over_clusters() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([(rng.random((400, 3)) < (0.3, 0.5, 0.7)).astype(float), np.ones(400)])
    alone = clustered.bootstrapped(rows, _median_of_three)
    assert alone is not None and alone.estimate == np.median(rows[:, :3].mean(axis=0))
    # near enough the standard error of the middle share
    assert alone.standard_error == pytest.approx(0.025, rel=0.15)
    copies = clustered.bootstrapped(
        np.repeat(rows, 4, axis=0), _median_of_three, clusters=np.repeat(np.arange(400), 4)
    )
    assert copies is not None and copies.standard_error == pytest.approx(
        alone.standard_error, rel=0.1
    )
    other = clustered.bootstrapped(rows, _median_of_three, seed=1)
    assert other is not None and other.interval() != alone.interval()


def test_a_figure_that_is_undefined_or_of_nothing_is_none() -> None:
    assert clustered.bootstrapped(np.zeros((0, 4)), _median_of_three) is None
    assert clustered.bootstrapped(np.zeros((3, 1)), lambda sums: np.full(len(sums), np.nan)) is None
    certain = clustered.bootstrapped(np.ones((20, 4)), _median_of_three)
    assert certain is not None and certain.interval().low < 0.9, (
        "draws that are all alike say nothing"
    )


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("n", [40, 372])
def test_one_repeated_prompt_changes_little(n: int, graded: bool) -> None:
    """The freedom of what clusters do not explain once was n less the clusters: one."""
    rng = np.random.default_rng(n)
    values = rng.random(n) if graded else (rng.random(n) < 0.44).astype(float)
    alone = [f"prompt {index}" for index in range(n)]
    apart = mean(values, alone).interval()
    repeated = mean(values, [alone[1], *alone[1:]]).interval()
    assert repeated.high - repeated.low < 1.25 * (apart.high - apart.low)
