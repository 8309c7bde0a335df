"""A judge's mean score, win rate or difference, corrected by human labels of some rows.

estimate = mean(prediction, all rows) + weighted mean(label - prediction, labelled rows). The judge
may be biased: its bias is measured on the labelled rows and removed; how well it follows the labels
only decides the width of the interval. So every row pulls the estimate by its prediction and every
labelled one by its residual: an `Estimate`, whose interval this is. Sources: A. Angelopoulos et al.,
"Prediction-powered inference" (arXiv 2301.09633) and "PPI++" (arXiv 2311.01453).

Ours, not `ppi-python`: its normal interval covers 79 to 91 % instead of 95 % with few labels and a
high pass rate, always on the optimistic side, because a rate near its bound varies less and few
labels show few of the judge's errors; it has neither clusters nor strata by verdict. Here a few
labels more at the ends of the scale, which were not seen, add to the variance.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from rm_gallery.core.stats import Array, Bools, Floats, Names, Numbers, np
from rm_gallery.core.stats.columns import cluster_numbers, numbers
from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.stats.labelled import labels_follow_verdicts, mended, verdict_numbers
from rm_gallery.core.stats.uncertainty import (
    Estimate,
    all_or_nothing,
    intraclass_correlation,
    scale_of,
)
from rm_gallery.core.utils.errors import ConfigError

_MOST_PROBABILITIES = 4
"""Labels drawn with no more different probabilities than this are a stratified sample."""
_UNSEEN = 1.5
"""Labels that were not seen, over all predictions; at most one each."""
_MOST_CELLS = 4
"""Errors of more different predictions than this are looked at together."""
_MOST_LABELS = 5
"""More different labels than this show by themselves how far a judge's errors reach."""
_NEXT_TO_NOTHING = 1e-9
"""What a judge's weight moves at least, as a share of the labels' range; what is less is rounding."""
_MENDED = (
    "each verdict is corrected on its own, which mends that as far as chance decided within a "
    "verdict"
)
_BIASED = (
    "that biases the figure: say with which probability each row was chosen (probabilities), or "
    "name strata within which chance decided"
)


@dataclass(frozen=True)
class Corrected:
    """A mean estimated from judge scores and labels together.

    Attributes:
        estimate: the corrected mean, in the unit of the labels; None without a label.
        ci95: its interval at `confidence`, within `bounds`; None where nothing is known, as with
            labels of one cluster.
        method: "labels only", "prediction-powered" or "inverse probability".
        n: rows, judged or labelled or neither.
        n_labelled: rows with a label.
        lam: weight of the judge, 0 (unused) to 1; above 1 only where its scale is not the labels'.
        effective_labels: labels that alone would be as precise as labels and judge together.
        notes: warnings for the reader, one sentence each.
        se: standard error without the allowance of the interval, of independent rows by the
            published formula; None with labels of one cluster.
        df: degrees of freedom of the quantile.
        n_judged: rows with a judge score.
        n_clusters: independent groups of rows.
        judge_mean: mean of the judge's scores, uncorrected.
        labels_mean: mean of the labels alone.
        bounds: lowest and highest possible label.
        confidence: level of the interval.
        figure: what the interval comes from, with a pull of each row; None without a label.
    """

    estimate: float | None
    ci95: Interval | None
    method: str
    n: int
    n_labelled: int
    lam: float
    effective_labels: float
    notes: tuple[str, ...] = ()
    se: float | None = None
    df: float = math.inf
    n_judged: int = 0
    n_clusters: int = 0
    judge_mean: float | None = None
    labels_mean: float | None = None
    bounds: tuple[float, float] = (0.0, 1.0)
    confidence: float = 0.95
    figure: Estimate | None = field(default=None, repr=False, compare=False)

    def p_value(self, null: float) -> float | None:
        """Two-sided p-value of "the true mean is `null`"; below 1 - confidence where `ci95` excludes it,
        None where nothing is known.

        Raises:
            ConfigError: `null` lies outside the bounds.
        """
        if self.figure is None:
            return None
        low, high = self.bounds
        if not low <= null <= high:
            raise ConfigError(
                f"p_value: null is {null!r}, outside the bounds {low:g}..{high:g}; name a value "
                f"within them"
            )
        return self.figure.p_value(null)


