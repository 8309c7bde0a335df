"""Does a judge favour the answer it is shown first? Both orders of every pair, and an exact sign test."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rm_gallery.core.stats.corrected import corrected_mean, numbers
from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    from rm_gallery.core.stats.corrected import Numbers


class PositionBias(NamedTuple):
    """How the place of an answer sways a judge.

    Attributes:
        advantage: mean win of the answer shown first less that of the same answer shown second, -1..1; 0 without bias.
        ci95: its interval.
        p_value: exact two-sided sign test of the pairs whose verdict depends on the order; None without a pair.
        favoured_first: pairs in which each answer does better when shown first.
        favoured_second: pairs in which each does better when shown second.
        n: pairs judged in both orders.
        n_left_out: pairs with a verdict in one order or none.
    """

    advantage: float | None
    ci95: Interval | None
    p_value: float | None
    favoured_first: int
    favoured_second: int
    n: int
    n_left_out: int


def position_bias(
    shown_first: Numbers,
    shown_second: Numbers,
    *,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
) -> PositionBias:
    """Test whether answer A does better when it is shown first than when it is shown second.

    The two orders of a pair are one observation, not two: only pairs whose verdict depends on the order say anything, and
    without bias they favour the first and the second place equally often.

    Args:
        shown_first: per pair the win of A when shown first: 1, 0, 0.5 for a tie, or anything between; None without a verdict.
        shown_second: per pair the win of A when shown second.
        clusters: a name per pair where pairs belong together; for the interval.
        confidence: level of the interval.

    Raises:
        ConfigError: lengths differ or a win lies outside 0..1.
    """
    import numpy as np

    check_level(confidence)
    first, second = numbers(shown_first, "shown_first"), numbers(shown_second, "shown_second")
    if len(first) != len(second):
        raise ConfigError(f"both orders need one entry per pair; found {len(first)} and {len(second)}")
    both = ~np.isnan(first) & ~np.isnan(second)
    if clusters is not None and len(clusters) != len(both):
        raise ConfigError(f"clusters needs one entry per pair; found {len(clusters)} for {len(both)}")
    n = int(both.sum())
    if n == 0:
        return PositionBias(None, None, None, 0, 0, 0, len(both))
    names = None if clusters is None else [name for name, kept in zip(clusters, both, strict=True) if kept]
    wins = np.concatenate([first[both], second[both]])
    if wins.min() < 0.0 or wins.max() > 1.0:
        raise ConfigError("wins lie within 0..1: 1 where A won, 0.5 for a tie, 0 where B won")
    gain = (first - second)[both]
    found = corrected_mean(gain, gain, clusters=names, bounds=(-1.0, 1.0), confidence=confidence)
    up, down = int((gain > 0.0).sum()), int((gain < 0.0).sum())
    return PositionBias(found.estimate, found.ci95, sign_test(up, down), up, down, n, len(both) - n)


def sign_test(more: int, less: int, *, mid: bool = False) -> float:
    """Give the exact two-sided p-value of "either sign is equally probable"; with `mid`, half the observed outcome counts.

    The mid-p value keeps its level on average where the exact one is conservative; on discordant pairs it is McNemar's test.

    Raises:
        ConfigError: a count is negative.
    """
    from scipy.stats import binom

    if min(more, less) < 0:
        raise ConfigError(f"counts are at least 0, found {more} and {less}")
    n, fewer = more + less, min(more, less)
    tail = float(binom.cdf(fewer, n, 0.5))
    if mid:
        tail -= float(binom.pmf(fewer, n, 0.5)) / 2.0
    return min(1.0, 2.0 * tail) if n else 1.0
