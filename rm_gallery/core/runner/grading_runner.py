"""The runner: several graders over the rows of a data set, and aggregators that make one reward of
them.
"""

from __future__ import annotations

import os
from collections.abc import (
    AsyncGenerator,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
    Sized,
)
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rm_gallery.core.data.load.readers import FrameSource, readable_rows, rows_in
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import RunKeywords, RunOptions, chosen_options
from rm_gallery.core.graders.base import FunctionGrader, RunnerResult, as_grader
from rm_gallery.core.graders.rows import Mapper, checked_mapper
from rm_gallery.core.graders.run import (
    GraderPlan,
    Results,
    grader_batch,
    results_of,
)
from rm_gallery.core.graders.strategy import AverageGrader
from rm_gallery.core.reward.resolve import asks_for_judge, judges_for, spelling_of
from rm_gallery.core.reward.resolve import resolve as build_reward
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import RewardBatch
from rm_gallery.core.runner.aggregator import BaseAggregator, CallableAggregator, made_by
from rm_gallery.core.score import Missing, check_inside, missing_policy
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.names import check_known

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "GraderConfig",
    "GradingRunner",
    "asks_for_judge",
    "build_reward",
    "judges_for",
    "rows_of",
]

Dataset = Any
"""A list of dicts or any iterable of them, a pandas frame, a Hugging Face data set, or the path of
a parquet, jsonl, json or csv file."""


@dataclass(frozen=True)
class GraderConfig:
    """A grader and how the rows reach it.

    Args:
        grader: the grader; a plain function is one, too.
        mapper: {grader's field: path in the row}, laid over the row; or a function of the row that
            returns fields.
        repeat: how often each row is graded; above 1 the score is the mean, with the spread in the
            metadata.
        on_error: `none` (a GraderError; earlier `propagate`), `raise`, or a number that stands in
            for the score and is marked as such.
    """

    grader: BaseReward
    mapper: Mapper = None
    repeat: int = 1
    on_error: Missing = "none"

    def __post_init__(self) -> None:
        """Raise ConfigError for what does not fit."""
        given: Any = self.grader
        if spelling_of(given) in ("reward", "rule", "reward function"):
            object.__setattr__(self, "grader", as_grader(given))
        elif callable(given) and not isinstance(given, type):
            object.__setattr__(self, "grader", FunctionGrader(given))
        else:
            built = " (build it: RelevanceGrader(model=…))" if isinstance(given, type) else ""
            raise ConfigError(
                f"GraderConfig: grader is {given!r:.80}; give a grader{built} or a function."
            )
        if isinstance(self.repeat, bool) or not isinstance(self.repeat, int) or self.repeat < 1:
            raise ConfigError(
                f"GraderConfig: repeat is {self.repeat!r}; give a positive whole number."
            )
        policy = missing_policy(self.on_error, "GraderConfig: on_error", "none", "raise")
        check_inside(
            "GraderConfig: on_error",
            policy,
            f"{self.grader.name} gives",
            self.grader.score_range,
            "a number of that range, none or raise",
        )
        object.__setattr__(self, "on_error", policy)
        checked_mapper(self.grader, self.mapper)

    @classmethod
    def create(cls, given: Any) -> GraderConfig:
        """A config of a config, a grader, a function, a (grader, mapper) pair, or a dict of the
        fields.
        """
        if isinstance(given, GraderConfig):
            return given
        if isinstance(given, Mapping):
            check_known("field of GraderConfig", sorted(given), cls.__dataclass_fields__)
            return cls(**given)
        if isinstance(given, tuple):
            return cls(*given)
        return cls(given)

    def plan(self) -> GraderPlan:
        """The grader as it is run."""
        grader = self.grader if self.repeat == 1 else AverageGrader(self.grader, n=self.repeat)
        return GraderPlan(grader, self.mapper, self.on_error)


