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

from rm_gallery.core.stats import Bools, Floats, Names, Numbers, np
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


def _check_lengths(first: Names, second: Names, clusters: Names | None = None) -> None:
    n = len(first)
    if n != len(second):
        raise ConfigError(f"both raters need one entry per unit, got {n} and {len(second)}")
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
    _check_lengths(first, second, clusters)
    names: Any = range(len(first)) if clusters is None else clusters
    return [
        (a, b, name)  # type: ignore[misc]  # neither is None
        for a, b, name in zip(first, second, names, strict=True)
        if not _missing(a) and not _missing(b)
    ]


def _sort_key(label: object) -> tuple[int, float, str]:
    """Numbers in their order, then everything else by its text, so that mixed labels can be sorted."""
    if isinstance(label, Real):  # numpy's integers are no int
        return 0, float(label), ""
    return 1, 0.0, str(label)


def _indexed(used: Iterable[L], categories: Iterable[L] | None) -> dict[L, int]:
    """Index of every label; ConfigError for one that is not among the categories."""
    ordered = sorted(used, key=_sort_key) if categories is None else categories
    index = {label: place for place, label in enumerate(ordered)}
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
    kinds = np.eye(k * k)[[*cells, *range(k * k)]]
    return _from_sums(kinds, kappa, masses.ravel(), units, clusters, seed, n_draws)


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
    counts = _counts(units)
    if not sizes or min(sizes) < 2 or counts.shape[1] < 2:
        return None
    more, masses = _unseen_counts(counts)
    # chance by all label pairs, a rating with itself included: alpha's leaves those out
    columns, kappa = _label_columns(np.concatenate([counts, more]), itself=0.0, turn=-1.0)
    return _from_sums(columns, kappa, masses, units, clusters, seed, n_draws)


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
        rated = [np.array([_finite_number(value) for value in unit]) for unit, _ in units]
        more, masses = _unseen_ratings(np.concatenate(rated))
        columns, alpha = _interval_columns([*rated, *more])
    elif metric in ("nominal", "ordinal"):
        counts = _counts(units, categories)
        if counts.shape[1] < 2:
            return None
        unseen, masses = _unseen_counts(counts)
        of_kind = _label_columns if metric == "nominal" else _ordered_columns
        columns, alpha = of_kind(np.concatenate([counts, unseen]))
    else:
        raise ConfigError(f"metric is {metric!r}; give nominal, ordinal or interval")
    return _from_sums(columns, alpha, masses, units, clusters, seed, n_draws)


def _unseen_counts(counts: Floats) -> tuple[Floats, Floats]:
    """Possible units and their prior counts: unanimous ones, and ones with a single dissenter.

    Each kind counts one in all; pairs of labels meet in the second as often as by chance.
    """
    raters = max(2.0, float(np.round(np.mean(counts.sum(axis=1)))))
    shares = counts.sum(axis=0) / counts.sum()
    common = np.sort(np.argsort(-shares, kind="stable")[:_MOST_LABELS])
    one = np.eye(counts.shape[1])[common]
    first, second = np.nonzero(~np.eye(len(common), dtype=bool))
    meeting = shares[common][first] * shares[common][second]
    units = np.concatenate([raters * one, (raters - 1.0) * one[first] + one[second]])
    return units, np.concatenate([np.full(len(common), 1.0 / len(common)), meeting / meeting.sum()])


_MOST_LABELS = 30


def _unseen_ratings(ratings: Floats) -> tuple[list[Floats], Floats]:
    """The same for numbers, with quartiles as labels."""
    values = np.unique(np.quantile(ratings, [0.0, 0.25, 0.5, 0.75, 1.0]))
    if len(values) < 2:
        return [], np.zeros(0)
    counts, masses = _unseen_counts(np.eye(len(values)))
    return [np.repeat(values, unit.astype(np.int64)) for unit in counts], masses


Columns = tuple[Floats, Callable[[Floats], Any]]


