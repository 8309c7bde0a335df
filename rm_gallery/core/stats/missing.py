"""Whether what is missing goes with something: a subset, a side, the length of an answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from rm_gallery.core.stats.paired import holm

ALPHA = 0.05
SHOWN = 5
Trait = str | float
"""What a sample is like: a name, such as that of its subset, or a number, such as a length."""


class _Test(NamedTuple):
    p_value: float
    what: str
    said: str
    figures: Mapping[str, Any]


@dataclass
class Lookout:
    """Hears of every sample whether its score is missing and what it is like, and tests if the one goes with the other."""

    _traits: defaultdict[str, list[tuple[Trait, bool]]] = field(default_factory=lambda: defaultdict(list))
    _sides: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    n: int = 0
    n_missing: int = 0

    def add(self, missing: bool, traits: Mapping[str, Trait], lost: Sequence[str] = (), sides: Sequence[str] = ()) -> None:
        """Count one sample; `lost` are those of its `sides` (systems, columns, labels, runs) that have no score of their own."""
        self.n, self.n_missing = self.n + 1, self.n_missing + missing
        for name, value in traits.items():
            self._traits[name].append((value, missing))
        if 0 < len(set(lost)) < len(set(sides)):
            key = " / ".join(sorted(set(sides)))
            self._sides[key].update({side: 0 for side in sides})
            self._sides[key].update(set(lost))
            self._sides[key][""] += 1

    def found(self) -> dict[str, Any]:
        """What missing scores go with, as plain JSON types; empty where none is missing or all are.

        `found` names at most five, `p_adjusted` counting all `tests` that were made (Holm), and `said` puts it in sentences.
        """
        if not 0 < self.n_missing < self.n:
            return {}
        tests = [test for name, values in self._traits.items() for test in _tests(name, values)]
        tests += [test for counts in self._sides.values() for test in _side_tests(counts)]
        adjusted = holm([test.p_value for test in tests])
        seen = sorted(zip(adjusted, tests, strict=True), key=lambda pair: (pair[0], pair[1].p_value, pair[1].what))
        named = [(p, test) for p, test in seen if p <= ALPHA][:SHOWN]
        said = [f"missing scores go with {test.what}: {test.said} (p = {p:.2g})" for p, test in named]
        names = ", ".join([*self._traits, *self._sides])
        nothing = f"missing scores go with nothing that was looked at ({names}; {len(tests)} tests, n={self.n})"
        return {
            "n": self.n,
            "n_missing": self.n_missing,
            "tests": len(tests),
            "looked_at": [*self._traits, *self._sides],
            "found": [{"with": test.what, "p_adjusted": p, **test.figures} for p, test in named],
            "said": said or [nothing],
        }


def _tests(name: str, values: Sequence[tuple[Trait, bool]]) -> list[_Test]:
    """A number against missing (Mann–Whitney), or each name against all others (Fisher's exact test)."""
    if all(isinstance(value, str) for value, _ in values):
        return _name_tests(name, values)
    from scipy.stats import mannwhitneyu

    gone, there = (
        [float(value) for value, missing in values if missing is wanted and not isinstance(value, str)]
        for wanted in (True, False)
    )
    if not gone or not there or len({*gone, *there}) < 2:
        return []
    middles = median(gone), median(there)
    figures = dict(zip(("median_missing", "median_elsewhere"), middles, strict=True))
    figures |= {"n_missing": len(gone), "n_elsewhere": len(there)}
    said = f"median {middles[0]:g} where missing (n={len(gone)}), {middles[1]:g} elsewhere (n={len(there)})"
    return [_Test(float(mannwhitneyu(gone, there).pvalue), f"the {name}", said, figures)]


def _name_tests(name: str, values: Sequence[tuple[Trait, bool]]) -> list[_Test]:
    from scipy.stats import fisher_exact

    of: Counter[str] = Counter(str(value) for value, _ in values)
    gone: Counter[str] = Counter(str(value) for value, missing in values if missing)
    if len(of) < 2:
        return []
    n, lost = of.total(), gone.total()
    levels = sorted(of)
    if len(levels) == 2:  # one test says all there is to say
        levels = [max(levels, key=lambda level: gone[level] / of[level])]
    found = []
    for level in levels:
        rest = n - of[level], lost - gone[level]
        table = [[gone[level], of[level] - gone[level]], [rest[1], rest[0] - rest[1]]]
        said = f"{gone[level]:,} of {of[level]:,} there, {rest[1]:,} of {rest[0]:,} elsewhere"
        figures = {"missing": gone[level], "of": of[level], "missing_elsewhere": rest[1], "of_elsewhere": rest[0]}
        found.append(_Test(float(fisher_exact(table)[1]), f"{name} '{level}'", said, figures))
    return found


def _side_tests(counts: Counter[str]) -> list[_Test]:
    """Each side against the share it would have if all were lost alike (binomial test)."""
    from scipy.stats import binomtest

    n, sides = counts[""], sorted(side for side in counts if side)
    if len(sides) == 2:
        sides = [max(sides, key=counts.__getitem__)]
    share = 1 / len([side for side in counts if side])
    return [
        _Test(
            float(binomtest(counts[side], n, share).pvalue) if counts[side] <= n else 1.0,
            side,
            f"{counts[side]:,} of {n:,} samples that lack the score of one side lack that one",
            {"missing": counts[side], "of": n},
        )
        for side in sides
    ]


def lengths(sides: Mapping[str, str]) -> dict[str, Trait]:
    """The lengths of answers by the name of their side, in characters, and of two which is the longer one."""
    found: dict[str, Trait] = {f"length of {name}": float(len(text)) for name, text in sides.items()}
    if len(sides) == 2:
        (one, first), (other, second) = sides.items()
        found["longer one"] = one if len(first) > len(second) else other if len(second) > len(first) else "neither"
    return found


def labelled_traits(subset: str, prompt: int, answers: Sequence[str], chosen: Sequence[bool]) -> dict[str, Trait]:
    """What a labelled sample is like: its subset, lengths in characters, and where the chosen one of two answers stands."""
    traits: dict[str, Trait] = {"subset": subset} if subset else {}
    if sorted(chosen) == [False, True]:
        traits["place of the chosen answer"] = "first" if chosen[0] else "second"
        right, wrong = answers if chosen[0] else reversed(answers)
        traits |= lengths({"the chosen answer": right, "the rejected answer": wrong})
    elif answers:
        traits["length of the answers"] = float(sum(map(len, answers)))
    traits["length of the prompt"] = float(prompt)
    return traits
