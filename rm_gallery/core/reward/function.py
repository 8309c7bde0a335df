"""Function rewards: a Python function over messages, decorated, is a reward like any other."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

from pydantic import Field, SkipValidation

from rm_gallery.core.data.conversation import Message, as_messages, dict_of, messages_of
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.outcome import Outcome, outcome_of_error
from rm_gallery.core.reward.function_file import load_module, origin_of, split_target
from rm_gallery.core.reward.function_inputs import (
    Reader,
    Resource,
    Resources,
    annotation_parts,
    message_reader,
    resolved_hints,
)
from rm_gallery.core.reward.function_result import EvaluateResult, MetricResult, StepOutput, checked_result
from rm_gallery.core.reward.kinds import BaseListWiseReward, BasePointWiseReward, write_scores
from rm_gallery.core.reward.meta import RewardMeta
from rm_gallery.core.reward.reward import BaseReward, Job
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult
from rm_gallery.core.utils.errors import ConfigError, DataError, RMGalleryError, Unscored
from rm_gallery.core.utils.identity import function_code, is_users, plain_form
from rm_gallery.core.utils.models import unknown_name

__all__ = [
    "EvaluateResult",
    "FunctionReward",
    "Message",
    "MetricResult",
    "RewardFunction",
    "StepOutput",
    "reward_function",
]

R = TypeVar("R", covariant=True)
Mode = Literal["pointwise", "batch"]
_GIVEN = ("messages", "rollouts_messages", "original_messages", "ground_truth", "resources")
"""What a function gets by these names; columns of a data set with such a name do not come through."""


# -- the decorator -----------------------------------------------------------------------------------------------------------


class RewardFunction(Generic[R]):
    """A decorated function: called as the function is, and a reward by `reward()`.

    Messages may be dicts or message objects; the function gets them as it annotates them (`list[Message]`, `list[dict]`, a
    pydantic class of its own; `Message` without annotation), in a function that is used under
    `from __future__ import annotations` too. Pickled by its name.
    """

    __name__: str

    def __init__(
        self,
        function: Callable[..., Any],
        mode: Mode = "pointwise",
        id: str | None = None,
        requirements: Sequence[str] | None = None,
        resources: Mapping[str, Sequence[Resource]] | None = None,
    ) -> None:
        """Take the function and what is declared about it; ConfigError when it cannot be a reward function."""
        functools.update_wrapper(self, function)
        if mode not in ("pointwise", "batch"):
            raise ConfigError(f"reward_function: mode is {mode!r:.80}; 'pointwise' or 'batch'.")
        self.function, self.mode, self.id = function, mode, id
        self.requirements = [requirements] if isinstance(requirements, str) else list(requirements or ())
        parameters = inspect.signature(function).parameters
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._named = {name: p for name, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        needed = "messages" if mode == "pointwise" else "rollouts_messages"
        if needed not in self._named:
            raise ConfigError(
                f"reward_function: {self.name} has no parameter '{needed}', found {', '.join(self._named) or 'none'}; "
                f"a {mode} function is written def {function.__name__}({needed}, ground_truth=None, **kwargs)."
            )
        self._resources = Resources(resources, self.name) if resources else None

    @property
    def name(self) -> str:
        """The id it was given, else the function's name."""
        return self.id or str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def is_async(self) -> bool:
        """Whether calling it gives something to await."""
        return inspect.iscoroutinefunction(self.function)

    @functools.cached_property
    def _readers(self) -> dict[str, Reader]:
        hints = resolved_hints(self.function)
        readers: dict[str, Reader] = {
            name: message_reader(hints.get(name)) for name in ("messages", "original_messages") if name in self._named
        }
        if "rollouts_messages" in self._named:
            readers["rollouts_messages"] = functools.partial(_each, message_reader(hints.get("rollouts_messages")))
        truth = hints.get("ground_truth")
        if truth is not None and Message in annotation_parts(truth):
            readers["ground_truth"] = _messages_or_value
        return readers

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Call the function with the messages in its own form and its result checked; a batch function gives a list.

        Raises DataError for messages that do not fit, and whatever the function raises.
        """
        if args:
            kwargs = {**inspect.signature(self.function).bind_partial(*args).arguments, **kwargs}
        for name, read in self._readers.items():
            if kwargs.get(name) is not None:
                kwargs[name] = read(kwargs[name], name)
        if self._resources is not None and "resources" not in kwargs and self.takes("resources"):
            kwargs["resources"] = self._resources.ready()
        found = self.function(**kwargs)
        if inspect.isawaitable(found):
            return self._awaited(found, kwargs)  # type: ignore[return-value]  # R is awaitable then
        return self._results(found, kwargs)  # type: ignore[no-any-return]

    async def _awaited(self, found: Awaitable[Any], kwargs: dict[str, Any]) -> Any:
        return self._results(await found, kwargs)

    def _results(self, found: Any, kwargs: dict[str, Any]) -> Any:
        if self.mode == "pointwise":
            return checked_result(found, self.name)
        wanted = len(kwargs.get("rollouts_messages") or ())
        if isinstance(found, (str, bytes, Mapping)) or not isinstance(found, Sequence) or len(found) != wanted:
            seen = f"{len(found)} results" if isinstance(found, Sequence) else type(found).__name__
            raise TypeError(
                f"{self.name} returned {seen} for {wanted} rollouts; a batch function returns one result for each."
            )
        return [checked_result(one, self.name) for one in found]

    def takes(self, name: str) -> bool:
        """Whether the function has a parameter of this name, or takes all."""
        return self._takes_all or name in self._named

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Of what is known about a conversation, what the function takes; DataError when something it needs is missing."""
        taken = {name: value for name, value in given.items() if self.takes(name)}
        for name, parameter in self._named.items():
            if name == "ground_truth" and parameter.default is parameter.empty and name not in taken:
                raise Unscored(
                    f"{self.name} needs a ground_truth and the sample has no reference.", reason="no_reference"
                )
            if name in ("messages", "rollouts_messages"):
                continue
            if parameter.default is parameter.empty and name not in taken and name != "resources":
                there = ", ".join(sorted(name for name in given if name not in _GIVEN)) or "none"
                raise DataError(
                    f"{self.name} needs '{name}', which the sample does not have; its columns are: {there}."
                )
        return taken

    def close(self) -> None:
        """Clean up the resources; a later call sets them up again. Done at the end of the process too."""
        if self._resources is not None:
            self._resources.close()

    @property
    def _kind(self) -> Any:
        if self.mode == "batch":
            return AsyncFunctionGroupReward if self.is_async else FunctionGroupReward
        return AsyncFunctionReward if self.is_async else FunctionReward

    def reward(self, **settings: Any) -> BaseReward:
        """The function as a reward: its `name`, `max_workers`, `deadline`, and fixed values for parameters it names.

        Raises ConfigError for a setting that is neither.
        """
        own = {key: value for key, value in settings.items() if key in ("name", "max_workers", "deadline", "params")}
        params = {key: value for key, value in settings.items() if key not in own}
        for key in params:
            if key not in self._named or key in _GIVEN:
                known = {*(name for name in self._named if name not in _GIVEN), "name", "max_workers", "deadline"}
                raise ConfigError(unknown_name(f"setting of {self.name}", key, known))
        own["params"] = {**(own.get("params") or {}), **params}
        made: BaseReward = self._kind(function=self, **own)
        return made

    def reward_class(self, name: str | None = None) -> type[BaseReward]:
        """A class that makes rewards of this function, under `name` when one is given: what a registry holds."""
        called = {"name": name} if name else {}

        def new(cls: type[BaseReward], **settings: Any) -> BaseReward:
            return self.reward(**{**called, **settings})

        body = {"__new__": new, "__module__": self.function.__module__, "__doc__": self.__doc__}
        body |= {"__qualname__": self.function.__qualname__, "of_function": self, "of_name": None}
        body["__annotations__"] = {"of_function": ClassVar[Any], "of_name": ClassVar[Any]}
        made: type[BaseReward] = RewardMeta(self.function.__name__, (self._kind,), body)
        return made

    def describe(self) -> dict[str, Any]:
        """What tells it from others: its name and code, also of what it uses."""
        function = inspect.unwrap(self.function)
        said: dict[str, Any] = {"(function)": str(getattr(function, "__qualname__", self.name)), "mode": self.mode}
        if not inspect.isfunction(function) or not is_users(function.__module__):
            return {**said, "(of)": plain_form(function, self.name)}
        closure = inspect.getclosurevars(function).nonlocals
        said |= {"code": function_code(function), "requirements": self.requirements}
        return {**said, **({"closure": plain_form(closure, self.name)} if closure else {})}

    def __reduce__(self) -> Any:
        origin = origin_of(self.function.__module__)
        return (
            self.function.__qualname__
            if origin is None
            else (function_named, (f"{origin}:{self.function.__qualname__}",))
        )

    def __deepcopy__(self, memo: Any) -> RewardFunction[R]:
        return self

    def __repr__(self) -> str:
        return f"<reward function {self.name}>"


