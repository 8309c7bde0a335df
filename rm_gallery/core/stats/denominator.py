"""Worst-case (Manski) bounds of figures with missing scores, and a test of what missing goes with.

Ours: the bounds are two divisions; tests are scipy's.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rm_gallery.core.stats import Floats, Integers, np
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.significance import holm
from rm_gallery.core.stats.uncertainty import Estimate, clustered_mean
from rm_gallery.core.utils.compat import earlier

NEVER_BEGUN = "caller"
"""The cause of what a run did not get to."""


class Bounded(NamedTuple):
    """Counts of scored and missing samples, and the worst-case bounds of the mean."""

    n: int
    n_scored: int
    missing: dict[str, int]
    """Count by cause (endpoint, judge, answer, data, rule, caller) that occurs, largest first."""
    bounds: Interval | None
    """The mean if every missing score were the lowest, and if every one were the highest of the
    scale; an end of an open scale is infinite. None without a sample, and where both ends are
    open."""

    @property
    def n_missing(self) -> int:
        """How many have no score."""
        return self.n - self.n_scored


def worst_case_bounds(
    n: int,
    n_scored: int,
    total: float,
    missing: Mapping[str, int],
    scale: tuple[float, float] = (0.0, 1.0),
) -> Bounded:
    """Bounds of a mean: (total + missing * low) / n and (total + missing * high) / n.

    Source: C. Manski, "Nonparametric bounds on treatment effects", 1990.

    Args:
        n: samples.
        n_scored: samples with a score.
        total: sum of their scores.
        missing: samples without a score by cause; those without a known cause were never begun.
        scale: lowest and highest possible score; infinite where it is open.

    >>> worst_case_bounds(n=10, n_scored=8, total=6.0, missing={"judge": 2}).bounds
    Interval(low=0.6, high=0.8)
    """
    lost = n - n_scored
    causes = Counter({cause: number for cause, number in missing.items() if number})
    if unknown := lost - causes.total():
        causes[NEVER_BEGUN] += unknown
    bounds = None
    if n and (not lost or any(map(math.isfinite, scale))):
        # an infinite end times nothing missing is no number
        bounds = Interval(*((total + (lost * end if lost else 0.0)) / n for end in scale))
    return Bounded(n, n_scored, _largest_first(causes), bounds)


def weighted_bounds(parts: Iterable[tuple[Interval | None, float]]) -> Interval | None:
    """Bounds of a weighted mean of figures from (bounds, weight) of each; those without are left out."""
    known = [(*bounds, weight) for bounds, weight in parts if bounds is not None]
    whole = math.fsum(weight for *_, weight in known)
    if not whole:
        return None
    return Interval(
        math.fsum(low * weight for low, _, weight in known) / whole,
        math.fsum(high * weight for _, high, weight in known) / whole,
    )


def mean_bounds(parts: Iterable[Interval | None]) -> Interval | None:
    """As `weighted_bounds`, every part weighing the same."""
    return weighted_bounds((bounds, 1.0) for bounds in parts)


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sum of several counts by cause, the largest first."""
    totals: Counter[str] = Counter()
    for one in counts:
        totals.update(one)
    return _largest_first(totals)


