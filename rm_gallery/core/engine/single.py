"""One unit by itself, as a part of the run it is asked for in, or of none."""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl, current_deadline, current_run
from rm_gallery.core.engine.engine import (
    JobCost,
    LaneName,
    Plan,
    Results,
    ThreadLane,
    Unit,
    Work,
    lane_named,
)

MAX_SINGLE_THREADS = 256
"""Threads for plain functions that are called sample by sample, over the whole process."""
_shared: ThreadLane | None = None


def _shared_lane() -> ThreadLane:
    global _shared
    if _shared is None:
        _shared = ThreadLane(MAX_SINGLE_THREADS, 0.0, eager=False)
    return _shared


@library_loop.after_fork
def _forget_lane() -> None:
    global _shared
    _shared = None


_costs: weakref.WeakKeyDictionary[type, JobCost] = weakref.WeakKeyDictionary()
"""What jobs of a kind took so far."""


async def run_single(
    plan: Plan,
    execute: Callable[[Any], Any],
    kind: type,
    max_workers: int,
    deadline: float | None,
    lane: LaneName,
) -> Any:
    """One unit as a part of the run this is called in, or of none; for callers who come with one at
    a time. Who leaves early gives up what is not done. What jobs of its `kind` take is learnt.
    """
    done: Future[Any] = Future()

    def deliver(results: Results) -> None:
        with suppress(InvalidStateError):  # nobody waits any more
            done.set_result(results[0][1])

    def fail(error: BaseException) -> None:
        with suppress(InvalidStateError):
            done.set_exception(error)

    control, outer = current_run.get() or RunControl(fail_fast=None), current_deadline.get()
    cost = _costs.setdefault(kind, JobCost())
    work = Work(execute, control, deliver, fail, deadline, outer, cost=cost)
    # a thread that waits for a thread must not wait for its own
    driven, threads = library_loop.is_driven(), lane == "threads"
    shared = threads and not driven
    unit = Unit(work, 0, plan, contextvars.copy_context() if threads else None)
    own = _shared_lane() if shared else lane_named(lane, max_workers, 0.0)
    try:
        own.feed([unit])
        return done.result() if driven else await asyncio.wrap_future(done)
    except BaseException:
        work.ended = True
        if not shared:
            own.abandon()
        raise
    finally:
        library_loop.no_longer_waiting(work)
