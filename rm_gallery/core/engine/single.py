"""One unit by itself, as a part of the run it is asked for in, or of none."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl, current_deadline, current_run, stop_mark
from rm_gallery.core.engine.engine import (
    LATE_SECONDS,
    JobCost,
    Lane,
    LaneName,
    Mailbox,
    Plan,
    ThreadLane,
    Unit,
    Work,
    lane_named,
)
from rm_gallery.core.score import Score

if TYPE_CHECKING:
    from typing_extensions import Unpack

MAX_SINGLE_THREADS = 256
"""Threads for plain functions that are called sample by sample, over the whole process."""
_shared: ThreadLane | None = None


def _shared_lane() -> ThreadLane:
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


class _Single:
    """One unit on its way to a mailbox. No part of it holds itself: a cycle would cost more than the
    judging.
    """

    def __init__(
        self,
        plan: Plan,
        execute: Callable[[Any], Any],
        how: SingleRun,
    ) -> None:
        self.mailbox = box = Mailbox()
        control, outer = current_run.get() or RunControl(fail_fast=None), current_deadline.get()
        self.work = Work(
            execute, control, box.put, box.fail, how["deadline"], outer, cost=how["cost"]
        )
        self.loops = how["lane"] == "loop"
        self.unit = Unit(self.work, 0, plan, None if self.loops else contextvars.copy_context())

    @contextmanager
    def on(self, lane: Lane) -> Iterator[None]:
        """Have a lane do its jobs; who leaves early gives up what is not done."""
        try:
            lane.feed([self.unit])
            yield
        except BaseException:
            self.work.ended = True
            if lane is not _shared:
                lane.abandon()
            raise
        finally:
            library_loop.no_longer_waiting(self.work)

    def here(self) -> Any:
        """Do its jobs on the caller's thread, or where it has a deadline on one that can be left."""
        unit, result = self.unit, None
        while unit.remaining:
            unit.outcomes = [self._outcome(i) for i in range(unit.remaining)]
            unit.remaining = 0
            self.mailbox.check()
            result = unit.go_on()
        return result

    def _outcome(self, i: int) -> Score[Any]:
        unit, found, outer = self.unit, list[Score[Any]](), stop_mark.get()

        def work() -> None:
            found.append(unit.not_begun(outer) or unit.call(i))

        deadline = unit.begin()
        # Ctrl-C comes to the main thread, and a rule may start an event loop of its own
        if self.work.deadline is None and threading.current_thread() is not threading.main_thread():
            work()
        else:
            over = threading.Event()

            def work_and_tell() -> None:
                work()
                over.set()

            library_loop.start_thread(work_and_tell)
            while not over.wait(
                None if deadline is None else max(0.0, deadline.left) + LATE_SECONDS
            ) and (deadline is None or deadline.left > 0):
                pass  # its clock stood still meanwhile
        return found[0] if found else self.work.late(deadline, "; its thread was left")

    def taken(self, results: list[tuple[int, Any]]) -> Any:
        """The result; raises the error that ended the work."""
        self.mailbox.check()
        return results[0][1]


async def run_single(plan: Plan, execute: Callable[[Any], Any], **how: Unpack[SingleRun]) -> Any:
    """One unit as a part of the run this is called in, or of none; for callers who come with one at
    a time.
    """
    single, driven = _Single(plan, execute, how), library_loop.is_driven()
    if driven and not single.loops and len(single.unit.jobs) == 1:
        return single.here()
    shared = not (driven or single.loops)
    lane = _shared_lane() if shared else lane_named(how["lane"], how["max_workers"], 0.0)
    with single.on(lane):
        return single.taken(await single.mailbox.take(None))
