"""Rewards that are called by named fields, and what `grader:NAME` stands for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from pydantic import SerializeAsAny

from rm_gallery.core.data.conversation import chat_messages
from rm_gallery.core.data.load.padding import plain
from rm_gallery.core.data.schema import DataOutput, DataSample, Step, is_absent
from rm_gallery.core.graders.base import (
    BaseGrader,
    GraderMode,
    GraderRegistry,
)
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.registry import RewardRegistry, class_for
from rm_gallery.core.reward.resolve import meant_by
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import scores_of_one
from rm_gallery.core.reward.schema import RewardMeta
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import DataError
from rm_gallery.core.utils.models import check_known

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

    builds: ClassVar[type[BaseReward] | None] = None
    """The class of reward it builds where none is given; None where its registered name is that of
    a reward.
    """
    registered: ClassVar[str] = ""
    """The name of the reward that it makes where none is given."""
    reward: SerializeAsAny[BaseReward]

    def __init__(self, reward: BaseReward | None = None, **settings: Any) -> None:
        """Take name, range and direction of the reward; a class with a reward of its own makes it
        of its settings.
        """
        cls = type(self)
        if reward is None and (cls.builds or cls.registered):
            kept = (*_OF_GRADER, "mode") if cls.builds else _OF_GRADER
            own = {key: settings.pop(key) for key in list(settings) if key not in kept}
            name = settings["name"] = settings.get("name") or cls.registered_name()
            reward = (
                cls.builds(name=name, **own)
                if cls.builds
                else RewardRegistry.create(cls.registered, **own)
            )
        if isinstance(reward, BaseReward):
            own = {
                "name": reward.name,
                "score_range": reward.score_range,
                "higher_is_better": reward.higher_is_better,
                "threshold": reward.threshold,
                "deadline": reward.deadline,
                "max_workers": reward.max_workers,
                "reward": reward,
                "mode": GraderMode.LISTWISE if reward.compares else GraderMode.POINTWISE,
            }
            settings = own | settings
        super().__init__(**settings)

    @property
    def itself(self) -> BaseReward:
        """The reward."""
        return self.reward

    @property
    def worst_score(self) -> float | None:
        """The reward's."""
        return self.reward.worst_score

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

    async def _grade(self, /, **fields: Any) -> Score[Any]:
        said = await scores_of_one(self.reward, sample_of(fields, self.compares), {})
        if missing := [score for score in said if score.value is None]:
            return missing[0].without_value()
        first = said[0].steps[-1] if said[0].steps else said[0]
        if not self.compares:
            return Score(said[0].value, first.reasons)
        scores: list[Any] = [score.value for score in said]
        turn = 1 if self.reward.higher_is_better else -1
        better = tuple(turn * score for score in scores)
        return Score(better, first.reasons, extra={"scores": scores})


_FIELDS = frozenset(
    "id query messages context response responses reference_response steps label metadata".split()
)


def sample_of(fields: Mapping[str, Any], compares: bool) -> DataSample:
    """The sample that a reward sees of a grader's fields: of `responses` where it compares, else of
    `response`, whichever columns there are beside.
    """
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
    about = fields.get("metadata")
    if about is not None and not isinstance(about, Mapping):  # a column of that name like any other
        others["metadata"], about = about, None
    steps = [Step(role="assistant", content=str(text)) for text in _steps_of(fields.get("steps"))]
    responses = fields["responses"] if compares else [fields["response"]]
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
        metadata={**others, **(about or {})} or None,
    )


def _steps_of(given: Any) -> list[Any]:
    """The steps' texts; DataError for what is no list of them: the letters of a text are no steps."""
    steps = plain([] if given is None else given)
    if not isinstance(steps, list) or any(map(is_absent, steps)):
        raise DataError(f"steps: expected a list of texts, found {steps!r:.80}.")
    return steps


def grader_of_reward(name: str, class_name: str, module: str) -> type[RewardGrader]:
    """The class of graders that are the registered reward `name`; settings of the reward are
    settings of the grader.
    """
    about = (
        f"The reward `{name}` as a grader; its settings are settings of the grader, see its card."
    )
    body = {
        "__module__": module,
        "__qualname__": class_name,
        "__doc__": about,
        "registered": name,
    }
    made: type[RewardGrader] = RewardMeta(class_name, (RewardGrader,), body)
    return made


# -- a grader as a reward --------------------------------------------------------------------------


def reward_class_of(name: str) -> type[BaseReward]:
    """What `grader:NAME` stands for: the rule's own reward, or a class that makes the reward of
    that grader.

    Raises ConfigError with the nearest names when there is no such grader.
    """
    kind: Any = GraderRegistry.get(name)
    make = partial(kind, name=f"grader:{name}")
    if issubclass(kind, RewardGrader):
        if kind.builds is None:
            return RewardRegistry.get(kind.registered_name())
        return class_for(kind.builds, kind, lambda **own: make(**own).itself, grader_class=kind)
    facts = kind.declared()
    if facts.pop("mode") is GraderMode.LISTWISE:
        facts = {"kind": "listwise", "score_range": (0.0, 1.0)}
    made: type[BaseReward] = class_for(
        kind, kind, make, **{"kind": "pointwise", "grader_class": kind, **facts}
    )
    return made


def reward_class_of_rubric(file: str) -> type[BaseReward]:
    """What `rubric:FILE` stands for; ConfigError where no rubric can be read."""
    return reward_class_of(f"rubric:{file}")


_OF_GRADER = ("threshold", "description", "max_workers", "deadline", "name")


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
    return made if isinstance(made, BaseGrader) else RewardGrader(made, **settings)


def as_reward(grader: BaseReward | str, **settings: Any) -> BaseReward:
    """A grader, or the registered one of this name with its settings, as what scores samples: a
    grader is a reward.
    """
    made: Any = grader
    if isinstance(grader, str):
        made = GraderRegistry.create(grader, **settings)
    elif settings:
        check_known(f"setting of {grader.name}", settings, type(grader).model_fields)
        made = grader.model_copy(update=settings)
        made.check_scale()
    scorer: BaseReward = made.itself
    return scorer
