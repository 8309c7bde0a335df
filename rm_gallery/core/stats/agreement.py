"""Agreement of raters on the same units: chance-corrected (kappa, alpha) and by rank correlation.

Functions ending in `_estimate` have an `.interval()` over units or clusters of units, which stays
within what is possible and is never of width 0. Chance-corrected measures allow for unseen
disagreement and for rare labels: perfect agreement on five positives of 100 says less than on
fifty.

Ours: scikit-learn, statsmodels and `krippendorff` (Python 3.11 on) give the figures alone; the
intervals need each figure as a function of sums over units. Correlations are scipy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rm_gallery.core.stats import Array, Bools, Floats, Names, Numbers, np
from rm_gallery.core.stats.clustered import (
    ClusteredMean,
    cluster_numbers,
    drawn_figure,
    first_seen,
    from_variance,
    names_where,
)
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    UnitNames = Names | Mapping[Hashable, Hashable]


L = TypeVar("L", bound=Hashable)
Weights = Literal["linear", "quadratic"] | None
Metric = Literal["nominal", "ordinal", "interval"]
Ratings = Sequence[Sequence[Hashable | None]] | Sequence[Mapping[Hashable, Hashable]]


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _check_lengths(first: Sequence[Any] | Array, second: Sequence[Any] | Array) -> None:
    if len(first) != len(second):
        raise ConfigError(
            f"both raters need one entry per unit, got {len(first)} and {len(second)}"
        )


def _check_names(clusters: Names | None, n: int) -> None:
    if clusters is not None and len(clusters) != n:
        raise ConfigError(
            f"one cluster name per unit is needed, got {len(clusters)} names for {n} units"
        )


def complete_pairs(first: Sequence[L | None], second: Sequence[L | None]) -> list[tuple[L, L]]:
    """Units both raters rated; None and NaN count as not rated.

    Raises:
        ConfigError: if the two sequences differ in length.
    """
    return [(a, b) for a, b, _ in complete_units(first, second, None)]


def complete_units(
    first: Sequence[L | None], second: Sequence[L | None], clusters: Names | None
) -> list[tuple[L, L, Hashable]]:
    """Units both raters rated, each with its cluster (its place without `clusters`)."""
    _check_lengths(first, second)
    _check_names(clusters, len(first))
    names: Sequence[Any] = range(len(first)) if clusters is None else clusters  # type: ignore[assignment]  # an array, too
    return [
        (a, b, name)
        for a, b, name in zip(first, second, names, strict=True)
        if a is not None and b is not None and not _missing(a) and not _missing(b)
    ]


def _sort_key(label: object) -> tuple[int, float, str]:
    """Numbers in their order, then everything else by its text, so that mixed labels can be sorted."""
    if isinstance(label, Real):  # numpy's integers are no int
        return 0, float(label), ""
    return 1, 0.0, str(label)


def _indexed(used: Iterable[L], categories: Iterable[L] | None) -> dict[L, int]:
    """Index of every label; ConfigError for one that is not among the categories."""
    index = {
        label: place
        for place, label in enumerate(
            sorted(used, key=_sort_key) if categories is None else categories
        )
    }
    strange = next((label for label in used if label not in index), None)
    if strange is not None:
        raise ConfigError(f"label {strange!r} is not among the categories {list(index)!r}")
    return index


# -- kappa -----------------------------------------------------------------------------------------


def cohen_kappa(
    first: Sequence[L | None],
    second: Sequence[L | None],
    *,
    weights: Weights = None,
    categories: Sequence[L] | None = None,
) -> float | None:
    """Cohen's kappa of two raters, at most 1: (p_o - p_e) / (1 - p_e).

    1 is full agreement, 0 what their label frequencies would give by chance. Weighted: 1 minus the
    observed over the expected disagreement.

    Args:
        first: labels of the first rater, one per unit; None where there is none. Such units are
            left out.
        second: labels of the second rater for the same units.
        weights: growth of disagreement over *ordered* categories; None counts all alike.
        categories: the categories in order; by default the labels used, sorted. Weighted kappa
            needs it where sorting is not their order or a category was not used.

    Returns:
        Kappa, at most 1; None where it is undefined (no common unit, or both raters use one and the
        same label throughout).

    Raises:
        ConfigError: if lengths differ or a label is not among `categories`.

    Source: J. Cohen, 1960 (unweighted) and 1968 (weighted).

    >>> cohen_kappa(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    0.5
    """
    kappa = cohen_kappa_estimate(first, second, weights=weights, categories=categories, n_draws=1)
    return None if kappa is None else kappa.estimate


def cohen_kappa_estimate(
    first: Sequence[L | None],
    second: Sequence[L | None],
    *,
    weights: Weights = None,
    categories: Sequence[L] | None = None,
    clusters: Names | None = None,
    seed: int = 0,
    n_draws: int = 2000,
) -> ClusteredMean | None:
    """Cohen's kappa with its uncertainty; `clusters` names each unit's, else as `cohen_kappa`."""
    units = complete_units(first, second, clusters)
    used = {label for a, b, _ in units for label in (a, b)}
    index = _indexed(used, categories)
    if len(used) < 2:
        return None
    k = len(index)
    steps = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(np.float64)
    wrong = {None: (steps > 0).astype(np.float64), "linear": steps, "quadratic": steps**2}[
        weights
    ].ravel()

    def kappa(sums: Floats) -> Any:
        tables = sums.reshape(-1, k, k)
        expected = (
            tables.sum(axis=2)[:, :, None]
            * tables.sum(axis=1)[:, None, :]
            / sums.sum(axis=1)[:, None, None]
        )
        return 1.0 - (sums @ wrong) / (expected.reshape(-1, k * k) @ wrong)

    cells = [index[a] * k + index[b] for a, b, _ in units]

    table = np.bincount(cells, minlength=k * k).reshape(k, k) / max(len(units), 1)
    prior = np.outer(table.sum(axis=1), table.sum(axis=0))
    prior = prior + prior.T
    np.fill_diagonal(prior, 0.0)
    diagonal = (table.sum(axis=0) + table.sum(axis=1)) > 0.0
    masses = prior / prior.sum() + np.diag(diagonal / diagonal.sum())
    return _from_sums(
        np.eye(k * k)[cells],
        kappa,
        (np.eye(k * k), masses.ravel()),
        units,
        clusters,
        seed,
        n_draws,
    )


def fleiss_kappa(ratings: Ratings) -> float | None:
    """Fleiss' kappa of several raters per unit, at most 1: (p_o - p_e) / (1 - p_e).

    1 is full agreement, 0 what the label frequencies would give by chance.

    Args:
        ratings: as for `krippendorff_alpha`. Every unit that has a rating needs the same number of
            them.

    Returns:
        Kappa, at most 1; None where it is undefined (fewer than two ratings per unit, or one label
        throughout).

    Raises:
        ConfigError: if units have different numbers of ratings; Krippendorff's alpha allows that.

    Source: J. Fleiss, 1971.
    """
    kappa = fleiss_kappa_estimate(ratings, n_draws=1)
    return None if kappa is None else kappa.estimate


def fleiss_kappa_estimate(
    ratings: Ratings, *, clusters: UnitNames | None = None, seed: int = 0, n_draws: int = 2000
) -> ClusteredMean | None:
    """Fleiss' kappa with its uncertainty; `clusters` names each unit's, else as `fleiss_kappa`."""
    units = _by_unit(ratings, clusters)
    sizes = {len(unit) for unit, _ in units}
    if len(sizes) > 1:
        raise ConfigError(
            f"Fleiss' kappa needs the same number of ratings of every unit, found {min(sizes)} to "
            f"{max(sizes)}; "
            "krippendorff_alpha allows gaps"
        )
    counts, ordered = _counts(units)
    if not sizes or min(sizes) < 2 or len(ordered) < 2:
        return None
    raters = float(min(sizes))

    def columns_of(counts: Floats) -> Floats:
        return np.column_stack(
            [(np.sum(counts**2, axis=1) - raters) / (raters * (raters - 1.0)), counts]
        )

    def kappa(sums: Floats) -> Any:
        n = sums[:, 1:].sum(axis=1) / raters
        expected = np.sum((sums[:, 1:] / (n * raters)[:, None]) ** 2, axis=1)
        return (sums[:, 0] / n - expected) / (1.0 - expected)

    more, masses = _unseen_counts(counts)
    return _from_sums(
        columns_of(counts), kappa, (columns_of(more), masses), units, clusters, seed, n_draws
    )


# -- Krippendorff's alpha --------------------------------------------------------------------------


def krippendorff_alpha(
    ratings: Ratings, *, metric: Metric = "nominal", categories: Sequence[Hashable] | None = None
) -> float | None:
    """Krippendorff's alpha of any number of raters, with gaps: 1 - D_o / D_e, at most 1.

    1 is full agreement, 0 chance, below 0 worse than chance.

    Args:
        ratings: one row per rater, shape (n_raters, n_units), with None or NaN where a rater did
            not rate a unit; or one mapping per rater from unit name to label. Units with fewer than
            two ratings do not count.
        metric: "nominal" for labels, "ordinal" for ordered ones, "interval" for numbers whose
            squared distance is the disagreement.
        categories: the order for the ordinal metric; by default the labels used, sorted.

    Returns:
        Alpha, at most 1; None where it is undefined (no unit with two ratings, or one value
        throughout).

    Raises:
        ConfigError: if rows differ in length, a label is not among `categories`, or the interval
            metric meets something that is not a finite number.

    Source: K. Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011.
    """
    alpha = krippendorff_alpha_estimate(ratings, metric=metric, categories=categories, n_draws=1)
    return None if alpha is None else alpha.estimate


def krippendorff_alpha_estimate(
    ratings: Ratings,
    *,
    metric: Metric = "nominal",
    categories: Sequence[Hashable] | None = None,
    clusters: UnitNames | None = None,
    seed: int = 0,
    n_draws: int = 2000,
) -> ClusteredMean | None:
    """Alpha with its uncertainty; `clusters` names each unit's, else as `krippendorff_alpha`."""
    units = [(unit, name) for unit, name in _by_unit(ratings, clusters) if len(unit) > 1]
    if not units:
        return None
    if metric == "interval":
        rated = [[_finite_number(value) for value in unit] for unit, _ in units]
        more, masses = _unseen_ratings(rated)
        columns, alpha = _interval_columns([*rated, *more])
    elif metric in ("nominal", "ordinal"):
        counts, ordered = _counts(units, categories)
        if len(ordered) < 2:
            return None
        unseen, masses = _unseen_counts(counts)
        columns, alpha = _category_columns(np.concatenate([counts, unseen]), metric == "ordinal")
    else:
        raise ConfigError(f"metric is {metric!r}; give nominal, ordinal or interval")
    n = len(units)
    return _from_sums(columns[:n], alpha, (columns[n:], masses), units, clusters, seed, n_draws)


def _unseen_counts(counts: Floats) -> tuple[Floats, Floats]:
    """Possible units and their prior counts: unanimous ones, and ones with a single dissenter.

    Each kind counts one in all; pairs of labels meet in the second as often as by chance.
    """
    raters, shares = (
        max(2.0, float(np.round(np.mean(counts.sum(axis=1))))),
        counts.sum(axis=0) / counts.sum(),
    )
    common = np.sort(np.argsort(-shares, kind="stable")[:_MOST_LABELS])
    one = np.eye(counts.shape[1])[common]
    first, second = np.nonzero(~np.eye(len(common), dtype=bool))
    meeting = shares[common][first] * shares[common][second]
    units = np.concatenate([raters * one, (raters - 1.0) * one[first] + one[second]])
    return units, np.concatenate([np.full(len(common), 1.0 / len(common)), meeting / meeting.sum()])


_MOST_LABELS = 30


def _unseen_ratings(units: Sequence[Sequence[float]]) -> tuple[list[list[float]], Floats]:
    """The same for numbers, with quartiles as labels."""
    values = np.unique(
        np.quantile(
            np.concatenate([np.asarray(unit) for unit in units]), [0.0, 0.25, 0.5, 0.75, 1.0]
        )
    )
    if len(values) < 2:
        return [], np.zeros(0)
    counts, masses = _unseen_counts(np.eye(len(values)))
    return [np.repeat(values, unit.astype(np.int64)).tolist() for unit in counts], masses


Columns = tuple[Floats, Callable[[Floats], Any]]


def _category_columns(counts: Floats, ordinal: bool) -> Columns:
    """Each unit's part of the coincidence matrix, and alpha from their sum."""
    k = counts.shape[1]
    sizes = counts.sum(axis=1)

    def nominal(sums: Floats) -> Any:
        unlike, totals = sums[:, 0], sums[:, 1:]
        n = totals.sum(axis=1)
        return 1.0 - unlike * (n - 1.0) / (n**2 - np.sum(totals**2, axis=1))

    if not ordinal:
        unlike = (sizes**2 - np.sum(counts**2, axis=1)) / (sizes - 1.0)
        return np.column_stack([unlike, counts]), nominal

    coincidences = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(k)

    def in_order(sums: Floats) -> Any:
        observed = sums.reshape(-1, k, k)
        totals = observed.sum(axis=2)
        # squared number of values between two categories, half of those at either end
        middle = np.cumsum(totals, axis=1) - totals / 2.0
        far = (middle[:, :, None] - middle[:, None, :]) ** 2
        by_chance = np.sum(totals[:, :, None] * totals[:, None, :] * far, axis=(1, 2)) / (
            totals.sum(axis=1) - 1.0
        )
        return 1.0 - np.sum(observed * far, axis=(1, 2)) / by_chance

    return (coincidences / (sizes - 1.0)[:, None, None]).reshape(len(counts), k * k), in_order


def _interval_columns(units: Sequence[Sequence[float]]) -> Columns:
    everything = np.concatenate([np.asarray(unit, dtype=np.float64) for unit in units])
    # deviations from the middle, on a scale of their own: squares of large numbers lose digits or
    # overflow
    middle, scale = (
        float(np.mean(everything)),
        float(np.max(np.abs(everything - np.mean(everything)))) or 1.0,
    )
    rows = []
    for unit in units:
        x = (np.asarray(unit, dtype=np.float64) - middle) / scale
        rows.append(
            (
                2.0 * len(x) * np.sum((x - x.mean()) ** 2) / (len(x) - 1),
                len(x),
                x.sum(),
                np.sum(x**2),
            )
        )

    def alpha(sums: Floats) -> Any:
        observed, n, total, squares = sums.T
        spread = np.where(
            squares * n - total**2 > 1e-12 * squares * n, squares * n - total**2, np.nan
        )
        return 1.0 - observed * (n - 1.0) / (2.0 * spread)

    return np.array(rows, dtype=np.float64), alpha


def _by_unit(
    ratings: Ratings, clusters: UnitNames | None = None
) -> list[tuple[list[Hashable], Hashable]]:
    """The ratings of each unit that has any, with the cluster it belongs to."""
    gathered: dict[Hashable, list[Hashable]] = {}
    lengths: set[int] = set()
    for row in ratings:
        if isinstance(row, Mapping):
            entries: list[tuple[Hashable, Hashable | None]] = list(row.items())
        else:
            entries = list(enumerate(row))
            lengths.add(len(entries))
        for unit, value in entries:
            if not _missing(value):
                gathered.setdefault(unit, []).append(value)
    if len(lengths) > 1:
        raise ConfigError(
            f"every rater needs one entry per unit, got rows of {sorted(lengths)} entries"
        )
    if clusters is None:
        return [(unit, place) for place, unit in enumerate(gathered.values())]
    if isinstance(clusters, Mapping):
        return [(unit, clusters[name]) for name, unit in gathered.items()]
    if not lengths or len(clusters) != next(iter(lengths)):
        raise ConfigError(
            f"one cluster name per unit is needed, got {len(clusters)}; for named units give a "
            f"mapping"
        )
    names = list(clusters)
    return [(unit, names[name]) for name, unit in gathered.items() if isinstance(name, int)]


def _counts(
    units: Sequence[tuple[Sequence[Hashable], Hashable]],
    categories: Sequence[Hashable] | None = None,
) -> tuple[Floats, list[Hashable]]:
    """How often each unit got each label, shape (n_units, n_labels), and the labels in order."""
    used = {label for unit, _ in units for label in unit}
    ordered = [label for label in _indexed(used, categories) if label in used]
    index = _indexed(used, ordered)
    counts = np.zeros((len(units), len(ordered)))
    for row, (unit, _) in enumerate(units):
        for label in unit:
            counts[row, index[label]] += 1.0
    return counts, ordered


def _finite_number(value: object) -> float:
    if isinstance(value, Real) and math.isfinite(value):
        return float(value)
    raise ConfigError(f"the interval metric needs finite numbers, got {value!r}")


def _from_sums(
    columns: Any,
    statistic: Any,
    unseen: tuple[Floats, Floats],
    units: Sequence[tuple[Any, ...]],
    clusters: UnitNames | None,
    seed: int,
    n_draws: int,
) -> ClusteredMean | None:
    names = None if clusters is None else [unit[-1] for unit in units]
    return drawn_figure(
        columns, statistic, unseen, clusters=names, bounds=(-1.0, 1.0), seed=seed, n_draws=n_draws
    )


# -- order -----------------------------------------------------------------------------------------


def spearman(first: Numbers, second: Numbers) -> float | None:
    """Spearman's rank correlation, -1..1; 1 means the same order, ties share their mean rank.

    Positions with None or NaN are left out. None where it is undefined: fewer than two common
    positions, or one side constant.

    Raises:
        ConfigError: if the sequences differ in length.

    >>> round(spearman([1, 2, 3, 4], [1, 3, 2, 4]), 3)
    0.8
    """
    return _rank_correlation(_of_ranks, first, second)


def _of_ranks(a: Floats, b: Floats) -> float:
    """The correlation of ranks, as scipy's `spearmanr` has it, in a third of its memory."""
    u, v = _centred_ranks(a), _centred_ranks(b)
    scale = 1.0 / (len(a) - 1)
    across, of_u, of_v = (float(np.dot(x, y)) * scale for x, y in ((u, v), (u, u), (v, v)))
    return across / math.sqrt(of_v) / math.sqrt(of_u)


def _centred_ranks(values: Floats) -> Floats:
    """Ranks less their mean; equal values share theirs."""
    ordered = np.sort(values)
    twice = np.searchsorted(ordered, values, "left")
    twice += np.searchsorted(ordered, values, "right")
    twice -= len(values)
    return twice / 2.0


def spearman_filled(scores: Floats, other: Floats, *, best: bool = False) -> Floats:
    """Scores with missing ones (NaN) filled in so that Spearman's correlation is lowest or highest.

    Ours: worst-case bounds of a correlation are in no package. The sum of products of ranks is at
    its limit but for ties: a row of rank r in `other` goes below just those scores whose rows have
    ranks that on average are higher than r.

    Args:
        scores: shape (n,), NaN where there is none.
        other: shape (n,), without gaps.
        best: the highest correlation instead.
    """
    from scipy.stats import rankdata

    missing = np.isnan(scores)
    turn = 1.0 if best else -1.0
    ranks = turn * (rankdata(other) - (len(other) + 1) / 2)
    kinds, places = np.unique(scores[~missing], return_inverse=True)
    below = np.concatenate(
        [[0.0], np.cumsum(np.bincount(places, weights=ranks[~missing], minlength=len(kinds)))]
    )
    n_below = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=len(kinds)))])
    filled = np.empty(len(scores))
    filled[~missing] = places
    for rank in np.unique(ranks[missing]):
        gap = int(np.argmax(n_below * rank - below))
        # several in one gap keep an order of their own, too
        filled[missing & (ranks == rank)] = gap - 0.5 + rank / (4.0 * len(other))
    return filled


