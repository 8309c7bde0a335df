"""The thread lane: plain functions on daemon threads, and the watchdog that gives up what is late."""

from __future__ import annotations

import concurrent.futures
import contextvars
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import (
    RunControl,
    StopMark,
    current_deadline,
    current_run,
    note_stop,
    stop_mark,
)
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.lanes import (
    LATE_SECONDS,
    JobCost,
    Unit,
    Work,
    awaitable,
    plain_types,
    settled_below,
)
from rm_gallery.core.score import NOT_RUN, Score, score_of_error, stopped
from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded

SHARED_SECONDS = 0.001
"""Cheap jobs that start within this time share one clock."""
STUCK_SECONDS = 0.1
TRIAL_THREADS = 8
WATCH_SECONDS = 0.05
Done = tuple[Work, tuple[int, Any]]
"""Whose unit it was, and its (index, result)."""


@dataclass(eq=False)
class _Runner:
    """What one thread is doing: the chunk it took, how far it is, and whether it was given up."""

    chunk: list[tuple[Unit, int]] = field(default_factory=list)
    at: int = 0
    busy: list[int] = field(default_factory=list)
    """Holds one thing while a job runs; whoever takes it, the thread or the watchdog, says what
    became of the job.
    """
    done: list[Done] = field(default_factory=list)
    mark: StopMark = field(default_factory=lambda: StopMark(None))
    started: float = 0.0
    abandoned: bool = False


