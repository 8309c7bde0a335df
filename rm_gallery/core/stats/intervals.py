"""Confidence intervals for a proportion and for a mean of independent values; clusters: `clustered`, any statistic: `resampling`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

from rm_gallery.core.utils.errors import ConfigError


class Interval(NamedTuple):
    """A closed range; as a confidence interval at the level it was asked for."""

    low: float
    high: float

    def covers(self, value: float) -> bool:
        """Tell whether `value` lies in the range, both ends included."""
        return self.low <= value <= self.high


def check_level(level: float) -> float:
    """Return `level` if it is a confidence level strictly between 0 and 1; raise ConfigError otherwise."""
    if not 0.0 < level < 1.0:
        raise ConfigError(f"a confidence level lies strictly between 0 and 1, for example 0.95; got {level!r}")
    return level


def wilson_interval(successes: float, n: float, level: float = 0.95) -> Interval:
    """Give the Wilson score interval of a proportion, within 0..1.

    Args:
        successes: how many of the `n` trials succeeded. Fractional credit is allowed (a tie worth 1/k); the interval is
            then conservative, because outcomes within 0..1 vary at most as much as a 0/1 outcome of the same mean.
        n: number of trials, or of independent ones they are worth; with none the interval is (0, 1), for nothing is known.
        level: confidence level.

    Raises:
        ConfigError: if `successes` is not within 0..n or `level` is no level.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
    """
    z = NormalDist().inv_cdf((1.0 + check_level(level)) / 2.0)
    if n < 0 or not -1e-9 <= successes <= n + 1e-9:
        raise ConfigError(f"wilson_interval needs 0 <= successes <= n, got successes={successes!r} and n={n!r}")
    if n == 0:
        return Interval(0.0, 1.0)
    p = min(max(successes / n, 0.0), 1.0)
    scale = 1.0 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1.0 - p) / n + z * z / (4.0 * n * n))
    # rounding must not push the ends past the value itself when all trials agree
    return Interval(0.0 if p == 0.0 else max(0.0, centre - half), 1.0 if p == 1.0 else min(1.0, centre + half))


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """Give the Student-t interval of the mean of independent values, in the unit of the values.

    One value tells nothing about its own spread, so fewer than two give None.

    Raises:
        ConfigError: if a value is not finite or `level` is no level.
    """
    from scipy.special import stdtrit

    check_level(level)
    n = len(values)
    if n < 2:
        return None
    if not all(math.isfinite(value) for value in values):
        raise ConfigError("mean_interval needs finite values; leave out or count the others before calling it")
    mean = math.fsum(values) / n
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = float(stdtrit(n - 1, (1.0 + level) / 2.0)) * math.sqrt(variance / n)
    return Interval(mean - half, mean + half)
