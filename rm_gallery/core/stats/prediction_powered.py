"""One stratum of a corrected mean: estimate, weight of the judge, influence of every row.

Ours: `ppi-python` has neither clusters nor strata by verdict, and its variance is too small with few
labels (see `corrected`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rm_gallery.core.stats import Array, Bools, Floats, np
from rm_gallery.core.stats.clustered import intraclass_correlation
from rm_gallery.core.stats.intervals import two_tails

# weight of the pseudo-rows; 1 is about the least that keeps coverage with a judge without an error
# among the labels
_PSEUDO = 1.0
# a mean per verdict overfits the labels more than one slope does
_PSEUDO_BY_VERDICT = 1.5
# pseudo-clusters at the ends of the scale; 0.3 keeps coverage with few labelled clusters, 1 widens
# too much
_PSEUDO_CLUSTER = 0.3
# pseudo-rows are shared out by verdict up to this number of verdicts
_MOST_CELLS = 4


@dataclass(frozen=True)
class StratumEstimate:
    """Estimate of one stratum.

    Attributes:
        estimate: its corrected mean.
        lam: weight of the judge.
        psi: influence of each row on the estimate; the variance is the sum of squares of its sums
            over clusters.
        variance: of the estimate, with `floor`.
        floor: what the pseudo-rows add to the variance.
        labels_variance: variance of the mean of the labels, without the judge.
        df: degrees of freedom.
        m: labels.
    """

    estimate: float
    lam: float
    psi: Floats
    variance: float
    floor: float
    labels_variance: float
    df: float
    m: int


def part_of(
    f: Floats,
    y: Floats,
    chosen: Floats | None,
    groups: Array,
    bounds: tuple[float, float],
    verdicts: Array | None = None,
) -> StratumEstimate:
    """Correct the mean of one stratum.

    Args:
        f: judge score per row, NaN where there is none.
        y: label per row, NaN where there is none; at least one is there.
        chosen: probability of having been labelled per row, needed for labelled rows; None where
            all had the same.
        groups: cluster number per row.
        bounds: lowest and highest possible label.
        verdicts: number of the judge's verdict per row, -1 where there is none, each but that with
            a label; rows of a verdict are then predicted by the mean of its labels, and only chance
            within a verdict decides which are labelled.
    """
    labelled = ~np.isnan(y)
    missing = np.isnan(f)
    if missing.any():
        f = np.where(missing, 0.0 if missing.all() else f[~missing].mean(), f)
    m, n = int(labelled.sum()), len(y)
    gl, yl, used, slope, lam = groups[labelled], y[labelled], 1, 1.0, 1.0
    # `side` are the rows whose judge scores are averaged
    if verdicts is not None:
        f, slope, weights, used = _by_verdict(f, yl, verdicts, labelled)
        side = verdicts >= 0
    elif chosen is None:
        weights, side = np.full(m, 1.0 / m), ~labelled
        lam = _tuned(f[labelled], yl, f, n - m, bounds)
    else:
        inverse = 1.0 / chosen[labelled]
        weights, side = inverse / inverse.sum(), np.ones(n, dtype=bool)
        lam = _tuned_weighted(f[labelled], yl, f, inverse, weights, bounds)
    fl, n_side = f[labelled], int(side.sum())
    mean_f = float(f[side].mean()) if n_side else 0.0
    deviations = np.where(side, f - mean_f, 0.0) / max(n_side, 1)
    residuals = yl - lam * fl
    centre = float(residuals.mean() if verdicts is None and chosen is None else weights @ residuals)
    theta = lam * mean_f + centre
    residuals = residuals - centre
    own = weights * residuals
    clusters = count(gl)
    psi = lam * deviations * _bessel(count(groups[side]))
    psi[labelled] += own * _bessel(clusters, used)
    plain = float(own @ own) * _bessel(m) ** 2
    # labelled rows by the judge's verdict, where it has few different ones
    kinds, cells = np.unique(lam * fl, return_inverse=True)
    if len(kinds) > _MOST_CELLS:
        cells = np.zeros(m, dtype=np.intp)
    pseudo = _pseudo(residuals, yl, lam * fl + centre, bounds)
    strength = _PSEUDO if verdicts is None else _PSEUDO_BY_VERDICT
    floor = _squares(residuals, pseudo, weights, cells, strength) - plain
    if 1 < clusters < m:
        floor = max(floor, _unseen_clusters(yl, residuals, pseudo, weights, gl))
    # labels alone, under the same weights and with their own pseudo-rows, for comparison
    mean = float(weights @ yl)
    bare = yl - mean
    labels_variance = _squares(bare, _pseudo(bare, yl, np.full(m, mean), bounds), weights, cells)
    sizes = np.bincount(gl, weights=weights)
    df = max(1.0, float(1.0 / (sizes @ sizes)) - (1.0 if lam == 0.0 else max(2.0, used)))
    sums = np.bincount(groups, weights=psi)
    variance = float(sums @ sums) + max(floor, 0.0)
    # rows of one cluster: the labels alone would have suffered from that as well
    if count(groups) < n:
        alone = weights * bare
        together = np.bincount(gl, weights=alone) * _bessel(clusters)
        added = float(together @ together) - float(alone @ alone) * _bessel(m) ** 2
        labels_variance = max(0.0, labels_variance + added)
    return StratumEstimate(
        theta, lam * slope, psi, variance, max(floor, 0.0), labels_variance, df, m
    )


def _by_verdict(
    f: Floats, yl: Floats, verdicts: Array, labelled: Bools
) -> tuple[Floats, float, Floats, int]:
    """Mean label of each row's verdict, its slope on the judge, weights of labels, verdicts."""
    own, known = verdicts[labelled], verdicts >= 0
    n_labels, n_rows = np.bincount(own[own >= 0]), np.bincount(verdicts[known])
    means = np.bincount(own[own >= 0], weights=yl[own >= 0]) / n_labels
    weights = np.where(own >= 0, (n_rows / n_labels)[own], 0.0) / known.sum()
    predicted = np.where(known, means[verdicts], float(means @ n_rows) / known.sum())
    deviations = f[known] - f[known].mean()
    slope = float(deviations @ predicted[known] / (deviations @ deviations))
    return predicted, slope, weights, len(means)


