"""Two answers compared in both orders by a reward of any kind: what the audit and the conflict
detector ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from rm_gallery.core.data.schema import DataOutput, DataSample, Reward, RewardIssue
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats.denominator import added, worst_case_bounds
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.uncertainty import clustered_mean
from rm_gallery.core.utils.models import copy_with
from rm_gallery.gallery.benchmarks.figures import Record
from rm_gallery.gallery.benchmarks.judgements import (
    Judged,
    Pair,
    Status,
    judged,
    sign,
    worst,
)
from rm_gallery.study.task import Reasons

TRIES = 64
"""Names tried for a question until its seeded permutation is the wanted order; each fits with
probability one half.
"""


class Game(NamedTuple):
    """One comparison: who was shown first (0 or 1; None where answers are scored by themselves),
    and who won.
    """

    first: int | None
    verdict: int
    """+1 when answer 0 won, -1 when answer 1 did, 0 for a tie."""

    def turned(self) -> Game:
        """The same with the two answers renamed."""
        return Game(None if self.first is None else 1 - self.first, -self.verdict)


class PairwiseComparison(NamedTuple):
    """Two answers to one prompt, by the keys of the questions that compare them."""

    keys: tuple[str, ...]
    """Of two questions about both answers, the second shows them the other way round."""
    cluster: str
    """Comparisons of one cluster are about the same prompt and are not independent."""


class Questionnaire:
    """Every question a reward is asked and its outcome; a question that several comparisons need is
    asked once.

    A scoring reward (pointwise, stepwise) is asked about each answer by itself. A comparing one
    sees the two answers in both orders; so do rules and trained models, which may prefer a place.
    """

    def __init__(self, reward: BaseReward) -> None:
        self.reward = reward
        self.comparing = reward.compares
        self.questions: dict[str, DataSample] = {}
        self.clusters: dict[str, str] = {}
        """What each question is about, as in `PairwiseComparison.cluster`."""
        self.outcomes: dict[str, Judged] = {}

    # -- asking ------------------------------------------------------------------------------------

    def ask(self, of: DataSample, outputs: Sequence[DataOutput], cluster: str) -> str:
        """Add a question about these answers to the prompt of `of`; returns its key."""
        sample = copy_with(
            of, unique_id=of.sample_id, output=[_fresh(output) for output in outputs]
        )
        name = f"{of.sample_id[:80]}/{sample.sample_key.rpartition(':')[2][:20]}"
        kind, n = self.reward.kind, len(outputs)
        for number in range(TRIES):
            sample = copy_with(sample, unique_id=f"{name}/{number}")
            salt = "0,1" if kind == "pairwise" else ""
            if n < 2 or kind.order(self.reward, sample, n, salt) == [*range(n)]:
                break
        self.questions.setdefault(sample.unique_id, sample)
        self.clusters[sample.unique_id] = cluster
        return sample.unique_id

    def comparison(
        self, of: DataSample, first: DataOutput, second: DataOutput, cluster: str
    ) -> PairwiseComparison:
        """Add the questions that compare two answers."""
        if not self.comparing:
            shown = [[first], [second]]
        elif (
            self.reward.kind == "pairwise"
            and self.reward.judged
            and getattr(self.reward, "both_orders", False)
        ):
            shown = [[first, second]]
        else:
            shown = [[first, second], [second, first]]
        keys = [self.ask(of, outputs, cluster) for outputs in shown]
        return PairwiseComparison(tuple(keys), cluster)

    def calls(self) -> int:
        """Judgements the questions take: one model call each where a model judges and no reply is
        in the cache.
        """
        judgements = sum(
            len(self.reward.kind.jobs(self.reward, question))
            for question in self.questions.values()
        )
        return self.reward.asked_times * judgements

    # -- outcomes ----------------------------------------------------------------------------------

    def collect(self, scored: Iterable[DataSample]) -> None:
        """Keep the outcome of every judged question."""
        turn = 1.0 if self.reward.higher_is_better else -1.0
        for sample in scored:
            one = self.outcomes[sample.unique_id] = judged(self.reward, sample)
            if self.reward.kind == "stepwise":  # what is made of the steps
                own = map(self.reward.score_of_output, sample.output)
                one.__dict__["scores"] = [None if score is None else turn * score for score in own]

    def shown(self, one: Judged) -> list[Game]:
        """The games of a question about two answers, one per order; none without verdicts."""
        if one.status != "scored" or not self.comparing or len(one.sample.output) != 2:
            return []
        pairs = [(j.place, j.verdict) for j in one.judgements if isinstance(j.place, Pair)]
        if not pairs or not self.reward.judged:
            # a rule or a trained model: its two scores, in the order given
            pairs = [(Pair(0, 1), sign(*one.scores))]
        # a verdict of +1 is for the one shown first
        return [
            Game(place.first, verdict if place.first == 0 else -verdict)
            for place, verdict in pairs
            if verdict is not None
        ]

    def games(self, comparison: PairwiseComparison) -> list[Game]:
        """The games of a comparison, one per order; none unless every question of it was scored."""
        if not self.comparing:
            verdict = sign(*(self.scores(comparison) or (None, None)))
            return [] if verdict is None else [Game(None, verdict)]
        known = [self.outcomes.get(key) for key in comparison.keys]
        if any(one is None or one.status != "scored" for one in known):
            return []
        return [
            game.turned() if turned else game
            for turned, one in enumerate(filter(None, known))
            for game in self.shown(one)
        ]

    def scores(self, comparison: PairwiseComparison) -> list[float]:
        """The scores of all answers that its questions show; none unless all are there."""
        known = [self.outcomes.get(key) for key in comparison.keys]
        scores = [one and one.complete() for one in known]
        return [score for own in scores for score in own or ()] if all(scores) else []

    def margin(self, comparison: PairwiseComparison) -> float | None:
        """How far answer 0 is ahead, over all places: 1 it always won, -1 it always lost; None
        without a verdict.
        """
        games = self.games(comparison)
        return sum(game.verdict for game in games) / len(games) if games else None

    def issues(self, comparisons: Iterable[PairwiseComparison]) -> list[RewardIssue]:
        """Why questions of these have no score; nothing of one that was never asked."""
        keys = (key for comparison in comparisons for key in comparison.keys)
        outcomes = [one for key in keys if (one := self.outcomes.get(key)) is not None]
        return [issue for one in outcomes if one.status != "scored" for issue in one.issues[:1]]

    def status(self, comparison: PairwiseComparison) -> Status:
        """The worst status of the questions of a comparison; "unscored" where all are scored and give
        no verdict.
        """
        status = worst(
            "stopped" if (one := self.outcomes.get(key)) is None else one.status
            for key in comparison.keys
        )
        return "unscored" if status == "scored" and not self.games(comparison) else status


def _fresh(output: DataOutput) -> DataOutput:
    """The output without what earlier rewards said of it."""
    steps = (
        None
        if output.steps is None
        else [copy_with(step, reward=Reward()) for step in output.steps]
    )
    return copy_with(output, answer=copy_with(output.answer, reward=Reward()), steps=steps)


@contextmanager
def kept_when_interrupted(control: RunControl, keep: Callable[[], object]) -> Iterator[None]:
    """Around the asking: on Ctrl-C what is answered is kept as that of any run that stopped early."""
    try:
        yield
    except KeyboardInterrupt:
        control.interrupt()
        keep()
        raise


def lost(statuses: Iterable[Status]) -> dict[str, int]:
    """How many were not scored, by what became of them; empty when all were."""
    return dict(Counter(status for status in statuses if status != "scored"))


def missing_of(every: Iterable[Judged]) -> dict[str, int]:
    """How many questions have no score, by who caused it."""
    return added({one.cause: 1} for one in every if one.cause is not None)


def reason_of(one: Judged) -> tuple[str, str]:
    """Why a question has no score, in one word and in a sentence."""
    if not one.issues:
        return one.status, ""
    return one.issues[0].reason or one.status, one.issues[0].message


def reasons_of(every: Iterable[Judged]) -> dict[str, dict[str, Any]]:
    """Why questions have no score, as `Reasons` has it."""
    reasons = Reasons()
    for one in every:
        if one.status != "scored":
            reason, message = reason_of(one)
            reasons.add(f"{one.status}: {reason}", message)
    return reasons.sorted()


Verdict = Literal["fail", "warn", "not enough", "pass", "info", "does not apply"]
VERDICTS: tuple[Verdict, ...] = ("fail", "warn", "not enough", "pass", "info", "does not apply")
"""Worst first; the last two decide nothing."""
LEAST = 10
"""Independent prompts below which nothing passes and nothing is warned of."""
SHOWN = 5
"""Independent prompts that may show a weakness when all of the interval lies beyond the limit."""


@dataclass(frozen=True)
class Limit(Record):
    """Where a figure is good enough and where it is bad.

    `sides` says which way is bad: "low" figures are good when small, "high" ones when large, "both"
    when near 0.
    """

    good: float
    bad: float
    sides: Literal["low", "high", "both"] = "low"

    def text(self, unit: str = "share") -> str:
        """The limit in words."""
        good, bad = (figure_text(value, unit).removeprefix("+") for value in (self.good, self.bad))
        if self.sides == "high":
            return f"pass from {good}, fail below {bad}"
        mark = "±" if self.sides == "both" else ""
        return f"pass up to {mark}{good}, fail beyond {mark}{bad}"


def decide(value: float | None, ci95: Interval | None, clusters: int, limit: Limit) -> Verdict:
    """Judge a figure by its whole interval.

    pass: the interval lies within `good`. fail: it lies beyond `bad`. warn: the figure itself is
    not good, and not by chance alone (the interval leaves out 0). Otherwise the samples are too few
    to tell, which is "not enough" and never a pass.
    """
    if value is None or ci95 is None or clusters < SHOWN:
        return "not enough"
    (low, high), good, bad = ci95, limit.good, limit.bad
    if limit.sides == "both":
        low, high, value = max(0.0, low, -high), max(-low, high), abs(value)
    elif limit.sides == "high":
        low, high, value, good, bad = -high, -low, -value, -good, -bad
    if low > bad:
        return "fail"
    if clusters < LEAST:
        return "not enough"
    if high <= good:
        return "pass"
    seen = limit.sides == "high" or low > 0
    return "warn" if value > good and seen else "not enough"


@dataclass(frozen=True)
class Finding(Record):
    """One figure of an audit.

    Attributes:
        probe: the group it belongs to, and `name` its own name; together they are its key.
        what: what is counted, in one sentence.
        unit: share (0..1), net (-1..1), correlation (-1..1) or points (of the reward's scale).
        value: None where nothing could be counted.
        ci95: 95 % interval, over prompts: figures of one prompt do not count as independent.
        n: how many comparisons or answers it rests on, and `clusters` on how many prompts.
        lost: what was asked and not scored, by outcome.
        why: why it does not apply, or what to know about it.
        extra: further figures.
        examples: texts behind it.
    """

    probe: str
    name: str
    what: str = ""
    unit: str = "share"
    value: float | None = None
    ci95: Interval | None = None
    n: int = 0
    clusters: int = 0
    verdict: Verdict = "info"
    lost: Mapping[str, int] = field(default_factory=dict)
    why: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    limit: Limit | None = None
    examples: Sequence[Mapping[str, Any]] = ()

    @property
    def key(self) -> str:
        """Its name in JSON: `probe.name`."""
        return f"{self.probe}.{self.name}"

    @property
    def bounds(self) -> Interval | None:
        """The figure if all that is lost were the lowest, and if it were the highest; None where
        nothing is.
        """
        total = self.n * (self.value or 0.0)
        whole = worst_case_bounds(self.n + sum(self.lost.values()), self.n, total, {}, self.scale)
        return whole.bounds if self.lost else None

    @property
    def scale(self) -> tuple[float, float]:
        """Its lowest and highest value."""
        return (0.0, 1.0) if self.unit == "share" else (-1.0, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        return super().to_dict() | ({"bounds": [*self.bounds]} if self.bounds else {})

    def held_to(self, limit: Limit) -> Finding:
        """The figure with what the limit says of it; what is lost may not turn a pass or a fail."""
        verdict = decide(self.value, self.ci95, self.clusters, limit)
        if self.bounds and verdict in ("pass", "fail"):
            low, high = self.bounds
            ends = low, high, min(max(0.0, low), high)  # 0 is best where both sides are bad
            held = {decide(end, Interval(end, end), self.clusters, limit) for end in ends}
            verdict = verdict if held == {verdict} else "not enough"
        return replace(self, limit=limit, verdict=verdict)

    def shown(self) -> str:
        """The value for people."""
        return figure_text(self.value, self.unit)

    def shown_interval(self) -> str:
        """Its interval for people."""
        if self.ci95 is None:
            return "-"
        return " – ".join(figure_text(end, self.unit).removesuffix(" %") for end in self.ci95)


def figure_text(value: float | None, unit: str) -> str:
    """A figure in its unit: shares as percentages, nets with their sign, the rest with two digits;
    a dash for none.
    """
    if value is None:
        return "-"
    if unit == "share":
        return f"{100 * value:.1f} %"
    return f"{100 * value:+.1f} %" if unit == "net" else f"{value:.2f}"


def mean_finding(
    probe: str,
    name: str,
    what: str,
    values: Sequence[float],
    clusters: Sequence[Hashable],
    limit: Limit | None,
    *,
    unit: Literal["share", "net"] = "share",
    crossed: Sequence[Hashable] | None = None,
    worst_of: int = 1,
    **more: Any,
) -> Finding:
    """The mean of credits (0..1), or of nets (-1..1), with its interval over clusters and what the
    limit says of it.

    Of a figure that is the worst of several, `worst_of`, the lower end is lower by as much
    (Bonferroni): what fails has to be shown in spite of the choice, while each of them has to pass
    for the worst to pass. Where values belong to clusters of two kinds (an attack, and a prompt it
    is tried on), `crossed` names the others, and the kind that leaves less certainty counts.
    """
    kinds = [clusters] if crossed is None else [clusters, crossed]
    distinct = min(len(set(kind)) for kind in kinds)
    bounds = (0.0, 1.0) if unit == "share" else (-1.0, 1.0)
    means = [
        mean for kind in kinds if (mean := clustered_mean(values, kind, bounds=bounds)) is not None
    ]

    intervals = [
        Interval(lower.low, upper.high)
        for mean in means
        if (lower := mean.interval(1 - 0.05 / worst_of)) and (upper := mean.interval())
    ]
    value = means[0].estimate if means else None
    ci95 = max(intervals, key=lambda interval: interval.high - interval.low, default=None)
    finding = Finding(probe, name, what, unit, value, ci95, len(values), distinct, **more)
    return finding if limit is None else finding.held_to(limit)