def _label_columns(counts: Floats, itself: float = 1.0, turn: float = 1.0) -> Columns:
    """Each unit's unlike pairs and labels, and the agreement beyond chance from their sums.

    Kinds of units are drawn in the order of their columns: unlike pairs rise, or fall by `turn`.
    """
    sizes = counts.sum(axis=1)

    def alpha(sums: Floats) -> Any:
        unlike, totals = sums[:, 0], sums[:, 1:]
        n = totals.sum(axis=1)
        return 1.0 - turn * unlike * (n - itself) / (n**2 - np.sum(totals**2, axis=1))

    unlike = turn * (sizes**2 - np.sum(counts**2, axis=1)) / (sizes - 1.0)
    return np.column_stack([unlike, counts]), alpha


def _ordered_columns(counts: Floats) -> Columns:
    """Each unit's part of the coincidence matrix, and alpha from their sum."""
    k = counts.shape[1]
    coincidences = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(k)

    def alpha(sums: Floats) -> Any:
        observed = sums.reshape(-1, k, k)
        totals = observed.sum(axis=2)
        # squared number of values between two categories, half of those at either end
        middle = np.cumsum(totals, axis=1) - totals / 2.0
        far = (middle[:, :, None] - middle[:, None, :]) ** 2
        by_chance = np.sum(totals[:, :, None] * totals[:, None, :] * far, axis=(1, 2)) / (
            totals.sum(axis=1) - 1.0
        )
        return 1.0 - np.sum(observed * far, axis=(1, 2)) / by_chance

    shares = coincidences.reshape(-1, k * k) / (counts.sum(axis=1, keepdims=True) - 1.0)
    return shares, alpha


def _interval_columns(units: Sequence[Floats]) -> Columns:
    # deviations from the middle, on a scale of their own: squares of large numbers lose digits or
    # overflow
    everything = np.concatenate(units)
    middle = float(np.mean(everything))
    scale = float(np.max(np.abs(everything - middle))) or 1.0
    rows = [
        (2.0 * len(x) * np.var(x, ddof=1), len(x), x.sum(), np.sum(x**2))
        for x in ((unit - middle) / scale for unit in units)
    ]

    def alpha(sums: Floats) -> Any:
        observed, n, total, squares = sums.T
        spread = squares * n - total**2
        spread[spread <= 1e-12 * squares * n] = np.nan
        return 1.0 - observed * (n - 1.0) / (2.0 * spread)

    return np.array(rows, dtype=np.float64), alpha


def _by_unit(
    ratings: Ratings, clusters: UnitNames | None = None
) -> list[tuple[list[Hashable], Hashable]]:
    """The ratings of each unit that has any, with the cluster it belongs to."""
    lengths = {len(row) for row in ratings if not isinstance(row, Mapping)}
    if len(lengths) > 1:
        raise ConfigError(
            f"every rater needs one entry per unit, got rows of {sorted(lengths)} entries"
        )
    if not isinstance(clusters, Mapping | None) and {len(clusters)} != lengths:
        raise ConfigError(
            f"one cluster name per unit is needed, got {len(clusters)}; for named units give a "
            f"mapping"
        )
    gathered: dict[Any, list[Hashable]] = {}
    for row in ratings:
        for unit, value in row.items() if isinstance(row, Mapping) else enumerate(row):
            if not _missing(value):
                gathered.setdefault(unit, []).append(value)
    return [(unit, name if clusters is None else clusters[name]) for name, unit in gathered.items()]


def _counts(
    units: Sequence[tuple[Sequence[Hashable], Hashable]],
    categories: Sequence[Hashable] | None = None,
) -> Floats:
    """How often each unit got each label, shape (n_units, n_labels), used labels in order."""
    used = {label for unit, _ in units for label in unit}
    index = _indexed(used, [label for label in _indexed(used, categories) if label in used])
    counts = np.zeros((len(units), len(index)))
    for row, (unit, _) in zip(counts, units, strict=True):
        for label in unit:
            row[index[label]] += 1.0
    return counts


def _finite_number(value: object) -> float:
    if isinstance(value, Real) and math.isfinite(value):
        return float(value)
    raise ConfigError(f"the interval metric needs finite numbers, got {value!r}")


