"""How many labels, samples, pairs or clusters a figure needs before it says what one wants to know."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from rm_gallery.core.stats.intervals import check_level
from rm_gallery.core.utils.errors import ConfigError

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Plan:
    """A sample size.

    Attributes:
        n: units needed (rows, pairs or labels; see the function).
        clusters: clusters needed, where rows come in clusters.
        half_width: half the width of the interval that n gives, where a precision was asked for.
        alone: labels needed without the judge, where labels are planned.
        lam: how much of the judge is used, where labels are planned.
        rows: rows to judge, where labels are planned.
    """

    n: int
    clusters: int | None = None
    half_width: float | None = None
    alone: int | None = None
    lam: float | None = None
    rows: int | None = None


def design_effect(rows_per_cluster: float, icc: float) -> float:
    """Give how many times as many rows are needed because rows of a cluster are alike: 1 + (m - 1) * ICC.

    Raises:
        ConfigError: fewer than one row per cluster, or an ICC outside 0..1.
    """
    if not 1.0 <= rows_per_cluster < math.inf:
        raise ConfigError(f"rows_per_cluster is at least 1, found {rows_per_cluster!r}")
    if not 0.0 <= icc <= 1.0:
        raise ConfigError(f"icc lies within 0..1 (0: rows of a cluster are independent), found {icc!r}")
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
) -> Plan:
    """Give the rows needed to know a mean to within `half_width`, or to find that it differs by `effect` from a fixed value.

    Args:
        half_width: half the width the interval may have.
        effect: the difference that is to be found with probability `power`, for example 0.05 for 55 against 50 %.
        rate: expected mean of 0/1 outcomes, which decides how much they vary.
        sd: standard deviation instead, for graded outcomes and differences.
        confidence: level of the interval, or 1 minus the level of the test.
        power: probability to find the effect.
        rows_per_cluster: rows per prompt or conversation.
        icc: correlation of two rows of one cluster.

    Raises:
        ConfigError: not exactly one of `half_width` and `effect`, or a number out of range.
    """
    if (half_width is None) == (effect is None):
        raise ConfigError("name half_width (a precision) or effect (a difference to find), one of the two")
    spread = _spread(rate, sd)
    z = _NORMAL.inv_cdf((1.0 + check_level(confidence)) / 2.0)
    factor = design_effect(rows_per_cluster, icc)
    if half_width is not None:
        n = factor * (z * spread / _within(half_width, "half_width", 0.5, sd)) ** 2
    else:
        z += _NORMAL.inv_cdf(_power(power))
        n = factor * (z * spread / _within(effect or 0.0, "effect", 1.0, sd)) ** 2
    rows = max(2, _up(n))
    return Plan(
        rows,
        clusters=_up(rows / rows_per_cluster) if rows_per_cluster > 1.0 else None,
        half_width=z * spread * math.sqrt(factor / rows) if half_width is not None else None,
    )


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
) -> Plan:
    """Give the pairs needed to find that two systems on the same rows differ by `effect`.

    Either from `discordance`, the share of rows on which only one of the two is right (McNemar), or from variances: `between`,
    that of the true difference over rows, and `within_a`, `within_b`, those of one answer around its row's mean, divided by
    the number of answers drawn per row.

    Raises:
        ConfigError: not exactly one of `discordance` and `between`, or a number out of range.

    Source: E. Miller, "Adding error bars to evals" (arXiv 2411.00640), sample-size formula; J. Connett, "Sample size for
    McNemar's test", 1987.
    """
    if (discordance is None) == (between is None):
        raise ConfigError("name discordance (rows on which one of two is right) or between (variance), one of the two")
    d = _positive(abs(effect), "effect")
    z_level = _NORMAL.inv_cdf((1.0 + check_level(confidence)) / 2.0)
    z_power = _NORMAL.inv_cdf(_power(power))
    if discordance is not None:
        if not d <= discordance <= 1.0:
            raise ConfigError(f"discordance lies between the effect, {d:g}, and 1; found {discordance!r}")
        root = z_level * math.sqrt(discordance) + z_power * math.sqrt(discordance - d * d)
        n = (root / d) ** 2
    else:
        assert between is not None
        if min(between, within_a, within_b) < 0.0 or min(repeats_a, repeats_b) < 1:
            raise ConfigError("variances are at least 0 and repeats at least 1")
        n = (z_level + z_power) ** 2 * (between + within_a / repeats_a + within_b / repeats_b) / d**2
    rows = max(2, _up(n * design_effect(rows_per_cluster, icc)))
    return Plan(rows, clusters=_up(rows / rows_per_cluster) if rows_per_cluster > 1.0 else None)


def smallest_difference(*, n: int, discordance: float, confidence: float = 0.95, power: float = 0.8) -> float:
    """Give the smallest difference that `n` pairs find with probability `power`; the reverse of `plan_difference`.

    Raises:
        ConfigError: a number out of range.
    """
    if n < 1 or not 0.0 < discordance <= 1.0:
        raise ConfigError(f"n is at least 1 and discordance within 0..1, found {n!r} and {discordance!r}")
    z_level = _NORMAL.inv_cdf((1.0 + check_level(confidence)) / 2.0)
    z_power = _NORMAL.inv_cdf(_power(power))
    low, high = 0.0, math.sqrt(discordance)
    for _ in range(200):
        d = (low + high) / 2.0
        found = z_level * math.sqrt(discordance) + z_power * math.sqrt(max(0.0, discordance - d * d)) <= d * math.sqrt(
            n
        )
        low, high = (low, d) if found else (d, high)
    return high


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
) -> Plan:
    """Give the labels needed among `n_rows` judged rows so that the corrected mean is known to within `half_width`.

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
    z = _NORMAL.inv_cdf((1.0 + check_level(confidence)) / 2.0)
    _within(half_width, "half_width", 0.5, sd)
    if n_rows < 2:
        raise ConfigError(f"n_rows is the number of rows in all, at least 2; found {n_rows!r}")
    spread, rho, slope = _judge_model(rate, sensitivity, specificity, sd, correlation)
    spread *= math.sqrt(design_effect(rows_per_cluster, icc))
    rho, slope = min(max(rho, 0.0), 1.0), max(slope, 0.0)
    alone = max(2, _up((z * spread / half_width) ** 2))

    def reached(n: int, rows: int) -> float:
        return z * spread * math.sqrt((1.0 - rho**2 * (rows - n) / rows) / n)

    def fewest(rows: int) -> int | None:
        if reached(rows, rows) > half_width * (1.0 + 1e-12):
            return None
        low, high = 1, rows  # more labels never widen the interval
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if reached(middle, rows) <= half_width else (middle, high)
        return max(2, high)

    rows, n = n_rows, fewest(n_rows)
    if n is None:
        raise ConfigError(
            f"half_width {half_width:g} needs {alone} rows with labels on all of them; n_rows is {n_rows}. Add rows or"
            " accept a wider interval"
        )
    if (cost_label is None) != (cost_judge is None):
        raise ConfigError("cost_label and cost_judge go together; the cheapest mix depends on both")
    if cost_label is not None and cost_judge is not None:
        rows = _cheapest(
            n_rows, alone, fewest, _positive(cost_label, "cost_label"), _positive(cost_judge, "cost_judge")
        )
        n = fewest(rows) or n
    return Plan(n, half_width=reached(n, rows), alone=alone, lam=min(1.0, slope * (rows - n) / rows), rows=rows,
        clusters=_up(n / rows_per_cluster) if rows_per_cluster > 1.0 else None,
    )  # fmt: skip


