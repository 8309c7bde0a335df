"""The base of every grader: a reward that reads named fields; functions as graders, and their names."""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, overload

from pydantic import ValidationError

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.engine import awaitable
from rm_gallery.core.graders.results import (
    GraderError,
    GraderMode,
    GraderRank,
    GraderResult,
    GraderScore,
    RunnerResult,
    as_result,
    places_of,
    said_alone,
    scale_of,
    score_of,
    usage_sum,
)
from rm_gallery.core.graders.rows import Mapper, fields_of
from rm_gallery.core.graders.run import agraded, error_of
from rm_gallery.core.reward.base_kinds import PerOutputReward
from rm_gallery.core.reward.judges import asks_a_model
from rm_gallery.core.reward.kinds import ONE_ALONE
from rm_gallery.core.reward.registry import Registry, class_for
from rm_gallery.core.reward.resolve import meant_by
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.score import UNDECLARED, Bounds, Score, failed
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.identity import is_users
from rm_gallery.core.utils.models import copy_with
from rm_gallery.core.utils.names import check_known
from rm_gallery.core.utils.prompt import seeded_order
from rm_gallery.core.utils.shown import redact

__all__ = [
    "BaseGrader",
    "FunctionGrader",
    "GraderError",
    "GraderMode",
    "GraderRank",
    "GraderRegistry",
    "GraderResult",
    "GraderScore",
    "RunnerResult",
    "as_grader",
    "as_result",
    "as_reward",
    "default_name",
    "parameters",
    "places_of",
    "score_of",
    "usage_sum",
]


class BaseGrader(PerOutputReward):
    """A named way to grade what a row holds, by named fields.

    A subclass implements `_grade(self, query, response, …)`, plain or async, whose parameters name
    the fields it wants (one with a default may be absent), and returns a number, True or False, a
    dict with `score`, a GraderScore or a GraderRank. It may raise `Unscored` when there is nothing
    to judge by. Instances keep nothing of a call: one object serves any number of threads and calls
    at once, and it can be pickled. It is a reward, and grades samples by what it finds of its fields
    in them.
    """

    takes_scale: ClassVar[bool] = True
    said_if_given: ClassVar[frozenset[str]] = frozenset({"worst", "seed"})

    score_range: Bounds = (0.0, 1.0)
    mode: GraderMode = GraderMode.POINTWISE
    description: str = ""
    seed: int = 0
    """Decides, with the sample's id, the order in which a judge is shown the answers of a sample."""

    def model_post_init(self, context: Any) -> None:
        """Fill in the name, and the range of what orders responses."""
        super().model_post_init(context)
        own = self.score_range, self.higher_is_better
        if self.compares and own != ((0.0, 1.0), True):
            # a score is the share of the others that a response is placed before
            whole = ("score_range", (0.0, 1.0)), ("higher_is_better", True), ("threshold", None)
            for name, value in whole:
                object.__setattr__(self, name, value)

    @classmethod
    def _unnamed(cls) -> str:
        return default_name(cls)

    @property
    def compares(self) -> bool:
        """Whether it orders responses."""
        return self.mode is GraderMode.LISTWISE

    # -- what graders implement --------------------------------------------------------------------

    if TYPE_CHECKING:
        _grade: ClassVar[Callable[..., Any]]
        """Each grader names its own fields."""
    else:

        def _grade(self, /, **fields: Any) -> Any:
            """The result for one row's fields."""
            raise NotImplementedError(
                f"{type(self).__name__} implements _grade(self, query, response, …)."
            )

    @property
    def inputs(self) -> dict[str, bool]:
        """The fields it takes, and whether each is required; ``"*"`` stands for any other field."""
        return dict(parameters(type(self)._grade))

    @property
    def declares_missing(self) -> bool:
        """Whether it says itself what a part without a score means, as all of the library does;
        code of one's own may hide one.
        """
        return not is_users(type(self)._grade.__module__)

    @property
    def awaits(self) -> bool:
        """Whether `_grade` is a coroutine function; one that only returns something awaitable is
        awaited too.
        """
        return inspect.iscoroutinefunction(type(self)._grade)

    @classmethod
    def registered_name(cls) -> str:
        """The name it has where none is given."""
        own = getattr(cls, "registered", "") or cls.model_fields["name"].default
        return str(own or getattr(cls, "rubric", "") or default_name(cls))

    @classmethod
    def declared(cls) -> dict[str, Any]:
        """What is known of its scores before one is built: score_range, higher_is_better, mode."""
        facts = {name: getattr(cls, name, None) for name in ("score_range", "higher_is_better")}
        facts["mode"] = cls.model_fields["mode"].default
        # a property says it of an instance alone
        defaults = BaseGrader.model_fields
        return {k: defaults[k].default if isinstance(v, property) else v for k, v in facts.items()}

    @property
    def range_declared(self) -> bool:  # type: ignore[override]
        """Whether somebody stated the range; False for the [0, 1] of every grader."""
        kinds = itertools.takewhile(lambda kind: kind is not BaseGrader, type(self).__mro__)
        return "score_range" in self.model_fields_set or any(
            "score_range" in vars(kind).get("_said_here", vars(kind)) for kind in kinds
        )

    # -- named fields ------------------------------------------------------------------------------

    def _graded(self, fields: Mapping[str, Any]) -> Any:
        value = self._grade(**fields)
        return (
            self._score_later(value, fields)
            if awaitable(value)
            else self._score_read(value, fields)
        )

    async def _score_later(self, value: Any, fields: Mapping[str, Any]) -> Score[Any]:
        return self._score_read(await value, fields)

    def _score_read(self, value: Any, fields: Mapping[str, Any]) -> Score[Any]:
        try:
            score = score_of(value, self)
        except (ValueError, TypeError) as error:
            what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            return self._unusable(what)
        responses = fields.get("responses")
        if isinstance(score.value, tuple) and isinstance(responses, (list, tuple)):
            if len(score.value) != len(responses):
                return self._unusable(f"{len(score.value)} places for {len(responses)} responses")
        return score

    def _unusable(self, what: str) -> Score[Any]:
        why = f"{self.name} returned no usable result: {what}"
        return failed("invalid_result", redact(why), "rule")

    async def async_evaluate_batch(  # type: ignore[override]  # rows come more often than samples
        self, samples: Iterable[Any], mapper: Mapper = None, **how: Any
    ) -> list[Any]:
        """As of every reward; of any iterable, since the first one tells whether it holds rows."""
        given = [*samples] if isinstance(samples, Iterable) else samples
        return await super().async_evaluate_batch(given, mapper=mapper, **how)

    # -- answers of samples ------------------------------------------------------------------------

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> list[Score[Any]]:
        """The score of one answer; of several that are ordered, the share of the others that each is
        placed before.
        """
        order = list(range(len(sample.output)))
        if self.compares and len(order) == 1:
            raise Unscored(f"{ONE_ALONE}.", reason="single_output", cause="data")
        if self.compares and asks_a_model(self):
            order = seeded_order(len(order), f"{self.seed}\x1f{sample.sample_id}\x1f")
            sample = copy_with(sample, output=[sample.output[i] for i in order])
        graded = await agraded(self, fields_of(self, sample))
        order_given = isinstance(graded.value, tuple)
        if graded.ok and order_given is not self.compares:
            gave = "places" if order_given else "one score"
            graded = failed("invalid_result", f"{self.name} gave {gave}.", "rule")
        if graded.value is None:
            raise error_of(graded)
        if not self.compares:
            return [self._on_its_scale(graded)]
        others = max(1, len(order) - 1)
        shares = [
            (sum(own > other for other in graded.value) + 0.5 * (graded.value.count(own) - 1))
            / others
            for own in graded.value
        ]
        graded = said_alone(graded)
        return [replace(graded, value=shares[order.index(i)]) for i in range(len(order))]

    def _on_its_scale(self, score: Score[Any]) -> Score[Any]:
        """The score of a sample's answer; failed where its result is of another scale: 1 of [1, 5]
        is no 1 of [0, 1].
        """
        bounds, higher = scale_of(score, self)
        if self.score_range in (bounds, (None, None)) and higher is self.higher_is_better:
            return said_alone(score)
        reason = (
            f"{self.name} gave a result with range={bounds} and higher_is_better={higher}, and has "
            f"another scale itself; declare that of its results: score_range={bounds}, "
            f"higher_is_better={higher}."
        )
        return failed(UNDECLARED, reason, "rule")


