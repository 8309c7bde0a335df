"""The samples of two runs matched, with a few numbers per sample, so that runs of millions of samples
fit into memory.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rm_gallery.core.stats import Array, Floats, Integers, np
from rm_gallery.core.stats.columns import first_seen
from rm_gallery.core.stats.denominator import NEVER_BEGUN, MissingnessTest, added, labelled_traits
from rm_gallery.core.utils.shown import one_line
from rm_gallery.study.runs import OpenRun, SampleRow

HUGE = 1e9
"""A score beyond all others, for what is missing."""
_NOBODY, _ABSENT = -1, -1
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


_COLUMNS = ("place", "credit", "lost", "subset", "cluster")


@dataclass(frozen=True)
class Pairs:
    """Samples of the first run, each with the same one of the second; arrays of two rows have one a
    run.

    Attributes:
        place: numbers of the rows in the files; -1 where a run has no such sample.
        credit: NaN where there is none.
        lost: who caused that there is no score, as in `RunSamples`.
        subset: numbers as in `RunSamples`, and `cluster` hashes as there.
        filled: what stands for a missing score of each run: the credit 1 or 0, NaN for nothing.
    """

    runs: tuple[RunSamples, RunSamples]
    place: Integers
    credit: Floats
    lost: Array
    subset: Integers
    cluster: Integers
    filled: tuple[float, float] = (math.nan, math.nan)

    def __len__(self) -> int:
        return len(self.subset)

    def __getitem__(self, kept: Any) -> Pairs:
        """Some of them, by a mask or by places."""
        return replace(self, **{name: getattr(self, name)[..., kept] for name in _COLUMNS})

    @property
    def scored(self) -> Pairs:
        """Those that both runs have a credit of."""
        known = ~np.isnan(self.credit).any(axis=0)
        return self if known.all() else self[known]

    @property
    def clusters(self) -> Integers:
        """Cluster numbers in order of appearance; a sample without a cluster is one of its own."""
        return first_seen(self.cluster)

    def fill(self, first: float, second: float) -> Pairs:
        """As if what is missing in each run had earned this credit."""
        credit = np.where(self.lost != _NOBODY, np.array([[first], [second]]), self.credit)
        return replace(self, credit=credit, filled=(first, second))

    def side(self, number: int) -> list[tuple[str, tuple[float | None, ...], list[bool]]]:
        """Of one run the id of every sample, its scores, and which of its answers are chosen;
        scores read from the file.
        """
        own, other = self.place[number].tolist(), self.place[1 - number].tolist()
        texts = [
            self.runs[k].rows([place for place in self.place[k].tolist() if place != _ABSENT])
            for k in (number, 1 - number)
        ]
        samples = []
        for mine, others, lost in zip(own, other, self.lost[number].tolist(), strict=True):
            row = texts[1][others] if mine == _ABSENT else texts[0][mine]
            right = [label == "chosen" for label in row.labels]
            scores = row.scores
            if lost != _NOBODY and not math.isnan(self.filled[number]):
                scores = tuple(
                    HUGE if chosen == bool(self.filled[number]) else -HUGE for chosen in right
                )
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


class Matched:
    """Two runs, which samples both have, and which only one of them."""

    def __init__(self, first: RunSamples, second: RunSamples) -> None:
        self.runs = first, second
        _, *both = np.intersect1d(first.keys, second.keys, True, return_indices=True)
        order = np.argsort(both[0])
        self._places = [places[order].astype(np.int32) for places in both]
        self.only = [np.ones(len(run.keys), dtype=bool) for run in self.runs]
        for only, places in zip(self.only, self._places, strict=True):
            only[places] = False

    def pairs(self) -> Pairs:
        """What both have, in the order of the first run."""
        return self._pairs_at(*self._places)

    def _pairs_at(self, first: Array, second: Array) -> Pairs:
        """The samples at these places of the runs; -1 where a run, which has others, has none."""
        absent = {"place": _ABSENT, "credit": math.nan, "lost": self.runs[0].causes[NEVER_BEGUN]}

        def column(run: RunSamples, places: Array, name: str) -> Array:
            known: Array = getattr(run, name)[places]
            known[places == _ABSENT] = absent[name]
            return known

        sides = list(zip(self.runs, (first, second), strict=True))
        place, credit, lost = (np.array([column(*side, name) for side in sides]) for name in absent)
        run, places = sides[bool((first == _ABSENT).any())]
        return Pairs(self.runs, place, credit, lost, run.subset[places], run.cluster[places])

    def credited_once(self) -> int:
        """Samples that both runs scored, of which only one has a credit."""
        (first, second), (i, j) = self.runs, self._places
        differ = np.isnan(first.credit[i]) != np.isnan(second.credit[j])
        return int(np.sum(differ & (first.scored[i] != 0) & (second.scored[j] != 0)))

    def never_begun(self, number: int) -> int:
        """Samples of the other run that this one (0 or 1) did not get to; one that is finished was
        of other samples.
        """
        return 0 if self.runs[number].run.finished else int(self.only[1 - number].sum())

    def with_never_begun(self, pairs: Pairs) -> Pairs:
        """The pairs, and the samples that an unfinished run never began, as missing in that run."""
        parts = [pairs]
        for number in (1, 0):
            if self.never_begun(number):
                others = np.flatnonzero(self.only[1 - number])
                absent = np.full(len(others), _ABSENT)
                parts.append(self._pairs_at(*((others, absent) if number else (absent, others))))
        if len(parts) == 1:
            return pairs
        columns = {name: [getattr(part, name) for part in parts] for name in _COLUMNS}
        joined: dict[str, Any] = {
            name: np.concatenate(own, axis=-1) for name, own in columns.items()
        }
        return replace(pairs, **joined)

    def missing(self) -> dict[str, dict[str, int]]:
        """What has no score in each run, by who caused it."""
        by_run: dict[str, dict[str, int]] = {}
        for number, name in enumerate(("first", "second")):
            own = self.runs[number]
            counts = np.bincount(own.lost[self._places[number]] + 1, minlength=len(own.causes) + 1)[
                1:
            ].tolist()
            causes = Counter({cause: counts[code] for cause, code in own.causes.items()})
            causes[NEVER_BEGUN] += self.never_begun(number)
            by_run[name] = added([+causes])
        return by_run


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
