"""What the samples of a run say together: the arrays and counts behind every figure of the report,
read in one pass.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

from rm_gallery.core.stats import Array, Floats, Integers, np
from rm_gallery.core.stats.agreement import spearman
from rm_gallery.core.stats.columns import first_seen
from rm_gallery.core.stats.constant import LengthCount
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.ranking import BestOf, best_of_n_curve
from rm_gallery.core.stats.uncertainty import clustered_mean
from rm_gallery.core.stats.validation import HeldOut, held_out_calibration
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.core.utils.shown import number
from rm_gallery.gallery.benchmarks.figures import UNNAMED
from rm_gallery.study.runs import KeptFigure, OpenRun, SampleRow
from rm_gallery.study.task import Reasons

LABELS = ("chosen", "rejected", "unlabelled")
GAME_KINDS = ("second", "tie", "first", "none")
PAIR_KINDS = ("same", "flipped", "tie")
STEP_LABELS = ("right step", "wrong step", "step")
BINS = 8
FEWEST_TO_FIT = 60
"""Gaps below which no curve is fitted."""
MAX_LISTS = 4_000
HUGE = 1e100
"""Beyond it differences and squares of scores overflow."""


class Share(NamedTuple):
    """A part of a number of things, with its 95 % interval."""

    k: float
    n: int
    ci95: Interval | None = None
    """Over prompts; None out of nothing."""

    @property
    def value(self) -> float | None:
        """The share; None out of nothing."""
        return self.k / self.n if self.n else None


def doubles() -> array[float]:
    """Room for numbers, eight bytes each: there may be millions."""
    return array("d")


def hashes() -> array[int]:
    """Room for the hashes of names, eight bytes each."""
    return array("q")


def shared(values: Array, clusters: Array) -> Share:
    """The mean of outcomes from 0 to 1, each with a hash of its cluster."""
    estimate = clustered_mean(values, first_seen(clusters))
    return Share(
        math.fsum(values), len(values), estimate.interval() if estimate is not None else None
    )


@dataclass
class Counted:
    """Outcomes from 0 to 1, each with a hash of its cluster."""

    values: array[float] = field(default_factory=doubles)
    clusters: array[int] = field(default_factory=hashes)

    def add(self, value: float, cluster: str) -> None:
        """Count one."""
        self.values.append(value)
        self.clusters.append(hash(cluster))

    @property
    def share(self) -> Share:
        """The share, with an interval that counts clusters."""
        return shared(np.asarray(self.values), np.asarray(self.clusters))


@dataclass
class Part(Counted):
    """The samples of a subset as an unfinished figure counts them: their values with clusters, what
    became of them, and who caused that there is no value.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)

    def count(self, value: float | None, cluster: str, status: str, cause: str | None) -> None:
        """Count one sample."""
        self.statuses[status] += 1
        if value is not None:
            self.add(value, cluster)
        elif cause is not None:
            self.missing[cause] += 1

    def merge(self, other: Part) -> None:
        """Count the samples of another as well."""
        self.values += other.values
        self.clusters += other.clusters
        self.statuses += other.statuses
        self.missing += other.missing


class Bin(NamedTuple):
    """Neighbouring values taken together."""

    low: float
    high: float
    x: float
    """Mean of the values."""
    share: Share


class ScoredAnswer(NamedTuple):
    """A scored answer."""

    length: int
    """In characters."""
    score: float
    label: str
    """One of `LABELS`."""


@dataclass
class Answers:
    """Scored answers: lengths in characters, scores, and labels as numbers of `LABELS`."""

    lengths: array[int] = field(default_factory=lambda: array("i"))
    scores: array[float] = field(default_factory=doubles)
    labels: array[int] = field(default_factory=lambda: array("b"))

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, place: int) -> ScoredAnswer:
        return ScoredAnswer(self.lengths[place], self.scores[place], LABELS[self.labels[place]])

    def add(self, answer: ScoredAnswer) -> None:
        """Keep one."""
        self.lengths.append(answer.length)
        self.scores.append(answer.score)
        self.labels.append(LABELS.index(answer.label))


