"""The samples of two runs matched, with a few numbers per sample, so that runs of millions of samples
fit into memory.
"""

from __future__ import annotations

import math
from array import array
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


class Codes(dict[str, int]):
    """Names as numbers, counted in the order they are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


class RunSamples:
    """The samples of a run by what makes them the same, in the order they finished; what was judged
    in parts put together.

    Attributes:
        keys: a hash of what makes a sample the same in another run; each once.
        place: the number of its (first) row in the file.
        credit: NaN where there is none, and
        agreement: with the labels of people, NaN where a row has none.
        lost: cause of a missing score, as a number of `causes`; -1 where none is missing.
        scored: whether its status is scored.
        subset: number of the subset, by `subsets`.
        cluster: a hash of what it belongs to, an odd number; where there is nothing one of its id,
            an even number.
    """

    def __init__(self, run: OpenRun, subsets: Codes, causes: Codes) -> None:
        self.run, self.subsets, self.causes = run, subsets, causes
        self._read: dict[int, SampleRow] = {}
        columns: list[array[Any]] = [array(kind) for kind in "qiddbbiq"]
        keys, _, credit, _, lost, scored, *_ = columns
        parts: dict[int, int] = {}
        for number, row in enumerate(run.samples()):
            name = str((row.metadata or {}).get("whole_key") or "")
            key = hash(name) if name else row.same_as
            earned = math.nan if row.credit is None else row.credit
            agrees = math.nan if row.agrees is None else row.agrees
            missed = _NOBODY if row.credit is not None or row.cause is None else causes[row.cause]
            if name and (at := parts.setdefault(key, len(keys))) < len(keys):
                # judged in parts, it earns its credit with the part that comes last
                credit[at] = earned if math.isnan(credit[at]) else credit[at]
                lost[at] = lost[at] if missed == _NOBODY else missed
                lost[at] = lost[at] if math.isnan(credit[at]) else _NOBODY
                scored[at] &= row.status == "scored"
                continue
            cell = hash(row.cluster) | 1 if row.cluster else hash(row.id) & ~1
            told = (
                key,
                number,
                earned,
                agrees,
                missed,
                row.status == "scored",
                subsets[row.subset],
                cell,
            )
            for column, value in zip(columns, told, strict=True):
                column.append(value)
        names, *rest = map(np.asarray, columns)
        self.place, self.credit, self.agreement, self.lost, self.scored, self.subset = rest[:6]
        self.cluster = rest[6]
        self.keys = _told_apart(names)

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
    if again.any():
        places = np.arange(len(keys))
        first = np.maximum.accumulate(np.where(again, 0, places))
        keys[order] = ordered + (places - first) * _ODD
    return keys


_ODD = 0x5851F42D4C957F2D
"""Spreads small numbers over 64 bits."""
_COLUMNS = ("place", "credit", "agreement", "lost", "scored", "subset", "cluster")


@dataclass(frozen=True)
class Pairs:
    """The samples of two runs, each beside the same one of the other; arrays of two rows have one a
    run.

    Attributes:
        place: numbers of the rows in the files; -1 where a run has no such sample.
        credit: NaN where there is none, and `agreement` as in `RunSamples`.
        lost: who caused that there is no score, as in `RunSamples`; a run that is not finished never
            began what only the other has.
        scored: as in `RunSamples`, and `subset` and `cluster`.
        best: where what is missing is filled in, at worst (0) or at best (1) for the second run.
    """

    runs: tuple[RunSamples, RunSamples]
    place: Integers
    credit: Floats
    agreement: Floats
    lost: Array
    scored: Array
    subset: Integers
    cluster: Integers
    best: float | None = None

    @classmethod
    def of(cls, first: RunSamples, second: RunSamples) -> Pairs:
        """All that either run has: the samples of the first in the order of its file, then the
        others.
        """
        _, own, same = np.intersect1d(first.keys, second.keys, True, return_indices=True)
        others = np.delete(np.arange(len(second.keys), dtype=np.int32), same)
        at = np.full((2, len(first.keys) + len(others)), ABSENT, dtype=np.int32)
        at[0, : len(first.keys)] = np.arange(len(first.keys))
        at[1, own], at[1, len(first.keys) :] = same, others

        def column(name: str, *absent: float) -> Array:
            each = zip((getattr(run, name) for run in runs), absent, at, strict=True)
            # the place -1 holds what an absent sample has
            return np.stack(
                [np.append(own, own.dtype.type(no))[places] for own, no, places in each]
            )

        runs, never = (first, second), first.causes[NEVER_BEGUN]
        places = column("place", ABSENT, ABSENT)
        subset, cluster = (
            np.where(at[0] == ABSENT, second, first)
            for first, second in (column(name, 0, 0) for name in ("subset", "cluster"))
        )
        lost = column("lost", *(_NOBODY if run.run.finished else never for run in runs))
        credit, agreement = (column(name, math.nan, math.nan) for name in ("credit", "agreement"))
        scored = column("scored", 0, 0)
        return cls(runs, places, credit, agreement, lost, scored, subset, cluster)

    def __len__(self) -> int:
        return len(self.subset)

    def __getitem__(self, kept: Any) -> Pairs:
        """Some of them, by a mask or by places."""
        return replace(self, **{name: getattr(self, name)[..., kept] for name in _COLUMNS})

    def _where(self, known: Bools) -> Pairs:
        """Those of which this is known in both runs."""
        both = known.all(axis=0)
        return self if both.all() else self[both]

    @property
    def shared(self) -> Pairs:
        """Those that both runs have."""
        return self._where(self.place != ABSENT)

    @property
    def wanted(self) -> Pairs:
        """Those that both runs have or would have come to; one that is finished was of other
        samples.
        """
        return self._where((self.place != ABSENT) | self._missing)

    @property
    def counted(self) -> Pairs:
        """Those that have a credit in both runs, or get one."""
        known = ~np.isnan(self.credit)
        return self._where(known if self.best is None else known | self._missing)

    @property
    def _missing(self) -> Bools:
        return np.asarray(self.lost != _NOBODY)

    @cached_property
    def clusters(self) -> Integers:
        """Numbers of the clusters, in the order in which they come."""
        return first_seen(self.cluster)

    def changes(self, weights: Mapping[int, float] | None = None) -> OldAndNew:
        """The credits of the second run beside those of the first, with the weights of subsets; a
        sample without a cluster is one of its own.
        """
        known = np.where(self._missing & (self.best is not None), math.nan, self.credit)
        strata = None if weights is None else self.subset
        pairs = OldAndNew(known[0], known[1], self.clusters, strata=strata, weights=weights)
        return pairs if self.best is None else pairs.filled(self.best)

    def agreements(self) -> OldAndNew:
        """How far the second run agrees with people beside how far the first does."""
        first, second = self.agreement
        return OldAndNew(first, second, self.clusters)

    def missing(self, number: int) -> dict[str, int]:
        """What has no score in one run (0 or 1), of those `wanted`, by who caused it."""
        own = self.lost[number, self.place[1 - number] != ABSENT]
        counts = {cause: int(np.sum(own == code)) for cause, code in self.runs[0].causes.items()}
        return added([+Counter(counts)])

    @property
    def credited_once(self) -> int:
        """Samples that both runs scored, of which only one has a credit."""
        known = ~np.isnan(self.credit)
        return int(np.sum((known[0] != known[1]) & (self.scored != 0).all(axis=0)))

    def side(self, number: int) -> Iterator[tuple[str, tuple[float | None, ...], list[bool]]]:
        """Of one run the id of every sample, its scores, and which of its answers are chosen; scores
        read from the file.
        """
        texts = [
            run.rows(places.tolist()) for run, places in zip(self.runs, self.place, strict=True)
        ]
        for *places, missing in zip(*self.place.tolist(), self._missing[number], strict=True):
            rows = [texts[k].get(places[k]) for k in (number, 1 - number)]
            row = rows[0] or rows[1]
            assert row is not None
            right, scores = [label == "chosen" for label in row.labels], row.scores
            if missing and self.best is not None:
                won = bool(self.best) == bool(number)
                scores = tuple(HUGE if chosen == won else -HUGE for chosen in right)
            yield row.id, scores, right

    def by_cluster(self) -> Pairs:
        """The samples of one cluster and subset as one, with their mean credit."""
        groups = first_seen(
            np.where(self.cluster & 1, self.cluster, 0) ^ first_seen(self.subset) * _ODD
        )
        heads, lost = self[np.unique(groups, return_index=True)[1]], []
        known = ~np.isnan(self.credit)
        sums, counts = (
            np.stack([np.bincount(groups, own) for own in each])
            for each in (np.where(known, self.credit, 0.0), known)
        )
        for own in self.lost:
            lost.append(np.full(len(heads), _NOBODY, dtype=own.dtype))
            np.maximum.at(lost[-1], groups, own)
        credit = np.divide(sums, counts, out=np.full(sums.shape, math.nan), where=counts > 0)
        return replace(heads, credit=credit, lost=np.stack(lost))


def suspicion_of(pairs: Pairs) -> Mapping[str, Any]:
    """Traits that go with missing scores; reads the samples of the first run again."""
    missingness, runs = MissingnessTest(), ("the first run", "the second run")
    never = pairs.runs[0].causes[NEVER_BEGUN]
    # a sample that was never begun is not missing because of its traits; places, and no names, for a
    # million samples
    lost = np.full((int(pairs.place[0].max()) + 1, 2), never, dtype=np.int8)
    lost[pairs.place[0]] = pairs.lost.T
    for row, causes in zip(pairs.runs[0].run.samples(), lost, strict=False):
        if never in causes:
            continue
        without = [name for name, cause in zip(runs, causes, strict=True) if cause != _NOBODY]
        chosen = [label == "chosen" for label in row.labels]
        answers = [len(text) for text in row.answers]
        traits = labelled_traits(row.subset, len(row.prompt), answers, chosen)
        missingness.add(bool(without), traits, without, runs)
    return missingness.report()