def _each(read: Reader, value: Any, what: str) -> list[Any]:
    return [read(one, f"{what}[{position}]") for position, one in enumerate(value)]


def _messages_or_value(value: Any, what: str) -> Any:
    messages = isinstance(value, list) and value and not isinstance(value[0], str)
    return as_messages(value, what) if messages else value


@overload
def reward_function(
    function: Callable[..., Coroutine[Any, Any, Any]],
) -> RewardFunction[Awaitable[EvaluateResult]]: ...
@overload
def reward_function(function: Callable[..., Any]) -> RewardFunction[EvaluateResult]: ...
@overload
def reward_function(
    *,
    mode: Mode = "pointwise",
    id: str | None = None,
    requirements: Sequence[str] | None = None,
    resources: Mapping[str, Sequence[Resource]] | None = None,
) -> Callable[[Callable[..., Any]], RewardFunction[Any]]: ...
def reward_function(
    function: Callable[..., Any] | None = None,
    *,
    mode: Mode = "pointwise",
    id: str | None = None,
    requirements: Sequence[str] | None = None,
    resources: Mapping[str, Sequence[Resource]] | None = None,
) -> Any:
    """Make a function over messages a reward: `@reward_function`, or `@reward_function(mode="batch", …)`.

    The function takes `messages` (the whole conversation, the answer last) and what else it names: `ground_truth`,
    `original_messages` (the prompt alone), columns of the data set; `**kwargs` takes all the rest. Plain or async. It
    returns an `EvaluateResult`, a dict of its fields, a number, or None for "no score".

    Args:
        function: the function, when the decorator stands bare.
        mode: `batch` functions take `rollouts_messages`, the conversations of one group, and return a list of results.
        id: the name of the reward; the function's own by default.
        requirements: packages the function needs where it is deployed, as pip names them.
        resources: objects by name with `setup()`, called once before the first call, and `cleanup()`, called at the end;
            handed to the function as `resources`.
    """
    if function is None:
        return lambda decorated: RewardFunction(decorated, mode, id, requirements, resources)
    if not callable(function):
        raise ConfigError(f"reward_function is given {function!r:.80}; write @reward_function above a function.")
    return RewardFunction(function, mode, id, requirements, resources)


