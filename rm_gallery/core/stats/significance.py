"""Paired tests, corrections for several tests, and tests that are valid at every look.

A paired test finds far smaller differences than two separate intervals.

An ordinary interval holds for one look at a sample size fixed beforehand; looked at after every row
it is wrong about half of the time. Confidence sequences and sequential tests err with probability
at most 1 - confidence over *all* looks together, whenever one stops. Source of both: I.
Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting" (arXiv
2010.09686), theorems 2 and 3; ours, as their package `confseq` has no weights. Observations lie
within known bounds: wins with ties as 1, 0.5 and 0, graded scores, paired differences with bounds
(-1, 1). Rows of one cluster go in as their mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

from rm_gallery.core.stats import ArrayLike, Floats, Names, np
from rm_gallery.core.stats.agreement import complete_pairs
from rm_gallery.core.stats.columns import names_where
from rm_gallery.core.stats.intervals import Interval, check_bounds, check_level
from rm_gallery.core.stats.uncertainty import Estimate, clustered_mean
from rm_gallery.core.utils.errors import ConfigError


def sign_test(more: int, less: int, *, mid: bool = False) -> float:
    """Exact two-sided p-value of "both signs are equally probable"; 1 without a pair.

    `mid` counts half the probability of the observed outcome: its level is right on average, where
    the exact one is conservative. On discordant pairs it is McNemar's mid-p test. Ours: scipy's
    `binomtest` and statsmodels' `mcnemar` have no mid-p.

    Raises:
        ConfigError: a count is negative.
    """
    from scipy.stats import binom

    if min(more, less) < 0:
        raise ConfigError(f"counts are at least 0, found {more} and {less}")
    tail, at = (float(of(min(more, less), more + less, 0.5)) for of in (binom.cdf, binom.pmf))
    return min(1.0, 2.0 * tail - mid * at)


def sign_test_over(signs: ArrayLike, clusters: Names | None = None) -> float | None:
    """Two-sided p-value of "both signs are equally probable": `sign_test` of independent rows, else over
    clusters; None for one cluster.

    Args:
        signs: 1 or -1 per row that has a sign.
        clusters: one name per row.
    """
    values = np.asarray(signs, dtype=np.float64)
    mean = clustered_mean(values, clusters, bounds=(-1.0, 1.0))
    if mean is None or mean.n_clusters == mean.n:
        return sign_test(int((values > 0.0).sum()), int((values < 0.0).sum()))
    return mean.p_value(0.0)


class McNemar(NamedTuple):
    """Result of McNemar's test.

    Attributes:
        only_first: samples the first is right on and the second wrong.
        only_second: samples the second is right on and the first wrong.
        p_value: two-sided mid-p-value of "both are equally often right"; right on average.
        p_exact: the exact binomial p-value; never too small, often too large.
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
        needed: about how many samples like these would show a difference of this size in four of
            five comparisons; None without a difference.
        n: samples compared.
        n_clusters: clusters they come from.
        n_left_out: samples without an outcome on one side or both.
        detectable: the smallest difference that samples like these show in four of five
            comparisons; None where nothing is known.
    """

    difference: float | None
    interval: Interval | None
    p_value: float | None
    needed: int | None
    n: int
    n_clusters: int
    n_left_out: int
    detectable: float | None = None


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
) -> Estimate | None:
    """Mean of first minus second with its uncertainty; None where no sample has both.

    Args:
        first: outcome per sample, 0..1, for example 1.0 right, 0.0 wrong; None or NaN where there
            is none.
        second: the same for the other judge.
        clusters: one name per sample (several samples of one prompt).
        strata: one name per sample where the figure is a mean of parts, each weighing the same or
            as `weights` say.
        weights: weight per stratum.

    Raises:
        ConfigError: if lengths differ or an outcome is not within 0..1.
    """
    if len(first) != len(second):
        raise ConfigError(
            f"both judges need one outcome per sample, got {len(first)} and {len(second)}"
        )
    for names, what in ((clusters, "cluster"), (strata, "stratum")):
        if names is not None and len(names) != len(first):
            raise ConfigError(
                f"one {what} name per sample is needed, got {len(names)} names for {len(first)} "
                f"samples"
            )
    a, b = (np.asarray(given, dtype=np.float64) for given in (first, second))  # None becomes NaN
    kept = ~(np.isnan(a) | np.isnan(b))
    own, parts = names_where(clusters, kept), names_where(strata, kept)
    return clustered_mean(a[kept] - b[kept], own, strata=parts, weights=weights, bounds=(-1.0, 1.0))


def paired_difference(
    first: Sequence[float | None],
    second: Sequence[float | None],
    *,
    clusters: Names | None = None,
    strata: Names | None = None,
    weights: Mapping[Any, float] | None = None,
    level: float = 0.95,
) -> PairedDifference:
    """Mean difference of two outcomes on the same samples, with interval and p-value that agree.

    Arguments and errors as in `paired_mean`; `level` is that of the interval.
    """
    check_level(level)
    mean = paired_mean(first, second, clusters=clusters, strata=strata, weights=weights)
    if mean is None:
        return PairedDifference(None, None, None, None, 0, 0, len(first))
    return described(mean, len(first) - mean.n, level)


def described(mean: Estimate, n_left_out: int = 0, level: float = 0.95) -> PairedDifference:
    """Interval and p-value of a mean difference, and the samples a difference like it needs."""
    difference = mean.estimate
    # per sample, clusters included: the mean square is the variance and the square of the mean
    square = mean.variance * mean.n + difference**2
    known = difference != 0.0 and math.isfinite(square)
    needed = pairs_needed(difference, square) if known else None
    return PairedDifference(
        difference,
        mean.interval(level),
        mean.p_value(0.0),
        needed,
        mean.n,
        mean.n_clusters,
        n_left_out,
        mean.detectable(),
    )


def pairs_needed(
    difference: float, disagreement: float, *, power: float = 0.8, level: float = 0.95
) -> int:
    """Samples both judges have to score so that a difference is found with probability `power`.

    n = ((z_level sqrt(D) + z_power sqrt(D - d^2)) / d)^2. Ours: statsmodels has no sample size for
    paired shares.

    Args:
        difference: true mean of first minus second, not 0.
        disagreement: mean square of first minus second: for right or wrong, the share of samples on
            which they differ.
        power: probability to see it.
        level: confidence level of the test.

    Raises:
        ConfigError: for a difference of 0, one above what the disagreement allows, or a power or
            level that is none.

    Source: R. Connor, "Sample size for testing differences in proportions for the paired-sample
    design", 1987.
    """
    check_level(level)
    if not 0.0 < power < 1.0:
        raise ConfigError(f"power lies strictly between 0 and 1, for example 0.8; got {power!r}")
    if difference == 0.0 or not difference**2 <= disagreement + 1e-12:
        raise ConfigError(
            f"a difference of {difference!r} cannot come from judges that disagree in "
            f"{disagreement!r}"
        )
    normal = NormalDist()
    null, real = math.sqrt(disagreement), math.sqrt(max(disagreement - difference**2, 0.0))
    reach = normal.inv_cdf((1.0 + level) / 2.0) * null + normal.inv_cdf(power) * real
    return math.ceil((reach / difference) ** 2 - 1e-9)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for the chance of any false alarm, 0..1, in the order given.

    The i-th smallest of m becomes max over j <= i of (m - j + 1) p_j. Source: S. Holm, 1979. Ours:
    only statsmodels has it, whose import takes longer than a report.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        adjusted[place] = highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
    return adjusted


# -- at every look ---------------------------------------------------------------------------------

# Shares of the capital that are bet, each a third larger than the last, so that one of them is near
# the best for any difference. Those for tiny differences get a smaller part of the capital.
_SHARES = [0.002 * 1.36**k for k in range(20)]
# Observations are kept as counts per value; more different values than this are kept rounded, away
# from the conclusion.
_MOST_VALUES = 1000
_NEAR = 1e-7


class _Bets:
    """Capital of a bettor on both sides of a supposed mean m; its expectation is 1 if m is true.

    For each share c the capital after observations x within 0..1 is the product of 1 - c + c x / m
    on one side and of 1 - c + c (1 - x) / (1 - m) on the other. It does not depend on their order,
    so counts per value are kept; the sum is convex in m. An observation of weight w bets w c, which
    tests the weighted mean.
    """

    def __init__(self) -> None:
        self.n = 0
        self.sum = 0.0
        self.weight = 0.0
        self._counts: Counter[tuple[float, float]] = Counter()
        self._coarse = False
        self._table: Floats | None = None

    def add(self, x: float, weight: float = 1.0) -> None:
        self.n += 1
        self.sum += weight * x
        self.weight += weight
        if (
            not self._coarse
            and len(self._counts) >= _MOST_VALUES
            and (x, weight) not in self._counts
        ):
            self._coarse, fine, self._counts = True, self._counts, Counter()
            for (value, own), k in fine.items():
                self._counts[_rounded_cell(value), own] += k
        self._counts[_rounded_cell(x) if self._coarse else x, weight] += 1
        self._table = None

    def log(self, m: float) -> float:
        """Logarithm of the capital against the mean `m`, 0..1."""
        if (m <= 0.0 and self.sum > 0.0) or (m >= 1.0 and self.sum < self.weight):
            return math.inf
        if self._table is None:
            lower, weights = np.array(list(self._counts)).T
            upper = lower
            # each side gets the end of the cell that makes it less: what is concluded stays true
            if self._coarse:
                lower, upper = lower / _MOST_VALUES, np.minimum(1.0, (lower + 1.0) / _MOST_VALUES)
            self._table = np.array([lower, upper, weights, list(self._counts.values())])
        lower, upper, weights, counts = self._table
        ratios = (
            lower / m if m > 0.0 else 1.0,
            (1.0 - upper) / (1.0 - m) if m < 1.0 else 1.0,
        )
        logs = [_log_gains(weights * (ratio - 1.0)) @ counts for ratio in ratios]
        return _log_of_mean(np.array(logs))


def _rounded_cell(x: float) -> float:
    return float(math.floor(x * _MOST_VALUES))


@cache
def _bets() -> tuple[Floats, Floats]:
    """Shares that are bet, and the logarithms of the parts of the capital they get."""
    shares = np.array(_SHARES)
    parts = shares / (shares + 0.03)
    return shares, np.log(parts / parts.sum())


def _log_gains(gains: ArrayLike) -> Floats:
    """Logarithms of what each bet's capital is multiplied by, shape (bets, gains)."""
    multiplied: Floats = np.log1p(np.multiply.outer(_bets()[0], gains))
    return multiplied