class FunctionGrader(BaseGrader):
    """A grader of any function over named fields, sync or async, that returns a number, True or
    False, a dict or a result.

    `FunctionGrader(func)` or as a decorator `@FunctionGrader.wrap(score_range=(1, 5))`. Range [0,
    1] unless another is given.
    """

    func: Callable[..., Any]

    def __init__(self, func: Callable[..., Any] | None = None, **settings: Any) -> None:
        """Take the name and description of the function where none is given."""
        if func is not None:
            settings.setdefault(
                "name", getattr(func, "__name__", "").strip("<>") or type(func).__name__
            )
            settings.setdefault("description", (inspect.getdoc(func) or "").partition("\n")[0])
            settings["func"] = func
        super().__init__(**settings)

    @overload
    @classmethod
    def wrap(cls, func: Callable[..., Any], **settings: Any) -> FunctionGrader: ...

    @overload
    @classmethod
    def wrap(
        cls, func: None = None, **settings: Any
    ) -> Callable[[Callable[..., Any]], FunctionGrader]: ...

    @classmethod
    def wrap(cls, func: Callable[..., Any] | None = None, **settings: Any) -> Any:
        """Decorator, bare or with settings."""
        return (
            cls(func, **settings)
            if func is not None
            else lambda decorated: cls(decorated, **settings)
        )

    @property
    def inputs(self) -> dict[str, bool]:
        """The function's own parameters."""
        return dict(parameters(self.func))

    @property
    def declares_missing(self) -> bool:
        """False: the function may hide what it does not get."""
        return False

    @property
    def awaits(self) -> bool:
        """Whether the function is a coroutine function."""
        return any(map(inspect.iscoroutinefunction, (self.func, type(self.func).__call__)))

    def _grade(self, /, **fields: Any) -> Any:
        return self.func(**fields)

    def __call__(self, /, *args: Any, **fields: Any) -> Any:
        """The function itself."""
        return self.func(*args, **fields)


