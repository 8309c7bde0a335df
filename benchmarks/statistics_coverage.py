"""How often the 95 % interval of a corrected mean holds the truth, over settings drawn by lot.

    python -m benchmarks.statistics_coverage [--settings 60] [--trials 1000] [--seed 0] [--all]

Four kinds of settings: labels on rows by chance, on whole clusters, on some rows of clusters, and
on rows of one verdict more often than of others without a word about it. Each draws the truth
(0.1–0.9), the judge's sensitivity (0.6–0.98) and specificity (0.4–0.95), 20 to 400 labels among 2.5
to 11 times as many rows, and with clusters 6 to 100 that are labelled, even or uneven, with a
likeness (ICC) of 0 to 0.7. Two more tables are those of docs/statistics.md: its eight settings, and
the power of `plan --detect`. Two minutes with 60 settings and 200 trials, ten with 1,000.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rm_gallery.core.stats.corrected import corrected_mean
from rm_gallery.core.stats.planning import plan_mean
from rm_gallery.core.stats.uncertainty import clustered_mean

KINDS = ("rows by chance", "whole clusters", "rows of clusters", "rows by verdict")
Floats = NDArray[np.float64]


class Setting(NamedTuple):
    """What is simulated; `size` is labelled rows per cluster (1 without clusters), `favour` how
    much likelier fails are labelled.
    """

    kind: str
    rate: float
    sensitivity: float
    specificity: float
    labels: int
    rows: int
    size: float = 1.0
    icc: float = 0.0
    uneven: bool = False
    favour: float = 1.0


class Coverage(NamedTuple):
    """Share of intervals that hold the truth, that lie above it and below it, and their mean width."""

    held: float
    above: float
    below: float
    width: float


def settings(n: int, kind: str, seed: int = 0) -> list[Setting]:
    """`n` settings of a kind, by lot."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    found: list[Setting] = []
    while len(found) < n:
        labels, clusters = (
            round(np.exp(rng.uniform(np.log(20), np.log(400)))),
            round(np.exp(rng.uniform(np.log(6), np.log(100)))),
        )
        rate, sensitivity, specificity = (
            float(rng.uniform(*ends)) for ends in ((0.1, 0.9), (0.6, 0.98), (0.4, 0.95))
        )
        more, icc, uneven, favour = (
            rng.uniform(2.5, 11),
            float(rng.uniform(0, 0.7)),
            bool(rng.random() < 0.5),
            float(rng.uniform(2, 8)),
        )
        plain = Setting(kind, rate, sensitivity, specificity, labels, round(labels * more))
        if kind == "rows by chance":
            found.append(plain)
        elif kind == "rows by verdict":
            passed = rate * sensitivity + (1.0 - rate) * (1.0 - specificity)
            if (
                labels * passed / (passed + favour * (1.0 - passed)) >= 5.0
                and labels * (1.0 - passed) >= 5.0
            ):
                found.append(plain._replace(favour=favour))
        elif labels >= clusters:
            found.append(plain._replace(size=labels / clusters, icc=icc, uneven=uneven))
    return found


def drawn(rng: np.random.Generator, of: Setting) -> dict[str, Any]:
    """The columns of one trial."""
    n = of.rows
    clusters = np.arange(n)
    if of.size > 1.0 or of.icc > 0.0:
        k = max(2, round(n / of.size))
        sizes = (
            1 + rng.poisson(of.size - 1.0, k) if of.uneven else np.full(k, max(1, round(of.size)))
        )
        clusters = np.repeat(np.arange(k), sizes)
        n = len(clusters)
    odds = (1.0 - of.icc) / max(of.icc, 1e-6)
    chance = (
        rng.beta(of.rate * odds, (1.0 - of.rate) * odds, n)
        if of.icc > 1e-3
        else np.full(n, of.rate)
    )
    truth = (rng.random(n) < chance[clusters]) * 1.0
    judge = np.where(
        rng.random(n) < np.where(truth == 1.0, of.sensitivity, of.specificity), truth, 1.0 - truth
    )
    if of.kind == "whole clusters":
        labelled = clusters < max(2, round(of.labels / of.size))
    else:
        weight = np.where(judge == 0.0, of.favour, 1.0)
        labelled = np.zeros(n, dtype=bool)
        labelled[rng.choice(n, min(n, of.labels), replace=False, p=weight / weight.sum())] = True
    return {
        "judge": judge,
        "labels": np.where(labelled, truth, np.nan),
        "clusters": clusters.tolist() if of.size > 1.0 or of.icc > 0.0 else None,
    }


def coverage(of: Setting, trials: int, seed: int = 0, **options: Any) -> Coverage:
    """Draw and correct again and again."""
    rng = np.random.default_rng(seed)
    intervals = [corrected_mean(**{**drawn(rng, of), **options}).ci95 for _ in range(trials)]
    low, high = np.array([interval for interval in intervals if interval is not None]).T
    above, below = float(np.mean(low > of.rate)), float(np.mean(high < of.rate))
    return Coverage(1.0 - above - below, above, below, float(np.mean(high - low)))


