"""Reward functions as rewards: a sample's conversation is handed to the function, its result is the outcome."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar

from pydantic import Field, SkipValidation

from rm_gallery.core.data.conversation import dict_of, messages_of
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.outcome import Outcome, outcome_of_error, scored
from rm_gallery.core.reward.function_file import load_module, split_target
from rm_gallery.core.reward.function_result import EvaluateResult
from rm_gallery.core.reward.kinds import BaseListWiseReward, BasePointWiseReward, write_scores
from rm_gallery.core.reward.meta import RewardMeta
from rm_gallery.core.reward.reward import BaseReward, Job
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult
from rm_gallery.core.utils.errors import ConfigError, RMGalleryError, Unscored

Bounds = tuple[float | None, float | None]
GIVEN = ("messages", "rollouts_messages", "response", "responses", "original_messages", "ground_truth", "resources")
"""What a function gets by these names; columns of a data set with such a name do not come through."""


class InvalidResult(RMGalleryError):
    """A reward function said itself that judging broke, by the `error` of its result."""

    reason = "function_error"


def _result(reward: Any, found: EvaluateResult) -> RewardResult:
    """A result as a reward returns it; what the function could not judge is raised."""
    if found.error:
        raise InvalidResult(f"{reward.name}: {found.error}")
    if not found.is_score_valid:
        raise Unscored(found.reason or f"{reward.name} said that its score is not valid.", reason="invalid_score", cause="rule")
    extra: dict[str, Any] = {}
    if found.metrics:
        extra["metrics"] = {name: metric.model_dump() for name, metric in found.metrics.items()}
    if found.step_outputs:
        extra["step_outputs"] = [step.model_dump() for step in found.step_outputs]
    detail = RewardDimensionWithScore(name=reward.name, score=found.score, reason=found.reason)
    return RewardResult(name=reward.name, details=[detail], extra_data=extra)


class _OfFunction(BaseReward):
    """What both kinds share: the function, its fixed values, and what it is given."""

    function: SkipValidation[Any] = Field(default=...)
    params: dict[str, Any] = Field(default_factory=dict)
    """Fixed values for parameters of the function."""

    def __init__(self, function: Any = None, **settings: Any) -> None:
        """Take the function; its name is the reward's."""
        super().__init__(**_settings(function, settings))

    @property
    def score_range(self) -> Bounds:  # type: ignore[override]  # a class has none before it has a function
        """The range the function declares."""
        bounds: Bounds = self.function.score_range
        return bounds

    @property
    def deterministic(self) -> bool:  # type: ignore[override]
        """What the function declares."""
        return bool(self.function.deterministic)

    @property
    def fingerprint(self) -> Any:
        """What the function declares."""
        return self.function.fingerprint

    def _given(self, sample: DataSample, hooks: Mapping[str, Any]) -> dict[str, Any]:
        """What is known about a sample beside its messages, by the names that the function uses."""
        about = sample.metadata or {}
        given = {name: value for name, value in about.items() if name not in GIVEN}
        truth = sample.reference()
        if truth is not None:
            given["ground_truth"] = truth
        if self.function.takes("original_messages"):
            prompt = about.get("original_messages")
            given["original_messages"] = [dict_of(message) for message in sample.input] if prompt is None else prompt
        arguments: dict[str, Any] = self.function.arguments({**given, **self.params, **hooks})
        return arguments