class GradingRunner:
    """Runs graders over the rows of a data set.

    Args:
        grader_configs: {name: grader or GraderConfig}; the names are the columns of the result.
        aggregators: one, several, or a function of a row's {name: result}; each adds a column of
            its own.
        max_concurrency: another name of `max_workers`.
        show_progress: progress on stderr, where it is a terminal or a notebook.
        options: how runs go.
        **keywords: fields of `RunOptions` (max_workers, deadline, cache, budget, …), which win over
            `options`.

    Results are {name: [one result per row, in order]}; a row that failed has a GraderError whose
    score is nan.
    """

    def __init__(
        self,
        grader_configs: Mapping[str, Any],
        aggregators: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        max_concurrency: int | None = None,
        show_progress: bool = True,
        *,
        options: RunOptions | None = None,
        **keywords: Unpack[RunKeywords],
    ) -> None:
        if not isinstance(grader_configs, Mapping) or not grader_configs:
            raise ConfigError("grader_configs is a dict of name to grader, with one at least.")
        self.grader_configs = {
            str(name): GraderConfig.create(given) for name, given in grader_configs.items()
        }
        if len(self.grader_configs) < len(grader_configs):
            raise ConfigError(
                f"grader_configs: two of the names {list(grader_configs)!r:.80} are the same text, "
                f"and each is a column; rename one."
            )
        given: Any = [] if aggregators is None else aggregators
        given = given if isinstance(given, (list, tuple)) else [given]
        self.aggregators = [
            a if isinstance(a, BaseAggregator) else CallableAggregator(a) for a in given
        ]
        graders = {name: config.grader for name, config in self.grader_configs.items()}
        scales = {name: (each.score_range, each.higher_is_better) for name, each in graders.items()}
        self._columns = list(graders)
        for aggregator in self.aggregators:
            if aggregator.name in self._columns:
                raise ConfigError(
                    f"The column '{aggregator.name}' is taken; give the aggregator another name."
                )
            aggregator.check(graders)
            aggregator.check_scales(scales)
            self._columns.append(aggregator.name)
        own = RunOptions(progress=None if show_progress else False)
        given = {"max_workers": max_concurrency, **keywords}
        self.options = chosen_options(options, own, given, None)[0]
        """How runs go that are not told otherwise."""
        self._plans = {name: config.plan() for name, config in self.grader_configs.items()}

    # `options=` stands in for all that the runner was made with; the names of RunOptions as
    # keywords win over either.

    def _batch(
        self, dataset: Dataset, options: RunOptions | None, keywords: Mapping[str, Any]
    ) -> RewardBatch:
        chosen = chosen_options(options, self.options, keywords, None)[0]
        return grader_batch(self._plans, rows_of(dataset), chosen)

    async def arun(
        self, dataset: Dataset, *, options: RunOptions | None = None, **keywords: Any
    ) -> RunnerResult:
        """Grade all rows. `run` waits, in scripts, in notebooks and on threads; `arun` is awaited, from
        any event loop.
        """
        return self._by_column(await self._batch(dataset, options, keywords).all())

    run = library_loop.blocking(arun, drives=True, refused=True)

    def stream(
        self, dataset: Dataset, *, options: RunOptions | None = None, **keywords: Any
    ) -> Generator[Results, None, None]:
        """One {name: result} per row as it comes, in order and in flat memory; `astream` outside of
        an event loop.
        """
        library_loop.refuse_blocking(f"{type(self).__name__}.stream", "astream(…)")
        return library_loop.driven(self.astream(dataset, options=options, **keywords))

    async def astream(
        self,
        dataset: Iterable[Mapping[str, Any]],
        *,
        options: RunOptions | None = None,
        **keywords: Any,
    ) -> AsyncGenerator[Results, None]:
        """One {name: result} per row as it comes, in order and in flat memory; for endless or huge
        data.
        """
        async with aclosing(
            self._batch(dataset, options, keywords).stream(streaming=True)
        ) as going:
            async for _, row in going:
                yield self._aggregated(row)

    async def arun_multiple_datasets(
        self, datasets: Sequence[Dataset], **options: Any
    ) -> list[RunnerResult]:
        """One result per data set, in order, under one limit; `run_multiple_datasets` waits."""
        parts = _parts_of(datasets)
        return _by_dataset(await self.arun(list(chain(*parts)), **options), parts)

    run_multiple_datasets = library_loop.blocking(arun_multiple_datasets, drives=True, refused=True)

    def _aggregated(self, row: Any) -> Results:
        results = results_of(self._plans, row)
        made = {each.name: made_by(each, results) for each in self.aggregators}
        return {**results, **made}

    def _by_column(self, graded: Sequence[Any]) -> RunnerResult:
        rows = list(map(self._aggregated, graded))
        return {name: [row[name] for row in rows] for name in self._columns}


def _parts_of(datasets: Sequence[Dataset]) -> list[list[Mapping[str, Any]]]:
    """The rows of each data set; DataError for one data set in the place of several."""
    # the first letter of a path is "/", and a folder is a data set
    one = isinstance(datasets, (str, os.PathLike, Mapping)) or hasattr(datasets, "columns")
    if one or not isinstance(datasets, Iterable):
        raise DataError(
            f"the data sets are a {type(datasets).__name__}; give a list of them, or one to run()."
        )
    return [list(rows_of(dataset)) for dataset in datasets]


def _by_dataset(columns: RunnerResult, parts: Sequence[Sized]) -> list[RunnerResult]:
    left = {name: iter(column) for name, column in columns.items()}
    return [
        {name: list(islice(column, len(part))) for name, column in left.items()} for part in parts
    ]


def rows_of(dataset: Dataset) -> Iterable[Mapping[str, Any]]:
    """The rows of a data set as dicts; DataError for what is none."""
    if isinstance(dataset, (str, os.PathLike)):
        path = Path(dataset).expanduser()
        if not path.exists():
            raise DataError(f"{path}: no such file; give a parquet, jsonl, json, csv or xlsx file.")
        return rows_in(path)
    if hasattr(dataset, "to_dict") and hasattr(dataset, "columns"):
        return [row for _, row in readable_rows(FrameSource(dataset))]
    if isinstance(dataset, Mapping):
        raise DataError(
            f"the data set is one dict with the keys {sorted(map(str, dataset))[:12]}; give a list "
            f"of rows, or grader.evaluate(row)."
        )
    if not isinstance(dataset, Iterable):
        raise DataError(
            f"the data set is a {type(dataset).__name__}; give a list of dicts, a frame or the "
            f"path of a file."
        )
    return dataset
