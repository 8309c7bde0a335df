"""A judge's mean score, win rate or difference, corrected by the human labels that a part of the rows has.

All rows together say what the judge thinks, the labelled rows say how far the judge is off. The judge may be biased: its
bias is measured on the labelled rows and taken out, and how well it follows the labels only decides how narrow the interval
gets. Sources: A. Angelopoulos et al., "Prediction-powered inference" (arXiv 2301.09633) and "PPI++" (arXiv 2311.01453).

Where ours departs from the plain form, and why: a normal interval around the estimate covers 79 to 91 % instead of 95 % with
few labels and a high pass rate, always on the optimistic side, because a rate near its bound varies less than one farther
from it and because few labels show few of the judge's errors. The interval here is a score interval: the variance at a
supposed value t is (t - low)(high - t) / n_eff, as Wilson's is, where n_eff is the number of independent labels that would be
as precise; the variance behind n_eff is taken with a little pseudo-weight on rows at the ends of the scale, and the quantile
is Student's. So the interval stays within the bounds, and the p-value is the same test read the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Numbers = Sequence[float | None] | NDArray[np.float64]
    Floats = NDArray[np.float64]

# weight of the pseudo-rows per cell of labels; 0.5 is the least that keeps coverage with a judge that was never seen to err
_PSEUDO = 0.5
# labels of more different kinds than this are not looked at cell by cell
_MOST_CELLS = 4


@dataclass(frozen=True)
class Corrected:
    """A mean estimated from judge scores and labels together.

    Attributes:
        estimate: the corrected mean, in the unit of the labels; None without any label.
        ci95: its interval at `confidence`, within `bounds`; None without any label.
        method: "labels only", "prediction-powered" or "inverse probability".
        n: rows, judged or labelled or neither.
        n_labelled: rows with a label.
        lam: how much of the judge is used, 0 (nothing) to 1; may exceed 1 where the judge's scale is not the labels'.
        effective_labels: how many labels alone would be as precise as labels and judge together.
        notes: what the reader of the figure has to know, one sentence each.
        se: the standard error by the published formula; the interval has the allowances described above on top of it.
        df: degrees of freedom of the quantile.
        n_judged: rows with a judge score.
        n_clusters: independent groups of rows.
        judge_mean: mean of the judge's scores, uncorrected.
        labels_mean: mean of the labels alone.
        bounds: lowest and highest possible label.
        confidence: level of the interval.
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
    _score: _Score | None = field(default=None, repr=False, compare=False)

    def p_value(self, null: float) -> float | None:
        """Give the two-sided p-value of "the true mean is `null`"; below 1 - confidence exactly where the interval leaves it out.

        Raises:
            ConfigError: `null` lies outside the bounds.
        """
        if self._score is None:
            return None
        low, high = self.bounds
        if not low <= null <= high:
            raise ConfigError(
                f"p_value: null is {null!r}, outside the bounds {low:g}..{high:g}; name a value within them"
            )
        return self._score.p_value(null)


@dataclass(frozen=True)
class _Score:
    """One statistic, (estimate - t) / sqrt(variance at t), for the interval and the test alike."""

    estimate: float
    n_eff: float
    variance: float
    df: float
    low: float
    high: float

    def interval(self, level: float) -> Interval:
        quantile = _t_quantile(self.df, level)
        if math.isinf(self.n_eff):
            half = quantile * math.sqrt(self.variance)
            return Interval(max(self.low, self.estimate - half), min(self.high, self.estimate + half))
        span = self.high - self.low
        p, q2 = (self.estimate - self.low) / span, quantile * quantile / self.n_eff
        centre = (p + q2 / 2) / (1 + q2)
        half = math.sqrt(max(0.0, q2 * p * (1 - p) + q2 * q2 / 4)) / (1 + q2)
        # rounding must not push an end past the estimate where that lies at a bound
        lower = 0.0 if p <= 0.0 else max(0.0, centre - half)
        upper = 1.0 if p >= 1.0 else min(1.0, centre + half)
        return Interval(self.low + span * lower, self.low + span * upper)

    def p_value(self, null: float) -> float:
        from scipy.special import stdtr

        variance = self.variance
        if not math.isinf(self.n_eff):
            variance = (null - self.low) * (self.high - null) / self.n_eff
        distance = abs(self.estimate - null)
        if variance <= 0.0:
            return 1.0 if distance == 0.0 else 0.0
        return float(2.0 * stdtr(self.df if math.isfinite(self.df) else 1e12, -distance / math.sqrt(variance)))


