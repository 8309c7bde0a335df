"""Bridges: any reward is a grader and any grader a reward, with the same score through both doors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar

from pydantic import Field, SerializeAsAny

from rm_gallery.core.data.conversation import chat_messages
from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.graders.base import (
    BaseGrader,
    GraderError,
    GraderMode,
    GraderRank,
    GraderRegistry,
    GraderResult,
    GraderScore,
)
from rm_gallery.core.graders.run import agraded, error_of
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.judge import UNSEEN
from rm_gallery.core.reward.judges import asks_a_model
from rm_gallery.core.reward.kinds import BaseListWiseReward, BasePointWiseReward, unseen_in
from rm_gallery.core.reward.outputs import said_of
from rm_gallery.core.reward.registry import RewardRegistry, class_for
from rm_gallery.core.reward.resolve import meant_by
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.schema import RewardMeta
from rm_gallery.core.score import Bounds, Score, failed
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.prompt import seeded_order

G = TypeVar("G", bound=GraderResult)

# -- a reward as a grader --------------------------------------------------------------------------


class RewardGrader(BaseGrader):
    """A reward as a grader.

    Fields: `response` (or, for rewards that compare, `responses`, a list), and where they are given
    `query`, `messages` (the conversation, instead of the query), `context`, `reference_response`,
    `steps` (a list of texts, for stepwise rewards), `label` (a dict) and `metadata`; to a rule
    every other column is a part of the label and of the metadata, so that a rule finds its tests,
    schema or pattern there, and a reward function its parameters.
    A reward that compares gives a GraderRank with the scores in its metadata.
    """

    kind: ClassVar[type[BaseReward] | None] = None
    """The class of reward it builds where none is given; None where its registered name is that of
    a reward.
    """
    reward: SerializeAsAny[BaseReward]

    def __init__(self, reward: BaseReward | None = None, **settings: Any) -> None:
        """Take name, range and direction of the reward."""
        if isinstance(reward, BaseReward):
            own = {
                "name": reward.name,
                "score_range": reward.score_range,
                "higher_is_better": reward.higher_is_better,
                "deadline": reward.deadline,
                "max_workers": reward.max_workers,
                "reward": reward,
                "mode": GraderMode.LISTWISE if reward.compares else GraderMode.POINTWISE,
            }
            settings = own | settings
        super().__init__(**settings)

    def check(self) -> None:
        """Raise ConfigError when the reward could not score at all."""
        self.reward.check()

    @property
    def declares_missing(self) -> bool:
        """Whether the reward does."""
        return self.reward.declares_missing

    @property
    def inputs(self) -> dict[str, bool]:
        """`response` or `responses`, and what may be given beside it."""
        needed = "responses" if self.mode is GraderMode.LISTWISE else "response"
        optional = (
            "query",
            "messages",
            "context",
            "reference_response",
            "steps",
            "label",
            "metadata",
        )
        # a rule reads its tests, schema or pattern from the label; a judge is shown nothing but
        # what is named here
        return {
            needed: True,
            **dict.fromkeys(optional if self.reward.judged else (*optional, "*"), False),
        }

    @property
    def llm(self) -> Any:
        """The model that judges, None where none does."""
        return getattr(self.reward, "llm", None)

    @property
    def is_async(self) -> bool:
        """True: the reward runs as a part of the run around it."""
        return True

    async def _grade(self, /, **fields: Any) -> GraderResult:
        scored = await self.reward.async_evaluate(sample_of(fields))
        scores, reasons = [], []
        for output in scored.output:
            own = output.answer.reward
            score = self.reward.score_of_output(output)
            if score is None:
                return GraderError.of(self.name, said_of(self.reward, output))
            scores.append(score)
            reasons.append("; ".join(detail.reason for detail in own.details if detail.reason))
        if self.mode is not GraderMode.LISTWISE:
            return GraderScore(score=scores[0], reason=reasons[0], **self.about())
        turn = 1 if self.higher_is_better else -1
        rank = [1 + sum(turn * other > turn * own for other in scores) for own in scores]
        return GraderRank(name=self.name, rank=rank, reason=reasons[0], metadata={"scores": scores})


_FIELDS = frozenset(
    "id query messages context response responses reference_response steps label metadata".split()
)


def sample_of(fields: Mapping[str, Any]) -> DataSample:
    """The sample that a reward sees of a grader's fields."""
    if fields.get("messages"):
        messages = chat_messages(fields["messages"])
    else:
        messages = [ChatMessage(content=str(fields.get("query") or ""))]
    if fields.get("context"):
        last = messages[-1]
        messages[-1] = last.model_copy(
            update={"additional_kwargs": {**last.additional_kwargs, "context": fields["context"]}}
        )
    others = {
        name: value for name, value in fields.items() if name not in _FIELDS and value is not None
    }
    own = fields.get("label")
    # a table's column `label` of 0 and 1 holds verdicts of people, and is no part of an answer
    label = {**others, **(own if isinstance(own, Mapping) else {})}
    if fields.get("reference_response") is not None:
        label.setdefault("reference", fields["reference_response"])
    steps = [Step(role="assistant", content=str(text)) for text in fields.get("steps") or ()]
    responses = fields["responses"] if "responses" in fields else [fields["response"]]
    return DataSample(
        unique_id=str(fields.get("id") or ""),
        input=messages,
        output=[
            DataOutput(
                answer=Step(role="assistant", content=str(text), label=dict(label) or None),
                steps=steps or None,
            )
            for text in responses
        ],
        metadata={**others, **(fields.get("metadata") or {})} or None,
    )


