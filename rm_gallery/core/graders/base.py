"""The base of every grader: what it is given, what it returns, and its doors to the one engine."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, overload

from pydantic import ConfigDict, Field, model_validator

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import OPTIONS, RunOptions, chosen_options
from rm_gallery.core.graders.result import GraderMode, GraderResult
from rm_gallery.core.outcome import Bounds
from rm_gallery.core.reward.registry import Registry
from rm_gallery.core.reward.reward import Identified
from rm_gallery.core.reward.schema import RewardMeta
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name

if TYPE_CHECKING:
    from rm_gallery.core.graders.run import Mapper


class BaseGrader(Identified, metaclass=RewardMeta):
    """A named way to grade what a row holds, by named fields.

    A subclass implements `_grade(self, query, response, …)`, plain or async, whose parameters name the fields it wants (one
    with a default may be absent), and returns a number, True or False, a dict with `score`, a GraderScore or a GraderRank. It
    may raise `Unscored` when there is nothing to judge by. Instances keep nothing of a call: one object serves any number of
    threads and calls at once, and it can be pickled.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, validate_default=True, protected_namespaces=())

    score_range: Bounds = (0.0, 1.0)
    """Lowest and highest possible score; None where there is no bound. A score outside is an error, never a clamp."""
    higher_is_better: bool = True
    threshold: float | None = None
    """From where on a response passes, in the units of the score."""
    mode: GraderMode = GraderMode.POINTWISE
    description: str = ""
    max_workers: int = Field(default=32, ge=1)
    """Judgements in flight at once, unless a run says otherwise."""
    deadline: float | None = Field(default=600.0, gt=0)
    """Seconds one row may take; None for no limit."""

    judged: ClassVar[bool] = False
    """Whether a model judges."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """What the machine must offer: llm, vision, logprobs, an extra's name."""

    @model_validator(mode="after")
    def _consistent(self) -> BaseGrader:
        if not self.name:
            object.__setattr__(self, "name", default_name(type(self)))
        low, high = self.score_range
        if low is not None and high is not None and not low < high:
            raise ValueError(f"score_range is {self.score_range}; the first number is below the second")
        if self.threshold is not None and not (
            (low is None or low <= self.threshold) and (high is None or self.threshold <= high)
        ):
            raise ValueError(f"threshold is {self.threshold}; it lies inside the score range {self.score_range}")
        return self

    # -- what graders implement -----------------------------------------------------------------------------------------

    if TYPE_CHECKING:
        _grade: ClassVar[Callable[..., Any]]
        """Each grader names its own fields."""
    else:

        def _grade(self, /, **fields: Any) -> Any:
            """The result for one row's fields."""
            raise NotImplementedError(f"{type(self).__name__} implements _grade(self, query, response, …).")

    def check(self) -> None:
        """Raise ConfigError when no row could be graded at all (no model, no key, a missing extra)."""

    @property
    def inputs(self) -> dict[str, bool]:
        """The fields it takes, and whether each is required; ``"*"`` stands for any other field."""
        return dict(parameters(type(self)._grade))

    @property
    def is_async(self) -> bool:
        """Whether `_grade` is a coroutine function; one that only returns something awaitable is awaited too."""
        return inspect.iscoroutinefunction(type(self)._grade)

    @classmethod
    def registered_name(cls) -> str:
        """The name it has where none is given."""
        own = getattr(cls, "registered", "") or cls.model_fields["name"].default
        return str(own or getattr(cls, "rubric", "") or default_name(cls))

    @classmethod
    def declared(cls) -> dict[str, Any]:
        """What is known of its scores before one is built: score_range, higher_is_better, mode."""
        return {name: cls.model_fields[name].default for name in ("score_range", "higher_is_better", "mode")}

    def about(self) -> dict[str, Any]:
        """What each of its scores carries: name, range, direction, threshold."""
        return {
            "name": self.name,
            "range": self.score_range,
            "higher_is_better": self.higher_is_better,
            "threshold": self.threshold,
        }

    # -- doors ----------------------------------------------------------------------------------------------------------

    # All of them take `options=` and the names of RunOptions as keywords, which win over it; a call inside a run is a part of
    # that run. A keyword that is neither an option nor a field is a ConfigError: what a row has beside goes into the row's dict.

    def evaluate(
        self, row: Mapping[str, Any] | None = None, /, *, options: RunOptions | None = None, **fields: Any
    ) -> GraderResult:
        """Grade one row, given as a dict or as named fields; what failed is a GraderError, not raised."""
        from rm_gallery.core.graders.run import grade_one

        return grade_one(self, *self._told(row, options, fields))

    async def aevaluate(
        self, row: Mapping[str, Any] | None = None, /, *, options: RunOptions | None = None, **fields: Any
    ) -> GraderResult:
        """Awaitable twin of `evaluate`, from any event loop."""
        from rm_gallery.core.graders.run import agrade_one

        return await agrade_one(self, *self._told(row, options, fields))

    def evaluate_batch(
        self,
        rows: Iterable[Mapping[str, Any]],
        mapper: Mapper = None,
        *,
        options: RunOptions | None = None,
        **keywords: Any,
    ) -> list[GraderResult]:
        """Grade many rows, at most `max_workers` judgements at a time; results in the order of the rows."""
        from rm_gallery.core.graders.run import GraderBatch, GraderPlan

        library_loop.refuse_blocking(f"{type(self).__name__}.evaluate_batch", "aevaluate_batch")
        batch = GraderBatch({self.name: GraderPlan(self, mapper)}, rows, self._options(options, keywords))
        return [results[self.name] for results in batch.all()]

    async def aevaluate_batch(
        self,
        rows: Iterable[Mapping[str, Any]],
        mapper: Mapper = None,
        *,
        options: RunOptions | None = None,
        **keywords: Any,
    ) -> list[GraderResult]:
        """Awaitable twin of `evaluate_batch`."""
        from rm_gallery.core.graders.run import GraderBatch, GraderPlan

        batch = GraderBatch({self.name: GraderPlan(self, mapper)}, rows, self._options(options, keywords))
        return [results[self.name] for results in await batch.aall()]

    def _options(self, options: RunOptions | None, keywords: Mapping[str, Any]) -> RunOptions:
        return chosen_options(options, RunOptions(max_workers=self.max_workers), keywords, None)[0]

    def _told(
        self, row: Mapping[str, Any] | None, options: RunOptions | None, keywords: Mapping[str, Any]
    ) -> tuple[dict[str, Any], RunOptions | None]:
        """The fields of a row, and the options where there are any."""
        inputs = self.inputs
        more = {name for name in keywords if name not in inputs and (name in OPTIONS or "*" not in inputs)}
        for name in more - OPTIONS:
            self.check()  # what is wrong with the grader itself comes first
            hint = "What a row has beside goes into its dict: evaluate({…})."
            raise ConfigError(unknown_name("field or option", name, OPTIONS.union(inputs), hint))
        fields = {**(row or {}), **{name: value for name, value in keywords.items() if name not in more}}
        if options is None and not more:
            return fields, None
        return fields, self._options(options, {name: keywords[name] for name in more})


