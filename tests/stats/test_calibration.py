"""Calibration against scikit-learn on the same data, and maps that are judged on what they were not
fitted on.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.calibration import calibration_curve as reference_curve
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss

from rm_gallery.core.stats.validation import (
    Method,
    calibration_curve,
    fit_map,
    held_out_calibration,
)


def drawn(
    n: int, seed: int = 0
) -> tuple[
    np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]]
]:
    """Scores, and outcomes that are right with probability expit(1.5 * score - 0.5)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return x, (rng.random(n) < expit(1.5 * x - 0.5)).astype(np.float64)


def test_the_curve_and_the_brier_score_are_sklearns() -> None:
    x, y = drawn(2000)
    p = expit(x)
    found = calibration_curve(p, y)
    assert found is not None
    observed, predicted = reference_curve(y, p, n_bins=10)
    assert [part.observed for part in found.bins] == pytest.approx(observed)
    assert [part.predicted for part in found.bins] == pytest.approx(predicted)
    assert (
        found.brier == pytest.approx(brier_score_loss(y, p))
        and found.brier_ci95 is not None
        and found.brier_ci95.low < found.brier < found.brier_ci95.high
    )
    by_hand = sum(part.n * abs(part.observed - part.predicted) for part in found.bins) / 2000
    assert (
        found.ece == pytest.approx(by_hand)
        and sum(part.n for part in found.bins) == found.n == 2000
    )
    assert all(
        part.ci95 is not None
        and part.ci95.low <= part.observed <= part.ci95.high
        and part.ci95.low < part.ci95.high
        for part in found.bins
    )


def test_the_maps_are_sklearns() -> None:
    x, y = drawn(1000)
    at = np.linspace(-4, 4, 30)
    isotonic = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(x, y)
    assert fit_map(x, y)(at) == pytest.approx(isotonic.predict(at))
    logistic = LogisticRegression(C=1e6, tol=1e-8).fit(x[:, None], y)
    # Platt's targets pull a little towards the middle
    assert fit_map(x, y, "platt")(at) == pytest.approx(
        logistic.predict_proba(at[:, None])[:, 1], abs=0.01
    )


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_a_map_never_falls_and_stays_within_0_and_1(method: Method) -> None:
    at = np.linspace(-1e6, 1e6, 101)
    for x, y in (
        ([1, 2, 3, 4], [1, 1, 0, 0]),
        ([1, 2, 3, 4], [0, 0, 1, 1]),
        ([5, 5, 5], [1, 0, 1]),
        ([1], [1]),
    ):
        p = fit_map(x, y, method)(at)
        assert np.all(np.diff(p) >= -1e-12) and p.min() >= 0 and p.max() <= 1


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_a_map_is_judged_on_the_half_it_was_not_fitted_on(method: Method) -> None:
    x, y = drawn(4000)
    prompts = np.repeat(np.arange(1000), 4)
    found = held_out_calibration(10 * x, y, method, clusters=prompts)
    assert found is not None
    assert found.n_fitted + found.calibration.n == 4000 and found.n_fitted == 2000
    assert found.calibration.ece < 0.05 and found == held_out_calibration(
        10 * x, y, method, clusters=prompts
    )
    noise = held_out_calibration(
        np.arange(60.0), np.random.default_rng(1).integers(0, 2, 60), method
    )
    assert noise is not None and noise.calibration.brier > 0.2, (
        "what is fitted to noise is shown to be noise"
    )
    assert held_out_calibration([1.0, 2.0], [0, 1], method, clusters=["a", "a"]) is None
    uneven = held_out_calibration(
        x[:100], y[:100], method, clusters=[max(k - 60, 0) for k in range(100)]
    )
    assert uneven is not None and uneven.n_fitted != 50
    assert uneven.n_fitted + uneven.calibration.n == 100, "what was fitted on is not judged"


@pytest.mark.long("coverage by simulation")
@pytest.mark.parametrize(
    ("clusters", "size", "alike", "most"),
    [(75, 4, 1.0, 0.14), (75, 4, 0.0, 0.12), (200, 1, 0.0, 0.12)],
)
def test_right_probabilities_are_rarely_worse_than_chance_however_alike_a_prompts_outcomes_are(
    clusters: int, size: int, alike: float, most: float
) -> None:
    rng, names, alarms = np.random.default_rng(0), np.repeat(np.arange(clusters), size), 0
    for trial in range(80):
        p = rng.beta(2, 1, clusters)[names] if alike else rng.beta(2, 1, clusters * size)
        luck = np.where(rng.random(len(p)) < alike, rng.random(clusters)[names], rng.random(len(p)))
        found = calibration_curve(
            p, (luck < p) * 1.0, clusters=names if size > 1 else None, seed=trial
        )
        assert found is not None
        alarms += found.ece > found.ece_by_chance
    assert 0.0 < alarms / 80 <= most