def corrected_mean(
    judge: Numbers,
    labels: Numbers,
    *,
    clusters: Names | None = None,
    probabilities: Numbers | None = None,
    strata: Sequence[Hashable] | Literal["verdict"] | None = "verdict",
    shares: Mapping[Any, float] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> Corrected:
    """Mean label of all rows, from the judge's score of all and the labels of some.

    A win rate is the mean of 1 for a win, 0.5 for a tie and 0 for a loss; where both orders were
    judged, a row's judge score is the mean of the two.

    Args:
        judge: the judge's score per row, any scale; None or NaN where it gave none. Such a row
            stays in the population and is predicted by the mean of the others.
        labels: the label per row, within `bounds`; None or NaN where there is none. Rows must be
            labelled at random within a verdict, or as `probabilities` or `strata` say.
        clusters: a name per row where rows belong together (turns of a conversation, answers to a
            prompt). Clusters may be labelled in part.
        probabilities: probability, 0..1, with which each row was chosen for labelling; needed
            where it depended on more than the verdict. Rows without a label may have None.
        strata: a name per row; each stratum is corrected on its own and weighs its share of the
            rows. "verdict": each verdict of a judge with few verdicts, so that some may be labelled
            more often than others. None: all rows together, as in PPI++.
        shares: population share of each stratum (post-stratification), scaled to sum to 1.
        bounds: lowest and highest possible label; either may be infinite.
        confidence: level of the interval.

    Raises:
        ConfigError: lengths differ, a label lies outside the bounds, a probability outside 0..1, a
            stratum has no label.
    """
    check_level(confidence)
    low, high = (float(bound) for bound in bounds)
    if not low < high:
        raise ConfigError(f"bounds are (lowest, highest) possible label; found ({low:g}, {high:g})")
    if isinstance(strata, str) and strata != "verdict":
        raise ConfigError(f"strata is a name per row, 'verdict' or None; found {strata!r}")
    f, y = numbers(judge, "judge"), numbers(labels, "labels")
    chosen = None if probabilities is None else numbers(probabilities, "probabilities")
    n = len(y)
    columns = {"judge": f, "clusters": clusters, "strata": strata, "probabilities": chosen}
    for name, values in columns.items():
        if values is not None and not isinstance(values, str) and len(values) != n:
            raise ConfigError(f"{name} needs one entry per row: found {len(values)} for {n} labels")
    labelled, judged = ~np.isnan(y), ~np.isnan(f)
    _check_labels(y, low, high)
    m, n_judged = int(labelled.sum()), int(judged.sum())
    notes: list[str] = []
    if m < n and n_judged < n:
        notes.append(
            f"{n - n_judged} of {n} rows have no judge score; they count with the mean of the "
            f"others"
        )
    groups = cluster_numbers(clusters, n)
    unlabelled = Corrected(
        None, None, "none", n, m, 0.0, 0.0, (*notes, "no row has a label, so nothing can be corrected"),
        n_judged=n_judged, n_clusters=len(np.unique(groups)),
        judge_mean=float(f[judged].mean()) if n_judged else None, bounds=(low, high), confidence=confidence,
    )  # fmt: skip
    if m == 0:
        return unlabelled
    cells, chosen, verdicts, warnings = _drawn(f, labelled, chosen, strata, shares, groups)
    pulls, weights, level = np.zeros((3, n))
    theta = lam = unseen = 0.0
    parameters = 0
    for rows, share in _strata(cells, shares, labelled):
        own = None if chosen is None else chosen[rows]
        part = _stratum(f[rows], y[rows], own, verdicts, groups[rows], (low, high))
        pulls[rows], weights[rows] = share * part.pulls, share * part.weights
        level[rows] = part.estimate
        theta, lam = theta + share * part.estimate, lam + share * part.lam
        unseen += share**2 * part.unseen
        parameters += part.parameters
    if shares is None:  # these are counted on the same rows
        pulls += (level - theta) / n
    known, whole = y[labelled], all_or_nothing(y[labelled], (low, high))
    plain = lam == 0.0 and parameters == 1
    figure = Estimate(
        min(max(theta, low), high), pulls, weights, groups, (low, high), scale_of((low, high)),
        whole and plain, parameters, 0.0 if plain else unseen,
    )  # fmt: skip
    k = figure.n_clusters
    alike = (
        intraclass_correlation(known, cluster_numbers(groups[labelled], m))
        if np.ptp(known)
        else 1.0
    )
    spread = 1.0 / (figure.effective_clusters * float(weights @ weights)) - 1.0
    # few clusters with labels of all verdicts still say something
    figure = replace(
        figure,
        parameters=max(1, min(parameters, k - 1)),
        unseen=figure.unseen * (1.0 + alike * spread),
    )
    alone = np.where(labelled, weights * (y - weights[labelled] @ known), 0.0)
    bare = replace(figure, pulls=alone, all_or_nothing=whole, parameters=1, unseen=0.0)
    if k == 1:
        notes.append("all labels lie in one cluster, so nothing is known about how clusters differ")
    elif figure.variance == 0.0 and math.isinf(high - low):
        notes.append("all labels are equal, and without bounds nothing is known about their spread")
    elif figure.df < 4:
        notes.append(
            f"{m} labels leave {figure.df:.1f} degrees of freedom: the interval rests on very "
            f"little"
        )
    method = "labels only" if lam == 0.0 else "prediction-powered"
    return replace(
        unlabelled, estimate=figure.estimate, ci95=figure.interval(confidence), lam=lam, notes=(*notes, *warnings),
        method=method if probabilities is None else "inverse probability",
        effective_labels=m * bare.variance / figure.variance if k > 1 and figure.variance > 0.0 else float(k if k == 1 else m),
        se=math.sqrt(figure.variance - figure.unseen) if k > 1 else None, df=figure.df, labels_mean=float(known.mean()), figure=figure,
    )  # fmt: skip


def corrected_difference(
    judge_a: Numbers,
    judge_b: Numbers,
    labels_a: Numbers,
    labels_b: Numbers,
    *,
    clusters: Names | None = None,
    probabilities: Numbers | None = None,
    strata: Sequence[Hashable] | Literal["verdict"] | None = "verdict",
    shares: Mapping[Any, float] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> Corrected:
    """Mean label of A minus that of B on the same rows; above 0 A is better, `p_value(0)` tests it.

    A row counts as labelled where both sides have a label, and as judged where both have a score.
    `bounds` are those of one side's labels; the rest is as in `corrected_mean`.

    Raises:
        ConfigError: as `corrected_mean`.
    """
    given = {"judge_a": judge_a, "judge_b": judge_b, "labels_a": labels_a, "labels_b": labels_b}
    fa, fb, ya, yb = (numbers(values, name) for name, values in given.items())
    if not len(fa) == len(fb) == len(ya) == len(yb):
        lengths = ", ".join(f"{name} {len(values)}" for name, values in given.items())
        raise ConfigError(f"both sides need one entry per row: found {lengths}")
    low, high = bounds
    for values in (ya, yb):
        _check_labels(values, low, high)
    return corrected_mean(
        fa - fb, ya - yb, clusters=clusters, probabilities=probabilities, strata=strata, shares=shares,
        bounds=(low - high, high - low), confidence=confidence,
    )  # fmt: skip


def label_scale(
    labels: Numbers, scale: tuple[float, float] = (-math.inf, math.inf)
) -> tuple[float, float]:
    """Bounds of labels: 0..1 or the judge's `scale` if all lie within, else infinite.

    Labels within 0..1 are on the judge's scale only if that begins above 0: five 1s are the worst
    of 1..5, not shares.

    >>> label_scale([1, 1, 1], scale=(1, 5)), label_scale([0, 1]), label_scale([2, 7])
    ((1, 5), (0.0, 1.0), (-inf, inf))
    """
    known = numbers(labels, "labels")
    known = known[known == known]
    (low, high), open_scale = scale, (-math.inf, math.inf)
    if not len(known):
        return open_scale
    least, most = known.min(), known.max()
    on_scale = math.isfinite(high - low) and low <= least and most <= high
    if least >= 0.0 and most <= 1.0 and not (on_scale and low > 0.0):
        return 0.0, 1.0
    return scale if on_scale else open_scale


def _filled_by_verdict(chosen: Floats, f: Floats) -> Floats:
    """Fill in missing probabilities from rows of the same verdict, where those are all equal."""
    known = ~np.isnan(chosen)
    if known.all():
        return chosen
    filled = chosen.copy()
    for verdict in np.unique(f[known])[: _MOST_PROBABILITIES + 1]:
        same = f == verdict
        if len(np.unique(chosen[same & known])) == 1:
            filled[same & ~known] = chosen[same & known][0]
    return filled


def _drawn(
    f: Floats,
    labelled: Bools,
    chosen: Floats | None,
    strata: Sequence[Hashable] | str | None,
    shares: Mapping[Any, float] | None,
    groups: Array,
) -> tuple[Sequence[Hashable] | None, Floats | None, Array | None, list[str]]:
    """How labelled rows were chosen: strata, probabilities per row, verdicts; and notes."""
    by_verdict = isinstance(strata, str) and shares is None
    cells = None if isinstance(strata, str) else strata
    if chosen is not None:
        _check_probabilities(chosen, labelled)
        chosen = _filled_by_verdict(chosen, f)
        kinds, places = np.unique(chosen, return_inverse=True)
        # few different probabilities, all known, and labels of each: that is a stratified sample
        known = len(kinds) <= _MOST_PROBABILITIES and not np.isnan(chosen).any()
        if cells is not None or not known or np.bincount(places, weights=labelled).min() < 1:
            return cells, chosen, None, []
        if len(set(chosen)) > 1:
            return list(chosen), None, None, []
    verdicts = verdict_numbers(f, labelled) if by_verdict else None
    follow = labels_follow_verdicts(
        f, labelled, groups, None if cells is None else cluster_numbers(list(cells), len(f))
    )
    if follow is None:
        return cells, None, verdicts, []
    verdicts = verdict_numbers(f, labelled, fewest=1) if by_verdict else None
    cure = _MENDED if mended(f, verdicts) else _BIASED
    return cells, None, verdicts, [f"labels go with the judge's verdict ({follow}); {cure}"]


def _strata(
    strata: Sequence[Hashable] | None, shares: Mapping[Any, float] | None, labelled: Bools
) -> list[tuple[Array, float]]:
    """Rows and share of each stratum that counts."""
    n = len(labelled)
    if strata is None:
        if shares is not None:
            raise ConfigError(
                "shares are those of strata; name the stratum of every row in `strata` too"
            )
        return [(np.arange(n), 1.0)]
    rows_of: dict[Hashable, list[int]] = {}
    for row, name in enumerate(strata):
        rows_of.setdefault(name, []).append(row)
    weights = {name: len(rows) / n for name, rows in rows_of.items()}
    if shares is not None:
        weights = _scaled_shares(shares, list(rows_of))
    drawn = {name: np.array(rows) for name, rows in rows_of.items() if weights[name] > 0.0}
    bare = [name for name, rows in drawn.items() if not labelled[rows].any()]
    if bare:
        raise ConfigError(
            f"{len(bare)} of {len(rows_of)} strata have no label, the first is {str(bare[0])!r}; "
            f"label some of its rows or join"
            " it with another stratum"
        )
    return [(rows, weights[name]) for name, rows in drawn.items()]


def _scaled_shares(shares: Mapping[Any, float], names: Sequence[Hashable]) -> dict[Hashable, float]:
    empty = [str(name) for name in shares if name not in names and shares[name] > 0]
    absent = [str(name) for name in names if name not in shares]
    if empty or absent:
        raise ConfigError(
            f"shares and strata differ: a share but no rows {empty[:5]}, rows but no share "
            f"{absent[:5]}"
        )
    total = math.fsum(shares.values())
    if not (math.isfinite(total) and total > 0.0 and min(shares.values()) >= 0.0):
        raise ConfigError(
            f"shares are numbers of at least 0 and not all 0; found "
            f"{dict(list(shares.items())[:5])}"
        )
    return {name: shares[name] / total for name in names}


def farthest_outside(values: Floats, low: float, high: float) -> float | None:
    """The lowest value below the bounds, else the highest above them; None where there is none."""
    outside = np.sort(values[(values < low) | (values > high)])
    return float(outside[0 if outside[0] < low else -1]) if len(outside) else None


def _check_labels(labels: Floats, low: float, high: float) -> None:
    worst = farthest_outside(labels, low, high)
    if worst is not None:
        raise ConfigError(
            f"a label is {worst:.15g}, outside the bounds {low:g}..{high:g}; name the labels' "
            f"scale in `bounds`"
        )


def _check_probabilities(chosen: Floats, labelled: Bools) -> None:
    if np.isnan(chosen[labelled]).any():
        raise ConfigError(
            "probabilities needs one for every labelled row: with what probability it was chosen "
            "for labelling"
        )
    wrong = chosen[(chosen <= 0.0) | (chosen > 1.0)]
    if len(wrong):
        raise ConfigError(
            f"probabilities lie above 0 and at most at 1; found {wrong[0]:.15g}. Rows that could"
            " not be chosen are no part of what labels can speak for; leave them out"
        )


class _Stratum(NamedTuple):
    """Estimate of one stratum with the pull and weight of each of its rows."""

    estimate: float
    pulls: Floats
    weights: Floats
    lam: float
    unseen: float
    parameters: int


def _stratum(
    f: Floats,
    y: Floats,
    chosen: Floats | None,
    verdicts: Array | None,
    groups: Array,
    bounds: tuple[float, float],
) -> _Stratum:
    """Correct the mean of one stratum.

    Args:
        f: judge score per row, NaN where there is none.
        y: label per row, NaN where there is none; at least one is there.
        chosen: probability of having been labelled per row, needed for labelled rows; None where
            all had the same.
        verdicts: number of the judge's verdict per row, -1 where there is none, each but that with
            a label; rows of a verdict are then predicted by the mean of its labels, and only chance
            within a verdict decides which are labelled.
        groups: cluster number per row.
        bounds: lowest and highest possible label.
    """
    labelled, missing = ~np.isnan(y), np.isnan(f)
    yl, m = y[labelled], int(labelled.sum())
    f = np.where(missing, 0.0 if missing.all() else f[~missing].mean(), f)
    weights: Floats = np.full(m, 1.0 / m)
    over = ~labelled  # whose predictions count
    if verdicts is not None:
        over = verdicts >= 0
        own, n = verdicts[labelled], int(over.sum())
        with_label = own >= 0
        held, rows = np.bincount(own[with_label]), np.bincount(verdicts[over])
        means = np.bincount(own[with_label], weights=yl[with_label]) / held
        weights = np.where(with_label, (rows / held)[own], 0.0) / n
        predicted = np.where(over, means[verdicts], float(means @ rows) / n)
        away = f[over] - f[over].mean()
        lam, parameters = float(away @ predicted[over] / (away @ away)), len(means)
    else:
        if chosen is not None:
            weights, over = 1.0 / chosen[labelled], np.ones(len(y), dtype=bool)
            weights = weights / weights.sum()
        lam = _tuned(f, y, chosen, weights, groups, bounds)
        predicted, parameters = lam * f, 1 + (lam != 0.0)
    n = int(over.sum())
    mean = float(predicted[over].mean()) if n else 0.0
    residuals = yl - predicted[labelled]
    base = residuals[0]  # residuals that are all equal have no spread, not that of rounding
    centre = float(base + weights @ (residuals - base))
    pulls = np.where(over, predicted - mean, 0.0) / math.sqrt(n * (n - 1.0) if n > 1 else 1.0)
    # means of verdicts that were fitted to the labels lie too near to them
    k, fitted = len(np.unique(groups[labelled])), 1 if verdicts is None else parameters
    near = math.sqrt((k - 1.0) / (k - fitted)) if k > fitted else 1.0
    pulls[labelled] += near * weights * (residuals - centre)
    every = np.zeros(len(y))
    every[labelled] = weights
    unseen = _unseen(yl, predicted[labelled] + centre, weights, bounds)
    return _Stratum(mean + centre, pulls, every, lam, unseen, parameters)


def _tuned(
    f: Floats,
    y: Floats,
    chosen: Floats | None,
    weights: Floats,
    groups: Array,
    bounds: tuple[float, float],
) -> float:
    """Weight of the judge with the least variance (PPI++, eq. 10, with the variance of all rows; over
    clusters with that of their sums; of labels with probabilities, a row sure to be labelled needs
    no judge).

    At least 0, and at most 1 where the judge is on the labels' scale. One that moves the estimate by
    rounding alone is 0: another processor rounds otherwise, and has another method and interval then.
    """
    labelled = ~np.isnan(y)
    fl, yl = f[labelled], y[labelled]
    m, n = len(yl), len(y)
    g, away = fl - float(weights @ fl), yl - float(weights @ yl)
    if chosen is None and np.bincount(groups).max() > 1 and m < n:
        gain = np.where(labelled, 0.0, (f - f[~labelled].mean()) / (n - m))
        gain[labelled] = -weights * g
        sums = np.bincount(groups, weights=gain)
        common, spread = -float(sums[groups[labelled]] @ (weights * away)), float(sums @ sums)
    elif chosen is None:
        common, spread = float(weights @ (g * away)) * (n - m), n * float(f.var(ddof=min(1, n - 1)))
    else:
        needed = weights * (1.0 / chosen[labelled] - 1.0)
        common, spread = float(needed @ (g * away)), float(needed @ (g * g))
    if m < 2 or m == n or spread <= 1e-24 * max(1.0, float(fl @ fl)):
        return 0.0
    if common * float(np.ptp(f)) <= _NEXT_TO_NOTHING * spread * float(np.ptp(yl)):
        return 0.0
    same_scale = bounds[0] <= float(f.min()) and float(f.max()) <= bounds[1]
    return min(max(common / spread, 0.0), 1.0 if same_scale else math.inf)


def _unseen(yl: Floats, predicted: Floats, weights: Floats, bounds: tuple[float, float]) -> float:
    """What up to one label more at the ends of the scale adds to the variance with each prediction.

    Few labels show few or none of a judge's errors; their plain variance is then far too small.
    """
    low, high = float(yl.min()), float(yl.max())
    if low == high and math.isfinite(bounds[1] - bounds[0]):
        low, high = bounds
    errors = (yl - predicted) ** 2
    ends = ((low - predicted) ** 2 + (high - predicted) ** 2) / 2.0
    if len(np.unique(yl)) > max(_MOST_LABELS, len(yl) // 2):
        ends = np.full(len(yl), errors.max())
    kinds, cells = np.unique(predicted, return_inverse=True)
    if len(kinds) > _MOST_CELLS:
        cells = np.zeros(len(yl), dtype=np.intp)
    counts, seen, square, supposed = (
        np.bincount(cells, weights=each) for each in (None, weights**2 * errors, weights**2, ends)
    )
    more = np.maximum(square * supposed / counts - seen, 0.0)
    one = min(1.0, _UNSEEN / len(counts))
    return float(np.sum(one * more / (counts + one)))
