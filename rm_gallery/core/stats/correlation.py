"""Rank correlations with their uncertainty over units, or over clusters of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rm_gallery.core.stats.agreement import complete_units, kendall_tau_b, spearman
from rm_gallery.core.stats.clustered import cluster_numbers, from_variance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rm_gallery.core.stats.clustered import ClusteredMean, Names

_AT_MOST = 1500


def spearman_estimate(
    first: Sequence[float | None], second: Sequence[float | None], *, clusters: Names | None = None
) -> ClusteredMean | None:
    """Give Spearman's correlation with its uncertainty over units or clusters of them, by the infinitesimal jackknife."""
    return _order_estimate(spearman, _spearman_influence, first, second, clusters)


def kendall_tau_b_estimate(
    first: Sequence[float | None], second: Sequence[float | None], *, clusters: Names | None = None
) -> ClusteredMean | None:
    """Give Kendall's tau-b with its uncertainty over units or clusters of them, by the infinitesimal jackknife."""
    return _order_estimate(kendall_tau_b, _kendall_influence, first, second, clusters)


def _order_estimate(
    statistic: Callable[[list[float | None], list[float | None]], float | None],
    influence: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
    first: Sequence[float | None],
    second: Sequence[float | None],
    clusters: Names | None,
) -> ClusteredMean | None:
    import numpy as np

    units = complete_units(first, second, clusters)
    estimate = statistic([a for a, _, _ in units], [b for _, b, _ in units])
    if estimate is None:
        return None
    numbers = cluster_numbers([name for _, _, name in units], len(units))
    n_clusters = int(numbers.max()) + 1
    # all pairs of units are looked at; beyond some thousands, those of a seeded part of the clusters say the same
    drawn = np.random.default_rng(0).permutation(n_clusters)[: max(2, _AT_MOST * n_clusters // len(units))]
    kept = np.isin(numbers, drawn) if len(units) > _AT_MOST else np.ones(len(units), dtype=bool)
    x, y = (np.array([unit[side] for unit in units], dtype=np.float64)[kept] for side in (0, 1))
    moved = np.bincount(numbers[kept], weights=influence(x, y), minlength=n_clusters)
    used = len(np.unique(numbers[kept]))
    variance = float(np.sum(moved**2)) / len(x) ** 2 * used / max(used - 1, 1) * len(x) / len(units)
    return from_variance(estimate, variance, n_clusters, bounds=(-1.0, 1.0))


def _spearman_influence(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each unit does to the correlation of mid-ranks: as a point, and by shifting the ranks of the others."""
    import numpy as np
    from scipy.stats import rankdata

    n = len(x)
    u, v = ((rankdata(side) - 0.5) / n - 0.5 for side in (x, y))
    above_x, above_y = (np.sign(np.subtract.outer(side, side)) / 2.0 for side in (x, y))

    def product(a: NDArray[np.float64], b: NDArray[np.float64], up: Any, along: Any) -> Any:
        # E[(F - 1/2)(G - 1/2)]: the unit's own product, and what it adds to F and G of all others
        own = a * b - np.mean(a * b)
        shifted = (up.T @ b + along.T @ a) / n
        return own + shifted - np.mean(shifted)

    xy, xx, yy = float(np.mean(u * v)), float(np.mean(u * u)), float(np.mean(v * v))
    of_xy, of_xx, of_yy = (
        product(u, v, above_x, above_y),
        product(u, u, above_x, above_x),
        product(v, v, above_y, above_y),
    )
    root = math.sqrt(xx * yy)
    return np.asarray(of_xy / root - xy / root * (of_xx / xx + of_yy / yy) / 2.0)


def _kendall_influence(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each unit does to tau-b through the pairs it is part of."""
    import numpy as np

    n = len(x)
    sx, sy = (np.sign(np.subtract.outer(side, side)) for side in (x, y))
    rows = [np.sum(part, axis=1) / (n - 1.0) for part in (sx * sy, sx**2, sy**2)]
    both, only_x, only_y = (float(np.mean(row)) for row in rows)
    root = math.sqrt(only_x * only_y)
    moved = [2.0 * (row - np.mean(row)) for row in rows]
    return np.asarray(moved[0] / root - both / root * (moved[1] / only_x + moved[2] / only_y) / 2.0)
