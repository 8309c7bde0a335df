"""Simulated: how often the interval of a corrected mean holds the truth, and what the judge gains over labels alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rm_gallery.core.stats.corrected import corrected_difference, corrected_mean

Floats = NDArray[np.floating[Any]]
Draw = Callable[[np.random.Generator], dict[str, Any]]
REPEATS = 1000


def judged(rng: np.random.Generator, y: Floats, sensitivity: float, specificity: float) -> Floats:
    right = rng.random(y.shape) < np.where(y == 1, sensitivity, specificity)
    return np.where(right, y, 1 - y)


def some(rng: np.random.Generator, y: Floats, n: int) -> Floats:
    labels = np.full(len(y), np.nan)
    chosen = rng.choice(len(y), n, replace=False)
    labels[chosen] = y[chosen]
    return labels


def binary(p: float, sensitivity: float, specificity: float, n: int, rows: int) -> Draw:
    def draw(rng: np.random.Generator) -> dict[str, Any]:
        y = (rng.random(rows) < p) * 1.0
        return {"judge": judged(rng, y, sensitivity, specificity), "labels": some(rng, y, n)}

    return draw


def graded(rng: np.random.Generator) -> dict[str, Any]:
    y = rng.beta(4, 2, 1000)
    return {"judge": np.clip(y + 0.15 + 0.1 * rng.standard_normal(1000), 0, 1), "labels": some(rng, y, 40)}


def rubric(rng: np.random.Generator) -> dict[str, Any]:
    y = rng.choice([1.0, 2.0, 3.0, 4.0, 5.0], 800, p=[0.02, 0.03, 0.05, 0.2, 0.7])
    judge = np.clip(np.round(y + 0.5 + 0.7 * rng.standard_normal(800)), 1, 5)
    return {"judge": judge, "labels": some(rng, y, 50), "bounds": (1.0, 5.0)}


def ties(rng: np.random.Generator) -> dict[str, Any]:
    y = rng.choice([1.0, 0.5, 0.0], 1000, p=[0.5, 0.2, 0.3])
    judge = np.where(rng.random(1000) < 0.7, y, 1.0)
    return {"judge": judge, "labels": some(rng, y, 60)}


def conversations(n: int, share: float) -> Draw:
    """Three rows per prompt that mostly share their fate; labels fall on single rows."""

    def draw(rng: np.random.Generator) -> dict[str, Any]:
        fate = np.repeat(rng.beta(0.714, 0.286, n), 3)
        y = (rng.random(3 * n) < fate) * 1.0
        judge = judged(rng, y, 0.95, 0.5)
        return {
            "judge": judge,
            "labels": some(rng, y, int(3 * n * share)),
            "clusters": np.repeat(np.arange(n), 3).tolist(),
        }

    return draw


def by_verdict(p: float, passed: float, failed: float, rows: int) -> Draw:
    def draw(rng: np.random.Generator) -> dict[str, Any]:
        y = (rng.random(rows) < p) * 1.0
        judge = judged(rng, y, 0.97, 0.47)
        chosen = np.where(judge == 1, passed, failed)
        return {"judge": judge, "labels": np.where(rng.random(rows) < chosen, y, np.nan), "probabilities": chosen}

    return draw


def where_unsure(rng: np.random.Generator) -> dict[str, Any]:
    """Rows are labelled the more probably, the nearer the judge's score is to the middle."""
    y = (rng.random(1500) < 0.7) * 1.0
    judge = 1 / (1 + np.exp(-(5 * (y - 0.5) + 0.7 + 1.5 * rng.standard_normal(1500))))
    doubt = np.sqrt(judge * (1 - judge)) + 0.05
    chosen = np.clip(100 * doubt / doubt.sum(), 0, 1)
    return {"judge": judge, "labels": np.where(rng.random(1500) < chosen, y, np.nan), "probabilities": chosen}


def strata(rng: np.random.Generator) -> dict[str, Any]:
    names = np.arange(900) % 3
    y = (rng.random(900) < np.array([0.95, 0.6, 0.3])[names]) * 1.0
    labels = np.full(900, np.nan)
    for name, n in enumerate((15, 30, 20)):
        chosen = rng.choice(np.flatnonzero(names == name), n, replace=False)
        labels[chosen] = y[chosen]
    return {"judge": judged(rng, y, 0.9, 0.65), "labels": labels, "strata": names.tolist()}


