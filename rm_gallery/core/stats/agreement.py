"""Agreement of raters on the same units: chance-corrected (kappa, alpha) and by rank correlation.

Functions ending in `_estimate` give an `Estimate` of which a row is a unit, so that two of the same
units subtract. A unit weighs by its share of the disagreement that chance would bring: perfect
agreement on five positives of 100 says less than on fifty. Few units show too little of how a rare
label is judged; what a unit of each kind would add is in `unseen`.

Ours: scikit-learn, statsmodels, scipy and `krippendorff` (Python 3.11 on) give the figures alone,
without how far each unit moves them.

Source: the influence of a unit, F. Hampel, "The influence curve and its role in robust estimation",
1974; of ranks, C. Croux and C. Dehon, 2010.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rm_gallery.core.stats import Bools, Floats, Integers, Names, Numbers, np
from rm_gallery.core.stats.columns import cluster_numbers
from rm_gallery.core.stats.uncertainty import Estimate
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    UnitNames = Names | Mapping[Hashable, Hashable]


L = TypeVar("L", bound=Hashable)
Weights = Literal["linear", "quadratic"] | None
Metric = Literal["nominal", "ordinal", "interval"]
Ratings = Sequence[Sequence[Hashable | None]] | Sequence[Mapping[Hashable, Hashable]]
_MOST_LABELS = 30
"""So many of the most frequent labels may meet in a unit that was not seen."""
_EQUAL = 1e-12


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


# -- beyond chance ---------------------------------------------------------------------------------

Units = Sequence[Sequence[Any]]
"""The ratings of each unit, none where it does not count."""
Columns = Callable[[Units], Floats]


def _beyond_chance(
    units: Units,
    columns: Columns,
    apart: Floats | None,
    clusters: Integers,
    share: float = 1.0,
    itself: float = 0.0,
) -> Estimate | None:
    """1 less observed over expected disagreement; None with fewer than two ratings or labels.

    Args:
        units: ratings of all units.
        columns: what units add to the sums that disagreement follows from, shape (units, columns);
            `apart` is the disagreement of two columns, or None where columns are labels in order.
        clusters: number of each unit's cluster.
        share: of all ratings, the share that a rating meets by chance; less `itself`.
    """
    counted = np.array([len(unit) > 1 for unit in units], dtype=bool)
    known = [unit for unit in units if len(unit) > 1]
    labels = Counter(label for unit in known for label in unit)
    if len(labels) < 2:
        return None
    more, prior = _unseen_units(labels, max(2, round(labels.total() / len(known))))
    rated, n = [*known, *more], len(known)
    table, sizes = columns(rated), np.array([len(unit) for unit in rated], dtype=np.float64)

    def moves(masses: Floats) -> tuple[float, Floats, Floats]:
        return _moves(table, sizes, apart, masses, share, itself)

    value, moved, weights = moves(np.repeat([1.0, 0.0], [n, len(more)]))
    pulls, shares = np.zeros((2, len(units)))
    pulls[counted], shares[counted] = moved[:n], weights[:n]
    low = min(-1.0, value)
    figure = Estimate(value, pulls, shares, clusters, (low, 1.0))
    seen = float(pulls @ pulls)
    if figure.n_clusters < 2:
        return figure
    # units of clusters that are alike are worth fewer, and so are those that might have been; where
    # no unit moves anything (one rater says one thing throughout), clusters count once
    alike = figure.variance / seen if seen > 0.0 else figure.n / figure.effective_clusters
    masses = np.concatenate([np.ones(n), prior * alike])
    nearby, further, _ = moves(masses)
    inside, near = ((max(end, low) - low) / (1.0 - low) for end in (value, nearby))
    known = alike * float(masses @ further**2) * masses.sum() / n
    # the figure is as uncertain as it would be with these units, for where it lies
    wider = known * inside * (1.0 - inside) / (near * (1.0 - near))
    return replace(figure, unseen=max(0.0, wider - figure.variance))


def _unseen_units(labels: Counter[Hashable], size: int) -> tuple[list[list[Hashable]], Floats]:
    """Units that might have been, and how often: unanimous ones, and ones with a single dissenter.

    Each kind counts one in all; pairs of labels meet in the second as often as by chance. For two
    raters and two labels that is half a unit in each cell.
    """
    common = labels.most_common(_MOST_LABELS)
    units = [[first] * (size - 1) + [second] for first, _ in common for second, _ in common]
    same = np.eye(len(common))
    counts = np.array([float(n) for _, n in common])
    meeting = np.outer(counts, counts) * (1.0 - same)
    return units, (same / same.sum() + meeting / meeting.sum()).ravel()


def _moves(
    table: Floats, sizes: Floats, apart: Floats | None, masses: Floats, share: float, itself: float
) -> tuple[float, Floats, Floats]:
    """The figure, by how much it moves with each unit, and each unit's share of what disagrees by
    chance.
    """
    totals = masses @ table
    # ordered labels are as far apart as there are ratings between them, half of those at either end
    middle = np.cumsum(totals) - totals / 2.0
    form = np.subtract.outer(middle, middle) ** 2 if apart is None else apart
    observed = np.einsum("uk,uk->u", table @ form, table) / (sizes - 1.0)
    reach = table @ (form @ totals)
    meets = share * float(masses @ sizes) - itself
    seen, by_chance = float(masses @ observed), float(masses @ reach)
    short = seen * meets / by_chance
    if short < _EQUAL:  # rounding
        return 1.0, np.zeros(len(table)), reach * masses / by_chance
    moved = (2.0 * short * reach - meets * observed - share * seen * sizes) / by_chance
    if apart is None:
        # a unit also moves the middles of the labels above its own
        together = (table * (masses / (sizes - 1.0))[:, None]).T @ table
        slope = short * totals * (totals.sum() * middle - totals @ middle)
        slope -= meets * (together.sum(axis=1) * middle - together @ middle)
        slope *= 4.0 / by_chance
        moved += table @ (slope.sum() - np.cumsum(slope) + slope / 2.0)
    return 1.0 - short, moved - masses @ moved / masses.sum(), reach * masses / by_chance


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
    kappa = cohen_kappa_estimate(first, second, weights=weights, categories=categories)
    return None if kappa is None else kappa.estimate


def cohen_kappa_estimate(
    first: Sequence[L | None],
    second: Sequence[L | None],
    *,
    weights: Weights = None,
    categories: Sequence[L] | None = None,
    clusters: Names | None = None,
) -> Estimate | None:
    """Cohen's kappa with its uncertainty; `clusters` names each unit's, else as `cohen_kappa`."""
    _check_lengths(first, second, clusters)
    pairs = [
        [] if _missing(a) or _missing(b) else [a, b] for a, b in zip(first, second, strict=True)
    ]
    index = _indexed({label for pair in pairs for label in pair}, categories)
    steps = np.abs(np.subtract.outer(np.arange(len(index)), np.arange(len(index)))) * 1.0
    wrong = {None: (steps > 0.0) * 1.0, "linear": steps, "quadratic": steps**2}[weights]

    def columns(units: Units) -> Floats:
        sides = np.array([[index[label] for label in unit] for unit in units]).T
        return np.concatenate([np.eye(len(index))[side] for side in sides], axis=1)

    apart = np.kron(np.array([[0.0, 1.0], [1.0, 0.0]]), wrong)
    # a rating meets those of the other rater by chance, half of all
    return _beyond_chance(pairs, columns, apart, cluster_numbers(clusters, len(pairs)), share=0.5)


def label_kappa_estimate(
    first: Sequence[L | None], second: Sequence[L | None], **settings: Any
) -> Estimate | None:
    """Cohen's kappa of what a judge says with people's labels, the second; as `cohen_kappa_estimate`.

    Not known where the labels are all one value: that makes kappa 0 whatever the judge says, also
    where it is right in every row but one.
    """
    several = len({label for _, label in complete_pairs(first, second)}) > 1
    return cohen_kappa_estimate(first, second, **settings) if several else None


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
    kappa = fleiss_kappa_estimate(ratings)
    return None if kappa is None else kappa.estimate


def fleiss_kappa_estimate(
    ratings: Ratings, *, clusters: UnitNames | None = None
) -> Estimate | None:
    """Fleiss' kappa with its uncertainty; `clusters` names each unit's, else as `fleiss_kappa`."""
    units, codes = _by_unit(ratings, clusters)
    sizes = {len(unit) for unit in units if unit}
    if len(sizes) > 1:
        raise ConfigError(
            f"Fleiss' kappa needs the same number of ratings of every unit, found {min(sizes)} to "
            f"{max(sizes)}; "
            "krippendorff_alpha allows gaps"
        )
    index = _indexed({label for unit in units for label in unit}, None)
    return _beyond_chance(units, _counts(index), 1.0 - np.eye(len(index)), codes)


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
    alpha = krippendorff_alpha_estimate(ratings, metric=metric, categories=categories)
    return None if alpha is None else alpha.estimate


def krippendorff_alpha_estimate(
    ratings: Ratings,
    *,
    metric: Metric = "nominal",
    categories: Sequence[Hashable] | None = None,
    clusters: UnitNames | None = None,
) -> Estimate | None:
    """Alpha with its uncertainty; `clusters` names each unit's, else as `krippendorff_alpha`."""
    units, codes = _by_unit(ratings, clusters)
    if metric not in ("nominal", "ordinal", "interval"):
        raise ConfigError(f"metric is {metric!r}; give nominal, ordinal or interval")
    units = [unit if len(unit) > 1 else [] for unit in units]
    apart: Floats | None
    if metric == "interval":
        units, columns, apart = _moments(units)
    else:
        used = {label for unit in units for label in unit}
        index = _indexed(used, [label for label in _indexed(used, categories) if label in used])
        columns, apart = _counts(index), None if metric == "ordinal" else 1.0 - np.eye(len(index))
    # a rating does not meet itself by chance
    return _beyond_chance(units, columns, apart, codes, itself=1.0)


