"""Agreement against statsmodels and krippendorff on the same data, and how often the intervals hold the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from scipy.stats import kendalltau

from rm_gallery.core.stats.agreement import (
    cohen_kappa,
    cohen_kappa_estimate,
    fleiss_kappa,
    fleiss_kappa_estimate,
    krippendorff_alpha,
    krippendorff_alpha_estimate,
)
from rm_gallery.core.stats.clustered import ClusteredMean
from rm_gallery.core.stats.correlation import kendall_tau_b_estimate, spearman_estimate
from rm_gallery.core.utils.errors import ConfigError

Metric = Literal["nominal", "ordinal", "interval"]
# a known example: ten subjects, fourteen raters each, five categories
FLEISS = "0000e 02642 00356 03920 22811 77000 32630 25322 65210 02237".split()


def raters(counts: list[str]) -> list[list[int]]:
    """Rows of labels, one per rater, whose counts per unit are these (written as digits)."""
    units = [[label for label, k in enumerate(row) for _ in range(int(k, 16))] for row in counts]
    return [[unit[rater] for unit in units] for rater in range(len(units[0]))]


def ratings(seed: int, missing: float = 0.0) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, 60)
    found = np.where(rng.random((5, 60)) < 0.35, rng.integers(0, 4, (5, 60)), truth).astype(float)
    found[rng.random(found.shape) < missing] = np.nan
    return [[float(value) for value in row] for row in found]


def test_fleiss_by_a_published_example() -> None:
    assert fleiss_kappa(raters(FLEISS)) == pytest.approx(0.210, abs=5e-4)


@pytest.mark.parametrize("seed", range(3))
def test_fleiss_equals_statsmodels(seed: int) -> None:
    reference = pytest.importorskip("statsmodels.stats.inter_rater")
    found = ratings(seed)
    counts, _ = reference.aggregate_raters(np.array(found).T)
    assert fleiss_kappa(found) == pytest.approx(reference.fleiss_kappa(counts), abs=1e-12)


@pytest.mark.parametrize("metric", ["nominal", "ordinal", "interval"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_alpha_equals_krippendorff(metric: Metric, missing: float) -> None:
    reference = pytest.importorskip("krippendorff")
    for seed in range(3):
        found = ratings(seed, missing)
        expected = reference.alpha(reliability_data=np.array(found), level_of_measurement=metric)
        assert krippendorff_alpha(found, metric=metric) == pytest.approx(expected, abs=1e-12)


def test_alpha_of_ordered_labels_needs_their_order() -> None:
    first, second = ["low", "mid", "high", "low", "mid"], ["low", "high", "high", "mid", "mid"]
    found = krippendorff_alpha([first, second], metric="ordinal", categories=["low", "mid", "high"])
    numbers = [[{"low": 0, "mid": 1, "high": 2}[label] for label in row] for row in (first, second)]
    assert found == pytest.approx(krippendorff_alpha(numbers, metric="ordinal"))
    assert found != pytest.approx(krippendorff_alpha([first, second], metric="ordinal"))
    with pytest.raises(ConfigError, match="'mid'"):
        krippendorff_alpha([first, second], metric="ordinal", categories=["low", "high"])


def test_n22_two_raters() -> None:
    first, second = list("1011010111"), list("1011110101")
    assert cohen_kappa(first, second) == pytest.approx(0.523810, abs=1e-6)
    assert krippendorff_alpha([first, second]) == pytest.approx(0.547619, abs=1e-6)


def test_fleiss_refuses_gaps_and_is_undefined_for_one_label() -> None:
    gaps: list[list[str | None]] = [["a", "b"], ["a", None]]
    with pytest.raises(ConfigError, match="same number of ratings"):
        fleiss_kappa(gaps)
    assert fleiss_kappa([["a", "a"], ["a", "a"]]) is None
    assert fleiss_kappa([["a", "b"]]) is None
    assert fleiss_kappa([]) is None


def test_the_standard_error_of_kappa_is_statsmodels() -> None:
    reference = pytest.importorskip("statsmodels.stats.inter_rater")
    first, second = ([int(v) for v in row] for row in ratings(1)[:2])
    expected = reference.cohens_kappa(reference.to_table(np.column_stack([first, second]))[0])
    found = cohen_kappa_estimate(first, second)
    assert found is not None
    assert found.standard_error == pytest.approx(expected.std_kappa, rel=0.05)
    assert found.interval() == pytest.approx((expected.kappa_low, expected.kappa_upp), abs=0.03)


Estimate = Callable[..., ClusteredMean | None]


@pytest.mark.parametrize(
    ("estimate", "perfect"),
    [
        (cohen_kappa_estimate, ([0, 1] * 20, [0, 1] * 20)),
        (fleiss_kappa_estimate, ([[0, 1] * 20] * 3,)),
        (krippendorff_alpha_estimate, ([[0, 1] * 20] * 3,)),
        (spearman_estimate, (list(range(40)), list(range(40)))),
        (kendall_tau_b_estimate, (list(range(40)), list(range(40)))),
    ],
)
def test_full_agreement_is_not_certain_and_copies_are_no_new_units(
    estimate: Estimate, perfect: tuple[Any, ...]
) -> None:
    found = estimate(*perfect)
    assert found is not None and found.estimate == pytest.approx(1.0)
    assert found.interval().low < 0.9 and found.interval().high == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, 50)
    y = np.where(rng.random(50) < 0.5, x, rng.integers(0, 5, 50))
    pair = [x.tolist(), y.tolist()]
    copies = [np.repeat(row, 4).tolist() for row in pair]
    names = np.repeat(np.arange(50), 4).tolist()
    two_raters = estimate in (fleiss_kappa_estimate, krippendorff_alpha_estimate)
    once = estimate(pair) if two_raters else estimate(*pair)
    again = estimate(copies, clusters=names) if two_raters else estimate(*copies, clusters=names)
    assert once is not None and again is not None
    assert again.standard_error == pytest.approx(once.standard_error, rel=0.1)


def covered(estimate: Estimate, truth: float, draw: Callable[[], tuple[Any, Any]], repeats: int) -> float:
    found = [estimate(*draw()) for _ in range(repeats)]
    return sum(one is not None and one.interval().covers(truth) for one in found) / repeats


@pytest.mark.parametrize("kappa", [0.3, 0.8])
def test_coverage_of_kappa(kappa: float) -> None:
    rng = np.random.default_rng(0)

    def draw() -> tuple[list[int], list[int]]:
        first = rng.integers(0, 2, 120)
        second = np.where(rng.random(120) < kappa, first, rng.integers(0, 2, 120))
        return first.tolist(), second.tolist()

    def few(first: list[int], second: list[int]) -> ClusteredMean | None:
        return cohen_kappa_estimate(first, second, n_draws=300)

    assert 0.92 <= covered(few, kappa, draw, 500) <= 0.98


@pytest.mark.parametrize("estimate", [kendall_tau_b_estimate, spearman_estimate])
def test_coverage_of_rank_correlations(estimate: Estimate) -> None:
    rng = np.random.default_rng(0)
    r = 0.6
    truth = 2 / math.pi * math.asin(r) if estimate is kendall_tau_b_estimate else 6 / math.pi * math.asin(r / 2)

    def draw() -> tuple[list[float], list[float]]:
        x, e = rng.standard_normal((2, 80))
        return x.tolist(), (r * x + math.sqrt(1 - r * r) * e).tolist()

    assert 0.92 <= covered(estimate, truth, draw, 500) <= 0.98


def test_rank_correlation_of_many_units_looks_at_a_part_of_the_pairs() -> None:
    rng = np.random.default_rng(0)
    x, e = rng.standard_normal((2, 4000))
    found = kendall_tau_b_estimate(x.tolist(), (x + e).tolist())
    assert found is not None and found.estimate == pytest.approx(kendalltau(x, x + e).statistic)
    small = kendall_tau_b_estimate(x[:1000].tolist(), (x + e)[:1000].tolist())
    assert small is not None and found.standard_error == pytest.approx(small.standard_error / 2, rel=0.1)
