"""Gaps, calibration and best-of-N from the samples a run keeps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rm_gallery.report.curves import best_of_n_of, calibration_of, gaps_of, scored_pairs
from rm_gallery.report.opened import SampleRow


def row(
    number: int, scores: tuple[float | None, ...], labels: tuple[str | None, ...], status: str = "scored"
) -> SampleRow:
    return SampleRow(id=str(number), cluster=str(number), status=status, scores=scores, labels=labels)


PAIR = ("chosen", "rejected")
ROWS = [
    row(0, (2.0, 1.0), PAIR),
    row(1, (1.0, 1.0), PAIR),
    row(2, (1.0, None), PAIR),
    row(3, (1.0, 3.0), PAIR, "failed"),
    row(4, (math.inf, 1.0), PAIR),
    row(5, (3.0, 1.0, 2.0), ("chosen", "rejected", "chosen")),
    row(6, (1.0, 2.0), (None, None)),
]


def test_only_what_is_scored_whole_and_labelled_makes_a_pair() -> None:
    assert [(pair.chosen, pair.rejected) for pair in scored_pairs(ROWS)] == [(2, 1), (1, 1), (3, 1), (2, 1)]
    found = gaps_of(ROWS)
    assert found is not None and (found.n, found.mean, found.tied) == (4, 1.0, 0.25)
    assert gaps_of([]) is None and calibration_of([]) == (None, None) and best_of_n_of([]) == []
    assert [point.n for point in best_of_n_of(ROWS)] == [1, 2]


def test_a_bradley_terry_model_is_calibrated_and_its_tenfold_is_not_until_it_is_mapped() -> None:
    rng = np.random.default_rng(0)
    gaps = rng.normal(0, 2, 3000)
    right = rng.random(3000) < 1 / (1 + np.exp(-gaps))
    made = [
        row(k, (float(gap), 0.0) if good else (-float(gap), 0.0), PAIR)
        for k, (gap, good) in enumerate(zip(gaps, right, strict=True))
    ]
    plain = calibration_of(made).raw
    assert plain is not None and plain.ece < plain.ece_by_chance
    tenfold = calibration_of([row(k, (10 * (r.scores[0] or 0), 0.0), PAIR) for k, r in enumerate(made)])
    assert tenfold.raw is not None and tenfold.raw.ece > 0.1
    assert tenfold.calibrated is not None and tenfold.calibrated.calibration.ece < 0.04
    assert best_of_n_of(made)[-1].value == pytest.approx(np.mean([(r.scores[0] or 0) > 0 for r in made]), abs=0.01)
