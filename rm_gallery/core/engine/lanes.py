"""Where jobs run: as coroutines on the library loop, or as plain functions on daemon threads.

A unit is one sample as the engine sees it: opaque jobs, and room for their outcomes. A lane runs the jobs of the units it
is fed, `merge`s a unit when its last outcome is there, and delivers what that gives. Whatever happens to a lane or a job,
whoever waits for a unit gets a result or an error.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import Deadline, RunControl, RunStopped, current_deadline, current_run
from rm_gallery.core.engine.outcome import NOT_RUN, Outcome, outcome_of_error, scored, stopped_outcome
from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded

FLUSH_SECONDS = 0.004
"""Results wait this long for company: waking the waiting thread for each one costs more than judging it."""
LATE_SECONDS = 0.005
"""A call that ends by itself at its deadline says more about it than we do: it gets this long to."""
ABANDON_SECONDS = 0.3
"""How long code that was cancelled may take to end before its sample is given up and its task left."""
CHUNK_SECONDS = 0.005
MAX_CHUNK = 512
SHARED_SECONDS = 0.001
"""Cheap jobs that start within this time share one clock."""
CHEAP_SECONDS = 2e-4
"""Below this a job holds the interpreter lock all the time it runs: more threads only take turns."""
UNPLANNED = -1
STUCK_SECONDS = 0.1
TRIAL_THREADS = 8
WATCH_SECONDS = 0.05


class Cost:
    """Seconds that one job of a kind takes, as seen lately; None before the first."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds: float | None = None

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
    merge: Callable[[Any, list[Any], list[Outcome[Any]]], Any]
    """(data, jobs, outcomes) of a unit to its result; called for one unit at a time, on whichever thread finished it."""
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
    cost: Cost = field(default_factory=Cost)
    closed: bool = False
    """Whether no further job is begun."""

    def end(self, error: BaseException) -> None:
        """Begin nothing more and tell whoever waits."""
        self.closed = True
        self.fail(error)

    def late(self, deadline: Deadline | None, left: str = "") -> Outcome[Any]:
        """Outcome of a job that was given up at its deadline."""
        seconds = "" if self.deadline is None else f" of {self.deadline:g} s"
        note = f"; {deadline.note}" if deadline is not None and deadline.note else ""
        return outcome_of_error(DeadlineExceeded(f"No result within the deadline{seconds}{note}{left}."))


Planner = Callable[[Any], tuple[Any, list[Any]]]
"""Makes a unit's data and jobs out of what is known of it."""


class Unit:
    """One sample as the engine sees it."""

    __slots__ = ("context", "data", "deadline", "index", "jobs", "outcomes", "planner", "remaining", "work")

    jobs: list[Any]
    outcomes: list[Outcome[Any]]

    def __init__(
        self,
        work: Work,
        index: int,
        data: Any,
        jobs: list[Any] | Planner,
        context: contextvars.Context | None = None,
    ) -> None:
        self.work = work
        self.index = index
        self.context = context
        """Where its jobs run, if not in the context the lane was made in."""
        self.deadline: Deadline | None = None
        """When this unit runs out of time, set when its first job starts."""
        if isinstance(jobs, list):
            self.planner: Planner | None = None
            self._set(data, jobs)
        else:
            self.planner = jobs
            self.data = data

    def _set(self, data: Any, jobs: list[Any]) -> None:
        self.data = data
        self.jobs = jobs
        self.remaining = len(jobs)
        self.outcomes = [NOT_RUN] * self.remaining

    def plan(self) -> list[Any]:
        """The unit's jobs, planned now if they are not yet."""
        if self.planner is not None:
            planner, self.planner = self.planner, None
            self._set(*planner(self.data))
        return self.jobs

    def begin(self) -> Deadline | None:
        """The unit's deadline, counted from the first job that asks."""
        if self.deadline is None:
            work = self.work
            if work.deadline is not None:
                self.deadline = Deadline(work.deadline, work.outer)
            else:
                self.deadline = work.outer
        return self.deadline

    def finish(self) -> tuple[int, Any]:
        """(index, result) from the outcomes."""
        return self.index, self.work.merge(self.data, self.jobs, self.outcomes)


class Lane(Protocol):
    """Runs fed units and delivers finished ones to their work."""

    def feed(self, units: list[Unit]) -> None:
        """Take more units; returns at once."""

    def cancel(self, grace: float) -> None:
        """Start nothing more, give what is in flight `grace` seconds, then cut it."""

    def abandon(self) -> None:
        """Start nothing more and cut what is in flight; returns at once."""


