"""Ranges of values, quantiles, and what a guesser reaches; intervals of figures are those of
`uncertainty.Estimate`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from statistics import NormalDist
from typing import NamedTuple

from rm_gallery.core.stats import Floats, np
from rm_gallery.core.utils.errors import ConfigError


class Interval(NamedTuple):
    """A closed range; as a confidence interval at the level it was asked for."""

    low: float
    high: float

    def covers(self, value: float) -> bool:
        """Tell whether `value` lies in the range, both ends included."""
        return self.low <= value <= self.high


def shown_side(value: float, interval: tuple[float, float], bounds: tuple[float, float]) -> int:
    """Side of `value` on which a figure lies for sure: 1 above, -1 below, 0 undecided.

    Both the confidence `interval` and the worst-case `bounds` must lie on that side, so that
    neither chance nor missing scores explain it. An end that touches `value` decides nothing.

    >>> shown_side(0.5, interval=(0.55, 0.70), bounds=(0.45, 0.80))
    0
    """
    low, high = min(interval[0], bounds[0]), max(interval[1], bounds[1])
    return (low > value) - (high < value)


def check_level(level: float) -> float:
    """Return `level` if it is a confidence level strictly between 0 and 1; raise ConfigError
    otherwise.
    """
    if not 0.0 < level < 1.0:
        raise ConfigError(
            f"a confidence level lies strictly between 0 and 1, for example 0.95; got {level!r}"
        )
    return level


def check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    """Return the lowest and highest observation; raise ConfigError unless finite and in order."""
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(
            f"bounds are two finite numbers, lowest and highest observation; found ({low!r}, "
            f"{high!r})"
        )
    return float(low), float(high)


def score_ends(share: float, square: float) -> Interval:
    """Ends of Wilson's interval of a share, 0..1; `square` is the squared quantile over the trials."""
    centre = (share + square / 2.0) / (1.0 + square)
    half = math.sqrt(square * share * (1.0 - share) + square**2 / 4.0) / (1.0 + square)
    # rounding must not push an end past the share itself when all trials agree
    return Interval(min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half)))


def t_quantile(df: float, level: float) -> float:
    """Standard errors from the middle to an end of an interval; the normal's for infinite df."""
    from scipy.special import ndtri, stdtrit

    tail = (1.0 + level) / 2.0
    return float(stdtrit(df, tail)) if df < 1e6 else float(ndtri(tail))


def two_tails(df: float, distance: float) -> float:
    """Probability of lying farther than so many standard errors from the middle, on either side."""
    from scipy.special import ndtr, stdtr

    return float(2.0 * (stdtr(df, -distance) if df < 1e6 else ndtr(-distance)))


# Exact convolution above this many different probabilities costs seconds, and the normal limit is
# then exact enough.
_EXACT_LIMIT = 2000
# Probability mass below this is dropped from the tails; what is dropped in all stays far below any
# reported digit.
_NEGLIGIBLE = 1e-18


def _correct_counts(different: Counter[float]) -> tuple[int, Floats]:
    """Offset and probabilities of the number a guesser gets right (Poisson-binomial).

    Ours: `scipy.stats.poisson_binom` (1.15) is quadratic in the samples; this one is not, as few
    probabilities differ.
    """
    from scipy.stats import binom

    offset = 0
    masses: Floats = np.ones(1)
    for p, n in sorted(different.items()):
        low, high = int(binom.ppf(_NEGLIGIBLE, n, p)), int(binom.isf(_NEGLIGIBLE, n, p))
        masses = np.convolve(masses, binom.pmf(np.arange(low, high + 1), n, p))
        kept = np.flatnonzero(masses >= _NEGLIGIBLE)
        masses = masses[kept[0] : kept[-1] + 1]
        offset += low + int(kept[0])
    return offset, masses


def _normal_limit(different: Counter[float], n: int, level: float) -> Interval:
    mean = math.fsum(p * k for p, k in different.items())
    deviation = math.sqrt(math.fsum(p * (1.0 - p) * k for p, k in different.items()))
    half = NormalDist().inv_cdf((1.0 + level) / 2.0) * deviation
    return Interval(max(0.0, math.floor(mean - half) / n), min(1.0, math.ceil(mean + half) / n))


def _different(probabilities: Iterable[float], name: str) -> Counter[float]:
    different = Counter(probabilities)
    if not different:
        raise ConfigError(f"{name} needs at least one sample")
    wrong = next((p for p in different if not 0.0 <= p <= 1.0), None)
    if wrong is not None:
        raise ConfigError(f"{name} needs probabilities within 0..1, got {wrong!r}")
    return different


def chance_interval(probabilities: Iterable[float], level: float = 0.95) -> Interval:
    """Central range of the accuracy of a guesser, 0..1; an accuracy inside it is no better than chance.

    Exact (Poisson-binomial) and equal-tailed: each end can occur, and at most (1 - level) / 2 lies
    beyond it. It holds for 0/1 outcomes; fractional credit varies less.

    Args:
        probabilities: per sample the chance of being right by guessing, 0..1: 1/2 for a pair, 1/4
            for one of four.
        level: probability inside the range.

    Raises:
        ConfigError: without samples or with a probability outside 0..1.
    """
    check_level(level)
    different = _different(probabilities, "chance_interval")
    n = sum(different.values())
    if len(different) > _EXACT_LIMIT:
        return _normal_limit(different, n, level)
    offset, masses = _correct_counts(different)
    tail, below = (1.0 - level) / 2.0, np.cumsum(masses)
    ends = np.searchsorted(below, tail, side="right"), np.searchsorted(below, 1.0 - tail)
    return Interval(*((offset + min(int(end), len(masses) - 1)) / n for end in ends))


def chance_interval_of_means(
    strata: Iterable[Iterable[float]], level: float = 0.95, *, n_draws: int = 20_000, seed: int = 0
) -> Interval:
    """Central range of a guesser's unweighted mean accuracy over subsets, from seeded simulation.

    A small subset weighs as much as a large one, so the range is wider than the pooled accuracy's.

    Args:
        strata: per subset the chances of being right by guessing, one per sample, 0..1.
        level: probability inside the range.
        n_draws: number of simulated guessers.
        seed: seed of the simulation.

    Raises:
        ConfigError: without subsets, with an empty one, or with a probability outside 0..1.
    """
    check_level(level)
    rng = np.random.default_rng(seed)
    means = []
    for probabilities in strata:
        different = _different(probabilities, "chance_interval_of_means")
        right = np.sum(
            [rng.binomial(n, p, size=n_draws) for p, n in sorted(different.items())], axis=0
        )
        means.append(right / sum(different.values()))
    if not means:
        raise ConfigError("chance_interval_of_means needs at least one subset")
    low, high = np.quantile(np.mean(means, axis=0), [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high))
