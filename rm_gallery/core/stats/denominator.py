"""A closed denominator: what a figure is at worst and at best, whatever its missing scores would have been."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rm_gallery.core.stats.intervals import Interval

NEVER_BEGUN = "caller"
"""The cause of what a run did not get to."""


class Closed(NamedTuple):
    """How many there are, how many of them have a score, who caused that the others have none, and the limits of the mean."""

    n: int
    n_scored: int
    missing: dict[str, int]
    """Number by cause (endpoint, judge, answer, data, rule, caller), the largest first; only causes that occur."""
    bounds: Interval | None
    """The mean when every missing score is the lowest, and when every one is the highest of the scale, in the scores' unit; an end
    is infinite where the scale is open and something is missing. None without anything to score, and where both ends are open."""

    @property
    def n_missing(self) -> int:
        """How many have no score."""
        return self.n - self.n_scored


def closed(
    n: int,
    n_scored: int,
    total: float,
    missing: Mapping[str, int],
    scale: tuple[float, float] = (0.0, 1.0),
) -> Closed:
    """Close the denominator of a mean.

    Args:
        n: how many there are.
        n_scored: how many of them have a score.
        total: the sum of their scores.
        missing: how many have none, by cause; those that no cause is known of were never begun.
        scale: lowest and highest possible score; infinite where it is open.
    """
    lost = n - n_scored
    causes = {cause: number for cause, number in missing.items() if number}
    if unknown := lost - sum(causes.values()):
        causes[NEVER_BEGUN] = causes.get(NEVER_BEGUN, 0) + unknown
    causes = _largest_first(causes)
    if not n or (lost and not any(map(math.isfinite, scale))):
        return Closed(n, n_scored, causes, None)
    low, high = ((total + lost * end if lost else total) / n for end in scale)
    return Closed(n, n_scored, causes, Interval(low, high))


def weighted_bounds(parts: Iterable[tuple[Interval | None, float]]) -> Interval | None:
    """The limits of a weighted mean of figures out of the limits of each, (limits, weight); parts without limits leave the mean."""
    known = [(bounds, weight) for bounds, weight in parts if bounds is not None]
    whole = math.fsum(weight for _, weight in known)
    if not whole:
        return None
    low, high = (math.fsum(bounds[end] * weight for bounds, weight in known) / whole for end in (0, 1))
    return Interval(low, high)


def mean_bounds(parts: Iterable[Interval | None]) -> Interval | None:
    """As `weighted_bounds`, every part weighing the same."""
    return weighted_bounds((bounds, 1.0) for bounds in parts)


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """What is missing of several parts together, the largest cause first."""
    found: dict[str, int] = {}
    for one in counts:
        for cause, number in one.items():
            found[cause] = found.get(cause, 0) + number
    return _largest_first(found)


def _largest_first(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
