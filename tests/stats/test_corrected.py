"""Corrected means: what they equal, what holds for any data, and how often their intervals hold the
truth.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.statistics_coverage import KINDS, Setting, coverage
from benchmarks.statistics_coverage import settings as by_lot
from rm_gallery.core.stats.corrected import corrected_difference, corrected_mean
from tests.support.wilson import wilson

Floats = NDArray[np.floating[Any]]
Draw = Callable[[np.random.Generator], dict[str, Any]]


def judged(rng: np.random.Generator, y: Floats, sensitivity: float, specificity: float) -> Floats:
    right = rng.random(y.shape) < np.where(y == 1, sensitivity, specificity)
    return np.where(right, y, 1 - y)


def some(rng: np.random.Generator, y: Floats, n: int) -> Floats:
    labels = np.full(len(y), np.nan)
    chosen = rng.choice(len(y), n, replace=False)
    labels[chosen] = y[chosen]
    return labels


BINARY: dict[str, Any] = {
    "judge": [float(c) for c in "101111010111011101101110111101"],
    "labels": [float(c) for c in "1011010111"] + [None] * 20,
}
FIVE: dict[str, Any] = {
    "judge": [
        4.5,
        3.2,
        4.8,
        3,
        4.1,
        2,
        3.9,
        4.7,
        4,
        3.5,
        4.4,
        2.8,
        4.9,
        3.1,
        3.3,
        4.2,
        2.5,
        4.6,
        3.8,
        4.1,
    ],
    "labels": [4, 3, 5, 2, 4, 1, 3, 5] + [None] * 12,
}


@pytest.mark.parametrize(
    ("case", "lam", "estimate", "se"),
    [
        (BINARY, 0.3625, 0.718125, 0.137241),
        ({**FIVE, "bounds": (1, 5)}, 1.0, 3.366667, 0.283734),
        (
            {"judge": BINARY["judge"], "labels": BINARY["labels"], "clusters": range(30)},
            0.3625,
            0.718125,
            0.137241,
        ),
    ],
)
def test_without_strata_it_is_the_published_estimate(
    case: dict[str, Any], lam: float, estimate: float, se: float
) -> None:
    """PPI++ with the tuned share of the judge, as the tools of its authors give it; their normal
    interval is not ours.
    """
    found = corrected_mean(**case, strata=None)
    assert (found.lam, found.estimate, found.se) == pytest.approx((lam, estimate, se), abs=6e-7)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), min_size=12, max_size=60)
)
def test_by_verdict_it_is_the_sum_over_verdicts(rows: list[tuple[int, bool, bool]]) -> None:
    judge, labels = (
        [float(v) for v, _, _ in rows],
        [float(y) if has else None for _, y, has in rows],
    )
    by = {
        v: [y for j, y in zip(judge, labels, strict=True) if j == v and y is not None]
        for v in set(judge)
    }
    if len(by) < 2 or min(map(len, by.values())) < 3 or None not in labels:
        return
    found = corrected_mean(judge, labels, bounds=(0, 1))
    assert found.estimate is not None and found.ci95 is not None
    shares = {v: judge.count(v) / len(rows) for v in by}
    assert found.estimate == pytest.approx(sum(shares[v] * float(np.mean(by[v])) for v in by))
    assert found.estimate == pytest.approx(corrected_mean(judge, labels, strata=judge).estimate)
    assert 0.0 <= found.ci95.low <= found.estimate <= found.ci95.high <= 1.0
    # of the sampling within verdicts and of the verdicts' shares, with Bessel's correction for all
    # that was fitted
    within = sum(shares[v] ** 2 * np.var(by[v]) / len(by[v]) for v in by)
    m = sum(map(len, by.values()))
    between = sum(shares[v] * (float(np.mean(by[v])) - found.estimate) ** 2 for v in by) / (
        len(rows) - 1
    )
    if found.lam != 0.0:
        assert found.se is not None and found.se**2 == pytest.approx(
            within * m / (m - len(by)) + between, rel=0.25, abs=2e-3
        )


@pytest.mark.long("coverage by simulation")
def test_labels_alone_are_wilsons_and_clusters_statsmodels() -> None:
    found = corrected_mean([None] * 100, [1.0] * 80 + [0.0] * 20)
    assert found.ci95 == pytest.approx(
        wilson(80, 100), abs=0.002
    ) and found.effective_labels == pytest.approx(100)
    rng = np.random.default_rng(6)
    groups = rng.integers(0, 12, 80)
    labels = np.clip(rng.normal(0.5, 0.1, 80) + rng.normal(0, 0.2, 12)[groups], 0, 1)
    fit = (
        import_module("statsmodels.api")
        .OLS(labels, np.ones(80))
        .fit(cov_type="cluster", cov_kwds={"groups": groups, "use_correction": True})
    )
    assert corrected_mean([None] * 80, labels, clusters=groups.tolist()).se == pytest.approx(
        float(fit.bse[0]), rel=0.1
    )


def where_unsure(rng: np.random.Generator) -> dict[str, Any]:
    """Rows are labelled the more probably, the nearer the judge's score is to the middle."""
    y = (rng.random(1500) < 0.7) * 1.0
    judge = 1 / (1 + np.exp(-(5 * (y - 0.5) + 0.7 + 1.5 * rng.standard_normal(1500))))
    doubt = np.sqrt(judge * (1 - judge)) + 0.05
    chosen = np.clip(100 * doubt / doubt.sum(), 0, 1)
    return {
        "judge": judge,
        "labels": np.where(rng.random(1500) < chosen, y, np.nan),
        "probabilities": chosen,
    }