def _log_of_mean(logs: Floats) -> float:
    """Logarithm of the capital of all bets, the mean over sides; shape (sides, bets)."""
    logs = logs + _bets()[1]
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()) / len(logs))


def _scaled(x: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    if not low <= x <= high:
        raise ConfigError(
            f"an observation is {x!r}, outside the bounds {low:g}..{high:g} of this sequence"
        )
    return (float(x) - low) / (high - low)


def _check_weight(weight: float) -> float:
    if not 0.0 < weight <= 1.0:
        raise ConfigError(
            f"weight is {weight!r}; it is a share of the largest one, above 0 and at most 1"
        )
    return float(weight)


class ConfidenceSequence:
    """An interval for the mean that holds at every look at once, with probability `confidence`.

    Args:
        bounds: lowest and highest possible observation.
        confidence: level over all looks together.
        method: "betting" (narrowest) or "empirical bernstein" (closed form).

    The interval is the intersection of all intervals so far, so it never widens.
    """

    def __init__(
        self,
        bounds: tuple[float, float] = (0.0, 1.0),
        confidence: float = 0.95,
        *,
        method: Literal["betting", "empirical bernstein"] = "betting",
    ) -> None:
        self.bounds = check_bounds(bounds)
        self.confidence = check_level(confidence)
        if method not in ("betting", "empirical bernstein"):
            raise ConfigError(f"method is 'betting' or 'empirical bernstein', found {method!r}")
        self.method = method
        self._bets = _Bets()
        self._low, self._high = 0.0, 1.0
        self._bernstein = _EmpiricalBernstein(confidence)
        self._stale = False

    def add(self, x: float, weight: float = 1.0) -> None:
        """Take in one observation.

        Args:
            x: the observation.
            weight: what it counts in the mean, as a share of the most that any may count, known
                beforehand: the mean of a cluster counts its number of rows over that of the largest
                    cluster. Only by betting.

        Raises:
            ConfigError: it lies outside the bounds or is NaN, or the weight is none.
        """
        scaled, weight = _scaled(x, self.bounds), _check_weight(weight)
        if weight != 1.0 and self.method != "betting":
            raise ConfigError(
                f"weight is {weight!r} and a sequence by {self.method} has none; use "
                f"method='betting'"
            )
        self._bets.add(scaled, weight)
        if self.method == "betting":
            self._stale = True
        else:
            low, high = self._bernstein.add(scaled)
            if max(low, self._low) <= min(high, self._high):
                self._low, self._high = max(low, self._low), min(high, self._high)

    def extend(self, observations: Iterable[float]) -> None:
        """Take in several observations; the interval afterwards is that of one look at all of them."""
        for x in observations:
            self.add(x)

    @property
    def n(self) -> int:
        """Number of observations so far."""
        return self._bets.n

    @property
    def mean(self) -> float | None:
        """Mean of the observations so far; None without any."""
        return self._on_scale(self._bets.sum / self._bets.weight) if self.n else None

    @property
    def interval(self) -> Interval:
        """The interval now, within the bounds."""
        if self._stale:
            self._narrow()
        return Interval(self._on_scale(self._low), self._on_scale(self._high))

    def _on_scale(self, share: float) -> float:
        low, high = self.bounds
        return low + (high - low) * share

    def excludes(self, value: float) -> bool:
        """Tell whether the interval leaves `value` out, which decides the comparison with it."""
        return not self.interval.covers(value)

    def _narrow(self) -> None:
        self._stale = False
        middle = min(max(self._bets.sum / self._bets.weight, self._low), self._high)
        self._low = self._moved_inwards(self._low, middle)
        self._high = self._moved_inwards(self._high, middle)

    def _refutes(self, m: float) -> bool:
        return self._bets.log(m) >= -math.log(1.0 - self.confidence)

    def _moved_inwards(self, end: float, middle: float) -> float:
        """An end of the interval, moved inwards by bisection as far as the capital refutes it."""
        if not self._refutes(end) or self._refutes(middle):
            return end
        inside = middle
        while abs(inside - end) > _NEAR:
            half = (end + inside) / 2.0
            if self._refutes(half):
                end = half
            else:
                inside = half
        return end


class _EmpiricalBernstein:
    """Closed-form sequence on 0..1 (theorem 2), with one pseudo-observation at 1/2 of variance 1/4."""

    def __init__(self, confidence: float) -> None:
        self._log, self._log_bet = math.log(2.0 / (1.0 - confidence)), -math.log(1.0 - confidence)
        self._n = 0
        self._sum, self._squares = 0.5, 0.25
        self._bets = self._weighted = self._penalty = 0.0

    def add(self, x: float) -> tuple[float, float]:
        i = self._n = self._n + 1
        mean, variance = self._sum / i, self._squares / i
        bet = min(0.5, math.sqrt(2.0 * self._log_bet / (variance * i * math.log1p(i))))
        self._bets += bet
        self._weighted += bet * x
        self._penalty += (x - mean) ** 2 * (-math.log1p(-bet) - bet)
        self._sum += x
        self._squares += (x - self._sum / (i + 1)) ** 2
        centre, half = self._weighted / self._bets, (self._log + self._penalty) / self._bets
        return centre - half, centre + half


_SIDES = {"two-sided": slice(0, 2), "greater": slice(0, 1), "less": slice(1, 2)}
"""Who bets in a test: those on values above the supposed mean, then those on values below it."""


class SequentialTest:
    """Test of one value, valid at every look: P(p-value ever below 0.05) <= 5 % if `null` is true.

    Against a fixed baseline it is sharper than a confidence sequence.

    Args:
        null: the supposed mean.
        bounds: lowest and highest possible observation.
        alternative: "two-sided", "less" or "greater"; one-sided tests spend nothing on the other
            side.
    """

    def __init__(
        self,
        null: float,
        bounds: tuple[float, float] = (0.0, 1.0),
        *,
        alternative: Literal["two-sided", "less", "greater"] = "two-sided",
    ) -> None:
        self.bounds = check_bounds(bounds)
        self._null = _scaled(null, self.bounds)
        if not 0.0 < self._null < 1.0:
            raise ConfigError(
                f"null is {null!r}; it lies strictly within the bounds {bounds[0]:g}..{bounds[1]:g}"
            )
        if alternative not in _SIDES:
            raise ConfigError(
                f"alternative is 'two-sided', 'less' or 'greater', found {alternative!r}"
            )
        self.alternative = alternative
        self.n = 0
        self._logs: Any = 0.0
        self._best = 0.0

    def add(self, x: float, weight: float = 1.0) -> float:
        """Take in one observation of a `weight` as in `ConfidenceSequence`; give the p-value now,
        which only ever falls.

        Raises:
            ConfigError: it lies outside the bounds or is NaN, or the weight is none.
        """
        scaled, weight = _scaled(x, self.bounds), _check_weight(weight)
        self.n += 1
        ratios = np.array([scaled / self._null, (1.0 - scaled) / (1.0 - self._null)])
        gains = weight * (ratios[_SIDES[self.alternative]] - 1.0)
        self._logs = self._logs + _log_gains(gains).T
        self._best = max(self._best, _log_of_mean(self._logs))
        return self.p_value

    @property
    def p_value(self) -> float:
        """Bound on the probability of a capital as high as the highest so far, were `null` true."""
        return math.exp(-self._best)