class _Worker:
    """One of a loop lane's tasks, and the job it is at."""

    __slots__ = ("abandoned", "at", "deadline", "expired", "task", "unit")

    task: asyncio.Task[None]
    unit: Unit

    def __init__(self) -> None:
        self.at = 0
        self.deadline: Deadline | None = None
        """Of the job it is at; None while it is at none, or at one without a deadline."""
        self.expired = False
        self.abandoned = False


class LoopLane:
    """Runs jobs as coroutines on the library loop; at most `max_workers` are in flight.

    A job past its deadline is cancelled; one that will not be cancelled is given up, and its task left behind.
    """

    def __init__(self, work: Work, max_workers: int) -> None:
        self._work = work
        self._max_workers = max_workers
        self._loop = library_loop.get_loop()
        self._pending: deque[tuple[Unit, int]] = deque()
        self._workers: set[_Worker] = set()
        self._finished: list[tuple[int, Any]] = []
        self._open_units = 0
        self._flush_due = False
        self._cut = False
        self._timer: asyncio.TimerHandle | None = None
        library_loop.wake_at_end(work, work.fail)

    def feed(self, units: list[Unit]) -> None:
        """Queue units, see `Lane`."""
        if library_loop.on_loop():
            self._add(units)
        elif library_loop.is_current(self._loop):
            context = contextvars.copy_context()
            library_loop.post(self._loop, lambda: context.run(self._add, units))
        else:
            self._closed()

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

    def _closed(self) -> None:
        """The loop closed under the run: tell whoever waits, unless the whole interpreter goes."""
        if not library_loop.is_exiting():
            self._work.end(RunStopped("The run was cut off: the library's event loop was shut down."))

    def _end(self, error: BaseException) -> None:
        self._pending.clear()
        self._work.end(error)

    def _add(self, units: list[Unit]) -> None:
        if not library_loop.is_current(self._loop):
            return self._closed()
        self._open_units += len(units)
        for unit in units:
            if unit.plan():
                self._pending.extend([(unit, i) for i in range(len(unit.jobs))])
            else:
                self._complete(unit)
        for _ in range(min(self._max_workers - len(self._workers), len(self._pending))):
            self._start_worker()
        return None

    def _start_worker(self) -> None:
        worker = _Worker()
        self._workers.add(worker)
        worker.task = self._loop.create_task(self._work_off(worker))

    async def _work_off(self, worker: _Worker) -> None:
        control = self._work.control
        current_run.set(control)
        try:
            while self._pending:
                unit, i = self._pending.popleft()
                stopped = control.why_stopped
                if stopped is not None:
                    outcome = stopped_outcome(stopped)
                else:
                    worker.unit, worker.at = unit, i
                    control.in_flight += 1
                    try:
                        outcome = await self._run_one(worker, unit, unit.jobs[i])
                    finally:
                        if not worker.abandoned:
                            control.in_flight -= 1
                    if worker.abandoned:
                        return
                self._record(unit, i, outcome)
        except asyncio.CancelledError:
            self._closed()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            self._end(error)
        finally:
            # here and not in a callback: units that are added meanwhile must not count on a worker that has ended
            self._workers.discard(worker)

    async def _run_one(self, worker: _Worker, unit: Unit, job: Any) -> Outcome[Any]:
        worker.deadline = deadline = unit.begin()
        current_deadline.set(deadline)
        if deadline is not None and self._timer is None:
            self._timer = self._loop.call_later(max(0.0, deadline.left) + LATE_SECONDS, self._look)
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
                return Outcome("failed", reason="error", message="CancelledError raised by the reward.")
        except GeneratorExit:  # the loop is gone
            raise
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is recorded
            if not worker.expired or isinstance(error, DeadlineExceeded):
                return outcome_of_error(error)
        finally:
            worker.deadline = None
            if worker.expired and sys.version_info >= (3, 11):
                worker.task.uncancel()
            worker.expired = worker.expired and worker.abandoned
        return self._work.late(deadline)

    def _look(self) -> None:
        """Cancel what is late, give up what will not be cancelled, and look again when the next one can be."""
        self._timer = None
        nearest = math.inf
        for worker in list(self._workers):
            if worker.deadline is None:
                continue
            left = worker.deadline.left + LATE_SECONDS
            if left > 0:
                nearest = min(nearest, left)
            elif not worker.expired:
                worker.expired = True
                worker.task.cancel()
                nearest = min(nearest, ABANDON_SECONDS)
            elif left + ABANDON_SECONDS > 0:
                nearest = min(nearest, left + ABANDON_SECONDS)
            else:
                self._give_up(worker)
        if nearest < math.inf:
            self._timer = self._loop.call_later(max(nearest, 0.001), self._look)

    def _give_up(self, worker: _Worker) -> None:
        worker.abandoned = True
        self._workers.discard(worker)
        self._work.control.in_flight -= 1
        self._record(worker.unit, worker.at, self._work.late(worker.deadline, "; its task ignored that and was left"))
        if self._pending:
            self._start_worker()

    def _record(self, unit: Unit, i: int, outcome: Outcome[Any]) -> None:
        unit.outcomes[i] = outcome
        unit.remaining -= 1
        if unit.remaining == 0:
            self._complete(unit)

    def _complete(self, unit: Unit) -> None:
        try:
            self._finished.append(unit.finish())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            return self._end(error)
        self._open_units -= 1
        if self._open_units == 0:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_later(FLUSH_SECONDS, self._flush)
        return None

    def _flush(self) -> None:
        self._flush_due = False
        if self._finished:
            finished, self._finished = self._finished, []
            try:
                if self._work.flush is not None:
                    self._work.flush()
            except BaseException as error:  # noqa: BLE001 - a full disk ends the run; whoever waits raises it
                return self._end(error)
            self._work.deliver(finished)
        return None


