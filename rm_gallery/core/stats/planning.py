"""Sample sizes: labels, rows, pairs or clusters for a wanted precision or power.

Ours: statsmodels plans the normal test of independent rows, not the tests used here (exact,
clustered, paired, with a judge).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

from rm_gallery.core.stats import Floats, Integers, np
from rm_gallery.core.stats.columns import cluster_numbers
from rm_gallery.core.stats.intervals import check_level, t_quantile
from rm_gallery.core.stats.uncertainty import (
    Estimate,
    clustered_mean,
    intraclass_correlation,
    share_ends,
    share_p_value,
)
from rm_gallery.core.utils.errors import ConfigError

_NORMAL = NormalDist()


_DRAWS = 1500
_ENOUGH = 0.02
"""By how much the power of a plan may exceed what was asked for."""
_MOST_DRAWN = 4_000_000
_MOST_PLANNED = 10**15
_MOST_SIMULATED = 10_000
"""Rows; with more the normal limit of a test is exact enough."""


@dataclass(frozen=True)
class Side:
    """A fixed value at the planned distance: rows to tell the mean from it, and the plan's power."""

    null: float
    n: int
    power: float


@dataclass(frozen=True)
class SampleSize:
    """A sample size.

    Attributes:
        n: units needed (rows, pairs or labels; see the function).
        clusters: clusters needed, where rows come in clusters.
        half_width: half the width of the interval that n gives, where a precision was asked for.
        alone: labels needed without the judge, where labels are planned.
        lam: weight of the judge, where labels are planned.
        rows: rows to judge, where labels are planned.
        power: probability to find the effect with n; on the harder side where there are two.
        sides: the fixed values that differ by the effect, the harder one first.
    """

    n: int
    clusters: int | None = None
    half_width: float | None = None
    alone: int | None = None
    lam: float | None = None
    rows: int | None = None
    power: float | None = None
    sides: tuple[Side, ...] = ()


def design_effect(rows_per_cluster: float, icc: float) -> float:
    """Factor on the rows needed because rows of a cluster correlate: 1 + (m - 1) * ICC.

    Raises:
        ConfigError: fewer than one row per cluster, or an ICC outside 0..1.

    >>> design_effect(5, 0.5)
    3.0
    """
    if not 1.0 <= rows_per_cluster < math.inf:
        raise ConfigError(f"rows_per_cluster is at least 1, found {rows_per_cluster!r}")
    if not 0.0 <= icc <= 1.0:
        raise ConfigError(
            f"icc lies within 0..1 (0: rows of a cluster are independent), found {icc!r}"
        )
    return 1.0 + (rows_per_cluster - 1.0) * icc


def plan_mean(
    *,
    half_width: float | None = None,
    effect: float | None = None,
    rate: float = 0.5,
    sd: float | None = None,
    confidence: float = 0.95,
    power: float = 0.8,
    rows_per_cluster: float = 1.0,
    icc: float = 0.0,
) -> SampleSize:
    """Rows needed to know a mean to within `half_width`, or to find a difference of `effect`.

    It takes more rows to tell a share from a value nearer to one half (90 from 85 %) than from one
    farther away (90 from 95 %): the plan is for the harder side and names both. Its power is that
    of the test used, `p_value` of `clustered_mean` (of `corrected_mean` with `sd`): exact, or
    simulated where rows come in clusters or are graded.

    Args:
        half_width: half the width the interval may have.
        effect: difference to find with probability `power`, for example 0.05 for 55 against 50 %.
        rate: expected mean of 0/1 outcomes; with `effect`, the true one.
        sd: standard deviation instead, for graded outcomes and differences.
        confidence: level of the interval, or 1 minus the level of the test.
        power: probability to find the effect.
        rows_per_cluster: rows per prompt or conversation.
        icc: correlation of two rows of one cluster.

    Raises:
        ConfigError: not exactly one of `half_width` and `effect`, or a number out of range.
    """
    if (half_width is None) == (effect is None):
        raise ConfigError(
            "name half_width (a precision) or effect (a difference to find), one of the two"
        )
    factor = design_effect(rows_per_cluster, icc)
    check_level(confidence)
    if half_width is None:
        return _plan_test(
            _within(effect or 0.0, "effect", 1.0, sd),
            rate,
            sd,
            confidence,
            _power(power),
            rows_per_cluster,
            icc,
        )
    independent = sd is None and rows_per_cluster == 1.0

    def reached(n: int) -> float:
        df = math.inf if independent else max(1.0, math.ceil(n / rows_per_cluster) - 1.0)
        return _half_width(n / factor, rate, sd, confidence, df)

    rows = _fewest(reached, _within(half_width, "half_width", 0.5, sd), _MOST_PLANNED)
    return SampleSize(rows, clusters=_clusters(rows, rows_per_cluster), half_width=reached(rows))


