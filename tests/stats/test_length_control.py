"""Win rate at equal length: published figures, planted length preferences, and what its interval is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rm_gallery.core.stats.length_control import length_controlled
from rm_gallery.core.stats.logistic import fit_logistic

PREFERENCES = [1, 0, 1, 1, 0, 0.5, 1, 0, 1, 0, 1, 0.2]
THEIRS = [900, 1200, 700, 1500, 1100, 800, 950, 1300, 1000, 1250, 600, 1400]
OURS = [1400, 1000, 1300, 1450, 900, 900, 1500, 1000, 1500, 1300, 1250, 1500]


def test_published_fit() -> None:
    difference = np.subtract(THEIRS, OURS)
    sd = float(difference.std(ddof=1))
    design = np.stack([np.tanh(difference / sd), np.ones(12)], axis=1)
    beta, covariance, df, _ = fit_logistic(design, np.array(PREFERENCES), np.arange(12), firth=False)
    assert sd == pytest.approx(348.916070)
    assert beta == pytest.approx([-4.038516, -0.784125], abs=6e-7)
    rate = 1 / (1 + np.exp(-beta[1]))
    assert 100 * rate == pytest.approx(31.343160, abs=6e-6)
    # the plain sandwich gives 23.3 points; ours counts what the fit itself has taken out of the residuals
    assert 23.3 <= 100 * rate * (1 - rate) * covariance[1, 1] ** 0.5 <= 30
    assert df == 10


def test_the_published_rows_with_firths_penalty() -> None:
    found = length_controlled(PREFERENCES, OURS, THEIRS)
    assert found.n == 12
    assert found.estimate == pytest.approx(0.376963, abs=1e-6)  # nearer to one half than the 0.313 above
    assert found.ci95 is not None and found.ci95.low < 0.15 and found.ci95.high > 0.7
    swapped = length_controlled([1 - p for p in PREFERENCES], THEIRS, OURS)
    assert swapped.estimate == pytest.approx(1 - 0.376963, abs=1e-6)


def simulated(rng: np.random.Generator, n: int, strength: float, effect: float, per_prompt: int = 1) -> dict[str, Any]:
    theirs = rng.lognormal(7, 0.5, n * per_prompt)
    ours = theirs * rng.lognormal(0.5, 0.4, n * per_prompt)
    difference = ours - theirs
    logit = strength + effect * np.tanh(difference / difference.std(ddof=1))
    if per_prompt > 1:
        logit += np.repeat(1.5 * rng.standard_normal(n), per_prompt)
    wins = (rng.random(n * per_prompt) < 1 / (1 + np.exp(-logit))) * 1.0
    clusters = np.repeat(np.arange(n), per_prompt).tolist() if per_prompt > 1 else None
    return {"preferences": wins, "lengths_a": ours, "lengths_b": theirs, "clusters": clusters}


@pytest.mark.parametrize("effect", [0.9, 2.5])
def test_a_planted_length_preference_is_removed(effect: float) -> None:
    case = simulated(np.random.default_rng(0), 4000, 0.0, effect)
    found = length_controlled(**case)
    assert float(np.mean(case["preferences"])) > 0.6
    assert found.estimate == pytest.approx(0.5, abs=0.03)
    assert found.length_effect == pytest.approx(effect, rel=0.15)


@pytest.mark.parametrize(
    ("n", "strength", "effect", "per_prompt", "truth", "most"),
    [
        (200, 0.0, 0.9, 1, 0.5, 0.98),
        (60, 2.0, 1.0, 1, 0.8808, 0.99),
        (40, 2.2, 1.0, 1, 0.9002, 0.99),
        (100, 0.5, 1.5, 3, 0.5884, 0.975),
    ],
)
def test_coverage(n: int, strength: float, effect: float, per_prompt: int, truth: float, most: float) -> None:
    rng = np.random.default_rng(2)
    intervals = [length_controlled(**simulated(rng, n, strength, effect, per_prompt)).ci95 for _ in range(250)]
    assert 0.92 <= float(np.mean([interval is not None and interval.covers(truth) for interval in intervals])) <= most
