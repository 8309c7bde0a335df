"""Every judgement a reward made of a sample: of a candidate, of a pair in one order, or of a step."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from rm_gallery.core.data.schema import DataSample, Reward, RewardIssue, preference_of
from rm_gallery.core.outcome import NOT_BEGUN
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import Cause

Status = Literal["scored", "unscored", "failed", "stopped"]
"""What became of a sample or judgement; `stopped` was never begun, because a budget or the run ended."""
NOT_ASKED = "not_asked"
"""The reason of samples that the protocol leaves out: they are unscored, and outside the rule's denominator."""
_UNKNOWN: dict[Status, Cause] = {"stopped": "caller", "failed": "endpoint", "unscored": "judge"}
"""Who is taken to have caused it where a record of an earlier version does not say."""
Score = float | None
Verdict = int | None
"""+1 when the first named candidate won, -1 when the second did, 0 for a tie, None without a usable verdict."""


class Candidate(NamedTuple):
    """The judgement is about one output."""

    output: int


class Pair(NamedTuple):
    """The judgement is about two outputs, shown in this order."""

    first: int
    second: int


class StepOf(NamedTuple):
    """The judgement is about one step of an output."""

    output: int
    step: int


Place = Candidate | Pair | StepOf


class Judgement(NamedTuple):
    """One judgement: where it belongs and what it said.

    `score` is turned so that higher is better. `verdict` belongs to a `Pair` and names its candidates, not positions.
    """

    place: Place
    status: Status = "scored"
    score: Score = None
    verdict: Verdict = None


@dataclass(frozen=True)
class Judged:
    """A sample with every judgement of it; what the scoring rules are fed with."""

    sample: DataSample
    judgements: Sequence[Judgement]
    status: Status = "scored"
    """Of the sample as a whole: it is scored when every output, or every step, has its score."""
    issues: Sequence[RewardIssue] = ()

    @property
    def sample_id(self) -> str:
        """Identity of the sample."""
        return self.sample.sample_id

    @property
    def metadata(self) -> dict[str, Any]:
        """The sample's metadata, empty where there are none."""
        return self.sample.metadata or {}

    @cached_property
    def subset(self) -> str:
        """The part of the benchmark it belongs to; empty where there are no parts."""
        return str(self.metadata.get("subset") or "")

    @cached_property
    def cluster(self) -> str:
        """What it shares its fate with, see `cluster_of`."""
        return cluster_of(self.sample)

    @cached_property
    def chosen(self) -> list[bool]:
        """Per output whether the benchmark prefers it."""
        return [preference_of(output) == "chosen" for output in self.sample.output]

    @cached_property
    def scores(self) -> list[Score]:
        """One score per output, higher is better; None where there is none."""
        found: list[Score] = [None] * len(self.sample.output)
        for judgement in self.judgements:
            if isinstance(judgement.place, Candidate):
                found[judgement.place.output] = judgement.score
        return found

    @property
    def cause(self) -> Cause | None:
        """Who brought it about that the sample has no score; None where it has one, and where the protocol does not ask about it."""
        if self.status == "scored":
            return None
        own = next((issue for issue in self.issues if status_of([issue]) == self.status), None)
        if own is not None and own.reason == NOT_ASKED:
            return None
        return own.cause if own is not None and own.cause is not None else _UNKNOWN[self.status]

    def cause_or(self, otherwise: Cause) -> Cause | None:
        """Who caused it where the sample earns nothing: `otherwise` for one that is scored all the same."""
        return otherwise if self.status == "scored" else self.cause

    def complete(self) -> list[float] | None:
        """The scores, or None when the sample is not scored or one of them is missing: it is scored whole or not at all."""
        found = [score for score in self.scores if score is not None and not math.isnan(score)]
        return found if self.status == "scored" and len(found) == len(self.scores) else None

    def verdict(self, first: int, second: int) -> Verdict:
        """Who won when `first` was shown before `second`; without such a judgement, what the two scores say."""
        games = {judgement.place: judgement for judgement in self.judgements if isinstance(judgement.place, Pair)}
        played = games.get(Pair(first, second))
        if played is not None:
            return played.verdict
        return None if games or self.status != "scored" else sign(self.scores[first], self.scores[second])

    @cached_property
    def played_orders(self) -> int:
        """In how many orders each pair was shown: 0 when candidates were scored rather than compared."""
        pairs = [j.place for j in self.judgements if type(j.place) is Pair]
        return len(pairs) // max(1, len({frozenset(place) for place in pairs}))

    def steps(self, output: int) -> list[Score]:
        """One score per step of an output, in order."""
        places = (j for j in self.judgements if isinstance(j.place, StepOf) and j.place.output == output)
        return [judgement.score for judgement in places]