def _half_width(
    n: float, rate: float, sd: float | None, level: float, df: float = math.inf
) -> float:
    """Half the width that the interval of a mean of `n` independent rows has where the mean is as
    expected: near 0 or 1 that of what was not seen, and never below the normal one.
    """
    normal = t_quantile(df, level) * _spread(rate, sd) / math.sqrt(n)
    if sd is not None:
        return normal
    ends = share_ends(rate, n, level, df)
    return max(normal, (ends.high - ends.low) / 2.0)


def _fewest(reached: Callable[[int], float], half_width: float, most: int) -> int:
    """Fewest rows, at least 2, that reach the half width; more never widen it."""
    enough = half_width * (1.0 + 1e-12)
    return 2 + bisect_left(range(2, most), True, key=lambda n: reached(n) <= enough)


def _plan_test(
    effect: float,
    rate: float,
    sd: float | None,
    level: float,
    power: float,
    rows_per_cluster: float,
    icc: float,
) -> SampleSize:
    """Rows for the test of a mean against fixed values at the distance `effect` on both sides."""
    around = (rate - effect, rate + effect)
    nulls = [round(x, 12) for x in around if 1e-9 < x < 1.0 - 1e-9] if sd is None else [0.0]
    if not nulls:
        raise ConfigError(
            f"no share lies {effect:g} from rate {rate:g} within 0..1; name a smaller effect or "
            f"another rate"
        )
    factor = design_effect(rows_per_cluster, icc)
    tests: list[tuple[int, float, Callable[[int], float]]] = []
    for null in nulls:
        limit = _LargeSampleTest(
            effect / math.sqrt(factor), _spread(null, sd), _spread(rate, sd), _quantile(level)
        )
        if sd is None and factor == 1.0:
            powered = _exact_power(rate, null, level)
            n = _first_that_holds(limit.rows(power), power, null, powered)
        else:
            draw = (
                partial(_mean_of_rates, rate=rate, icc=icc)
                if sd is None
                else partial(_mean_of_scores, mean=effect, sd=sd, icc=icc)
            )
            n, powered = _simulated_test(limit, draw, null, level, power, rows_per_cluster)
        tests.append((n, null, powered))
    tests.sort(key=lambda test: -test[0])
    rows = tests[0][0]
    sides = [Side(null, n, powered(rows)) for n, null, powered in tests]
    return SampleSize(
        rows,
        clusters=_clusters(rows, rows_per_cluster),
        power=sides[0].power,
        sides=tuple(sides) if sd is None else (),
    )


@dataclass(frozen=True)
class _LargeSampleTest:
    """Normal limit of a test, with one standard deviation under the null and one in truth."""

    effect: float
    of_null: float
    real: float
    z_level: float

    def rows(self, power: float) -> int:
        reach = self.z_level * self.of_null + _NORMAL.inv_cdf(power) * self.real
        return max(2, _up((reach / self.effect) ** 2))

    def power(self, n: int) -> float:
        if not self.real:
            return 1.0
        return _NORMAL.cdf((self.effect * math.sqrt(n) - self.z_level * self.of_null) / self.real)


def _exact_power(rate: float, null: float, level: float) -> Callable[[int], float]:
    """Power of the exact test of independent 0/1 outcomes against `null`, by number of rows."""
    from scipy.stats import binom

    def power(n: int) -> float:
        def rejected(k: int) -> bool:
            return share_p_value(k / n, n, null) < 1.0 - level

        middle = round(n * null)
        below = bisect_left(range(middle), True, key=lambda k: not rejected(k)) - 1
        above = middle + 1 + bisect_left(range(middle + 1, n + 1), True, key=rejected)
        return float(binom.cdf(below, n, rate) + binom.sf(above - 1, n, rate))

    return power


