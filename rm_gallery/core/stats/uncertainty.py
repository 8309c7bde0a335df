"""Where every interval, p-value and equivalence of the package comes from.

Near the truth any figure is a sum over rows (a mean, a difference, F1, a rank correlation, the
strength of a system): each row pulls the estimate a little, which statistics calls its influence.
Pulls of one cluster add up, and how far these sums lie apart is the variance. So an `Estimate` is its
value, a pull of each row, and the share of the information that each row brings. A difference of
two figures of the same rows is the difference of their pulls, so that pairing needs no code; nor
does a weighted mean, the largest of many differences, or a difference between subsets.

The p-value is defined, and the interval is what it does not refuse: they cannot disagree. Nothing
is said about other clusters from one cluster alone.

Sources: variance and degrees of freedom over clusters, R. Bell and D. McCaffrey, "Bias reduction in
standard errors for linear regression with multi-stage samples", 2002; the correlation within
clusters, A. Donner, 1986; score intervals for an effective number of rows, E. Korn and B. Graubard,
1998, and N. Dean and M. Pagano, 2015. Ours: scipy and statsmodels have no score interval over few,
uneven clusters, and none of both has pulls of figures that are no means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from rm_gallery.core.stats import ArrayLike, Floats, Integers, Names, np
from rm_gallery.core.stats.columns import cluster_numbers
from rm_gallery.core.stats.intervals import (
    Interval,
    check_level,
    score_ends,
    t_quantile,
    two_tails,
)
from rm_gallery.core.utils.errors import ConfigError

Scale = Literal["share", "correlation", "open"]
"""How a supposed value sets the spread: a share lies between its bounds, and its spread follows from
the supposed value (Wilson); a correlation has Fisher's z; on an open scale the spread is the
observed one (Student).
"""
_EQUAL = 1e-12
_FEW = 20
"""With fewer outcomes that are all or nothing, p-values are exact: the score test refuses a true
value up to three times too often.
"""
_NEVER_ONE = 1.0 - 1e-9

NO_INTERVAL = "no interval from one cluster"
"""What people read in the place of an interval that is None."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """A figure with all that its uncertainty rests on.

    Attributes:
        estimate: the figure.
        pulls: what each row moves the estimate by, shape (rows,).
        weights: share of the information that each row brings, shape (rows,), at least 0, sum 1; 0
            where it does not count, though it may pull (rows without a label).
        clusters: number of each row's cluster, from 0.
        bounds: smallest and largest possible figure; infinite where there is none.
        scale: see `Scale`; open where a bound is infinite.
        all_or_nothing: rows are worth nothing, half or all, so that their spread follows from the
            mean.
        parameters: means that one variance is taken around (strata): so many clusters say nothing.
        unseen: variance beyond what the rows show, where few rows show too little of what is rare.
    """

    estimate: float
    pulls: Floats = field(repr=False)
    weights: Floats = field(repr=False)
    clusters: Integers = field(repr=False)
    bounds: tuple[float, float] = (0.0, 1.0)
    scale: Scale = "share"
    all_or_nothing: bool = False
    parameters: int = 1
    unseen: float = 0.0

    @cached_property
    def n(self) -> int:
        """Rows that count."""
        return int(np.count_nonzero(self.weights))

    @cached_property
    def _by_cluster(self) -> tuple[Floats, Floats]:
        """Sums of pulls and of weights of each cluster."""
        sums, weights = (
            np.bincount(self.clusters, weights=each).astype(np.float64)
            for each in (self.pulls, self.weights)
        )
        return sums, weights

    @property
    def n_clusters(self) -> int:
        """Clusters with rows that count."""
        return int(np.count_nonzero(self._by_cluster[1]))

    @cached_property
    def effective_clusters(self) -> float:
        """Equally heavy clusters that weigh as much; fewer where some are larger than others."""
        weights = self._by_cluster[1]
        return _rounded(1.0 / float(weights @ weights))

    @cached_property
    def variance(self) -> float:
        """Sampling variance over clusters; infinite with one.

        At least that of one common correlation within clusters, for the few large ones may happen
        to agree, and at least that of independent rows.
        """
        sums, k = self._by_cluster[0], self.n_clusters
        if k < 2:
            return math.inf
        if self._binomial:
            return float(sums @ sums) + self.unseen
        counted = self.weights > 0.0
        codes, pulls = self.clusters[counted], self.pulls[counted]
        rows, every_row, alike = float(pulls @ pulls), float(self.pulls @ self.pulls), 1.0
        if k < self.n:
            sizes = np.bincount(codes).astype(np.float64)
            of_each: Floats = np.bincount(codes, weights=pulls)[sizes > 0.0].astype(np.float64)
            sizes = sizes[sizes > 0.0]
            alike += (float(sizes @ sizes) / self.n - 1.0) * _within(of_each, sizes, rows)
        apart = float(sums**2 @ self._leverage)
        return max(apart, rows * alike * k / (k - 1.0) + every_row - rows) + self.unseen

    @cached_property
    def _leverage(self) -> Floats:
        """By what the squared sum of each cluster grows, as the estimate leans towards it."""
        return 1.0 / (1.0 - np.minimum(self._by_cluster[1], _NEVER_ONE))

    @property
    def _binomial(self) -> bool:
        """Whether the mean says all about the spread: independent rows, all or nothing."""
        return self.all_or_nothing and self.scale == "share" and self.n_clusters == self.n

    @cached_property
    def df(self) -> float:
        """Degrees of freedom of the variance: those of a sum of squares over clusters as heavy as
        these (Satterthwaite, Bell and McCaffrey), or of as many equally heavy ones.
        """
        w, k = self._by_cluster[1], self.n_clusters
        if self._binomial or k < 2:
            return math.inf if k > 1 else 1.0
        d, square = w**2 * self._leverage, float(w @ w)
        own = 1.0 - 2.0 * w + square
        # over all pairs of clusters, less those of one with itself: d_i d_j (square - w_i - w_j)²
        total, first, second = float(d.sum()), float(d @ w), float(d @ w**2)
        pairs = (square * total) ** 2 + 2.0 * (second * total + first**2)
        pairs -= 4.0 * square * first * total + float(np.sum((d * (square - 2.0 * w)) ** 2))
        squares = float(np.sum((d * own) ** 2)) + max(pairs, 0.0)
        bell = float(d @ own) ** 2 / squares
        left = (k - self.parameters) / (k - 1.0)
        return max(1.0, left * max(bell, self.effective_clusters - 1.0))

    @property
    def standard_error(self) -> float:
        """Square root of the variance."""
        return math.sqrt(self.variance)

    @property
    def _known(self) -> bool:
        """Whether these rows say anything about others."""
        varies = self.variance > 0.0 or math.isfinite(self.bounds[0] + self.bounds[1])
        return self.n_clusters > max(1, self.parameters) and varies

    @cached_property
    def effective_n(self) -> float:
        """Independent outcomes, all or nothing, that would be as uncertain."""
        share, width = self._place(self.estimate), self.bounds[1] - self.bounds[0]
        spread = self.variance / width**2
        if not (spread > 0.0 and 0.0 < share < 1.0):
            return self.effective_clusters
        # nearer to an end than half a cluster, what is unseen decides, and not the share
        edge = 0.5 / (self.effective_clusters + 1.0) if self.unseen > 0.0 else 0.0
        if edge < share < 1.0 - edge:
            return _rounded(float(share * (1.0 - share) / spread))
        return min(self.effective_clusters, float(edge * (1.0 - edge) / spread))

    def _place(self, value: float) -> float:
        """Where a value lies between the bounds, 0..1."""
        low, high = self.bounds
        return min(max((value - low) / (high - low), 0.0), 1.0)

    @property
    def _no_row_differs(self) -> bool:
        """Whether no row differs from the others, though others could lie on either side."""
        return self.variance <= 0.0 and 0.0 < self._place(self.estimate) < 1.0

    @cached_property
    def _sign_p(self) -> float:
        """p-value of the sign test of "the truth is the middle of the bounds" over few clusters; ties
        lie on it and say nothing. 0 where others answer: with many, with graded rows, and where
        clusters lie differently far from the middle, of which a sign would throw away what they say.
        """
        if not self.all_or_nothing:
            return 0.0
        sums, weights = self._by_cluster
        away = sums + weights * (self.estimate - (self.bounds[0] + self.bounds[1]) / 2.0)
        near = _EQUAL * (self.bounds[1] - self.bounds[0])
        far = np.abs(away[np.abs(away) > near])
        if len(far) and float(np.ptp(far)) > near:
            return 0.0
        more = int(np.sum(away > near))
        return _two_binomial_tails(more, len(far), 0.5) if 0 < len(far) < _FEW else 0.0

    @property
    def _variance_or_unseen(self) -> float:
        """The variance; where no row differs, that of what was not seen, by the farther end of the
        interval.
        """
        if self.variance > 0.0 or (ends := self.interval()) is None:
            return self.variance
        reach = max(ends.high - self.estimate, self.estimate - ends.low)
        return (reach / t_quantile(math.inf, 0.95)) ** 2

    # -- what follows ------------------------------------------------------------------------------

    def p_value(self, null: float) -> float | None:
        """Two-sided p-value of "the true figure is `null`"; None where nothing is known.

        Below 1 - level exactly where the interval at that level leaves `null` out.
        """
        if not self._known:
            return None
        if abs(self.estimate - null) <= _EQUAL:
            return 1.0
        away = self.estimate - null
        if self._no_row_differs:
            # none was seen of so many others, each at the end of the scale, as would explain it
            end = self.bounds[0 if away > 0.0 else 1]
            others = min(1.0, away / (self.estimate - end))
            return min(1.0, 2.0 * math.pow(1.0 - others, self.effective_clusters))
        if self.scale == "share":
            share, place = self._place(self.estimate), self._place(null)
            p = share_p_value(share, self.effective_n, place, df=self.df, exact=self.all_or_nothing)
            before = min(share, 0.5) - _EQUAL <= place <= max(share, 0.5) + _EQUAL
            return max(p, self._sign_p) if before else p
        distance = abs(self._straight(self.estimate) - self._straight(null))
        error = self._straight_error
        return two_tails(self.df, distance / error) if error > 0.0 else 0.0

    def _straight(self, value: float) -> float:
        """A value where the spread is the same everywhere: Fisher's z of a correlation, short of ±1."""
        if self.scale == "open":
            return value
        return math.atanh(min(max(value, -_NEVER_ONE), _NEVER_ONE))

    @property
    def _straight_error(self) -> float:
        if self.scale == "open":
            return self.standard_error
        return self.standard_error / (1.0 - min(abs(self.estimate), _NEVER_ONE) ** 2)

    def interval(self, level: float = 0.95) -> Interval | None:
        """The values that are not refused at this level, within the bounds; None where nothing is
        known.
        """
        check_level(level)
        if not self._known:
            return None
        low, high = self.bounds
        quantile = t_quantile(self.df, level)
        if self._no_row_differs:
            reach = 1.0 - ((1.0 - level) / 2.0) ** (1.0 / self.effective_clusters)
            ends = (
                self.estimate - reach * (self.estimate - low),
                self.estimate + reach * (high - self.estimate),
            )
        elif self.scale == "share":
            share = score_ends(self._place(self.estimate), quantile**2 / self.effective_n)
            ends = share.low, share.high
            for edge in self._exact_ends(level):
                ends = min(ends[0], edge), max(ends[1], edge)
            ends = low + ends[0] * (high - low), low + ends[1] * (high - low)
        else:
            middle, half = self._straight(self.estimate), quantile * self._straight_error
            back = math.tanh if self.scale == "correlation" else float
            ends = max(low, back(middle - half)), min(high, back(middle + half))
        return Interval(min(ends[0], self.estimate), max(ends[1], self.estimate))

    def _exact_ends(self, level: float) -> list[float]:
        """Places that the exact p-values do not refuse and that may lie outside the score interval."""
        if not self.all_or_nothing:
            return []
        places: list[float] = []
        if self.effective_n < _FEW:
            places += binomial_ends(self._place(self.estimate), self.effective_n, level)
        if self._sign_p >= 1.0 - level:
            places.append(0.5)
        return places

    def surely_above(self, value: float, level: float = 0.95) -> bool:
        """Whether the figure lies above `value`, at half of 1 - level on one side."""
        p = self.p_value(value)
        return p is not None and self.estimate > value and p < 1.0 - level

    def within(self, margin: float, level: float = 0.95) -> bool:
        """Equivalence by two one-sided tests: whether a difference lies within ±margin for sure."""
        turned = combination([(self, -1.0)])
        return self.surely_above(-margin, level) and turned.surely_above(-margin, level)

    def detectable(self, power: float = 0.8, level: float = 0.95) -> float | None:
        """Smallest difference from a supposed value that a test at this level sees with this power.

        In the unit of the figure; None where nothing is known.
        """
        if not self._known or self.variance <= 0.0:
            return None
        return self.standard_error * (
            t_quantile(self.df, check_level(level)) + t_quantile(self.df, 2.0 * power - 1.0)
        )


