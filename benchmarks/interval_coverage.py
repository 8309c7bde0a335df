"""How often 95 % intervals of shares, paired differences, agreement with the truth, rank correlations,
corrected means and strengths of systems hold the truth, over settings drawn by lot.

    python -m benchmarks.interval_coverage [--settings 60] [--trials 300] [--seed 0] [--all]

Each setting draws 6 to 100 clusters of 2 to 20 rows on average, even or uneven, in one of four with a
third of all rows in one cluster, an intraclass correlation of 0 to 0.7, a rate of 0.05 to 0.95, and
a judge with a sensitivity of 0.75 to 0.98 and a specificity of 0.6 to 0.95, whose errors have the
same correlation within clusters. A second table holds judges to a limit of kappa that is exactly
theirs: `--use-ci` should let one in forty pass. Settings of which fewer than half of the trials
have a kappa (both raters say one thing throughout) are left out for kappa.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rm_gallery.core.stats.agreement import (
    cohen_kappa_estimate,
    kendall_tau_b_estimate,
    spearman_estimate,
)
from rm_gallery.core.stats.bradley_terry import bradley_terry, fit_logistic
from rm_gallery.core.stats.corrected import corrected_mean
from rm_gallery.core.stats.significance import paired_mean
from rm_gallery.core.stats.uncertainty import clustered_mean
from rm_gallery.core.stats.validation import precision_recall_f1

FIGURES = (
    *("share", "difference", "kappa", "precision", "recall", "f1", "spearman", "kendall"),
    "corrected mean",
)
Floats = NDArray[np.float64]


class Setting(NamedTuple):
    """What is simulated; `other` is the rate of the second system of a difference, `size` rows per
    cluster.
    """

    clusters: int
    size: float
    uneven: bool
    icc: float
    rate: float
    other: float
    sensitivity: float
    specificity: float
    giant: bool = False
    """Whether one cluster has a third of all rows."""

    @property
    def truths(self) -> dict[str, float]:
        """What figures are in the population, by name."""
        hits = self.rate * self.sensitivity
        called = hits + (1.0 - self.rate) * (1.0 - self.specificity)
        r = self.correlation
        return {
            "kappa": kappa_of(self.rate, self.sensitivity, self.specificity),
            "precision": hits / called,
            "recall": self.sensitivity,
            "f1": 2.0 * hits / (called + self.rate),
            "spearman": 6.0 / np.pi * float(np.arcsin(r / 2.0)),
            "kendall": 2.0 / np.pi * float(np.arcsin(r)),
        }

    @property
    def correlation(self) -> float:
        """Of two normal scores, -0.9..0.9."""
        return 2.0 * self.other - 1.0


def kappa_of(rate: float, sensitivity: float, specificity: float) -> float:
    """Kappa of a judge with the truth in a population."""
    passed = rate * sensitivity + (1.0 - rate) * (1.0 - specificity)
    agreed, by_chance = (
        rate * sensitivity + (1.0 - rate) * specificity,
        rate * passed + (1.0 - rate) * (1.0 - passed),
    )
    return (agreed - by_chance) / (1.0 - by_chance)


def settings(n: int, seed: int = 0) -> list[Setting]:
    """`n` settings by lot."""
    rng = np.random.default_rng([seed, 17])
    found = []
    for _ in range(n):
        clusters, size = (
            float(np.exp(rng.uniform(*np.log(ends)))) for ends in ((6.0, 100.0), (2.0, 20.0))
        )
        uneven, icc = bool(rng.random() < 0.5), float(rng.uniform(0, 0.7))
        rate, other, sensitivity, specificity = (
            float(rng.uniform(*ends))
            for ends in ((0.05, 0.95), (0.05, 0.95), (0.75, 0.98), (0.6, 0.95))
        )
        giant = bool(rng.random() < 0.25)
        found.append(
            Setting(
                round(clusters), size, uneven, icc, rate, other, sensitivity, specificity, giant
            )
        )
    return found


def _outcomes(
    rng: np.random.Generator, rate: float, icc: float, clusters: NDArray[np.int64], n: int
) -> Floats:
    odds = (1.0 - icc) / max(icc, 1e-6)
    chance = rng.beta(rate * odds, (1.0 - rate) * odds, n) if icc > 1e-3 else np.full(n, rate)
    return np.asarray(rng.random(len(clusters)) < chance[clusters], dtype=np.float64)


class Drawn(NamedTuple):
    """One data set: what is true, what the judge says, two scores, and clusters."""

    truth: Floats
    judge: Floats
    first: Floats
    second: Floats
    clusters: NDArray[np.int64]


def drawn(rng: np.random.Generator, of: Setting) -> Drawn:
    """A data set of a setting."""
    k = of.clusters
    sizes = 1 + rng.poisson(of.size - 1.0, k) if of.uneven else np.full(k, round(of.size))
    if of.giant:
        sizes[0] = max(1, sizes[1:].sum() // 2)
    clusters = np.repeat(np.arange(k), sizes)
    truth = _outcomes(rng, of.rate, of.icc, clusters, k)
    right = [_outcomes(rng, p, of.icc, clusters, k) for p in (of.specificity, of.sensitivity)]
    judge = np.where(np.where(truth == 1.0, right[1], right[0]) == 1.0, truth, 1.0 - truth)
    x, e = (
        np.sqrt(of.icc) * rng.standard_normal(k)[clusters]
        + np.sqrt(1.0 - of.icc) * rng.standard_normal(len(clusters))
        for _ in range(2)
    )
    r = of.correlation
    return Drawn(truth, judge, x, r * x + np.sqrt(1.0 - r * r) * e, clusters)


def trial(rng: np.random.Generator, of: Setting) -> Iterator[tuple[str, float, Any]]:
    """Each figure of one draw, with its truth and its interval; None where there is none."""
    truth, judge, first, second, clusters = drawn(rng, of)
    k = of.clusters
    share = clustered_mean(truth, clusters)
    yield "share", of.rate, None if share is None else share.interval()
    difference = paired_mean(
        truth.tolist(), _outcomes(rng, of.other, of.icc, clusters, k).tolist(), clusters=clusters
    )
    yield "difference", of.rate - of.other, None if difference is None else difference.interval()
    found = {
        "kappa": cohen_kappa_estimate(judge.tolist(), truth.tolist(), clusters=clusters),
        "spearman": spearman_estimate(first, second, clusters=clusters),
        "kendall": kendall_tau_b_estimate(first, second, clusters=clusters),
        **precision_recall_f1(judge, truth, clusters),
    }
    for name, figure in found.items():
        yield name, of.truths[name], None if figure is None else figure.interval()
    labels = (
        np.where(clusters % 3 == 0, truth, np.nan)
        if k >= 18
        else np.where(rng.random(len(truth)) < 0.4, truth, np.nan)
    )
    yield "corrected mean", of.rate, corrected_mean(judge, labels, clusters=clusters).ci95


class Coverage(NamedTuple):
    """Share of intervals that hold the truth, that lie above it and below it, and how many there
    were.
    """

    held: float
    above: float
    below: float
    n: int


def coverage(of: Setting, trials: int, seed: int = 0) -> dict[str, Coverage]:
    """Draw again and again; by figure."""
    rng = np.random.default_rng(seed)
    sides: dict[str, list[tuple[bool, bool]]] = {name: [] for name in FIGURES}
    for _ in range(trials):
        for name, true, interval in trial(rng, of):
            if interval is not None:
                sides[name].append((interval[0] > true + 1e-12, interval[1] < true - 1e-12))
    found = {}
    for name, seen in sides.items():
        above, below = (
            (float(np.mean([side[end] for side in seen])) for end in (0, 1)) if seen else (0.0, 0.0)
        )
        found[name] = Coverage(1.0 - above - below, above, below, len(seen))
    return found


SURELY = (
    (50, 0.9, 0.97, 0.8),
    (100, 0.95, 0.98, 0.8),
    (100, 0.5, 0.9, 0.9),
    (60, 0.92, 0.98, 0.7),
    (150, 0.95, 0.985, 0.7),
    (200, 0.95, 0.999, 0.98),
)
"""Rows, rate, sensitivity and specificity of judges that are held to their own kappa."""


def passes(
    rows: int, rate: float, sensitivity: float, specificity: float, trials: int, seed: int = 0
) -> float:
    """How often the lower end of kappa's interval reaches the true kappa."""
    rng, true, found = (
        np.random.default_rng([seed, rows]),
        kappa_of(rate, sensitivity, specificity),
        [],
    )
    for _ in range(trials):
        truth = (rng.random(rows) < rate) * 1.0
        judge = np.where(
            rng.random(rows) < np.where(truth == 1.0, sensitivity, specificity), truth, 1.0 - truth
        )
        kappa = cohen_kappa_estimate(judge.tolist(), truth.tolist())
        if kappa is not None and (ends := kappa.interval()) is not None:
            found.append(ends.low >= true)
    return float(np.mean(found))