def _first_that_holds(first: int, wanted: float, null: float, power: Callable[[int], float]) -> int:
    """Fewest rows with the wanted power; whole counts make power a saw, so its mean must reach it too."""
    step, period = max(1, first // 2000), _up(1.0 / min(null, 1.0 - null))
    candidates = range(max(2, int(0.8 * first) - 8), int(1.2 * first) + 24 + period, step)
    reached = [power(n) for n in candidates]
    for place, n in enumerate(candidates):
        around = reached[place : place + max(1, period // step)]
        if wanted <= around[0] <= wanted + _ENOUGH and math.fsum(around) >= wanted * len(around):
            return n
    return next((n for n, one in zip(candidates, reached, strict=True) if one >= wanted), first)


def _simulated_test(
    limit: _LargeSampleTest,
    draw: Callable[[np.random.Generator, Integers, int], Estimate | None],
    null: float,
    level: float,
    wanted: float,
    rows_per_cluster: float,
) -> tuple[int, Callable[[int], float]]:
    """Rows with the wanted power and power by number of rows: from seeded simulation of means by
    `draw`, or where that takes long of the `limit`.
    """
    rows = limit.rows(wanted)
    if rows > _MOST_SIMULATED:
        return rows, limit.power

    def power(n: int) -> float:
        rng = np.random.default_rng(0)
        clusters = np.floor(np.arange(n) / rows_per_cluster).astype(np.int64)
        k, draws = int(clusters[-1]) + 1, max(400, min(_DRAWS, _MOST_DRAWN // n))
        means = (draw(rng, clusters, k) for _ in range(draws))
        p_values = (mean.p_value(null) for mean in means if mean is not None)
        return sum(p is not None and p < 1.0 - level for p in p_values) / draws

    return _first_near(rows, wanted, power, limit.z_level), power


def _mean_of_rates(
    rng: np.random.Generator, clusters: Integers, k: int, *, rate: float, icc: float
) -> Estimate | None:
    """One draw of 0/1 outcomes whose chances vary over clusters (beta-binomial)."""
    chances: Floats = np.full(k, rate)
    if icc > 0.0 and 0.0 < rate < 1.0:
        odds = (1.0 - icc) / icc
        chances = (
            rng.beta(rate * odds, (1.0 - rate) * odds, k)
            if icc < 1.0
            else np.where(rng.random(k) < rate, 1.0, 0.0)
        )
    return clustered_mean(rng.random(len(clusters)) < chances[clusters], clusters)


def _mean_of_scores(
    rng: np.random.Generator, clusters: Integers, k: int, *, mean: float, sd: float, icc: float
) -> Estimate | None:
    """One draw of graded scores, normal with a part for the cluster."""
    common, own = rng.standard_normal(k)[clusters], rng.standard_normal(len(clusters))
    scores = mean + sd * (math.sqrt(icc) * common + math.sqrt(1.0 - icc) * own)
    return clustered_mean(scores, clusters, bounds=(-math.inf, math.inf))


def _mean_of_pairs(
    rng: np.random.Generator,
    clusters: Integers,
    k: int,
    *,
    effect: float,
    discordance: float,
    icc: float,
) -> Estimate | None:
    """One draw of paired 0/1 differences; rows share their cluster's outcome with sqrt(icc)."""
    luck = rng.random(len(clusters))
    if icc > 0.0:
        luck = np.where(rng.random(len(clusters)) < math.sqrt(icc), rng.random(k)[clusters], luck)
    ahead = (discordance + effect) / 2.0
    differences = (luck < ahead) * 1.0 - ((luck >= ahead) & (luck < discordance))
    return clustered_mean(differences, clusters, bounds=(-1.0, 1.0))


def _first_near(n: int, wanted: float, power: Callable[[int], float], z_level: float) -> int:
    """Rows with the wanted simulated power, by secant steps of the normal test."""
    for _ in range(3):
        reached = min(max(power(n), 0.01), 0.995)
        if abs(reached - wanted) <= 0.75 * _ENOUGH:
            break
        z_wanted, z_reached = (z_level + _NORMAL.inv_cdf(share) for share in (wanted, reached))
        n = max(2, round(n * (z_wanted / z_reached) ** 2))
    return n


def _clusters(rows: int, rows_per_cluster: float) -> int | None:
    return _up(rows / rows_per_cluster) if rows_per_cluster > 1.0 else None


def plan_difference(
    *,
    effect: float,
    discordance: float | None = None,
    between: float | None = None,
    within_a: float = 0.0,
    within_b: float = 0.0,
    repeats_a: int = 1,
    repeats_b: int = 1,
    confidence: float = 0.95,
    power: float = 0.8,
    rows_per_cluster: float = 1.0,
    icc: float = 0.0,
) -> SampleSize:
    """Pairs needed to find that two systems on the same rows differ by `effect`.

    Either from `discordance`, the share of rows on which only one of the two is right (McNemar), or
    from variances: `between` of the true difference over rows, and `within_a`, `within_b` of one
    answer around its row's mean, divided by the answers per row.

    Raises:
        ConfigError: not exactly one of `discordance` and `between`, or a number out of range.

    Source: E. Miller, "Adding error bars to evals" (arXiv 2411.00640), sample-size formula; J.
    Connett, "Sample size for McNemar's test", 1987.
    """
    if (discordance is None) == (between is None):
        raise ConfigError(
            "name discordance (rows on which one of two is right) or between (variance), one of "
            "the two"
        )
    d = _positive(abs(effect), "effect")
    z_level = _quantile(confidence)
    _power(power)
    factor = design_effect(rows_per_cluster, icc)
    reached: float | None = None
    if discordance is not None:
        if not d <= discordance <= 1.0:
            raise ConfigError(
                f"discordance lies between the effect, {d:g}, and 1; found {discordance!r}"
            )
        limit = _LargeSampleTest(
            d / math.sqrt(factor), math.sqrt(discordance), math.sqrt(discordance - d * d), z_level
        )
        draw = partial(_mean_of_pairs, effect=d, discordance=discordance, icc=icc)
        rows, powered = _simulated_test(limit, draw, 0.0, confidence, power, rows_per_cluster)
        reached = powered(rows)
    else:
        assert between is not None
        if min(between, within_a, within_b) < 0.0 or min(repeats_a, repeats_b) < 1:
            raise ConfigError("variances are at least 0 and repeats at least 1")
        sd = math.sqrt(factor * (between + within_a / repeats_a + within_b / repeats_b))
        rows = _LargeSampleTest(d, sd, sd, z_level).rows(power)
    return SampleSize(rows, clusters=_clusters(rows, rows_per_cluster), power=reached)


def plan_labels(
    *,
    half_width: float,
    n_rows: int,
    rate: float = 0.5,
    sensitivity: float = 0.9,
    specificity: float = 0.9,
    sd: float | None = None,
    correlation: float | None = None,
    confidence: float = 0.95,
    rows_per_cluster: float = 1.0,
    icc: float = 0.0,
    cost_label: float | None = None,
    cost_judge: float | None = None,
) -> SampleSize:
    """Labels needed among `n_rows` judged rows to know the corrected mean to within `half_width`.

    Args:
        half_width: half the width the interval may have.
        n_rows: rows in all, judged; with costs the most there may be.
        rate: expected share of true passes.
        sensitivity: share of true passes the judge passes.
        specificity: share of true fails the judge fails.
        sd: standard deviation of graded labels, with `correlation` instead of the three above.
        correlation: of judge score and label, from a pilot.
        confidence: level of the interval.
        rows_per_cluster: labelled rows per prompt or conversation.
        icc: correlation of two rows of one cluster.
        cost_label: price of one label; with `cost_judge` the cheapest mix is sought.
        cost_judge: price of one judged row.

    Raises:
        ConfigError: a number out of range, or a precision that labels on all rows do not give.

    Source: arXiv 2311.01453, variance of the power-tuned estimate.
    """
    check_level(confidence)
    _within(half_width, "half_width", 0.5, sd)
    if n_rows < 2:
        raise ConfigError(f"n_rows is the number of rows in all, at least 2; found {n_rows!r}")
    rho, slope = _judge_model(rate, sensitivity, specificity, sd, correlation)
    factor = design_effect(rows_per_cluster, icc)
    rho, slope = min(max(rho, 0.0), 1.0), max(slope, 0.0)

    def reached(n: int, rows: int) -> float:
        left = 1.0 - rho**2 * (rows - n) / rows
        return _half_width(n / (factor * left), rate, sd, confidence)

    def fewest(rows: int) -> int | None:
        n = _fewest(lambda labels: reached(labels, rows), half_width, rows + 1)
        return n if n <= rows else None

    labels_only = _fewest(lambda n: reached(n, n), half_width, _MOST_PLANNED)
    rows, n = n_rows, fewest(n_rows)
    if n is None:
        raise ConfigError(
            f"half_width {half_width:g} needs {labels_only} rows with labels on all of them; n_rows is "
            f"{n_rows}. Add rows or"
            " accept a wider interval"
        )
    if (cost_label is None) != (cost_judge is None):
        raise ConfigError("cost_label and cost_judge go together; the cheapest mix depends on both")
    if cost_label is not None and cost_judge is not None:
        rows = _cheapest(
            n_rows,
            labels_only,
            fewest,
            _positive(cost_label, "cost_label"),
            _positive(cost_judge, "cost_judge"),
        )
        n = fewest(rows) or n
    return SampleSize(n, half_width=reached(n, rows), alone=labels_only, lam=min(1.0, slope * (rows - n) / rows), rows=rows,
        clusters=_clusters(n, rows_per_cluster),
    )  # fmt: skip


def correlation_within(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """Intraclass correlation (ICC) of a pilot, 0..1: 1 if rows of a cluster are all equal.

    Raises:
        ConfigError: lengths differ, or no cluster has two rows.

    Source: the one-way analysis of variance estimator; R. Fisher, 1925.
    """
    if len(values) != len(clusters):
        raise ConfigError(
            f"one cluster name per value is needed, found {len(clusters)} for {len(values)}"
        )
    n, k = len(values), len(set(clusters))
    if k < 2 or n <= k:
        raise ConfigError(
            f"an ICC needs at least 2 clusters, one of them with 2 rows; found {n} rows in {k} "
            f"clusters"
        )
    return intraclass_correlation(
        np.asarray(values, dtype=np.float64), cluster_numbers(list(clusters), n)
    )


def _judge_model(
    rate: float, sensitivity: float, specificity: float, sd: float | None, correlation: float | None
) -> tuple[float, float]:
    """Correlation of the labels with the judge, and their slope on it."""
    if (sd is None) != (correlation is None):
        raise ConfigError(
            "sd and correlation go together; without both, rate, sensitivity and specificity are "
            "used"
        )
    if sd is not None and correlation is not None:
        if not -1.0 <= correlation <= 1.0:
            raise ConfigError(f"correlation lies within -1..1, found {correlation!r}")
        _spread(0.5, sd)
        return correlation, correlation
    spread = _spread(rate, None)
    right = rate * _share(sensitivity, "sensitivity")
    passed = right + (1.0 - rate) * (1.0 - _share(specificity, "specificity"))
    common = right - rate * passed
    judge = math.sqrt(passed * (1.0 - passed))
    if judge <= 0.0 or spread <= 0.0:
        return 0.0, 0.0
    return common / (judge * spread), common / judge**2


def _cheapest(
    most: int,
    labels_only: int,
    fewest: Callable[[int], int | None],
    cost_label: float,
    cost_judge: float,
) -> int:
    """Rows to judge for the least money; more of them save labels, but ever fewer."""
    steps = 400
    ratio = (most / labels_only) ** (1.0 / steps) if most > labels_only else 1.0
    tried = {most, *(min(most, _up(labels_only * ratio**k)) for k in range(steps + 1))}
    costs = [
        (cost_label * n + cost_judge * rows, rows)
        for rows in tried
        if (n := fewest(rows)) is not None
    ]
    return min(costs)[1]


def _quantile(confidence: float) -> float:
    return _NORMAL.inv_cdf((1.0 + check_level(confidence)) / 2.0)


def _up(value: float) -> int:
    """Round up, but not because of the last digit of a float."""
    return math.ceil(value * (1.0 - 1e-12))


def _spread(rate: float, sd: float | None) -> float:
    if sd is not None:
        return _positive(sd, "sd")
    return math.sqrt(_share(rate, "rate") * (1.0 - rate))


def _share(value: float, name: str) -> float:
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name} lies within 0..1, found {value!r}")
    return value


def _positive(value: float, name: str) -> float:
    if not 0.0 < value < math.inf:
        raise ConfigError(f"{name} is a number above 0, found {value!r}")
    return float(value)


_OPTIONS = {"half_width": "--precision", "effect": "--detect"}
"""By argument the option of `rm-gallery plan`."""


def _within(value: float, name: str, most: float, sd: float | None) -> float:
    """A number above 0; a share of `most` or more is refused, since 3 is meant as 3 %."""
    if sd is None and value >= most:
        raise ConfigError(
            f"{name} ({_OPTIONS[name]}) is {value:.15g} and shares lie within 0..1: 3 points are "
            f"0.03; give one below {most:g}, or sd (--sd) for scores"
        )
    return _positive(value, name)


def _power(power: float) -> float:
    if not 0.0 < power < 1.0:
        raise ConfigError(f"power lies strictly between 0 and 1, for example 0.8; found {power!r}")
    return power
