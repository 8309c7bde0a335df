"""Function rewards: a Python function over messages, decorated, is a reward like any other."""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import re
import sys
import threading
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from numbers import Real
from operator import attrgetter
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, overload

from pydantic import BaseModel, Field, SkipValidation

from rm_gallery.core.data.conversation import (
    Message,
    as_messages,
    message_dicts,
    messages_of,
    response_in,
)
from rm_gallery.core.data.schema import DataSample, no_reference
from rm_gallery.core.engine.context import current_run
from rm_gallery.core.reward.base_kinds import (
    BaseListWiseReward,
    BasePointWiseReward,
    BaseStepWiseReward,
)
from rm_gallery.core.reward.function_result import (
    EvaluateResult,
    MetricResult,
    StepOutput,
    checked_result,
    score_of_evaluated,
)
from rm_gallery.core.reward.kinds import EACH_TOGETHER, TURNWISE
from rm_gallery.core.reward.python_files import load_module, origin_of
from rm_gallery.core.reward.registry import class_for
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.schema import OF_SCORES
from rm_gallery.core.score import Bounds, checked_bounds
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.identity import plain_form, remembered_by
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.names import check_known
from rm_gallery.core.utils.shown import redact

__all__ = [
    "EvaluateResult",
    "FunctionReward",
    "Message",
    "MetricResult",
    "RewardFunction",
    "StepOutput",
    "reward_function",
]

Function = Callable[..., Any]
Reader = Callable[[Any, str], Any]


# -- how a function wants messages -----------------------------------------------------------------


def message_reader(annotation: Any) -> Reader:
    """How messages are handed to a parameter: as `Message` objects, as dicts, or as models of a
    class of the user's own.
    """
    parts = list(annotation_parts(annotation))
    models = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    if models:
        return as_messages if Message in models else functools.partial(_own_models, models[0])
    return message_dicts if any(map(_is_plain, parts)) else as_messages


def _is_plain(part: Any) -> bool:
    # a text has names that mean nothing where the function stands, such as imports for type checkers
    if isinstance(part, str):
        return "Message" not in part and bool(re.search(r"\b([Dd]ict|Mapping)\b", part))
    return part in (dict, Mapping) or typing.is_typeddict(part)


def annotation_parts(annotation: Any) -> Iterator[Any]:
    """The types an annotation is made of, from the outside in."""
    yield typing.get_origin(annotation) or annotation
    for argument in typing.get_args(annotation):
        yield from annotation_parts(argument)


def _own_models(model: type[BaseModel], value: Any, what: str) -> Any:
    if isinstance(value, list) and all(isinstance(message, model) for message in value):
        return value
    return [model.model_validate(message) for message in message_dicts(value, what)]


def _messages_or_value(value: Any, what: str) -> Any:
    messages = isinstance(value, list) and str not in map(type, value)
    return as_messages(value, what) if messages else value


def resolved_hints(function: Function) -> dict[str, Any]:
    """The annotations, each resolved where it can be: one that cannot stays as it is written, and
    costs the others nothing.
    """
    target = inspect.unwrap(function)
    hints = dict(getattr(target, "__annotations__", {}))
    for name, hint in hints.items():
        alone = types.SimpleNamespace(__annotations__={name: hint})
        try:
            hints |= typing.get_type_hints(alone, globalns=getattr(target, "__globals__", {}))
        except (NameError, AttributeError, TypeError, SyntaxError):
            continue
    return hints


# -- what a function needs ready -------------------------------------------------------------------


class Resource(Protocol):
    """Something a function needs ready: `setup()` before its first call, `cleanup()` when it is
    closed.
    """

    def setup(self) -> Any:
        """Make it ready."""


GivenResources = Mapping[str, Sequence[Resource]]


