"""One unit by itself, for callers who come with one at a time: trainers, servers, rewards that score with another one."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl, current_deadline, current_run
from rm_gallery.core.engine.lanes import Cost, LoopLane, Unit, Work
from rm_gallery.core.engine.run import LaneName, Planned
from rm_gallery.core.engine.thread_lane import ThreadLane
from rm_gallery.core.outcome import Outcome

if TYPE_CHECKING:
    from typing_extensions import Unpack

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
