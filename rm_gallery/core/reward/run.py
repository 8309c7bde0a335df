"""From a reward and samples to the engine and back: every door of a reward goes through here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl, current_run
from rm_gallery.core.engine.lane_loop import LoopLane
from rm_gallery.core.engine.lane_threads import WATCH_SECONDS, ThreadLane
from rm_gallery.core.engine.progress import Progress
from rm_gallery.core.engine.relaxed_gc import relaxed_gc
from rm_gallery.core.engine.run import RunOptions as RunOptions
from rm_gallery.core.engine.scheduler import FutureBox, Lane, Mailbox, Unit, Work, stream
from rm_gallery.core.reward.merge import writable_copy
from rm_gallery.core.reward.reward import BaseReward, Job
from rm_gallery.core.reward.run_folder import RunFolder
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import ConfigError, DataError

MIN_WINDOW = 2048
"""Samples fed and not yet handed back, at least: enough to keep every worker busy, little enough for flat memory."""


class _Item(NamedTuple):
    sample: DataSample
    restored: bool


def with_keywords(
    options: RunOptions | None,
    reward: BaseReward,
    max_workers: int | None,
    deadline: float | None,
    progress: bool | None,
    run_dir: str | None,
) -> RunOptions:
    """`options` (or defaults) with the keywords of a call on top."""
    chosen = options or RunOptions(max_workers=reward.max_workers, progress=None)
    if max_workers is not None and max_workers < 0:
        raise ConfigError(f"max_workers is {max_workers}; give a positive number, or 0 for the reward's own.")
    if max_workers:
        chosen = replace(chosen, max_workers=max_workers)
    if deadline is not None:
        chosen = replace(chosen, deadline=deadline)
    if progress is not None:
        chosen = replace(chosen, progress=progress)
    return replace(chosen, run_dir=str(run_dir)) if run_dir is not None else chosen


def run_list(
    reward: BaseReward, samples: Iterable[DataSample | dict[str, Any]], options: RunOptions, kwargs: dict[str, Any]
) -> list[DataSample]:
    """Score all samples and return the copies in the given order."""
    # as they finish, and put in order once: a queue in between would only be there for streams
    found = dict(_run(reward, samples, options, kwargs, ordered=False))
    return [found[index] for index in range(len(found))]


def run_stream(
    reward: BaseReward, samples: Iterable[DataSample | dict[str, Any]], options: RunOptions, kwargs: dict[str, Any]
) -> Iterator[DataSample]:
    """Score samples lazily and yield the copies in the given order."""
    for _, sample in _run(reward, samples, options, kwargs, ordered=True):
        yield sample


def _run(
    reward: BaseReward,
    samples: Iterable[DataSample | dict[str, Any]],
    options: RunOptions,
    kwargs: dict[str, Any],
    ordered: bool,
) -> Iterator[tuple[int, DataSample]]:
    reward.check()
    control = options.control or RunControl()
    _apply(options, control)
    folder = RunFolder.open(reward, options, kwargs) if options.run_dir else None
    total = len(samples) if isinstance(samples, Sized) else options.total
    progress = Progress(control, total, options.progress, reward.name)
    shown = progress if progress.shown else None
    work = _work(reward, kwargs, _merger(reward, folder, shown), options.deadline or reward.deadline, control)
    work.flush = folder.flush if folder is not None else None
    lane = _lane(reward, work, options.max_workers)
    window = max(MIN_WINDOW, 4 * options.max_workers)
    tick = progress.tick if progress.shown else None
    try:
        units = _units(reward, samples, folder, shown)
        with relaxed_gc():
            yield from stream(units, lane, control, window=window, ordered=ordered, on_tick=tick)
    finally:
        # a stream that is still open when the interpreter goes: its results are on disk, and nothing else works any more
        if not library_loop.is_exiting():
            progress.close()
            if folder is not None:
                folder.close(control)


async def run_one(reward: BaseReward, sample: DataSample | dict[str, Any], kwargs: dict[str, Any]) -> DataSample:
    """Score one sample from any event loop without blocking it."""
    reward.check()
    control = current_run.get() or RunControl(fail_fast=None)
    box: FutureBox[DataSample] = FutureBox()
    work = _work(reward, kwargs, _merger(reward, None, None), reward.deadline, control)
    lane = _lane(reward, work, reward.max_workers, box)
    lane.feed(list(_units(reward, [sample], None, None)))
    watcher = None
    if isinstance(lane, ThreadLane) and work.deadline is not None:
        watcher = asyncio.ensure_future(_watch(lane, work.deadline))
    try:
        return await asyncio.wrap_future(box.future)
    except asyncio.CancelledError:
        lane.abandon()
        raise
    finally:
        if watcher is not None:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher


async def _watch(lane: ThreadLane[DataSample], deadline: float) -> None:
    await asyncio.sleep(deadline)  # nothing can be late any earlier
    while True:
        lane.watch()
        await asyncio.sleep(WATCH_SECONDS)


def _apply(options: RunOptions, control: RunControl) -> None:
    outer = current_run.get()  # a hook that scores samples itself spends the budget of the run it is part of
    control.max_workers = options.max_workers
    control.budget = options.budget or (outer.budget if outer is not None else None)
    control.use_cache = options.cache
    control.repeat = options.repeat


def _lane(
    reward: BaseReward, work: Work[DataSample], max_workers: int, mailbox: Mailbox[DataSample] | None = None
) -> Lane[DataSample]:
    if reward.is_async() or reward.cpu_bound:
        return LoopLane(work, max_workers, mailbox)
    return ThreadLane(work, max_workers, mailbox)


def _work(
    reward: BaseReward,
    kwargs: dict[str, Any],
    merge: Callable[[Unit], DataSample],
    deadline: float | None,
    control: RunControl,
) -> Work[DataSample]:
    if not reward.cpu_bound:
        evaluate = reward._evaluate  # type: ignore[attr-defined]  # checked when the reward was built
        return Work(lambda job: evaluate(job.sample, **kwargs), merge, deadline, control)

    async def in_worker(job: Job) -> RewardResult:
        from rm_gallery.core.engine.workers.pool import get_pool

        return await get_pool().asubmit(evaluate_here, reward, job.sample, kwargs, deadline=deadline)

    # the pool's clock runs from the start of a job in its process: waiting behind one that hangs costs nobody else
    return Work(in_worker, merge, None, control)


def evaluate_here(reward: Any, sample: DataSample, kwargs: dict[str, Any]) -> RewardResult:
    """What a worker process runs for a `cpu_bound` reward."""
    result: RewardResult = reward._evaluate(sample, **kwargs)
    return result


def _units(
    reward: BaseReward,
    samples: Iterable[DataSample | dict[str, Any]],
    folder: RunFolder | None,
    progress: Progress | None,
) -> Iterator[Unit]:
    for index, raw in enumerate(samples):
        sample = writable_copy(raw if isinstance(raw, DataSample) else as_sample(raw, index))
        if folder is not None and folder.restore(sample):
            if progress is not None:
                progress.reused += 1
            yield Unit(index, [], _Item(sample, True))
        else:
            yield Unit(index, list(reward.plan(sample)), _Item(sample, False))


def as_sample(raw: Any, index: int) -> DataSample:
    """A sample from a dict of its fields; DataError names the sample and the field that does not fit."""
    try:
        return DataSample.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(
            f"Sample {index}: field '{where}': {first['msg']}; a DataSample or a dict of its fields."
        ) from error


def _merger(reward: BaseReward, folder: RunFolder | None, progress: Progress | None) -> Callable[[Unit], DataSample]:
    def merge(unit: Unit) -> DataSample:
        item: _Item = unit.data
        sample, restored = item
        if not restored:
            reward.merge(sample, unit.jobs, unit.outcomes)
            if folder is not None:
                folder.append(sample)
        if progress is not None:
            progress.done += 1
            statuses = {outcome.status for outcome in unit.outcomes}
            progress.unscored += "unscored" in statuses
            progress.failed += "failed" in statuses
        return sample

    return merge