def default_name(kind: type) -> str:
    """`RelevanceGrader` is called relevance, `ToolCallAccuracyGrader` tool_call_accuracy."""
    base = kind.__name__.removesuffix("Grader") or kind.__name__
    return "".join(
        f"_{c.lower()}" if c.isupper() and i and not base[i - 1].isupper() else c.lower()
        for i, c in enumerate(base)
    )


def parameters(function: Callable[..., Any]) -> Mapping[str, bool]:
    """The named parameters of a function and whether each is required; ("*", False) for any other.

    Raises ConfigError for a function whose parameters have no names.
    """
    try:
        hash(function)
    except TypeError:  # an object that compares by its fields, such as a dataclass
        return _parameters.__wrapped__(function)
    return _parameters(function)


@lru_cache(maxsize=1024)
def _parameters(function: Callable[..., Any]) -> Mapping[str, bool]:
    required = {}
    try:
        known = inspect.signature(function).parameters
    except ValueError as error:  # builtins such as `max`
        name = getattr(function, "__qualname__", type(function).__name__)
        raise ConfigError(
            f"{name}: its parameters have no names; put it into a function that names its fields."
        ) from error
    for p in known.values():
        if p.kind is p.VAR_KEYWORD:
            required["*"] = False
        elif p.kind is not p.VAR_POSITIONAL and p.name != "self":
            if p.kind is p.POSITIONAL_ONLY:
                raise ConfigError(
                    f"{function.__qualname__}: '{p.name}' is positional-only; fields are passed by "
                    f"name."
                )
            required[p.name] = p.default is p.empty
    return required


COMMON = "rm_gallery.core.graders.common"
GALLERY = "rm_gallery.gallery.graders"


def graders_in(module: str) -> dict[str, type[BaseReward]]:
    """The graders that a module holds, by their registered names."""
    return {
        kind.registered_name() if issubclass(kind, BaseGrader) else default_name(kind): kind
        for name, kind in vars(importlib.import_module(module)).items()
        if isinstance(kind, type) and issubclass(kind, BaseReward)
        if kind.__module__ == module and not name.startswith("_")
    }


def _ready_made() -> dict[str, str | type[BaseReward]]:
    common = graders_in(COMMON).items()
    # by name, so that core needs no import of the gallery to offer what the gallery holds
    return {
        **{name: kind for name, kind in common if vars(kind).get("rubric")},
        **importlib.import_module(GALLERY).graders(),
    }


def _grader_class(name: str, given: Any) -> type[BaseReward]:
    if not (isinstance(given, type) and issubclass(given, BaseReward)):
        raise ConfigError(
            f"The grader '{name}' is {given!r:.80}; what is registered is a class derived from "
            f"BaseGrader."
        )
    return given


GraderRegistry: Registry[BaseReward] = Registry(
    "grader", _ready_made, _grader_class, "See `rm-gallery list --graders`."
)
"""Every grader by its name; rules among the rewards are graders under their own names."""


# -- graders and rewards ---------------------------------------------------------------------------


def reward_class_of(name: str) -> type[BaseReward]:
    """What `grader:NAME` stands for: the grader, under that name.

    Raises ConfigError with the nearest names when there is no such grader.
    """
    kind: Any = GraderRegistry.get(name)
    if not issubclass(kind, BaseGrader):
        return kind  # type: ignore[no-any-return]
    facts = kind.declared()
    if facts.pop("mode") is GraderMode.LISTWISE:
        facts = {"kind": "listwise", "score_range": (0.0, 1.0)}
    facts = {"kind": "pointwise", "grader_class": kind, **facts}
    return class_for(kind, kind, partial(kind, name=f"grader:{name}"), **facts)


def reward_class_of_rubric(file: str) -> type[BaseReward]:
    """What `rubric:FILE` stands for; ConfigError where no rubric can be read."""
    return reward_class_of(f"rubric:{file}")


def as_grader(reward: Any, **settings: Any) -> BaseReward:
    """A reward, its class, the registered one of this name, or a function under `@rule` or
    `@reward_function`, with these settings, as what is called by named fields: every reward is.
    """
    made = reward if isinstance(reward, BaseReward) else meant_by(reward)
    if isinstance(made, type):
        made = made(**settings)
    elif settings:
        check_known(f"setting of {made.name}", settings, type(made).model_fields)
        made = made.model_copy(update=settings)
        made.check_scale()
    built: BaseReward = made
    return built


def as_reward(grader: BaseReward | str, **settings: Any) -> BaseReward:
    """A grader, or the registered one of this name, with these settings, as what scores samples: a
    grader is a reward.
    """
    return as_grader(GraderRegistry.get(grader) if isinstance(grader, str) else grader, **settings)
