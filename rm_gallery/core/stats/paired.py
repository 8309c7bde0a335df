"""Is one judge better than another on the same samples? Paired tests, which see far smaller differences than two intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from rm_gallery.core.stats.agreement import complete_pairs
from rm_gallery.core.stats.clustered import ClusteredMean, cluster_numbers, clustered_mean, from_draws
from rm_gallery.core.stats.consistency import sign_test
from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rm_gallery.core.stats.clustered import Names

    Columns = NDArray[np.float64]
    Statistic = Callable[[Columns], Columns]


class McNemar(NamedTuple):
    """Result of McNemar's test.

    Attributes:
        only_first: samples the first is right on and the second wrong.
        only_second: samples the second is right on and the first wrong.
        p_value: two-sided mid-p-value of "both are equally often right"; on average it is right, and never far too small.
        p_exact: the exact binomial p-value, which is never too small and often too large.
        n: samples compared.
        n_left_out: samples without an outcome on one side or both.
    """

    only_first: int
    only_second: int
    p_value: float
    p_exact: float
    n: int
    n_left_out: int


class PairedDifference(NamedTuple):
    """Mean of first minus second over the samples both have.

    Attributes:
        difference: above 0 the first is better; None where no sample has both outcomes.
        interval: of the difference; it leaves 0 out exactly where `p_value` is below 1 - level.
        p_value: two-sided, of "there is no difference".
        needed: about how many samples like these would show a difference of this size in four of five comparisons;
            None without a difference.
        n: samples compared.
        n_clusters: clusters they come from.
        n_left_out: samples without an outcome on one side or both.
    """

    difference: float | None
    interval: Interval | None
    p_value: float | None
    needed: int | None
    n: int
    n_clusters: int
    n_left_out: int


def mcnemar(first: Sequence[bool | None], second: Sequence[bool | None]) -> McNemar:
    """Test whether two judges are equally often right on the same independent samples.

    Args:
        first: per sample whether the first judge is right; None where it gave no outcome.
        second: the same for the second judge, in the same order.

    Raises:
        ConfigError: if the sequences differ in length.

    Source: Q. McNemar, 1947; mid-p: M. Fagerland, S. Lydersen and P. Laake, 2013.
    """
    pairs = complete_pairs(first, second)
    only_first = sum(1 for a, b in pairs if a and not b)
    only_second = sum(1 for a, b in pairs if b and not a)
    mid_p, exact = (sign_test(only_first, only_second, mid=mid) for mid in (True, False))
    return McNemar(only_first, only_second, mid_p, exact, len(pairs), len(first) - len(pairs))


def paired_mean(
    first: Sequence[float | None],
    second: Sequence[float | None],
    *,
    clusters: Names | None = None,
    strata: Names | None = None,
    weights: Mapping[Any, float] | None = None,
) -> ClusteredMean | None:
    """Give the mean of first minus second with what its uncertainty rests on; None where no sample has both.

    Args:
        first: outcome per sample, 0..1, for example 1.0 right, 0.0 wrong; None or NaN where there is none.
        second: the same for the other judge.
        clusters: one name per sample (several samples of one prompt).
        strata: one name per sample where the figure is a mean of parts, each weighing the same or as `weights` say.
        weights: weight per stratum.

    Raises:
        ConfigError: if lengths differ or an outcome is not within 0..1.
    """
    import numpy as np

    if len(first) != len(second):
        raise ConfigError(f"both judges need one outcome per sample, got {len(first)} and {len(second)}")
    for names, what in ((clusters, "cluster"), (strata, "stratum")):
        if names is not None and len(names) != len(first):
            raise ConfigError(f"one {what} name per sample is needed, got {len(names)} names for {len(first)} samples")
    a, b = (np.array([math.nan if x is None else float(x) for x in given]) for given in (first, second))
    kept = ~(np.isnan(a) | np.isnan(b))
    places: list[int] = np.flatnonzero(kept).tolist()
    return clustered_mean(
        a[kept] - b[kept],
        None if clusters is None else [clusters[place] for place in places],
        strata=None if strata is None else [strata[place] for place in places],
        weights=weights,
        bounds=(-1.0, 1.0),
    )


def paired_difference(
    first: Sequence[float | None],
    second: Sequence[float | None],
    *,
    clusters: Names | None = None,
    strata: Names | None = None,
    weights: Mapping[Any, float] | None = None,
    level: float = 0.95,
) -> PairedDifference:
    """Give the mean difference of two outcomes on the same samples, with interval and p-value that agree.

    Arguments and errors as in `paired_mean`; `level` is that of the interval.
    """
    check_level(level)
    found = paired_mean(first, second, clusters=clusters, strata=strata, weights=weights)
    if found is None:
        return PairedDifference(None, None, None, None, 0, 0, len(first))
    return described(found, len(first) - found.n, level)


def described(found: ClusteredMean, n_left_out: int = 0, level: float = 0.95) -> PairedDifference:
    """What a mean difference says: its interval, its p-value, and how many samples a difference like it needs."""
    difference, p_value = found.estimate, found.p_value(0.0)
    # per sample, clusters included: the mean square is the variance and the square of the mean
    square = found.variance * found.n + difference**2
    needed = None if difference == 0.0 else pairs_needed(difference, square)
    return PairedDifference(difference, found.interval(level), p_value, needed, found.n, found.n_clusters, n_left_out)


def pairs_needed(difference: float, disagreement: float, *, power: float = 0.8, level: float = 0.95) -> int:
    """Give the number of samples both judges have to score for a difference to be seen.

    Args:
        difference: true mean of first minus second, not 0.
        disagreement: mean square of first minus second: for right or wrong, the share of samples on which they differ.
        power: probability to see it.
        level: confidence level of the test.

    Raises:
        ConfigError: for a difference of 0, one above what the disagreement allows, or a power or level that is none.

    Source: R. Connor, "Sample size for testing differences in proportions for the paired-sample design", 1987.
    """
    check_level(level)
    if not 0.0 < power < 1.0:
        raise ConfigError(f"power lies strictly between 0 and 1, for example 0.8; got {power!r}")
    if difference == 0.0 or not difference**2 <= disagreement + 1e-12:
        raise ConfigError(f"a difference of {difference!r} cannot come from judges that disagree in {disagreement!r}")
    normal = NormalDist()
    null, real = math.sqrt(disagreement), math.sqrt(max(disagreement - difference**2, 0.0))
    reach = normal.inv_cdf((1.0 + level) / 2.0) * null + normal.inv_cdf(power) * real
    return math.ceil((reach / difference) ** 2 - 1e-9)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests so that one false alarm among all is as rare as the level says.

    Gives adjusted p-values, 0..1, in the order given; compare each with the level. Source: S. Holm, 1979.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    found, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        found[place] = highest
    return found


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests so that the expected share of false alarms among all alarms is the level.

    Gives adjusted p-values, 0..1, in the order given. Source: Y. Benjamini and Y. Hochberg, 1995.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place], reverse=True)
    found, lowest = [0.0] * len(p_values), 1.0
    for rank, place in enumerate(order):
        lowest = min(lowest, p_values[place] * len(p_values) / (len(p_values) - rank))
        found[place] = lowest
    return found


N_DRAWS = 2000
_CELLS_AT_ONCE = 4_000_000


def named_generator(seed: int, name: str) -> np.random.Generator:
    """Make a random generator that depends on `seed` and `name` only, so that one stratum never shifts another's draws."""
    import numpy as np

    return np.random.default_rng([seed & 0xFFFFFFFF, crc32(name.encode("utf-8"))])


