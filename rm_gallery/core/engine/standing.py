"""A run without an end: units are fed to it as they come and handed back as they finish, for servers."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import Deadline, RunControl, current_deadline, current_run
from rm_gallery.core.engine.lanes import Cost, LoopLane, Unit, Work
from rm_gallery.core.engine.run import LaneName, Planned
from rm_gallery.core.engine.thread_lane import ThreadLane
from rm_gallery.core.outcome import Outcome
from rm_gallery.core.utils.errors import DeadlineExceeded, logger

if TYPE_CHECKING:
    from typing_extensions import Unpack


Results = list[tuple[int, Any]]


class StandingRun:
    """One lane that never ends, so that all who ask share its workers, its limits and its counters.

    A run that stops (a judge that is away, a budget that is used up) or breaks (an error of the configuration) takes with
    it what is in flight, and the next unit begins a new one.

    Args:
        execute: job to value, as in a run.
        merge: (data, jobs, outcomes) to a unit's result, as in a run.
        deliver: takes (number, result) pairs; called on any thread.
        broken: takes an error that ended the run and the numbers of the units that get no result; called on any thread.
        max_workers: jobs in flight at once.
        lane: "loop" for coroutines, "threads" for plain functions.
        label: what messages call it.
    """

    def __init__(
        self,
        execute: Callable[[Any], Any],
        merge: Callable[[Any, list[Any], list[Outcome[Any]]], Any],
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
        self._max_workers, self._name, self._label = max_workers, lane, label
        self._cost = Cost()
        self._turn: _Turn | None = None
        self.calls = self.cached = self.retries = 0

    def feed(self, units: Sequence[tuple[int, Planned, Deadline]]) -> None:
        """Take numbered units, each with the time it has left; returns at once. Numbers are the caller's, and unique."""
        turn = self._turn
        if turn is None or turn.work.closed or turn.control.why_stopped is not None:
            turn = self._begin()
        turn.feed(units)

    def close(self) -> None:
        """Begin nothing more and cut what is in flight."""
        if self._turn is not None:
            self._turn.end()
            self._turn.lane.abandon()
            self._turn = None

    def counters(self) -> dict[str, int]:
        """Calls of a judge so far: made, answered by the cache, repeated."""
        control = self._turn.control if self._turn is not None else RunControl()
        return {
            "calls": self.calls + control.calls,
            "cached": self.cached + control.cached,
            "retries": self.retries + control.retries,
        }

    def _begin(self) -> _Turn:
        if self._turn is not None:
            control = self._turn.control
            self.calls += control.calls
            self.cached += control.cached
            self.retries += control.retries
            if control.stopped is not None:
                logger.warning("{}: {} What is asked from now on is tried again.", self._label, control.stopped)
            self._turn.end()
        self._turn = _Turn(self)
        return self._turn


class _Turn:
    """A run from its begin until it stops or breaks."""

    def __init__(self, standing: StandingRun) -> None:
        self.control = control = RunControl(fail_fast=None)
        workers = standing._max_workers
        control.begin(max_workers=workers, budget=None, cache=None, repeat=0)
        self._standing = standing
        self._open: dict[int, bool] = {}
        self.work = Work(standing._execute, standing._merge, control, self._deliver, self._fail, cost=standing._cost)
        threads = standing._name == "threads"
        self.lane: ThreadLane | LoopLane = (
            ThreadLane(workers, eager=False) if threads else LoopLane(self.work, workers, patience=0.0)
        )

    def feed(self, units: Sequence[tuple[int, Planned, Deadline]]) -> None:
        made = []
        for number, (data, jobs), deadline in units:
            unit = Unit(self.work, number, data, [] if jobs is None else jobs)
            unit.deadline = deadline
            made.append(unit)
            self._open[number] = True
        self.lane.feed(made)
        if self.work.closed:  # it broke meanwhile, and may have been told so before these were known
            self._fail(RuntimeError("the run ended"))

    def _deliver(self, results: Results) -> None:
        # a unit that broke the run is told so, and not also that it was not run
        known = [result for result in results if self._open.pop(result[0], False)]
        if known:
            self._standing._deliver(known)

    def _fail(self, error: BaseException) -> None:
        lost = []
        while self._open:
            lost.append(self._open.popitem()[0])
        if lost:
            self._standing._broken(error, lost)

    def end(self) -> None:
        """Give back what the run held."""
        self.control.end()