@dataclass(eq=False)
class Resources:
    """The resources of one function, set up once per process at the first call: one that was
    forked sets up anew, and cleans that alone.
    """

    given: GivenResources
    name: str
    _locks: dict[int, threading.Lock] = field(default_factory=dict)
    _cleanups: dict[int, ExitStack] = field(default_factory=dict)

    def ready(self) -> GivenResources:
        """The resources, set up; what was set up before one that fails is cleaned, and the next
        call tries again.
        """
        process = os.getpid()
        with self._locks.setdefault(process, threading.Lock()), ExitStack() as done:
            if process not in self._cleanups:
                for item in chain.from_iterable(self.given.values()):
                    item.setup()
                    done.callback(self._clean, item)
                self._cleanups[process] = done.pop_all()
                atexit.register(self.close)
        return self.given

    def close(self) -> None:
        """Clean up what this process set up, last first."""
        atexit.unregister(self.close)
        self._cleanups.pop(os.getpid(), ExitStack()).close()

    def _clean(self, item: Any) -> None:
        try:
            getattr(item, "cleanup", lambda: None)()
        except Exception as error:  # noqa: BLE001  # the others are to be cleaned all the same
            logger.warning(
                f"{self.name}: {type(item).__name__}.cleanup() failed: "
                f"{type(error).__name__}: {error}"
            )


# -- functions as rewards --------------------------------------------------------------------------

R = TypeVar("R", covariant=True)
Mode = Literal["pointwise", "stepwise", "batch"]
_FORMS = {
    **dict.fromkeys(("pointwise", "stepwise"), ("messages", "response")),
    "batch": ("rollouts_messages", "responses"),
}
"""By mode, the names of what a function judges and of the model's last words in it."""
_OF_THE_CALL = frozenset("messages rollouts_messages response responses resources".split())
GIVEN = _OF_THE_CALL | {"original_messages", "ground_truth"}
"""What a function gets by these names; columns of a data set with such a name do not come through.
"""


def _then(returned: Any, read: Callable[[Any], Any]) -> Any:
    """`read` of what was returned, or of what is awaited where it has to be."""

    async def later() -> Any:
        return read(await returned)

    return later() if inspect.isawaitable(returned) else read(returned)


class _OfFunction(BaseReward):
    """What both kinds share: the function, its fixed values, and what it is given."""

    may_ask_others: ClassVar[bool] = True
    declares_missing: ClassVar[bool] = False
    """The function may hide what it does not get."""
    # what the function declares; a class has none before it has a function
    score_range = property(attrgetter("function.score_range"))
    range_declared = property(attrgetter("function.range_declared"))
    deterministic = property(attrgetter("function.deterministic"))
    fingerprint = property(attrgetter("function.fingerprint"))

    function: SkipValidation[Any] = Field(default=...)
    params: dict[str, Any] = Field(default_factory=dict)
    """Fixed values for parameters of the function."""

    def __init__(self, function: Any = None, **settings: Any) -> None:
        """Take the function, a plain one as if it were decorated; its name is the reward's."""
        if function is not None:
            if not isinstance(function, RewardFunction):
                function = RewardFunction(function)
            settings = {"name": function.name, **settings, "function": function}
            function.check_values(settings.get("params") or {})
        super().__init__(**settings)

    def is_async(self) -> bool:
        """Whether the function is: thousands of calls then wait at once on the library's event
        loop.
        """
        return bool(self.function.is_async)

    def describe(self) -> dict[str, Any]:
        """As of every reward; an async function's class has the name that run folders know."""
        identity = super().describe()
        if self.is_async():
            identity["class"] = identity["class"].replace("Function", "AsyncFunction")
        return identity

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        """Call the function with what is known about the sample, by the names that it uses."""
        rollouts = [messages_of(sample, output) for output in sample.output]
        metadata, reference = sample.metadata or {}, sample.reference()
        prompt, function = metadata.get("original_messages"), self.function
        values = {name: value for name, value in metadata.items() if name not in GIVEN}
        values["original_messages"] = rollouts[0][: len(sample.input)] if prompt is None else prompt
        if reference is not None:
            values["ground_truth"] = reference
        if "trainer_state" in function.named:
            values["trainer_state"] = _trainer_state()
        arguments = function.arguments({**values, **self.params, **kwargs})
        arguments[function.judges] = rollouts if function.mode == "batch" else rollouts[0]
        return _then(function(**arguments), self._reward_result)

    def _reward_result(self, evaluated: Any) -> Any:
        """A result as a reward returns it; of a group, each."""
        if isinstance(evaluated, list):
            return [self._reward_result(one) for one in evaluated]
        score = score_of_evaluated(evaluated)
        if score.ok:
            return replace(score, components={})
        reason = score.reason or f"{self.name} said that its score is not valid."
        if score.status == "failed":
            reason = f"{self.name}: {reason}"
        return replace(score, reason=redact(reason), extra={})