def mean_draws(counts: Mapping[float, int], rng: np.random.Generator, n_draws: int = N_DRAWS) -> NDArray[np.float64]:
    """Draw the bootstrap distribution of the mean of outcomes within 0..1.

    Where every outcome is the same, resampling would claim to know the mean exactly; the mean is then drawn from the
    Jeffreys posterior of a proportion instead, Beta(n*v + 1/2, n*(1 - v) + 1/2).

    Args:
        counts: how often each outcome (0..1) occurred.
        rng: source of the draws.
        n_draws: number of draws.

    Returns:
        `n_draws` means.

    Raises:
        ConfigError: if there is no outcome, or the only one lies outside 0..1.
    """
    import numpy as np

    present = sorted((value, k) for value, k in counts.items() if k > 0)
    n = sum(k for _, k in present)
    if n == 0:
        raise ConfigError("mean_draws needs at least one outcome")
    if len(present) == 1:
        value = present[0][0]
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"mean_draws needs outcomes within 0..1, got {value!r}")
        return rng.beta(n * value + 0.5, n * (1.0 - value) + 0.5, size=n_draws)
    values = np.array([value for value, _ in present], dtype=np.float64)
    shares = np.array([k for _, k in present], dtype=np.float64) / n
    return _weighted_sums(n, shares, values, rng, n_draws) / n