DOCUMENTED: Mapping[str, Setting] = {
    "600 of 4,000": Setting(KINDS[0], 0.714, 0.97, 0.47, 600, 4000),
    "100 of 4,000": Setting(KINDS[0], 0.714, 0.97, 0.47, 100, 4000),
    "30 of 4,000": Setting(KINDS[0], 0.714, 0.97, 0.47, 30, 4000),
    "40 of 4,000": Setting(KINDS[0], 0.90, 0.97, 0.50, 40, 4000),
    "15 of 2,000": Setting(KINDS[0], 0.50, 0.95, 0.95, 15, 2000),
    "60 of 4,000": Setting(KINDS[0], 0.97, 0.99, 0.50, 60, 4000),
    "130 of 2,000, failing verdicts five times as often": Setting(
        KINDS[3], 0.714, 0.97, 0.47, 130, 2000, favour=5.0
    ),
    "250 of 500 rows, five per prompt": Setting(
        KINDS[2], 0.714, 0.95, 0.50, 250, 500, size=5.0, icc=0.5
    ),
    "10 of 100 prompts, five rows each": Setting(
        KINDS[1], 0.8, 0.95, 0.50, 50, 500, size=5.0, icc=0.7
    ),
}


class Documented(NamedTuple):
    """A row of docs/statistics.md: its name, our coverage, that of a normal interval of all rows
    taken as one random sample, that of the judge's own rate, and our width as a share of that from
    the labels alone.
    """

    name: str
    ours: Coverage
    plain: float
    judge: float
    share: float


def documented(trials: int) -> Iterator[Documented]:
    """The rows of docs/statistics.md."""
    for name, of in DOCUMENTED.items():
        ours, rng, alone, plain, judge = coverage(of, trials), np.random.default_rng(0), [], 0, 0
        for trial in range(trials):
            case = drawn(rng, of)
            pooled = corrected_mean(case["judge"], case["labels"], strata=None)
            plain += abs((pooled.estimate or 0.0) - of.rate) <= 1.96 * (pooled.se or 0.0)
            q = float(case["judge"].mean())
            judge += abs(q - of.rate) <= 1.96 * float(np.sqrt(q * (1.0 - q) / len(case["judge"])))
            if trial < 300:
                labels = {**case, "judge": [None] * len(case["judge"])}
                interval = corrected_mean(
                    **labels | ({"strata": case["judge"].tolist()} if of.favour > 1.0 else {})
                ).ci95
                alone.append(interval.high - interval.low if interval else np.nan)
        yield Documented(
            name, ours, plain / trials, judge / trials, ours.width / float(np.mean(alone))
        )


def power_of_plans(trials: int) -> Iterator[tuple[float, float, int, float, float]]:
    """(rate, effect, rows, planned power, simulated power) of `plan --detect` on the harder side."""
    rng = np.random.default_rng(0)
    for rate, effect in (
        (0.5, 0.05),
        (0.55, 0.05),
        (0.6, 0.1),
        (0.75, 0.05),
        (0.8, 0.05),
        (0.9, 0.05),
        (0.95, 0.05),
        (0.95, 0.03),
    ):
        plan, found = plan_mean(effect=effect, rate=rate), 0
        for _ in range(trials):
            mean = clustered_mean((rng.random(plan.n) < rate) * 1.0)
            p = None if mean is None else mean.p_value(plan.sides[0].null)
            found += p is not None and p < 0.05
        yield rate, effect, plan.n, plan.power or 0.0, found / trials


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=int, default=60, help="settings of each kind")
    parser.add_argument("--trials", type=int, default=1000, help="trials of each setting")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--all",
        action="store_true",
        help="print every setting, not the four that are covered least",
    )
    given = parser.parse_args()
    for kind in KINDS:
        found = sorted(
            (coverage(of, given.trials, given.seed), of)
            for of in settings(given.settings, kind, given.seed)
        )
        held = np.array([one.held for one, _ in found])
        print(
            f"\n{kind}: {len(found)} settings, coverage {held.min():.1%} to {held.max():.1%}, "
            f"median {np.median(held):.1%}, {np.mean((held >= 0.93) & (held <= 0.97)):.0%} of them "
            f"within 93–97 %, {np.sum(held < 0.92)} below 92 %"
        )
        for one, of in found if given.all else found[:4]:
            print(
                f"  {one.held:.1%} (above {one.above:.1%}, below {one.below:.1%}), width "
                f"{one.width:.3f}: {of}"
            )
    print(
        "\nthe settings of docs/statistics.md: ours, plain normal interval, judge's own rate; "
        "width as a share of labels alone"
    )
    for row in documented(given.trials):
        print(
            f"  {row.name}: {row.ours.held:.1%}, {row.plain:.1%}, {row.judge:.1%}; {row.share:.2f}"
        )
    print("\nplan --detect: rate, effect, rows, planned power, simulated power")
    for rate, effect, n, planned, simulated in power_of_plans(given.trials):
        print(f"  {rate:g} {effect:g} {n} {planned:.1%} {simulated:.1%}")


if __name__ == "__main__":
    main()