class ThreadLane:
    """Runs jobs as plain function calls on at most `max_workers` daemon threads, in chunks sized by
    what a job costs.

    A thread cannot be killed: a job past its deadline becomes failed(deadline), its thread is
    abandoned, and what that thread had not yet begun is run by another. One lane may serve the
    units of many works.
    """

    def __init__(self, max_workers: int, *, eager: bool = True) -> None:
        self._max_workers = max_workers
        self._eager = eager
        """Whether jobs of unknown cost get all threads at once, and threads leave when there is
        nothing more to do; otherwise they wait for the next unit."""
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._idle = 0
        self._merging = threading.Lock()
        self._pending: deque[tuple[Unit, int]] = deque()
        self._runners: set[_Runner] = set()
        self._blocked = 0
        self._context = contextvars.copy_context()

    def feed(self, units: list[Unit]) -> None:
        """Queue units; returns at once."""
        jobs = []
        known: list[Done] = []
        for unit in units:
            if unit.jobs:
                jobs += [(unit, i) for i in range(len(unit.jobs))]
            else:
                self._merge(unit, known)
        self._hand_over(known)
        with self._lock:
            self._pending.extend(jobs)
            enough_idle = bool(self._idle)
            if enough_idle:
                self._ready.notify(len(jobs))
                enough_idle = len(self._pending) <= self._idle
        _watchdog.guard(self)
        if not enough_idle:
            self._start_runners()

    def cancel(self, grace: float) -> None:
        """Drop waiting jobs; wait up to `grace` seconds for those running, then leave their threads
        behind.
        """
        with self._lock:
            self._pending.clear()
        end = time.monotonic() + grace
        while self._runners and time.monotonic() < end:
            time.sleep(0.01)
        with self._lock:
            for runner in self._runners:
                runner.abandoned = True
            self._runners.clear()

    def abandon(self) -> None:
        """Drop waiting jobs and leave the threads of those running behind."""
        self.cancel(0.0)

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Let another thread take over while one of the lane's own waits for a job of the lane
        inside the block.
        """
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
        for number, runner in enumerate(started):
            context = self._context.copy()
            try:
                library_loop.start_thread(
                    lambda runner=runner, context=context: context.run(self._run_jobs, runner)  # type: ignore[misc]
                )
            except RuntimeError:
                with self._lock:
                    self._runners.difference_update(started[number:])
                    if self._runners:  # those there are do the rest
                        return
                raise

    def _threads_wanted(self, cost: JobCost) -> int:
        """One for cheap jobs, and one more for each thread that a job holds up; else as many as are
        allowed.
        """
        most = self._max_workers + self._blocked
        if not cost.cheap and (self._eager or cost.seconds is not None):
            return most
        few = 1 if cost.cheap else TRIAL_THREADS
        since = time.monotonic() - STUCK_SECONDS
        stuck = sum(bool(runner.chunk) and runner.started < since for runner in self._runners)
        return min(most, few + stuck + self._blocked)

    def _run_jobs(self, runner: _Runner) -> None:
        _on_thread.lane = self
        runner.mark = StopMark(stop_mark.get())
        stop_mark.set(runner.mark)
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
            while self._pending and self._pending[0][0].work.ended:
                self._pending.popleft()
            while not self._pending and not self._eager and not runner.abandoned:
                self._idle += 1
                notified = self._ready.wait(library_loop.IDLE_SECONDS)
                self._idle -= 1
                if not notified:
                    break
            pending = self._pending
            cost = pending[0][0].work.cost if pending else JobCost()
            if not pending or runner.abandoned or len(self._runners) > self._threads_wanted(cost):
                self._runners.discard(runner)
                if pending and self._idle:  # the call was for this one, and it leaves
                    self._ready.notify()
                return False
            runner.at, runner.started, runner.chunk = 0, time.monotonic(), []
            for _ in range(min(cost.chunk(), len(pending))):
                if pending[0][0].work.cost is not cost:
                    break
                runner.chunk.append(pending.popleft())
            return True

    def _run_chunk(self, runner: _Runner) -> bool:
        """Run a chunk and deliver what it finishes; False when the thread was given up meanwhile."""
        control: RunControl | None = None
        deadline: Deadline | None = None
        sharing: Work | None = None
        shared_until = 0.0
        chunk = runner.chunk
        cost = chunk[0][0].work.cost if chunk else JobCost()
        cheap = cost.cheap
        mark = runner.mark
        began = time.perf_counter()
        for at, (unit, i) in enumerate(chunk):
            work = unit.work
            if control is not work.control:
                control = work.control
                current_run.set(control)
            why = control.stopped if control.parent is None else control.why_stopped
            if why is not None or work.ended:
                note_stop(mark.outer)
                self._record_outcome(
                    runner,
                    unit,
                    i,
                    NOT_RUN if why is None else stopped(why, control.who_stopped),
                )
                continue
            if (
                work is sharing
                and len(unit.jobs) == 1
                and unit.deadline is None
                and time.monotonic() < shared_until
            ):
                unit.deadline = deadline
            else:
                deadline = unit.begin()
                current_deadline.set(deadline)
                if cheap:
                    sharing, shared_until = work, time.monotonic() + SHARED_SECONDS
            runner.at = at
            runner.busy = busy = [i]
            mark.noted = mark.declared = False
            outcome = self._outcome(unit, i, deadline)
            try:
                busy.pop()
            except IndexError:  # given up
                return False
            self._record_outcome(runner, unit, i, settled_below(mark, unit, outcome))
        if chunk:
            cost.learn((time.perf_counter() - began) / len(chunk))
        done, runner.done, runner.chunk = runner.done, [], []
        self._hand_over(done)
        return not runner.abandoned

    def _outcome(self, unit: Unit, i: int, deadline: Deadline | None) -> Score[Any]:
        work, job = unit.work, unit.jobs[i]
        try:
            if unit.context is None:
                value = work.execute(job)
                if type(value) not in plain_types and awaitable(value):
                    value = _wait_for(value, deadline)
            else:
                value = unit.context.copy().run(_in_context, work, job, deadline)
            return Score(value)
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is recorded
            return _raised(work, error)

    def _record_outcome(self, runner: _Runner, unit: Unit, i: int, outcome: Score[Any]) -> None:
        unit.outcomes[i] = outcome
        if len(unit.jobs) > 1:
            with self._lock:
                unit.remaining -= 1
                left = unit.remaining
            if left:
                return
        self._merge(unit, runner.done)

    def _merge(self, unit: Unit, done: list[Done]) -> None:
        try:
            with self._merging:
                done.append((unit.work, unit.finish()))
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            unit.work.end(error)

    def _hand_over(self, done: list[Done]) -> None:
        """Hand results over, work by work."""
        for work, group in groupby(done, key=itemgetter(0)):
            work.hand_over([result for _, result in group])

    def watch(self) -> bool:
        """Give up jobs that are past their deadline, and start threads for what waits behind slow
        ones; False when idle.
        """
        done: list[Done] = []
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
            self._record_outcome(
                runner, unit, i, unit.work.late(unit.deadline, "; its thread was left")
            )
            done += runner.done
        self._hand_over(done)
        if self._pending:
            self._start_runners()
        return bool(self._runners or self._pending)


def _raised(work: Work, error: BaseException) -> Score[Any]:
    try:
        return score_of_error(error)
    except ConfigError as fatal:
        work.end(fatal)
        return NOT_RUN


def _in_context(work: Work, job: Any, deadline: Deadline | None) -> Any:
    current_run.set(work.control)
    current_deadline.set(deadline)
    mark, ok = StopMark(stop_mark.get()), False
    stop_mark.set(mark)
    try:
        value = work.execute(job)
        value, ok = _wait_for(value, deadline) if awaitable(value) else value, True
    finally:
        mark.taken(ok)
    return value


def _wait_for(value: Any, deadline: Deadline | None) -> Any:
    """The result of something awaitable that a plain function returned; it runs on the library loop
    as any coroutine.
    """

    async def wait() -> Any:
        return await value

    future = library_loop.submit(wait())
    while True:
        try:
            return future.result(
                None if deadline is None else max(0.0, deadline.left) + LATE_SECONDS
            )
        except concurrent.futures.TimeoutError:
            if future.done():  # its own
                raise
            if deadline is not None and deadline.left > 0:  # its clock stood still meanwhile
                continue
            future.cancel()
            raise DeadlineExceeded("No result within the deadline.") from None


_on_thread = threading.local()


class _Watchdog:
    """Looks after all thread lanes that have something to do; one thread for the process, which
    ends when none has.
    """

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
        try:
            library_loop.start_thread(self._patrol)
        except RuntimeError:
            self._awake = False
            raise

    def _patrol(self) -> None:
        quiet = 0
        while True:
            time.sleep(WATCH_SECONDS)
            with self._lock:
                lanes, self._lanes = self._lanes, set()
            for lane in lanes:
                try:
                    busy = lane.watch()
                except RuntimeError:  # no thread to be had now
                    busy = True
                if busy:
                    with self._lock:
                        self._lanes.add(lane)
            quiet = quiet + 1 if not self._lanes else 0
            with self._lock:
                if quiet and not self._lanes:
                    self._awake = False
                    return


_watchdog = _Watchdog()


@library_loop.after_fork
def _reset() -> None:
    global _watchdog
    _watchdog = _Watchdog()
