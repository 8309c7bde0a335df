"""Where jobs run: as coroutines on the library loop, or as plain functions on daemon threads.

A unit is one sample as the engine sees it: opaque jobs, and room for their outcomes. A lane runs
the jobs of the units it is fed, `merge`s a unit when its last outcome is there, and delivers what
that gives. Whatever happens to a lane or a job, whoever waits for a unit gets a result or an error.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import math
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import (
    NotAsked,
    RunControl,
    RunStopped,
    StopMark,
    current_deadline,
    current_run,
    note_stop,
    stop_mark,
)
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.score import (
    NOT_BEGUN,
    NOT_RUN,
    Score,
    failed,
    score_of_error,
    scored,
    stopped,
)
from rm_gallery.core.utils.errors import Cause, DeadlineExceeded

FLUSH_SECONDS = 0.004
"""Results wait this long for company: waking the waiting thread for each one costs more than
judging it.
"""
LATE_SECONDS = 0.005
"""A call that ends by itself at its deadline says more about it than we do: it gets this long to.
"""
ABANDON_SECONDS = 0.3
"""How long code that was cancelled may take to end before its sample is given up and its task left.
"""
BEAT_SECONDS = 1.0
"""How often a lane looks whether its event loop turns, and how late that may be before it says so.
"""
CHUNK_SECONDS = 0.005
MAX_CHUNK = 512
CHEAP_SECONDS = 2e-4
"""Below this a job holds the interpreter lock all the time it runs: more threads only take turns.
"""


@dataclass(eq=False)
class JobCost:
    """Seconds that one job of a kind takes, as seen lately; None before the first."""

    seconds: float | None = None

    def learn(self, seconds: float) -> None:
        """Take in what a job took on average."""
        known = self.seconds
        self.seconds = seconds if known is None else 0.7 * known + 0.3 * seconds

    @property
    def cheap(self) -> bool:
        """Whether such a job is known to be over at once."""
        return self.seconds is not None and self.seconds <= CHEAP_SECONDS

    def chunk(self) -> int:
        """How many jobs to take at a time."""
        cost = self.seconds
        return 1 if cost is None else max(1, min(MAX_CHUNK, int(CHUNK_SECONDS / max(cost, 1e-7))))


@dataclass(eq=False)
class Work:
    """What is done with some units, and who waits for them."""

    execute: Callable[[Any], Any]
    """Job to value. What it returns is awaited if it can be."""
    merge: Callable[[Any, list[Any], list[Score[Any]]], Any]
    """(data, jobs, outcomes) of a unit to its result; called for one unit at a time, on whichever
    thread finished it.
    """
    control: RunControl
    deliver: Callable[[list[tuple[int, Any]]], None]
    """Takes (index, result) pairs."""
    fail: Callable[[BaseException], None]
    """Takes the error that ends the work; the first one counts."""
    deadline: float | None = None
    """Seconds a unit may take from the start of its first job."""
    outer: Deadline | None = None
    """Of the sample this work is done for."""
    flush: Callable[[], None] | None = None
    """Called before results are delivered, to make durable what `merge` noted down."""
    cost: JobCost = field(default_factory=JobCost)
    holds: bool = False
    """Whether `deliver` takes a `Doubtful` in the place of a result."""
    ended: bool = False
    """Whether no further job is begun."""

    def hand_over(self, results: list[tuple[int, Any]]) -> None:
        """Deliver results, once they are durable."""
        try:
            if self.flush is not None:
                self.flush()
        except BaseException as error:  # noqa: BLE001 - a full disk ends the run; whoever waits raises it
            self.end(error)
        else:
            self.deliver(results)

    def end(self, error: BaseException) -> None:
        """Begin nothing more and tell whoever waits."""
        self.ended = True
        self.fail(error)

    def late(self, deadline: Deadline | None, left: str = "") -> Score[Any]:
        """Score of a job that was given up at its deadline."""
        seconds = "" if self.deadline is None else f" of {self.deadline:g} s"
        note = f"; {deadline.note}" if deadline is not None and deadline.note else ""
        by: Cause = "caller" if deadline is None else deadline.by
        return score_of_error(
            DeadlineExceeded(f"No result within the deadline{seconds}{note}{left}.", cause=by)
        )


class Unit:
    """One sample as the engine sees it."""

    __slots__ = (
        "context",
        "data",
        "deadline",
        "index",
        "jobs",
        "lost",
        "outcomes",
        "remaining",
        "work",
    )

    def __init__(
        self,
        work: Work,
        index: int,
        data: Any,
        jobs: list[Any],
        context: contextvars.Context | None = None,
    ) -> None:
        self.work = work
        self.index = index
        self.context = context
        """Where its jobs run, if not in the context the lane was made in."""
        self.deadline: Deadline | None = None
        """When this unit runs out of time, set when its first job starts."""
        self.lost: list[BaseException] = []
        """Errors of the calls that its jobs lost, and have a number all the same."""
        self.data = data
        self.jobs = jobs
        self.remaining = len(jobs)
        self.outcomes: list[Score[Any]] = [NOT_RUN] * self.remaining

    def begin(self) -> Deadline | None:
        """The unit's deadline, counted from the first job that asks."""
        if self.deadline is None:
            seconds, outer = self.work.deadline, self.work.outer
            self.deadline = outer if seconds is None else Deadline(seconds, outer)
        return self.deadline

    def finish(self) -> tuple[int, Any]:
        """(index, result) from the outcomes."""
        if self.lost and self.work.holds:
            return self.index, Doubtful(self)
        return self.index, self.work.merge(self.data, self.jobs, self.outcomes)


