"""What the samples of a run say together: the arrays and counts behind every figure of the report, read in one pass."""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

from rm_gallery.core.stats.agreement import spearman
from rm_gallery.core.stats.clustered import clustered_mean
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.ranking import BestOf, Gaps, best_of_n_curve, reward_gaps
from rm_gallery.core.stats.validation import Calibration, HeldOut, calibration_curve, held_out_calibration
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.gallery.benchmarks.figures import UNNAMED
from rm_gallery.study.opened import OpenRun, SampleRow

LABELS = ("chosen", "rejected", "unlabelled")
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


@dataclass
class Counted:
    """Things that were so or not (0..1), each with the cluster it belongs to."""

    values: list[float] = field(default_factory=list)
    clusters: list[str] = field(default_factory=list)

    def add(self, value: float, cluster: str) -> None:
        """Count one."""
        self.values.append(value)
        self.clusters.append(cluster)

    @property
    def share(self) -> Share:
        """The share, with an interval that counts clusters."""
        found = clustered_mean(self.values, self.clusters)
        return Share(math.fsum(self.values), len(self.values), found.interval() if found is not None else None)


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


class Seen(NamedTuple):
    """Something that was seen once, and the cluster it belongs to."""

    what: Any
    cluster: str


@dataclass
class Positions:
    """What the place of an answer in the prompt did to the verdicts."""

    games: list[Seen] = field(default_factory=list)
    """Verdicts on pairs: `first`, `second`, `tie`, and `none` where there is no usable one."""
    pairs: list[Seen] = field(default_factory=list)
    """Pairs seen in both orders: `same` verdict, `flipped`, `tie` in one order only."""
    lists: dict[int, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    """By number of candidates, at which shown place (from 0) the only winner stood."""

    @property
    def first(self) -> Share:
        """How often what is shown first wins, of the verdicts that name a winner; 0.5 is fair."""
        return share_of("first", [seen for seen in self.games if seen.what in ("first", "second")])

    @property
    def flips(self) -> Share:
        """How often swapping a pair swaps or loses the winner, of the pairs seen in both orders."""
        return Counted([float(seen.what != "same") for seen in self.pairs], [seen.cluster for seen in self.pairs]).share

    def add(self, row: SampleRow) -> None:
        """Count one sample."""
        seen: dict[frozenset[int], list[int]] = defaultdict(list)
        for first, second, verdict in row.verdicts:
            name = "none" if verdict is None else ("second", "tie", "first")[verdict + 1]
            self.games.append(Seen(name, row.cluster))
            if verdict is not None:
                seen[frozenset((first, second))].append(verdict if first < second else -verdict)
        for verdicts in seen.values():
            if len(verdicts) == 2:
                same, tie = verdicts[0] == verdicts[1], 0 in verdicts
                self.pairs.append(Seen("same" if same else "tie" if tie else "flipped", row.cluster))
        if len(row.order) > 2 and len(row.order) == len(row.scores):
            known = [score for score in row.scores if score is not None]
            if len(known) == len(row.scores) and known.count(max(known)) == 1:
                place = row.order.index(row.scores.index(max(known)))
                self.lists[len(known)].append(Seen(place, row.cluster))


@dataclass
class Calls:
    """What the judge was asked, as the trace tells."""

    n: int = 0
    cached: int = 0
    again: int = 0
    """Questions put again because the reply could not be read."""
    seconds: list[float] = field(default_factory=list)
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
        subsets: credits by subset, of the samples that earned one.
        subset_n: samples by subset.
        answers: every scored answer.
        gaps: best chosen score minus best rejected score of each labelled sample that is scored whole.
        clusters: of the samples in `gaps`, in the same order.
        guesses: share of chosen answers of each sample in `gaps`: what guessing the best one reaches.
        lists: of labelled samples with three answers or more, scores, worth (chosen 1, rejected 0) and cluster.
        step_scores: by name out of `STEP_LABELS`.
        longer: pairs of a chosen and a rejected answer of different length whose longer answer scored higher (ties half).
        longer_chosen: such pairs whose longer answer is the chosen one: what a reader would expect instead.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    subsets: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    subset_n: Counter[str] = field(default_factory=Counter)
    answers: list[ScoredAnswer] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    clusters: list[str] = field(default_factory=list)
    lists: list[tuple[list[float], list[float], str]] = field(default_factory=list)
    guesses: list[float] = field(default_factory=list)
    step_scores: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    longer: Counted = field(default_factory=Counted)
    longer_chosen: Counted = field(default_factory=Counted)
    positions: Positions = field(default_factory=Positions)
    calls: Calls = field(default_factory=Calls)
    issues: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Finished samples."""
        return sum(self.statuses.values())

    def scores(self, label: str) -> list[float]:
        """Scores of the answers with this label."""
        return [answer.score for answer in self.answers if answer.label == label]

    def add(self, row: SampleRow) -> None:
        """Count one sample."""
        self.statuses[row.status] += 1
        subset = row.subset or UNNAMED
        self.subset_n[subset] += 1
        if row.credit is not None:
            self.subsets[subset].append(row.credit)
        for key, message in {f"{issue.status}: {issue.reason}": issue.message for issue in row.issues}.items():
            known, example = self.issues.get(key, (0, message))
            self.issues[key] = known + 1, example
        labels = [label if label in LABELS else "unlabelled" for label in row.labels] or ["unlabelled"] * len(row.answers)
        found = [
            ScoredAnswer(len(text), score, label)
            for text, score, label in zip(row.answers, row.scores, labels, strict=False)
            if score is not None and math.isfinite(score)
        ]
        self.answers += found
        self._add_gap(row, found)
        self._add_lengths(found, row.cluster)
        for steps in row.steps:
            for _, score, label in steps:
                if score is not None and math.isfinite(score):
                    self.step_scores[_step_label(label)].append(score)
        self.positions.add(row)

    def _add_gap(self, row: SampleRow, found: Sequence[ScoredAnswer]) -> None:
        gap = gap_of(row)
        if gap is not None and len(found) == len(row.scores):
            self.gaps.append(gap)
            self.clusters.append(row.cluster)
            if len(found) > 2:
                worth = [float(answer.label == "chosen") for answer in found]
                self.lists.append(([answer.score for answer in found], worth, row.cluster))
            self.guesses.append(row.labels.count("chosen") / len(row.labels))

    def _add_lengths(self, found: Sequence[ScoredAnswer], cluster: str) -> None:
        sides = ([answer for answer in found if answer.label == label] for label in ("chosen", "rejected"))
        for good, bad in product(*sides):
            if good.length != bad.length:
                up = good.length > bad.length
                won = 0.5 if good.score == bad.score else float((good.score > bad.score) == up)
                self.longer.add(won, cluster)
                self.longer_chosen.add(float(up), cluster)

    def length_correlation(self) -> float | None:
        """Spearman correlation of length and score over all answers; None where one of them does not vary."""
        return spearman([float(answer.length) for answer in self.answers], [answer.score for answer in self.answers])

    def ordering(self) -> Share:
        """Labelled samples whose best chosen answer scores above the best rejected one; ties count half."""
        return Counted([_half_step(gap) for gap in self.gaps], self.clusters).share

    def reliability(self) -> list[Bin]:
        """Samples binned by the size of the gap between the two sides: how often the highest score is a chosen one.

        About equal numbers a bin, equal gaps in one bin, ties left out; in order of the gap.
        """
        known = self._decided()
        return binned(*zip(*known, strict=True)) if known else []

    def _decided(self) -> list[tuple[float, float, str]]:
        """Size of the gap, whether it is right, and cluster of every sample whose gap is not 0."""
        return [(abs(gap), float(gap > 0), cluster) for gap, cluster in zip(self.gaps, self.clusters, strict=True) if gap]

    def gap_distribution(self) -> Gaps | None:
        """Mean, quantiles and histogram of the gaps; None without any."""
        return reward_gaps(self.gaps, [0.0] * len(self.gaps), clusters=self.clusters, bins=20)

    def calibration(self) -> Calibration | None:
        """How true the probabilities are that a Bradley–Terry model makes of the gaps: the logistic function of their size."""
        from scipy.special import expit

        right = [_half_step(gap) for gap in self.gaps]
        return calibration_curve(expit([abs(gap) for gap in self.gaps]), right, clusters=self.clusters, bins=10)

    def held_out(self) -> HeldOut | None:
        """A curve from gap to being right, fitted on half of the prompts and looked at on the other; None for few."""
        known = self._decided()
        if len(known) < FEWEST_TO_FIT or max(known)[0] > HUGE or max(known)[0] < 1 / HUGE:
            return None
        xs, ys, names = zip(*known, strict=True)
        return held_out_calibration(xs, ys, "platt", clusters=names)

    def best_of_n(self) -> list[BestOf]:
        """What picking the highest score of n answers is worth, over at most `MAX_LISTS` seeded lists; empty without lists."""
        lists = [self.lists[place] for place in seeded_positions(len(self.lists), MAX_LISTS, 0)]
        fits = [(scores, worth, name) for scores, worth, name in lists if max(map(abs, scores)) <= HUGE]
        return best_of_n_curve([s for s, _, _ in fits], [w for _, w, _ in fits], clusters=[name for _, _, name in fits])


def summarize(run: OpenRun) -> Summary:
    """Read all samples of a run, and its trace where there is one."""
    found = Summary()
    for row in run.samples():
        found.add(row)
    for entry in run.trace():
        found.calls.add(entry)
    found.issues = dict(sorted(found.issues.items(), key=lambda item: -item[1][0]))
    return found


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


def binned(xs: Sequence[float], ys: Sequence[float], clusters: Sequence[str] | None = None) -> list[Bin]:
    """Pairs in order of x in at most `BINS` bins of about equal size; equal x stay together.

    With clusters, y is within 0..1 and has an interval.
    """
    pairs = sorted(zip(xs, ys, clusters if clusters is not None else [""] * len(xs), strict=True))
    found: list[Bin] = []
    start = 0
    while start < len(pairs):
        size = math.ceil((len(pairs) - start) / max(1, BINS - len(found)))
        end = start + size
        while end < len(pairs) and pairs[end][0] == pairs[end - 1][0]:
            end += 1
        part = pairs[start:end]
        x = math.fsum(pair[0] / len(part) for pair in part)
        share = Share(math.fsum(pair[1] for pair in part), len(part))
        if clusters is not None:
            share = Counted([pair[1] for pair in part], [pair[2] for pair in part]).share
        found.append(Bin(part[0][0], part[-1][0], x, share))
        start = end
    return found


def share_of(what: Any, seen: Sequence[Seen]) -> Share:
    """How often something was what was seen."""
    return Counted([float(one.what == what) for one in seen], [one.cluster for one in seen]).share


def mean(values: Iterable[float]) -> float | None:
    """Arithmetic mean that huge values do not overflow; None without any."""
    known = list(values)
    return math.fsum(value / len(known) for value in known) if known else None


def number(value: Any, default: float = 0.0) -> float:
    """A number from a file; what is none, or not finite, is the default."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if fits else default


def tokens_of(entry: Mapping[str, Any]) -> dict[str, int]:
    """The `input` and `output` tokens of an entry of the trace; 0 where it does not tell."""
    known = entry.get("tokens")
    return {name: int(number(known.get(name))) if isinstance(known, Mapping) else 0 for name in ("input", "output")}


def _half_step(value: float) -> float:
    return 0.5 if value == 0 else float(value > 0)


def _step_label(label: dict[str, Any]) -> str:
    """Whether a step is known to be right: by `correctness`, or as process-reward data rate it (1, 0, -1)."""
    words = {**dict.fromkeys(("correct", "right", "+", "good"), 1), **dict.fromkeys(("incorrect", "wrong", "-", "bad"), 0)}
    for name in ("correctness", "rating", "label"):
        value = label.get(name)
        value = words.get(value.lower()) if isinstance(value, str) else value
        if isinstance(value, (bool, int, float)):
            return STEP_LABELS[0 if value > 0 else 1]
    return STEP_LABELS[2]
