"""The base of every grader, with the doors it is called through; functions as graders, and their names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, overload

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import OPTIONS, RunOptions, chosen_options
from rm_gallery.core.graders.abstract import (
    AbstractGrader,
    GraderError,
    GraderMode,
    GraderRank,
    GraderResult,
    GraderScore,
    RunnerResult,
    as_result,
    default_name,
    parameters,
    places_of,
    said_alone,
    scale_of,
    score_of,
    usage_sum,
)
from rm_gallery.core.graders.rows import Mapper, fields_of
from rm_gallery.core.graders.run import GraderPlan, agraded, error_of, grade_all, grade_one
from rm_gallery.core.reward.judges import asks_a_model
from rm_gallery.core.reward.kinds import ONE_ALONE
from rm_gallery.core.reward.registry import Registry
from rm_gallery.core.score import UNDECLARED, Score, failed
from rm_gallery.core.utils.errors import ConfigError, DataError, Unscored
from rm_gallery.core.utils.models import copy_with, unknown_name
from rm_gallery.core.utils.prompt import seeded_order

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
    "as_result",
    "default_name",
    "parameters",
    "places_of",
    "score_of",
    "usage_sum",
]


class BaseGrader(AbstractGrader):
    """A named way to grade what a row holds, by named fields.

    A subclass implements `_grade(self, query, response, …)`, plain or async, whose parameters name
    the fields it wants (one with a default may be absent), and returns a number, True or False, a
    dict with `score`, a GraderScore or a GraderRank. It may raise `Unscored` when there is nothing
    to judge by. Instances keep nothing of a call: one object serves any number of threads and calls
    at once, and it can be pickled.
    """

    # -- doors -------------------------------------------------------------------------------------

    # They take rows of named fields, and samples as every reward does. All of them take `options=`
    # and the names of RunOptions as keywords, which win over it; a call inside a run is a part of
    # that run. A keyword that is neither an option nor a field is a ConfigError: what a row has
    # beside goes into the row's dict.

    def evaluate(  # type: ignore[override]  # fields have names
        self, row: Any = None, /, *, options: RunOptions | None = None, **fields: Any
    ) -> Any:
        """Grade one row, given as a dict or as named fields, into a GraderResult: what failed is a
        GraderError, not raised. Of a sample, as every reward, a scored copy.
        """
        if self._is_sample(row):
            return super().evaluate(row, options=options, **fields)
        library_loop.refuse_blocking(f"{type(self).__name__}.evaluate", "aevaluate")
        return library_loop.drive(self.aevaluate(row, options=options, **fields))

    def __call__(self, /, *args: Any, **fields: Any) -> Any:
        """As `evaluate`."""
        return self.evaluate(*args, **fields)

    async def aevaluate(
        self, row: Any = None, /, *, options: RunOptions | None = None, **fields: Any
    ) -> Any:
        """Awaitable twin of `evaluate`, from any event loop."""
        if self._is_sample(row):
            return await self.async_evaluate(row, options=options, **fields)
        return await grade_one(self, *self._fields_and_options(row, options, fields))

    def evaluate_batch(  # type: ignore[override]  # rows have a mapper
        self,
        rows: Iterable[Any],
        mapper: Mapper = None,
        *,
        options: RunOptions | None = None,
        **keywords: Any,
    ) -> list[Any]:
        """Grade many rows, at most `max_workers` judgements at a time; results in the order of the
        rows. Of samples, as every reward, scored copies.
        """
        rows = list(rows)
        if rows and self._is_sample(rows[0]):
            scored: list[Any] = super().evaluate_batch(rows, options=options, **keywords)
            return scored
        library_loop.refuse_blocking(f"{type(self).__name__}.evaluate_batch", "aevaluate_batch")
        return library_loop.drive(self.aevaluate_batch(rows, mapper, options=options, **keywords))

    async def aevaluate_batch(
        self,
        rows: Iterable[Any],
        mapper: Mapper = None,
        *,
        options: RunOptions | None = None,
        **keywords: Any,
    ) -> list[Any]:
        """Awaitable twin of `evaluate_batch`."""
        rows = list(rows)
        if rows and self._is_sample(rows[0]):
            return await self.async_evaluate_batch(rows, options=options, **keywords)
        return await grade_all(GraderPlan(self, mapper), rows, self._options(options, keywords))

    def _is_sample(self, given: Any) -> bool:
        """Whether this is a sample, or a dict of one's fields, and no row."""
        if isinstance(given, DataSample) or not isinstance(given, Mapping):
            return isinstance(given, DataSample)
        outputs = given.get("output")
        is_list = isinstance(outputs, list) and all(isinstance(one, Mapping) for one in outputs)
        return is_list and not {"output", "*"} & self.inputs.keys()

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

    def _options(self, options: RunOptions | None, keywords: Mapping[str, Any]) -> RunOptions:
        return chosen_options(options, RunOptions(max_workers=self.max_workers), keywords, None)[0]

    def _fields_and_options(
        self, row: Mapping[str, Any] | None, options: RunOptions | None, keywords: Mapping[str, Any]
    ) -> tuple[dict[str, Any], RunOptions | None]:
        """The fields of a row, and the options where there are any."""
        if row is not None and not isinstance(row, Mapping):
            raise DataError(f"a row is a dict of named fields, found {type(row).__name__}.")
        inputs = self.inputs
        fields, chosen = dict(row or {}), dict[str, Any]()
        for name, value in keywords.items():
            more = name not in inputs and (name in OPTIONS or "*" not in inputs)
            (chosen if more else fields)[name] = value
        for name in chosen.keys() - OPTIONS:
            self.check()  # what is wrong with the grader itself comes first
            hint = "What a row has beside goes into its dict: evaluate({…})."
            raise ConfigError(unknown_name("field or option", name, OPTIONS.union(inputs), hint))
        if options is None and not chosen:
            return fields, None
        return fields, self._options(options, chosen)


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


COMMON = "rm_gallery.core.graders.common"
GALLERY = "rm_gallery.gallery.graders"


def graders_in(module: str) -> dict[str, type[BaseGrader]]:
    """The graders that a module holds, by their registered names."""
    return {
        kind.registered_name(): kind
        for name, kind in vars(importlib.import_module(module)).items()
        if isinstance(kind, type) and issubclass(kind, BaseGrader)
        if kind.__module__ == module and not name.startswith("_")
    }


def _ready_made() -> dict[str, str | type[BaseGrader]]:
    common = graders_in(COMMON).items()
    # by name, so that core needs no import of the gallery to offer what the gallery holds
    return {
        **{name: kind for name, kind in common if vars(kind).get("rubric")},
        **importlib.import_module(GALLERY).graders(),
    }


def _grader_class(name: str, given: Any) -> type[BaseGrader]:
    if not (isinstance(given, type) and issubclass(given, BaseGrader)):
        raise ConfigError(
            f"The grader '{name}' is {given!r:.80}; what is registered is a class derived from "
            f"BaseGrader."
        )
    return given


GraderRegistry = Registry("grader", _ready_made, _grader_class, "See `rm-gallery list --graders`.")
"""Every grader by its name."""