class Doubtful(NamedTuple):
    """A unit that has a number though calls of its jobs got no answer:
    `except Exception: return 0.5`. Where the run stops because of them, they are what came of it.
    """

    unit: Unit

    def settled(self, error: BaseException | None) -> Any:
        """The result, or the one of a unit that failed with an error."""
        unit = self.unit
        outcomes = unit.outcomes if error is None else [score_of_error(error)] * len(unit.jobs)
        return unit.work.merge(unit.data, unit.jobs, outcomes)


@dataclass(eq=False)
class _LoopWorker:
    """One of a loop lane's tasks, and the job it is at."""

    task: asyncio.Task[None] = field(init=False)
    unit: Unit = field(init=False)
    at: int = 0
    deadline: Deadline | None = None
    """Of the job it is at; None while it is at none, or at one without a deadline."""
    expired: bool = False
    cut_at: float = 0.0
    """When it was cancelled."""
    abandoned: bool = False


class LoopLane:
    """Runs jobs as coroutines on the library loop; at most `max_workers` are in flight.

    A job past its deadline is cancelled; one that will not be cancelled is given up, and its task
    left behind.
    """

    _before: library_loop.Spent
    """What the clocks said when the next look was arranged."""

    def __init__(self, work: Work, max_workers: int, patience: float = FLUSH_SECONDS) -> None:
        self._work = work
        self._max_workers = max_workers
        self._patience = patience
        self._loop = library_loop.get_loop()
        self._outer = stop_mark.get()
        self._pending: deque[tuple[Unit, int]] = deque()
        self._workers: set[_LoopWorker] = set()
        self._finished: list[tuple[int, Any]] = []
        self._open_units = 0
        self._flush_due = False
        self._cut = self._looking = False
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        library_loop.wake_at_end(work, work.fail)

    def feed(self, units: list[Unit]) -> None:
        """Queue units; returns at once."""
        if library_loop.on_loop():
            self._add_units(units)
        elif library_loop.is_current(self._loop):
            context = contextvars.copy_context()
            library_loop.post(self._loop, lambda: context.run(self._add_units, units))
        else:
            self._loop_closed()

    def cancel(self, grace: float) -> None:
        """Drop waiting jobs and cut those in flight after `grace` seconds."""
        if not library_loop.is_current(self._loop):
            return
        future = library_loop.submit(self._drain(grace))
        if library_loop.on_loop():  # a forgotten stream may be collected on any thread
            return
        try:
            future.result(grace + ABANDON_SECONDS + 1.0)
        except (TimeoutError, concurrent.futures.TimeoutError):  # two classes before Python 3.11
            future.cancel()

    def abandon(self) -> None:
        """Drop waiting jobs and cut those in flight, without waiting for it; from any thread."""
        if library_loop.is_current(self._loop):
            library_loop.submit(self._drain(0.0))

    async def _drain(self, grace: float) -> None:
        self._pending.clear()
        tasks = [worker.task for worker in self._workers]
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        self._cut = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ABANDON_SECONDS)
        self._flush()

    def _loop_closed(self) -> None:
        """The loop closed under the run: tell whoever waits, unless the whole interpreter goes."""
        if not library_loop.is_exiting():
            self._work.end(
                RunStopped("The run was cut off: the library's event loop was shut down.")
            )

    def _end_run(self, error: BaseException) -> None:
        self._pending.clear()
        self._work.end(error)

    def _add_units(self, units: list[Unit]) -> None:
        if not library_loop.is_current(self._loop):
            self._loop_closed()
            return
        self._open_units += len(units)
        for unit in units:
            if unit.jobs:
                self._pending.extend([(unit, i) for i in range(len(unit.jobs))])
            else:
                self._complete(unit)
        for _ in range(min(self._max_workers - len(self._workers), len(self._pending))):
            self._start_worker()

    def _start_worker(self) -> None:
        worker = _LoopWorker()
        self._workers.add(worker)
        worker.task = self._loop.create_task(self._work_off(worker))

    async def _work_off(self, worker: _LoopWorker) -> None:
        control, mark = self._work.control, StopMark(self._outer)
        current_run.set(control)
        stop_mark.set(mark)
        try:
            while self._pending:
                unit, i = self._pending.popleft()
                why = control.why_stopped
                if why is not None:
                    outcome = stopped(why, control.who_stopped)
                    note_stop(self._outer)
                else:
                    mark.noted = mark.declared = False
                    worker.unit, worker.at = unit, i
                    control.in_flight += 1
                    try:
                        outcome = await self._run_one(worker, unit, unit.jobs[i])
                    finally:
                        if not worker.abandoned:
                            control.in_flight -= 1
                    if worker.abandoned:
                        return
                    outcome = settled_below(mark, unit, outcome)
                self._record_outcome(unit, i, outcome)
        except asyncio.CancelledError:
            self._loop_closed()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            self._end_run(error)
        finally:
            # here and not in a callback: units that are added meanwhile must not count on a worker
            # that has ended
            self._workers.discard(worker)

    async def _run_one(self, worker: _LoopWorker, unit: Unit, job: Any) -> Score[Any]:
        worker.deadline = deadline = unit.begin()
        current_deadline.set(deadline)
        if deadline is not None and self._timer is None:
            self._look_in(max(0.0, deadline.left) + LATE_SECONDS)
        try:
            value = self._work.execute(job)
            if awaitable(value):
                value = await value
            if not worker.expired:
                return scored(value)
        except asyncio.CancelledError:
            if self._cut or not library_loop.is_current(self._loop):
                raise
            if not worker.expired:
                return failed("error", "CancelledError raised by the reward.", "rule")
        except GeneratorExit:  # the loop is gone
            raise
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is recorded
            if not worker.expired or isinstance(error, DeadlineExceeded):
                return score_of_error(error)
        finally:
            worker.deadline = None
            if worker.expired and sys.version_info >= (3, 11):
                worker.task.uncancel()
            worker.expired = worker.expired and worker.abandoned
        return self._work.late(deadline)

    def look(self) -> None:
        """Look now: the time of a job was ended. From any thread."""
        if not self._looking and library_loop.is_current(self._loop):
            self._looking = True
            library_loop.post(self._loop, self._look_now)

    def _look_now(self) -> None:
        self._looking = False
        if self._timer is not None:
            self._timer.cancel()
            self._look_at_deadlines()

    def _look_at_deadlines(self) -> None:
        """Cancel what is late, give up what will not be cancelled, and look again when the next one
        can be.
        """
        self._timer = None
        if self._loop.time() - self._due > BEAT_SECONDS:
            delay = library_loop.own_delay(
                self._before, self._due, library_loop.spent(self._loop.time())
            )
            if delay > BEAT_SECONDS:
                library_loop.stood_still(delay)
        nearest = math.inf
        for worker in list(self._workers):
            if worker.deadline is None:
                continue
            left = worker.deadline.left + LATE_SECONDS
            if left > 0:
                nearest = min(nearest, left)
            elif not worker.expired:
                worker.expired, worker.cut_at = True, self._loop.time()
                worker.task.cancel()
                nearest = min(nearest, ABANDON_SECONDS)
            elif (grace := ABANDON_SECONDS + max(left, worker.cut_at - self._loop.time())) > 0:
                nearest = min(nearest, grace)
            else:
                self._give_up(worker)
        if nearest < math.inf:
            self._look_in(max(nearest, 0.001))

    def _look_in(self, seconds: float) -> None:
        self._before = library_loop.spent(self._loop.time())
        self._due = self._before.now + min(seconds, BEAT_SECONDS)
        self._timer = self._loop.call_at(self._due, self._look_at_deadlines)

    def _give_up(self, worker: _LoopWorker) -> None:
        worker.abandoned = True
        self._workers.discard(worker)
        self._work.control.in_flight -= 1
        self._record_outcome(
            worker.unit,
            worker.at,
            self._work.late(worker.deadline, "; its task ignored that and was left"),
        )
        if self._pending:
            self._start_worker()

    def _record_outcome(self, unit: Unit, i: int, outcome: Score[Any]) -> None:
        unit.outcomes[i] = outcome
        unit.remaining -= 1
        if unit.remaining == 0:
            self._complete(unit)

    def _complete(self, unit: Unit) -> None:
        try:
            self._finished.append(unit.finish())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            self._end_run(error)
            return
        self._open_units -= 1
        if self._open_units == 0:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_later(self._patience, self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._finished:
            finished, self._finished = self._finished, []
            self._work.hand_over(finished)
            if self._work.ended:
                self._pending.clear()


def settled_below(mark: StopMark, unit: Unit, outcome: Any) -> Any:
    """What a job gave, or where a call of it was stopped with the run that it was stopped, whatever
    its code made of that. The unit hears of calls that were lost.
    """
    control = unit.work.control
    if mark.lost or mark.made_up:
        unit.lost += mark.taken(type(outcome) is not Score or outcome.ok)
    if not mark.noted or (type(outcome) is Score and outcome.code in NOT_BEGUN):
        return outcome
    why = control.why_stopped
    if why is not None:
        return stopped(why, control.who_stopped)
    return (
        failed(NotAsked.reason, "A model would have to be asked.", NotAsked.cause)
        if control.offline
        else outcome
    )


plain_types: set[type] = set()


def awaitable(value: Any) -> bool:
    """Whether a value can be awaited; remembered by type, since asking a pydantic model what it
    lacks is slow.
    """
    kind = type(value)
    if kind in plain_types:
        return False
    if inspect.isawaitable(value):
        return True
    if len(plain_types) > 256:
        plain_types.clear()
    plain_types.add(kind)
    return False