def _trainer_state() -> Any:
    """What the trainer that asks says of where its run stands; None where none asks, or says
    anything.
    """
    run = current_run.get()
    while run is not None and run.trainer_state is None:
        run = run.parent
    return getattr(run, "trainer_state", None)


class FunctionReward(_OfFunction, BasePointWiseReward):
    """A reward function as a reward: each answer's conversation is handed to the function by
    itself.

    The function sees the whole conversation, the model's own last words as `response`, the sample's
    `reference()` as `ground_truth`, the input as `original_messages` and the metadata by their
    names. Its metrics are in `extra_data["metrics"]`. The range is the one the function declares,
    else [0, 1]; higher is better. A score outside is an error, never clipped.
    """


class FunctionStepReward(_OfFunction, BaseStepWiseReward):
    """A reward function of mode `stepwise` as a reward: it is handed the conversation up to each
    turn, and what tools and others said to that.
    """

    kind = TURNWISE


class FunctionGroupReward(_OfFunction, BaseListWiseReward):
    """A reward function of mode `batch` as a reward: all answers of a sample are handed to it in
    one call.

    It returns one result for each, in their order; one that is not valid costs only its own answer
    the score.
    """

    kind = EACH_TOGETHER


_KINDS: Mapping[Mode, type[_OfFunction]] = {
    "pointwise": FunctionReward,
    "stepwise": FunctionStepReward,
    "batch": FunctionGroupReward,
}