class RankedSetting(NamedTuple):
    """Systems that meet on prompts; `giant` makes the first prompt as large as all of them."""

    strengths: tuple[float, ...]
    prompts: int
    size: float
    uneven: bool
    giant: bool
    icc: float


def ranked_settings(n: int, seed: int = 0) -> list[RankedSetting]:
    """`n` settings by lot: 3 to 6 systems, 6 to 100 prompts, every fourth with a giant."""
    rng = np.random.default_rng([seed, 19])
    return [
        RankedSetting(
            tuple(rng.normal(0.0, 0.8, int(rng.integers(3, 7))).tolist()),
            round(float(np.exp(rng.uniform(np.log(6), np.log(100))))),
            float(np.exp(rng.uniform(np.log(2), np.log(20)))),
            bool(rng.random() < 0.5),
            number % 4 == 0,
            float(rng.uniform(0, 0.7)),
        )
        for number in range(n)
    ]


def strengths_covered(of: RankedSetting, trials: int, seed: int = 0) -> Coverage:
    """Intervals of strengths where prompts have tastes of their own; the truth is the fit of the
    chances over all prompts. Systems that are open at both ends do not count.
    """
    rng, k = np.random.default_rng([seed, 23]), len(of.strengths)
    strengths, taste = np.array(of.strengths), math.sqrt(of.icc / (1.0 - of.icc) / 6.0) * math.pi
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    i, j = np.triu_indices(k, 1)
    gaps = (strengths[i] - strengths[j])[:, None] + math.sqrt(2.0) * taste * nodes
    design = np.eye(k)[i] - np.eye(k)[j]
    chances = 1.0 / (1.0 + np.exp(-gaps)) @ (weights / weights.sum())
    truth = fit_logistic(design, chances, np.arange(len(i)), firth=False).beta
    sides = []
    for _ in range(trials):
        sizes = 1 + rng.poisson(of.size - 1.0, of.prompts) if of.uneven else None
        sizes = np.full(of.prompts, round(of.size)) if sizes is None else sizes
        sizes[0] = sizes.sum() if of.giant else sizes[0]
        prompts = np.repeat(np.arange(of.prompts), sizes)
        a = rng.integers(0, k, len(prompts))
        b = (a + rng.integers(1, k, len(prompts))) % k
        liked = strengths + taste * rng.standard_normal((of.prompts, k))
        won = rng.random(len(prompts)) < 1.0 / (1.0 + np.exp(liked[prompts, b] - liked[prompts, a]))
        systems = bradley_terry(
            a.astype(str).tolist(), b.astype(str).tolist(), won * 1.0, clusters=prompts
        ).systems
        for system in systems:
            group = [truth[int(each.name)] for each in systems if each.group == system.group]
            true = float(truth[int(system.name)] - np.mean(group))
            if any(map(math.isfinite, system.ci95)):
                sides.append((system.ci95.low > true, system.ci95.high < true))
    above, below = (float(np.mean([side[end] for side in sides])) for end in (0, 1))
    return Coverage(1.0 - above - below, above, below, len(sides))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=int, default=60)
    parser.add_argument("--trials", type=int, default=300, help="trials of each setting")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--all",
        action="store_true",
        help="print every setting, not the four that are covered least",
    )
    given = parser.parse_args()
    drawn = settings(given.settings, given.seed)
    measured = [coverage(of, given.trials, given.seed) for of in drawn]
    for name in FIGURES:
        found = sorted(
            (one[name], of)
            for one, of in zip(measured, drawn, strict=True)
            if 2 * one[name].n > given.trials
        )
        held = np.array([one.held for one, _ in found])
        print(
            f"\n{name}: {len(found)} settings, coverage {held.min():.1%} to {held.max():.1%}, "
            f"median {np.median(held):.1%}, {np.mean((held >= 0.93) & (held <= 0.97)):.0%} of them "
            f"within 93-97 %, {np.sum(held < 0.91)} below 91 %"
        )
        for one, of in found if given.all else found[:4]:
            print(
                f"  {one.held:.1%} (above {one.above:.1%}, below {one.below:.1%}, n={one.n}): {of}"
            )
    print(
        "\nshare that passes `--use-ci` at exactly its own kappa: rows, rate, sensitivity, "
        "specificity"
    )
    for rows, rate, sensitivity, specificity in SURELY:
        passing = passes(rows, rate, sensitivity, specificity, 4 * given.trials)
        print(f"  {rows} {rate} {sensitivity} {specificity}: {passing:.1%}")
    print("\nstrengths of systems (Bradley-Terry), least covered first")
    ranked = [
        (strengths_covered(of, given.trials, number), of)
        for number, of in enumerate(ranked_settings(given.settings, given.seed))
    ]
    least = sorted(ranked, key=lambda one: one[0].held)
    for held_by, case in least if given.all else least[:4]:
        print(
            f"  {held_by.held:.1%} (above {held_by.above:.1%}, below {held_by.below:.1%}, "
            f"n={held_by.n}): {case}"
        )


if __name__ == "__main__":
    main()
