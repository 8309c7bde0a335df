"""From a reward and samples to the engine and back: every door of a reward goes through here."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from pydantic import ValidationError

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.batch import Batch, Parts
from rm_gallery.core.engine.context import questions, stop_mark
from rm_gallery.core.engine.engine import LaneName, awaitable
from rm_gallery.core.engine.folder import Again, RunFolder
from rm_gallery.core.engine.options import RunOptions as RunOptions
from rm_gallery.core.engine.options import chosen_options
from rm_gallery.core.engine.progress import Progress
from rm_gallery.core.engine.ray import RayPlan
from rm_gallery.core.engine.single import run_single
from rm_gallery.core.reward.blame import SecondLook
from rm_gallery.core.reward.fields import is_row
from rm_gallery.core.reward.founding import write_scores
from rm_gallery.core.reward.job import AnyReward, current_job
from rm_gallery.core.reward.judges import asks_a_model
from rm_gallery.core.reward.outputs import SampleForm, ScoresAlone, killable, said_of, writable_copy
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import DataError, Inapplicable

Samples = Iterable[DataSample | dict[str, Any]]
HOOKS = ("_evaluate", "_before_evaluate", "_after_evaluate")


ROWS = "rm_gallery.core.graders.run"
"""What scores rows of named fields; by name, since it stands above."""
_PLAIN = RunOptions()


# -- options ---------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def hook_parameters(reward: type[Any]) -> frozenset[str]:
    """Names of what a reward's hooks take besides the sample and the reply."""
    names: set[str] = set()
    for cls in reward.__mro__:
        for hook in HOOKS:
            function = vars(cls).get(hook)
            if callable(function):
                parameters = inspect.signature(function).parameters.values()
                names |= {
                    p.name
                    for p in parameters
                    if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
                }
    return frozenset(names - {"self", "cls", "sample", "response"})


def options_of(
    reward: AnyReward,
    options: RunOptions | None,
    hooks: Mapping[str, Any] | None,
    keywords: Mapping[str, Any],
    progress: bool | None = False,
    beside: Collection[str] = (),
) -> tuple[RunOptions, dict[str, Any]]:
    """The options of a call, and the values for the reward's hooks; ConfigError for a keyword that
    is neither.
    """
    kind: Any = type(reward)
    default = RunOptions(max_workers=reward.max_workers, progress=progress)
    chosen, values = chosen_options(options, default, keywords, hook_parameters(kind), beside)
    return chosen, {**values, **(hooks or {})}


# -- many samples ----------------------------------------------------------------------------------


class RewardBatch(Batch[Any]):
    """Samples, or rows, that the reward of a `form` scores: a copy of each to which its scores are
    written.
    """

    def __init__(self, form: SampleForm, samples: Samples, options: RunOptions) -> None:
        reward = form.reward
        reward.check()
        deadline, workers = (
            options.deadline or (None if options.batch else reward.deadline),
            max(options.max_workers, reward.least_workers),
        )
        options = replace(options, deadline=deadline, max_workers=workers)
        super().__init__(
            checked_samples(samples, "evaluate_batch"), options, reward.name, lane_of(reward)
        )
        self._reward, self._form = reward, form

    def _inline(self) -> Callable[[Any, int], tuple[Any, Score[Any] | None]] | None:
        options, form = self.options, self._form
        here = options.run_dir is None and options.engine is None and (options.processes or 1) < 2
        score = self._reward.at_once() if here and not form.hooks else None
        return None if score is None else partial(self._scored_at_once, score)

    def _scored_at_once(
        self, score: Callable[[DataSample], list[Score[Any]]], raw: Any, index: int
    ) -> tuple[Any, Score[Any] | None]:
        sample = self._form.copy(_sample(raw, index))
        scores, missing = score(sample), None
        for each in scores:
            if each.value is None:
                missing = each
                break
        return self._form.write(sample, scores), missing

    def _open_folder(self, options: RunOptions) -> RunFolder:
        return RunFolder(options, self._form, asks_a_model(self._reward))

    @property
    def _checks_resume(self) -> bool:
        compared: bool = self._reward.compared_again
        return compared

    def _ray_plan(self, options: RunOptions) -> RayPlan | None:
        several = (options.processes or 1) > 1
        if several and options.engine is None and not self._reward.cpu_bound:
            raise Inapplicable(
                f"processes= is for Ray's actors: give engine='ray' as well. {self._reward.name} "
                f"judges in this process else.",
                "processes",
            )
        return super()._ray_plan(options)

    def _made_again(self) -> dict[str, Any]:
        return {"form": self._form, "samples": []}

    def _run_plan(
        self, items: Samples, folder: RunFolder | Again | None, options: RunOptions
    ) -> Parts:
        reward, form = self._reward, self._form
        samples = (_sample(raw, index) for index, raw in enumerate(items))
        return (
            (form.plan(sample, folder) for sample in samples),
            executor(reward, form.hooks, options.deadline, folder, options.processes),
            # the pool of worker processes has a clock of its own, see `killable`
            replace(options, deadline=None) if reward.cpu_bound else options,
        )

    def _not_begun(self, outcome: Score[Any]) -> Callable[[DataSample | dict[str, Any], int], Any]:
        form = self._form

        def result(raw: DataSample | dict[str, Any], index: int) -> Any:
            sample = form.copy(_sample(raw, index))
            return form.write(sample, form.reward.kind.everywhere(form.reward, sample, outcome))

        return result

    async def _look_once_more(self, results: list[DataSample]) -> None:
        form, folder = self._form, self._folder
        # with the budget of the run, which its folder keeps
        options = replace(self.options, budget=self._control.budget)
        for reward, shown in form.second_looks(results):
            for sample in await look_again(reward, shown, options, form.hooks):
                item = form.found_out(reward, sample)
                if folder is not None and folder.reopen(item):
                    folder.append(item)