def _by_unit(ratings: Ratings, clusters: UnitNames | None) -> tuple[Units, Integers]:
    """The ratings of each unit, and the number of the cluster that it belongs to."""
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
            own = gathered.setdefault(unit, [])
            if not _missing(value):
                own.append(value)
    names = None if clusters is None else [clusters[unit] for unit in gathered]
    return list(gathered.values()), cluster_numbers(names, len(gathered))


def _counts(index: Mapping[Any, int]) -> Columns:
    """How often each unit got each label."""

    def columns(units: Units) -> Floats:
        counts = np.zeros((len(units), len(index)))
        rows = np.repeat(np.arange(len(units)), [len(unit) for unit in units])
        np.add.at(counts, (rows, np.array([index[x] for unit in units for x in unit])), 1.0)
        return counts

    return columns


def _moments(units: Units) -> tuple[Units, Columns, Floats]:
    """Numbers around their middle, in units of the farthest: squares of large ones lose digits or
    overflow. Squared distances follow from a unit's number, sum and sum of squares.
    """
    rated = [[_finite_number(value) for value in unit] for unit in units]
    every = np.array([value for unit in rated for value in unit])
    middle = float(np.mean(every)) if len(every) else 0.0
    scale = float(np.max(np.abs(every - middle), initial=0.0)) or 1.0

    def columns(units: Units) -> Floats:
        return np.array([[len(x), sum(x), sum(v * v for v in x)] for x in units])

    placed = [[(value - middle) / scale for value in unit] for unit in rated]
    return placed, columns, np.array([[0.0, 0.0, 1.0], [0.0, -2.0, 0.0], [1.0, 0.0, 0.0]])


