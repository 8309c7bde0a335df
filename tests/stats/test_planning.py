"""Sample sizes: published figures, and plans that keep their promise in simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from rm_gallery.core.stats.corrected import corrected_mean
from rm_gallery.core.stats.planning import (
    correlation_within,
    plan_difference,
    plan_labels,
    plan_mean,
)
from rm_gallery.core.stats.uncertainty import clustered_mean

JUDGE: dict[str, Any] = {"n_rows": 4000, "rate": 0.714, "sensitivity": 0.97, "specificity": 0.47}


@pytest.mark.long("coverage by simulation")
def test_published_plans() -> None:
    plan = plan_labels(half_width=0.03, **JUDGE)
    assert (plan.n, plan.alone, plan.rows) == (653, 872, 4000)
    assert (plan.half_width, plan.lam) == pytest.approx((0.029987, 0.571490), abs=6e-7)
    assert plan_difference(effect=0.03, discordance=0.2).n == 1742
    assert plan_difference(effect=0.03, between=1 / 9).n == math.ceil(968.997)


def power_of_the_test(n: int, rate: float, null: float) -> float:
    """Probability that the p-value of so many outcomes is below 0.05, over all counts there can be."""
    found = 0.0
    for k in range(n + 1):
        mean = clustered_mean([1.0] * k + [0.0] * (n - k))
        p = None if mean is None else mean.p_value(null)
        assert p is not None
        found += float(binom.pmf(k, n, rate)) * (p < 0.05)
    return found


@pytest.mark.parametrize(
    ("rate", "effect", "harder"),
    [
        (0.55, 0.1, 0.45),
        (0.75, 0.1, 0.65),
        (0.9, 0.05, 0.85),
        (0.95, 0.05, 0.9),
        (0.95, 0.04, 0.91),
        (0.1, 0.08, 0.18),
    ],
)
def test_the_power_of_a_plan_is_that_of_the_test_on_either_side(
    rate: float, effect: float, harder: float
) -> None:
    plan = plan_mean(effect=effect, rate=rate)
    assert plan.sides[0].null == pytest.approx(harder) and plan.sides[0].n == plan.n
    for side in plan.sides:
        assert side.power == pytest.approx(power_of_the_test(plan.n, rate, side.null), abs=1e-9)
        assert power_of_the_test(side.n, rate, side.null) >= 0.8
    assert plan.power == plan.sides[0].power and 0.8 <= plan.power <= 0.83
    assert power_of_the_test(int(0.9 * plan.n), rate, harder) < 0.8
    assert len(plan.sides) == (2 if 0 < rate - effect and rate + effect < 1 - 1e-9 else 1)


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.05, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("wanted", [0.01, 0.03, 0.1])
def test_a_planned_width_is_one_that_the_interval_has(rate: float, wanted: float) -> None:
    """At a rate of 1 two rows were planned for a width of 0, and at 0.01 a third of those needed."""
    plan = plan_mean(half_width=wanted, rate=rate)
    rng = np.random.default_rng(0)
    widths = []
    for k in rng.binomial(plan.n, rate, 60).tolist():
        mean = clustered_mean(np.arange(plan.n) < k)
        assert mean is not None and (ends := mean.interval()) is not None
        widths.append((ends.high - ends.low) / 2)
    assert plan.half_width is not None and plan.half_width <= wanted * (1 + 1e-9)
    assert 0.9 * plan.half_width <= np.mean(widths) <= 1.04 * plan.half_width


@pytest.mark.parametrize("graded", [False, True])
def test_few_rows_or_clusters_are_planned_with_the_quantile_they_get(graded: bool) -> None:
    rng = np.random.default_rng(0)
    common: dict[str, Any] = {"sd": 1.0} if graded else {"rows_per_cluster": 10, "icc": 1.0}
    plan = plan_mean(half_width=0.6 if graded else 0.3, **common)
    clusters = np.arange(plan.n) if graded else np.arange(plan.n) // 10
    widths = []
    for _ in range(100):
        rows = rng.standard_normal(plan.n) if graded else (rng.random(plan.n) < 0.5)[clusters] * 1.0
        bounds = (-math.inf, math.inf) if graded else (0.0, 1.0)
        mean = clustered_mean(rows, clusters, bounds=bounds)
        assert mean is not None and (ends := mean.interval()) is not None
        widths.append((ends.high - ends.low) / 2)
    assert np.mean(widths) == pytest.approx(plan.half_width, rel=0.08)


@pytest.mark.parametrize("rate", [0.97, 1.0])
def test_a_plan_of_labels_promises_no_width_that_labels_alone_do_not_give(rate: float) -> None:
    plan = plan_labels(half_width=0.03, n_rows=4000, rate=rate)
    alone = plan_mean(half_width=0.03, rate=rate)
    assert plan.alone == alone.n and plan.n > 40 and (plan.half_width or 0.0) > 0.025


def test_a_label_plan_keeps_its_promise() -> None:
    rng, plan, widths = np.random.default_rng(0), plan_labels(half_width=0.04, **JUDGE), []
    for _ in range(60):
        y = (rng.random(4000) < 0.714) * 1.0
        right = rng.random(4000) < np.where(y == 1, 0.97, 0.47)
        interval = corrected_mean(
            np.where(right, y, 1 - y), np.where(np.arange(4000) < plan.n, y, np.nan)
        ).ci95
        assert interval is not None
        widths.append((interval.high - interval.low) / 2)
    assert np.mean(widths) == pytest.approx(0.04, rel=0.03)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=3, max_size=25))
def test_likeness_is_that_of_the_analysis_of_variance(rows: list[tuple[int, int]]) -> None:
    groups = [
        [float(x) for x, name in rows if name == wanted]
        for wanted in sorted({name for _, name in rows})
    ]
    n, k = len(rows), len(groups)
    if k < 2 or n <= k:
        return
    between = sum(len(g) * (np.mean(g) - np.mean([x for x, _ in rows])) ** 2 for g in groups) / (
        k - 1
    )
    within = sum(float(np.sum((np.array(g) - np.mean(g)) ** 2)) for g in groups) / (n - k)
    typical = (n - sum(len(g) ** 2 for g in groups) / n) / (k - 1)
    total = between + (typical - 1) * within
    expected = min(1.0, max(0.0, (between - within) / total)) if total > 0 else 0.0
    assert correlation_within(
        [float(x) for x, _ in rows], [name for _, name in rows]
    ) == pytest.approx(expected)