def correlation_within(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """Give the intraclass correlation (ICC) of a pilot, 0..1: how alike two rows of one cluster are.

    Raises:
        ConfigError: lengths differ, or no cluster has two rows.

    Source: the one-way analysis of variance estimator; R. Fisher, 1925.
    """
    members: dict[Hashable, list[float]] = {}
    if len(values) != len(clusters):
        raise ConfigError(f"one cluster name per value is needed, found {len(clusters)} for {len(values)}")
    for value, name in zip(values, clusters, strict=True):
        members.setdefault(name, []).append(value)
    n, k = len(values), len(members)
    if k < 2 or n <= k:
        raise ConfigError(f"an ICC needs at least 2 clusters, one of them with 2 rows; found {n} rows in {k} clusters")
    mean = math.fsum(values) / n
    means = {name: math.fsum(rows) / len(rows) for name, rows in members.items()}
    between = math.fsum(len(rows) * (means[name] - mean) ** 2 for name, rows in members.items()) / (k - 1)
    within = math.fsum((x - means[name]) ** 2 for name, rows in members.items() for x in rows) / (n - k)
    size = (n - math.fsum(len(rows) ** 2 for rows in members.values()) / n) / (k - 1)
    total = between + (size - 1.0) * within
    return min(1.0, max(0.0, (between - within) / total)) if total > 0.0 else 0.0


def _judge_model(
    rate: float, sensitivity: float, specificity: float, sd: float | None, correlation: float | None
) -> tuple[float, float, float]:
    """Standard deviation of the labels, correlation with the judge, slope of the labels on the judge."""
    if (sd is None) != (correlation is None):
        raise ConfigError("sd and correlation go together; without both, rate, sensitivity and specificity are used")
    if sd is not None and correlation is not None:
        if not -1.0 <= correlation <= 1.0:
            raise ConfigError(f"correlation lies within -1..1, found {correlation!r}")
        return _spread(0.5, sd), correlation, correlation
    for name, value in (("rate", rate), ("sensitivity", sensitivity), ("specificity", specificity)):
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"{name} lies within 0..1, found {value!r}")
    spread = _spread(rate, None)
    passed = rate * sensitivity + (1.0 - rate) * (1.0 - specificity)
    common = rate * sensitivity - rate * passed
    judge = math.sqrt(passed * (1.0 - passed))
    if judge <= 0.0 or spread <= 0.0:
        return spread, 0.0, 0.0
    return spread, common / (judge * spread), common / judge**2


