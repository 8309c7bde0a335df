"""What the scores of a finished run are worth: reward gaps, calibration and best-of-N, over its samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rm_gallery.core.stats.calibration import Calibration, HeldOut, Method, calibration_curve, held_out_calibration
from rm_gallery.core.stats.margins import BestOf, Gaps, best_of_n_curve, reward_gaps
from rm_gallery.report.opened import SampleRow


class Pair(NamedTuple):
    """A chosen and a rejected answer of one sample with their scores."""

    chosen: float
    rejected: float
    cluster: str


def scored_pairs(rows: Iterable[SampleRow]) -> Iterator[Pair]:
    """Every chosen answer against every rejected one of the samples scored whole; scores that are not finite are left out."""
    for row in rows:
        scores = dict(enumerate(row.scores))
        if row.status != "scored" or None in row.scores or len(row.labels) != len(row.scores):
            continue
        sides = [
            [score for place, score in scores.items() if row.labels[place] == side and score is not None]
            for side in ("chosen", "rejected")
        ]
        for good in sides[0]:
            for bad in sides[1]:
                if math.isfinite(good - bad):
                    yield Pair(good, bad, row.cluster or row.id)


def gaps_of(rows: Iterable[SampleRow], bins: int = 20) -> Gaps | None:
    """The distribution of chosen minus rejected scores; None where no sample has both."""
    pairs = list(scored_pairs(rows))
    return reward_gaps(
        [pair.chosen for pair in pairs],
        [pair.rejected for pair in pairs],
        clusters=[pair.cluster for pair in pairs],
        bins=bins,
    )


class PairCalibration(NamedTuple):
    """How surely the higher score is the chosen answer's.

    Attributes:
        raw: of the logistic function of the gap, which is what a Bradley–Terry model says; None for scores on another scale
            (`calibrated` is for them).
        calibrated: of a map from the size of the gap to a probability, fitted on one half of the prompts and shown on the
            other; None with fewer than two prompts.
    """

    raw: Calibration | None
    calibrated: HeldOut | None


def calibration_of(
    rows: Iterable[SampleRow], method: Method = "isotonic", *, bins: int = 10, seed: int = 0
) -> PairCalibration:
    """Hold the size of the score gaps of a run against how often the higher score is right; equal scores are half right."""
    from scipy.special import expit

    pairs = list(scored_pairs(rows))
    sizes = [abs(pair.chosen - pair.rejected) for pair in pairs]
    right = [0.5 + 0.5 * ((pair.chosen > pair.rejected) - (pair.chosen < pair.rejected)) for pair in pairs]
    clusters = [pair.cluster for pair in pairs]
    raw = calibration_curve(expit(sizes), right, clusters=clusters, bins=bins, seed=seed)
    return PairCalibration(raw, held_out_calibration(sizes, right, method, clusters=clusters, bins=bins, seed=seed))


def best_of_n_of(rows: Iterable[SampleRow]) -> list[BestOf]:
    """How often the top-scoring of n answers is a chosen one, for growing n, over samples with two answers or more."""
    scores, values, clusters = [], [], []
    for row in rows:
        known = [score for score in row.scores if score is not None and math.isfinite(score)]
        if row.status == "scored" and len(known) == len(row.scores) == len(row.labels) > 1 and None not in row.labels:
            scores.append(known)
            values.append([float(label == "chosen") for label in row.labels])
            clusters.append(row.cluster or row.id)
    return best_of_n_curve(scores, values, clusters=clusters)
