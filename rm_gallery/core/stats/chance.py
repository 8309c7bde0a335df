"""What a guesser would score: the range of accuracies that say nothing about the judge."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from statistics import NormalDist

from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.utils.errors import ConfigError

# Exact convolution above this many different probabilities costs seconds, and the normal limit is then exact enough.
_EXACT_LIMIT = 2000
# Probability mass below this is dropped from the tails; what is dropped in all stays far below any reported digit.
_NEGLIGIBLE = 1e-18


def _correct_counts(different: Counter[float]) -> tuple[int, list[float]]:
    """Offset and probabilities of the number a guesser gets right (Poisson-binomial distribution)."""
    import numpy as np
    from numpy.typing import NDArray
    from scipy.stats import binom

    offset = 0
    masses: NDArray[np.float64] = np.ones(1)
    for p, n in sorted(different.items()):
        low, high = (int(end) for end in binom.ppf([_NEGLIGIBLE, 1.0], n, p))
        high = min(high, int(binom.isf(_NEGLIGIBLE, n, p)))
        masses = np.convolve(masses, binom.pmf(np.arange(low, high + 1), n, p))
        kept = np.flatnonzero(masses >= _NEGLIGIBLE)
        masses = masses[kept[0] : kept[-1] + 1]
        offset += low + int(kept[0])
    return offset, masses.tolist()


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
    """Give the central range of accuracy (0..1) of a guesser who is right on each sample with the given probability.

    The range is exact (Poisson-binomial), equal-tailed and closed: each end is an accuracy that can occur, and beyond each
    end lies at most half of 1 - `level`. An accuracy inside it is what guessing gives. It holds for right-or-wrong outcomes;
    rules with fractional credit vary less.

    Args:
        probabilities: per sample the chance of being right by guessing, 0..1: 1/2 for a pair, 1/4 for one of four.
        level: probability the range is to hold.

    Raises:
        ConfigError: without samples or with a probability outside 0..1.
    """
    check_level(level)
    different = _different(probabilities, "chance_interval")
    n = sum(different.values())
    if len(different) > _EXACT_LIMIT:
        return _normal_limit(different, n, level)
    offset, masses = _correct_counts(different)
    tail = (1.0 - level) / 2.0
    low = high = offset + len(masses) - 1
    total, low_found = 0.0, False
    for i, mass in enumerate(masses):
        total += mass
        if not low_found and total > tail:
            low, low_found = offset + i, True
        if total >= 1.0 - tail:
            high = offset + i
            break
    return Interval(low / n, high / n)


def chance_interval_of_means(
    strata: Iterable[Iterable[float]], level: float = 0.95, *, n_draws: int = 20_000, seed: int = 0
) -> Interval:
    """Give the central range a guesser reaches where the figure is the unweighted mean of several subsets' accuracies.

    A small subset weighs as much as a large one, so this range is wider than that of the pooled accuracy.

    Args:
        strata: per subset the chances of being right by guessing, one per sample, 0..1.
        level: probability the range is to hold.
        n_draws: number of simulated guessers.
        seed: seed of the simulation.

    Raises:
        ConfigError: without subsets, with an empty one, or with a probability outside 0..1.
    """
    import numpy as np

    check_level(level)
    rng = np.random.default_rng(seed)
    means = []
    for probabilities in strata:
        different = _different(probabilities, "chance_interval_of_means")
        right = np.sum([rng.binomial(n, p, size=n_draws) for p, n in sorted(different.items())], axis=0)
        means.append(right / sum(different.values()))
    if not means:
        raise ConfigError("chance_interval_of_means needs at least one subset")
    low, high = np.quantile(np.mean(means, axis=0), [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high))
