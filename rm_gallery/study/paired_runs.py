"""The samples of two runs matched, with a few numbers per sample, so that runs of millions of samples
fit into memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rm_gallery.core.stats import Array, Bools, Floats, Integers, np
from rm_gallery.core.stats.changes import OldAndNew
from rm_gallery.core.stats.columns import first_seen
from rm_gallery.core.stats.denominator import NEVER_BEGUN, MissingnessTest, added, labelled_traits
from rm_gallery.core.utils.shown import one_line
from rm_gallery.study.runs import OpenRun, SampleRow

HUGE = 1e9
"""A score beyond all others, for what is missing."""
_NOBODY, ABSENT = -1, -1
"""Nothing is missing; the run has no such sample."""
_ODD = 0x5851F42D4C957F2D
"""Spreads small numbers over 64 bits."""
_SAMPLE = [
    ("key", "i8"),  # a hash of what makes a sample the same in another run; each once
    ("place", "i4"),  # the number of its (first) row in the file; -1 where a run has no such sample
    ("credit", "f8"),  # NaN where there is none
    ("agreement", "f8"),  # with the labels of people, NaN where a row has none
    ("lost", "i1"),  # cause of a missing score, as a number of `causes`; -1 where none is missing
    ("scored", "?"),  # whether its status is scored
    ("subset", "i4"),  # number of the subset, by `subsets`
    # a hash of what it belongs to, an odd number; where there is nothing one of its id, an even one
    ("cluster", "i8"),
    ("part", "?"),  # whether it is a part of what was judged in several
]
"""What is kept of a sample."""


class Codes(dict[str, int]):
    """Names as numbers, counted in the order they are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


class RunSamples:
    """The samples of a run, an array of `_SAMPLE`, in the order they finished; what was judged in
    parts put together.
    """

    def __init__(self, run: OpenRun, subsets: Codes, causes: Codes) -> None:
        self.run, self.subsets, self.causes = run, subsets, causes
        self._read: dict[int, SampleRow] = {}
        samples = np.fromiter(self._numbers(), dtype=_SAMPLE)
        first_part: dict[int, int] = {}
        later_parts = []
        for at in np.flatnonzero(samples["part"]).tolist():
            first = first_part.setdefault(int(samples[at]["key"]), at)
            if first == at:
                continue
            whole, part = samples[first], samples[at]
            later_parts.append(at)
            # judged in parts, it earns its credit with the part that comes last
            if not math.isnan(part["credit"]):
                whole["credit"] = part["credit"]
            if part["lost"] != _NOBODY:
                whole["lost"] = part["lost"]
            if not math.isnan(whole["credit"]):
                whole["lost"] = _NOBODY
            whole["scored"] &= part["scored"]
        self.samples = np.delete(samples, later_parts)
        self.samples["key"] = _told_apart(self.samples["key"])

    def _numbers(self) -> Iterator[tuple[Any, ...]]:
        """What is kept of every row, a `_SAMPLE` each."""
        for place, row in enumerate(self.run.samples()):
            whole_key = str((row.metadata or {}).get("whole_key") or "")
            missing = row.credit is None and row.cause is not None
            yield (
                hash(whole_key) if whole_key else row.same_as,
                place,
                math.nan if row.credit is None else row.credit,
                math.nan if row.agrees is None else row.agrees,
                self.causes[str(row.cause)] if missing else _NOBODY,
                row.status == "scored",
                self.subsets[row.subset],
                hash(row.cluster) | 1 if row.cluster else hash(row.id) & ~1,
                bool(whole_key),
            )

    def rows(self, places: Collection[int]) -> dict[int, SampleRow]:
        """The rows at some places, read again."""
        if wanted := set(places) - self._read.keys():
            self._read.update(
                (place, row) for place, row in enumerate(self.run.samples()) if place in wanted
            )
        return self._read

    @property
    def name(self) -> str:
        """The reward and the folder."""
        reward = one_line(str(self.run.report.get("reward") or ""))
        return f"{reward} ({self.run.folder.name})" if reward else self.run.folder.name


