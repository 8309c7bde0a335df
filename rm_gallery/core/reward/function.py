"""Function rewards: a Python function over messages, decorated, is a reward like any other."""

from __future__ import annotations

import atexit
import functools
import inspect
import re
import sys
import threading
import types
import typing
import weakref
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, overload

from pydantic import BaseModel, Field, SkipValidation

from rm_gallery.core.data.conversation import (
    Message,
    as_messages,
    dict_of,
    message_dicts,
    messages_of,
    response_in,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import current_run
from rm_gallery.core.reward.abstract import Job
from rm_gallery.core.reward.function_result import (
    EvaluateResult,
    MetricResult,
    StepOutput,
    checked_result,
)
from rm_gallery.core.reward.kinds import BaseListWiseReward, BasePointWiseReward
from rm_gallery.core.reward.outputs import write_scores
from rm_gallery.core.reward.python_files import load_module, origin_of
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardMeta, RewardResult
from rm_gallery.core.score import Bounds, Score, checked_bounds, score_of_error, scored
from rm_gallery.core.utils.errors import ConfigError, DataError, RMGalleryError, Unscored, logger
from rm_gallery.core.utils.identity import plain_form, remembered_by
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


Reader = Callable[[Any, str], Any]


def _as_dicts(value: Any, what: str) -> Any:
    return message_dicts(value, what)


def message_reader(annotation: Any) -> Reader:
    """How messages are handed to a parameter: as `Message` objects, as dicts, or as models of a
    class of the user's own.
    """
    # names that mean nothing where the function stands, such as imports for type checkers
    if isinstance(annotation, str):
        return (
            _as_dicts
            if re.search(r"\b([Dd]ict|Mapping)\b", annotation) and "Message" not in annotation
            else as_messages
        )
    parts = list(annotation_parts(annotation))
    models = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    if models:
        return as_messages if Message in models else functools.partial(_own_models, models[0])
    if any(part in (dict, Mapping) or typing.is_typeddict(part) for part in parts):
        return _as_dicts
    return as_messages


def annotation_parts(annotation: Any) -> typing.Iterator[Any]:
    """The types an annotation is made of, from the outside in."""
    yield typing.get_origin(annotation) or annotation
    for argument in typing.get_args(annotation):
        yield from annotation_parts(argument)


def _own_models(model: type[BaseModel], value: Any, what: str) -> Any:
    if isinstance(value, list) and all(isinstance(message, model) for message in value):
        return value
    return [model.model_validate(message) for message in message_dicts(value, what)]


def resolved_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations, resolved where they can be: one that cannot costs the others nothing."""
    target = inspect.unwrap(function)
    try:
        return typing.get_type_hints(target)
    except _UNRESOLVED:
        return {
            name: _resolved(target, name, hint)
            for name, hint in getattr(target, "__annotations__", {}).items()
        }


_UNRESOLVED = (NameError, AttributeError, TypeError, SyntaxError)


def _resolved(target: Any, name: str, hint: Any) -> Any:
    """One annotation, as it is written where it means nothing."""
    holder = types.SimpleNamespace(__annotations__={name: hint})
    try:
        return typing.get_type_hints(holder, globalns=getattr(target, "__globals__", {}))[name]
    except _UNRESOLVED:
        return hint


class Resource(Protocol):
    """Something a function needs ready: `setup()` before its first call, `cleanup()` when it is
    closed.
    """

    def setup(self) -> Any:
        """Make it ready."""


_made: weakref.WeakSet[Resources] = weakref.WeakSet()


def _forget() -> None:
    # what a process set up is its own: a child that was forked from it sets up anew, and cleans
    # that alone
    for each in _made:
        each._begin()


library_loop.after_fork(_forget)


class Resources:
    """The resources of one function, set up once per process at the first call."""

    def __init__(self, given: Mapping[str, Sequence[Resource]], name: str) -> None:
        self.given = {key: list(items) for key, items in given.items()}
        self._name = name
        self._begin()
        _made.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._ready: list[Any] | None = None

    def ready(self) -> dict[str, list[Resource]]:
        """The resources, set up; what was set up before one that fails is cleaned, and the next
        call tries again.
        """
        if self._ready is None:
            with self._lock:
                if self._ready is None:
                    done: list[Any] = []
                    try:
                        for item in (item for items in self.given.values() for item in items):
                            item.setup()
                            done.append(item)
                    except BaseException:
                        self._clean(done)
                        raise
                    self._ready = done
                    atexit.register(self.close)
        return self.given

    def close(self) -> None:
        """Clean up what was set up, last first."""
        with self._lock:
            done, self._ready = self._ready or [], None
        atexit.unregister(self.close)
        self._clean(done)

    def _clean(self, done: list[Any]) -> None:
        for item in reversed(done):
            try:
                getattr(item, "cleanup", lambda: None)()
            except Exception as error:  # noqa: BLE001  # the others are to be cleaned all the same
                logger.warning(
                    f"{self._name}: {type(item).__name__}.cleanup() failed: "
                    f"{type(error).__name__}: {error}"
                )


R = TypeVar("R", covariant=True)
Mode = Literal["pointwise", "batch"]


# -- functions as rewards ---------------------------------------------------------------------------


GIVEN = (
    "messages",
    "rollouts_messages",
    "response",
    "responses",
    "original_messages",
    "ground_truth",
    "resources",
)
"""What a function gets by these names; columns of a data set with such a name do not come through.
"""


class InvalidResult(RMGalleryError):
    """A reward function said itself that judging broke, by the `error` of its result."""

    reason = "function_error"


def _result(reward: Any, evaluated: EvaluateResult) -> RewardResult:
    """A result as a reward returns it; what the function could not judge is raised."""
    if evaluated.error:
        raise InvalidResult(f"{reward.name}: {evaluated.error}")
    if not evaluated.is_score_valid:
        raise Unscored(
            evaluated.reason or f"{reward.name} said that its score is not valid.",
            reason="invalid_score",
            cause="rule",
        )
    extra: dict[str, Any] = {}
    if evaluated.metrics:
        extra["metrics"] = {name: metric.model_dump() for name, metric in evaluated.metrics.items()}
    if evaluated.step_outputs:
        extra["step_outputs"] = [step.model_dump() for step in evaluated.step_outputs]
    detail = RewardDimensionWithScore(
        name=reward.name, score=evaluated.score, reason=evaluated.reason
    )
    return RewardResult(name=reward.name, details=[detail], extra_data=extra)


class _OfFunction(BaseReward):
    """What both kinds share: the function, its fixed values, and what it is given."""

    may_ask_others: ClassVar[bool] = True

    function: SkipValidation[Any] = Field(default=...)
    params: dict[str, Any] = Field(default_factory=dict)
    """Fixed values for parameters of the function."""

    def __init__(self, function: Any = None, **settings: Any) -> None:
        """Take the function; its name is the reward's."""
        super().__init__(**_settings(function, settings))

    @property
    def score_range(self) -> Bounds:  # type: ignore[override]  # a class has none before it has a function
        """The range the function declares, else [0, 1]."""
        bounds: Bounds = self.function.score_range
        return bounds

    @property
    def range_declared(self) -> bool:  # type: ignore[override]
        """Whether the function declares one."""
        return bool(self.function.range_declared)

    @property
    def declares_missing(self) -> bool:
        """False: the function may hide what it does not get."""
        return False

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
            given["original_messages"] = (
                [dict_of(message) for message in sample.input] if prompt is None else prompt
            )
        if "trainer_state" in self.function.names:
            given["trainer_state"] = _trainer_state()
        arguments: dict[str, Any] = self.function.arguments({**given, **self.params, **hooks})
        return arguments


def _trainer_state() -> Any:
    """What the trainer that asks says of where its run stands; None where none asks, or says
    anything.
    """
    run = current_run.get()
    while run is not None and run.trainer_state is None:
        run = run.parent
    return None if run is None else run.trainer_state


class FunctionReward(_OfFunction, BasePointWiseReward):
    """A reward function as a reward: each answer's conversation is handed to the function by
    itself.

    The function sees the whole conversation, the model's own last words as `response`, the sample's
    `reference()` as `ground_truth`, the input as `original_messages` and the metadata by their
    names. Its metrics are in `extra_data["metrics"]`. The range is the one the function declares,
    else [0, 1]; higher is better. A score outside is an error, never clipped.
    """

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        given = self._given(sample, kwargs)
        returned: Any = self.function(messages=messages_of(sample, sample.output[0]), **given)
        return self._later(returned) if inspect.isawaitable(returned) else _result(self, returned)

    async def _later(self, returned: Awaitable[Any]) -> RewardResult:
        return _result(self, await returned)


def class_of_built(reward: BaseReward) -> type[BaseReward]:
    """A class that says what is known of a built reward, and gives just that one."""

    def new(_: type[BaseReward], **settings: Any) -> BaseReward:
        if not settings.keys() <= {"name", "max_workers", "deadline"}:
            raise ConfigError(
                f"{reward.name} is built already; give {min(settings)} where it is made."
            )
        given: BaseReward = reward.model_copy(update=settings) if settings else reward
        return given

    facts = {
        "kind": reward.kind,
        "judged": reward.judged,
        "needs": reward.needs,
        "stands_for": reward,
    }
    body = {
        "__new__": new,
        "__module__": type(reward).__module__,
        "__doc__": type(reward).__doc__,
        **facts,
    }
    body["__annotations__"] = dict.fromkeys(facts, ClassVar[Any])
    made: type[BaseReward] = RewardMeta(type(reward).__name__, (BasePointWiseReward,), body)
    return made


class AsyncFunctionReward(FunctionReward):
    """An async reward function as a reward; thousands of calls wait at once on the library's event
    loop.
    """

    @classmethod
    def is_async(cls) -> bool:
        """True."""
        return True


class FunctionGroupReward(_OfFunction, BaseListWiseReward):
    """A reward function of mode `batch` as a reward: all answers of a sample are handed to it in
    one call.

    It returns one result for each, in their order; one that is not valid costs only its own answer
    the score.
    """

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        given = self._given(sample, kwargs)
        rollouts = [messages_of(sample, output) for output in sample.output]
        returned: Any = self.function(rollouts_messages=rollouts, **given)
        return (
            self._later(returned)
            if inspect.isawaitable(returned)
            else _Group(name=self.name, results=returned)
        )

    async def _later(self, returned: Awaitable[Any]) -> RewardResult:
        return _Group(name=self.name, results=await returned)

    def merge(
        self, sample: DataSample, jobs: list[Job], outcomes: list[Score[RewardResult]]
    ) -> None:
        """Each result goes to its own answer."""
        for job, raw in zip(jobs, outcomes, strict=True):
            if isinstance(raw.value, _Group):
                for at, evaluated in zip(job.place, raw.value.results, strict=True):
                    write_scores(self, sample.output[at].answer, _outcome_of(self, evaluated))
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


def _outcome_of(reward: BaseReward, evaluated: EvaluateResult) -> Score[RewardResult]:
    try:
        return scored(_result(reward, evaluated))
    except RMGalleryError as error:
        return score_of_error(error)


def _settings(function: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a function's reward; a plain function is taken as if it were decorated."""
    if function is None:
        return settings
    if not isinstance(function, RewardFunction):
        function = RewardFunction(function)
    return {"name": function.name, **settings, "function": function}


# -- the decorator ---------------------------------------------------------------------------------


class RewardFunction(Generic[R]):
    """A decorated function: called as the function is, and a reward by `reward()`.

    Messages may be dicts or message objects; the function gets them as it annotates them
    (`list[Message]`, `list[dict]`, a pydantic class of its own; `Message` without annotation), in a
    function that is used under `from __future__ import annotations` too. Pickled by its name.
    """

    __name__: str
    __qualname__: str

    def __init__(
        self,
        function: Callable[..., Any],
        mode: Mode = "pointwise",
        id: str | None = None,
        requirements: Sequence[str] | None = None,
        resources: Mapping[str, Sequence[Resource]] | None = None,
        score_range: Bounds | None = None,
        deterministic: bool = True,
        fingerprint: Any = None,
    ) -> None:
        """Take the function and what is declared about it; ConfigError when it cannot be a reward
        function.
        """
        functools.update_wrapper(self, function)
        self.__dict__.setdefault("__name__", type(function).__name__)
        self.__dict__.setdefault("__qualname__", type(function).__qualname__)
        if mode not in ("pointwise", "batch"):
            raise ConfigError(f"reward_function: mode is {mode!r:.80}; 'pointwise' or 'batch'.")
        self.function, self.mode, self.id = function, mode, id
        self.requirements = (
            [requirements] if isinstance(requirements, str) else list(requirements or ())
        )
        parameters = inspect.signature(function).parameters
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._named = {
            name: p
            for name, p in parameters.items()
            if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        }
        needed = "messages" if mode == "pointwise" else "rollouts_messages"
        if needed not in self._named:
            raise ConfigError(
                f"reward_function: {self.name} has no parameter '{needed}', found "
                f"{', '.join(self._named) or 'none'}; a {mode} function is written def "
                f"{function.__name__}({needed}, ground_truth=None, **kwargs)."
            )
        self.range_declared = score_range is not None
        self.score_range = (
            (0.0, 1.0)
            if score_range is None
            else checked_bounds(score_range, f"reward_function: score_range of {self.name}")
        )
        self.deterministic, self.fingerprint = deterministic, fingerprint
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
            name: message_reader(hints.get(name))
            for name in ("messages", "original_messages")
            if name in self._named
        }
        if "rollouts_messages" in self._named:
            readers["rollouts_messages"] = functools.partial(
                _each, message_reader(hints.get("rollouts_messages"))
            )
        truth = hints.get("ground_truth")
        if truth is not None and Message in annotation_parts(truth):
            readers["ground_truth"] = _messages_or_value
        return readers

    def __call__(self, /, *args: Any, **kwargs: Any) -> R:
        """Call the function with the messages in its own form and its result checked; a batch
        function gives a list.

        Raises DataError for messages that do not fit, and whatever the function raises.
        """
        if args:
            kwargs = {**inspect.signature(self.function).bind_partial(*args).arguments, **kwargs}
        if "response" in self._named and kwargs.get("messages") is not None:
            kwargs.setdefault("response", response_in(message_dicts(kwargs["messages"])))
        if "responses" in self._named and kwargs.get("rollouts_messages") is not None:
            answers = [response_in(message_dicts(one)) for one in kwargs["rollouts_messages"]]
            kwargs.setdefault("responses", answers)
        for name, read in self._readers.items():
            if kwargs.get(name) is not None:
                kwargs[name] = read(kwargs[name], name)
        if self._resources is not None and "resources" not in kwargs and self.takes("resources"):
            kwargs["resources"] = self._resources.ready()
        returned = self.function(**kwargs)
        if inspect.isawaitable(returned):
            return self._awaited(returned, kwargs)  # type: ignore[return-value]  # R is awaitable then
        return self._results(returned, kwargs)  # type: ignore[no-any-return]

    async def _awaited(self, returned: Awaitable[Any], kwargs: dict[str, Any]) -> Any:
        return self._results(await returned, kwargs)

    def _results(self, returned: Any, kwargs: dict[str, Any]) -> Any:
        if self.mode == "pointwise":
            return checked_result(returned, self.name)
        wanted = len(kwargs.get("rollouts_messages") or ())
        if (
            isinstance(returned, (str, bytes, Mapping))
            or not isinstance(returned, Sequence)
            or len(returned) != wanted
        ):
            seen = (
                f"{len(returned)} results"
                if isinstance(returned, Sequence)
                else type(returned).__name__
            )
            raise TypeError(
                f"{self.name} returned {seen} for {wanted} rollouts; a batch function returns one "
                f"result for each."
            )
        return [checked_result(one, self.name) for one in returned]

    def takes(self, name: str) -> bool:
        """Whether the function has a parameter of this name, or takes all."""
        return self._takes_all or name in self._named

    @property
    def names(self) -> Collection[str]:
        """The parameters that the function names."""
        return self._named.keys()

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Of what is known about a conversation, what the function takes; DataError when something
        it needs is missing.
        """
        taken = {name: value for name, value in given.items() if self.takes(name)}
        for name, parameter in self._named.items():
            if (
                name == "ground_truth"
                and parameter.default is parameter.empty
                and name not in taken
            ):
                raise Unscored(
                    f"{self.name} needs a ground_truth and the sample has no reference.",
                    reason="no_reference",
                )
            if name in ("messages", "rollouts_messages", "response", "responses"):
                continue
            if parameter.default is parameter.empty and name not in taken and name != "resources":
                there = ", ".join(sorted(name for name in given if name not in GIVEN)) or "none"
                raise DataError(
                    f"{self.name} needs '{name}', which the sample does not have; its columns are: "
                    f"{there}."
                )
        return taken

    def close(self) -> None:
        """Clean up the resources; a later call sets them up again. Done at the end of the process
        too.
        """
        if self._resources is not None:
            self._resources.close()

    @property
    def _kind(self) -> Any:
        if self.mode == "batch":
            return AsyncFunctionGroupReward if self.is_async else FunctionGroupReward
        return AsyncFunctionReward if self.is_async else FunctionReward

    def reward(self, **settings: Any) -> BaseReward:
        """The function as a reward: fields of the reward (`name`, `max_workers`, `deadline`, of a
        group also `seed`), and fixed values for parameters it names.

        Raises ConfigError for a setting that is neither.
        """
        fields = self._kind.model_fields.keys() - {"function"}
        own = {key: value for key, value in settings.items() if key in fields}
        params = {key: value for key, value in settings.items() if key not in own}
        for key in params:
            if key not in self._named or key in GIVEN:
                known = {*(name for name in self._named if name not in GIVEN), *fields} - {"params"}
                raise ConfigError(unknown_name(f"setting of {self.name}", key, known))
        own["params"] = {**(own.get("params") or {}), **params}
        made: BaseReward = self._kind(function=self, **own)
        return made

    def reward_class(self, name: str | None = None) -> type[BaseReward]:
        """A class that makes rewards of this function, under `name` when one is given: what a
        registry holds.
        """
        called = {"name": name} if name else {}

        def new(cls: type[BaseReward], **settings: Any) -> BaseReward:
            return self.reward(**{**called, **settings})

        body = {"__new__": new, "__module__": self.__module__, "__doc__": self.__doc__}
        body |= {
            "__qualname__": self.__qualname__,
            "score_range": self.score_range,
            "stands_for": self,
        }
        body["__annotations__"] = {"score_range": ClassVar[Bounds], "stands_for": ClassVar[Any]}
        made: type[BaseReward] = RewardMeta(self.__name__, (self._kind,), body)
        return made

    def describe(self) -> dict[str, Any]:
        """What tells it from others: its name, what it remembers, and what is declared about it."""
        identity: dict[str, Any] = {
            "(function)": self.__qualname__,
            "mode": self.mode,
            "requirements": self.requirements,
        }
        if not inspect.isfunction(self.function):
            identity["(of)"] = plain_form(self.function, self.name)
        # a range that is not declared is not named, as in the manifests of earlier versions: their
        # run folders continue
        identity |= (
            {"range": list(self.score_range)}
            if self.range_declared and self.score_range != (None, None)
            else {}
        )
        identity |= {"closure": remembered} if (remembered := remembered_by(self.function)) else {}
        return identity

    def __reduce__(self) -> Any:
        module, name = self.__module__, self.__qualname__
        origin = origin_of(module)
        at_home = _at(module, name) is self
        if at_home and origin is not None:
            return _of_file, (origin, name)
        if at_home and module != "__main__":
            return name
        # a script's functions are known by name to its own processes, and by value to those of a
        # cluster
        if at_home:
            self.function.__qualname__ = f"{name}.function"
        given = self._resources.given if self._resources is not None else None
        declared = (
            self.score_range if self.range_declared else None,
            self.deterministic,
            self.fingerprint,
        )
        return _unpickled, (self.function, self.mode, self.id, self.requirements, given, *declared)

    def __deepcopy__(self, memo: Any) -> RewardFunction[R]:
        return self

    def __repr__(self) -> str:
        return f"<reward function {self.name}>"


def _at(module: str, name: str) -> Any:
    """What stands under a dotted name in a module that is loaded; None where nothing does."""
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _of_file(origin: str, name: str) -> Any:
    """A reward function whose file is no module, as it was pickled."""
    return getattr(load_module(origin), name)


def _unpickled(function: Any, *declared: Any) -> RewardFunction[Any]:
    here = _at(function.__module__, function.__qualname__.removesuffix(".function"))
    return (
        here
        if isinstance(here, RewardFunction) and here.function is function
        else RewardFunction(function, *declared)
    )


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
    score_range: Bounds | None = None,
    deterministic: bool = True,
    fingerprint: Any = None,
) -> Callable[[Callable[..., Any]], RewardFunction[Any]]: ...
def reward_function(
    function: Callable[..., Any] | None = None,
    *,
    mode: Mode = "pointwise",
    id: str | None = None,
    requirements: Sequence[str] | None = None,
    resources: Mapping[str, Sequence[Resource]] | None = None,
    score_range: Bounds | None = None,
    deterministic: bool = True,
    fingerprint: Any = None,
) -> Any:
    """Make a function over messages a reward: `@reward_function`, or
    `@reward_function(mode="batch", …)`.

    The function takes `messages` (the whole conversation, the answer last) and what else it names:
    `ground_truth`, `original_messages` (the prompt alone), columns of the data set; `**kwargs`
    takes all the rest. Plain or async. It returns an `EvaluateResult`, a dict of its fields, a
    number, or None for "no score".

    Args:
        function: the function, when the decorator stands bare.
        mode: `batch` functions take `rollouts_messages`, the conversations of one group, and return
            a list of results.
        id: the name of the reward; the function's own by default.
        requirements: packages the function needs where it is deployed, as pip names them.
        resources: objects by name with `setup()`, called once before the first call, and
            `cleanup()`, called at the end; handed to the function as `resources`.
        score_range: lowest and highest score, 0 and 1 where none are declared; None in place of one
            where there is no bound. A score outside is an error and never clipped: of a function
            that declares no range it is `undeclared_range`, cause `rule`, and says how to declare
            one; outside a declared range it may turn out to be the answer's doing.
        deterministic: whether it says the same of the same whenever it is asked; see
            `BaseReward.deterministic`.
        fingerprint: a value that stands for the code; see `BaseReward.fingerprint`.
    """
    declared = (mode, id, requirements, resources, score_range, deterministic, fingerprint)
    if function is None:
        return lambda decorated: RewardFunction(decorated, *declared)
    if not callable(function):
        raise ConfigError(
            f"reward_function is given {function!r:.80}; write @reward_function above a function."
        )
    return RewardFunction(function, *declared)