def grader_of_reward(name: str, class_name: str, module: str) -> type[RewardGrader]:
    """The class of graders that are the registered reward `name`; settings of the reward are
    settings of the grader.
    """

    def __init__(self: Any, reward: BaseReward | None = None, **settings: Any) -> None:
        if reward is None:
            own = {key: settings.pop(key) for key in list(settings) if key not in _OF_GRADER}
            reward, settings = RewardRegistry.create(name, **own), {"name": name, **settings}
        super(made, self).__init__(reward, **settings)

    body = {
        "__module__": module,
        "__qualname__": class_name,
        "__init__": __init__,
        "registered": name,
    }
    body["__doc__"] = (
        f"The reward `{name}` as a grader; its settings are settings of the grader, see its card."
    )
    made: type[RewardGrader] = RewardMeta(class_name, (RewardGrader,), body)
    return made


# -- a grader as a reward --------------------------------------------------------------------------


def fields_of(grader: BaseGrader, sample: DataSample) -> dict[str, Any]:
    """What a grader sees of a sample: query, messages (input, steps, answer), context, response(s),
    the tool_calls of steps and answer, reference_response, and of the metadata the fields it asks
    for by their names.
    """
    inputs = grader.inputs
    about = sample.metadata or {}
    answers = [output.answer for output in sample.output]
    texts = [
        answer.text if grader.judged else sample.answer_text(index)
        for index, answer in enumerate(answers)
    ]
    reference = sample.reference()
    sees = "vision" in grader.needs
    if grader.judged and not sees and unseen_in(sample):
        raise Unscored(
            f"{grader.name}: the grader is shown texts, and this sample holds parts that are none; "
            f"take a rubric reward, which "
            "is sent images, or a grader of images.",
            reason=UNSEEN,
            cause="rule",
        )
    # of several outputs the first: a grader of trajectories is asked about one at a time
    way = [
        turn.to_openai()
        for output in sample.output[:1]
        for turn in (*(output.steps or ()), output.answer)
    ]
    known: dict[str, Any] = {
        "query": sample.query_text(),
        "instruction": sample.query_text(),
        "messages": [*(message.to_openai() for message in sample.input), *way],
        "history": [message.to_openai() for message in sample.input[:-1]],
        "response": (answers[0].content if sees else texts[0]) if answers else "",
        "responses": texts,
        "context": sample.input[-1].additional_kwargs.get("context", "") if sample.input else "",
        "tool_calls": [call for turn in way for call in turn.get("tool_calls") or ()] or None,
        **({"reference_response": reference} if reference is not None else {}),
    }
    given = {
        name: known[name] if name in known else about.get(name) for name in inputs if name != "*"
    }
    over = {
        name: about[name]
        for name in inputs
        if name in about and name not in ("response", "responses", "query")
    }
    return {name: value for name, value in {**given, **over}.items() if value is not None}


class _OfGrader(BaseReward):
    """What both kinds share: the grader, and its judge."""

    grader_class: ClassVar[type[BaseGrader] | None] = None
    """The grader that `grader:NAME` names."""
    grader: SerializeAsAny[BaseGrader] = Field(default=...)

    def __init__(self, grader: BaseGrader | str | None = None, **settings: Any) -> None:
        """Take a grader, or the name of one with its settings."""
        own: dict[str, Any] = {}
        if isinstance(grader, str):
            own = {"name": f"grader:{grader}"}
            own |= {key: settings.pop(key) for key in _OF_REWARD if key in settings}
            own["grader"], settings = GraderRegistry.create(grader, **settings), {}
        elif grader is not None:
            own = {"grader": grader, "name": grader.name, "deadline": grader.deadline}
        super().__init__(**{**own, **settings})

    def check(self) -> None:
        """Raise ConfigError when the grader could not grade at all."""
        self.grader.check()

    @property
    def llm(self) -> Any:
        """The model that judges, None where none does."""
        return getattr(self.grader, "llm", None)

    @property
    def declares_missing(self) -> bool:
        """Whether the grader does."""
        return self.grader.declares_missing

    async def _graded(self, sample: DataSample, kind: type[G]) -> G:
        result = await agraded(self.grader, fields_of(self.grader, sample))
        if isinstance(result, kind):
            return result
        if isinstance(result, GraderError):
            raise error_of(result.outcome())
        why = f"{result.name} gave a {type(result).__name__}."
        raise error_of(failed("invalid_result", why, "rule"))