def _tuned(
    fl: Floats, yl: Floats, f: Floats, n_unlabelled: int, bounds: tuple[float, float]
) -> float:
    """Weight of the judge with the least variance (PPI++, eq. 10, with the variance of all rows)."""
    if n_unlabelled == 0 or len(yl) < 2:
        return 0.0
    spread = float(f.var(ddof=1))
    if spread <= 0.0:
        return 0.0
    common = float(((fl - fl.mean()) * (yl - yl.mean())).mean())
    return _clipped(common / (spread * (1.0 + len(yl) / n_unlabelled)), f, bounds)


def _tuned_weighted(
    fl: Floats, yl: Floats, f: Floats, inverse: Floats, weights: Floats, bounds: tuple[float, float]
) -> float:
    """The same for labels drawn with known probabilities; a row sure to be labelled needs no judge."""
    needed = weights * (inverse - 1.0)
    g = fl - float(weights @ fl)
    spread = float(needed @ (g * g))
    if len(yl) < 2 or spread <= 1e-12 * max(1.0, float(fl @ fl)):
        return 0.0
    return _clipped(float(needed @ (g * (yl - float(weights @ yl)))) / spread, f, bounds)


def _clipped(lam: float, f: Floats, bounds: tuple[float, float]) -> float:
    """The weight clipped to at least 0, and to at most 1 where the judge is on the labels' scale."""
    same_scale = bounds[0] <= float(f.min()) and float(f.max()) <= bounds[1]
    return min(max(lam, 0.0), 1.0) if same_scale else max(lam, 0.0)


