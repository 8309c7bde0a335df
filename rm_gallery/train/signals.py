"""Signals in the rewards of a training run: how components move, how they hang together inside groups, and with length.

Completions of one prompt share its fate, so the group is the witness: correlations are taken inside groups, where the prompt is
the same for all, and intervals are those of groups drawn anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rm_gallery.core.stats.clustered import from_variance
from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.train.advantages import group_numbers, numbers_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rm_gallery.train.advantages import Groups, Numbers

    Floats = NDArray[np.float64]

LEAST_GROUPS = 5
"""Groups (or steps) below which nothing is said to have changed."""


@dataclass(frozen=True)
class Link:
    """How two values hang together inside groups, -1..1; the slope is the change of the first per unit of the second."""

    correlation: float
    interval: Interval
    slope: float
    variance: float
    n: int
    n_groups: int

    @property
    def sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return not self.interval.low <= 0.0 <= self.interval.high


def link(first: Numbers, second: Numbers, groups: Groups, *, level: float = 0.95) -> Link | None:
    """The correlation of two values of completions inside their groups, pooled over groups, with its interval.

    Rows without one of the values count in nothing. None where no group has two rows that differ in both values, or there are
    fewer than five groups.

    Raises:
        ConfigError: the values or groups do not fit one another.
    """
    import numpy as np

    check_level(level)
    a, b = numbers_of(first, "first"), numbers_of(second, "second")
    if len(a) != len(b):
        raise ConfigError(f"{len(a)} values and {len(b)}: one of each is needed per completion.")
    names = group_numbers(groups, len(b))
    both = ~(np.isnan(a) | np.isnan(b))
    names, a, b = names[both], a[both], b[both]
    unit_a, unit_b = _scale(a), _scale(b)
    a, b = a / unit_a, b / unit_b
    if len(names) == 0:
        return None
    _, names = np.unique(names, return_inverse=True)
    sizes = np.bincount(names)
    a = a - (np.bincount(names, a) / sizes)[names]
    b = b - (np.bincount(names, b) / sizes)[names]
    aa, bb = float(np.sum(a * a)), float(np.sum(b * b))
    varied = int(np.sum((np.bincount(names, np.abs(b)) > 1e-12) | (np.bincount(names, np.abs(a)) > 1e-12)))
    if aa <= 1e-18 or bb <= 1e-18 or varied < LEAST_GROUPS:
        return None
    x, y = a / math.sqrt(aa), b / math.sqrt(bb)
    r = min(1.0, max(-1.0, float(np.sum(x * y))))
    moved = np.bincount(names, x * y - r / 2.0 * (x * x + y * y))
    variance = float(np.sum(moved**2)) * varied / max(1, varied - 1)
    interval = from_variance(r, variance, varied, bounds=(-1.0, 1.0)).interval(level)
    slope = float(np.sum(a * b)) / bb * (unit_a / unit_b)
    return Link(r, interval, slope, variance, len(a), varied)


def length_bias(rewards: Numbers, lengths: Numbers, groups: Groups, *, level: float = 0.95) -> Link | None:
    """How a reward follows the length of completions to the same prompt; the slope is what a doubling of the length is worth.

    Lengths are compared by their logarithm, so the unit does not count. None as in `link`.
    """
    import numpy as np

    size = numbers_of(lengths, "lengths")
    return link(rewards, np.log2(np.maximum(size, 0.0) + 1.0), groups, level=level)


@dataclass(frozen=True)
class Shift:
    """A mean early and late in a run, and the interval of its change."""

    early: float
    late: float
    interval: Interval
    n: tuple[int, int]

    @property
    def change(self) -> float:
        """Late minus early."""
        return self.late - self.early

    @property
    def sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return not self.interval.low <= 0.0 <= self.interval.high


def shift(early: Any, late: Any, *, level: float = 0.95, in_a_row: bool = False) -> Shift | None:
    """The change of a mean between two sets of independent values (groups' means, steps), with Welch's interval.

    NaN counts in nothing; None for fewer than five values on either side. `in_a_row` widens it for steps that follow one
    another and resemble their neighbours.
    """
    import numpy as np
    from scipy import stats

    sides = [side[~np.isnan(side)] for side in (np.asarray(early, dtype=np.float64), np.asarray(late, dtype=np.float64))]
    if min(len(side) for side in sides) < LEAST_GROUPS:
        return None
    scale = _scale(np.concatenate(sides))
    sides = [side / scale for side in sides]
    means = [float(np.mean(side)) for side in sides]
    parts = [float(np.var(side, ddof=1)) / len(side) * (_inflation(side) if in_a_row else 1.0) for side in sides]
    total = sum(parts)
    change = means[1] - means[0]
    if total <= 1e-18 * max(1.0, change * change):
        interval = Interval(change, change)
    else:
        freedom = total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True) if part > 0)
        half = float(stats.t.ppf(0.5 + check_level(level) / 2.0, freedom)) * math.sqrt(total)
        interval = Interval(change - half, change + half)
    low, high = (end * scale for end in interval)
    return Shift(means[0] * scale, means[1] * scale, Interval(low, high), (len(sides[0]), len(sides[1])))


def _scale(values: Floats) -> float:
    """What numbers near the end of the range are divided by, for their squares and sums overflow."""
    import numpy as np

    largest = float(np.max(np.abs(values))) if len(values) else 0.0
    return largest if largest > 1e100 else 1.0


def _inflation(side: Floats) -> float:
    """By how much neighbours that resemble one another enlarge the variance of their mean (first-order autocorrelation)."""
    import numpy as np

    apart = side - np.mean(side)
    whole = float(np.sum(apart**2))
    rho = float(np.sum(apart[1:] * apart[:-1])) / whole if whole > 0 else 0.0
    # the estimate of a short series is too low by about (1 + 4 rho) / n
    rho = min(0.9, max(0.0, rho + (1.0 + 4.0 * max(rho, 0.0)) / len(side)))
    return (1.0 + rho) / (1.0 - rho)


def group_means(values: Floats, names: NDArray[np.int64]) -> Floats:
    """The mean of each group's known values; NaN for a group without any."""
    import numpy as np

    known = ~np.isnan(values)
    n = int(names.max()) + 1 if len(names) else 0
    counts = np.bincount(names[known], minlength=n)
    scale = _scale(values[known])
    sums = np.bincount(names[known], values[known] / scale, minlength=n)
    present = np.bincount(names, minlength=n) > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums / counts * scale)[present]