def _finite_number(value: object) -> float:
    if isinstance(value, Real) and math.isfinite(value):
        return float(value)
    raise ConfigError(f"the interval metric needs finite numbers, got {value!r}")


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
    estimate = spearman_estimate(first, second)
    return None if estimate is None else estimate.estimate


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
    ranks = (rankdata(other) - (len(other) + 1.0) / 2.0) * (1.0 if best else -1.0)
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


def kendall_tau_b(first: Numbers, second: Numbers) -> float | None:
    """Kendall's tau-b, -1..1, corrected for ties; 1 means the same order. Else as `spearman`.

    Source: M. Kendall, "The treatment of ties in ranking problems", 1945.
    """
    estimate = kendall_tau_b_estimate(first, second)
    return None if estimate is None else estimate.estimate


def spearman_estimate(
    first: Numbers, second: Numbers, *, clusters: Names | None = None
) -> Estimate | None:
    """Spearman's correlation with its uncertainty; `clusters` names each position's."""

    def products(x: Integers, y: Integers) -> Floats:
        # its own product of ranks, and the ranks that it moves of others
        u, v = (0.5 - _above(side, np.ones(len(side))) for side in (x, y))
        return u * v + _above(x, v) + _above(y, u)

    return _of_order(products, 3, lambda x, y: 1.0, first, second, clusters)