def _rounded(count: float) -> float:
    """A count that is whole but for rounding, as it is."""
    return float(round(count)) if abs(count - round(count)) < 1e-9 * count else count


def _within(sums: Floats, sizes: Floats, squares: float) -> float:
    """Intraclass correlation of pulls, 0..1, from their sums over clusters and their sum of squares.

    (MSB - MSW) / (MSB + (m - 1) MSW) of the one-way analysis of variance, m the typical size.
    """
    n, k = float(sizes.sum()), len(sizes)
    if n <= k or k < 2 or squares <= 0.0:
        return 0.0
    between = float(np.sum(sums**2 / sizes))
    within = max(squares - between, 0.0) / (n - k)
    between /= k - 1
    typical = (n - float(sizes @ sizes) / n) / (k - 1)
    total = between + (typical - 1.0) * within
    return min(max((between - within) / total, 0.0), 1.0) if total > 0.0 else 0.0


def intraclass_correlation(values: Floats, clusters: Integers) -> float:
    """Intraclass correlation of values, 0..1; `clusters` are numbers from 0 without gaps."""
    residuals = values - math.fsum(values) / len(values)
    sums, sizes = (
        np.bincount(clusters, weights=each).astype(np.float64) for each in (residuals, None)
    )
    return _within(sums, sizes, float(residuals @ residuals))