def _from_sums(
    columns: Floats,
    statistic: Callable[[Floats], Any],
    masses: Floats,
    units: Sequence[tuple[Any, ...]],
    clusters: UnitNames | None,
    seed: int,
    n_draws: int,
) -> ClusteredMean | None:
    """The figure of `columns`: those of the units, then one for each unseen kind of its mass."""
    names, n = None if clusters is None else [unit[-1] for unit in units], len(units)
    return drawn_figure(
        columns[:n],
        statistic,
        (columns[n:], masses),
        clusters=names,
        bounds=(-1.0, 1.0),
        seed=seed,
        n_draws=n_draws,
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
    missing = np.isnan(scores)
    ranks = _centred_ranks(other) * (1.0 if best else -1.0)
    _, places = np.unique(scores[~missing], return_inverse=True)
    below, n_below = (
        np.append(0.0, np.cumsum(np.bincount(places, weights=weights)))
        for weights in (ranks[~missing], None)
    )
    filled = np.empty(len(scores))
    filled[~missing] = places
    for rank in np.unique(ranks[missing]):
        gap = int(np.argmax(n_below * rank - below))
        # several in one gap keep an order of their own, too
        filled[missing & (ranks == rank)] = gap - 0.5 + rank / (4.0 * len(other))
    return filled


def spearman_difference(
    first: Floats, second: Floats, shared: Floats, clusters: Names, seed: int, n_draws: int
) -> tuple[float, Floats] | None:
    """How far the rank correlation of a column with a shared one lies above that of another column
    with it, and the same over clusters drawn anew; None where it is undefined.
    """

    def difference(kept: Any = slice(None)) -> float | None:
        one, other = (spearman(side[kept], shared[kept]) for side in (first, second))
        return None if one is None or other is None else one - other

    codes, rng, draws = cluster_numbers(clusters, len(shared)), np.random.default_rng(seed), []
    groups = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    if len(groups) < 2 or (whole := difference()) is None:
        return None
    for _ in range(n_draws):
        drawn = np.concatenate([groups[k] for k in rng.integers(0, len(groups), len(groups))])
        draws.append(difference(drawn))
    known = np.array([draw for draw in draws if draw is not None])
    return (whole, known) if len(known) else None


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
    _check_lengths(first, second, clusters)
    x, y, kept = _rated(first, second)
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
    n = len(x)
    u, v = (_centred_ranks(side) / n for side in (x, y))
    above_x, above_y = (_signs(side) for side in (x, y))
    for above in (above_x, above_y):
        above /= 2.0

    def product(a: Floats, b: Floats, up: Floats, along: Floats) -> tuple[Floats, Floats]:
        # E[(F - 1/2)(G - 1/2)]: the unit's own product, and what it adds to F and G of all others
        shifted = (up.T @ b + along.T @ a) / n
        return a * b, a * b - np.mean(a * b) + shifted - np.mean(shifted)

    return _correlation_influence(
        product(u, v, above_x, above_y),
        product(u, u, above_x, above_x),
        product(v, v, above_y, above_y),
    )


def _kendall_influence(x: Floats, y: Floats) -> Floats:
    """Influence of each unit on tau-b through the pairs it is part of."""
    sx, sy = _signs(x), _signs(y)
    rows = [np.mean(part, axis=1) for part in (sx * sy, sx**2, sy**2)]
    return _correlation_influence(*((row, 2.0 * (row - np.mean(row))) for row in rows))


def _signs(values: Floats) -> Floats:
    """Whether each value lies above (1) or below (-1) each other, in one matrix's memory."""
    above: Floats = np.subtract.outer(values, values)
    np.sign(above, out=above)
    return above


def _correlation_influence(*parts: tuple[Floats, Floats]) -> Floats:
    """Influence on xy / sqrt(xx yy), from terms whose means are xy, xx and yy, and their influences."""
    xy, xx, yy = (float(np.mean(terms)) for terms, _ in parts)
    of_xy, of_xx, of_yy = (influence for _, influence in parts)
    return (of_xy - xy * (of_xx / xx + of_yy / yy) / 2.0) / math.sqrt(xx * yy)