async def run_list(
    reward: AnyReward, samples: Samples, options: RunOptions, hooks: dict[str, Any]
) -> list[DataSample]:
    """Score all samples and return the copies in the given order."""
    return await RewardBatch(SampleForm(reward, hooks), samples, options).all()


def are_rows(reward: AnyReward, given: Any) -> bool:
    """Whether many things are rows of named fields, which the first one tells."""
    first = given[0] if isinstance(given, list | tuple) and given else None
    return not isinstance(first, DataSample | None) and is_row(reward, first)


async def run_rows(
    reward: AnyReward,
    rows: Iterable[Any],
    mapper: Any,
    options: RunOptions | None,
    keywords: dict[str, Any],
) -> list[Any]:
    """Score all rows."""
    grade_all = importlib.import_module(ROWS).grade_all
    graded: list[Any] = await grade_all(reward, mapper, rows, options, keywords)
    return graded


async def scores_of(
    reward: AnyReward, samples: Samples, options: RunOptions, hooks: dict[str, Any]
) -> list[list[Score[Any]]]:
    """For each sample, in the given order, what the reward says of its outputs."""
    if options.run_dir is None and options.blame != "probe":
        return await RewardBatch(ScoresAlone(reward, hooks), samples, options).all()
    # what is kept and what is looked at once more is written
    done = await run_list(reward, samples, options, hooks)
    return [[said_of(reward, output) for output in sample.output] for sample in done]


async def run_stream(
    reward: AnyReward,
    samples: Samples,
    options: RunOptions,
    hooks: dict[str, Any],
    **how: bool,
) -> AsyncGenerator[DataSample, None]:
    """Score samples as they come and yield the copies; `how` is that of `Batch.stream`."""
    batch = RewardBatch(SampleForm(reward, hooks), samples, options)
    async with aclosing(batch.stream(**how)) as going:
        async for _, sample in going:
            yield sample


def run_unordered(
    reward: AnyReward, samples: Samples, options: RunOptions, hooks: dict[str, Any]
) -> Generator[DataSample, None, None]:
    """Score samples in flat memory and yield the copies as they finish, for figures to which the
    order does not matter.
    """
    return library_loop.driven(run_stream(reward, samples, options, hooks, ordered=False))


async def look_again(
    reward: AnyReward,
    samples: Sequence[DataSample],
    options: RunOptions,
    hooks: dict[str, Any],
) -> list[DataSample]:
    """Find out which missing scores are the answers' own doing; those samples that have another
    score since.
    """
    look = SecondLook(reward, samples)
    while asked := look.asked:
        trial = look.probing(options)
        look.take(await scores_of(look.reward, asked, trial, hooks), _billed(options, trial))
    return look.changed


def _billed(options: RunOptions, trial: RunOptions) -> Progress | None:
    """The progress of the run, which has the calls of its second look on its bill."""
    control, other = options.control, trial.control
    if control is None or other is None:
        return None
    control.add(other)
    progress: Progress | None = control.progress
    return progress


# -- one sample ------------------------------------------------------------------------------------


def _plain_call(
    reward: AnyReward,
    options: RunOptions | None,
    hooks: Mapping[str, Any] | None,
    keywords: Mapping[str, Any],
) -> tuple[RunOptions, dict[str, Any], bool]:
    """The options, the values for the hooks, and whether the reward's own way of running one sample
    will do.
    """
    if options is None and not keywords:
        return _PLAIN, dict(hooks or {}), True
    chosen, values = options_of(reward, options, hooks, keywords)
    own = RunOptions(max_workers=reward.max_workers, blame=chosen.blame)
    in_a_run = reward.finds_blame_in_parts and chosen.blame == "probe"
    return chosen, values, chosen == own and not in_a_run


