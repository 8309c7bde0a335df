"""Old beside new: figures of a change against hand-made ones, and what holds of every change."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rm_gallery.core.stats.changes import OldAndNew
from rm_gallery.core.stats.uncertainty import Estimate

GAP = math.nan
OLD = np.array([0.0, 1.0, 1.0, GAP, 0.0, 0.0])
NEW = np.array([1.0, 1.0, GAP, 0.0, 0.0, 1.0])
CLUSTERS = np.array([0, 0, 1, 1, 2, 2])


def estimate(figure: Estimate | None) -> float:
    assert figure is not None
    return figure.estimate


def test_figures_are_of_the_rows_with_both() -> None:
    pairs = OldAndNew(OLD, NEW, CLUSTERS)
    assert pairs.both.tolist() == [True, True, False, False, True, True]
    assert pairs.means == (0.25, 0.75)
    assert (estimate(pairs.difference), estimate(pairs.changed())) == (0.5, 0.5)
    # 0 1 0 0 and 1 1 0 1: by hand the phi coefficient, which both rank correlations are
    for order in (pairs.spearman, pairs.kendall):
        assert estimate(order) == pytest.approx(1 / 3)


def test_what_is_missing_lies_between_worst_and_best() -> None:
    pairs = OldAndNew(OLD, NEW, CLUSTERS)
    ends = [estimate(pairs.filled(best).difference) for best in (0.0, 1.0)]
    # the third row's new value is 0 or 1, the fourth's old one 1 or 0
    assert ends == [pytest.approx((2 - 1 - 1) / 6), pytest.approx(2 / 6)]
    for third in (0.0, 0.5, 1.0):
        for fourth in (0.0, 0.5, 1.0):
            old, new = OLD.copy(), NEW.copy()
            new[2], old[3] = third, fourth
            assert ends[0] <= estimate(OldAndNew(old, new, CLUSTERS).difference) <= ends[1]
    whole = pairs.filled(0.0)
    assert whole.filled(1.0).means == whole.means


def test_nearness_is_one_less_the_distance_in_widths_of_the_scale() -> None:
    labels = np.array([1.0, 1.0, 1.0, 1.0, GAP, 0.0])
    near = OldAndNew(OLD, NEW, CLUSTERS).nearness(labels)
    assert near.both.tolist() == [True, True, False, False, False, True]
    assert near.means == pytest.approx((2 / 3, 2 / 3))
    wide = OldAndNew(10.0 * OLD, 10.0 * NEW, CLUSTERS, (-math.inf, math.inf))
    assert wide.nearness(10.0 * labels).means == near.means
    assert wide.nearness(np.full(6, GAP)).difference is None


def test_turned_round_the_difference_has_the_other_sign_and_the_same_p_value() -> None:
    rng = np.random.default_rng(0)
    for bounds in ((0.0, 1.0), (-math.inf, math.inf)):
        old, new, clusters = rng.random(40), rng.random(40), rng.integers(0, 12, 40)
        gap, back = (
            OldAndNew(*sides, clusters, bounds).difference for sides in ((old, new), (new, old))
        )
        assert gap is not None and back is not None
        assert gap.estimate == pytest.approx(-back.estimate)
        assert gap.p_value(0.0) == pytest.approx(back.p_value(0.0))


def test_one_cluster_has_neither_interval_nor_p_value() -> None:
    pairs = OldAndNew(OLD, NEW, np.zeros(6, dtype=int))
    for figure in (pairs.difference, pairs.changed(), pairs.spearman, pairs.kendall):
        assert figure is not None
        assert (figure.interval(), figure.p_value(0.0)) == (None, None)