class _Runner:
    """What one thread is doing: the chunk it took, how far it is, and whether it was given up."""

    __slots__ = ("abandoned", "at", "busy", "chunk", "done", "started")

    def __init__(self) -> None:
        self.chunk: list[tuple[Unit, int]] = []
        self.at = 0
        self.busy: list[int] = []
        """Holds one thing while a job runs; whoever takes it, the thread or the watchdog, says what became of the job."""
        self.done: list[tuple[Work, tuple[int, Any]]] = []
        self.started = 0.0
        self.abandoned = False


class ThreadLane:
    """Runs jobs as plain function calls on at most `max_workers` daemon threads, in chunks sized by what a job costs.

    A thread cannot be killed: a job past its deadline becomes failed(deadline), its thread is abandoned, and what that
    thread had not yet begun is run by another. One lane may serve the units of many works.
    """

    def __init__(self, max_workers: int, *, eager: bool = True) -> None:
        self._max_workers = max_workers
        self._eager = eager
        """Whether jobs of unknown cost get all threads at once, and threads leave when there is nothing more to do;
        otherwise they wait for the next unit."""
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._idle = 0
        self._merging = threading.Lock()
        self._pending: deque[tuple[Unit, int]] = deque()
        self._runners: set[_Runner] = set()
        self._blocked = 0
        self._context = contextvars.copy_context()

    def feed(self, units: list[Unit]) -> None:
        """Queue units, see `Lane`."""
        jobs = []
        known: list[tuple[Work, tuple[int, Any]]] = []
        for unit in units:
            if unit.planner is not None:
                jobs.append((unit, UNPLANNED))
            elif unit.jobs:
                jobs += [(unit, i) for i in range(len(unit.jobs))]
            else:
                self._merge(unit, known)
        self._deliver(known)
        with self._lock:
            self._pending.extend(jobs)
            alone = bool(self._idle)
            if alone:
                self._ready.notify(len(jobs))
                alone = len(self._pending) <= self._idle
        if not alone:
            self._start_runners()
        _watchdog.guard(self)

    def cancel(self, grace: float) -> None:
        """Drop waiting jobs; wait up to `grace` seconds for those running, then leave their threads behind."""
        with self._lock:
            self._pending.clear()
            running = bool(self._runners)
        end = time.monotonic() + grace
        while running and time.monotonic() < end:
            time.sleep(0.01)
            with self._lock:
                running = bool(self._runners)
        with self._lock:
            for runner in self._runners:
                runner.abandoned = True
            self._runners.clear()

    def abandon(self) -> None:
        """Drop waiting jobs and leave the threads of those running behind."""
        self.cancel(0.0)

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Let another thread take over while one of the lane's own waits for a job of the lane inside the block."""
        if getattr(_on_thread, "lane", None) is not self:
            yield
            return
        with self._lock:
            self._blocked += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocked -= 1

    def _start_runners(self) -> None:
        with self._lock:
            if not self._pending:
                return
            cost = self._pending[0][0].work.cost
            jobs = -(-len(self._pending) // cost.chunk())
            wanted = min(self._threads_wanted(cost) - len(self._runners), jobs - self._idle)
            started = [_Runner() for _ in range(wanted)]
            self._runners.update(started)
        for runner in started:
            context = self._context.copy()
            library_loop.start_thread(lambda runner=runner, context=context: context.run(self._run, runner))  # type: ignore[misc]

    def _threads_wanted(self, cost: Cost) -> int:
        """One for cheap jobs, and one more for each thread that a job holds up; else as many as are allowed."""
        most = self._max_workers + self._blocked
        if not cost.cheap and (self._eager or cost.seconds is not None):
            return most
        few = 1 if cost.cheap else TRIAL_THREADS
        now = time.monotonic()
        stuck = 0
        for runner in self._runners:
            if runner.chunk and now - runner.started > STUCK_SECONDS:
                stuck += 1
        return min(most, few + stuck + self._blocked)

    def _run(self, runner: _Runner) -> None:
        _on_thread.lane = self
        try:
            while self._take_chunk(runner):
                if self._pending:
                    self._start_runners()
                if not self._run_chunk(runner):
                    return
        finally:
            _on_thread.lane = None
            with self._lock:
                self._runners.discard(runner)

    def _take_chunk(self, runner: _Runner) -> bool:
        with self._lock:
            while self._pending and self._pending[0][0].work.closed:
                self._pending.popleft()
            while not self._pending and not self._eager and not runner.abandoned:
                self._idle += 1
                told = self._ready.wait(library_loop.IDLE_SECONDS)
                self._idle -= 1
                if not told:
                    break
            if (
                not self._pending
                or runner.abandoned
                or len(self._runners) > self._threads_wanted(cost := self._pending[0][0].work.cost)
            ):
                self._runners.discard(runner)
                return False
            pending = self._pending
            runner.at = 0
            runner.started = time.monotonic()
            chunk = [pending.popleft() for _ in range(min(cost.chunk(), len(pending)))]
            others = len(chunk)
            for k, (unit, _) in enumerate(chunk):
                if unit.work.cost is not cost:
                    others = k
                    break
            pending.extendleft(reversed(chunk[others:]))
            runner.chunk = chunk[:others]
            return True

    def _run_chunk(self, runner: _Runner) -> bool:
        """Run a chunk and deliver what it finishes; False when the thread was given up meanwhile."""
        control: RunControl | None = None
        deadline: Deadline | None = None
        sharing: Work | None = None
        shared_until = 0.0
        chunk = runner.chunk
        cost = chunk[0][0].work.cost if chunk else Cost()
        cheap = cost.cheap
        began = time.perf_counter()
        for at, (unit, i) in enumerate(chunk):
            work = unit.work
            if control is not work.control:
                control = work.control
                current_run.set(control)
            if i == UNPLANNED:
                i = 0
                if not self._plan_here(runner, unit):
                    continue
            stopped = control.stopped if control.parent is None else control.why_stopped
            if stopped is not None or work.closed:
                self._record(runner, unit, i, NOT_RUN if stopped is None else stopped_outcome(stopped))
                continue
            if work is sharing and unit.deadline is None and len(unit.jobs) == 1 and time.monotonic() < shared_until:
                unit.deadline = deadline
            else:
                deadline = unit.begin()
                current_deadline.set(deadline)
                if cheap:
                    sharing, shared_until = work, time.monotonic() + SHARED_SECONDS
            runner.at = at
            runner.busy = busy = [i]
            outcome = self._outcome(unit, unit.jobs[i], deadline)
            try:
                busy.pop()
            except IndexError:  # given up
                return False
            self._record(runner, unit, i, outcome)
        if chunk:
            cost.learn((time.perf_counter() - began) / len(chunk))
        done, runner.done, runner.chunk = runner.done, [], []
        self._deliver(done)
        return not runner.abandoned

    def _plan_here(self, runner: _Runner, unit: Unit) -> bool:
        """Plan a unit and leave all of its jobs but the first to whoever is free; False when there is none."""
        try:
            jobs = unit.plan()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            unit.work.end(error)
            return False
        if not jobs:
            self._merge(unit, runner.done)
        elif len(jobs) > 1:
            with self._lock:
                self._pending.extendleft([(unit, k) for k in range(len(jobs) - 1, 0, -1)])
            if not unit.work.cost.cheap:
                self._start_runners()
        return bool(jobs)

    def _outcome(self, unit: Unit, job: Any, deadline: Deadline | None) -> Outcome[Any]:
        work = unit.work
        try:
            if unit.context is None:
                value = work.execute(job)
                if type(value) not in _plain and awaitable(value):
                    value = _awaited(value, deadline)
            else:
                value = unit.context.copy().run(_in_context, work, job, deadline)
            return Outcome("scored", value)
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is recorded
            try:
                return outcome_of_error(error)
            except ConfigError as fatal:
                work.end(fatal)
                return NOT_RUN

    def _record(self, runner: _Runner, unit: Unit, i: int, outcome: Outcome[Any]) -> None:
        unit.outcomes[i] = outcome
        if len(unit.jobs) > 1:
            with self._lock:
                unit.remaining -= 1
                left = unit.remaining
            if left:
                return
        self._merge(unit, runner.done)

    def _merge(self, unit: Unit, done: list[tuple[Work, tuple[int, Any]]]) -> None:
        try:
            with self._merging:
                done.append((unit.work, unit.finish()))
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            unit.work.end(error)

    def _deliver(self, done: list[tuple[Work, tuple[int, Any]]]) -> None:
        """Hand results over, work by work."""
        for work, group in groupby(done, key=_work_of):
            results = [result for _, result in group]
            try:
                if work.flush is not None:
                    work.flush()
            except BaseException as error:  # noqa: BLE001 - a full disk ends the run; whoever waits raises it
                work.end(error)
            else:
                work.deliver(results)

    def watch(self) -> bool:
        """Give up jobs that are past their deadline, and start threads for what waits behind slow ones; False when idle."""
        done: list[tuple[Work, tuple[int, Any]]] = []
        with self._lock:
            running = list(self._runners)
        for runner in running:
            busy, chunk, at = runner.busy, runner.chunk, runner.at
            if not busy or at >= len(chunk):
                continue
            unit, i = chunk[at][0], busy[-1] if busy else 0
            if unit.deadline is None or unit.deadline.left > 0:
                continue
            try:
                busy.pop()
            except IndexError:  # it ended just now
                continue
            runner.abandoned = True
            with self._lock:
                self._runners.discard(runner)
                self._pending.extendleft(reversed(chunk[at + 1 :]))
            self._record(runner, unit, i, unit.work.late(unit.deadline, "; its thread was left"))
            done += runner.done
        self._deliver(done)
        if self._pending:
            self._start_runners()
        return bool(self._runners or self._pending)


def _work_of(done: tuple[Work, tuple[int, Any]]) -> Work:
    return done[0]


def _in_context(work: Work, job: Any, deadline: Deadline | None) -> Any:
    current_run.set(work.control)
    current_deadline.set(deadline)
    value = work.execute(job)
    return _awaited(value, deadline) if awaitable(value) else value


_plain: set[type] = set()


def awaitable(value: Any) -> bool:
    """Whether a value can be awaited; remembered by type, since asking a pydantic model what it lacks is slow."""
    kind = type(value)
    if kind in _plain:
        return False
    if inspect.isawaitable(value):
        return True
    if len(_plain) > 256:
        _plain.clear()
    _plain.add(kind)
    return False


def _awaited(value: Any, deadline: Deadline | None) -> Any:
    """The result of something awaitable that a plain function returned; it runs on the library loop as any coroutine."""

    async def wait() -> Any:
        return await value

    future = library_loop.submit(wait())
    try:
        return future.result(None if deadline is None else max(0.0, deadline.left) + LATE_SECONDS)
    except concurrent.futures.TimeoutError:
        if future.done():  # its own
            raise
        future.cancel()
        raise DeadlineExceeded("No result within the deadline.") from None


_on_thread = threading.local()


class _Watchdog:
    """Looks after all thread lanes that have something to do; one thread for the process, which ends when none has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: set[ThreadLane] = set()
        self._awake = False

    def guard(self, lane: ThreadLane) -> None:
        """Watch this lane until it is idle."""
        if self._awake and lane in self._lanes:
            return
        with self._lock:
            self._lanes.add(lane)
            if self._awake:
                return
            self._awake = True
        library_loop.start_thread(self._patrol)

    def _patrol(self) -> None:
        quiet = 0
        while True:
            time.sleep(WATCH_SECONDS)
            with self._lock:
                lanes, self._lanes = self._lanes, set()
            for lane in lanes:
                if lane.watch():
                    with self._lock:
                        self._lanes.add(lane)
            quiet = quiet + 1 if not self._lanes else 0
            with self._lock:
                if quiet and not self._lanes:
                    self._awake = False
                    return


_watchdog = _Watchdog()


def _reset() -> None:
    global _watchdog
    _watchdog = _Watchdog()


library_loop.after_fork(_reset)