class FunctionReward(_OfFunction, BasePointWiseReward):
    """A reward function as a reward: each answer's conversation is handed to the function by itself.

    The function sees the whole conversation, the model's own last words as `response`, the sample's `reference()` as
    `ground_truth`, the input as `original_messages` and the metadata by their names. Its metrics are in `extra_data["metrics"]`.
    The range is the one the function declares; higher is better.
    """

    @classmethod
    def of_name(cls, target: str) -> type[BaseReward]:
        """What `func:FILE:NAME` or `func:package.module:NAME` stands for; the name may be left out where there is one.

        It names a reward function, or a reward class or a built reward (a gate, a sum) that the file holds. Raises ConfigError
        when the file cannot be loaded or holds no such thing.
        """
        from rm_gallery.core.reward.function import function_named

        where, name = split_target(target)
        found = getattr(load_module(where), name, None) if name else None
        if isinstance(found, type) and issubclass(found, BaseReward):
            return found
        return _class_of(found) if isinstance(found, BaseReward) else function_named(target).reward_class()

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        given = self._given(sample, kwargs)
        found: Any = self.function(messages=messages_of(sample, sample.output[0]), **given)
        return self._later(found) if inspect.isawaitable(found) else _result(self, found)

    async def _later(self, found: Awaitable[Any]) -> RewardResult:
        return _result(self, await found)


def _class_of(reward: BaseReward) -> type[BaseReward]:
    """A class that says what is known of a built reward, and gives just that one."""

    def new(_: type[BaseReward], **settings: Any) -> BaseReward:
        if not settings.keys() <= {"name", "max_workers", "deadline"}:
            raise ConfigError(f"{reward.name} is built already; give {min(settings)} where it is made.")
        given: BaseReward = reward.model_copy(update=settings) if settings else reward
        return given

    facts = {"kind": reward.kind, "judged": reward.judged, "needs": reward.needs}
    body = {"__new__": new, "__module__": type(reward).__module__, "__doc__": type(reward).__doc__, **facts}
    body["__annotations__"] = dict.fromkeys(facts, ClassVar[Any])
    made: type[BaseReward] = RewardMeta(type(reward).__name__, (BasePointWiseReward,), body)
    return made


class AsyncFunctionReward(FunctionReward):
    """An async reward function as a reward; thousands of calls wait at once on the library's event loop."""

    @classmethod
    def is_async(cls) -> bool:
        """True."""
        return True


class FunctionGroupReward(_OfFunction, BaseListWiseReward):
    """A reward function of mode `batch` as a reward: all answers of a sample are handed to it in one call.

    It returns one result for each, in their order; one that is not valid costs only its own answer the score.
    """

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        given = self._given(sample, kwargs)
        rollouts = [messages_of(sample, output) for output in sample.output]
        found: Any = self.function(rollouts_messages=rollouts, **given)
        return self._later(found) if inspect.isawaitable(found) else _Group(name=self.name, results=found)

    async def _later(self, found: Awaitable[Any]) -> RewardResult:
        return _Group(name=self.name, results=await found)

    def merge(self, sample: DataSample, jobs: list[Job], outcomes: list[Outcome[RewardResult]]) -> None:
        """Each result goes to its own answer."""
        for job, raw in zip(jobs, outcomes, strict=True):
            if isinstance(raw.value, _Group):
                for at, found in zip(job.place, raw.value.results, strict=True):
                    write_scores(self, sample.output[at].answer, _outcome_of(self, found))
            else:
                for output in sample.output:
                    write_scores(self, output.answer, raw)


class AsyncFunctionGroupReward(FunctionGroupReward):
    """An async reward function of mode `batch` as a reward."""

    @classmethod
    def is_async(cls) -> bool:
        """True."""
        return True


class _Group(RewardResult):
    """The results of a group, one for each answer."""

    results: list[EvaluateResult] = Field(default_factory=list)


def _outcome_of(reward: BaseReward, found: EvaluateResult) -> Outcome[RewardResult]:
    try:
        return scored(_result(reward, found))
    except RMGalleryError as error:
        return outcome_of_error(error)


def _settings(function: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a function's reward; a plain function is taken as if it were decorated."""
    from rm_gallery.core.reward.function import RewardFunction

    if function is None:
        return settings
    if not isinstance(function, RewardFunction):
        function = RewardFunction(function)
    return {"name": function.name, **settings, "function": function}