def strata(rng: np.random.Generator) -> dict[str, Any]:
    names = np.arange(900) % 3
    y = (rng.random(900) < np.array([0.95, 0.6, 0.3])[names]) * 1.0
    labels = np.full(900, np.nan)
    for name, n in enumerate((15, 30, 20)):
        chosen = rng.choice(np.flatnonzero(names == name), n, replace=False)
        labels[chosen] = y[chosen]
    return {"judge": judged(rng, y, 0.9, 0.65), "labels": labels, "strata": names.tolist()}


@pytest.mark.long("coverage by simulation")
@pytest.mark.parametrize(
    ("draw", "truth", "most"), [(where_unsure, 0.7, 0.985), (strata, 1.85 / 3, 0.985)]
)
def test_coverage_with_other_labels(draw: Draw, truth: float, most: float) -> None:
    rng = np.random.default_rng(2025)
    intervals = [corrected_mean(**draw(rng)).ci95 for _ in range(300)]
    assert (
        0.91 <= float(np.mean([one is not None and one.covers(truth) for one in intervals])) <= most
    )


@pytest.mark.long("coverage by simulation")
@pytest.mark.parametrize("kind", KINDS)
def test_coverage_over_settings_by_lot(kind: str) -> None:
    """A small slice of benchmarks/statistics_coverage.py; over all its settings together, each
    rounded by 150 trials.
    """
    found = [coverage(of, 150) for of in by_lot(4, kind, seed=1)]
    assert (
        0.935 <= float(np.mean([one.held for one in found])) <= 0.99
        and min(one.held for one in found) >= 0.89
    )


@pytest.mark.long("coverage by simulation")
@pytest.mark.parametrize(
    ("of", "least", "most"),
    [
        (Setting(KINDS[1], 0.8, 0.95, 0.5, 40, 500, size=5.0, icc=0.7), 0.92, 0.985),
        (Setting(KINDS[1], 0.9, 0.95, 0.5, 60, 600, size=5.0, icc=0.5, uneven=True), 0.92, 0.985),
        (Setting(KINDS[2], 0.714, 0.95, 0.5, 90, 300, size=3.0, icc=0.5), 0.93, 0.98),
        (Setting(KINDS[3], 0.7, 0.95, 0.5, 150, 1000, favour=5.0), 0.93, 0.975),
        (Setting(KINDS[0], 0.05, 0.8, 0.9, 40, 1000), 0.93, 0.995),
        (Setting(KINDS[0], 0.9, 0.97, 0.5, 40, 2000), 0.94, 0.985),
    ],
)
def test_coverage_where_it_is_hard(of: Setting, least: float, most: float) -> None:
    assert least <= coverage(of, 300).held <= most


def test_the_difference_of_two_equal_systems_is_found_as_rarely_as_said() -> None:
    """The judge favours A, so that alone it always finds a difference."""
    rng, rejected = np.random.default_rng(8), 0
    for _ in range(400):
        shared = rng.random(600) < 0.5
        common = rng.random(600) < 0.7
        a, b = (np.where(shared, common, rng.random(600) < 0.7) * 1.0 for _ in range(2))
        chosen = some(rng, np.ones(600), 60) == 1
        found = corrected_difference(
            judged(rng, a, 0.95, 0.5),
            judged(rng, b, 0.8, 0.8),
            np.where(chosen, a, np.nan),
            np.where(chosen, b, np.nan),
        )
        p = found.p_value(0.0)
        assert found.ci95 is not None and p is not None and found.ci95.covers(0.0) == (p >= 0.05)
        rejected += p < 0.05
    assert 0.02 <= rejected / 400 <= 0.075
