"""The samples of two runs matched, with a few numbers per sample, so that runs of millions of samples
fit into memory.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
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
        credit: NaN where there is none.
        lost: cause of a missing score, as a number of `causes`; -1 where none is missing.
        scored: whether its status is scored.
        subset: number of the subset, by `subsets`.
        cluster: a hash of what it belongs to, an odd number; where there is nothing one of its id,
            an even number.
    """

    def __init__(self, run: OpenRun, subsets: Codes, causes: Codes) -> None:
        self.run, self.subsets, self.causes = run, subsets, causes
        self._read: dict[int, SampleRow] = {}
        keys, credit, lost, scored = array("q"), array("d"), array("b"), array("b")
        whole, subset, cluster = array("b"), array("i"), array("q")
        for row in run.samples():
            name = str((row.metadata or {}).get("whole_key") or "")
            keys.append(hash(name or row.key))
            whole.append(bool(name))
            credit.append(math.nan if row.credit is None else row.credit)
            lost.append(
                _NOBODY if row.credit is not None or row.cause is None else causes[row.cause]
            )
            scored.append(row.status == "scored")
            subset.append(subsets[row.subset])
            cluster.append(hash(row.cluster) | 1 if row.cluster else hash(row.id) & ~1)
        ordered = np.sort(np.asarray(keys))
        repeated = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        del ordered
        stay = self._merged(repeated, keys, whole, credit, lost, scored) if repeated else None
        columns = (np.asarray(one) for one in (keys, credit, lost, scored, subset, cluster))
        cut = columns if stay is None else (one[stay] for one in columns)
        self.keys, self.credit, self.lost, self.scored, self.subset, self.cluster = cut
        self.place: Integers = np.arange(len(keys), dtype=np.int32) if stay is None else stay

    @staticmethod
    def _merged(
        repeated: Collection[int],
        keys: array[int],
        whole: array[int],
        credit: array[float],
        lost: array[int],
        scored: array[int],
    ) -> Integers:
        """Put together what was judged in parts, number what merely has the same key, and say which
        rows stay.
        """
        known: dict[int, int] = {}
        again: Counter[int] = Counter()
        stay = array("i")
        for place, key in enumerate(keys):
            first = known.setdefault(key, place) if key in repeated else place
            if first == place or not whole[place]:
                stay.append(place)
                if first != place:
                    again[key] += 1
                    keys[place] = hash((key, again[key]))
                continue
            # judged in parts, it earns its credit with the part that comes last
            scored[first] &= scored[place]
            credit[first] = credit[place] if math.isnan(credit[first]) else credit[first]
            lost[first] = lost[place] if lost[place] != _NOBODY else lost[first]
            if not math.isnan(credit[first]):
                lost[first] = _NOBODY
        return np.asarray(stay)

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


_COLUMNS = ("place", "credit", "lost", "scored", "subset", "cluster")


@dataclass(frozen=True)
class Pairs:
    """The samples of two runs, each beside the same one of the other; arrays of two rows have one a
    run.

    Attributes:
        place: numbers of the rows in the files; -1 where a run has no such sample.
        credit: NaN where there is none.
        lost: who caused that there is no score, as in `RunSamples`; a run that is not finished never
            began what only the other has.
        scored: as in `RunSamples`, and `subset` and `cluster`.
        best: where what is missing is filled in, at worst (0) or at best (1) for the second run.
    """

    runs: tuple[RunSamples, RunSamples]
    place: Integers
    credit: Floats
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

        def column(name: str, absent: Sequence[float]) -> Array:
            sides = zip((first, second), absent, at, strict=True)
            columns = ((getattr(run, name), other, places) for run, other, places in sides)
            # the place -1 holds what an absent sample has
            return np.stack(
                [np.append(own, own.dtype.type(other))[where] for own, other, where in columns]
            )

        never = first.causes[NEVER_BEGUN]
        absent = {
            "place": (ABSENT, ABSENT),
            "credit": (math.nan, math.nan),
            "lost": [_NOBODY if run.run.finished else never for run in (first, second)],
            "scored": (0, 0),
        }
        of_either = (
            np.where(at[0] == ABSENT, *column(name, (0, 0))[::-1]) for name in ("subset", "cluster")
        )
        return cls((first, second), *(column(*each) for each in absent.items()), *of_either)

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

    def changes(self, weights: Mapping[int, float] | None = None) -> OldAndNew:
        """The credits of the second run beside those of the first, with the weights of subsets; a
        sample without a cluster is one of its own.
        """
        strata, clusters = None if weights is None else self.subset, first_seen(self.cluster)
        if self.best is None:
            return OldAndNew(*self.credit, clusters, strata=strata, weights=weights)
        known = np.where(self._missing, math.nan, self.credit)
        return OldAndNew(*known, clusters, strata=strata, weights=weights).filled(self.best)

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

    def side(self, number: int) -> list[tuple[str, tuple[float | None, ...], list[bool]]]:
        """Of one run the id of every sample, its scores, and which of its answers are chosen;
        scores read from the file.
        """
        own, other = self.place[number].tolist(), self.place[1 - number].tolist()
        texts = [
            self.runs[k].rows([place for place in self.place[k].tolist() if place != ABSENT])
            for k in (number, 1 - number)
        ]
        samples = []
        for mine, others, lost in zip(own, other, self.lost[number].tolist(), strict=True):
            row = texts[1][others] if mine == ABSENT else texts[0][mine]
            right = [label == "chosen" for label in row.labels]
            scores = row.scores
            if lost != _NOBODY and self.best is not None:
                won = bool(self.best) == bool(number)
                scores = tuple(HUGE if chosen == won else -HUGE for chosen in right)
            samples.append((row.id, scores, right))
        return samples

    def by_cluster(self) -> Pairs:
        """The samples of one cluster and subset as one, with their mean credit."""
        groups = first_seen(
            np.where(self.cluster & 1, self.cluster, 0)
            ^ first_seen(self.subset) * 0x5851F42D4C957F2D
        )
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        heads = self[order[starts]]
        for number, inside in enumerate(np.split(order, starts[1:])):
            heads.credit[:, number] = [mean_of(side) for side in self.credit[:, inside]]
            heads.lost[:, number] = [
                next((cause for cause in side if cause != _NOBODY), _NOBODY)
                for side in self.lost[:, inside].tolist()
            ]
        return heads


def mean_of(credits: Floats) -> float:
    """The mean of the credits that are known; NaN without one."""
    known = credits[~np.isnan(credits)]
    return math.fsum(known) / len(known) if len(known) else math.nan


def suspicion_of(pairs: Pairs) -> Mapping[str, Any]:
    """Traits that go with missing scores; reads the samples of the first run again."""
    missingness, runs = MissingnessTest(), ("the first run", "the second run")
    never = [run.causes.get(NEVER_BEGUN) for run in pairs.runs]
    places, number = pairs.place[0], 0  # pairs stand in the order of the file
    for place, row in enumerate(pairs.runs[0].run.samples()):
        if number == len(places):
            break
        if place != places[number]:
            continue
        lost = [
            name
            for name, cause in zip(runs, pairs.lost[:, number], strict=True)
            if cause != _NOBODY
        ]
        answers = [len(text) for text in row.answers]
        traits = labelled_traits(
            row.subset, len(row.prompt), answers, [label == "chosen" for label in row.labels]
        )
        if not any(cause == code for code, cause in zip(never, pairs.lost[:, number], strict=True)):
            # a sample that was never begun is not missing because of its traits
            missingness.add(bool(lost), traits, lost, runs)
        number += 1
    return missingness.report()
