"""Sample sizes: published figures, and that the plan keeps what it promises."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rm_gallery.core.stats.corrected import corrected_mean
from rm_gallery.core.stats.planning import Plan, plan_difference, plan_labels, plan_mean, smallest_difference
from rm_gallery.core.utils.errors import ConfigError

JUDGE: dict[str, Any] = {"n_rows": 4000, "rate": 0.714, "sensitivity": 0.97, "specificity": 0.47}


def test_published_label_plan() -> None:
    plan = plan_labels(half_width=0.03, **JUDGE)
    assert (plan.n, plan.alone, plan.rows) == (653, 872, 4000)
    assert (plan.half_width, plan.lam) == pytest.approx((0.029987, 0.571490), abs=6e-7)


def test_published_pairs() -> None:
    assert plan_difference(effect=0.03, discordance=0.2).n == 1742
    assert plan_difference(effect=0.03, between=1 / 9).n == math.ceil(968.997)
    smallest = smallest_difference(n=1000, discordance=0.2)
    assert smallest == pytest.approx(0.039583, abs=2e-5)  # published; ours is the exact reverse of the plan
    assert plan_difference(effect=smallest, discordance=0.2).n == 1000
    # twice the answers, half their variance
    few = plan_difference(effect=0.03, between=1 / 9, within_a=0.1, within_b=0.1).n
    assert plan_difference(effect=0.03, between=1 / 9, within_a=0.1, within_b=0.1, repeats_a=2, repeats_b=2).n < few
    one_side = [plan_difference(effect=0.03, between=1 / 9, within_a=v, repeats_a=r).n for v, r in ((0.1, 1), (0.4, 4))]
    assert one_side[0] == one_side[1], "each side's repeats are its own"


@pytest.mark.parametrize(
    ("options", "n"),
    [
        ({"half_width": 0.05}, 385),
        ({"half_width": 0.03, "rate": 0.9}, 385),
        ({"half_width": 0.1, "sd": 1.0}, 385),
        ({"effect": 0.1}, 197),
        ({"effect": 0.1, "power": 0.9}, 263),
        ({"half_width": 0.05, "confidence": 0.99}, 664),
    ],
)
def test_rows_by_the_textbook(options: dict[str, float], n: int) -> None:
    assert plan_mean(**options).n == n


def test_rows_of_a_cluster_are_worth_less() -> None:
    plan = plan_mean(half_width=0.05, rows_per_cluster=5, icc=0.5)
    assert (plan.n, plan.clusters) == (1153, 231)
    assert plan_mean(half_width=0.05, rows_per_cluster=5, icc=0.0).n == 385
    assert plan_difference(effect=0.03, discordance=0.2, rows_per_cluster=3, icc=1.0).clusters == 1742


def test_a_label_plan_keeps_its_promise() -> None:
    rng = np.random.default_rng(0)
    plan = plan_labels(half_width=0.04, **JUDGE)
    widths = []
    for _ in range(100):
        y = (rng.random(4000) < 0.714) * 1.0
        right = rng.random(4000) < np.where(y == 1, 0.97, 0.47)
        labels = np.where(np.arange(4000) < plan.n, y, np.nan)
        interval = corrected_mean(np.where(right, y, 1 - y), labels).ci95
        assert interval is not None
        widths.append((interval.high - interval.low) / 2)
    assert np.mean(widths) == pytest.approx(0.04, rel=0.03)


def test_the_better_the_judge_the_fewer_labels() -> None:
    sizes = [plan_labels(half_width=0.03, n_rows=20_000, sensitivity=q, specificity=q).n for q in (0.5, 0.7, 0.9, 1.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 1068 and sizes[-1] < 100
    graded = plan_labels(half_width=0.03, n_rows=20_000, sd=0.5, correlation=0.8)
    assert graded.n == plan_labels(half_width=0.03, n_rows=20_000, sensitivity=0.9, specificity=0.9).n


def test_prices_decide_how_many_rows_are_judged() -> None:
    def cost(plan: Plan) -> float:
        assert plan.rows is not None
        return plan.n * 1.0 + plan.rows * 0.02

    everything = plan_labels(half_width=0.03, n_rows=50_000)
    cheap = plan_labels(half_width=0.03, n_rows=50_000, cost_label=1.0, cost_judge=0.02)
    dear = plan_labels(half_width=0.03, n_rows=50_000, cost_label=1.0, cost_judge=2.0)
    assert cheap.rows is not None and dear.rows is not None and everything.rows == 50_000
    assert dear.rows < cheap.rows < 50_000
    assert cost(cheap) < cost(everything)
    assert cheap.n > everything.n


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan_mean(), "half_width .* or effect"),
        (lambda: plan_mean(half_width=0.1, effect=0.1), "one of the two"),
        (lambda: plan_mean(half_width=0.0), "half_width is a number above 0, found 0.0"),
        (lambda: plan_mean(half_width=0.1, rate=2), "rate lies within 0..1, found 2"),
        (lambda: plan_mean(effect=0.1, power=80), "power lies strictly between 0 and 1"),
        (lambda: plan_mean(half_width=0.1, icc=2, rows_per_cluster=2), "icc lies within 0..1"),
        (lambda: plan_mean(half_width=0.1, rows_per_cluster=0), "rows_per_cluster is at least 1"),
        (lambda: plan_difference(effect=0.1), "discordance .* or between"),
        (lambda: plan_difference(effect=0.3, discordance=0.2), "between the effect, 0.3, and 1"),
        (lambda: plan_difference(effect=0.3, between=-1), "variances are at least 0"),
        (lambda: smallest_difference(n=0, discordance=0.2), "n is at least 1"),
        (lambda: plan_labels(half_width=0.01, n_rows=500), "needs 9604 rows with labels on all of them; n_rows is 500"),
        (lambda: plan_labels(half_width=0.1, n_rows=1), "n_rows is the number of rows in all"),
        (lambda: plan_labels(half_width=0.1, n_rows=500, sensitivity=97), "sensitivity lies within 0..1, found 97"),
        (lambda: plan_labels(half_width=0.1, n_rows=500, sd=1.0), "sd and correlation go together"),
        (lambda: plan_labels(half_width=0.1, n_rows=500, cost_label=1.0), "cost_label and cost_judge go together"),
    ],
)
def test_refused(call: Callable[[], Plan], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()
