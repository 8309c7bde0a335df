"""Judged rewards that are rubrics and nothing else: a scenario, a task and the rules to apply, as data."""

from __future__ import annotations

from textwrap import indent
from typing import Any, ClassVar, Literal

from pydantic import AliasChoices, Field, field_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.kinds import BaseListWiseReward, BasePairWiseReward, BasePointWiseReward
from rm_gallery.core.reward.llm import BaseLLMReward
from rm_gallery.core.reward.schema import RewardDimensionWithRank, RewardDimensionWithScore, RewardResult
from rm_gallery.core.reward.template import (
    BasePromptTemplate,
    RubricListWiseTemplate,
    RubricPairWiseTemplate,
    RubricPointWiseTemplate,
)
from rm_gallery.core.utils.models import build


class BaseRubricReward(BaseLLMReward):
    """Judges by rubrics. `rubrics=` and `principles=` are the same field; with none the judge follows the task alone."""

    scenario_texts: ClassVar[dict[str, dict[str, Any]]] = {}
    """By language, the scenario, desc and rubrics used where the constructor is given none."""

    rubrics: list[str] = Field(default_factory=list, validation_alias=AliasChoices("rubrics", "principles"))
    """What the judge goes by, in order of weight; `principles` is the same field."""
    examples: list[str] = Field(default_factory=list)
    """Judged examples that the judge is shown."""
    desc: str = ""
    """The task the judge is given."""
    scenario: str = ""
    """The situation the judge is told about."""
    language: Literal["en", "zh"] = "en"
    """Language of the instructions; the sample's texts may be in any."""
    show_reference: bool = False
    """Whether the judge sees the sample's reference answer."""

    @field_validator("rubrics", "examples", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    def model_post_init(self, context: Any) -> None:
        """Fill in the scenario's own texts, in the chosen language."""
        super().model_post_init(context)
        for field, text in self.scenario_texts.get(self.language, {}).items():
            if field not in self.model_fields_set:
                object.__setattr__(self, field, list(text) if isinstance(text, list) else text)

    @property
    def principles(self) -> list[str]:
        """The rubrics, under their older name."""
        return self.rubrics

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        """Task, rubrics and the texts to judge."""
        context = sample.input[-1].additional_kwargs.get("context", "") if sample.input else ""
        return {
            "desc": self.desc,
            "scenario": self.scenario,
            "rubrics": self.rubrics,
            "examples": self.examples,
            "language": self.language,
            "query": conversation_text(sample.input),
            "context": context if isinstance(context, str) else str(context),
            "reference": _reference(sample) if self.show_reference else "",
            "answers": [output.answer.text for output in sample.output],
        }


def _result(name: str, detail: RewardDimensionWithScore | RewardDimensionWithRank) -> RewardResult:
    """A result of one detail, made of a reply that was already validated; the kind checks the numbers."""
    return build(RewardResult, {"name": name, "details": [detail], "extra_data": {}})


class BasePointWiseRubricReward(BaseRubricReward, BasePointWiseReward):
    """Scores each answer by itself on a scale from 1 (worst) to 10 (best)."""

    score_range: ClassVar[tuple[float | None, float | None]] = (1.0, 10.0)

    template: type[BasePromptTemplate] | None = RubricPointWiseTemplate

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
        """The judge's score."""
        fields = {"name": self.name, "reason": response.reason, "source": None, "score": float(response.score)}
        return _result(self.name, build(RewardDimensionWithScore, fields))


class _NamesTheBest(BaseRubricReward):
    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
        """1 for the answer the judge named, 0 for the others."""
        rank = [float(position == response.best) for position in range(1, len(sample.output) + 1)]
        fields = {"name": self.name, "reason": response.reason, "source": None, "rank": rank}
        return _result(self.name, build(RewardDimensionWithRank, fields))


class BaseListWiseRubricReward(_NamesTheBest, BaseListWiseReward):
    """Shows all answers at once in a seeded order; the named best one gets 1, every other 0."""

    template: type[BasePromptTemplate] | None = RubricListWiseTemplate


class BasePairWiseRubricReward(_NamesTheBest, BasePairWiseReward):
    """Shows every pair of answers, in both orders by default; an answer's score is its share of pairs won."""

    template: type[BasePromptTemplate] | None = RubricPairWiseTemplate


def _reference(sample: DataSample) -> str:
    reference = sample.reference()
    return "" if reference is None else str(reference)


def conversation_text(messages: list[ChatMessage]) -> str:
    """A conversation for a judge: the bare text of a single user turn, else one labelled paragraph per turn.

    In a conversation every line of a turn is indented, so that no text can pass for a turn of its own.
    """
    if len(messages) == 1 and messages[0].role.value == "user":
        return messages[0].text
    return "\n\n".join(f"[{message.role.value}]\n{indent(message.text, '    ')}" for message in messages)
