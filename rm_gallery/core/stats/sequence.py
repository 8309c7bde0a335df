"""Looking at a mean after every observation without paying for the looks: confidence sequences and sequential tests.

An ordinary interval holds for one look at a sample size fixed beforehand; looked at after every row it is wrong about half
of the time. Here the error is at most 1 - confidence over *all* looks together, however often and whenever one stops.
Source of both methods: I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting"
(arXiv 2010.09686), theorems 2 and 3.

The observations may be anything within known bounds whose mean, given those before, is the mean in question: wins with
ties as 1, 0.5 and 0, graded scores, paired differences with bounds (-1, 1). Rows that belong together go in as their mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# The shares that are bet: fine enough (a third apart) that one of them is near the best for any difference. Those for
# differences that need many thousands of observations get a smaller part of the capital.
_SHARES = [0.002 * 1.36**k for k in range(20)]
_PARTS = [share / (share + 0.03) for share in _SHARES]
# Observations are kept as counts per value; more different values than this are kept rounded, away from the conclusion.
_MOST_VALUES = 1000
_ROUNDS = 60


class _Capital:
    """What somebody who bets that the mean is above m has made of one unit; at m itself it cannot be expected to grow.

    For each share c the capital after observations x_i within 0..1 is the product of 1 - c + c * x_i / m, which falls in m.
    It depends on how often each value was seen and not on when, so counts are all that is kept.
    """

    def __init__(self) -> None:
        self._counts: dict[float, int] = {}
        self._rounded = False
        self._arrays: tuple[Floats, Floats] | None = None

    def add(self, x: float) -> None:
        if not self._rounded and x not in self._counts and len(self._counts) >= _MOST_VALUES:
            self._rounded = True
            counts: dict[float, int] = {}
            for value, k in self._counts.items():
                counts[self._down(value)] = counts.get(self._down(value), 0) + k
            self._counts = counts
        if self._rounded:
            x = self._down(x)  # smaller observations make less capital: what is concluded stays true
        self._counts[x] = self._counts.get(x, 0) + 1
        self._arrays = None

    @staticmethod
    def _down(x: float) -> float:
        return math.floor(x * _MOST_VALUES) / _MOST_VALUES

    def log(self, m: float) -> float:
        """Logarithm of the capital against the mean `m`, 0 < m < 1."""
        import numpy as np

        if self._arrays is None:
            self._arrays = (np.array(list(self._counts)), np.array(list(self._counts.values()), dtype=np.float64))
        values, counts = self._arrays
        shares = np.array(_SHARES)
        logs = np.log1p(shares[:, None] * (values / m - 1.0)) @ counts
        top = float(logs.max(initial=-math.inf))
        return top + math.log(float(np.average(np.exp(logs - top), weights=_PARTS)))


def _scaled(x: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    if not low <= x <= high:
        raise ConfigError(f"an observation is {x!r}, outside the bounds {low:g}..{high:g} of this sequence")
    return (float(x) - low) / (high - low)


def _check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(f"bounds are two finite numbers, lowest and highest observation; found ({low!r}, {high!r})")
    return float(low), float(high)


class ConfidenceSequence:
    """An interval for the mean that holds at every look at once, with probability `confidence`.

    Args:
        bounds: lowest and highest possible observation.
        confidence: level over all looks together.
        method: "betting" (narrowest) or "empirical bernstein" (closed form).

    The interval is the intersection of all intervals so far, so it never widens.
    """

    def __init__(
        self,
        bounds: tuple[float, float] = (0.0, 1.0),
        confidence: float = 0.95,
        *,
        method: Literal["betting", "empirical bernstein"] = "betting",
    ) -> None:
        self.bounds = _check_bounds(bounds)
        self.confidence = check_level(confidence)
        if method not in ("betting", "empirical bernstein"):
            raise ConfigError(f"method is 'betting' or 'empirical bernstein', found {method!r}")
        self.method = method
        self.n = 0
        self._sum = 0.0
        self._low, self._high = 0.0, 1.0
        self._above, self._below = _Capital(), _Capital()
        self._bernstein = _EmpiricalBernstein(confidence)
        self._stale = False

    def add(self, x: float) -> None:
        """Take in one observation.

        Raises:
            ConfigError: it lies outside the bounds or is NaN.
        """
        scaled = _scaled(x, self.bounds)
        self.n += 1
        self._sum += scaled
        if self.method == "betting":
            self._above.add(scaled)
            self._below.add(1.0 - scaled)
            self._stale = True
        else:
            low, high = self._bernstein.add(scaled)
            if max(low, self._low) <= min(high, self._high):
                self._low, self._high = max(low, self._low), min(high, self._high)

    def extend(self, observations: Iterable[float]) -> None:
        """Take in several observations; the interval afterwards is that of one look at all of them."""
        for x in observations:
            self.add(x)

    @property
    def mean(self) -> float | None:
        """Mean of the observations so far; None without any."""
        low, high = self.bounds
        return low + (high - low) * self._sum / self.n if self.n else None

    @property
    def interval(self) -> Interval:
        """The interval now, within the bounds."""
        if self._stale:
            self._look()
        low, high = self.bounds
        return Interval(low + (high - low) * self._low, low + (high - low) * self._high)

    def excludes(self, value: float) -> bool:
        """Tell whether the interval leaves `value` out, which decides the comparison with it."""
        return not self.interval.covers(value)

    def _look(self) -> None:
        self._stale = False
        middle = min(max(self._sum / self.n, self._low), self._high)
        self._low = self._end(self._low, middle)
        self._high = self._end(self._high, middle)

    def _refutes(self, m: float) -> bool:
        """Whether the capital of both bets together, which is convex in m, has reached 1 / (1 - confidence)."""
        limit = -math.log(1.0 - self.confidence)
        above = self._above.log(m) if m > 0.0 else (math.inf if self._sum > 0.0 else 0.0)
        below = self._below.log(1.0 - m) if m < 1.0 else (math.inf if self._sum < self.n else 0.0)
        top = max(above, below)
        if math.isinf(top):
            return True
        return top + math.log((math.exp(above - top) + math.exp(below - top)) / 2.0) >= limit

    def _end(self, end: float, middle: float) -> float:
        """Move an end inwards as far as the capital refutes it; `middle`, the mean, is never refuted."""
        if not self._refutes(end) or self._refutes(middle):
            return end
        outside, inside = end, middle
        for _ in range(_ROUNDS):
            half = (outside + inside) / 2.0
            if half in (outside, inside):
                break
            if self._refutes(half):
                outside = half
            else:
                inside = half
            if abs(inside - outside) < 1e-9:
                break
        return outside


class _EmpiricalBernstein:
    """Closed-form sequence on 0..1 (theorem 2), with one pseudo-observation at 1/2 of variance 1/4."""

    def __init__(self, confidence: float, most: float = 0.5) -> None:
        self._log = math.log(2.0 / (1.0 - confidence))
        self._most = most
        self._n = 0
        self._sum, self._squares = 0.5, 0.25
        self._bets = self._weighted = self._penalty = 0.0

    def add(self, x: float) -> tuple[float, float]:
        i = self._n = self._n + 1
        mean, variance = self._sum / i, self._squares / i
        bet = min(self._most, math.sqrt(2.0 * self._log / (variance * i * math.log1p(i))))
        self._bets += bet
        self._weighted += bet * x
        self._penalty += 4.0 * (x - mean) ** 2 * (-math.log1p(-bet) - bet) / 4.0
        self._sum += x
        self._squares += (x - self._sum / (i + 1)) ** 2
        centre, half = self._weighted / self._bets, (self._log + self._penalty) / self._bets
        return centre - half, centre + half


class SequentialTest:
    """Test of one value, looked at after every observation; the chance of ever rejecting a true `null` is at most 5 %.

    For monitoring against a fixed baseline this is sharper than an interval, since it asks about one value only.

    Args:
        null: the supposed mean.
        bounds: lowest and highest possible observation.
        alternative: "two-sided", "less" or "greater"; one-sided tests spend nothing on the other side.
    """

    def __init__(
        self,
        null: float,
        bounds: tuple[float, float] = (0.0, 1.0),
        *,
        alternative: Literal["two-sided", "less", "greater"] = "two-sided",
    ) -> None:
        self.bounds = _check_bounds(bounds)
        self._null = _scaled(null, self.bounds)
        if not 0.0 < self._null < 1.0:
            raise ConfigError(f"null is {null!r}; it lies strictly within the bounds {bounds[0]:g}..{bounds[1]:g}")
        if alternative not in ("two-sided", "less", "greater"):
            raise ConfigError(f"alternative is 'two-sided', 'less' or 'greater', found {alternative!r}")
        self.alternative = alternative
        self.n = 0
        self._above, self._below = _Capital(), _Capital()
        self._best = 0.0

    def add(self, x: float) -> float:
        """Take in one observation and give the p-value now, which only ever falls.

        Raises:
            ConfigError: it lies outside the bounds or is NaN.
        """
        scaled = _scaled(x, self.bounds)
        self.n += 1
        logs = []
        if self.alternative != "less":
            self._above.add(scaled)
            logs.append(self._above.log(self._null))
        if self.alternative != "greater":
            self._below.add(1.0 - scaled)
            logs.append(self._below.log(1.0 - self._null))
        top = max(logs)
        self._best = max(self._best, top + math.log(math.fsum(math.exp(log - top) for log in logs) / len(logs)))
        return self.p_value

    @property
    def p_value(self) -> float:
        """Probability bound for a capital as high as the highest so far, were `null` true."""
        return math.exp(-self._best)