def _told_apart(keys: Integers) -> Integers:
    """Keys of which those that stand several times are numbered in their order."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    again = np.append(False, ordered[1:] == ordered[:-1])
    places = np.arange(len(keys))
    first = np.maximum.accumulate(np.where(again, 0, places))
    distinct = keys.copy()
    distinct[order] = ordered + (places - first) * _ODD
    return distinct


@dataclass(frozen=True)
class Pairs:
    """The samples of two runs, each beside the same one of the other.

    Attributes:
        runs: the two runs.
        samples: an array of `_SAMPLE`, shape (2, samples). A run that is not finished never began
            what only the other has; subset and cluster are those of the first run that has any.
        best: where what is missing is filled in, at worst (0) or at best (1) for the second run.
    """

    runs: tuple[RunSamples, RunSamples]
    samples: Array
    best: float | None = None

    @classmethod
    def of(cls, first: RunSamples, second: RunSamples) -> Pairs:
        """All that either run has: the samples of the first in the order of its file, then the
        others.
        """
        runs, n = (first, second), len(first.samples)
        keys = (first.samples["key"], second.samples["key"])
        _, in_first, in_second = np.intersect1d(*keys, True, return_indices=True)
        others = np.delete(np.arange(len(second.samples), dtype=np.int32), in_second)
        places = np.full((2, n + len(others)), ABSENT, dtype=np.int32)
        places[0, :n] = np.arange(n)
        places[1, in_first], places[1, n:] = in_second, others
        sides, never = [], first.causes[NEVER_BEGUN]
        for run, at in zip(runs, places, strict=True):
            lost = _NOBODY if run.run.finished else never
            absent = (0, ABSENT, math.nan, math.nan, lost, False, 0, 0, False)
            # the place -1 holds what an absent sample has
            sides.append(np.append(run.samples, np.array([absent], dtype=_SAMPLE))[at])
        for name in ("subset", "cluster"):
            sides[0][name][n:] = sides[1][name][n:]
        return cls(runs, np.stack(sides))

    def __len__(self) -> int:
        return int(self.samples.shape[1])

    def __getitem__(self, kept: Any) -> Pairs:
        """Some of them, by a mask or by places."""
        return replace(self, samples=self.samples[:, kept])

    def column(self, name: str) -> Array:
        """The numbers of this name in `_SAMPLE`, a row a run."""
        return np.ascontiguousarray(self.samples[name])

    @property
    def credit(self) -> Floats:
        """Credits, a row a run."""
        return np.asarray(self.column("credit"), dtype=np.float64)

    @property
    def subset(self) -> Integers:
        """Numbers of the subsets."""
        return np.asarray(self.samples["subset"][0])

    def _where(self, known: Bools) -> Pairs:
        """Those of which this is known in both runs."""
        both = known.all(axis=0)
        return self if both.all() else self[both]

    @property
    def _missing(self) -> Bools:
        return np.asarray(self.samples["lost"] != _NOBODY)

    @property
    def _present(self) -> Bools:
        return np.asarray(self.samples["place"] != ABSENT)

    @property
    def shared(self) -> Pairs:
        """Those that both runs have."""
        return self._where(self._present)

    @property
    def wanted(self) -> Pairs:
        """Those that both runs have or would have come to; one that is finished was of other
        samples.
        """
        return self._where(self._present | self._missing)

    @property
    def counted(self) -> Pairs:
        """Those that have a credit in both runs, or get one."""
        known = ~np.isnan(self.credit)
        return self._where(known if self.best is None else known | self._missing)

    @property
    def only_one(self) -> list[int]:
        """How many only the first run has, and how many only the second."""
        absent_in_first, absent_in_second = (~self._present).sum(axis=1).tolist()
        return [absent_in_second, absent_in_first]

    @cached_property
    def clusters(self) -> Integers:
        """Numbers of the clusters, in the order in which they come."""
        return first_seen(self.column("cluster")[0])

    def changes(self, weights: Mapping[int, float] | None = None) -> OldAndNew:
        """The credits of the second run beside those of the first, with the weights of subsets; a
        sample without a cluster is one of its own.
        """
        strata = None if weights is None else self.subset
        filled = self._missing & (self.best is not None)
        old, new = np.where(filled, math.nan, self.credit)
        pairs = OldAndNew(old, new, self.clusters, strata=strata, weights=weights)
        return pairs if self.best is None else pairs.filled(self.best)

    def agreements(self) -> OldAndNew:
        """How far the second run agrees with people beside how far the first does."""
        old, new = self.column("agreement")
        return OldAndNew(old, new, self.clusters)

    def missing(self, number: int) -> dict[str, int]:
        """What has no score in one run (0 or 1), of those `wanted`, by who caused it."""
        lost = self.samples["lost"][number][self._present[1 - number]]
        counts = {cause: int(np.sum(lost == code)) for cause, code in self.runs[0].causes.items()}
        return added([+Counter(counts)])

    @property
    def credited_once(self) -> int:
        """Samples that both runs scored, of which only one has a credit."""
        known = ~np.isnan(self.credit)
        return int(np.sum((known[0] != known[1]) & self.column("scored").all(axis=0)))

    def side(self, number: int) -> Iterator[tuple[str, tuple[float | None, ...], list[bool]]]:
        """Of one run the id of every sample, its scores, and which of its answers are chosen; scores
        read from the file.
        """
        run, places = self.runs[number], self.column("place").tolist()
        other = self.runs[1 - number].rows(places[1 - number])
        rows = run.rows(places[number])
        for place, beside, missing in zip(
            places[number], places[1 - number], self._missing[number].tolist(), strict=True
        ):
            row = rows[place] if place in rows else other[beside]
            right, scores = [label == "chosen" for label in row.labels], row.scores
            if missing and self.best is not None:
                won = bool(self.best) == bool(number)
                scores = tuple(HUGE if chosen == won else -HUGE for chosen in right)
            yield row.id, scores, right

    def by_cluster(self) -> Pairs:
        """The samples of one cluster and subset as one, with their mean credit."""
        cluster = self.column("cluster")[0]
        groups = first_seen(np.where(cluster & 1, cluster, 0) ^ first_seen(self.subset) * _ODD)
        heads = self.samples[:, np.unique(groups, return_index=True)[1]]
        for head, credit, lost in zip(heads, self.credit, self.samples["lost"], strict=True):
            known = ~np.isnan(credit)
            sums, counts = (
                np.bincount(groups, np.where(known, credit, 0.0)),
                np.bincount(groups, known),
            )
            head["credit"] = np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)
            head["lost"] = _NOBODY
            np.maximum.at(head["lost"], groups, lost)
        return replace(self, samples=heads)


def suspicion_of(pairs: Pairs) -> Mapping[str, Any]:
    """Traits that go with missing scores; reads the samples of the first run again."""
    missingness, runs = MissingnessTest(), ("the first run", "the second run")
    never = pairs.runs[0].causes[NEVER_BEGUN]
    places = pairs.samples["place"][0]
    # a sample that was never begun is not missing because of its traits; places, and no names, for a
    # million samples
    lost = np.full((int(places.max()) + 1, 2), never, dtype=np.int8)
    lost[places] = pairs.samples["lost"].T
    for row, causes in zip(pairs.runs[0].run.samples(), lost, strict=False):
        if never in causes:
            continue
        without = [name for name, cause in zip(runs, causes, strict=True) if cause != _NOBODY]
        chosen = [label == "chosen" for label in row.labels]
        answers = [len(text) for text in row.answers]
        traits = labelled_traits(row.subset, len(row.prompt), answers, chosen)
        missingness.add(bool(without), traits, without, runs, row.cluster)
    return missingness.report()
