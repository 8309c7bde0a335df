"""Ways through the engine: a batch with the folder that keeps what comes of it, and for servers a
run without an end, to which units are fed as they come.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Sequence, Sized
from contextlib import closing
from dataclasses import replace
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine import run as engine
from rm_gallery.core.engine.context import (
    RunControl,
    StopMark,
    current_deadline,
    current_run,
    note_stop,
    snapshot,
    stop_mark,
)
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.engine import (
    LATE_SECONDS,
    JobCost,
    Lane,
    LoopLane,
    ThreadLane,
    Unit,
    Work,
)
from rm_gallery.core.engine.folder import Again, RunFolder, options_again
from rm_gallery.core.engine.garbage import relaxed_gc
from rm_gallery.core.engine.options import BATCH_PROVIDERS, Progress, RunOptions
from rm_gallery.core.engine.ray import RayPlan
from rm_gallery.core.engine.run import LaneName, Planned, Unbegun
from rm_gallery.core.score import Score, is_run_level, stopped
from rm_gallery.core.utils.compat import earlier
from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded, logger
from rm_gallery.core.utils.spans import RunSpan

if TYPE_CHECKING:
    from typing_extensions import Unpack


Results = list[tuple[int, Any]]


class StandingRun:
    """One lane that never ends, so that all who ask share its workers, its limits and its counters.

    A run that stops (a judge that is away, a budget that is used up) or breaks (an error of the
    configuration) takes with it what is in flight, and the next unit begins a new one.

    Args:
        execute: job to value, as in a run.
        merge: (data, jobs, outcomes) to a unit's result, as in a run.
        deliver: takes (number, result) pairs; called on any thread.
        broken: takes an error that ended the run and the numbers of the units that get no result;
            called on any thread.
        max_workers: jobs in flight at once.
        lane: "loop" for coroutines, "threads" for plain functions.
        label: what messages call it.
    """

    def __init__(
        self,
        execute: Callable[[Any], Any],
        merge: Callable[[Any, list[Any], list[Score[Any]]], Any],
        deliver: Callable[[Results], None],
        broken: Callable[[BaseException, list[int]], None],
        *,
        max_workers: int,
        lane: LaneName,
        label: str,
    ) -> None:
        def in_time(job: Any) -> Any:
            deadline = current_deadline.get()
            if deadline is not None and deadline.left <= 0:  # nobody waits for it any more
                raise DeadlineExceeded("The time of its request was over before its turn came.")
            return execute(job)

        self._execute, self._merge = in_time, merge
        self._deliver, self._broken = deliver, broken
        self._max_workers, self._lane, self._label = max_workers, lane, label
        self._cost = JobCost()
        self._turn: _Turn | None = None
        self._before = dict.fromkeys(("calls", "cached", "retries"), 0)

    def feed(self, units: Sequence[tuple[int, Planned, Deadline]]) -> None:
        """Take numbered units, each with the time it has left; returns at once. Numbers are the
        caller's, and unique.
        """
        turn = self._turn
        if turn is None or turn.work.ended or turn.control.why_stopped is not None:
            turn = self._begin()
        turn.feed(units)

    def expire(self, deadline: Deadline) -> None:
        """Give up the units of a deadline: what has not begun is not begun, what waits for a reply
        is cut.
        """
        deadline.expire()
        if self._turn is not None:
            self._turn.lane.look()

    def close(self) -> None:
        """Begin nothing more and cut what is in flight."""
        if self._turn is not None:
            self._before = self.counters()
            self._turn.control.end()
            self._turn.lane.abandon()
            self._turn = None

    def counters(self) -> dict[str, int]:
        """Calls of a judge so far: made, answered by the cache, repeated."""
        if self._turn is None:
            return self._before
        return {
            name: before + getattr(self._turn.control, name)
            for name, before in self._before.items()
        }

    def _begin(self) -> _Turn:
        if self._turn is not None:
            self._before, control = self.counters(), self._turn.control
            if control.stopped is not None:
                logger.warning(
                    "{}: {} What is asked from now on is tried again.", self._label, control.stopped
                )
            control.end()
        self._turn = _Turn(self)
        return self._turn


class _Turn:
    """A run from its begin until it stops or breaks."""

    def __init__(self, run: StandingRun) -> None:
        # what is served may train, so that who is to blame is found out always
        self.control = control = RunControl(fail_fast=None, probes=True)
        workers = run._max_workers
        control.begin(max_workers=workers, budget=None, cache=None, repeat=0)
        self._run = run
        self._open: dict[int, bool] = {}
        self.work = Work(
            run._execute,
            run._merge,
            control,
            self._deliver_known,
            self._fail,
            cost=run._cost,
        )
        loops = run._lane == "loop"
        self.lane: Lane = LoopLane(workers, 0.0) if loops else ThreadLane(workers, 0.0, eager=False)

    def feed(self, units: Sequence[tuple[int, Planned, Deadline]]) -> None:
        made = []
        for number, (data, jobs), deadline in units:
            unit = Unit(self.work, number, data, [] if jobs is None else jobs)
            unit.deadline = deadline
            made.append(unit)
            self._open[number] = True
        self.lane.feed(made)
        # it broke meanwhile, and may have been told so before these were known
        if self.work.ended:
            self._fail(RuntimeError("the run ended"))

    def _deliver_known(self, results: Results) -> None:
        # a unit that broke the run is told so, and not also that it was not run
        known = [result for result in results if self._open.pop(result[0], False)]
        if known:
            self._run._deliver(known)

    def _fail(self, error: BaseException) -> None:
        lost = []
        while self._open:
            lost.append(self._open.popitem()[0])
        if lost:
            self._run._broken(error, lost)


T = TypeVar("T")
MAX_SINGLE_THREADS = 256
"""Threads for plain functions that are called sample by sample, over the whole process."""


_shared: ThreadLane | None = None


def _single_lane() -> ThreadLane:
    global _shared
    if _shared is None or not _shared.is_alive:
        _shared = ThreadLane(MAX_SINGLE_THREADS, 0.0, eager=False)
    return _shared


@library_loop.after_fork
def _forget_lane() -> None:
    global _shared
    _shared = None


class SingleRun(TypedDict):
    """How one unit by itself is run."""

    max_workers: int
    deadline: float | None
    lane: LaneName
    cost: JobCost
    """Of what its jobs took so far; callers keep one per kind of job."""


class _OneResult:
    """What became of one unit. Apart from `_SingleUnit`, so that neither holds itself: a cycle would
    cost more than the judging.
    """

    __slots__ = ("error", "over", "value", "wake")

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None
        self.over = False
        self.value: Any = None
        self.error: BaseException | None = None

    def deliver(self, results: Results) -> None:
        self.value = results[0][1]
        self._finish()

    def fail(self, error: BaseException) -> None:
        self.error = self.error or error
        self._finish()

    def _finish(self) -> None:
        if not self.over:
            self.over = True
            self.wake()

    def taken(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class _SingleUnit:
    """One unit on its way."""

    def __init__(
        self,
        planned: Planned,
        execute: Callable[[Any], Any],
        merge: Callable[[Any, list[Any], list[Score[Any]]], Any],
        how: SingleRun,
    ) -> None:
        self.end = end = _OneResult()
        control, outer = current_run.get() or RunControl(fail_fast=None), current_deadline.get()
        deadline, cost = how["deadline"], how["cost"]
        self.work = Work(
            execute, merge, control, end.deliver, end.fail, deadline, outer, None, cost
        )
        data, jobs = planned
        self.loops = how["lane"] == "loop"
        context = None if self.loops else contextvars.copy_context()
        self.unit = Unit(self.work, 0, data, [] if jobs is None else jobs, context)
        self._lane: Lane | None = None
        self._how = how

    def feed(self, lane: Lane, wake: Callable[[], None]) -> None:
        """Have a lane do its jobs."""
        self._lane, self.end.wake = lane, wake
        lane.feed([self.unit])

    def here(self) -> Any:
        """Do its jobs one after another, on the caller's thread, or where they have a deadline on
        one that can be left.
        """
        unit, found = self.unit, list[Score[Any]]()

        def work() -> None:
            for i in range(len(unit.jobs)):
                found.append(unit.not_begun(None) or unit.call(i))

        deadline = unit.begin()
        if self.work.deadline is None or deadline is None:
            work()
        else:
            over = threading.Event()

            def work_and_tell() -> None:
                work()
                over.set()

            library_loop.start_thread(work_and_tell)
            while not over.wait(max(0.0, deadline.left) + LATE_SECONDS) and deadline.left > 0:
                pass  # its clock stood still meanwhile
        unit.outcomes = found[:]
        late = self.work.late(deadline, "; its thread was left")
        unit.outcomes += [late] * (len(unit.jobs) - len(unit.outcomes))
        return self.end.taken() if self.work.ended else unit.finish()[1]

    def close(self) -> None:
        """Give up what is not done."""
        library_loop.no_longer_waiting(self.work)
        if not self.end.over:
            self.work.ended = True
            if self.loops and self._lane is not None:
                self._lane.abandon()


def run_single(
    planned: Planned,
    execute: Callable[[Any], Any],
    merge: Callable[[Any, list[Any], list[Score[Any]]], T],
    **how: Unpack[SingleRun],
) -> T:
    """One unit as a part of the run this is called in, or of none; for callers who come with one at
    a time.
    """
    single = _SingleUnit(planned, execute, merge, how)
    if not single.loops and (len(single.unit.jobs) < 2 or library_loop.on_loop()):
        result: T = single.here()
        return result
    done = threading.Lock()
    done.acquire()
    workers = how["max_workers"]
    try:
        single.feed(
            LoopLane(workers, 0.0) if single.loops else ThreadLane(workers, 0.0), done.release
        )
        done.acquire()
        result = single.end.taken()
    finally:
        single.close()
    return result


async def arun_single(
    planned: Planned,
    execute: Callable[[Any], Any],
    merge: Callable[[Any, list[Any], list[Score[Any]]], T],
    **how: Unpack[SingleRun],
) -> T:
    """Awaitable twin of `run_single`, for any event loop."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    single = _SingleUnit(planned, execute, merge, how)
    try:
        lane = LoopLane(how["max_workers"], 0.0) if single.loops else _single_lane()
        single.feed(lane, partial(library_loop.wake, waiter))
        await waiter
        result: T = single.end.taken()
        return result
    finally:
        single.close()