class GraderReward(_OfGrader, BasePointWiseReward):
    """A grader as a reward: `RewardRegistry.get("grader:relevance")(llm=…)`, or
    `as_reward(grader)`.

    Each answer is graded by itself. The score is the grader's, in its range and direction; what it
    could not grade is unscored or failed with the grader's reason.
    """

    judged: ClassVar[bool] = False  # the grader sees only the fields it names, never a label
    __init__ = _OfGrader.__init__  # type checkers would make one of the fields

    @property  # type: ignore[misc]
    def score_range(self) -> Bounds:  # type: ignore[override]  # a class has none before it has a grader
        """The grader's range."""
        return self.grader.score_range

    @property  # type: ignore[misc]
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """The grader's direction."""
        return self.grader.higher_is_better

    def check(self) -> None:
        """Raise ConfigError when the grader could not grade at all, or orders responses instead of
        scoring one.
        """
        super().check()
        if self.grader.mode is GraderMode.LISTWISE:
            raise ConfigError(
                f"{self.name} orders several responses; as_reward(grader) makes the listwise "
                f"reward of it."
            )

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        result = await self._graded(sample, GraderScore)
        return Score(result.score, result.reason, extra=result.metadata)


class GraderListReward(_OfGrader, BaseListWiseReward):
    """A grader that orders responses as a reward: an answer's score is the share of the others it
    is placed before.
    """

    score_range: Bounds = (0.0, 1.0)
    __init__ = _OfGrader.__init__

    def order(self, sample: DataSample, n: int, salt: str = "") -> list[int]:
        """A judge sees the candidates in an order that the sample's id and `seed` decide, a rule in
        the given one.
        """
        return (
            seeded_order(n, f"{self.seed}\x1f{sample.sample_id}\x1f{salt}")
            if asks_a_model(self.grader)
            else list(range(n))
        )

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        result = await self._graded(sample, GraderRank)
        n = len(result.rank)
        scores = tuple(
            (sum(other > own for other in result.rank) + 0.5 * (result.rank.count(own) - 1))
            / max(1, n - 1)
            for own in result.rank
        )
        return Score(scores, result.reason, extra=result.metadata)


def reward_class_of(name: str) -> type[BaseReward]:
    """What `grader:NAME` stands for: the rule's own reward, or a class that makes the reward of
    that grader.

    Raises ConfigError with the nearest names when there is no such grader.
    """
    kind = GraderRegistry.get(name)
    base: Any = GraderReward
    make: Callable[..., BaseReward] = partial(base, name)
    facts: dict[str, Any] = {}
    if issubclass(kind, RewardGrader):
        if kind.kind is None:
            return RewardRegistry.get(kind.registered_name())
        base, make = kind.kind, partial(_named_reward, name)
    elif (declared := kind.declared())["mode"] is GraderMode.LISTWISE:
        base, make = GraderListReward, partial(GraderListReward, name)
    else:
        facts = {key: declared[key] for key in ("score_range", "higher_is_better")}
    facts |= {"judged": kind.judged or base.judged, "needs": kind.needs | base.needs}
    return class_for(base, kind, make, grader_class=kind, **facts)


def _named_reward(grader: str, **settings: Any) -> BaseReward:
    return as_reward(grader, **{"name": f"grader:{grader}", **settings})


def reward_class_of_rubric(file: str) -> type[BaseReward]:
    """What `rubric:FILE` stands for; ConfigError where no rubric can be read."""
    return reward_class_of(f"rubric:{file}")


_OF_GRADER = ("threshold", "description", "max_workers", "deadline", "name")
_OF_REWARD = ("name", "max_workers", "deadline", "seed")


def as_grader(reward: Any, **settings: Any) -> BaseGrader:
    """A reward, its class, the registered one of this name, or a function under `@rule` or
    `@reward_function`, as a grader; a grader stays one.
    """
    if isinstance(reward, BaseGrader):
        return reward
    made = meant_by(reward)
    if isinstance(made, type):  # what is written as a class or name takes settings of the reward
        own = settings if isinstance(reward, str | type) else {}
        made, settings = made(**own), {} if own else settings
    if isinstance(made, _OfGrader) and not isinstance(reward, str):
        return made.grader
    return RewardGrader(made, **settings)


def as_reward(grader: BaseGrader | BaseReward | str, **settings: Any) -> BaseReward:
    """A grader, or the registered one of this name, as a reward; a reward stays one."""
    if isinstance(grader, BaseReward):
        return grader
    if isinstance(grader, str):
        grader, settings = GraderRegistry.create(grader, **settings), {}
    if isinstance(grader, RewardGrader):
        return grader.reward
    kind = GraderListReward if grader.mode is GraderMode.LISTWISE else GraderReward
    made: BaseReward = kind(grader, **settings)
    return made
