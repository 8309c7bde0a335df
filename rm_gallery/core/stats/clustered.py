"""Mean of outcomes in clusters, with an interval for few, uneven clusters and shares near 0 and 1.

Samples of one prompt are correlated, so prompts are counted, not samples. The variance is the
delete-one-cluster jackknife's in closed form, at least that of one common intraclass correlation.
The interval is Wilson's for the effective number of outcomes with this variance (E. Korn and B.
Graubard, 1998; N. Dean and M. Pagano, 2015), with Student's quantile where there are clusters.
Where every sample is its own cluster and outcomes are 0 or 1 it *is* Wilson's interval. A
percentile bootstrap covers 34 to 90 % instead of 95 % for shares near 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Any
from zlib import crc32

from rm_gallery.core.stats import Array, ArrayLike, Floats, Integers, Names, np
from rm_gallery.core.stats.intervals import (
    Interval,
    check_level,
    score_ends,
    t_quantile,
    two_tails,
    wilson_interval,
)
from rm_gallery.core.utils.compat import earlier
from rm_gallery.core.utils.errors import ConfigError

_EQUAL = 1e-12
_EXTREME = 0.25
"""Clusters added at the extremes; with a quarter, coverage is nearest to the level over few and
many clusters.
"""
_UNSEEN = 0.6
"""Clusters added at either end where outcomes come in clusters: few clusters near an end show
neither the rare side nor the correlation.
"""
_FEW = 20
"""With fewer independent outcomes a p-value is exact."""


@dataclass(frozen=True)
class ClusteredMean:
    """A mean, or a weighted mean of means, with what its uncertainty rests on.

    Attributes:
        estimate: the mean.
        variance: its estimated sampling variance over clusters; never 0 unless every outcome lies
            at one end of `bounds`.
        n: outcomes counted.
        n_clusters: clusters they come from.
        effective_clusters: equally heavy clusters that weigh as much; below `n_clusters` when some
            are larger than others.
        bounds: smallest and largest possible outcome.
        shift: where the middle of the interval lies from the estimate, towards the middle of the
            bounds; None where the estimate is a single mean, whose interval (Wilson's) finds its
            middle by itself.
        sides: clusters whose mean lies above and below the middle of the bounds, where that is
            known.
    """

    estimate: float
    variance: float
    n: int
    n_clusters: int
    effective_clusters: float
    bounds: tuple[float, float] = (0.0, 1.0)
    shift: float | None = None
    sides: tuple[int, int] | None = None
    _df: float = math.inf
    """Degrees of freedom of the variance; infinite where every outcome is its own cluster."""

    @cached_property
    def effective_n(self) -> float:
        """Independent all-or-nothing outcomes of this mean that would be as uncertain."""
        share = self._position(self.estimate)
        spread = self.variance / (self.bounds[1] - self.bounds[0]) ** 2
        worth = (
            share * (1.0 - share) / spread
            if spread > 0.0 and 0.0 < share < 1.0
            else self.effective_clusters
        )
        return float(round(worth)) if abs(worth - round(worth)) < 1e-9 * worth else worth

    @property
    def standard_error(self) -> float:
        """Square root of the variance."""
        return math.sqrt(self.variance)

    def interval(self, level: float = 0.95) -> Interval:
        """Interval at this level: within the bounds, around the estimate, never of width 0."""
        quantile, (low, high) = t_quantile(self._df, check_level(level)), self.bounds
        if self.shift is not None:
            middle, half = self.estimate + self.shift, quantile * self.standard_error
            low, high = max(low, middle - half), min(high, middle + half)
        else:
            share = score_ends(self._position(self.estimate), quantile**2 / self.effective_n)
            low, high = (low + end * (high - low) for end in share)
        return Interval(min(low, self.estimate), max(high, self.estimate))

    def p_value(self, null: float) -> float:
        """Two-sided p-value of "the true mean is `null`".

        With 20 or more independent outcomes it is below 1 - level exactly where the interval leaves
        `null` out. With fewer it is the exact binomial test's: there the normal one rejects a true
        null up to three times too often. Against the middle of the bounds, clusters that lie on it
        (ties, equal pairs) do not count.
        """
        if self.shift is not None:
            distance = abs(self.estimate + self.shift - null)
            if self.variance <= 0.0:
                return float(distance <= _EQUAL)
            return two_tails(self._df, distance / self.standard_error)
        share, of_null = self._position(self.estimate), self._position(null)
        spread = of_null * (1.0 - of_null) / self.effective_n
        if spread <= 0.0:
            return float(abs(share - of_null) <= _EQUAL)
        if self.effective_n < _FEW:
            p = _exact_p(share * self.effective_n, self.effective_n, of_null)
        else:
            p = two_tails(self._df, abs(share - of_null) / math.sqrt(spread))
        if self.sides is not None and abs(of_null - 0.5) <= _EQUAL and 0 < sum(self.sides) < _FEW:
            p = max(p, _exact_p(self.sides[0], sum(self.sides), 0.5))
        return p

    def _position(self, value: float) -> float:
        return min(max((value - self.bounds[0]) / (self.bounds[1] - self.bounds[0]), 0.0), 1.0)


def _exact_p(successes: float, n: float, null: float) -> float:
    """Twice the smaller binomial tail, interpolated for counts that are fractions.

    Ours: `scipy.stats.binomtest` takes whole counts; ties and clusters give fractions.
    """
    from scipy.special import betainc

    at_least = float(betainc(successes, n - successes + 1.0, null)) if successes > 0.0 else 1.0
    at_most = 1.0 - float(betainc(successes + 1.0, n - successes, null)) if successes < n else 1.0
    return min(1.0, 2.0 * min(at_least, at_most))


def check_columns(first: Array, second: Array, name: str, other: str) -> None:
    """Raise ConfigError unless both are columns of one length."""
    if first.shape != second.shape or first.ndim != 1:
        raise ConfigError(
            f"{name} and {other} need the same length, got {first.shape} and {second.shape}"
        )


def cluster_numbers(names: Names | None, n: int) -> Integers:
    """Number the clusters from 0; without names every item is a cluster of its own.

    Raises:
        ConfigError: unless there is one name per item.
    """
    if names is None:
        return np.arange(n)
    if len(names) != n:
        raise ConfigError(
            f"one cluster name per item is needed, got {len(names)} names for {n} items"
        )
    if isinstance(names, np.ndarray) and names.dtype != object:
        # speed and room: sorting a million once more takes 40 MB
        if _are_numbers(names):
            return np.asarray(names, dtype=np.int64)
        if n and (names[1:] >= names[:-1]).all():
            return np.concatenate([[0], np.cumsum(names[1:] != names[:-1], dtype=np.int64)])
        return np.asarray(np.unique(names, return_inverse=True)[1], dtype=np.int64)
    known: dict[Any, int] = {}
    return np.fromiter(
        (known.setdefault(name, len(known)) for name in names), dtype=np.int64, count=n
    )


def _are_numbers(names: Array) -> bool:
    """Whether they are 0, 1, … without a gap already."""
    if names.dtype.kind not in "iu" or not len(names):
        return False
    return 0 <= names.min() and names.max() < len(names) and bool(np.bincount(names).all())


def first_seen(names: Array) -> Integers:
    """Number equal entries 0, 1, … in the order they appear."""
    _, first, codes = np.unique(names, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int64)
    return rank[codes]


def names_where(names: Names | None, kept: Iterable[Any]) -> list[Any] | None:
    """The names of those items that are kept; None where items have no names."""
    return None if names is None else list(compress(names, kept))


def clustered_mean(
    values: ArrayLike,
    clusters: Names | None = None,
    *,
    strata: Names | None = None,
    weights: Mapping[Any, float] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> ClusteredMean | None:
    """Mean of outcomes that come in clusters, or the weighted mean of the means of strata.

    Ours: no package gives a score interval over few, uneven clusters (see the module).

    Args:
        values: outcomes, shape (n,), finite and within `bounds`; leave out what has no outcome.
        clusters: one hashable name per outcome (an array of numbers is fastest); None where
            outcomes are independent. A cluster may have outcomes in several strata.
        strata: one name per outcome; the result is the unweighted mean of the strata's means.
        weights: weight per stratum instead, above 0; strata without a weight are left out.
        bounds: smallest and largest possible outcome; (-1, 1) for differences of shares.

    Returns:
        The mean with its uncertainty; None without outcomes.

    Raises:
        ConfigError: lengths that differ, values outside the bounds or not finite, bounds or weights
            in the wrong order.
    """
    outcomes = np.asarray(values, dtype=np.float64)
    numbers = cluster_numbers(clusters, len(outcomes))
    if not bounds[0] < bounds[1]:
        raise ConfigError(f"bounds are (smallest, largest) possible outcome, got {bounds!r}")
    if outcomes.size and not (
        np.isfinite(outcomes).all() and outcomes.min() >= bounds[0] and outcomes.max() <= bounds[1]
    ):
        wrong = outcomes[~((outcomes >= bounds[0]) & (outcomes <= bounds[1]))][0]
        raise ConfigError(
            f"outcomes have to be within {bounds[0]}..{bounds[1]}, got {wrong}; give bounds= that "
            f"hold them"
        )
    places, shares = strata_shares(strata, weights, len(outcomes))
    if not (shares > 0.0).all():
        kept = shares[places] > 0.0
        outcomes, places = outcomes[kept], places[kept]
        numbers = np.asarray(np.unique(numbers[kept], return_inverse=True)[1], dtype=np.int64)
    return _mean_over_clusters(outcomes, numbers, places, shares, bounds) if len(outcomes) else None


def strata_shares(
    strata: Names | None, weights: Mapping[Any, float] | None, n: int
) -> tuple[Integers, Floats]:
    """Number of each item's stratum, and the weights of the strata, which sum to 1."""
    if strata is None:
        return np.zeros(n, dtype=np.int64), np.ones(1)
    if len(strata) != n:
        raise ConfigError(f"one stratum per item is needed, got {len(strata)} for {n} items")
    known = dict.fromkeys(strata, 1.0)
    given = np.array([known[name] if weights is None else weights.get(name, 0.0) for name in known])
    if (given < 0.0).any() or not np.isfinite(given).all():
        raise ConfigError("weights of strata have to be finite and not below 0")
    return cluster_numbers(list(strata), n), given / (given.sum() or 1.0)


def _mean_over_clusters(
    values: Floats,
    clusters: Integers,
    places: Integers,
    shares: Floats,
    bounds: tuple[float, float],
) -> ClusteredMean:
    n_strata, n_clusters = len(shares), int(clusters.max()) + 1
    n = np.bincount(places, minlength=n_strata).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.bincount(places, weights=values, minlength=n_strata) / n
    present = n > 0
    estimate = float(np.sum(shares[present] * means[present]))
    # one entry per cluster and stratum: how far its outcomes add up to lie from the stratum's mean,
    # and how many they are
    if n_strata == 1:  # speed and room: no number of each of a million cells
        of_stratum, of_cluster = np.broadcast_to(np.int64(0), n_clusters), np.arange(n_clusters)
        cell = clusters
    else:
        cells, cell = np.unique(places * n_clusters + clusters, return_inverse=True)
        of_stratum, of_cluster = cells // n_clusters, cells % n_clusters
    residuals = values - (means[0] if n_strata == 1 else means[places])
    deviation, size = (
        np.bincount(cell, weights=weights).astype(np.float64) for weights in (residuals, None)
    )
    weight = np.bincount(
        of_cluster, weights=shares[of_stratum] * size / n[of_stratum], minlength=n_clusters
    )
    effective = 1.0 / float(np.dot(weight, weight))
    del weight
    width = bounds[1] - bounds[0]
    sums = np.bincount(clusters, weights=values - (bounds[0] + bounds[1]) / 2.0)
    sides = int(np.sum(sums > _EQUAL * width)), int(np.sum(sums < -_EQUAL * width))
    del sums
    share = (estimate - bounds[0]) / width
    widest = max(share * (1.0 - share), 0.0) * width**2
    if np.ptp(values) <= _EQUAL * width:
        return ClusteredMean(
            estimate,
            _variance_unseen(share, effective) * width**2,
            len(values),
            n_clusters,
            effective,
            bounds,
            sides=sides,
        )
    n_cells = np.bincount(of_stratum, minlength=n_strata).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        # delete-one-cluster jackknife: what the mean moves by when the cluster is left out
        moved = deviation / (n[of_stratum] - size) * np.sqrt(1.0 - 1.0 / n_cells[of_stratum])
    # one cluster says nothing about the spread of its stratum, so it is taken as wide as it can be
    moved = np.where(n_cells[of_stratum] == 1.0, math.sqrt(widest), moved)
    influence = np.bincount(of_cluster, weights=shares[of_stratum] * moved, minlength=n_clusters)
    # the jackknife sees too little where the few large clusters happen to agree; a common
    # correlation within clusters does not
    squares = np.bincount(places, weights=residuals**2, minlength=n_strata)
    sizes = np.bincount(of_stratum, weights=size**2, minlength=n_strata)
    with np.errstate(invalid="ignore", divide="ignore"):
        design = 1.0 + (sizes / n - 1.0) * correlation_within_strata(
            residuals, deviation, size, of_stratum, n
        )
        alike = np.where(n > 1, squares / (n * (n - 1.0)) * design, 0.0)
        effective_in = np.where(present, n**2 / sizes, 0.0)
    small = 1.0 - 1.0 / n_clusters if n_clusters > 1 else 1.0
    variance = max(float(np.sum(influence**2)), float(np.sum(shares**2 * alike))) * small
    shift = None
    if np.sum(present) > 1:
        each = np.maximum(np.bincount(of_stratum, weights=moved**2, minlength=n_strata), alike)
        more, shift = _near_the_ends(
            (means - bounds[0]) / width, each / width**2, effective_in, shares
        )
        variance, shift = variance + more * width**2, shift * width
    # a fraction of one more cluster, as extreme as can be, for the same reason
    variance = (n_clusters * variance + _EXTREME * widest / effective) / (n_clusters + _EXTREME)
    df = math.inf
    if n_clusters < len(values):
        common = intraclass_correlation(values, clusters)
        apart = (1.0 - common) / len(values) + common / effective
        ends = (2.0 * share - 1.0) ** 2 / 2.0 * width**2 * apart
        variance += _UNSEEN * ends / (n_clusters + _EXTREME)
        unclustered = float(np.sum((shares**2 * squares)[present] / n[present] ** 2))
        df = _degrees(variance, unclustered, len(values), effective)
    return ClusteredMean(
        estimate, variance, len(values), n_clusters, effective, bounds, shift, sides, df
    )


def _degrees(variance: float, unclustered: float, n: int, effective: float) -> float:
    """Satterthwaite's degrees of freedom: outcomes for the part `unclustered`, else clusters.

    The part `unclustered` is as well known as from n independent outcomes. By n less the clusters,
    one repeated prompt in 372 gave it one degree of freedom.
    """
    within = min(1.0, unclustered / variance)
    return 1.0 / ((1.0 - within) ** 2 / max(effective - 1.0, 1.0) + within**2 / max(n - 1, 1))


def _variance_unseen(share: float, effective: float) -> float:
    """Variance of a mean whose outcomes are all equal, at `share` of the way between the bounds.

    Wilson's upper limit for 0 of n bounds the share of other outcomes, each as far away as the
    bounds allow; at most a coin's variance. 0 at a bound, where Wilson's interval needs none.
    """
    if not _EQUAL < share < 1.0 - _EQUAL:
        return 0.0
    others = wilson_interval(0.0, effective).high / t_quantile(math.inf, 0.95)
    return min((others * max(share, 1.0 - share)) ** 2, share * (1.0 - share) / effective)


def _near_the_ends(
    share: Floats, variance: Floats, effective: Floats, weights: Floats
) -> tuple[float, float]:
    """Extra variance of a weighted mean with strata near 0 or 1, and the shift of its centre.

    A stratum without a failure has no variance of its own. Four pseudo-outcomes, half of them
    failures, are shared out by how much a stratum can matter (R. Price and D. Bonett, 2004, share
    them equally).
    """
    share, variance, effective, weights = np.stack([share, variance, effective, weights])[
        :, effective > 0.0
    ]
    matters = weights**2 / effective
    added = 4.0 * matters / np.sum(matters)
    with np.errstate(invalid="ignore", divide="ignore"):
        worth = np.where(variance > _EQUAL, share * (1.0 - share) / variance, effective)
    worth = np.where(worth > 0.0, worth, effective)
    moved = (worth * share + added / 2.0) / (worth + added)
    wider = np.maximum(moved * (1.0 - moved) / (worth + added) - variance, 0.0)
    return float(np.sum(weights**2 * wider)), float(np.sum(weights * (moved - share)))


def correlation_within_strata(
    residuals: Floats, deviation: Floats, size: Floats, of_stratum: Integers, n: Floats
) -> float:
    """Intraclass correlation within strata, 0..1; 0 where no cluster has two outcomes.

    (MSB - MSW) / (MSB + (m - 1) MSW) of the one-way analysis of variance, m the typical cluster
    size. Source: A. Donner, 1986. Ours: scipy and statsmodels have no intraclass correlation.
    """
    n_all, n_cells, n_strata = float(n.sum()), len(size), int(np.sum(n > 0))
    if n_all <= n_cells or n_cells <= n_strata:
        return 0.0
    between = float(np.sum(deviation**2 / size))
    within = (float(np.sum(residuals**2)) - between) / (n_all - n_cells)
    between /= n_cells - n_strata
    typical = (n_all - float(np.sum(size**2 / n[of_stratum]))) / (n_cells - n_strata)
    total = between + (typical - 1.0) * within
    return min(max((between - within) / total, 0.0), 1.0) if total > 0.0 else 0.0


def intraclass_correlation(values: Floats, clusters: Integers) -> float:
    """Intraclass correlation of values, 0..1; `clusters` are numbers from 0 without gaps."""
    residuals = values - math.fsum(values) / len(values)
    sizes = np.bincount(clusters).astype(np.float64)
    nowhere = np.zeros(len(sizes), dtype=np.int64)
    sums = np.bincount(clusters, weights=residuals).astype(np.float64)
    return correlation_within_strata(
        residuals, sums, sizes, nowhere, np.array([float(len(values))])
    )


def from_variance(
    estimate: float, variance: float, n_clusters: int, *, bounds: tuple[float, float] = (0.0, 1.0)
) -> ClusteredMean:
    """Wrap a figure that is no mean with a variance computed elsewhere.

    A variance of 0 is taken as that of clusters that happen to be equal. A figure below the lower
    bound moves that bound.
    """
    bounds = min(bounds[0], estimate), bounds[1]
    width = bounds[1] - bounds[0]
    share = min(max((estimate - bounds[0]) / width, 0.0), 1.0)
    if variance > (_EQUAL * width) ** 2:
        widest = share * (1.0 - share) * width**2 / n_clusters
        variance = (n_clusters * variance + _EXTREME * widest) / (n_clusters + _EXTREME)
    else:
        variance = _variance_unseen(share, n_clusters) * width**2
    return ClusteredMean(estimate, variance, n_clusters, n_clusters, float(n_clusters), bounds)


def from_draws(
    estimate: float, draws: Floats, n_clusters: int, *, bounds: tuple[float, float] = (0.0, 1.0)
) -> ClusteredMean:
    """Wrap a figure that is no mean with the variance of its bootstrap draws, without NaN."""
    usable = draws[~np.isnan(draws)]
    variance = float(np.var(usable)) if len(usable) > 1 else 0.0
    return from_variance(estimate, variance, n_clusters, bounds=bounds)


@dataclass(frozen=True)
class DrawnFigure(ClusteredMean):
    """A figure that is no mean, with posterior draws; its interval is their central range."""

    _draws: Floats = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)

    def interval(self, level: float = 0.95) -> Interval:
        """Interval at this level: within the bounds, around the figure, never of width 0."""
        low, high = draws_interval(self._draws, level) or (self.estimate, self.estimate)
        return Interval(min(low, self.estimate), max(high, self.estimate))

    def p_value(self, null: float) -> float:
        """Two-sided p-value of "the true figure is `null`", at least 2 / (draws + 1)."""
        tail = min(int(np.sum(self._draws <= null)), int(np.sum(self._draws >= null)))
        return min(1.0, 2.0 * (tail + 1) / (len(self._draws) + 1))