def share_p_value(
    share: float, n: float, null: float, *, df: float = math.inf, exact: bool = True
) -> float:
    """Two-sided p-value of "the true share is `null`", from a share of `n` outcomes: the score test's,
    and with fewer than 20 outcomes that are all or nothing at least the binomial one.
    """
    spread = null * (1.0 - null) / n
    if spread <= 0.0:
        return float(abs(share - null) <= _EQUAL)
    p = two_tails(df, abs(share - null) / math.sqrt(spread))
    return max(p, _two_binomial_tails(share * n, n, null)) if exact and n < _FEW else p


def _two_binomial_tails(successes: float, n: float, null: float) -> float:
    """Twice the smaller binomial tail, interpolated for counts that are fractions.

    Ours: `scipy.stats.binomtest` takes whole counts; ties and clusters give fractions.
    """
    from scipy.special import betainc

    at_least = float(betainc(successes, n - successes + 1.0, null)) if successes > 0.0 else 1.0
    at_most = 1.0 - float(betainc(successes + 1.0, n - successes, null)) if successes < n else 1.0
    return min(1.0, 2.0 * min(at_least, at_most))


def binomial_ends(share: float, n: float, level: float) -> Interval:
    """Exact ends (Clopper and Pearson) of a share of `n` outcomes, whose counts may be fractions."""
    from scipy.special import betaincinv

    won, lost, tail = share * n, (1.0 - share) * n, (1.0 - level) / 2.0
    return Interval(
        float(betaincinv(won, lost + 1.0, tail)) if won > 0.0 else 0.0,
        float(betaincinv(won + 1.0, lost, 1.0 - tail)) if lost > 0.0 else 1.0,
    )