def _weighted_sums(
    n: int, shares: NDArray[np.float64], table: Any, rng: np.random.Generator, n_draws: int
) -> NDArray[np.float64]:
    """Sums over resamples of size `n`, in slices: the weights of all draws at once would need n_draws * len(table) cells."""
    import numpy as np

    at_once = max(1, _CELLS_AT_ONCE // len(shares))
    return np.concatenate(
        [rng.multinomial(n, shares, size=min(at_once, n_draws - start)) @ table for start in range(0, n_draws, at_once)]
    )


def cluster_sum_draws(
    contributions: Sequence[Sequence[float]], rng: np.random.Generator, n_draws: int = N_DRAWS
) -> NDArray[np.float64]:
    """Draw bootstrap sums of per-cluster contributions, whole clusters at a time.

    Args:
        contributions: one row per cluster, shape (n_clusters, n_columns), for example (sum of outcomes, number of items).
        rng: source of the draws.
        n_draws: number of draws.

    Returns:
        Column sums of every resample, shape (n_draws, n_columns); a ratio of two columns is a cluster-bootstrapped mean.

    Raises:
        ConfigError: without clusters.
    """
    import numpy as np

    table = np.asarray(contributions, dtype=np.float64)
    if table.ndim != 2 or not len(table):
        raise ConfigError("cluster_sum_draws needs at least one cluster")
    return _weighted_sums(len(table), np.full(len(table), 1.0 / len(table)), table, rng, n_draws)


def bootstrapped(
    columns: Columns,
    statistic: Statistic,
    *,
    clusters: Names | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    seed: int = 0,
    n_draws: int = N_DRAWS,
) -> ClusteredMean | None:
    """Give any figure that can be computed from column sums, with its spread over a seeded cluster bootstrap.

    Args:
        columns: what each item adds, shape (n_items, n_columns), dense or a scipy sparse array.
        statistic: maps column sums of shape (n_draws, n_columns) to figures of shape (n_draws,), NaN where undefined.
        clusters: one name per item; whole clusters are drawn.
        bounds: smallest and largest possible figure.
        seed: seed of the draws.
        n_draws: number of resamples.

    Returns:
        The figure; its `.interval()` is never of width 0 and stays within the bounds. None where the figure is undefined.
    """
    import numpy as np
    from scipy import sparse

    numbers = cluster_numbers(clusters, columns.shape[0])
    if not len(numbers):
        return None
    n_clusters = int(numbers.max()) + 1
    table: Any = columns
    if clusters is not None:
        members = sparse.csr_array((np.ones(len(numbers)), (numbers, np.arange(len(numbers)))))
        table = members @ columns
    estimate = float(statistic(np.atleast_2d(np.asarray(table.sum(axis=0))))[0])
    if np.isnan(estimate):
        return None
    rng, shares = named_generator(seed, "bootstrap"), np.full(n_clusters, 1.0 / n_clusters)
    if table.shape[0] * table.shape[1] <= _CELLS_AT_ONCE:
        # clusters that add the same are drawn together: their number is as good as their names
        dense = table.toarray() if sparse.issparse(table) else table
        table, counts = np.unique(dense, axis=0, return_counts=True)
        shares = counts / n_clusters
    draws = statistic(_weighted_sums(n_clusters, shares, table, rng, n_draws))
    return from_draws(estimate, draws, n_clusters, bounds=bounds)


def draws_interval(draws: NDArray[np.float64], level: float = 0.95) -> Interval | None:
    """Give the central `level` range of bootstrap draws; draws that are NaN are left out, and None is left if all are."""
    import numpy as np

    check_level(level)
    usable = draws[~np.isnan(draws)]
    if not len(usable):
        return None
    low, high = np.quantile(usable, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high))