def kendall_tau_b(first: Numbers, second: Numbers) -> float | None:
    """Kendall's tau-b, -1..1, corrected for ties; 1 means the same order. Else as `spearman`.

    Source: M. Kendall, "The treatment of ties in ranking problems", 1945.
    """
    from scipy.stats import kendalltau

    return _rank_correlation(lambda a, b: float(kendalltau(a, b).statistic), first, second)


def _rank_correlation(
    rule: Callable[[Floats, Floats], float], first: Numbers, second: Numbers
) -> float | None:
    a, b, _ = _rated(first, second)
    if len(a) < 2 or (a == a[0]).all() or (b == b[0]).all():
        return None
    return max(-1.0, min(1.0, rule(a, b)))


def _rated(first: Numbers, second: Numbers) -> tuple[Floats, Floats, Bools]:
    """The numbers of both sides where neither is None or NaN, and where that is."""
    _check_lengths(first, second)
    a, b = (np.asarray(side, dtype=np.float64) for side in (first, second))  # None becomes NaN
    kept = ~(np.isnan(a) | np.isnan(b))
    return (a, b, kept) if kept.all() else (a[kept], b[kept], kept)


_AT_MOST = 1500


def spearman_estimate(
    first: Numbers, second: Numbers, *, clusters: Names | None = None
) -> ClusteredMean | None:
    """Spearman's correlation with its uncertainty over clusters, by the infinitesimal jackknife."""
    return _order_estimate(spearman, _spearman_influence, first, second, clusters)


