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

from rm_gallery.core.data.load.padding import number, plain
from rm_gallery.core.data.load.readers import rows_in
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import RunKeywords, RunOptions, chosen_options
from rm_gallery.core.graders.base import BaseGrader, FunctionGrader, RunnerResult
from rm_gallery.core.graders.bridge import as_grader
from rm_gallery.core.graders.rows import Mapper
from rm_gallery.core.graders.run import (
    GraderBatch,
    GraderPlan,
    Results,
    grader_batch,
    results_of,
)
from rm_gallery.core.graders.strategy import AverageGrader
from rm_gallery.core.model.base import BaseLLM, resolve_llm
from rm_gallery.core.reward.judges import given_in_vain, lacking, resolved_judge
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.rule import rule_class_of
from rm_gallery.core.runner.aggregator import BaseAggregator, CallableAggregator
from rm_gallery.core.runner.in_files import reward_of
from rm_gallery.core.score import Missing, check_inside, missing_policy
from rm_gallery.core.utils.errors import ConfigError, DataError, Inapplicable
from rm_gallery.core.utils.models import check_known

if TYPE_CHECKING:
    from typing_extensions import Unpack

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

    grader: BaseGrader
    mapper: Mapper = None
    repeat: int = 1
    on_error: Missing = "none"

    def __post_init__(self) -> None:
        """Raise ConfigError for what does not fit."""
        given: Any = self.grader
        if rule_class_of(given) is not None or callable(getattr(given, "reward", None)):
            object.__setattr__(self, "grader", as_grader(given))
        elif callable(given) and not isinstance(given, (BaseGrader, type)):
            object.__setattr__(self, "grader", FunctionGrader(given))
        elif not isinstance(given, BaseGrader):
            built = " (build it: RelevanceGrader(model=…))" if isinstance(given, type) else ""
            raise ConfigError(
                f"GraderConfig: grader is {given!r:.80}; give a grader{built} or a function."
            )
        if isinstance(self.repeat, bool) or not isinstance(self.repeat, int) or self.repeat < 1:
            raise ConfigError(
                f"GraderConfig: repeat is {self.repeat!r}; give a positive whole number."
            )
        policy = missing_policy(self.on_error, "GraderConfig", "none", "raise")
        check_inside(
            "GraderConfig: on_error",
            policy,
            f"{self.grader.name} gives",
            self.grader.score_range,
            "a number of that range, none or raise",
        )
        object.__setattr__(self, "on_error", policy)
        if isinstance(self.mapper, Mapping) and "*" not in (inputs := self.grader.inputs):
            check_known(f"field of {self.grader.name}", self.mapper, inputs, "mapper: ")

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
    ) -> GraderBatch:
        chosen = chosen_options(options, self.options, keywords, None)[0]
        return grader_batch(self._plans, rows_of(dataset), chosen)

    def run(
        self, dataset: Dataset, *, options: RunOptions | None = None, **keywords: Any
    ) -> RunnerResult:
        """Grade all rows; works in scripts, in notebooks and on threads. Awaitable twin: `arun`."""
        library_loop.refuse_blocking("run", "arun")
        return library_loop.drive(self.arun(dataset, options=options, **keywords))

    async def arun(
        self, dataset: Dataset, *, options: RunOptions | None = None, **keywords: Any
    ) -> RunnerResult:
        """Grade all rows, from any event loop."""
        return self._by_column(await self._batch(dataset, options, keywords).results())

    def stream(
        self, dataset: Dataset, *, options: RunOptions | None = None, **keywords: Any
    ) -> Generator[Results, None, None]:
        """One {name: result} per row as it comes, in order and in flat memory; `astream` outside of
        an event loop.
        """
        library_loop.refuse_blocking("stream", "astream")
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
                yield self._aggregated(results_of(row))

    def run_multiple_datasets(
        self, datasets: Sequence[Dataset], **options: Any
    ) -> list[RunnerResult]:
        """One result per data set, in order, under one limit."""
        parts = [list(rows_of(dataset)) for dataset in datasets]
        return _by_dataset(self.run(list(chain(*parts)), **options), parts)

    async def arun_multiple_datasets(
        self, datasets: Sequence[Dataset], **options: Any
    ) -> list[RunnerResult]:
        """Awaitable twin of `run_multiple_datasets`."""
        parts = [list(rows_of(dataset)) for dataset in datasets]
        return _by_dataset(await self.arun(list(chain(*parts)), **options), parts)

    def _aggregated(self, results: Results) -> Results:
        made = {aggregator.name: aggregator(results) for aggregator in self.aggregators}
        return {**results, **made}

    def _by_column(self, graded: Sequence[Results]) -> RunnerResult:
        rows = [self._aggregated(results) for results in graded]
        return {name: [row[name] for row in rows] for name in self._columns}


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
        return _of_frame(dataset)
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


