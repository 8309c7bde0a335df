"""Estimates and what follows from their pulls: what they equal, that interval and p-value agree, that
clusters never narrow them, and how often they hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.stats import binom, binomtest, norm

from rm_gallery import ConfigError
from rm_gallery.core.stats import uncertainty
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.significance import holm
from rm_gallery.core.stats.uncertainty import Estimate

Floats = NDArray[np.float64]


def mean(values: Any, clusters: Any = None, **more: Any) -> Estimate:
    found = uncertainty.clustered_mean(values, clusters, **more)
    assert found is not None
    return found


def ends_of(found: Estimate, level: float = 0.95) -> Interval:
    ends = found.interval(level)
    assert ends is not None
    return ends


def p_of(found: Estimate, null: float) -> float:
    p = found.p_value(null)
    assert p is not None
    return p


@pytest.mark.parametrize(("k", "n"), [(20, 25), (0, 20), (70, 70), (499, 500)])
def test_it_is_wilsons_interval_where_every_sample_stands_alone(k: int, n: int) -> None:
    found = ends_of(mean([1.0] * k + [0.0] * (n - k)))
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    assert found == pytest.approx(proportion.proportion_confint(k, n, method="wilson"), abs=1e-12)


def test_graded_values_have_students_interval_on_an_open_scale() -> None:
    values = [79.0, 81.5, 80.2, 83.0, 77.7, 80.0]
    expected = stats.t.interval(0.95, 5, np.mean(values), stats.sem(values))
    assert ends_of(mean(values, bounds=(-math.inf, math.inf))) == pytest.approx(expected)
    test = stats.ttest_1samp(values, 82.0)
    assert p_of(mean(values, bounds=(-math.inf, math.inf)), 82.0) == pytest.approx(test.pvalue)


def test_a_declared_range_matters_near_its_ends_only() -> None:
    values = np.random.default_rng(0).normal(80.0, 2.0, 60)
    wide = ends_of(mean(values, bounds=(-math.inf, math.inf)))
    declared = ends_of(mean(values, bounds=(0.0, 100.0)))
    assert declared.high - declared.low == pytest.approx(wide.high - wide.low, rel=0.1)


@pytest.mark.parametrize("n", [2, 4, 5, 12, 19])
@pytest.mark.parametrize("null", [0.5, 0.3])
def test_few_rows_have_an_exact_p_value(n: int, null: float) -> None:
    p_values = [p_of(mean([1.0] * k + [0.0] * (n - k)), null) for k in range(n + 1)]
    for k, p in enumerate(p_values):
        tails = binom.cdf(k, n, null), binom.sf(k - 1, n, null)
        assert p >= min(1.0, 2 * min(tails)) - 1e-12
    rejected = [k for k, p in enumerate(p_values) if p < 0.05]
    assert binom.pmf(rejected, n, null).sum() <= 0.05


def test_four_of_four_and_ties_show_nothing() -> None:
    assert p_of(mean([1.0] * 4), 0.5) == pytest.approx(0.125) and ends_of(mean([1.0] * 4)).low < 0.5
    z = abs(0.25 - 0.5) / math.sqrt(0.25 / 20)
    assert p_of(mean([1.0] * 5 + [0.0] * 15), 0.5) == pytest.approx(2 * norm.sf(z))
    lost = [mean([0.5] * 300 + [0.0] * few) for few in (4, 5)]
    assert [p_of(one, 0.5) for one in lost] == pytest.approx([0.125, binomtest(5, 5).pvalue])
    assert all(ends_of(one).covers(0.5) for one in lost), "the interval is what is not refused"


def test_one_cluster_says_nothing_about_others() -> None:
    for found in (mean([1.0, 0.0, 1.0], ["a"] * 3), mean([0.4]), mean([1.0])):
        assert found.interval() is None and found.p_value(0.5) is None
        assert found.detectable() is None and not found.surely_above(-1.0)


def test_outcomes_all_alike_are_not_taken_as_certain() -> None:
    low, high = ends_of(mean([0.25] * 100))
    assert 0.23 < low < 0.25 < high < 0.29
    assert mean([3.0] * 9, bounds=(-math.inf, math.inf)).interval() is None


def test_figures_of_the_same_rows_subtract_and_others_are_pooled() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.random(80), rng.random(80)
    both = uncertainty.difference(mean(first), mean(second))
    paired = mean(first - second, bounds=(-1.0, 1.0))
    assert both.estimate == pytest.approx(paired.estimate)
    assert ends_of(both) == pytest.approx(ends_of(paired))
    same = uncertainty.difference(mean(first), mean(first))
    assert same.variance == pytest.approx(0.0, abs=1e-20)
    with pytest.raises(ConfigError, match="not of the same rows"):
        uncertainty.difference(mean(first), mean(second[:40]))
    whole = uncertainty.pooled([(mean(first), 1.0), (mean(second), 3.0)])
    assert whole is not None and whole.n_clusters == 160
    assert whole.estimate == pytest.approx((first.mean() + 3 * second.mean()) / 4)
    assert whole.variance == pytest.approx(
        (mean(first).variance + 9 * mean(second).variance) / 16, rel=0.02
    )
    assert uncertainty.pooled([]) is None


def test_equivalence_and_what_could_have_been_seen() -> None:
    changes = np.random.default_rng(1).choice([-1.0, 0.0, 1.0], 2000, p=[0.05, 0.9, 0.05])
    found = mean(changes, bounds=(-1.0, 1.0))
    assert found.within(0.03) and not found.within(0.005) and found.surely_above(-0.03)
    seen = found.detectable()
    assert seen is not None and seen == pytest.approx(2.8 * found.standard_error, rel=0.01)


def test_the_largest_of_many_differences_is_held_to_more() -> None:
    rng, noise = np.random.default_rng(5), np.random.default_rng(6).normal(size=(12, 60))
    values = [mean(row, bounds=(-math.inf, math.inf)) for row in noise]
    plain, adjusted = [p_of(one, 0.0) for one in values], uncertainty.max_t(values)
    assert all(
        a is not None and p <= a <= min(1.0, 12 * p) + 1e-12
        for p, a in zip(plain, adjusted, strict=True)
    )
    alike = [
        mean(noise[0] + 1e-6 * rng.normal(size=60), bounds=(-math.inf, math.inf)) for _ in range(12)
    ]
    found = uncertainty.max_t(alike)[0]
    assert found == pytest.approx(p_of(alike[0], 0.0), abs=0.03), (
        "figures that move together cost little"
    )


def test_no_figure_of_many_costs_more_than_by_holm_and_a_million_clusters_need_little_room() -> (
    None
):
    """One step against the largest of all would make the weakest dearer than Holm does."""
    noise = np.random.default_rng(3).normal(size=(3, 100_000))
    figures = [
        mean(row + shift, bounds=(-math.inf, math.inf))
        for row, shift in zip(noise, (0.0, 0.02, 0.05), strict=True)
    ]
    plain = [p_of(one, 0.0) for one in figures]
    adjusted = [p or 0.0 for p in uncertainty.max_t(figures)]  # 3 GB with a draw a cluster
    assert all(p <= a <= h for p, a, h in zip(plain, adjusted, holm(plain), strict=True))
    assert max(adjusted) == max(plain), "the weakest is held against itself alone"
    # figures of which no row moves are counted, too
    still = [mean(np.zeros(40), bounds=(-1.0, 1.0)) for _ in range(2)]
    assert uncertainty.max_t(still, -0.1) == pytest.approx([2 * p_of(still[0], -0.1)] * 2)


def test_a_part_of_which_no_row_differs_is_still_a_part() -> None:
    rng = np.random.default_rng(2)
    other = mean(rng.choice([0.0, 1.0], 200) * 1.0, bounds=(-1.0, 1.0))
    p, few = (
        uncertainty.heterogeneity([mean(np.zeros(n), bounds=(-1.0, 1.0)), other]) for n in (200, 3)
    )
    assert p is not None and few is not None and p < 0.001 and few > 0.05
    same = [(other, other), (other, other)]
    assert uncertainty.heterogeneity_between(same) == uncertainty.heterogeneity([other, other])
    # what is missing may make them equal
    low, high = (
        mean(np.full(200, end) * rng.choice([0.5, 1.0], 200), bounds=(-1.0, 1.0))
        for end in (-0.5, 0.9)
    )
    assert uncertainty.heterogeneity_between([(low, high), (other, other)]) == 1.0


def test_parts_that_differ_are_told_from_parts_that_do_not() -> None:
    rng = np.random.default_rng(2)
    same = [mean((rng.random(200) < 0.6) * 1.0) for _ in range(4)]
    other = [*same, mean((rng.random(200) < 0.9) * 1.0)]
    p, q = uncertainty.heterogeneity(same), uncertainty.heterogeneity(other)
    assert p is not None and q is not None and p > 0.05 > 0.001 > q
    assert uncertainty.heterogeneity(same[:1]) is None


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


def covered(draw: Callable[[], Estimate], truth: float, repeats: int = 1000) -> float:
    found = [ends_of(draw()) for _ in range(repeats)]
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

    def subsets() -> Estimate:
        return mean(
            (rng.random(len(strata)) < chances[strata]).astype(float),
            strata=strata,
            weights=weights,
        )

    def graded() -> Estimate:
        return mean(np.round(rng.beta(3, 1.5, 80) * 9) / 9)

    assert 0.925 <= covered(subsets, truth) <= 0.97
    assert (
        0.925
        <= covered(graded, float(np.mean(np.round(rng.beta(3, 1.5, 200_000) * 9) / 9)))
        <= 0.97
    )


def _median_of_three(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """A figure that is no mean: the middle of three shares."""
    return np.median(sums[:, :3] / sums[:, 3:], axis=1)


def test_any_figure_of_column_sums_has_an_interval_over_clusters() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([(rng.random((400, 3)) < (0.3, 0.5, 0.7)).astype(float), np.ones(400)])
    alone = uncertainty.of_sums(rows, _median_of_three)
    assert alone is not None and alone.estimate == np.median(rows[:, :3].mean(axis=0))
    # near enough the standard error of the middle share
    assert alone.standard_error == pytest.approx(0.025, rel=0.15)
    copies = uncertainty.of_sums(
        np.repeat(rows, 4, axis=0), _median_of_three, clusters=np.repeat(np.arange(400), 4)
    )
    assert copies is not None and copies.standard_error == pytest.approx(
        alone.standard_error, rel=0.1
    )


def test_a_figure_that_is_undefined_or_of_nothing_is_none() -> None:
    assert uncertainty.of_sums(np.zeros((0, 4)), _median_of_three) is None
    nothing: Callable[[Floats], Floats] = lambda sums: np.full(len(sums), np.nan)  # noqa: E731
    assert uncertainty.of_sums(np.zeros((3, 1)), nothing) is None
    certain = uncertainty.of_sums(np.ones((20, 4)), _median_of_three)
    assert certain is not None and ends_of(certain).low < 0.9, "rows that are all alike say little"


MAKERS: dict[str, Callable[[Floats, Any], Estimate | None]] = {
    "0/1": lambda values, names: uncertainty.clustered_mean((values > 0.4) * 1.0, names),
    "graded": uncertainty.clustered_mean,
    "open": lambda values, names: mean(values, names, bounds=(-math.inf, math.inf)),
    "difference": lambda values, names: uncertainty.difference(
        mean((values > 0.4) * 1.0, names), mean((values > 0.7) * 1.0, names)
    ),
    "share of": lambda values, names: uncertainty.share_of(
        (values > 0.6) * 1.0, (values > 0.3) * 1.0, names
    ),
    "of sums": lambda values, names: uncertainty.of_sums(
        np.column_stack([values**2, values]), lambda sums: sums[:, 0] / sums[:, 1], names
    ),
    "strata": lambda values, names: mean(
        (values > 0.4) * 1.0, names, strata=["a", "b"] * (len(values) // 2)
    ),
}
"""Each way to an estimate, from values within 0..1 and their clusters."""


@pytest.mark.parametrize("maker", MAKERS)
def test_the_interval_is_what_the_p_value_does_not_refuse(maker: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        n = 2 * int(rng.integers(4, 40))
        found = MAKERS[maker](rng.random(n), rng.integers(0, max(2, n // 3), n))
        ends = None if found is None else found.interval()
        for null in (0.0, 0.3, 0.5, rng.random()):
            p = None if found is None else found.p_value(null)
            assert (p is None) == (ends is None)
            if p is not None and ends is not None and abs(p - 0.05) > 1e-9:
                assert (p < 0.05) == (not ends.covers(null))


@pytest.mark.parametrize("maker", MAKERS)
def test_clusters_never_narrow_and_copies_are_no_new_rows(maker: str) -> None:
    rng, make = np.random.default_rng(8), MAKERS[maker]
    for _ in range(20):
        values = rng.random(60)
        apart, together = make(values, None), make(values, rng.integers(0, 12, 60))
        copies = make(np.repeat(values, 4), np.repeat(np.arange(60), 4))
        assert apart is not None and together is not None and copies is not None
        width = np.diff(ends_of(apart))
        assert np.diff(ends_of(together)) >= width - 1e-12
        assert np.diff(ends_of(copies)) >= 0.97 * width


@pytest.mark.parametrize("maker", MAKERS)
def test_fewer_clusters_are_wider_in_the_median_and_one_has_no_interval(maker: str) -> None:
    rng, widths = np.random.default_rng(9), []
    draws = rng.random((30, 60))
    for k in (60, 10, 3, 2):
        found = [MAKERS[maker](values, np.arange(60) % k) for values in draws]
        ends = [one.interval() for one in found if one is not None]
        widths.append(np.median([2.0 if span is None else np.diff(span)[0] for span in ends]))
    assert widths == sorted(widths)
    one = MAKERS[maker](draws[0], np.zeros(60))
    assert one is not None and one.interval() is None and one.p_value(0.5) is None


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("n", [40, 372])
def test_one_repeated_prompt_changes_little(n: int, graded: bool) -> None:
    """The freedom of what clusters do not explain once was n less the clusters: one."""
    rng = np.random.default_rng(n)
    values = rng.random(n) if graded else (rng.random(n) < 0.44).astype(float)
    alone = [f"prompt {index}" for index in range(n)]
    apart = ends_of(mean(values, alone))
    repeated = ends_of(mean(values, [alone[1], *alone[1:]]))
    assert repeated.high - repeated.low < 1.25 * (apart.high - apart.low)


def test_clusters_that_lie_differently_far_from_the_middle_are_no_signs() -> None:
    """230 won, 9 lost and the rest tied in 19 prompts once had p = 1, in 20 prompts p = .002."""
    rng = np.random.default_rng(0)
    names = np.repeat(np.arange(19), 50)
    won = np.where(rng.random(950) < 0.25, 1.0, 0.5)
    assert p_of(mean(won, names), 0.5) < 1e-6
    # both orders of a pair are one cluster: four that count of a hundred show nothing
    pairs = np.array([0.5] * 192 + [1.0] * 8)
    assert p_of(mean(pairs, np.arange(200) // 2), 0.5) == pytest.approx(0.125)


@pytest.mark.parametrize("rows", [10, 20])
@pytest.mark.parametrize(
    ("outcomes", "chances"), [((0.0, 1.0), (0.5, 0.5)), ((-1.0, 0.0, 1.0), (0.3, 0.4, 0.3))]
)
def test_equal_parts_are_told_apart_as_rarely_as_said(
    outcomes: tuple[float, ...], chances: tuple[float, ...], rows: int
) -> None:
    """Differences of ten parts of ten rows were told apart in 13 %, each held to its own spread."""
    rng, found = np.random.default_rng(4), []
    for _ in range(400):
        parts = [
            mean(rng.choice(outcomes, rows, p=chances), bounds=(outcomes[0], 1.0))
            for _ in range(10)
        ]
        found.append(uncertainty.heterogeneity(parts) or 0.0)
    assert np.mean(np.array(found) < 0.05) <= 0.07
