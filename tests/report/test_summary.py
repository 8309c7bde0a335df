"""Gaps, calibration and best-of-N from the samples a run keeps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rm_gallery.report.opened import SampleRow
from rm_gallery.report.summary import Summary

PAIR = ("chosen", "rejected")


def summary(*rows: tuple[tuple[float | None, ...], tuple[str | None, ...]]) -> Summary:
    found = Summary()
    for number, (scores, labels) in enumerate(rows):
        name, answers = str(number), tuple("a" for _ in scores)
        status = "unscored" if None in scores else "scored"
        found.add(SampleRow(id=name, cluster=name, status=status, answers=answers, scores=scores, labels=labels))
    return found


def test_only_what_is_scored_whole_and_labelled_has_a_gap() -> None:
    found = summary(
        ((2.0, 1.0), PAIR),
        ((1.0, 1.0), PAIR),
        ((1.0, None), PAIR),
        ((math.inf, 1.0), PAIR),
        ((3.0, 1.0, 2.0), ("chosen", "rejected", "chosen")),
        ((1.0, 2.0), (None, None)),
    )
    gaps = found.gap_distribution()
    assert gaps is not None and (gaps.n, gaps.mean, gaps.tied) == (3, 1.0, 1 / 3)
    assert [point.n for point in found.best_of_n()][:1] == [1]
    assert (summary().gap_distribution(), summary().calibration(), summary().held_out()) == (None, None, None)


def test_a_bradley_terry_model_is_calibrated_and_its_tenfold_is_not_until_it_is_mapped() -> None:
    rng = np.random.default_rng(0)
    gaps = rng.normal(0, 2, 3000)
    right = rng.random(3000) < 1 / (1 + np.exp(-gaps))
    signed = [float(gap if good else -gap) for gap, good in zip(gaps, right, strict=True)]
    plain, tenfold = (summary(*(((times * gap, 0.0), PAIR) for gap in signed)) for times in (1, 10))
    raw, sure, mapped = plain.calibration(), tenfold.calibration(), tenfold.held_out("isotonic")
    assert raw is not None and raw.ece < raw.ece_by_chance
    assert sure is not None and sure.ece > 0.1
    assert mapped is not None and mapped.calibration.ece < 0.04
    assert plain.ordering().value == pytest.approx(np.mean(np.array(signed) > 0))
