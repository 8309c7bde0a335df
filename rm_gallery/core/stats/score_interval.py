"""Interval and p-value from one statistic, for a mean within bounds whose variance depends on the mean itself.

The variance at a supposed mean t is (t - low)(high - t) / n_eff, as in Wilson's interval for a proportion. Such an interval
never leaves the bounds, leans to the side where the errors lie, and reads as a test without a second formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from rm_gallery.core.stats.intervals import Interval

_HALVINGS = 100


class Piece(NamedTuple):
    """One part of a weighted mean: its share, its own mean with variance, and its worth in independent 0/1 labels."""

    share: float
    estimate: float
    n_eff: float
    variance: float


@dataclass(frozen=True)
class ScoreTest:
    """A weighted mean of independent pieces; their score intervals are put together by squares (MOVER).

    Attributes:
        estimate: the mean, within the bounds.
        pieces: what it is the mean of.
        extra: variance beyond that of the pieces: shares counted on the same rows, clusters lying in several pieces.
        df: degrees of freedom of Student's quantile.
        low: lowest possible value, or minus infinity.
        high: highest possible value, or infinity.

    Source: R. Newcombe, "Interval estimation for the difference between independent proportions", 1998, method 10;
    G. Zou and A. Donner, "Construction of confidence limits about effect measures", 2008.
    """

    estimate: float
    pieces: tuple[Piece, ...]
    extra: float
    df: float
    low: float
    high: float

    def interval(self, level: float) -> Interval:
        """Give the interval at `level`."""
        return self._at(t_quantile(self.df, level))

    def p_value(self, null: float) -> float:
        """Give the two-sided p-value of "the mean is `null`": that of the interval which just reaches it."""
        from scipy.special import stdtr

        if self.estimate == null:
            return 1.0
        least, most = 0.0, 1.0
        while not self._at(most).covers(null):
            if most > 1e9:
                return 0.0
            least, most = most, 2.0 * most
        for _ in range(_HALVINGS):
            quantile = (least + most) / 2.0
            if quantile in (least, most):
                break
            if self._at(quantile).covers(null):
                most = quantile
            else:
                least = quantile
        return min(1.0, float(2.0 * stdtr(min(self.df, 1e12), -most)))

    def _at(self, quantile: float) -> Interval:
        if len(self.pieces) == 1 and self.extra == 0.0:
            return _piece_interval(self.pieces[0], quantile, self.low, self.high)
        below = above = quantile**2 * self.extra
        for piece in self.pieces:
            low, high = _piece_interval(piece, quantile, self.low, self.high)
            below += (piece.share * (piece.estimate - low)) ** 2
            above += (piece.share * (high - piece.estimate)) ** 2
        return Interval(
            max(self.low, self.estimate - math.sqrt(max(below, 0.0))),
            min(self.high, self.estimate + math.sqrt(max(above, 0.0))),
        )


def _piece_interval(piece: Piece, quantile: float, low: float, high: float) -> Interval:
    if math.isinf(piece.n_eff):
        half = quantile * math.sqrt(piece.variance)
        return Interval(max(low, piece.estimate - half), min(high, piece.estimate + half))
    span = high - low
    p, q2 = (piece.estimate - low) / span, quantile * quantile / piece.n_eff
    centre = (p + q2 / 2) / (1 + q2)
    half = math.sqrt(max(0.0, q2 * p * (1 - p) + q2 * q2 / 4)) / (1 + q2)
    # rounding must not push an end past the estimate where that lies at a bound
    lower = 0.0 if p <= 0.0 else min(p, max(0.0, centre - half))
    upper = 1.0 if p >= 1.0 else max(p, min(1.0, centre + half))
    return Interval(low + span * lower, low + span * upper)


def t_quantile(df: float, level: float) -> float:
    """Give how many standard errors an interval at `level` reaches to each side; the normal value where df is infinite."""
    from scipy.special import ndtri, stdtrit

    tail = (1.0 + level) / 2.0
    return float(stdtrit(df, tail)) if df < 1e6 else float(ndtri(tail))