def kendall_tau_b_estimate(
    first: Numbers, second: Numbers, *, clusters: Names | None = None
) -> ClusteredMean | None:
    """Kendall's tau-b with its uncertainty over clusters, by the infinitesimal jackknife."""
    return _order_estimate(kendall_tau_b, _kendall_influence, first, second, clusters)


def _order_estimate(
    statistic: Callable[[Numbers, Numbers], float | None],
    influence: Callable[[Floats, Floats], Floats],
    first: Numbers,
    second: Numbers,
    clusters: Names | None,
) -> ClusteredMean | None:
    x, y, kept = _rated(first, second)
    _check_names(clusters, len(kept))
    estimate = statistic(x, y)
    if estimate is None:
        return None
    n = len(x)
    if isinstance(clusters, np.ndarray) and clusters.dtype != object:
        numbers = first_seen(clusters[kept])
    else:
        numbers = cluster_numbers(names_where(clusters, kept), n)
    n_clusters = int(numbers.max()) + 1
    # all pairs of units are looked at; beyond some thousands, those of a seeded part of the
    # clusters say the same
    drawn = np.random.default_rng(0).permutation(n_clusters)[: max(2, _AT_MOST * n_clusters // n)]
    if n > _AT_MOST:
        chosen = np.isin(numbers, drawn)
        x, y, numbers = x[chosen], y[chosen], numbers[chosen]
    moved = np.bincount(numbers, weights=influence(x, y), minlength=n_clusters)
    used = len(np.unique(numbers))
    variance = float(np.sum(moved**2)) / len(x) ** 2 * used / max(used - 1, 1) * len(x) / n
    return from_variance(estimate, variance, n_clusters, bounds=(-1.0, 1.0))


def _spearman_influence(x: Floats, y: Floats) -> Floats:
    """Influence of each unit on Spearman's correlation: its own product, and its shift of ranks."""
    from scipy.stats import rankdata

    n = len(x)
    u, v = ((rankdata(side) - 0.5) / n - 0.5 for side in (x, y))
    above_x, above_y = (np.subtract.outer(side, side) for side in (x, y))
    for above in (above_x, above_y):
        np.sign(above, out=above)
        above /= 2.0

    def product(a: Floats, b: Floats, up: Any, along: Any) -> Any:
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


def _kendall_influence(x: Floats, y: Floats) -> Floats:
    """Influence of each unit on tau-b through the pairs it is part of."""
    sx, sy = (np.sign(np.subtract.outer(side, side)) for side in (x, y))
    rows = [np.mean(part, axis=1) for part in (sx * sy, sx**2, sy**2)]
    both, only_x, only_y = (float(np.mean(row)) for row in rows)
    root = math.sqrt(only_x * only_y)
    moved = [2.0 * (row - np.mean(row)) for row in rows]
    return np.asarray(moved[0] / root - both / root * (moved[1] / only_x + moved[2] / only_y) / 2.0)
