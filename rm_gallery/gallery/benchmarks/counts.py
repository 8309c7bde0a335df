"""Figures of four counts: good ones called good, bad ones called good, bad ones called bad, good
ones called bad.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from rm_gallery.core.stats.intervals import Interval
from rm_gallery.gallery.benchmarks.figures import (
    Extra,
    Figure,
    Report,
    uncertainty_of,
)
from rm_gallery.gallery.benchmarks.judgements import Judged
from rm_gallery.gallery.benchmarks.rules import Tally, headline, merged
from rm_gallery.gallery.benchmarks.steps import harmonic_mean

if TYPE_CHECKING:
    from rm_gallery.core.stats import Floats

CELLS = ("TP", "FP", "TN", "FN")
_CELL = {(True, True): 0, (False, True): 1, (False, False): 2, (True, False): 3}
"""The place of a count, by whether one is good and is called so."""
Measure = Callable[[float, float, float, float], "float | None"]
"""A figure of the four counts, which rises with each that is called what it is; None where it has
no value.
"""


class Cells:
    """The four counts of each cluster, how the samples ended, and what is in those without a score."""

    def __init__(self) -> None:
        self.rows = Tally()
        self.clusters: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        self.unseen = [0, 0]
        """Good and bad ones without a score."""

    def add(
        self, judged: Judged, good: Sequence[bool], said: Sequence[bool] | None
    ) -> float | None:
        """Count one sample: what is good in it, and what was called so (None where it has no
        score); gives the share that was called what it is.
        """
        credit = None
        if said:
            pairs = list(zip(good, said, strict=True))
            for truth, called in pairs:
                self.clusters[judged.cluster][_CELL[bool(truth), bool(called)]] += 1
            credit = sum(truth == called for truth, called in pairs) / len(pairs)
        elif judged.cause_or("data"):  # what the protocol leaves out is not missing
            for truth in good:
                self.unseen[not truth] += 1
        return self.rows.count(judged, credit)


def cells_figure(
    rule: str,
    parts: Sequence[Cells],
    measure: Measure,
    beside: Beside,
) -> Figure:
    """The measure of all parts' counts together, with `beside` of them in `extra`.

    Its interval is over clusters, with half of one more cluster supposed in each cell. Its bounds
    call all that is missing wrongly, and rightly.
    """
    import numpy as np

    from rm_gallery.core.stats.uncertainty import of_sums

    clusters: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for part in parts:
        for cluster, counts in part.clusters.items():
            clusters[cluster] = [a + b for a, b in zip(clusters[cluster], counts, strict=True)]
    tp, fp, tn, fn = (sum(counts[cell] for counts in clusters.values()) for cell in range(4))
    good, bad = (sum(part.unseen[kind] for part in parts) for kind in (0, 1))
    low, high = measure(tp, fp + bad, tn, fn + good), measure(tp + good, fp, tn + bad, fn)
    known = merged(part.rows for part in parts).counts()
    if parts and low is not None and high is not None:
        known["bounds"] = Interval(low, high)
    score, extra = (measure(tp, fp, tn, fn), beside(tp, fp, tn, fn)) if clusters else (None, {})
    whole = None
    if score is not None:

        def measured(sums: Floats) -> list[float | None]:
            return [measure(*each) for each in sums.tolist()]

        # sorted, so that the order in which samples finish changes no digit
        table = np.array(sorted(clusters.values()), dtype=np.float64)
        whole = of_sums(table, measured, unseen=np.eye(4))
    return Figure(rule, score=score, extra=dict(extra), **uncertainty_of(whole), **known)


Beside = Callable[..., Extra]
"""Figures of the same counts."""
Called = tuple[Sequence[bool], Sequence[bool] | None]
"""What is good in a sample, and what was called so; None where it has no score."""
Asides = Mapping[str, tuple[str, bool, bool | None]]
"""Further figures that a sample counts for: by name the rule, the truth, and what it was called."""


class CountsScorer:
    """One measure of the counts of all samples, with the part of each subset beside it.

    Args:
        rule: its name, of `MEASURES`.
        items: what is counted.
        beside: figures of the same counts.
        further: what is counted beside them.
        once: whether the second of two samples with one id is not counted.
    """

    outside: ClassVar[frozenset[str]] = frozenset()
    """Subsets that do not enter the whole."""
    part: ClassVar[type[Cells]] = Cells

    def __init__(
        self,
        rule: str,
        items: Callable[[Judged], Called],
        beside: Beside = lambda *cells: {},
        further: Callable[[Judged], Asides] = lambda judged: {},
        once: bool = False,
    ) -> None:
        self._rule, self._items, self._beside = rule, items, beside
        self._further, self._once = further, once
        self._parts: defaultdict[str, Cells] = defaultdict(self.part)
        self._others: defaultdict[tuple[str, str], Cells] = defaultdict(Cells)
        self._seen: set[str] = set()
        self._repeated = 0

    def add(self, judged: Judged) -> float | None:
        """Count one sample; gives the share of it that was called what it is."""
        if self._once and judged.sample_id in self._seen:
            self._repeated += 1
            return None
        self._seen |= {judged.sample_id} if self._once else set()
        for name, (rule, truth, said) in self._further(judged).items():
            self._others[name, rule].add(judged, [truth], None if said is None else [said])
        return self._parts[judged.subset].add(judged, *self._items(judged))

    def report(self) -> Report:
        """Report what was counted so far."""
        parts = {
            name: self.figure(self._rule, name, [part], self._beside)
            for name, part in self._parts.items()
        }
        counted = [part for name, part in self._parts.items() if name not in self.outside]
        whole = self.figure(self._rule, "", counted, self._beside)
        for (name, rule), part in sorted(self._others.items(), key=lambda item: item[0]):
            whole.extra[name] = self.figure(rule, name, [part])
        if self._repeated:
            whole.extra["n_repeated"] = self._repeated
        return headline(whole, parts)

    def figure(
        self, rule: str, name: str, parts: Sequence[Cells], beside: Beside = lambda *cells: {}
    ) -> Figure:
        """The figure of some parts together."""
        return cells_figure(rule, parts, MEASURES[rule], beside)


def ratio(some: float, all_of: float) -> float:
    """A share; that of nothing is 0."""
    return some / all_of if all_of else 0.0


def shares(tp: float, fp: float, tn: float, fn: float) -> dict[str, float]:
    """The counts; precision, recall and F1 of what was called good, the share of bad ones called
    bad, the mean of both recalls, and the accuracy; a share of nothing is 0.
    """
    precision, recall = ratio(tp, tp + fp), ratio(tp, tp + fn)
    return {
        **dict(zip(CELLS, (tp, fp, tn, fn), strict=True)),
        "precision": precision,
        "recall": recall,
        "F1": harmonic_mean(precision, recall),
        "specificity": ratio(tn, tn + fp),
        "balanced_accuracy": (recall + ratio(tn, tn + fp)) / 2,
        "accuracy": ratio(tp + tn, tp + fp + tn + fn),
    }


def both_kinds(measure: Callable[..., float]) -> Measure:
    """The measure, where there are good ones and bad ones: it says nothing about one kind alone."""
    return lambda tp, fp, tn, fn: measure(tp, fp, tn, fn) if tp + fn and tn + fp else None


MEASURES: Mapping[str, Measure] = {
    "success_precision": both_kinds(lambda tp, fp, tn, fn: ratio(tp, tp + fp)),
    "macro_f1": both_kinds(
        lambda tp, fp, tn, fn: (
            (ratio(2 * tp, 2 * tp + fp + fn) + ratio(2 * tn, 2 * tn + fp + fn)) / 2
        )
    ),
    "balanced_f1": both_kinds(lambda tp, fp, tn, fn: harmonic_mean(tp / (tp + fn), tn / (tn + fp))),
    "step_accuracy": lambda tp, fp, tn, fn: tp / (tp + fn) if tp + fn else None,
    "share_found": lambda tp, fp, tn, fn: tp / (tp + fn) if tp + fn else None,
}
"""By rule; what has to be found counts as good, and as called good where it was found."""