def combined(parts: Sequence[tuple[ClusteredMean, float]]) -> ClusteredMean | None:
    """Weighted mean of figures that share no clusters; None without any.

    Weights are above 0 and are scaled to sum to 1.
    """
    if len(parts) < 2:
        return parts[0][0] if parts else None
    total = math.fsum(weight for _, weight in parts)
    figures, shares = [part for part, _ in parts], [weight / total for _, weight in parts]
    squares = [share**2 for share in shares]
    variance = weighted_sum(squares, (part.variance for part in figures))
    shift = weighted_sum(shares, (part.shift or 0.0 for part in figures))
    low, high = (weighted_sum(shares, (part.bounds[end] for part in figures)) for end in (0, 1))
    return ClusteredMean(
        weighted_sum(shares, (part.estimate for part in figures)),
        variance,
        sum(part.n for part in figures),
        sum(part.n_clusters for part in figures),
        1.0
        / math.fsum(k / part.effective_clusters for k, part in zip(squares, figures, strict=True)),
        (low, high),
        # figures that all lie at an end are not known exactly: Wilson's interval
        shift if variance > 0.0 else None,
    )


def weighted_sum(weights: Iterable[float], values: Iterable[float]) -> float:
    """Sum of weight times value, rounded once (`math.sumprod` needs Python 3.12)."""
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True))