@pytest.mark.parametrize(
    ("draw", "truth", "most"),
    [
        pytest.param(binary(0.714, 0.97, 0.47, 600, 4000), 0.714, 0.97, id="many-labels"),
        pytest.param(binary(0.714, 0.97, 0.47, 100, 4000), 0.714, 0.97, id="a-hundred-labels"),
        pytest.param(binary(0.9, 0.97, 0.5, 40, 4000), 0.9, 0.98, id="forty-labels-of-which-most-pass"),
        pytest.param(binary(0.05, 0.8, 0.9, 40, 1000), 0.05, 0.98, id="forty-labels-of-which-most-fail"),
        pytest.param(binary(0.5, 0.95, 0.95, 15, 1000), 0.5, 1.0, id="fifteen-labels-good-judge"),
        pytest.param(binary(0.3, 0.6, 0.5, 40, 300), 0.3, 0.97, id="useless-judge"),
        pytest.param(graded, 2 / 3, 0.97, id="graded"),
        pytest.param(rubric, 4.53, 0.98, id="one-to-five"),
        pytest.param(ties, 0.6, 0.98, id="ties"),
        pytest.param(conversations(100, 0.3), 0.714, 0.97, id="three-rows-per-prompt"),
        pytest.param(conversations(40, 1.0), 0.714, 0.97, id="three-rows-per-prompt-all-labelled"),
        pytest.param(by_verdict(0.9, 0.02, 0.1, 2000), 0.9, 0.985, id="verdict-drawn-few"),
        pytest.param(by_verdict(0.714, 0.04, 0.2, 2000), 0.714, 0.98, id="verdict-drawn"),
        pytest.param(where_unsure, 0.7, 0.985, id="drawn-where-unsure"),
        pytest.param(strata, (0.95 + 0.6 + 0.3) / 3, 0.985, id="strata"),
    ],
)
def test_coverage(draw: Draw, truth: float, most: float) -> None:
    rng = np.random.default_rng(2025)
    covered = 0
    for _ in range(REPEATS):
        interval = corrected_mean(**draw(rng)).ci95
        assert interval is not None
        covered += interval.covers(truth)
    assert 0.93 <= covered / REPEATS <= most


@pytest.mark.parametrize(("n", "gain"), [(600, 0.9), (100, 0.9), (30, 0.92)])
def test_narrower_than_labels_alone_where_the_plain_judge_is_wrong(n: int, gain: float) -> None:
    rng = np.random.default_rng(7)
    draw, truth = binary(0.714, 0.97, 0.47, n, 4000), 0.714
    plain = both = alone = 0.0
    for _ in range(200):
        case = draw(rng)
        rate = float(case["judge"].mean())
        plain += abs(rate - truth) <= 1.96 * (rate * (1 - rate) / 4000) ** 0.5
        corrected = corrected_mean(**case).ci95
        labels = corrected_mean(np.full(4000, np.nan), case["labels"]).ci95
        assert corrected is not None and labels is not None
        both += corrected.high - corrected.low
        alone += labels.high - labels.low
    assert plain / 200 < 0.2
    assert both < gain * alone


def test_difference_of_two_systems_and_its_test() -> None:
    """Equal systems, a judge that favours A: the judge alone always finds a difference, the corrected test at its level."""
    rng = np.random.default_rng(8)
    rejected = covered = 0
    for _ in range(REPEATS):
        shared = rng.random(600) < 0.5
        a, b = (np.where(shared, rng.random(600) < 0.7, rng.random(600) < 0.7) * 1.0 for _ in range(2))
        judge_a, judge_b = judged(rng, a, 0.95, 0.5), judged(rng, b, 0.8, 0.8)
        chosen = some(rng, np.ones(600), 60) == 1
        found = corrected_difference(judge_a, judge_b, np.where(chosen, a, np.nan), np.where(chosen, b, np.nan))
        p = found.p_value(0.0)
        assert found.ci95 is not None and p is not None
        covered += found.ci95.covers(0.0)
        rejected += p < 0.05
    assert 0.93 <= covered / REPEATS <= 0.975
    assert rejected == REPEATS - covered