def _pseudo(
    residuals: Floats, yl: Floats, predicted: Floats, bounds: tuple[float, float]
) -> Floats:
    """Squared residual of a pseudo-row per labelled row: half of it at either end of the labels."""
    low, high = float(yl.min()), float(yl.max())
    # a fine scale: the residuals themselves show how far they reach
    if len(np.unique(yl)) > max(5, len(yl) // 2):
        return np.full(len(yl), float(np.abs(residuals).max()) ** 2)
    if not (math.isinf(bounds[0]) or math.isinf(bounds[1])):
        reach = high - low
        if reach == 0.0:
            low, high = bounds
        # labels piled up at one bound: the rare values at the other side are the ones that were not
        # drawn
        elif float((yl == bounds[1]).mean()) >= 0.5:
            low = max(bounds[0], low - reach)
        elif float((yl == bounds[0]).mean()) >= 0.5:
            high = min(bounds[1], high + reach)
    return ((low - predicted) ** 2 + (high - predicted) ** 2) / 2.0


def _squares(
    residuals: Floats, pseudo: Floats, weights: Floats, cells: Array, pseudo_rows: float = _PSEUDO
) -> float:
    """Sum of squared weighted residuals with a pseudo-row over all cells.

    Few labels show few or none of a judge's errors; their plain variance is then far too small.
    """
    counts = np.bincount(cells).astype(np.float64)
    strength = pseudo_rows / len(counts)
    # residuals keep their own weights, since rows with large weights are often those with small
    # residuals
    observed = np.bincount(cells, weights=(weights * residuals) ** 2)
    supposed = np.bincount(cells, weights=weights**2) * np.bincount(cells, weights=pseudo) / counts
    total = (counts * observed + strength * supposed) / (counts + strength)
    return float(total.sum()) * _bessel(len(residuals)) ** 2


def _unseen_clusters(
    yl: Floats, residuals: Floats, pseudo: Floats, weights: Floats, gl: Array
) -> float:
    """Variance added by part of a pseudo-cluster at an end of the scale.

    Its rows correlate as the labels do within clusters, fully where all labels are equal.
    """
    groups = np.unique(gl, return_inverse=True)[1]
    sums, sizes, squares = (
        np.bincount(groups, weights=x) for x in (weights * residuals, weights, weights**2)
    )
    alike = 1.0 if float(np.ptp(yl)) == 0.0 else intraclass_correlation(yl, groups)
    supposed = float(
        pseudo @ weights**2 / squares.sum() * np.sum((1.0 - alike) * squares + alike * sizes**2)
    )
    added = _PSEUDO_CLUSTER / (len(sums) + _PSEUDO_CLUSTER) * (supposed - float(sums @ sums))
    return added * _bessel(len(sums)) ** 2


def n_eff(theta: float, variance: float, m: int, low: float, high: float) -> float:
    """Independent 0/1 labels of the same precision, with a pseudo-label in the middle of the scale."""
    if math.isinf(low) or math.isinf(high):
        return math.inf
    drawn = (m * theta + _PSEUDO * (low + high) / 2.0) / (m + _PSEUDO)
    return (drawn - low) * (high - drawn) / variance if variance > 0.0 else math.inf


def count(codes: Array) -> int:
    """Number of distinct values among small whole numbers."""
    return int(np.count_nonzero(np.bincount(codes)))


def _bessel(k: int, used: int = 1) -> float:
    return math.sqrt(k / (k - used)) if k > used else 1.0


# verdicts of two orders with ties; a finer judge is not corrected verdict by verdict
_MOST_VERDICTS = 5
# a verdict with fewer labels is joined with the next one
_FEWEST_LABELS = 3
# level of the test that labels were drawn independently of verdicts: 1 in 300
_BY_CHANCE = 0.003


def verdict_numbers(f: Floats, labelled: Bools, *, fewest: int = _FEWEST_LABELS) -> Array | None:
    """Code of each row's verdict, neighbours joined until each has `fewest` labels.

    None for one verdict or too many. Rows without a verdict have a code of their own if `fewest` of
    them are labelled, else -1.
    """
    judged = ~np.isnan(f)
    kinds, places = np.unique(f[judged], return_inverse=True)
    if labelled.all() or not 1 < len(kinds) <= _MOST_VERDICTS or labelled[judged].sum() < fewest:
        return None
    joined, held = np.zeros(len(kinds), dtype=np.intp), 0.0
    for place, labels in enumerate(np.bincount(places, weights=labelled[judged])):
        if held >= fewest:
            joined[place:] += 1
            held = 0.0
        held += labels
    if held < fewest:  # the last one has a neighbour on one side only
        joined[joined == joined[-1]] = max(0, joined[-1] - 1)
    silent = int(labelled[~judged].sum()) >= fewest
    if joined[-1] == 0 and not silent:
        return None
    codes = np.full(len(f), joined[-1] + 1 if silent else -1)
    codes[judged] = joined[places]
    return codes


def labels_follow_verdicts(
    f: Floats, labelled: Bools, groups: Array, strata: Array | None = None
) -> str | None:
    """How verdicts of labelled rows differ from the others'; None where that may be chance.

    A permutation test (normal limit) of which rows of a stratum are labelled, on the rate of each
    verdict or on ranks where there are many; with clusters its variance is at least theirs.

    Args:
        f: judge score per row, NaN where there is none; such rows are not looked at.
        labelled: whether a row has a label.
        groups: cluster number per row.
        strata: stratum number per row; None for one.
    """
    from scipy.stats import rankdata

    judged = ~np.isnan(f)
    x, has, own = f[judged], labelled[judged], groups[judged]
    kinds = np.unique(x)
    if len(kinds) < 2 or has.all() or not has.any():
        return None
    few = len(kinds) <= _MOST_VERDICTS
    columns = [(x == kind) * 1.0 for kind in kinds] if few else [rankdata(x)]
    within = np.zeros(len(x), dtype=np.intp) if strata is None else strata[judged]
    rows = np.maximum(np.bincount(within), 1)

    def residuals(column: Array) -> Array:
        left: Array = column - (np.bincount(within, weights=column) / rows)[within]
        return left

    chosen = residuals(has)
    sides = [len(np.unique(own[side])) for side in (has, ~has)]
    clustered = len(np.unique(own)) < len(own)
    df = min(sides) - 1 if clustered else math.inf
    least = 1.0
    for column in columns:
        unlike = residuals(column)
        sums = np.bincount(own, weights=unlike * chosen)
        first, second = (np.bincount(within, weights=x**2) for x in (unlike, chosen))
        variance = float(np.sum(first * second / np.maximum(rows - 1, 1)))
        if clustered:
            variance = max(variance, float(sums @ sums))
        if df > 0 and variance > 0.0:
            least = min(least, two_tails(df, abs(float(sums.sum())) / math.sqrt(variance)))
    # of two verdicts one rate is the other's complement
    if least * max(1, len(columns) - 1) >= _BY_CHANCE:
        return None
    if not few:
        return (
            f"rows with a label have a mean score of {x[has].mean():.4g}, the others of "
            f"{x[~has].mean():.4g}"
        )
    shares = [
        f"{100 * has[x == kind].mean():.3g} % of the rows with verdict {kind:g}" for kind in kinds
    ]
    return f"{', '.join(shares)} have one"


def mended(f: Floats, verdicts: Array | None) -> bool:
    """Whether every verdict has a code of its own."""
    judged = ~np.isnan(f)
    return verdicts is not None and len(np.unique(verdicts[judged])) == len(np.unique(f[judged]))