# -- bootstrap -------------------------------------------------------------------------------------

N_DRAWS = 2000
_CELLS_AT_ONCE = 4_000_000


def named_generator(seed: int, name: str) -> np.random.Generator:
    """Random generator of `seed` and `name`, so that no stratum shifts another's draws."""
    return np.random.default_rng([seed & 0xFFFFFFFF, crc32(name.encode("utf-8"))])


def mean_draws(
    counts: Mapping[float, int], rng: np.random.Generator, n_draws: int = N_DRAWS
) -> Floats:
    """Bootstrap draws of the mean of outcomes within 0..1.

    Ours: `scipy.stats.bootstrap` has neither counts nor clusters, and gives width 0 for equal
    outcomes. Those are drawn from Jeffreys' posterior Beta(n*v + 1/2, n*(1 - v) + 1/2).

    Args:
        counts: how often each outcome (0..1) occurred.
        rng: source of the draws.
        n_draws: number of draws.

    Returns:
        `n_draws` means.

    Raises:
        ConfigError: if there is no outcome, or the only one lies outside 0..1.
    """
    present = sorted((value, k) for value, k in counts.items() if k > 0)
    n = sum(k for _, k in present)
    if n == 0:
        raise ConfigError("mean_draws needs at least one outcome")
    if len(present) == 1:
        value = present[0][0]
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"mean_draws needs outcomes within 0..1, got {value!r}")
        return rng.beta(n * value + 0.5, n * (1.0 - value) + 0.5, size=n_draws)
    values, repeats = np.array(present, dtype=np.float64).T
    return _weighted_sums(n, repeats / n, values, rng, n_draws) / n


