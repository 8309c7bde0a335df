"""Judged rewards: from a sample over a prompt and a reply that was read to a result, and judges
that are rubrics alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    Field,
    SerializeAsAny,
    field_serializer,
    field_validator,
)

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.engine import awaitable
from rm_gallery.core.model.base import BaseLLM, as_messages
from rm_gallery.core.model.message import ChatResponse
from rm_gallery.core.reward.asking import ask, parsed, told_of, unreadable, voted
from rm_gallery.core.reward.base_kinds import (
    BaseListWiseReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseStepWiseReward,
    BaseTrajectoryReward,
)
from rm_gallery.core.reward.channel import Channel
from rm_gallery.core.reward.founding import score_of_result
from rm_gallery.core.reward.job import PICTURES, Touches
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.template import (
    BasePromptTemplate,
    Described,
    RubricListWiseTemplate,
    RubricPairWiseTemplate,
    RubricPointWiseTemplate,
)
from rm_gallery.core.reward.view import holds_parts
from rm_gallery.core.score import Bounds, Score, deciding, mean_of
from rm_gallery.core.utils.errors import ConfigError, DataError, ProviderError, Unscored

if TYPE_CHECKING:

    class Judge:
        """What type checkers know of a field that holds a judge: it takes a name or settings as
        well, and holds a model.
        """

        def __get__(self, instance: Any, owner: Any = None) -> BaseLLM | None: ...
        def __set__(self, instance: Any, value: BaseLLM | str | dict[str, Any] | None) -> None: ...


JUDGE = "judge: pass llm=OpenaiLLM(model=…), or a model's name"
PROMPT = "prompt: pass template=…, a subclass of BasePromptTemplate"
UNSEEN = "unseen_part"
"""The reason of an answer of which its judge would see a part alone."""
T = TypeVar("T")
_OF_IMAGES = re.compile(r"(?i)image|vision|multi-?modal|content (?:part|type)")


def judge_of(value: Any) -> Any:
    """The model that a name or settings stand for; a model stays one."""
    if isinstance(value, str | dict):
        from rm_gallery.core.model.base import resolve_llm

        return resolve_llm(value)
    return value


def required(given: T | None, name: str, what: str) -> T:
    """What a judged reward or grader cannot do without; ConfigError where it was given none."""
    if given is None:
        raise ConfigError(f"{name} has no {what}.")
    return given


class BaseLLMReward(BaseReward):
    """A model judges: prompt parameters in, parsed reply out.

    A subclass sets `template` and implements `_before_evaluate(sample) -> dict` and
    `_after_evaluate(response, sample) -> Score`. Both see the sample as the judge sees it:
    in a seeded candidate order and without preference labels. An unreadable reply gets
    `repair_attempts` more tries that show the problem; then the sample is unscored.
    """

    judged: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"llm"})
    touches: ClassVar[Touches] = {"network": (PICTURES,)}  # the endpoint fetches them
    said_if_given: ClassVar[frozenset[str]] = frozenset(
        {*BaseReward.said_if_given, "channel", "images", "votes"}
    )

    if TYPE_CHECKING:
        llm: Judge = Judge()
    else:
        llm: SerializeAsAny[BaseLLM] | None = Field(
            default=None,
            description="The judge: a model object, a model's name, or a dict of its settings.",
        )
    template: type[BasePromptTemplate] | None = None
    """What the judge is asked and how its reply is read."""
    repair_attempts: int = Field(default=1, ge=0)
    """How often the judge is asked again after a reply that cannot be read."""
    channel: Channel = "auto"
    """How the judge states its verdict: by `schema`, `tool` call, `logprobs` of one token (numbers
    are then expected ones), in `text`; `auto` is the first of schema, tool and text that the
    endpoint takes, and `decision` with a decision model."""

    votes: int | None = Field(default=None, ge=1)
    """How often each question is asked. The numbers are averaged: a score's mean, the share of
    votes for an answer, the majority of a pair; votes that cannot be read are left out while half
    of them can. Once unless given."""
    images: Literal["send", "leave_out"] = "send"
    """Whether the judge is sent the images of question, answers and steps. What it cannot be shown
    (audio, files, an image that its endpoint refuses) leaves the answer unscored; with `leave_out`
    it judges the texts, in which a mark says what is missing."""

    @field_serializer("template", when_used="json")
    def _template_name(self, template: Any) -> str | None:
        return None if template is None else f"{template.__module__}.{template.__qualname__}"

    _resolve = field_validator("llm", mode="before")(judge_of)

    def check(self) -> None:
        """Raise ConfigError without a judge or a template, or when the judge could not be called at
        all.
        """
        llm = required(self.llm, self.name, JUDGE)
        required(self.template, self.name, PROMPT)
        llm.check()

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        """The template's parameters for one job."""
        raise NotImplementedError(
            f"{type(self).__name__} implements _before_evaluate(sample) -> dict of prompt "
            f"parameters."
        )

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> Any:
        """The score of one job, or its `RewardResult`, from the parsed reply."""
        raise NotImplementedError(
            f"{type(self).__name__} implements _after_evaluate(response, sample) -> Score."
        )

    def format(self, sample: DataSample, **kwargs: Any) -> Any:
        """The very prompt a sample would be judged with, without calling the model; the first one
        where there are several.
        """
        jobs = self.kind.jobs(self, sample)
        if not jobs:
            raise Unscored(
                f"{self.name} would not call the judge for this sample.", reason="no_jobs"
            )
        shown = jobs[0].sample
        return self._asked(self._before_evaluate(sample=shown, **kwargs), shown)

    def _formatted(self, parameters: dict[str, Any]) -> Any:
        template = required(self.template, self.name, PROMPT)
        thinking = self.llm is not None and self.llm.enable_thinking
        prompt = template.format(**{"enable_thinking": thinking, **parameters})
        if not prompt:
            raise DataError(
                f"{template.__name__}.format returned {prompt!r} for this sample; it returns "
                f"the prompt."
            )
        return prompt

    def _asked(self, parameters: dict[str, Any], sample: DataSample) -> Any:
        """The prompt, with the sample's images where it has some."""
        prompt = self._formatted(parameters)
        if self.images == "leave_out" or not holds_parts(sample):
            return prompt
        return self._illustrated(prompt, sample)

    def _illustrated(self, prompt: Any, sample: DataSample) -> Any:
        """The prompt with the sample's images behind what the user says last, each led in by its
        mark.
        """
        seen = self.kind.view(sample).parts
        if seen is not None and seen.unseen:
            raise self._unseen(
                f"a judge is shown texts and images with a URL, and this sample holds "
                f"{', '.join(set(seen.unseen))}; to judge without them"
            )
        if seen is None or not seen.pictures:
            return prompt
        messages = as_messages(prompt)
        asking = [message for message in messages if message.get("role") == "user"] or messages
        parts: list[dict[str, Any]] = [{"type": "text", "text": asking[-1]["content"]}]
        for number, url in enumerate(seen.pictures, 1):
            parts += [
                {"type": "text", "text": f"[image {number}]"},
                {"type": "image_url", "image_url": {"url": url}},
            ]
        asking[-1]["content"] = parts
        return messages

    def _unseen(self, problem: str) -> Unscored:
        return Unscored(
            f"{self.name}: {problem} pass images='leave_out'.", reason=UNSEEN, cause="rule"
        )

    def _refuse_images(self, error: ProviderError, sample: DataSample) -> None:
        """Raise Unscored where an endpoint refuses a sample's images: it has not judged it, and is
        not broken.
        """
        refused = error.of_a_field and _OF_IMAGES.search(str(error))
        if refused and self.images != "leave_out" and holds_parts(sample):
            raise self._unseen(
                f"the judge's endpoint refuses this sample's images: {error} Take a model that "
                f"sees, or"
            ) from error

    @property
    def asked_times(self) -> int:
        """How many calls of the judge one judgement takes."""
        return self.votes or 1

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        """Ask, as often as there are votes, and take the mean of what they say."""
        if self.asked_times == 1:
            return await self._vote(sample, **kwargs)
        votes = await voted(lambda: self._vote(sample, **kwargs), self.asked_times)
        return _mean(self.name, [self.kind.read(self, vote, sample) for vote in votes])

    async def _vote(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        """Ask, read, and ask again where the reply cannot be read, `repair_attempts` times. Hooks
        may be async.
        """
        made: Any = self._before_evaluate(sample=sample, **kwargs)
        parameters = await made if awaitable(made) else made
        try:
            score: Score[Any] = await ask(
                required(self.llm, self.name, JUDGE),
                required(self.template, self.name, PROMPT),
                lambda: self._asked(parameters, sample),
                lambda reply: self._read(reply, sample, kwargs),
                name=self.name,
                repair_attempts=self.repair_attempts,
                language=getattr(self, "language", "en"),
                channel=self.channel,
                shown=len(sample.output),
            )
        except ProviderError as error:
            self._refuse_images(error, sample)
            raise
        return score

    async def _read(
        self, reply: ChatResponse, sample: DataSample, kwargs: dict[str, Any]
    ) -> Score[Any]:
        """What `_after_evaluate` says of a reply; whatever does not fit becomes a ParseError."""
        template = required(self.template, self.name, PROMPT)
        response = parsed(template, reply, len(sample.output))
        try:
            found = self._after_evaluate(**{"response": response, "sample": sample, **kwargs})
        except (KeyError, IndexError, ValueError) as error:
            raise unreadable(error, template, reply.text) from error
        score = score_of_result(await found if awaitable(found) else found, self.name)
        decisions = told_of(reply)
        return replace(score, extra={**score.extra, **decisions}) if decisions else score


def _mean(name: str, votes: Sequence[Score[Any]]) -> Score[Any]:
    """One score whose numbers are the means of those of the votes, with the first one's reasons;
    the votes beside it.
    """
    if missing := [vote for vote in votes if vote.value is None]:
        return deciding(missing)
    first, rows = votes[0], [vote.dimensions(name) for vote in votes]
    shapes = {tuple((each.name, len(_numbers(each.value))) for each in row) for row in rows}
    if len(shapes) > 1:
        raise Unscored(f"{name}: votes of different dimensions have no mean.", reason="votes")
    details = [
        row[0]._replace(value=mean_of([detail.value for detail in row]))
        for row in zip(*rows, strict=True)
    ]
    by_vote = [[number for detail in row for number in _numbers(detail.value)] for row in rows]
    return replace(
        first,
        value=mean_of([detail.value for detail in details]),
        extra={**first.extra, "votes": by_vote},
        details=tuple(details) if first.details else (),
    )


def _numbers(value: Any) -> Sequence[float]:
    return value if isinstance(value, tuple) else [value]


# -- rubrics ---------------------------------------------------------------------------------------


class Worked(BaseModel):
    """A reply in which the judge works the task out before it gives its reasons."""

    work: Annotated[
        str | None, Described(zh="先在这里自己解题或逐项核对，需要多少步就写多少步")
    ] = Field(
        default=None,
        description=(
            "Your own working first: solve it, or check point by point, in as many steps as it "
            "takes"
        ),
    )


class WorkedPointWiseTemplate(Worked, RubricPointWiseTemplate):
    """One answer is scored from 1 (worst) to 10 (best), after the judge has worked the task out."""


class WorkedListWiseTemplate(Worked, RubricListWiseTemplate):
    """The best of several answers is named by its number, after the judge has worked the task out."""


class WorkedPairWiseTemplate(Worked, RubricPairWiseTemplate):
    """The better of two answers is named by its number, after the judge has worked the task out."""


WORKED: dict[str, type[BasePromptTemplate]] = {
    "pointwise": WorkedPointWiseTemplate,
    "stepwise": WorkedPointWiseTemplate,
    "trajectory": WorkedPointWiseTemplate,
    "listwise": WorkedListWiseTemplate,
    "pairwise": WorkedPairWiseTemplate,
}
TEMPLATES: dict[str, type[BasePromptTemplate]] = {
    "pointwise": RubricPointWiseTemplate,
    "stepwise": RubricPointWiseTemplate,
    "trajectory": RubricPointWiseTemplate,
    "listwise": RubricListWiseTemplate,
    "pairwise": RubricPairWiseTemplate,
}


class BaseRubricReward(BaseLLMReward):
    """Judges by rubrics, in any kind; without a template of its own it takes the kind's.

    `rubrics=` and `principles=` are the same field; with none the judge follows the task alone.
    """

    work: ClassVar[bool] = False
    """Whether the judge has to compute or check, and so is asked to write down its own working
    before its reasons.
    """
    scenario_texts: ClassVar[dict[str, dict[str, Any]]] = {}
    """By language, the scenario, desc and rubrics used where the constructor is given none;
    `levels`, where it has some, say what the scores of one answer mean under those rubrics."""

    rubrics: list[str] = Field(
        default_factory=list, validation_alias=AliasChoices("rubrics", "principles")
    )
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
        """Fill in the kind's template and the scenario's own texts, in the chosen language."""
        super().model_post_init(context)
        if self.template is None:
            object.__setattr__(
                self, "template", (WORKED if self.work else TEMPLATES).get(self.kind)
            )
        for field, text in self.scenario_texts.get(self.language, {}).items():
            if field in type(self).model_fields and field not in self.model_fields_set:
                object.__setattr__(self, field, list(text) if isinstance(text, list) else text)

    @property
    def principles(self) -> list[str]:
        """The rubrics, under their older name."""
        return self.rubrics

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        """Task, rubrics and what the kind shows: whole answers, or one step with what came before
        it.
        """
        view = self.kind.view(sample)
        reference = sample.reference() if self.show_reference else None
        shown: dict[str, Any] = {"answers": view.answers}
        if view.step is not None:
            shown = {"previous": view.previous, "step": view.step}
        own = self.scenario_texts.get(self.language, {})
        if self.kind == "pointwise" and "levels" in own and self.rubrics == own["rubrics"]:
            shown["levels"] = own["levels"]
        return {
            "desc": self.desc,
            "scenario": self.scenario,
            "rubrics": self.rubrics,
            "examples": self.examples,
            "language": self.language,
            "query": view.query,
            "context": view.context,
            "reference": "" if reference is None else str(reference),
            **shown,
        }

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> Score[Any]:
        """The judge's score; or 1 for the answer it named and 0 for the others."""
        reason = response.reason or ""
        if hasattr(response, "best"):
            places = range(1, len(sample.output) + 1)
            return Score(tuple(float(place == response.best) for place in places), reason)
        return Score(float(response.score), reason)


class BasePointWiseRubricReward(BaseRubricReward, BasePointWiseReward):
    """Scores each answer by itself on a scale from 1 (worst) to 10 (best)."""

    score_range: Bounds = (1.0, 10.0)


class BaseTrajectoryRubricReward(BaseRubricReward, BaseTrajectoryReward):
    """Scores each trajectory by itself, seeing all its turns, on a scale from 1 (worst) to 10 (best)."""

    score_range: Bounds = (1.0, 10.0)


class BaseListWiseRubricReward(BaseRubricReward, BaseListWiseReward):
    """Shows all answers at once in a seeded order; the named best one gets 1, every other 0."""

    score_range: Bounds = (0.0, 1.0)


class BasePairWiseRubricReward(BaseRubricReward, BasePairWiseReward):
    """Shows every pair of answers, in both orders by default; an answer's score is its share of
    pairs won.
    """

    score_range: Bounds = (0.0, 1.0)


class BaseStepWiseRubricReward(BaseRubricReward, BaseStepWiseReward):
    """Scores each step by itself, seeing the steps before it, on a scale from 1 (worst) to 10
    (best).
    """

    score_range: Bounds = (1.0, 10.0)