@dataclass
class SeenThings:
    """Occurrences, as numbers of `kinds`, each with a hash of its cluster."""

    kinds: Sequence[Any]
    what: array[int] = field(default_factory=lambda: array("i"))
    clusters: array[int] = field(default_factory=hashes)

    def __len__(self) -> int:
        return len(self.what)

    def add(self, what: Any, cluster: str) -> None:
        """Keep one."""
        self.what.append(self.kinds.index(what))
        self.clusters.append(hash(cluster))

    def counts(self) -> dict[Any, int]:
        """How often each kind that occurs was seen."""
        return {self.kinds[code]: n for code, n in Counter(self.what).items()}

    def share(self, *kinds: Any, of: Collection[Any] | None = None) -> Share:
        """How often something was of these kinds, of all that was seen or of the kinds in `of`."""
        what, clusters = np.asarray(self.what), np.asarray(self.clusters)
        if of is not None:
            kept = np.isin(what, list(map(self.kinds.index, of)))
            what, clusters = what[kept], clusters[kept]
        those = np.isin(what, list(map(self.kinds.index, kinds)))
        return shared(those.astype(np.float64), clusters)


@dataclass
class Positions:
    """What the place of an answer in the prompt did to the verdicts."""

    games: SeenThings = field(default_factory=lambda: SeenThings(GAME_KINDS))
    """Verdicts on pairs; `none` where there is no usable one."""
    pairs: SeenThings = field(default_factory=lambda: SeenThings(PAIR_KINDS))
    """Pairs seen in both orders: `same` verdict, `flipped`, `tie` in one order only."""
    lists: dict[int, SeenThings] = field(
        default_factory=lambda: defaultdict(lambda: SeenThings(range(sys.maxsize)))
    )
    """By number of candidates, at which shown place (from 0) the only winner stood."""

    @property
    def first(self) -> Share:
        """How often what is shown first wins, of the verdicts that name a winner; 0.5 is fair."""
        return self.games.share("first", of=("first", "second"))

    @property
    def flips(self) -> Share:
        """How often swapping a pair swaps or loses the winner, of the pairs seen in both orders."""
        return self.pairs.share("flipped", "tie")

    def add(self, row: SampleRow) -> None:
        """Count one sample."""
        seen: dict[frozenset[int], list[int]] = defaultdict(list)
        for first, second, verdict in row.verdicts:
            name = "none" if verdict is None else GAME_KINDS[verdict + 1]
            self.games.add(name, row.cluster)
            if verdict is not None:
                seen[frozenset((first, second))].append(verdict if first < second else -verdict)
        for verdicts in seen.values():
            if len(verdicts) == 2:
                same, tie = verdicts[0] == verdicts[1], 0 in verdicts
                self.pairs.add("same" if same else "tie" if tie else "flipped", row.cluster)
        if len(row.order) > 2 and len(row.order) == len(row.scores):
            known = [score for score in row.scores if score is not None]
            if len(known) == len(row.scores) and known.count(max(known)) == 1:
                place = row.order.index(row.scores.index(max(known)))
                self.lists[len(known)].add(place, row.cluster)


@dataclass
class Calls:
    """What the judge was asked, as the trace tells."""

    n: int = 0
    cached: int = 0
    again: int = 0
    """Questions put again because the reply could not be read."""
    seconds: array[float] = field(default_factory=doubles)
    """Of each reply that came from the judge, waiting and retries included."""
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, entry: dict[str, Any]) -> None:
        """Count one judgement of the trace."""
        self.n += 1
        self.again += number(entry.get("attempt"), 1) > 1
        tokens = tokens_of(entry)
        self.input_tokens += tokens["input"]
        self.output_tokens += tokens["output"]
        if entry.get("cached"):
            self.cached += 1
        elif entry.get("reply") is not None:
            self.seconds.append(number(entry.get("seconds")))