def _weighted_sums(
    n: int, shares: Floats, table: Any, rng: np.random.Generator, n_draws: int
) -> Floats:
    """Sums over resamples of size `n`, in slices of bounded memory."""
    at_once = max(1, _CELLS_AT_ONCE // len(shares))
    return np.concatenate(
        [
            rng.multinomial(n, shares, size=min(at_once, n_draws - start)) @ table
            for start in range(0, n_draws, at_once)
        ]
    )


def cluster_sum_draws(
    contributions: Sequence[Sequence[float]], rng: np.random.Generator, n_draws: int = N_DRAWS
) -> Floats:
    """Bootstrap draws of the sums of per-cluster contributions.

    Args:
        contributions: one row per cluster, shape (n_clusters, n_columns), for example (sum of
            outcomes, number of items).
        rng: source of the draws.
        n_draws: number of draws.

    Returns:
        Column sums of every resample, shape (n_draws, n_columns); a ratio of two columns is a
        cluster-bootstrapped mean.

    Raises:
        ConfigError: without clusters.
    """
    table = np.asarray(contributions, dtype=np.float64)
    if table.ndim != 2 or not len(table):
        raise ConfigError("cluster_sum_draws needs at least one cluster")
    return _weighted_sums(len(table), np.full(len(table), 1.0 / len(table)), table, rng, n_draws)


def _figures(statistic: Callable[[Floats], Any], sums: Floats) -> Floats:
    """Figures of column sums; NaN or infinite where undefined."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(statistic(sums), dtype=np.float64)


def bootstrapped(
    columns: Floats,
    statistic: Callable[[Floats], Any],
    *,
    clusters: Names | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    seed: int = 0,
    n_draws: int = N_DRAWS,
) -> ClusteredMean | None:
    """Any figure computed from column sums, with its spread over a seeded cluster bootstrap.

    Args:
        columns: what each item adds, shape (n_items, n_columns).
        statistic: maps column sums of shape (n_draws, n_columns) to figures of shape (n_draws,),
            NaN where undefined.
        clusters: one name per item; whole clusters are drawn.
        bounds: smallest and largest possible figure.
        seed: seed of the draws.
        n_draws: number of resamples.

    Returns:
        The figure; its `.interval()` is never of width 0 and stays within the bounds. None where
        the figure is undefined.
    """
    numbers = cluster_numbers(clusters, len(columns))
    if not len(numbers):
        return None
    n_clusters = int(numbers.max()) + 1
    table = np.column_stack([np.bincount(numbers, weights=column) for column in columns.T])
    estimate = float(_figures(statistic, table.sum(axis=0)[None])[0])
    if np.isnan(estimate):
        return None
    rng = named_generator(seed, "bootstrap")
    shares: Floats = np.full(n_clusters, 1.0 / n_clusters)
    if table.size <= _CELLS_AT_ONCE:
        # clusters that add the same are drawn together
        table, counts = np.unique(table, axis=0, return_counts=True)
        shares = counts / n_clusters
    draws = _figures(statistic, _weighted_sums(n_clusters, shares, table, rng, n_draws))
    return from_draws(estimate, draws, n_clusters, bounds=bounds)


def drawn_figure(
    columns: Floats,
    statistic: Callable[[Floats], Any],
    unseen: tuple[Floats, Floats],
    *,
    clusters: Names | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    seed: int = 0,
    n_draws: int = N_DRAWS,
) -> DrawnFigure | None:
    """Any figure computed from column sums, with posterior draws that allow for unseen items.

    Each draw weighs the kinds of items anew (Dirichlet) by their counts plus a small prior count of
    each possible kind: for two raters and two labels Jeffreys' half in each cell. A bootstrap of
    items that all agree would always agree. Items in clusters count as the number of independent
    ones that gives the figure's spread over clusters, with Student's quantile.

    Args:
        columns: what each item adds, shape (n_items, n_columns).
        statistic: maps column sums of shape (n_draws, n_columns) to figures of shape (n_draws,),
            NaN where undefined.
        unseen: what an item of each possible kind adds, shape (n_kinds, n_columns), and its prior
            count, shape (n_kinds,).
        clusters: one name per item.
        bounds: smallest and largest possible figure; one below the lower bound moves it.
        seed: seed of the draws.
        n_draws: number of draws.

    Returns:
        The figure; None where it is undefined.
    """
    n = len(columns)
    if not n:
        return None
    kinds, places, counts = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
    places = places.reshape(-1)
    total = columns.sum(axis=0)
    estimate = float(_figures(statistic, total[None])[0])
    if np.isnan(estimate):
        return None
    numbers = cluster_numbers(clusters, n)
    n_clusters = int(numbers.max()) + 1
    worth = 1.0
    if n_clusters < n:
        moved = (estimate - _figures(statistic, total - kinds)) * (n - 1)
        moved = np.nan_to_num(moved)[places]
        worth = _worth(moved - moved.mean(), columns, numbers)
    rng, (rows, prior) = named_generator(seed, "drawn"), unseen
    draws, at_once = [], max(1, _CELLS_AT_ONCE // (len(kinds) + len(rows)))
    for start in range(0, n_draws, at_once):
        size = min(at_once, n_draws - start)
        own, other = (
            rng.standard_gamma(shape, size=(size, len(shape))) for shape in (counts * worth, prior)
        )
        weight = own.sum(axis=1) + other.sum(axis=1)
        sums = (own @ kinds + other @ rows) * (n / weight)[:, None]
        draws.append(_figures(statistic, sums))
    usable = np.concatenate(draws)
    usable = np.sort(usable[~np.isnan(usable)])
    if not len(usable):
        usable = np.array([estimate])
    spread, ends = float(np.var(usable)), (min(bounds[0], estimate), bounds[1])
    return DrawnFigure(
        estimate, spread, n_clusters, n_clusters, float(n_clusters), ends, _draws=usable
    )


def _worth(moved: Floats, columns: Floats, clusters: Integers) -> float:
    """Independent items that one item of a cluster is worth, 0..1: 1 / design effect.

    By what items add to the error of a figure; where none adds anything (all agree), by the
    largest intraclass correlation of the columns.
    """
    n, n_clusters = len(moved), int(clusters.max()) + 1
    if float(np.ptp(moved)) > _EQUAL:
        mean = _mean_over_clusters(
            moved,
            clusters,
            np.zeros(n, dtype=np.int64),
            np.ones(1),
            (float(moved.min()), float(moved.max())),
        )
        worth, df = min(1.0, float(moved @ moved) / n**2 / mean.variance), mean._df
    else:
        alike = max(
            (
                intraclass_correlation(column, clusters)
                for column in columns.T
                if np.ptp(column) > 0.0
            ),
            default=0.0,
        )
        sizes = np.bincount(clusters)
        worth, df = 1.0 / (1.0 + (float(sizes @ sizes) / n - 1.0) * alike), n_clusters - 1.0
    return worth * (t_quantile(math.inf, 0.95) / t_quantile(max(df, 1.0), 0.95)) ** 2


def draws_interval(draws: Floats, level: float = 0.95) -> Interval | None:
    """Central `level` range of bootstrap draws without NaN; None if all are NaN."""
    check_level(level)
    usable = draws[~np.isnan(draws)]
    if not len(usable):
        return None
    low, high = np.quantile(usable, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high))


def __getattr__(name: str) -> Any:
    return earlier(__name__, name)