def share_ends(share: float, n: float, level: float, df: float = math.inf) -> Interval:
    """Ends of the interval of a share of `n` outcomes that are all or nothing: the score interval, with
    fewer than 20 at least the exact one.
    """
    ends = [score_ends(share, t_quantile(df, level) ** 2 / n)]
    if n < _FEW:
        ends.append(binomial_ends(share, n, level))
    return Interval(min(end.low for end in ends), max(end.high for end in ends))


# -- makers ----------------------------------------------------------------------------------------


def clustered_mean(
    values: ArrayLike,
    clusters: Names | None = None,
    *,
    strata: Names | None = None,
    weights: Mapping[Any, float] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Estimate | None:
    """Mean of outcomes that come in clusters, or the weighted mean of the means of strata.

    Outcomes that are all, half or nothing get the score test, graded ones their observed spread, so
    that a declared range matters near its ends only.

    Args:
        values: outcomes, shape (n,), finite and within `bounds`; leave out what has no outcome.
        clusters: one hashable name per outcome (an array of numbers is fastest); None where
            outcomes are independent. A cluster may have outcomes in several strata.
        strata: one name per outcome; the result is the unweighted mean of the strata's means.
        weights: weight per stratum instead, at least 0; strata without a weight are left out.
        bounds: smallest and largest possible outcome; (-1, 1) for differences of shares; infinite
            where there is none.

    Returns:
        The mean with its uncertainty; None without outcomes.

    Raises:
        ConfigError: lengths that differ, values outside the bounds or not finite, bounds or weights
            in the wrong order.
    """
    outcomes = np.asarray(values, dtype=np.float64)
    codes = cluster_numbers(clusters, len(outcomes))
    low, high = bounds
    if not low < high:
        raise ConfigError(f"bounds are (smallest, largest) possible outcome, got {bounds!r}")
    # rewards may miss an end of their range by so much, see `out_of_range`
    near = (outcomes >= low - 1e-9) & (outcomes <= high + 1e-9)
    wrong = outcomes[~(np.isfinite(outcomes) & near)]
    if len(wrong):
        raise ConfigError(
            f"outcomes have to be within {low}..{high}, got {wrong[0]}; give bounds= that hold them"
        )
    outcomes = np.clip(outcomes, low, high)
    places, shares = strata_shares(strata, weights, len(outcomes))
    if not len(outcomes) or not shares.any():
        return None
    counts = np.bincount(places, minlength=len(shares)).astype(np.float64)
    if len(shares) == 1:  # speed and room: a million rows
        means: Floats = np.array([math.fsum(outcomes) / len(outcomes)])
        per_row: Floats = np.full(len(outcomes), 1.0 / len(outcomes))
        residuals = outcomes - means[0]
    else:
        means = np.bincount(places, weights=outcomes, minlength=len(shares)) / counts
        per_row, residuals = (shares / counts)[places], outcomes - means[places]
    estimate, pulls = math.fsum(shares * means), residuals * per_row
    whole, unseen = all_or_nothing(outcomes, bounds), 0.0
    k = int(codes.max()) + 1
    if whole and residuals.any() and (k < len(outcomes) or len(shares) > 1):
        # half a cluster more at either end of each stratum: few near an end show neither the rare
        # side nor how alike rows are, and five that are all right have no spread at all
        cells, sizes = np.unique(places * k + codes, return_counts=True)
        clusters_in = np.bincount(cells // k)
        alike = intraclass_correlation(residuals, codes)
        squares = np.bincount(places, weights=residuals**2) / counts
        ends = ((means - low) ** 2 + (high - means) ** 2) / 2.0
        design = 1.0 + (np.bincount(cells // k, weights=sizes**2) / counts - 1.0) * alike
        # one repeated row changes little: independent rows need none of it
        more = np.maximum(ends - squares, 0.0) * design / counts / (clusters_in + 1.0)
        if len(shares) == 1:
            more = more * (1.0 - k / len(outcomes))
        unseen = float(np.sum(shares**2 * more))
    return Estimate(
        estimate,
        pulls,
        per_row,
        codes,
        bounds,
        scale_of(bounds),
        whole,
        int(np.count_nonzero(shares)),
        unseen,
    )


def scale_of(bounds: tuple[float, float]) -> Scale:
    """A share between finite bounds, else open."""
    return "share" if math.isfinite(bounds[0] + bounds[1]) else "open"


def all_or_nothing(outcomes: Floats, bounds: tuple[float, float]) -> bool:
    """Whether all outcomes lie on a bound or midway."""
    low, high = bounds
    middle = (low + high) / 2.0
    return math.isfinite(middle) and bool(
        ((outcomes == low) | (outcomes == high) | (outcomes == middle)).all()
    )


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


def share_of(
    part: ArrayLike,
    whole: ArrayLike,
    clusters: Names | None = None,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Estimate | None:
    """Sum over sum: precision, recall, F1, a mean per call. None where the lower sum is 0.

    Args:
        part: what each row adds above the line, shape (n,).
        whole: what it adds below, at least 0.
        clusters: one name per row.
        bounds: smallest and largest possible figure.
    """
    above, below = (np.asarray(side, dtype=np.float64) for side in (part, whole))
    total = float(below.sum())
    if total <= 0.0:
        return None
    estimate = float(above.sum()) / total
    pulls = (above - estimate * below) / total
    codes = cluster_numbers(clusters, len(above))
    return Estimate(estimate, pulls, below / total, codes, bounds, scale_of(bounds), True)


def combination(parts: Sequence[tuple[Estimate, float]]) -> Estimate:
    """Weighted sum of figures of the same rows; what they share cancels by itself.

    Raises:
        ConfigError: figures of other rows; `pooled` adds those.
    """
    codes = parts[0][0].clusters
    if not all(f.clusters is codes or np.array_equal(f.clusters, codes) for f, _ in parts):
        raise ConfigError("these figures are not of the same rows in the same clusters")
    size = math.fsum(abs(k) for _, k in parts)
    return _summed(
        parts,
        np.sum([k * figure.pulls for figure, k in parts], axis=0),
        np.sum([abs(k) / size * figure.weights for figure, k in parts], axis=0),
        codes,
        max(figure.parameters for figure, _ in parts),
    )


def difference(first: Estimate, second: Estimate) -> Estimate:
    """First minus second, of the same rows."""
    return combination([(first, 1.0), (second, -1.0)])


def pooled(parts: Sequence[tuple[Estimate, float]]) -> Estimate | None:
    """Weighted mean of figures that share no clusters; None without any.

    Weights are above 0 and are scaled to sum to 1.
    """
    if len(parts) < 2:
        return parts[0][0] if parts else None
    total = math.fsum(weight for _, weight in parts)
    shares = [(figure, weight / total) for figure, weight in parts]
    starts = np.cumsum([0, *(int(figure.clusters.max()) + 1 for figure, _ in parts[:-1])])
    return _summed(
        shares,
        np.concatenate([k * figure.pulls for figure, k in shares]),
        np.concatenate([k * figure.weights for figure, k in shares]),
        np.concatenate(
            [figure.clusters + start for (figure, _), start in zip(parts, starts, strict=True)]
        ),
        sum(figure.parameters for figure, _ in parts),
    )


def _summed(
    parts: Sequence[tuple[Estimate, float]],
    pulls: Floats,
    weights: Floats,
    clusters: Integers,
    parameters: int,
) -> Estimate:
    ends = [sorted(k * end for end in figure.bounds) for figure, k in parts]
    bounds = math.fsum(end[0] for end in ends), math.fsum(end[1] for end in ends)
    return Estimate(
        math.fsum(k * figure.estimate for figure, k in parts),
        pulls,
        weights,
        clusters,
        bounds,
        "share" if all(f.scale == "share" for f, _ in parts) else "open",
        all(figure.all_or_nothing for figure, _ in parts),
        parameters,
        math.fsum(k * k * figure.unseen for figure, k in parts),
    )


def of_sums(
    columns: Floats,
    statistic: Callable[[Floats], Any],
    clusters: Names | None = None,
    *,
    unseen: Floats | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    scale: Scale | None = None,
) -> Estimate | None:
    """Any figure of column sums, from what it is without each row (jackknife).

    Args:
        columns: what each row adds, shape (rows, columns).
        statistic: maps sums, shape (k, columns), to figures, shape (k,), NaN where undefined.
        clusters: one name per row.
        unseen: rows of each possible kind, shape (kinds, columns), of which half a one more is
            supposed: few rows show too little of what is rare.
        bounds: smallest and largest possible figure.
        scale: by default a share between finite bounds.

    Returns:
        The figure of all rows; None where it is undefined.
    """
    n, more = len(columns), 0.0
    if not n:
        return None
    sums = columns.sum(axis=0)
    estimate, pulls = _without(sums, columns, statistic)
    if not math.isfinite(estimate):
        return None
    pulls = pulls - pulls.sum() / n
    if unseen is not None:
        whole = sums + unseen.sum(axis=0) / 2.0
        supposed, of_unseen = (_without(whole, rows, statistic)[1] for rows in (columns, unseen))
        more = max(0.0, float(supposed @ supposed + of_unseen @ of_unseen / 2.0 - pulls @ pulls))
    weights: Floats = np.full(n, 1.0 / n)
    codes = cluster_numbers(clusters, n)
    return Estimate(estimate, pulls, weights, codes, bounds, scale or scale_of(bounds), unseen=more)


def _without(
    sums: Floats, rows: Floats, statistic: Callable[[Floats], Any]
) -> tuple[float, Floats]:
    """The figure of the sums, and what each row adds to it; 0 where the figure needs the row."""
    with np.errstate(invalid="ignore", divide="ignore"):
        whole, each = (
            np.asarray(statistic(of), dtype=np.float64) for of in (sums[None], sums - rows)
        )
        return float(whole[0]), np.nan_to_num(whole - each, posinf=0.0, neginf=0.0)


# -- several at once -------------------------------------------------------------------------------


def max_t(
    figures: Sequence[Estimate], null: float = 0.0, *, draws: int = 4000, seed: int = 0
) -> list[float | None]:
    """p-values of figures of the same rows, corrected for being the largest of them by chance.

    Whole clusters are turned at random, so figures that move together cost little. Step-down: each
    is held against those that are no more significant, so that none costs more than by Holm.

    Args:
        figures: figures of the same rows.
        null: the supposed value of each.
        draws: seeded draws; a smaller p-value than they can show is Bonferroni's.
        seed: seed of the draws.

    Source: P. Westfall and S. Young, "Resampling-based multiple testing", 1993; the multiplier
    bootstrap, with Student's spread for few clusters.
    """
    plain = [figure.p_value(null) for figure in figures]
    known = [(p, figure) for p, figure in zip(plain, figures, strict=True) if p is not None]
    if len(known) < 2:
        return plain
    order = sorted(range(len(known)), key=lambda place: known[place][0])
    size = 1 + max(int(figure.clusters.max()) for _, figure in known)
    table = np.stack([np.bincount(f.clusters, weights=f.pulls, minlength=size) for _, f in known])
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    table = table[order] / np.maximum(norms, np.finfo(float).tiny)[order]
    rng, df = np.random.default_rng(seed), min(figure.df for _, figure in known)
    spread = np.sqrt(rng.chisquare(df, draws) / df) if math.isfinite(df) else 1.0
    # sums of turned clusters are normal with this covariance: a million clusters need no million draws
    root = np.linalg.cholesky(table @ table.T + _EQUAL * np.eye(len(known)))
    turned = np.abs(root @ rng.standard_normal((len(known), draws))) / spread
    largest = np.maximum.accumulate(turned[::-1])[::-1]
    adjusted, highest = dict[int, float](), 0.0
    for rank, place in enumerate(order):
        p, reached = known[place][0], draws
        if 0.0 <= p < 1.0 and norms[place, 0] > 0.0:
            reached = int(np.sum(largest[rank] >= t_quantile(df, 1.0 - p))) if p > 0.0 else 0
        shown = min((reached + 1) / (draws + 1), p * (len(known) - rank))
        highest = adjusted[place] = min(1.0, max(highest, p, shown))
    values = (adjusted[place] for place in range(len(known)))
    return [None if p is None else next(values) for p in plain]


def nearest(low: Estimate, high: Estimate, value: float) -> Estimate:
    """Of a figure with what is missing at worst and at best, what lies nearest to a value."""
    if value <= low.estimate:
        return low
    return high if value >= high.estimate else replace(high, estimate=value)


def heterogeneity_between(limits: Sequence[tuple[Estimate, Estimate]]) -> float | None:
    """As `heterogeneity`, of figures with what is missing at worst and at best: the largest p-value of
    values that lie between.
    """
    ends = {figure.estimate for pair in limits for figure in pair}
    found = (heterogeneity([nearest(*pair, end) for pair in limits]) for end in ends)
    return max((p for p in found if p is not None), default=None)


def heterogeneity(parts: Iterable[Estimate]) -> float | None:
    """p-value of "figures of different clusters are all equal"; None for fewer than two.

    Shares, and differences of independent rows that are all or nothing, are held to the spread around
    the common mean, as the score test holds one: that of shares follows from it, that of differences
    is measured around it. Other variances are estimates, too: taken as known, equal parts of 20 rows
    were told apart in 17 %.

    Source: B. Welch, "On the comparison of several mean values: an alternative approach", 1951.
    """
    from scipy.special import fdtrc

    known = [part for part in parts if part._known]
    k = len(known)
    if k < 2:
        return None
    values = np.array([part.estimate for part in known])
    variances = np.array([part._variance_or_unseen for part in known])
    df = np.array([max(1.0, min(part.df, part.n_clusters - part.parameters)) for part in known])
    if all(part.all_or_nothing and part.scale == "share" for part in known):
        worth = np.array([part.effective_n for part in known])
        common = float(worth @ values / worth.sum())
        place, (low, high) = known[0]._place(common), known[0].bounds
        held = 0.0 < place < 1.0
        if held and high - low == 1.0:
            variances = place * (1.0 - place) / worth
        elif held := held and all(part._binomial for part in known):
            # a difference lies in -1..1, and its mean does not set its spread
            variances = variances + (values - common) ** 2 / [part.n for part in known]
        if held:
            df = np.array([part.df for part in known])
    weights = 1.0 / variances
    shares = weights / weights.sum()
    q = float(weights @ (values - shares @ values) ** 2) / (k - 1.0)
    spent = float(np.sum((1.0 - shares) ** 2 / df))
    q /= 1.0 + 2.0 * (k - 2.0) / (k**2 - 1.0) * spent
    return float(fdtrc(k - 1.0, (k**2 - 1.0) / (3.0 * max(spent, 1e-6)), q))