def kendall_tau_b_estimate(
    first: Numbers, second: Numbers, *, clusters: Names | None = None
) -> Estimate | None:
    """Kendall's tau-b with its uncertainty; `clusters` names each position's."""

    def by_chance(x: Integers, y: Integers) -> float:
        # mean squares of how far the rows below a row are more than those above it, and of pairs
        ones = np.ones(len(x))
        shifts = [float(np.mean((1.0 - 2.0 * _above(side, ones)) ** 2)) for side in (x, y)]
        untied = [float(np.mean(_concordance(side, side))) for side in (x, y)]
        return 4.0 * math.prod(shifts) / math.prod(untied)

    return _of_order(_concordance, 2, by_chance, first, second, clusters)


def _of_order(
    rows: Callable[[Integers, Integers], Floats],
    degree: int,
    by_chance: Callable[[Integers, Integers], float],
    first: Numbers,
    second: Numbers,
    clusters: Names | None,
) -> Estimate | None:
    """Correlation xy / sqrt(xx yy), from what each row adds to these over groups of `degree` rows;
    `rows` takes the numbers of values in their order.

    Its variance is at least that of columns without a relation, `by_chance` over the rows: a rare
    label that no row of the other column shares once gave -0.05 [-0.098, -0.007].
    """
    _check_lengths(first, second, clusters)
    x, y = (np.asarray(side, dtype=np.float64) for side in (first, second))  # None becomes NaN
    kept: Bools = ~(np.isnan(x) | np.isnan(y))
    a, b = (np.unique(side[kept], return_inverse=True)[1].reshape(-1) for side in (x, y))
    if not (a.any() and b.any()):
        return None
    of_xy, of_xx, of_yy = rows(a, b), rows(a, a), rows(b, b)
    xy, xx, yy = (float(np.mean(each)) for each in (of_xy, of_xx, of_yy))
    value = xy / math.sqrt(xx * yy)
    moved = (of_xy - xy) / math.sqrt(xx * yy) - value * (of_xx / xx + of_yy / yy - 2.0) / 2.0
    alike = abs(value) > 1.0 - _EQUAL
    pulls, weights = np.zeros((2, len(x)))
    pulls[kept] = 0.0 if alike else moved * degree / len(a)
    weights[kept] = (of_xx / xx + of_yy / yy) / (2.0 * len(a))
    # one order throughout shows no spread: then so many units might have had another
    found = Estimate(
        math.copysign(1.0, value) if alike else value,
        pulls,
        weights,
        cluster_numbers(clusters, len(x)),
        (-1.0, 1.0),
        "share" if alike else "correlation",
    )
    if alike or found.n_clusters < 2:
        return found
    squares = float(pulls @ pulls)
    design = max(1.0, found.variance / squares) if squares > 0.0 else 1.0
    least = (1.0 - value**2) ** 2 * by_chance(a, b) * design / max(len(a) - 1.0, 1.0)
    return replace(found, unseen=max(0.0, least - found.variance))


def _above(values: Integers, others: Floats) -> Floats:
    """Per row the mean of `others` over the rows with a larger value, and half over equal ones."""
    sums = np.bincount(values, weights=others)
    return np.asarray((sums.sum() - np.cumsum(sums) + sums / 2.0)[values] / len(values))


def _concordance(x: Integers, y: Integers) -> Floats:
    """Per row the share of rows that stand on the same side of it in x and y, less that of those on
    different sides.

    Rows in their order by x are halved again and again: of each two, one lies in the first half and
    the other in the second at exactly one level.
    """
    n = len(x)
    both = x * (int(y.max()) + 1) + y
    order = np.argsort(both, kind="stable")
    codes, places, before = y[order], np.arange(n), np.zeros(n, dtype=np.int64)
    for level in range((n - 1).bit_length()):
        part, second = places >> (level + 1), (places >> level) % 2 == 1
        keys = part * n + codes
        halves, own = np.sort(keys[~second]), keys[second]
        below = np.searchsorted(halves, own, "left") + np.searchsorted(halves, own, "right")
        before[second] += below - 2 * (part[second] << level)
    less = np.cumsum(np.bincount(y))
    ends = less[codes] + np.append(0, less)[codes]
    shares = np.empty(n)
    shares[order] = 2 * (before - places) + n - ends
    # equal in x, rows stand by y: those were counted as of the same order
    _, own_places, counts = np.unique(both, return_inverse=True, return_counts=True)
    shares -= np.bincount(x)[x] - counts[own_places.reshape(-1)]
    return shares / n