async def run_one(
    reward: AnyReward,
    sample: Any,
    options: RunOptions | None,
    hooks: Mapping[str, Any] | None,
    keywords: Mapping[str, Any],
) -> Any:
    """Score one sample, which costs itself; with options it is a batch of one."""
    if not isinstance(sample, DataSample):
        given = keywords if sample is None else sample
        if "mapper" in keywords or is_row(reward, given):
            return await importlib.import_module(ROWS).grade_one(reward, sample, options, keywords)
        sample = as_sample(sample, None)
    chosen, values, plain = _plain_call(reward, options, hooks, keywords)
    if not plain:
        return (await run_list(reward, [sample], chosen, values))[0]
    scored = writable_copy(sample)
    write_scores(reward, scored, await scores_of_one(reward, scored, values))
    if chosen.blame == "probe":
        await look_again(reward, [scored], chosen, values)
    return scored


async def scores_of_one(
    reward: AnyReward, sample: DataSample, hooks: dict[str, Any]
) -> list[Score[Any]]:
    """What the reward says of each output of a sample, as a part of the run this is called in."""
    reward.check()
    if library_loop.is_driven():
        if not hooks and (score := reward.at_once()) is not None:
            said: list[Score[Any]] = score(sample)
            return said
        library_loop.refuse_blocking()
    execute, plan = executor(reward, hooks, reward.deadline), reward.plan(sample)
    workers = max(reward.max_workers, reward.least_workers)
    deadline, lane = None if reward.cpu_bound else reward.deadline, lane_of(reward)
    scores: list[Score[Any]] = await run_single(
        plan, execute, type(reward), workers, deadline, lane
    )
    return scores


# -- samples, jobs, results ------------------------------------------------------------------------


def checked_samples(samples: Any, door: str) -> Samples:
    """`samples` as they are, or a list of samples from a list of dicts; DataError for what is no
    bunch of samples.
    """
    if hasattr(samples, "iterrows"):
        raise DataError(
            f"{door} got a {type(samples).__name__}; rows become samples with "
            f"create_loader(name=…, data_source=…, "
            'config={"data": frame.to_dict("records")}).run().'
        )
    if isinstance(samples, DataSample | Mapping | str | bytes) or not isinstance(samples, Iterable):
        raise DataError(
            f"{door} got one {type(samples).__name__}; it takes many samples: pass a list, or use "
            f"evaluate for one."
        )
    if isinstance(samples, list | tuple):  # before anything is paid for
        return [
            sample if isinstance(sample, DataSample) else as_sample(sample, index)
            for index, sample in enumerate(samples)
        ]
    return samples


def _sample(raw: DataSample | dict[str, Any], index: int | None = None) -> DataSample:
    return raw if isinstance(raw, DataSample) else as_sample(raw, index)


def as_sample(raw: Any, index: int | None) -> DataSample:
    """A sample from a dict of its fields; DataError names the sample and the field that does not
    fit.
    """
    named = "The sample" if index is None else f"Sample {index}"
    if not isinstance(raw, Mapping):
        many = (
            "; evaluate_batch scores many samples"
            if index is None and isinstance(raw, Iterable)
            else ""
        )
        raise DataError(
            f"{named} is a {type(raw).__name__}; a DataSample or a dict of its fields is "
            f"needed{many}."
        )
    try:
        return DataSample.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        is_row = not raw.keys().isdisjoint(("response", "responses"))
        rows = ", or a list of rows of named fields" if is_row else ""
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(
            f"{named}: field '{where}': {first['msg']}; a DataSample or a dict of its fields{rows}."
        ) from error


def lane_of(reward: AnyReward) -> LaneName:
    """Where a reward's jobs run; a plain function that turns out to return something awaitable is
    awaited anyway.
    """
    return "loop" if reward.cpu_bound or reward.is_async() else "threads"


def executor(
    reward: AnyReward,
    hooks: dict[str, Any],
    deadline: float | None,
    folder: RunFolder | Again | None = None,
    processes: int | None = None,
) -> Callable[[Any], Any]:
    """What makes a result from a job; a folder hears what judges are asked, and `processes` is for
    what is `cpu_bound`.
    """
    # a rule's _evaluate is checked when the reward is built
    evaluate = killable(reward, deadline, processes) if reward.cpu_bound else reward._evaluate
    judged, declared = reward.judged, reward.declares_missing
    read = partial(reward.kind.read, reward)

    async def read_later(returned: Any, sample: DataSample) -> Any:
        return read(await returned, sample)

    def execute(job: Any) -> Any:
        if isinstance(job, Exception):  # the sample could not be planned
            raise job
        if judged:
            current_job.set(job)
        if declared and (mark := stop_mark.get()) is not None:
            mark.declares_missing = True
        if folder is not None:
            questions.set(folder.questions_of(job.of))
        returned = evaluate(job.sample, **hooks)
        return (read_later if awaitable(returned) else read)(returned, job.sample)

    return execute