def _t_quantile(df: float, level: float) -> float:
    from scipy.special import ndtri, stdtrit

    tail = (1.0 + level) / 2.0
    return float(stdtrit(df, tail)) if df < 1e6 else float(ndtri(tail))


def corrected_mean(
    judge: Numbers,
    labels: Numbers,
    *,
    clusters: Sequence[Hashable] | None = None,
    probabilities: Numbers | None = None,
    strata: Sequence[Hashable] | None = None,
    shares: Mapping[Any, float] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> Corrected:
    """Give the mean label of all rows, from the judge's score of all and the labels of some.

    A win rate is the mean of 1 for a win, 0.5 for a tie and 0 for a loss; where both orders were judged, a row's judge score is
    the mean of the two. Scores and labels are numbers and stay what they are, however fine.

    Args:
        judge: the judge's score per row, any scale; None or NaN where it gave none. Such a row stays in the population; it is
            predicted by the mean of the others, which costs precision and not correctness.
        labels: the label per row, within `bounds`; None or NaN where there is none. Which rows were labelled must be chance,
            or known: see `probabilities` and `strata`.
        clusters: a name per row where rows belong together (turns of a conversation, answers to a prompt). Clusters may be
            labelled in part.
        probabilities: per row the probability, 0..1, with which it was chosen for labelling; needed where that depended on the
            judge's verdict or on anything else that goes with the score. Rows without a label may have None.
        strata: a name per row; each stratum is corrected on its own and counts by its share of the rows.
        shares: the share of each stratum in the population, for post-stratification; scaled to sum to 1.
        bounds: lowest and highest possible label; either may be infinite.
        confidence: level of the interval.

    Raises:
        ConfigError: lengths differ, a label lies outside the bounds, a probability outside 0..1, a stratum has no label.
    """
    import numpy as np

    check_level(confidence)
    low, high = (float(bound) for bound in bounds)
    if not low < high:
        raise ConfigError(f"bounds are (lowest, highest) possible label; found ({low:g}, {high:g})")
    f, y = _numbers(judge, "judge"), _numbers(labels, "labels")
    n = len(y)
    chosen = None if probabilities is None else _numbers(probabilities, "probabilities")
    for name, length in (("judge", len(f)), ("clusters", _length(clusters)), ("strata", _length(strata))):
        if length not in (None, n):
            raise ConfigError(f"{name} needs one entry per row: found {length} for {n} labels")
    if chosen is not None and len(chosen) != n:
        raise ConfigError(f"probabilities needs one entry per row: found {len(chosen)} for {n} labels")
    labelled, judged = ~np.isnan(y), ~np.isnan(f)
    _check_labels(y[labelled], low, high)
    if chosen is not None:
        _check_probabilities(chosen[labelled])
    m = int(labelled.sum())
    notes: list[str] = []
    if m < n and not judged.all():
        notes.append(f"{n - int(judged.sum())} of {n} rows have no judge score; they count with the mean of the others")
    judge_mean = float(f[judged].mean()) if judged.any() else None
    groups = _codes(clusters, n)
    if m == 0:
        notes.append("no row has a label, so nothing can be corrected")
        return Corrected(
            None, None, "none", n, 0, 0.0, 0.0, tuple(notes), None, math.inf, int(judged.sum()), _count(groups),
            judge_mean, None, (low, high), confidence,
        )  # fmt: skip
    parts = _strata(strata, shares, labelled)
    psi, floor, theta, lams, alone = np.zeros(n), 0.0, 0.0, 0.0, 0.0
    spread = 0.0
    dfs: list[tuple[float, float]] = []
    for rows, share in parts:
        part = _part(f[rows], y[rows], None if chosen is None else chosen[rows], groups[rows], (low, high))
        psi[rows] = share * part.psi
        theta += share * part.estimate
        lams += share * part.lam
        floor += share**2 * part.floor
        alone += share**2 * part.alone
        spread += share * part.estimate**2
        dfs.append((share**2 * part.variance, part.df))
    sums = np.bincount(groups, weights=psi)
    variance = float(sums @ sums) + floor
    if shares is None and len(parts) > 1:  # the shares are themselves counted on these rows
        variance += max(0.0, spread - theta**2) / n
    total = sum(v for v, _ in dfs)
    df = total**2 / sum(v**2 / d for v, d in dfs) if total > 0 else min(d for _, d in dfs)
    inside = min(max(theta, low), high)
    score = _Score(inside, _n_eff(inside, variance, m, low, high), variance, df, low, high)
    if df < 4:
        notes.append(f"only {m} labels: the interval rests on very little")
    uses_judge = m < n and lams > 0.0
    method = "inverse probability" if chosen is not None else "prediction-powered" if uses_judge else "labels only"
    return Corrected(
        inside, score.interval(confidence), method, n, m, lams, m * alone / variance if variance > 0 else float(m),
        tuple(notes), math.sqrt(float(sums @ sums)), df, int(judged.sum()), _count(groups), judge_mean, float(y[labelled].mean()),
        (low, high), confidence, score,
    )  # fmt: skip


def corrected_difference(
    judge_a: Numbers,
    judge_b: Numbers,
    labels_a: Numbers,
    labels_b: Numbers,
    *,
    clusters: Sequence[Hashable] | None = None,
    probabilities: Numbers | None = None,
    strata: Sequence[Hashable] | None = None,
    shares: Mapping[Any, float] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> Corrected:
    """Give the mean label of A minus that of B on the same rows; above 0 A is better. `p_value(0)` tests that they are equal.

    A row counts as labelled where both sides have a label, and as judged where both have a score. `bounds` are those of one
    side's labels; the rest is as in `corrected_mean`.

    Raises:
        ConfigError: as `corrected_mean`.
    """
    sides = [
        (_numbers(values, name), name)
        for values, name in (
            (judge_a, "judge_a"), (judge_b, "judge_b"), (labels_a, "labels_a"), (labels_b, "labels_b"),
        )
    ]  # fmt: skip
    if len({len(values) for values, _ in sides}) > 1:
        lengths = ", ".join(f"{name} {len(values)}" for values, name in sides)
        raise ConfigError(f"both sides need one entry per row: found {lengths}")
    (fa, _), (fb, _), (ya, _), (yb, _) = sides
    low, high = bounds
    for values in (ya, yb):
        _check_labels(values[values == values], low, high)
    return corrected_mean(
        fa - fb, ya - yb, clusters=clusters, probabilities=probabilities, strata=strata, shares=shares,
        bounds=(low - high, high - low), confidence=confidence,
    )  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """One stratum: estimate and what every row of it adds to the error (`psi`)."""

    estimate: float
    lam: float
    psi: Floats
    variance: float
    floor: float
    alone: float
    df: float


def _part(f: Floats, y: Floats, chosen: Floats | None, groups: NDArray[Any], bounds: tuple[float, float]) -> _Part:
    import numpy as np

    labelled = ~np.isnan(y)
    missing = np.isnan(f)
    if missing.any():
        f = np.where(missing, 0.0 if missing.all() else f[~missing].mean(), f)
    m, n = int(labelled.sum()), len(y)
    fl, yl, gl = f[labelled], y[labelled], groups[labelled]
    if chosen is None:
        weights = np.full(m, 1.0 / m)
        lam = _tuned(fl, yl, f, n - m, bounds)
        mean_f = float(f[~labelled].mean()) if m < n else 0.0
        deviations = np.where(labelled, 0.0, f - mean_f) / max(n - m, 1)
        side = ~labelled
    else:
        inverse = 1.0 / chosen[labelled]
        weights = inverse / inverse.sum()
        lam = _tuned_weighted(fl, yl, f, inverse, weights, bounds)
        mean_f = float(f.mean())
        deviations = (f - mean_f) / n
        side = np.ones(n, dtype=bool)
    residuals = yl - lam * fl
    centre = float(weights @ residuals)
    theta = lam * mean_f + centre
    residuals = residuals - centre
    own = weights * residuals
    clusters = _count(gl)
    psi = lam * deviations * _bessel(_count(groups[side]))
    psi[labelled] += own * _bessel(clusters)
    plain = float(own @ own) * _bessel(m) ** 2
    cells = _cells(fl, None if chosen is None else chosen[labelled])
    ends = (float(yl.min()), float(yl.max())) if yl.min() < yl.max() else bounds
    if math.isinf(ends[0]) or math.isinf(ends[1]):
        ends = (float(yl.min()), float(yl.max()))
    floor = _squares(residuals, fl, lam, centre, weights, cells, ends) - plain
    # labels alone, under the same weights and pseudo-rows, for comparison
    bare = yl - float(weights @ yl)
    alone = _squares(bare, fl, 0.0, float(weights @ yl), weights, cells, ends)
    sizes = np.bincount(gl, weights=weights)
    df = max(1.0, float(1.0 / (sizes @ sizes)) - (1.0 if lam == 0.0 else 2.0))
    sums = np.bincount(groups, weights=psi)
    variance = float(sums @ sums) + max(floor, 0.0)
    if _count(groups) < n:  # rows of one cluster: the labels alone would have suffered from that as well
        together = np.bincount(gl, weights=weights * bare) * _bessel(clusters)
        alone += float(together @ together) - float((weights * bare) @ (weights * bare)) * _bessel(m) ** 2
    return _Part(theta, lam, psi, variance, max(floor, 0.0), alone, df)


def _tuned(fl: Floats, yl: Floats, f: Floats, n_unlabelled: int, bounds: tuple[float, float]) -> float:
    """The share of the judge that makes the estimate most precise (PPI++, eq. 10, with the variance over all rows)."""
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
    """The same where labels were drawn with known probabilities: a row that was sure to be labelled needs no judge."""
    needed = weights * (inverse - 1.0)
    g = fl - float(weights @ fl)
    spread = float(needed @ (g * g))
    if len(yl) < 2 or spread <= 1e-12 * max(1.0, float(fl @ fl)):
        return 0.0
    return _clipped(float(needed @ (g * (yl - float(weights @ yl)))) / spread, f, bounds)


def _clipped(lam: float, f: Floats, bounds: tuple[float, float]) -> float:
    """Never against the judge, and never more than all of it where it speaks in the labels' unit."""
    same_scale = bounds[0] <= float(f.min()) and float(f.max()) <= bounds[1]
    return min(max(lam, 0.0), 1.0) if same_scale else max(lam, 0.0)


def _squares(
    residuals: Floats,
    fl: Floats,
    lam: float,
    centre: float,
    weights: Floats,
    cells: NDArray[Any],
    ends: tuple[float, float],
) -> float:
    """Sum of squared weighted residuals as if each cell held a little more: half a row, at either end of the scale.

    Few labels show few of the errors a judge makes, often none; their plain variance is then far too small.
    """
    import numpy as np

    pseudo = sum((end - lam * fl - centre) ** 2 for end in ends) / 2.0
    counts = np.bincount(cells).astype(np.float64)
    strength = _PSEUDO if len(counts) > 1 else 2.0 * _PSEUDO
    observed = np.bincount(cells, weights=residuals**2)
    supposed = np.bincount(cells, weights=pseudo) / counts
    moments = (observed + strength * supposed) / (counts + strength)
    m = len(fl)
    return float(np.bincount(cells, weights=weights**2) @ moments) * (m / (m - 1.0) if m > 1 else 1.0)


def _cells(fl: Floats, probabilities: Floats | None) -> NDArray[Any]:
    """Kinds of labelled rows: by their probability of being labelled, else by the verdict, where there are few kinds."""
    import numpy as np

    for values in (probabilities, fl):
        if values is not None:
            kinds, cells = np.unique(values, return_inverse=True)
            if 1 < len(kinds) <= _MOST_CELLS:
                return cells
    return np.zeros(len(fl), dtype=np.intp)


def _n_eff(theta: float, variance: float, m: int, low: float, high: float) -> float:
    """Independent 0/1 labels that would be as precise; the mean is drawn a little to the middle, as its variance was."""
    if math.isinf(low) or math.isinf(high):
        return math.inf
    drawn = (m * theta + 2.0 * _PSEUDO * (low + high) / 2.0) / (m + 2.0 * _PSEUDO)
    return (drawn - low) * (high - drawn) / variance if variance > 0.0 else math.inf


def _strata(
    strata: Sequence[Hashable] | None, shares: Mapping[Any, float] | None, labelled: NDArray[np.bool_]
) -> list[tuple[NDArray[Any], float]]:
    import numpy as np

    n = len(labelled)
    if strata is None:
        if shares is not None:
            raise ConfigError("shares are those of strata; name the stratum of every row in `strata` too")
        return [(np.arange(n), 1.0)]
    members: dict[Hashable, list[int]] = {}
    for i, name in enumerate(strata):
        members.setdefault(name, []).append(i)
    bare = [str(name) for name, rows in members.items() if not labelled[rows].any()]
    weights = {name: len(rows) / n for name, rows in members.items()}
    if shares is not None:
        missing = [str(name) for name in shares if name not in members and shares[name] > 0]
        absent = [str(name) for name in members if name not in shares]
        if missing or absent:
            raise ConfigError(
                f"shares and strata name different strata: without rows {missing[:5]}, without a share {absent[:5]}"
            )
        total = math.fsum(shares.values())
        if not (math.isfinite(total) and total > 0 and all(share >= 0 for share in shares.values())):
            raise ConfigError("shares are numbers of at least 0, and not all of them 0")
        weights = {name: shares[name] / total for name in members}
        bare = [name for name in bare if any(str(k) == name and weights[k] > 0 for k in members)]
    if bare:
        raise ConfigError(
            f"{len(bare)} of {len(members)} strata have no label, first {bare[0]!r}; label some of its rows or join it"
            " with another stratum"
        )
    return [(np.array(rows), weights[name]) for name, rows in members.items() if weights[name] > 0]


def _numbers(values: Numbers | ArrayLike, name: str) -> Floats:
    """As floats with NaN for what is missing; infinities and texts are refused, never cast."""
    import numpy as np

    try:
        found = np.array(values, dtype=np.float64)  # None becomes NaN
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} holds numbers, or None where there is none: {error}") from None
    if found.ndim != 1:
        raise ConfigError(f"{name} is one number per row; found an array of shape {found.shape}")
    if np.isinf(found).any():
        raise ConfigError(f"{name} holds an infinite number in row {int(np.flatnonzero(np.isinf(found))[0])}")
    return found


def _check_labels(labels: Floats, low: float, high: float) -> None:
    if len(labels) and not (low <= labels.min() and labels.max() <= high):
        worst = labels.min() if labels.min() < low else labels.max()
        raise ConfigError(
            f"a label is {worst:g}, outside the bounds {low:g}..{high:g}; name the labels' scale in `bounds`"
        )


def _check_probabilities(chosen: Floats) -> None:
    if not ((chosen > 0.0) & (chosen <= 1.0)).all():
        raise ConfigError("probabilities of labelled rows lie above 0 and at most at 1; found another, or none")


def _length(values: Sequence[Hashable] | None) -> int | None:
    return None if values is None else len(values)


def _codes(clusters: Sequence[Hashable] | None, n: int) -> NDArray[Any]:
    import numpy as np

    if clusters is None:
        return np.arange(n)
    places: dict[Hashable, int] = {}
    return np.array([places.setdefault(name, len(places)) for name in clusters], dtype=np.intp)


def _count(codes: NDArray[Any]) -> int:
    import numpy as np

    return len(np.unique(codes))


def _bessel(k: int) -> float:
    return math.sqrt(k / (k - 1.0)) if k > 1 else 1.0
