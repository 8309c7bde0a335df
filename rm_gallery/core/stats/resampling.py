"""Cluster bootstrap in bulk: a resample is a row of counts, so that memory does not grow with the number of draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from rm_gallery.core.stats.clustered import ClusteredMean, cluster_numbers, from_draws
from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rm_gallery.core.stats.clustered import Names

    Columns = NDArray[np.float64]
    Statistic = Callable[[Columns], Columns]

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
