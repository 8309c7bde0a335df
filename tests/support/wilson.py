"""Wilson's interval of a share of independent outcomes, by scipy."""

from __future__ import annotations

from scipy.stats import binomtest

from rm_gallery.core.stats.intervals import Interval


def wilson(successes: int, n: int) -> Interval:
    """The 95 % interval, 0..1."""
    found = binomtest(successes, n).proportion_ci(method="wilson")
    return Interval(float(found.low), float(found.high))