@dataclass
class Summary:
    """The samples of a run together.

    Attributes:
        statuses: samples by status.
        figure: what the figure of the run is.
        subsets: the samples by subset, as its figure counts them.
        answers: every scored answer.
        gaps: best chosen score minus best rejected score of each labelled sample that is scored
            whole.
        clusters: hashes of the clusters of the samples in `gaps`, in the same order.
        guesses: share of chosen answers of each sample in `gaps`: what guessing the best one
            reaches.
        lists: of labelled samples with three answers or more, scores, worth (chosen 1, rejected 0)
            and cluster.
        step_scores: by name out of `STEP_LABELS`.
        longer: pairs of a chosen and a rejected answer of different length whose longer answer
            scored higher (ties half).
        longer_chosen: such pairs whose longer answer is the chosen one: what a reader would expect
            instead.
        lengths: rows whose only winner is the longer answer.
    """

    figure: KeptFigure = KeptFigure()
    statuses: Counter[str] = field(default_factory=Counter)
    subsets: dict[str, Part] = field(default_factory=lambda: defaultdict(Part))
    answers: Answers = field(default_factory=Answers)
    gaps: array[float] = field(default_factory=doubles)
    clusters: array[int] = field(default_factory=hashes)
    lists: list[tuple[list[float], list[float], str]] = field(default_factory=list)
    guesses: array[float] = field(default_factory=doubles)
    step_scores: dict[str, array[float]] = field(default_factory=lambda: defaultdict(doubles))
    longer: Counted = field(default_factory=Counted)
    longer_chosen: Counted = field(default_factory=Counted)
    lengths: LengthCount = field(default_factory=LengthCount)
    positions: Positions = field(default_factory=Positions)
    calls: Calls = field(default_factory=Calls)
    issues: Reasons = field(default_factory=Reasons)

    def __post_init__(self) -> None:
        self.longer_chosen.clusters = self.longer.clusters

    @property
    def n(self) -> int:
        """Finished samples."""
        return sum(self.statuses.values())

    def scores(self, label: str) -> Floats:
        """Scores of the answers with this label."""
        scores: Floats = np.asarray(self.answers.scores)[
            np.asarray(self.answers.labels) == LABELS.index(label)
        ]
        return scores

    def add(self, row: SampleRow) -> None:
        """Count one sample."""
        self.statuses[row.status] += 1
        value = self.figure.value(row.status, row.credit, row.scores, row.metadata)
        cause = self.figure.cause(row.status, row.cause)
        part = self.subsets[row.subset or UNNAMED]
        part.count(value, row.cluster or row.key, row.status, cause)
        for key, message in {
            f"{issue.status}: {issue.reason}": issue.message for issue in row.issues
        }.items():
            self.issues.add(key, message)
        labels = [label if label in LABELS else "unlabelled" for label in row.labels] or [
            "unlabelled"
        ] * len(row.answers)
        answers = [
            ScoredAnswer(len(text), score, label)
            for text, score, label in zip(row.answers, row.scores, labels, strict=False)
            if score is not None and math.isfinite(score)
        ]
        for answer in answers:
            self.answers.add(answer)
        gap = gap_of(row)
        if gap is not None and len(answers) == len(row.scores):
            self.gaps.append(gap)
            self.clusters.append(hash(row.cluster))
            if len(answers) > 2:
                worth = [float(answer.label == "chosen") for answer in answers]
                self.lists.append(([answer.score for answer in answers], worth, row.cluster))
            self.guesses.append(row.labels.count("chosen") / len(row.labels))
        sides = ([one for one in answers if one.label == label] for label in LABELS[:2])
        for good, bad in product(*sides):
            if good.length != bad.length:
                chosen_is_longer = good.length > bad.length
                won = (
                    0.5
                    if good.score == bad.score
                    else float((good.score > bad.score) == chosen_is_longer)
                )
                self.longer.add(won, row.cluster)
                self.longer_chosen.values.append(float(chosen_is_longer))
        for steps in row.steps:
            for _, score, label in steps:
                if score is not None and math.isfinite(score):
                    self.step_scores[_step_label(label)].append(score)
        self.positions.add(row)
        self.lengths.add([len(text) for text in row.answers], row.scores, row.verdicts)

    def length_correlation(self) -> float | None:
        """Spearman correlation of length and score over all answers; None where one of them does
        not vary.
        """
        return spearman(
            np.asarray(self.answers.lengths).astype(np.float64), np.asarray(self.answers.scores)
        )

    def ordering(self) -> Share:
        """Labelled samples whose best chosen answer scores above the best rejected one; ties count
        half.
        """
        return shared(_half_steps(np.asarray(self.gaps)), np.asarray(self.clusters))

    def reliability(self) -> list[Bin]:
        """Samples binned by the size of the gap between the two sides: how often the highest score
        is a chosen one.

        About equal numbers a bin, equal gaps in one bin, ties left out; in order of the gap.
        """
        return binned(*self._decided())

    def _decided(self) -> tuple[Floats, Floats, Integers]:
        """Size of the gap, whether it is right, and cluster of every sample whose gap is not 0."""
        gaps, clusters = np.asarray(self.gaps), np.asarray(self.clusters)
        kept = gaps != 0.0
        return np.abs(gaps[kept]), (gaps[kept] > 0.0).astype(np.float64), clusters[kept]

    def held_out(self) -> HeldOut | None:
        """A curve from gap to being right, fitted on half of the prompts and tested on the other;
        None for few prompts.
        """
        xs, ys, clusters = self._decided()
        if len(xs) < FEWEST_TO_FIT or xs.max() > HUGE or xs.max() < 1 / HUGE:
            return None
        return held_out_calibration(xs, ys, "platt", clusters=first_seen(clusters))

    def best_of_n(self) -> list[BestOf]:
        """What picking the highest score of n answers is worth, over at most `MAX_LISTS` seeded
        lists; empty without lists.
        """
        drawn = [self.lists[place] for place in seeded_positions(len(self.lists), MAX_LISTS, 0)]
        usable = [each for each in drawn if max(map(abs, each[0])) <= HUGE]
        scores, worth, clusters = zip(*usable, strict=True) if usable else ((), (), ())
        return best_of_n_curve(scores, worth, clusters=clusters)