# -- batches ---------------------------------------------------------------------------------------


R = TypeVar("R")
Parts = tuple[Iterator[Planned | Unbegun], Callable[[Any], Any], Callable[..., R], RunOptions]
"""What the engine runs: what is to do, what does it, what writes down what came of it, and how it
goes.
"""


class Batch(Generic[R]):
    """Items on their way through the engine, and the folder that keeps what comes of them: what
    rewards and graders share.

    A subclass says what is done with the items (`_run_plan`), and where it is kept (`_open_folder`,
    `_checks_resume`).
    """

    _folder: Any = None

    def __init__(
        self, items: Iterable[Any], options: RunOptions, label: str, lane: engine.LaneName
    ) -> None:
        # a round is as large as the provider takes, and nobody's time runs out while it is waited
        # for
        if options.batch:
            most = max(options.max_workers, BATCH_PROVIDERS[options.batch])
            options = replace(options, max_workers=most, deadline=None)
        known = len(items) if isinstance(items, Sized) else length_hint(items) or None
        control, total = options.control or RunControl(), options.total if known is None else known
        self._items, self._options = items, replace(options, control=control, total=total)
        self.label, self.lane = label, lane

    def _open_folder(self, options: RunOptions) -> RunFolder:
        """The folder of the run."""
        raise NotImplementedError

    def _run_plan(self, items: Iterable[Any], folder: Any, options: RunOptions) -> Parts[R]:
        """What the engine runs."""
        raise NotImplementedError

    def _not_begun(self, outcome: Score[Any]) -> Callable[[Any, int], R]:
        """What makes the result of an item that the run did not get to, from the item and its
        number.
        """
        raise NotImplementedError

    @property
    def _checks_resume(self) -> bool:
        """Whether a run that is continued looks whether its records are what comes out now."""
        raise NotImplementedError

    def _looks_again(self, options: RunOptions) -> bool:
        """Whether control answers are tried after the run, which then says itself what failed."""
        return False

    @property
    def options(self) -> RunOptions:
        """How it goes."""
        return self._options

    def _made_again(self) -> dict[str, Any]:
        """The keywords an actor makes this batch with, besides the options."""
        raise NotImplementedError

    def _ray_plan(self, options: RunOptions) -> RayPlan | None:
        """What judges on a cluster, where that is asked for."""
        # a run inside a run is a part of a sample: it stays in the actor that judges this
        if options.engine is None or current_run.get() is not None:
            return None

        def asked(of: Any, hashes: set[str]) -> None:
            self._folder.questions_of(of).hashes.update(hashes)

        batch = type(self), self._made_again()
        return RayPlan(batch, options, None if self._folder is None else asked)

    def __enter__(self) -> Batch[R]:
        options, flush = self._options, None
        self._begin_span()
        if options.run_dir:
            self._folder = folder = self._open_folder(options)
            options, flush = folder.begin(options), folder.flush
            if options.control is not None:
                options.control.restoring = lambda: folder.restoring
            if self._checks_resume:
                folder.compare()
        self._how: engine.How = {
            "label": self.label,
            "lane": self.lane,
            "flush": flush,
            "ray": self._ray_plan(options),
            "later": self._looks_again(options),
        }
        items = iter(self._items)
        plan, execute, merge, options = self._run_plan(items, self._folder, options)
        plan = self._until_over(plan, items, options.control or RunControl())
        plan = plan if self._folder is None else self._with_resume_check(plan, options)
        self._going: Parts[R] = plan, execute, merge, options
        return self

    def _until_over(
        self, plan: Iterator[Planned | Unbegun], items: Iterator[Any], control: RunControl
    ) -> Iterator[Planned | Unbegun]:
        """The plan until the run is over; what is left of `items` is neither planned nor looked up,
        and has one outcome for all.

        The plan draws one item for each of its units.
        """
        begun = 0
        while not control.over:
            unit = next(plan, None)
            if unit is None:
                return
            yield unit
            begun += 1
        result_of = self._not_begun(stopped(control.why_stopped or "", control.who_stopped))
        for number, item in enumerate(items, begun):
            result = result_of(item, number)
            if self._folder is not None:
                self._folder.count_stopped()
            yield Unbegun(result)

    def _with_resume_check(
        self, plan: Iterator[Planned | Unbegun], options: RunOptions
    ) -> Iterator[Planned | Unbegun]:
        """The plan, and between its units finished samples are judged once more; the run stops
        where they get something else.
        """
        try:
            for unit in plan:
                yield unit
                self._compare()
            self._compare(rest=True)
        except ConfigError as error:
            if (
                is_run_level(error) and options.control is not None
            ):  # what is in flight is finished and kept, nothing more begun
                options.control.stop("the run folder holds results of something else")
            raise

    def _compare(self, *, rest: bool = False) -> None:
        check = self._folder.check
        if check is None:
            return
        if taken := check.take(rest=rest):
            began = time.monotonic()
            self._score_again(taken, options_again(self._options, self._folder.replies))
            check.learn(len(taken), time.monotonic() - began)
        control = self._options.control
        if taken and control is not None and control.progress is not None:
            control.progress.compared = f"{check.compared:,} of {check.of:,}"

    def _score_again(self, taken: list[tuple[Any, dict[str, Any]]], options: RunOptions) -> None:
        """Score items once more; ConfigError where one gets something else than its record says."""
        items, records = zip(*taken, strict=True)
        engine.run_all(
            *self._run_plan(items, Again(self._folder, records), options),
            label=self.label,
            lane=self.lane,
        )

    def _run_inline(
        self, inline: Callable[[Any, int], tuple[R, Score[Any] | None]]
    ) -> Iterator[tuple[int, R]]:
        """(index, result) item by item, each made when it is drawn; a run that stops begins no
        further one.
        """
        control = self._begin_span()
        engine.begin(control, self._options)
        total = self._options.total
        progress = control.progress = Progress(control, total, self._options.progress, self.label)
        not_begun: Callable[[Any, int], R] | None = None
        mark = StopMark(stop_mark.get())
        try:
            with relaxed_gc(total or 0):
                for index, item in enumerate(self._items):
                    if not_begun is None and control.why_stopped is not None:
                        why = stopped(control.why_stopped, control.who_stopped)
                        not_begun = self._not_begun(why)
                        note_stop(stop_mark.get())
                    if not_begun is None:
                        # set and reset item by item: between them the consumer's code runs
                        run, marked = current_run.set(control), stop_mark.set(mark)
                        try:
                            result, missing = inline(item, index)
                        finally:
                            current_run.reset(run)
                            stop_mark.reset(marked)
                        if mark.noted and control.why_stopped is not None:
                            # a call of the rule was stopped: its number is one that was made up
                            why = stopped(control.why_stopped, control.who_stopped)
                            result = self._not_begun(why)(item, index)
                            progress.stopped += 1
                        elif missing is not None:
                            progress.count((missing,))
                    else:
                        result = not_begun(item, index)
                        progress.stopped += 1
                    progress.done = index + 1
                    if progress.shown:
                        progress.tick()
                    yield index, result
            if not self._looks_again(self._options):
                progress.account()
        except KeyboardInterrupt:
            control.stop(engine.INTERRUPTED, halt=True)
            raise
        finally:
            if not library_loop.is_exiting():
                progress.close()
                control.end()
            self._end_span()

    def _begin_span(self) -> RunControl:
        control, outer = self._options.control, current_run.get()
        assert control is not None
        about = {"rm_gallery.reward": self.label, "rm_gallery.samples": self._options.total}
        self._span = RunSpan(f"rm_gallery.run {self.label}", about, outer and outer.span)
        control.span = self._span.context
        return control

    def _end_span(self) -> None:
        control = self._options.control
        if control is not None:
            spent = {name: value for name, value in snapshot(control).items() if value is not None}
            attributes = {f"rm_gallery.{name}": value for name, value in spent.items()}
            self._span.end({**attributes, "rm_gallery.stopped": control.stopped})

    def __exit__(self, *_: object) -> None:
        self._end_span()
        if self._folder is not None:
            self._folder.close(self._options.control)

    def _inline(self) -> Callable[[Any, int], tuple[R, Score[Any] | None]] | None:
        """What makes the result of an item, and the score it lacks, at once on the caller's thread;
        None where items go through a lane.
        """
        return None

    def all(self) -> list[R]:
        """All results, in order."""
        if (inline := self._inline()) is not None:
            return [result for _, result in self._run_inline(inline)]
        with self:
            return engine.run_all(*self._going, **self._how)

    async def aall(self) -> list[R]:
        """Awaitable twin of `all`."""
        results = {index: result async for index, result in self.astream(ordered=False)}
        return [results[index] for index in range(len(results))]

    def stream(self, **how: Any) -> Generator[tuple[int, R], None, None]:
        """(index, result) as they come; `streaming` draws items as results are taken,
        `ordered=False` takes them as they finish.
        """
        if (inline := self._inline()) is not None:
            yield from self._run_inline(inline)
            return
        with self:
            with closing(engine.run(*self._going, **self._how, **how)) as going:
                yield from going

    async def astream(self, **how: Any) -> AsyncGenerator[tuple[int, R], None]:
        """Awaitable twin of `stream`."""
        with self:
            if self._folder is not None and self._folder.restoring:
                # comparing blocks, and so the plan is drawn from on a thread
                how["streaming"] = True
            async for pair in engine.arun(*self._going, **self._how, **how):
                yield pair


def __getattr__(name: str) -> Any:
    return earlier(__name__, name)