def _cheapest(most: int, alone: int, fewest: Callable[[int], int | None], cost_label: float, cost_judge: float) -> int:
    """Rows to judge for the least money; more of them save labels, but ever fewer."""
    steps = 400
    ratio = (most / alone) ** (1.0 / steps) if most > alone else 1.0
    best, least = most, math.inf
    for rows in sorted({most, *(min(most, _up(alone * ratio**k)) for k in range(steps + 1))}):
        n = fewest(rows)
        if n is not None and cost_label * n + cost_judge * rows < least:
            best, least = rows, cost_label * n + cost_judge * rows
    return best


def _up(value: float) -> int:
    """Round up, but not because of the last digit of a float."""
    return math.ceil(value * (1.0 - 1e-12))


def _spread(rate: float, sd: float | None) -> float:
    if sd is not None:
        return _positive(sd, "sd")
    if not 0.0 <= rate <= 1.0:
        raise ConfigError(f"rate lies within 0..1, found {rate!r}")
    return math.sqrt(rate * (1.0 - rate))


def _positive(value: float, name: str) -> float:
    if not 0.0 < value < math.inf:
        raise ConfigError(f"{name} is a number above 0, found {value!r}")
    return float(value)


def _within(value: float, name: str, most: float, sd: float | None) -> float:
    """A number above 0 and, of shares, below what tells anything: 3 is meant as 3 %."""
    if sd is None and value >= most:
        raise ConfigError(f"{name} is {value:g} and shares lie within 0..1; give one below {most:g}, or sd for scores")
    return _positive(value, name)


def _power(power: float) -> float:
    if not 0.0 < power < 1.0:
        raise ConfigError(f"power lies strictly between 0 and 1, for example 0.8; found {power!r}")
    return power