def summarize(run: OpenRun) -> Summary:
    """Read all samples of a run, and its trace where there is one."""
    summary = Summary(run.kept_figure)
    for row in run.samples():
        summary.add(row)
    for entry in run.trace():
        summary.calls.add(entry)
    return summary


def gap_of(row: SampleRow) -> float | None:
    """Best chosen score minus best rejected score; None without both."""
    sides: dict[str | None, list[float]] = defaultdict(list)
    for score, label in zip(row.scores, row.labels, strict=False):
        if score is not None and math.isfinite(score):
            sides[label].append(score)
    if not (sides["chosen"] and sides["rejected"]):
        return None
    gap = max(sides["chosen"]) - max(sides["rejected"])
    return gap if math.isfinite(gap) else math.copysign(sys.float_info.max, gap)


def binned(xs: Floats, ys: Floats, clusters: Integers | None = None) -> list[Bin]:
    """Pairs in order of x in at most `BINS` bins of about equal size; equal x stay together.

    With hashes of clusters, y is within 0..1 and has an interval.
    """
    order = np.lexsort((ys, xs))
    xs, ys = xs[order], ys[order]
    bins: list[Bin] = []
    start = 0
    while start < len(xs):
        size = math.ceil((len(xs) - start) / max(1, BINS - len(bins)))
        end = int(np.searchsorted(xs, xs[start + size - 1], side="right"))
        part = ys[start:end]
        x = math.fsum(xs[start:end] / (end - start))
        share = (
            Share(math.fsum(part), end - start)
            if clusters is None
            else shared(part, clusters[order[start:end]])
        )
        bins.append(Bin(float(xs[start]), float(xs[end - 1]), x, share))
        start = end
    return bins


def mean(values: Iterable[float]) -> float | None:
    """Arithmetic mean that huge values do not overflow; None without any."""
    known = list(values)
    return math.fsum(value / len(known) for value in known) if known else None


def tokens_of(entry: Mapping[str, Any]) -> dict[str, int]:
    """The `input` and `output` tokens of an entry of the trace; 0 where it does not tell."""
    known = entry.get("tokens")
    return {
        name: int(number(known.get(name))) if isinstance(known, Mapping) else 0
        for name in ("input", "output")
    }


def _half_steps(values: Floats) -> Floats:
    return np.where(values == 0.0, 0.5, (values > 0.0).astype(np.float64))


_STEP_WORDS = {
    **dict.fromkeys(("correct", "right", "+", "good"), 1),
    **dict.fromkeys(("incorrect", "wrong", "-", "bad"), 0),
}


def _step_label(label: dict[str, Any]) -> str:
    """Whether a step is known to be right: by `correctness`, or as process-reward data rate it (1,
    0, -1).
    """
    for name in ("correctness", "rating", "label"):
        value = label.get(name)
        value = _STEP_WORDS.get(value.lower()) if isinstance(value, str) else value
        if isinstance(value, (bool, int, float)):
            return STEP_LABELS[0 if value > 0 else 1]
    return STEP_LABELS[2]
