"""Scores against labels: the figures are those of scikit-learn and scipy, and the intervals hold them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from rm_gallery.core.stats.validation import validate

RNG = np.random.default_rng(7)
TRUTH = RNG.integers(0, 2, 300)
NOISY = np.clip(TRUTH * 0.4 + RNG.random(300) * 0.6, 0, 1)
STARS = RNG.integers(1, 6, 300)
NEAR = np.clip(STARS + RNG.integers(-1, 2, 300), 1, 5)


def test_verdicts() -> None:
    found = validate(NOISY.tolist(), TRUTH.tolist(), threshold=0.5)
    said = NOISY >= 0.5
    expected = {
        "accuracy": metrics.accuracy_score(TRUTH, said),
        "precision": metrics.precision_score(TRUTH, said),
        "recall": metrics.recall_score(TRUTH, said),
        "f1": metrics.f1_score(TRUTH, said),
        "kappa": metrics.cohen_kappa_score(TRUTH, said),
        "spearman": stats.spearmanr(NOISY, TRUTH).statistic,
        "mae": np.abs(NOISY - TRUTH).mean(),
    }
    for name, value in expected.items():
        low, high = getattr(found, f"{name}_ci95")
        assert getattr(found, name) == pytest.approx(value), name
        assert low < value < high and high - low < 0.3, name


def test_numbers_on_one_scale() -> None:
    found = validate(NEAR.tolist(), STARS.tolist())
    assert found.accuracy == pytest.approx((NEAR == STARS).mean())
    assert found.mae == pytest.approx(metrics.mean_absolute_error(STARS, NEAR))
    assert found.kappa == pytest.approx(metrics.cohen_kappa_score(STARS, NEAR, weights="quadratic"))
    assert found.spearman == pytest.approx(stats.spearmanr(NEAR, STARS).statistic)
    assert found.f1 is None and "f1" not in found.to_dict()


def test_lower_is_better_and_what_is_missing_is_left_out() -> None:
    scores = [None, *(1.0 - NOISY), float("nan")]
    found = validate(scores, [1, *TRUTH, 0], threshold=0.5, higher_is_better=False)
    straight = validate(NOISY.tolist(), TRUTH.tolist(), threshold=0.5)
    assert (found.n, found.accuracy, found.recall) == (300, straight.accuracy, straight.recall)
    assert found.spearman == pytest.approx(straight.spearman)


def test_more_clusters_than_one_witness_widen_the_interval() -> None:
    alone = validate(NOISY.tolist(), TRUTH.tolist(), threshold=0.5)
    doubled = validate(
        [*NOISY, *NOISY], [*TRUTH, *TRUTH], threshold=0.5, clusters=[*map(str, range(300)), *map(str, range(300))]
    )
    assert doubled.accuracy == alone.accuracy and alone.accuracy_ci95 is not None and doubled.accuracy_ci95 is not None
    widths = [ci.high - ci.low for ci in (alone.accuracy_ci95, doubled.accuracy_ci95)]
    assert widths[1] == pytest.approx(widths[0], rel=0.1)