def _largest_first(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


ALPHA = 0.05
SHOWN = 5
Trait = str | float
"""A property of a sample: a name, such as its subset, or a number, such as a length."""


class _Test(NamedTuple):
    p_value: float
    what: str
    sentence: str
    figures: Mapping[str, Any]


class _TraitColumn:
    """A trait of the samples in their order: numbers, or names by number; samples may lack it."""

    def __init__(self, named: bool) -> None:
        self.names: dict[Any, int] = {}
        self.named, self.values = named, array("i" if named else "d")

    def put(self, row: int, value: Any) -> None:
        """Note the value of a row that comes after those before."""
        gap: Any = -1 if self.named else math.nan
        self.values.extend([gap] * (row - len(self.values)))
        if self.named:
            value = self.names.setdefault(value, len(self.names))
        self.values.append(value)

    def known(self, *beside: Integers) -> tuple[Any, list[Integers]]:
        """The values there are, and of columns of all samples what stands beside them."""
        values = np.array(self.values)
        rows = np.flatnonzero(values >= 0 if self.named else ~np.isnan(values))
        return values[rows], [column[rows] for column in beside]


@dataclass
class MissingnessTest:
    """Tests whether scores are missing at random: does being missing go with a trait of samples?"""

    _traits: dict[str, _TraitColumn] = field(default_factory=dict)
    _sides: dict[str, _TraitColumn] = field(default_factory=dict)
    _clusters: array[int] = field(default_factory=lambda: array("q"))
    """Of each sample a hash of its cluster, and in the last bit whether it is missing."""
    n: int = 0
    n_missing: int = 0

    def add(
        self,
        missing: bool,
        traits: Mapping[str, Trait],
        lost: Sequence[str] = (),
        sides: Sequence[str] = (),
        cluster: str = "",
    ) -> None:
        """Count one sample; `lost` are those of its `sides` (systems, columns, labels, runs) that
        have no score of their own. Samples of one `cluster` are one witness; without one it is one
        of its own.
        """
        row, self.n, self.n_missing = self.n, self.n + 1, self.n_missing + missing
        self._clusters.append((hash(cluster) >> 1 if cluster else row) << 1 | missing)
        for name, value in traits.items():
            column = self._traits.get(name)
            if column is None:
                column = self._traits[name] = _TraitColumn(isinstance(value, str))
            column.put(row, value)
        if lost and len(set(lost)) < len(set(sides)):
            key = tuple(sorted(set(sides)))
            column = self._sides.setdefault(" / ".join(key), _TraitColumn(named=True))
            column.put(row, (key, frozenset(lost)))

    def report(self) -> dict[str, Any]:
        """What missing scores go with, as JSON types; empty where none is missing or all are.

        `found` has at most five traits with p-values adjusted for all `tests` (Holm); `said` holds
        them as sentences.
        """
        if not 0 < self.n_missing < self.n:
            return {}
        keys = np.array(self._clusters)
        missing, clusters = keys & 1, np.unique(keys >> 1, return_inverse=True)[1]
        tests = [
            test
            for name, column in self._traits.items()
            for test in (_name_tests if column.named else _number_tests)(
                name, column, missing, clusters
            )
        ]
        tests += [test for column in self._sides.values() for test in _side_tests(column, clusters)]
        adjusted = holm([test.p_value for test in tests])
        ranked = sorted(
            zip(adjusted, tests, strict=True),
            key=lambda pair: (pair[0], pair[1].p_value, pair[1].what),
        )
        named = [(p, test) for p, test in ranked if p <= ALPHA][:SHOWN]
        sentences = [
            f"missing scores go with {test.what}: {test.sentence} (p = {p:.2g})"
            for p, test in named
        ]
        names = [*self._traits, *self._sides]
        nothing = (
            f"missing scores go with nothing that was looked at ({', '.join(names)}; {len(tests)} "
            f"tests, n={self.n})"
        )
        return {
            "n": self.n,
            "n_missing": self.n_missing,
            "tests": len(tests),
            "looked_at": names,
            "found": [{"with": test.what, "p_adjusted": p, **test.figures} for p, test in named],
            "said": sentences or [nothing],
        }


def _shared(clusters: Integers) -> Integers | None:
    """The clusters of rows; None where each row is its own."""
    return clusters if len(np.unique(clusters)) < len(clusters) else None


def _over_clusters(p_value: float, one: Any, other: Any, clusters: Integers | None) -> float:
    """The p-value of "these two columns are unrelated", at least that of their products over clusters,
    each held to no relation; where rows are independent as it is.
    """
    if clusters is None:
        return p_value
    n = len(clusters)
    pulls = (one - np.mean(one)) * (other - np.mean(other)) / n
    weights: Floats = np.full(n, 1.0 / n)
    ends = (-math.inf, math.inf)
    found = Estimate(float(pulls.sum()), pulls, weights, clusters, ends, "open").p_value(0.0)
    return 1.0 if found is None else max(p_value, found)


def _number_tests(
    name: str, column: _TraitColumn, all_missing: Integers, all_clusters: Integers
) -> list[_Test]:
    """A number against missing (Mann–Whitney)."""
    from scipy.stats import mannwhitneyu, rankdata

    values, (missing, clusters) = column.known(all_missing, all_clusters)
    gone, there = values[missing == 1], values[missing == 0]
    if not len(gone) or not len(there) or np.ptp(values) == 0.0:
        return []
    figures = {
        "median_missing": float(np.median(gone)),
        "median_elsewhere": float(np.median(there)),
        "n_missing": len(gone),
        "n_elsewhere": len(there),
    }
    sentence = (
        "median {median_missing:g} where missing (n={n_missing}), {median_elsewhere:g} elsewhere "
        "(n={n_elsewhere})"
    ).format(**figures)
    p_value = float(mannwhitneyu(gone, there).pvalue)
    p_value = _over_clusters(p_value, rankdata(values), missing, _shared(clusters))
    return [_Test(p_value, f"the {name}", sentence, figures)]


def _name_tests(
    name: str, column: _TraitColumn, all_missing: Integers, all_clusters: Integers
) -> list[_Test]:
    """Each name against the others (Fisher's exact)."""
    from scipy.stats import fisher_exact

    if len(column.names) < 2:
        return []
    codes, (missing, known_clusters) = column.known(all_missing, all_clusters)
    clusters = _shared(known_clusters)  # once, since there may be many names
    of, gone = (np.bincount(codes, weights=each).astype(int) for each in (None, missing))
    levels = sorted(column.names.items())
    if len(levels) == 2:  # one test says all there is to say
        levels = [max(levels, key=lambda level: gone[level[1]] / of[level[1]])]
    tests = []
    for level, code in levels:
        a, all_a = int(gone[code]), int(of[code])
        b, all_b = int(gone.sum()) - a, int(of.sum()) - all_a
        p_value = float(fisher_exact([[a, all_a - a], [b, all_b - b]])[1])
        p_value = _over_clusters(p_value, codes == code, missing, clusters)
        sentence = f"{a:,} of {all_a:,} there, {b:,} of {all_b:,} elsewhere"
        figures = {"missing": a, "of": all_a, "missing_elsewhere": b, "of_elsewhere": all_b}
        tests.append(_Test(p_value, f"{name} '{level}'", sentence, figures))
    return tests


def _side_tests(column: _TraitColumn, all_clusters: Integers) -> list[_Test]:
    """Each side against an equal share of the missing scores (binomial test)."""
    from scipy.stats import binomtest

    codes, (known_clusters,) = column.known(all_clusters)
    clusters = _shared(known_clusters)
    sets = list(column.names)
    sides, n = list(sets[0][0]), len(codes)
    share = 1 / len(sides)
    lacking = {
        side: np.array([side in lost for _, lost in sets], dtype=np.float64)[codes]
        for side in sides
    }
    if len(sides) == 2:
        sides = [max(sides, key=lambda side: float(lacking[side].sum()))]
    tests = []
    for side in sides:
        k = int(lacking[side].sum())
        p_value = float(binomtest(k, n, share).pvalue)
        if clusters is not None:
            mean = clustered_mean(lacking[side], clusters)
            of_clusters = None if mean is None else mean.p_value(share)
            p_value = 1.0 if of_clusters is None else max(p_value, of_clusters)
        sentence = f"{k:,} of {n:,} samples that lack the score of one side lack that one"
        tests.append(_Test(p_value, side, sentence, {"missing": k, "of": n}))
    return tests


def lengths(sides: Mapping[str, int]) -> dict[str, Trait]:
    """The lengths of answers by the name of their side, in characters, and of two which is the
    longer one.
    """
    traits: dict[str, Trait] = {f"length of {name}": float(size) for name, size in sides.items()}
    if len(sides) == 2:
        (one, first), (other, second) = sides.items()
        traits["longer one"] = one if first > second else other if second > first else "neither"
    return traits


def labelled_traits(
    subset: str, prompt: int, answers: Sequence[int], chosen: Sequence[bool]
) -> dict[str, Trait]:
    """Traits of a labelled sample: subset, lengths, and the place of the chosen one of two answers.

    `prompt` and `answers` are lengths in characters.
    """
    traits: dict[str, Trait] = {"subset": subset} if subset else {}
    if len(chosen) == 2 and chosen[0] != chosen[1]:
        traits["place of the chosen answer"] = "first" if chosen[0] else "second"
        right, wrong = answers if chosen[0] else reversed(answers)
        traits.update(lengths({"the chosen answer": right, "the rejected answer": wrong}))
    elif answers:
        traits["length of the answers"] = float(sum(answers))
    traits["length of the prompt"] = float(prompt)
    return traits


def __getattr__(name: str) -> Any:
    return earlier(__name__, name)