T = TypeVar("T")
MAX_ALONE = 256
"""Threads for plain functions that are called sample by sample, over the whole process."""


class _Answer:
    """The result of one unit, for a thread that waits for it or a coroutine of any event loop."""

    __slots__ = ("_wake", "error", "ready", "result")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.ready = False
        self.result: Any = None
        self.error: BaseException | None = None

    def deliver(self, results: list[tuple[int, Any]]) -> None:
        self.result = results[0][1]
        self._settle()

    def fail(self, error: BaseException) -> None:
        self.error = self.error or error
        self._settle()

    def _settle(self) -> None:
        if not self.ready:
            self.ready = True
            self._wake()

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


_shared: ThreadLane | None = None


def _alone_lane() -> ThreadLane:
    global _shared
    if _shared is None:
        _shared = ThreadLane(MAX_ALONE, eager=False)
    return _shared


def _forget_lane() -> None:
    global _shared
    _shared = None


library_loop.after_fork(_forget_lane)


class Alone(TypedDict):
    """How one unit by itself is run."""

    max_workers: int
    deadline: float | None
    lane: LaneName
    cost: Cost
    """Of what its jobs took so far; callers keep one per kind of job."""


class _Alone:
    """One unit on its way: through the lane that all plain functions called by themselves share, or a loop lane."""

    def __init__(
        self,
        planned: Planned,
        execute: Callable[[Any], Any],
        merge: Callable[[Any, list[Any], list[Outcome[Any]]], Any],
        wake: Callable[[], None],
        *,
        max_workers: int,
        deadline: float | None,
        lane: LaneName,
        cost: Cost,
    ) -> None:
        self.answer = _Answer(wake)
        control = current_run.get() or RunControl(fail_fast=None)
        self.work = Work(
            execute,
            merge,
            control,
            self.answer.deliver,
            self.answer.fail,
            deadline,
            current_deadline.get(),
            None,
            cost,
        )
        data, jobs = planned
        context = contextvars.copy_context() if lane == "threads" else None
        self.unit = Unit(self.work, 0, data, [] if jobs is None else jobs, context)
        self.lane: LoopLane | ThreadLane = LoopLane(self.work, max_workers) if lane == "loop" else _alone_lane()

    def close(self) -> None:
        """Give up what is not done."""
        library_loop.no_longer_waiting(self.work)
        if not self.answer.ready:
            self.work.closed = True
            if isinstance(self.lane, LoopLane):
                self.lane.abandon()


def run_alone(
    planned: Planned,
    execute: Callable[[Any], Any],
    merge: Callable[[Any, list[Any], list[Outcome[Any]]], T],
    **how: Unpack[Alone],
) -> T:
    """One unit as a part of the run this is called in, or of none; for callers who come with one at a time."""
    done = threading.Lock()
    done.acquire()
    alone = _Alone(planned, execute, merge, done.release, **how)
    try:
        alone.lane.feed([alone.unit])
        if isinstance(alone.lane, ThreadLane):
            with alone.lane.blocked():
                done.acquire()
        else:
            done.acquire()
        result: T = alone.answer.get()
        return result
    finally:
        alone.close()


async def arun_alone(
    planned: Planned,
    execute: Callable[[Any], Any],
    merge: Callable[[Any, list[Any], list[Outcome[Any]]], T],
    **how: Unpack[Alone],
) -> T:
    """Awaitable twin of `run_alone`, for any event loop."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def wake() -> None:
        with suppress(RuntimeError):  # its loop is closed, so nobody waits
            library_loop.post(loop, settle)

    alone = _Alone(planned, execute, merge, wake, **how)
    try:
        alone.lane.feed([alone.unit])
        await waiter
        result: T = alone.answer.get()
        return result
    finally:
        alone.close()
