"""Worst-case (Manski) bounds of figures with missing scores, and a test of what missing goes with.

Ours: the bounds are two divisions; tests are scipy's.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.significance import holm
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


class _TraitCounts:
    """One trait of all samples: counts of each name and of those missing, or the numbers."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        self.gone: Counter[str] = Counter()
        self.missing, self.there = array("d"), array("d")


@dataclass
class MissingnessTest:
    """Tests whether scores are missing at random: does being missing go with a trait of samples?"""

    _traits: defaultdict[str, _TraitCounts] = field(
        default_factory=lambda: defaultdict(_TraitCounts)
    )
    _sides: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    n: int = 0
    n_missing: int = 0

    def add(
        self,
        missing: bool,
        traits: Mapping[str, Trait],
        lost: Sequence[str] = (),
        sides: Sequence[str] = (),
    ) -> None:
        """Count one sample; `lost` are those of its `sides` (systems, columns, labels, runs) that
        have no score of their own.
        """
        self.n, self.n_missing = self.n + 1, self.n_missing + missing
        for name, value in traits.items():
            counts = self._traits[name]
            if not isinstance(value, str):
                (counts.missing if missing else counts.there).append(value)
                continue
            counts.names[value] += 1
            if missing:
                counts.gone[value] += 1
        if lost and len(set(lost)) < len(set(sides)):
            key = " / ".join(sorted(set(sides)))
            self._sides[key].update({side: 0 for side in sides})
            self._sides[key].update(set(lost))
            self._sides[key][""] += 1

    def report(self) -> dict[str, Any]:
        """What missing scores go with, as JSON types; empty where none is missing or all are.

        `found` has at most five traits with p-values adjusted for all `tests` (Holm); `said` holds
        them as sentences.
        """
        if not 0 < self.n_missing < self.n:
            return {}
        tests = [test for name, seen in self._traits.items() for test in _tests(name, seen)]
        tests += [test for counts in self._sides.values() for test in _side_tests(counts)]
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


def _tests(name: str, seen: _TraitCounts) -> list[_Test]:
    """A number against missing (Mann–Whitney), or each name against the others (Fisher's exact)."""
    gone, there = seen.missing, seen.there
    if not gone and not there:
        return _name_tests(name, seen.names, seen.gone)
    from scipy.stats import mannwhitneyu

    if not gone or not there or len({*gone, *there}) < 2:
        return []
    figures = {
        "median_missing": median(gone),
        "median_elsewhere": median(there),
        "n_missing": len(gone),
        "n_elsewhere": len(there),
    }
    sentence = (
        "median {median_missing:g} where missing (n={n_missing}), {median_elsewhere:g} elsewhere "
        "(n={n_elsewhere})"
    ).format(**figures)
    return [_Test(float(mannwhitneyu(gone, there).pvalue), f"the {name}", sentence, figures)]


def _name_tests(name: str, of: Counter[str], gone: Counter[str]) -> list[_Test]:
    from scipy.stats import fisher_exact

    if len(of) < 2:
        return []
    levels = sorted(of)
    if len(levels) == 2:  # one test says all there is to say
        levels = [max(levels, key=lambda level: gone[level] / of[level])]
    tests = []
    for level in levels:
        a, all_a = gone[level], of[level]
        b, all_b = gone.total() - a, of.total() - all_a
        p_value = float(fisher_exact([[a, all_a - a], [b, all_b - b]])[1])
        sentence = f"{a:,} of {all_a:,} there, {b:,} of {all_b:,} elsewhere"
        figures = {"missing": a, "of": all_a, "missing_elsewhere": b, "of_elsewhere": all_b}
        tests.append(_Test(p_value, f"{name} '{level}'", sentence, figures))
    return tests


def _side_tests(counts: Counter[str]) -> list[_Test]:
    """Each side against an equal share of the missing scores (binomial test)."""
    from scipy.stats import binomtest

    n, sides = counts[""], sorted(filter(None, counts))
    share = 1 / len(sides)
    if len(sides) == 2:
        sides = [max(sides, key=counts.__getitem__)]
    return [
        _Test(
            float(binomtest(counts[side], n, share).pvalue) if counts[side] <= n else 1.0,
            side,
            f"{counts[side]:,} of {n:,} samples that lack the score of one side lack that one",
            {"missing": counts[side], "of": n},
        )
        for side in sides
    ]


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