# -- the reward --------------------------------------------------------------------------------------------------------------


class InvalidResult(RMGalleryError):
    """A reward function said itself that judging broke, by the `error` of its result."""

    reason = "function_error"


def _result(reward: Any, found: EvaluateResult) -> RewardResult:
    """A result as a reward returns it; what the function could not judge is raised."""
    if found.error:
        raise InvalidResult(f"{reward.name}: {found.error}")
    if not found.is_score_valid:
        raise Unscored(found.reason or f"{reward.name} said that its score is not valid.", reason="invalid_score")
    extra: dict[str, Any] = {}
    if found.metrics:
        extra["metrics"] = {name: metric.model_dump() for name, metric in found.metrics.items()}
    if found.step_outputs:
        extra["step_outputs"] = [step.model_dump() for step in found.step_outputs]
    detail = RewardDimensionWithScore(name=reward.name, score=found.score, reason=found.reason)
    return RewardResult(name=reward.name, details=[detail], extra_data=extra)


def _given(reward: Any, sample: DataSample, hooks: Mapping[str, Any]) -> dict[str, Any]:
    """What is known about a sample beside its messages, by the names that functions use."""
    about = sample.metadata or {}
    given = {name: value for name, value in about.items() if name not in _GIVEN}
    truth = sample.reference()
    if truth is not None:
        given["ground_truth"] = truth
    if reward.function.takes("original_messages"):
        prompt = about.get("original_messages")
        given["original_messages"] = [dict_of(message) for message in sample.input] if prompt is None else prompt
    return {**given, **reward.params, **hooks}