def cluster_of(sample: DataSample) -> str:
    """Name of the cluster a sample belongs to: samples of one cluster are no independent witnesses.

    `metadata["cluster"]` if it is given (a conversation, a document, an annotator), else a hash of the prompt's roles and
    texts, so that all samples of one prompt stand together. A sample without a prompt is a cluster of its own, by its id.
    """
    given = (sample.metadata or {}).get("cluster")
    if given is not None and given != "":
        return str(given)
    texts = [part for message in sample.input for part in (message.role.value, message.text)]
    if not texts:
        return f"id:{sample.sample_id}"
    joined = "".join(f"{len(part)}:{part}" for part in texts)
    return hashlib.blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def sign(first: Score, second: Score) -> Verdict:
    """Two scores as a verdict: +1 if the first is higher, -1 if the second is, 0 if equal, None if one is missing."""
    if first is None or second is None or math.isnan(first) or math.isnan(second):
        return None
    return (first > second) - (first < second)


def judged(reward: BaseReward, sample: DataSample) -> Judged:
    """What `reward` said about a sample it scored, judgement by judgement.

    Scores are turned so that higher is better. A sample is failed, stopped or unscored as soon as one judgement is.
    """
    turn = 1.0 if reward.higher_is_better else -1.0
    found: list[Judgement] = []
    issues: list[RewardIssue] = []

    def scored(place: Place, said: Reward) -> Judgement:
        key = reward.key_in(said)
        own = [issue for issue in said.issues if issue.name == key]
        issues.extend(own)
        score = reward.score_of(said)
        if score is not None:
            return Judgement(place, score=turn * score)
        return Judgement(place, status_of(own))

    for index, output in enumerate(sample.output):
        if reward.kind == "stepwise" and output.steps:
            found += [scored(StepOf(index, place), step.reward) for place, step in enumerate(output.steps)]
        else:
            found.append(scored(Candidate(index), output.answer.reward))
    status: Status = "scored" if found and all(j.status == "scored" for j in found) else status_of(issues)
    if reward.kind == "pairwise" and sample.output:
        found += _games(reward, sample)
    elif reward.kind == "listwise" and reward.judged and len(found) == 2:
        first, second = _extra(reward, sample).get("order", (0, 1))
        found.append(Judgement(Pair(first, second), verdict=sign(found[first].score, found[second].score)))
    return Judged(sample, found, status, issues)


def status_of(issues: Sequence[RewardIssue]) -> Status:
    """The outcome that issues stand for; `unscored` without any."""
    if any(issue.status == "failed" and issue.reason not in NOT_BEGUN for issue in issues):
        return "failed"
    return "stopped" if any(issue.reason in NOT_BEGUN for issue in issues) else "unscored"


def _extra(reward: BaseReward, sample: DataSample) -> dict[str, Any]:
    """What a comparing reward noted down beside its scores; it is the same for every output."""
    said = sample.output[0].answer.reward
    return said.extra_data.get(reward.key_in(said), {})


def _games(reward: BaseReward, sample: DataSample) -> list[Judgement]:
    """The verdicts of a pairwise reward, each under the order in which the pair was shown."""
    extra, games = _extra(reward, sample), []
    for pair, margins in extra.get("pairs", {}).items():
        low, high = (int(part) for part in pair.split(","))
        if not reward.judged:  # a rule has no position to favour: what it says in one order holds in both
            margins, orders = [margins[0]] * 2, [(low, high), (high, low)]
        else:
            orders = extra["orders"][pair]
        for (first, second), margin in zip(orders, margins, strict=True):
            verdict = int(margin > 0) - int(margin < 0)
            games.append(Judgement(Pair(first, second), verdict=verdict if first < second else -verdict))
    return games


def worst(statuses: Iterable[Status]) -> Status:
    """The outcome of a whole whose parts ended so: one lost part loses it."""
    found = set(statuses)
    order: tuple[Status, ...] = ("failed", "stopped", "unscored")
    return next((status for status in order if status in found), "scored")


def worst_part(parts: Sequence[Judged]) -> Judged:
    """The part whose outcome is that of the whole: one lost part loses it."""
    status = worst(part.status for part in parts)
    return next(part for part in parts if part.status == status)


def is_pair(chosen: Sequence[bool]) -> bool:
    """Whether the labels are those of a pair: one chosen output, one rejected."""
    return len(chosen) == 2 and bool(chosen[0]) != bool(chosen[1])


def has_preference(chosen: Sequence[bool]) -> bool:
    """Whether the labels prefer some outputs to others."""
    return any(chosen) and not all(chosen)
