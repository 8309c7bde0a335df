"""One small reward of every kind, each of which breaks in the same way at the same text: the
material of `test_siblings.py`.

A sound answer is worth a tenth of its number of words. An answer `break WAY` makes its scorer
misbehave as `WAYS` says.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rm_gallery import (
    BaseListWiseReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BasePromptTemplate,
    BaseReward,
    BaseStepWiseReward,
    BaseTrajectoryReward,
    Cascade,
    Combined,
    DataSample,
    EvaluateResult,
    FakeLLM,
    FunctionGrader,
    Gate,
    ProviderError,
    RewardResult,
    Stage,
    Step,
    TurnRewards,
    Unscored,
    WeightedSum,
    environment_reward,
    reward_function,
)
from rm_gallery.core.graders.base import GraderMode
from rm_gallery.core.reward.function import (
    FunctionGroupReward,
    FunctionReward,
    FunctionStepReward,
)
from rm_gallery.core.utils.errors import Cause
from rm_gallery.envs.environment import EnvironmentReward
from tests.reward import rewards as small
from tests.reward.rewards import ranked, scored
from tests.support.rules import rule_class
from tests.support.samples import make_sample

BREAK = "break "
SOUND = ("one", "one two three", "one two")


class Way(NamedTuple):
    """How a scorer that meets a broken answer gives no score."""

    cause: Cause
    """Who brought it about."""
    raises: Callable[[], Exception] | None = None
    gives: Any = None
    """What stands in the place of the score, where nothing is raised."""
    of: str = "code"
    """`code`: scorers that are code; `judge`: those that ask one; `lists`: those that give one
    number per answer.
    """


WAYS: dict[str, Way] = {
    "ValueError": Way("rule", lambda: ValueError("no number")),
    "OSError": Way("endpoint", lambda: OSError(errno.ENETUNREACH, "no route")),
    "FileNotFoundError": Way("rule", lambda: FileNotFoundError("a file that the answer names")),
    "TimeoutError": Way("endpoint", lambda: TimeoutError("no reply in time")),
    "ConnectionError": Way("endpoint", lambda: ConnectionError("refused")),
    "ProviderError": Way("endpoint", lambda: ProviderError("503", kind="transient")),
    "no-reference": Way("data", lambda: Unscored("no reference", reason="no_reference")),
    "not-applicable": Way("rule", lambda: Unscored("does not apply")),
    "answers-fault": Way("answer", lambda: Unscored("no code block", reason="no_code", cause="answer")),
    "None": Way("rule"),
    "NaN": Way("rule", gives=math.nan),
    "infinite": Way("rule", gives=math.inf),
    "out-of-range": Way("rule", gives=7.0),
    "wrong-length": Way("rule", of="lists"),
    "unreadable": Way("judge", gives="I would rather talk about the weather.", of="judge"),
    "empty": Way("judge", gives="", of="judge"),
    "endpoint-down": Way("endpoint", lambda: ProviderError("503", kind="transient", status=503), of="judge"),
}  # fmt: skip


def way_of(text: str) -> str | None:
    """The way in which the first broken answer of a text breaks; None for a sound one."""
    return text.split(BREAK, 1)[1].split()[0] if BREAK in text else None


def number(text: str) -> Any:
    """What a scorer says of one answer: a number, what is none, or an exception."""
    name = way_of(text)
    if name is None:
        return len(text.split()) / 10
    way = WAYS[name]
    if way.raises is not None:
        raise way.raises()
    return way.gives


def numbers(texts: Sequence[str]) -> Any:
    """What a scorer says of several answers at once."""
    given = [number(text) for text in texts if way_of(text) != "wrong-length"]
    return None if any(way_of(text) == "None" for text in texts) else given


def texts_of(sample: DataSample) -> list[str]:
    return [output.answer.text for output in sample.output]


class _Range(BaseReward):
    score_range: tuple[float | None, float | None] = (0.0, 1.0)


class Point(_Range, BasePointWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        found = number(sample.output[0].answer.text)
        return None if found is None else scored(self.name, found)


class AsyncPoint(_Range, BasePointWiseReward):
    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        found = number(sample.output[0].answer.text)
        return None if found is None else scored(self.name, found)


class Ranks(_Range, BaseListWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        found = numbers(texts_of(sample))
        return None if found is None else ranked(self.name, *found)


class Pairs(BasePairWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        found = numbers(texts_of(sample))
        return None if found is None else ranked(self.name, *found)


class Whole(_Range, BaseTrajectoryReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        found = number(sample.output[0].answer.text)
        return None if found is None else scored(self.name, found)


class Steps(_Range, BaseStepWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        found = number((sample.output[0].steps or [])[-1].text)
        return None if found is None else scored(self.name, found)


def reply(question: str) -> str:
    """A judge that reads the answers below the first line, and breaks where one of them is broken."""
    name = way_of(question)
    if name is not None:
        way = WAYS[name]
        if way.raises is not None:
            raise way.raises()
        return str(way.gives)
    return small.longest(question)


class PointJudge(small.PointJudge):
    score_range: tuple[float | None, float | None] = (0.0, 10.0)


class StepJudge(small.StepJudge):
    score_range: tuple[float | None, float | None] = (0.0, 10.0)


class ListJudge(small.ListJudge):
    """Scores every answer by its words."""

    template: type[BasePromptTemplate] | None = small.BestTemplate
    score_range: tuple[float | None, float | None] = (0.0, 1.0)

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, *(len(text.split()) / 10 for text in texts_of(sample)))


def judge() -> FakeLLM:
    return FakeLLM(reply=reply, max_attempts=1)


def function(messages: list[Any], **kwargs: Any) -> Any:
    return number(messages[-1].text)


async def async_function(messages: list[Any], **kwargs: Any) -> Any:
    return number(messages[-1].text)


def batch_function(rollouts_messages: list[list[Any]], **kwargs: Any) -> Any:
    """Per answer: what raises spoils the whole call, as in any function of a batch."""
    found = numbers([messages[-1].text for messages in rollouts_messages])
    return found if found is None else [EvaluateResult(score=each, reason="") for each in found]


async def async_batch_function(rollouts_messages: list[list[Any]], **kwargs: Any) -> Any:
    return batch_function(rollouts_messages)


def step_rule(step: str) -> Any:
    """A tenth of the words of a step."""
    return number(step)


def batch_rule(answers: list[str]) -> Any:
    """A tenth of the words of each answer."""
    return numbers(answers)


StepRules = rule_class("step_rules", step_rule, mode="stepwise")
BatchRules = rule_class("batch_rules", batch_rule, mode="batch")


class Env:
    """Scores one rollout by itself."""

    def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> Any:
        found = number(messages[-1]["content"])
        return None if found is None else {"words": found}


class AsyncEnv:
    async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> Any:
        return Env().compute_reward(rollout_id, messages, task)


class GroupEnv:
    """Scores the rollouts of a prompt together."""

    def compute_group_reward(
        self, rollout_ids: Any, messages_list: Any, tasks: Any, **kwargs: Any
    ) -> Any:
        found = numbers([messages[-1]["content"] for messages in messages_list])
        return None if found is None else [{"words": each} for each in found]


def graded(response: str) -> Any:
    return number(response)


def ranks(responses: list[str]) -> Any:
    """Places, 1 for the best: graders that compare say no more."""
    found = numbers(responses)
    return (
        found
        if found is None
        else {"rank": [1 + sum(other > each for other in found) for each in found]}
    )


class Kind(NamedTuple):
    """How one kind is made, and what it can meet."""

    make: Callable[[], BaseReward]
    covers: tuple[type[BaseReward], ...]
    """The classes of the library that it stands for."""
    of: frozenset[str] = frozenset({"code"})
    """Which ways it can meet."""
    never: frozenset[str] = frozenset()
    """Ways that are none for it: a margin and a component may have any size, and any finite number
    can be ranked.
    """


ANY_SIZE = frozenset({"out-of-range"})
CODE, LISTS, JUDGE = frozenset({"code"}), frozenset({"code", "lists"}), frozenset({"judge"})
UNIT: dict[str, Any] = {"score_range": (0.0, 1.0)}
KINDS: dict[str, Kind] = {
    "pointwise": Kind(Point, (BasePointWiseReward,)),
    "pointwise-async": Kind(AsyncPoint, (BasePointWiseReward,)),
    "listwise": Kind(Ranks, (BaseListWiseReward,), LISTS),
    "pairwise": Kind(Pairs, (BasePairWiseReward,), LISTS, ANY_SIZE),
    "stepwise": Kind(Steps, (BaseStepWiseReward,)),
    "trajectory": Kind(Whole, (BaseTrajectoryReward,)),
    "judged-pointwise": Kind(lambda: PointJudge(llm=judge(), repair_attempts=0), (BasePointWiseReward,), JUDGE),
    "judged-listwise": Kind(lambda: ListJudge(llm=judge(), repair_attempts=0), (BaseListWiseReward,), JUDGE),
    "judged-pairwise": Kind(
        lambda: small.PairJudge(llm=judge(), repair_attempts=0), (BasePairWiseReward,), JUDGE
    ),
    "judged-stepwise": Kind(lambda: StepJudge(llm=judge(), repair_attempts=0), (BaseStepWiseReward,), JUDGE),
    "function": Kind(lambda: FunctionReward(function=reward_function(**UNIT)(function)), (FunctionReward,)),
    "function-async": Kind(lambda: FunctionReward(function=reward_function(**UNIT)(async_function)), (FunctionReward,)),
    "batch-function": Kind(
        lambda: FunctionGroupReward(function=reward_function(mode="batch", **UNIT)(batch_function)), (FunctionGroupReward,), LISTS
    ),
    "batch-function-async": Kind(
        lambda: FunctionGroupReward(function=reward_function(mode="batch", **UNIT)(async_batch_function)),
        (FunctionGroupReward,), LISTS,
    ),
    "step-function": Kind(
        lambda: FunctionStepReward(function=reward_function(mode="stepwise", **UNIT)(function)), (FunctionStepReward,)
    ),
    "step-function-async": Kind(
        lambda: FunctionStepReward(function=reward_function(mode="stepwise", **UNIT)(async_function)),
        (FunctionStepReward,),
    ),
    "step-rule": Kind(StepRules, (BaseStepWiseReward,)),
    "batch-rule": Kind(BatchRules, (BaseListWiseReward,), LISTS),
    "environment": Kind(lambda: environment_reward(Env()), (EnvironmentReward,), never=ANY_SIZE),
    "environment-async": Kind(lambda: environment_reward(AsyncEnv()), (EnvironmentReward,), never=ANY_SIZE),
    "environment-group": Kind(lambda: environment_reward(GroupEnv()), (EnvironmentReward,), LISTS, ANY_SIZE),
    "weighted-sum": Kind(lambda: WeightedSum({"a": Point(), "b": AsyncPoint()}), (WeightedSum,)),
    "weighted-sum-of-lists": Kind(lambda: WeightedSum({"a": Ranks(), "b": Point()}), (WeightedSum,), LISTS),
    "combined": Kind(lambda: Combined({"a": Point(), "b": AsyncPoint()}, how="min"), (Combined,)),
    "gate": Kind(lambda: Gate(Point(), Point(), threshold=0.0, otherwise=0.0), (Gate,)),
    "cascade": Kind(lambda: Cascade(Stage(Point(), stop_below=0.0), Stage(AsyncPoint()), otherwise=0.0), (Cascade,)),
    "turn-rewards": Kind(lambda: TurnRewards(steps=Steps(), outcome=AsyncPoint(), total="mean"), (TurnRewards,)),
    "grader": Kind(lambda: FunctionGrader(graded, **UNIT), (FunctionGrader,)),
    "grader-list": Kind(
        lambda: FunctionGrader(ranks, mode=GraderMode.LISTWISE), (FunctionGrader,), LISTS, ANY_SIZE | {"NaN", "infinite"},
    ),
}  # fmt: skip


def sample_with(*texts: str, unique_id: str = "s") -> DataSample:
    """A sample whose answers, each with itself as its only step, have these texts."""
    sample = make_sample(*texts, unique_id=unique_id, query=f"Question {unique_id}?")
    for output in sample.output:
        output.steps = [Step(content=output.answer.text)]
    return sample


def ways_of(kind: str) -> list[str]:
    """The ways in which a scorer of the kind can break."""
    return [
        name
        for name, way in WAYS.items()
        if way.of in KINDS[kind].of and name not in KINDS[kind].never
    ]