def _of_frame(frame: Any) -> list[Mapping[str, Any]]:
    """The rows of a frame; lists that came as arrays are lists again, and a text that is missing is
    None.
    """
    kinds = zip(frame.columns, frame.dtypes, strict=True)
    texts = {name for name, kind in kinds if getattr(kind, "kind", "O") == "O"}
    return [
        {name: number(plain(cell)) if name in texts else cell for name, cell in row.items()}
        for row in frame.to_dict("records")
    ]


def build_reward(
    reward: object,
    params: Mapping[str, Any] | None = None,
    llm: str | dict[str, Any] | BaseLLM | None = None,
    base_url: str | None = None,
    seed: int = 0,
) -> BaseReward:
    """The reward that `reward` stands for; a judge is only ever the one that was named.

    Args:
        reward: a name (registered, of a grader, FILE or FILE:NAME, or with a prefix such as
            `bt:DIR`), a reward or its class, a grader, what `@reward_function` made, an object with
            `compute_reward` or `compute_group_reward`, or a plain function of `messages`.
        params: constructor fields.
        llm: the judge: a model, its name or its settings.
        base_url: its endpoint.
        seed: for rewards that have one, unless params name it.

    A reward that is built already takes the judge where it, or a part of it, has none yet.

    Raises:
        ConfigError: the name is unknown, nothing of the kinds above was given, a parameter does not
            exist, or a judge is missing or given in vain.
    """
    made, given = _reward_or_class(reward), llm is not None or bool(base_url)
    if isinstance(made, BaseReward):
        if params or (given and not lacking(made)):
            raise ConfigError(
                f"{made.name} is built already; give params, llm and base_url where it is made."
            )
        return resolved_judge(made, llm, base_url, made.name)
    name = reward if isinstance(reward, str) else made.__name__
    settings, known = dict(params or {}), _known_of(made)
    of_grader = getattr(made, "grader_class", None) is not None
    own_judge = "llm" in settings or (of_grader and "model" in settings)
    if not asks_for_judge(made):
        if given:
            raise given_in_vain({name: known})
    elif own_judge and given:
        raise Inapplicable(
            "--param llm=… names the judge already; leave out --llm and --base-url.",
            "llm",
            "base_url",
        )
    elif not own_judge and not llm:
        raise ConfigError(
            f"{name} is judged by a model and none is named; say which with --llm MODEL (llm=)."
        )
    if known is made and llm is not None:
        settings["llm"] = resolve_llm(llm, **({"base_url": base_url} if base_url else {}))
    if "seed" in made.model_fields:
        settings.setdefault("seed", seed)
    built: BaseReward = made(**settings)
    return built if known is made else resolved_judge(built, llm, base_url, name)


def build_part(value: object) -> BaseReward:
    """As `build_reward`, but what is judged by a model has no judge yet: who uses the whole names
    one, or its first use is refused.
    """
    made = _reward_or_class(value)
    return made() if isinstance(made, type) and asks_for_judge(made) else build_reward(value)


def _reward_or_class(reward: object) -> Any:
    """What a name or an object stands for: a built reward, or a class of rewards."""
    made = RewardRegistry.get(reward) if isinstance(reward, str) else reward_of(reward)
    if made is None:
        raise ConfigError(
            f"reward is {reward!r:.80}; give a registered name, or a reward or its class: a class "
            f"derived from a kind such as BasePointWiseReward, with _evaluate(sample, **kwargs)."
        )
    return made


def _known_of(reward: object) -> Any:
    """What is known of a name or class before it is built: the reward or function it stands for,
    else the class.
    """
    known: Any = RewardRegistry.get(reward) if isinstance(reward, str) else reward
    return getattr(known, "stands_for", known)


def judges_for(rewards: Sequence[object], llm: Any, base_url: str | None) -> list[dict[str, Any]]:
    """For each of several rewards the judge as keywords of `build_reward`: the one given, for those
    that ask for one.

    Raises ConfigError where one is given and none of them asks.
    """
    asks = [asks_for_judge(reward) for reward in rewards]
    if rewards and not any(asks) and (llm is not None or base_url):
        raise given_in_vain({_name_of(reward): _known_of(reward) for reward in rewards})
    return [{"llm": llm, "base_url": base_url} if each else {} for each in asks]


def _name_of(reward: Any) -> str:
    kind = type(reward)
    name = getattr(reward, "__name__", None) or getattr(reward, "name", kind.__name__)
    return reward if kind is str else str(name)


def asks_for_judge(reward: object) -> bool:
    """Whether this is something that `build_reward` takes an `llm` for: a name or class, or what
    was built without its judge.
    """
    known = _known_of(reward)
    if not isinstance(known, type):
        return bool(lacking(known))
    grader = getattr(known, "grader_class", None)
    return "llm" in getattr(known, "model_fields", ()) or (
        grader is not None and "llm" in grader.needs
    )