class FunctionReward(BasePointWiseReward):
    """A reward function as a reward: each answer's conversation is handed to the function by itself.

    The function sees the whole conversation, the sample's `reference()` as `ground_truth`, the input as `original_messages`
    and the metadata by their names. Its metrics are in `extra_data["metrics"]`. Range and direction are the function's own:
    any finite score, higher is better.
    """

    function: SkipValidation[RewardFunction[Any]] = Field(default=...)
    params: dict[str, Any] = Field(default_factory=dict)
    """Fixed values for parameters of the function."""

    def __init__(self, function: RewardFunction[Any] | None = None, **settings: Any) -> None:
        """Take the function; its name is the reward's."""
        super().__init__(**_settings(function, settings))

    @classmethod
    def of_name(cls, target: str) -> type[BaseReward]:
        """What `func:FILE:NAME` or `func:package.module:NAME` stands for; the name may be left out where there is one.

        Raises ConfigError when the file cannot be loaded or holds no such reward function.
        """
        return function_named(target).reward_class()

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        given = self.function.arguments(_given(self, sample, kwargs))
        found: Any = self.function(messages=messages_of(sample, sample.output[0]), **given)
        return self._later(found) if inspect.isawaitable(found) else _result(self, found)

    async def _later(self, found: Awaitable[Any]) -> RewardResult:
        return _result(self, await found)


class AsyncFunctionReward(FunctionReward):
    """An async reward function as a reward; thousands of calls wait at once on the library's event loop."""

    @classmethod
    def is_async(cls) -> bool:
        """True."""
        return True


class FunctionGroupReward(BaseListWiseReward):
    """A reward function of mode `batch` as a reward: all answers of a sample are handed to it in one call.

    It returns one result for each, in their order; one that is not valid costs only its own answer the score.
    """

    function: SkipValidation[RewardFunction[Any]] = Field(default=...)
    params: dict[str, Any] = Field(default_factory=dict)
    """Fixed values for parameters of the function."""

    def __init__(self, function: RewardFunction[Any] | None = None, **settings: Any) -> None:
        """Take the function; its name is the reward's."""
        super().__init__(**_settings(function, settings))

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        given = self.function.arguments(_given(self, sample, kwargs))
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
        return Outcome("scored", _result(reward, found))
    except RMGalleryError as error:
        return outcome_of_error(error)


def _settings(function: Any, settings: dict[str, Any]) -> dict[str, Any]:
    if function is None:
        return settings
    if not isinstance(function, RewardFunction):  # a plain one, from callers that check no types
        function = RewardFunction(function)
    return {"name": function.name, **settings, "function": function}


def function_named(target: str) -> RewardFunction[Any]:
    """The reward function that `FILE:NAME` or `package.module:NAME` names; the only one there without a name.

    A plain function is taken as if it were decorated. Raises ConfigError when there is none.
    """
    where, name = split_target(target)
    module = load_module(where)
    there = {key: value for key, value in vars(module).items() if isinstance(value, RewardFunction)}
    if not name:
        own = {key for key, value in there.items() if value.function.__module__ == module.__name__}
        if len(own) != 1:
            found = f"it holds {', '.join(sorted(own))}" if own else "it holds none"
            raise ConfigError(f"func:{target}: say which reward function, as in func:{where}:NAME; {found}.")
        name = own.pop()
    found_object = getattr(module, name, None)
    if isinstance(found_object, RewardFunction):
        return found_object
    if inspect.isfunction(found_object):
        return RewardFunction(found_object)
    raise ConfigError(f"func:{target}: {unknown_name(f'reward function in {where}', name, there)}")