def default_name(kind: type) -> str:
    """`RelevanceGrader` is called relevance, `ToolCallAccuracyGrader` tool_call_accuracy."""
    base = kind.__name__.removesuffix("Grader") or kind.__name__
    return "".join(
        f"_{c.lower()}" if c.isupper() and i and not base[i - 1].isupper() else c.lower() for i, c in enumerate(base)
    )


@lru_cache(maxsize=1024)
def parameters(function: Callable[..., Any]) -> Mapping[str, bool]:
    """The named parameters of a function and whether each is required; ("*", False) for any other."""
    found = {}
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.VAR_KEYWORD:
            found["*"] = False
        elif p.kind is not p.VAR_POSITIONAL and p.name != "self":
            if p.kind is p.POSITIONAL_ONLY:
                raise ConfigError(f"{function.__qualname__}: '{p.name}' is positional-only; fields are passed by name.")
            found[p.name] = p.default is p.empty
    return found


class FunctionGrader(BaseGrader):
    """A grader of any function over named fields, sync or async, that returns a number, True or False, a dict or a result.

    `FunctionGrader(func)` or as a decorator `@FunctionGrader.wrap(score_range=(1, 5))`. Range [0, 1] unless another is given.
    """

    func: Callable[..., Any]

    def __init__(self, func: Callable[..., Any] | None = None, **settings: Any) -> None:
        """Take the name and description of the function where none is given."""
        if func is not None:
            settings.setdefault("name", getattr(func, "__name__", "").strip("<>") or type(func).__name__)
            settings.setdefault("description", (inspect.getdoc(func) or "").partition("\n")[0])
            settings["func"] = func
        super().__init__(**settings)

    @overload
    @classmethod
    def wrap(cls, func: Callable[..., Any], **settings: Any) -> FunctionGrader: ...

    @overload
    @classmethod
    def wrap(cls, func: None = None, **settings: Any) -> Callable[[Callable[..., Any]], FunctionGrader]: ...

    @classmethod
    def wrap(cls, func: Callable[..., Any] | None = None, **settings: Any) -> Any:
        """Decorator, bare or with settings."""
        return cls(func, **settings) if func is not None else lambda decorated: cls(decorated, **settings)

    @property
    def inputs(self) -> dict[str, bool]:
        """The function's own parameters."""
        return dict(parameters(self.func))

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return any(map(inspect.iscoroutinefunction, (self.func, type(self.func).__call__)))

    def _grade(self, /, **fields: Any) -> Any:
        return self.func(**fields)

    def __call__(self, /, *args: Any, **fields: Any) -> Any:
        """The function itself."""
        return self.func(*args, **fields)


COMMON = "rm_gallery.core.graders.common"
GALLERY = "rm_gallery.gallery.graders"


def _ready_made() -> dict[str, str | type[BaseGrader]]:
    common = vars(importlib.import_module(COMMON)).values()
    own = {
        kind.registered_name(): kind
        for kind in common
        if isinstance(kind, type) and issubclass(kind, BaseGrader) and kind.__module__ == COMMON
    }
    # by name, so that core needs no import of the gallery to offer what the gallery holds
    return {**own, **importlib.import_module(GALLERY).graders()}


def _grader_class(name: str, given: Any) -> type[BaseGrader]:
    if not (isinstance(given, type) and issubclass(given, BaseGrader)):
        raise ConfigError(f"The grader '{name}' is {given!r:.80}; what is registered is a class derived from BaseGrader.")
    return given


GraderRegistry = Registry("grader", _ready_made, _grader_class, "See `rm-gallery list --graders`.")
"""Every grader by its name."""