def class_of_built(reward: BaseReward) -> type[BaseReward]:
    """A class that says what is known of a built reward, and gives just that one."""

    def make(**settings: Any) -> BaseReward:
        if not settings.keys() <= {"name", "max_workers", "deadline"}:
            raise ConfigError(
                f"{reward.name} is built already; give {min(settings)} where it is made."
            )
        return reward.model_copy(update=settings) if settings else reward

    return class_for(
        BasePointWiseReward,
        type(reward),
        make,
        stands_for=reward,
        kind=reward.kind,
        judged=reward.judged,
        needs=reward.needs,
        **{name: getattr(reward, name) for name in OF_SCORES},
    )


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
        function: Function,
        mode: Mode = "pointwise",
        id: str | None = None,
        requirements: Sequence[str] | None = None,
        resources: GivenResources | None = None,
        score_range: Bounds | None = None,
        deterministic: bool = True,
        fingerprint: Any = None,
    ) -> None:
        """Take the function and what is declared about it; ConfigError when it cannot be a reward
        function.
        """
        if not callable(function):
            raise ConfigError(
                f"reward_function is given {function!r:.80}; write @reward_function above a "
                f"function."
            )
        if mode not in tuple(_FORMS):
            raise ConfigError(
                f"reward_function: mode is {mode!r:.80}; give one of {', '.join(_FORMS)}."
            )
        functools.update_wrapper(self, function)
        for name in ("__name__", "__qualname__"):
            vars(self).setdefault(name, getattr(type(function), name))
        self.function, self.mode, self.id, self.name = function, mode, id, id or self.__name__
        self.deterministic, self.fingerprint = deterministic, fingerprint
        self.requirements = (
            [requirements] if isinstance(requirements, str) else list(requirements or ())
        )
        self.range_declared = score_range is not None
        self.score_range = checked_bounds(
            score_range if self.range_declared else (0.0, 1.0),
            f"reward_function: score_range of {self.name}",
        )
        self._resources = Resources(resources or {}, self.name)
        self._declared = mode, id, requirements, resources, score_range, deterministic, fingerprint
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters.values()
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.named = {
            p.name: p.default is p.empty
            for p in parameters
            if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        }
        """The parameters that the function names, and whether it needs them."""
        self.judges, self._answer = _FORMS[mode]
        if self.judges not in self.named:
            raise ConfigError(
                f"reward_function: {self.name} has no parameter '{self.judges}', found "
                f"{', '.join(self.named) or 'none'}; a {mode} function is written def "
                f"{self.__name__}({self.judges}, ground_truth=None, **kwargs)."
            )

    @property
    def is_async(self) -> bool:
        """Whether calling it gives something to await."""
        return inspect.iscoroutinefunction(self.function)

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        return resolved_hints(self.function)

    @functools.cached_property
    def _readers(self) -> dict[str, Reader]:
        """How each parameter that holds messages is handed over."""
        judged = message_reader(self._hints.get(self.judges))
        readers: dict[str, Reader] = {self.judges: functools.partial(self._each, judged)}
        if "original_messages" in self.named:
            readers["original_messages"] = message_reader(self._hints.get("original_messages"))
        if Message in annotation_parts(self._hints.get("ground_truth")):
            readers["ground_truth"] = _messages_or_value
        return readers

    def _each(self, read: Reader, value: Any, what: str) -> Any:
        """What `read` makes of the one conversation that is judged, or of each."""
        if self.mode != "batch":
            return read(value, what)
        return [read(one, f"{what}[{position}]") for position, one in enumerate(value)]

    def __call__(self, /, *args: Any, **kwargs: Any) -> R:
        """Call the function with the messages in its own form and its result checked; a batch
        function gives a list.

        Raises DataError for messages that do not fit, and whatever the function raises.
        """
        if args:
            kwargs = {**self._signature.bind_partial(*args).arguments, **kwargs}
        judged = kwargs.get(self.judges) or ()
        if self._answer in self.named:
            responses = self._each(
                lambda one, what: response_in(message_dicts(one, what)), judged, self.judges
            )
            kwargs.setdefault(self._answer, responses)
        for name, read in self._readers.items():
            if kwargs.get(name) is not None:
                kwargs[name] = read(kwargs[name], name)
        if self._resources.given and "resources" not in kwargs and self.takes("resources"):
            kwargs["resources"] = self._resources.ready()
        results: R = _then(
            self.function(**kwargs), functools.partial(self._checked_results, judged)
        )
        return results

    def _checked_results(self, judged: Sequence[Any], returned: Any) -> Any:
        if self.mode == "batch":
            many = isinstance(returned, Sequence) and not isinstance(returned, (str, bytes))
            if not many or len(returned) != len(judged):
                seen = f"{len(returned)} results" if many else type(returned).__name__
                raise TypeError(
                    f"{self.name} returned {seen} for {len(judged)} rollouts; a batch function "
                    f"returns one result for each."
                )
        return self._each(lambda one, _: checked_result(one, self.name), returned, "results")

    def takes(self, name: str) -> bool:
        """Whether the function has a parameter of this name, or takes all."""
        return self._takes_all or name in self.named

    def check_values(self, fixed: Mapping[str, Any]) -> None:
        """ConfigError for a fixed value that is no number, or no bool, where the parameter's plain
        annotation, else its default, is one: every row would fail with the function's own error.
        """
        for name in fixed.keys() & self.named.keys():
            value, default = fixed[name], self._signature.parameters[name].default
            kind = self._hints.get(name, type(default))
            if kind not in (bool, int, float) or value is default:
                continue
            wanted, example, allowed = (
                ("true or false", "true", bool) if kind is bool else ("a number", "1", Real)
            )
            if not isinstance(value, allowed) or isinstance(value, bool) is not (kind is bool):
                raise ConfigError(
                    f"{self.name}: {name} is {redact(repr(value)):.60}; give {wanted}, as in --param "
                    f"{name}={example}."
                )

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Of what is known about a conversation, what the function takes; DataError when something
        it needs is missing.
        """
        for name, needed in self.named.items():
            if not needed or name in given or name in _OF_THE_CALL:
                continue
            if name == "ground_truth":
                raise no_reference(self.name)
            raise DataError(
                f"{self.name} needs '{name}', which the sample does not have; its columns are: "
                f"{', '.join(sorted(given.keys() - GIVEN)) or 'none'}."
            )
        return {name: value for name, value in given.items() if self.takes(name)}

    def close(self) -> None:
        """Clean up the resources; a later call sets them up again. Done at the end of the process
        too.
        """
        self._resources.close()

    def reward(self, **settings: Any) -> BaseReward:
        """The function as a reward: fields of the reward (`name`, `max_workers`, `deadline`, of a
        group also `seed`), and fixed values for parameters it names.

        Raises ConfigError for a setting that is neither.
        """
        kind = _KINDS[self.mode]
        fields = kind.model_fields.keys() - {"function", "params"}
        params = dict(settings.pop("params", None) or {})
        check_known(f"setting of {self.name}", settings, fields | (self.named.keys() - GIVEN))
        params |= {key: settings.pop(key) for key in [*settings] if key not in fields}
        return kind(self, **settings, params=params)

    def reward_class(self, name: str | None = None) -> type[BaseReward]:
        """A class that makes rewards of this function, under `name` when one is given: what a
        registry holds.
        """
        make = functools.partial(self.reward, name=name or self.name)
        return class_for(
            _KINDS[self.mode], self, make, stands_for=self, score_range=self.score_range
        )

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
        if self.range_declared and self.score_range != (None, None):
            identity["range"] = list(self.score_range)
        if remembered := remembered_by(self.function):
            identity["closure"] = remembered
        return identity

    def __reduce__(self) -> Any:
        module, name = self.__module__, self.__qualname__
        if _at(module, name) is self:
            if (origin := origin_of(module)) is not None:
                return _of_file, (origin, name)
            if module != "__main__":
                return name
            # a script's functions are known by name to its own processes, and by value to those of
            # a cluster
            self.function.__qualname__ = f"{name}.function"
        return _unpickled, (self.function, *self._declared)

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
    return attrgetter(name)(load_module(origin))


def _unpickled(*declared: Any) -> RewardFunction[Any]:
    made: RewardFunction[Any] = RewardFunction(*declared)
    imported = _at(made.__module__, made.__qualname__.removesuffix(".function"))
    return (
        imported
        if isinstance(imported, RewardFunction) and imported.function is made.function
        else made
    )


@overload
def reward_function(
    function: Callable[..., Coroutine[Any, Any, Any]],
) -> RewardFunction[Awaitable[EvaluateResult]]: ...
@overload
def reward_function(function: Function) -> RewardFunction[EvaluateResult]: ...
@overload
def reward_function(
    *,
    mode: Mode = "pointwise",
    id: str | None = None,
    requirements: Sequence[str] | None = None,
    resources: GivenResources | None = None,
    score_range: Bounds | None = None,
    deterministic: bool = True,
    fingerprint: Any = None,
) -> Callable[[Function], RewardFunction[Any]]: ...
def reward_function(
    function: Function | None = None,
    *,
    mode: Mode = "pointwise",
    id: str | None = None,
    requirements: Sequence[str] | None = None,
    resources: GivenResources | None = None,
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
        mode: `stepwise` functions are called for each turn, with the conversation up to it and what
            its tools answered as `messages`; `batch` functions take `rollouts_messages`, the
            conversations of one group, and return a list of results.
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
    return RewardFunction(function, *declared)
