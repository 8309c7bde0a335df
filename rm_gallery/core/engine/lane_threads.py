"""The thread lane: plain functions on at most `max_workers` daemon threads, in chunks sized by what a job costs."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import Any, Generic, TypeVar

from rm_gallery.core.engine import threads
from rm_gallery.core.engine.context import current_deadline, current_run
from rm_gallery.core.engine.lane_loop import stopped_outcome
from rm_gallery.core.engine.outcome import Outcome, outcome_of_error, scored
from rm_gallery.core.engine.scheduler import Mailbox, PendingJobs, Unit, Work
from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded

R = TypeVar("R")
CHUNK_SECONDS = 0.005
MAX_CHUNK = 512
CHEAP_SECONDS = 2e-4
"""Below this a job holds the interpreter lock all the time it runs: more threads only take turns."""
STUCK_SECONDS = 0.1
WATCH_SECONDS = 0.05


class _Runner:
    """What one thread is doing: the chunk it took, how far it is, and whether it was given up."""

    __slots__ = ("abandoned", "at", "chunk", "results", "started")

    def __init__(self) -> None:
        self.chunk: list[tuple[Unit, int]] = []
        self.results: list[Outcome[Any]] = []
        self.at = 0
        self.started = 0.0
        self.abandoned = False


class ThreadLane(Generic[R]):
    """Runs jobs whose `execute` is a plain function.

    A thread cannot be killed: a job past its deadline becomes failed(deadline), its thread is abandoned, and what that
    thread had not yet begun is run by another.
    """

    def __init__(self, work: Work[R], max_workers: int, mailbox: Mailbox[R] | None = None) -> None:
        self._work = work
        self._max_workers = max_workers
        self._lock = threading.Lock()
        self._merging = threading.Lock()
        self._pending = PendingJobs()
        self._runners: set[_Runner] = set()
        self._mailbox: Mailbox[R] = mailbox or Mailbox()
        self._seconds_per_job: float | None = None

    def feed(self, units: list[Unit]) -> None:
        """Queue units, see `Lane`."""
        self._emit([unit for unit in units if not unit.jobs])
        with self._lock:
            self._pending.add(units)
        self._start_runners()

    def collect(self, timeout: float | None) -> list[tuple[int, R]]:
        """Finished results, see `Lane`; while waiting it watches for jobs past their deadline."""
        if self._work.deadline is None:
            return self._mailbox.take(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WATCH_SECONDS if end is None else min(WATCH_SECONDS, max(0.0, end - time.monotonic()))
            results = self._mailbox.take(left)
            if results:
                return results
            self.watch()
            if end is not None and time.monotonic() >= end:
                return []

    def cancel(self, grace: float) -> None:
        """Drop waiting jobs; wait up to `grace` seconds for those running, then leave their threads behind."""
        with self._lock:
            self._pending = PendingJobs()
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

    def _start_runners(self) -> None:
        with self._lock:
            jobs = len(self._pending)
            if self._seconds_per_job is not None:
                jobs = -(-jobs // self._chunk_size())
            started = [_Runner() for _ in range(min(self._threads_wanted() - len(self._runners), jobs))]
            self._runners.update(started)
        for runner in started:
            context = contextvars.copy_context()
            threads.start(lambda runner=runner, context=context: context.run(self._run, runner))  # type: ignore[misc]

    def _threads_wanted(self) -> int:
        """One for cheap jobs, and one more for each thread that a job holds up; else as many as are allowed."""
        cost = self._seconds_per_job
        if cost is None or cost > CHEAP_SECONDS:
            return self._max_workers
        now = time.monotonic()
        stuck = sum(bool(runner.chunk) and now - runner.started > STUCK_SECONDS for runner in self._runners)
        return min(self._max_workers, 1 + stuck)

    def _chunk_size(self) -> int:
        cost = self._seconds_per_job
        return 1 if cost is None else max(1, min(MAX_CHUNK, int(CHUNK_SECONDS / max(cost, 1e-7))))

    def _run(self, runner: _Runner) -> None:
        current_run.set(self._work.control)
        try:
            while self._take_chunk(runner):
                self._run_chunk(runner)
                if not self._hand_in(runner):
                    return
        except BaseException as error:  # noqa: BLE001 - handed to the waiting thread, which raises it
            with self._lock:
                self._runners.discard(runner)
                self._pending = PendingJobs()
            self._mailbox.fail(error)

    def _take_chunk(self, runner: _Runner) -> bool:
        with self._lock:
            if not len(self._pending) or runner.abandoned or len(self._runners) > self._threads_wanted():
                self._runners.discard(runner)
                return False
            size = min(self._chunk_size(), len(self._pending))
            runner.results = []
            runner.at = 0
            runner.started = time.monotonic()
            runner.chunk = [self._pending.pop() for _ in range(size)]
            return True

    def _run_chunk(self, runner: _Runner) -> None:
        work, control = self._work, self._work.control
        chunk_started = time.perf_counter()
        for at, (unit, i) in enumerate(runner.chunk):
            runner.at = at
            if runner.abandoned:
                return
            if control.stopped is not None:
                runner.results.append(stopped_outcome(control.stopped))
                continue
            current_deadline.set(unit.end(work.deadline))
            try:
                runner.results.append(scored(work.execute(unit.jobs[i])))
            except ConfigError:
                raise
            except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - recorded
                runner.results.append(outcome_of_error(error))
        self._learn((time.perf_counter() - chunk_started) / len(runner.chunk))

    def _learn(self, seconds: float) -> None:
        known = self._seconds_per_job
        self._seconds_per_job = seconds if known is None else 0.7 * known + 0.3 * seconds

    def _hand_in(self, runner: _Runner) -> bool:
        with self._lock:
            if runner.abandoned:
                return False
            complete = self._record(runner.chunk, runner.results)
            runner.chunk = []
        self._emit(complete)
        if len(self._pending) and len(self._runners) < self._threads_wanted():
            self._start_runners()
        return True

    def _record(self, chunk: list[tuple[Unit, int]], results: list[Outcome[Any]]) -> list[Unit]:
        complete = []
        for (unit, i), outcome in zip(chunk, results, strict=False):
            unit.outcomes[i] = outcome
            unit.remaining -= 1
            if unit.remaining == 0:
                complete.append(unit)
        return complete

    def _emit(self, complete: list[Unit]) -> None:
        if complete:
            with self._merging:
                results = [(unit.index, self._work.merge(unit)) for unit in complete]
            if self._work.flush is not None:
                self._work.flush()
            self._mailbox.put(results)

    def watch(self) -> None:
        """Give up jobs that are past their deadline; called regularly by whoever waits."""
        complete: list[Unit] = []
        with self._lock:
            for runner in list(self._runners):
                if not runner.chunk or runner.at >= len(runner.chunk):
                    continue
                unit = runner.chunk[runner.at][0]
                if unit.deadline is None or unit.deadline.left > 0 or len(runner.results) > runner.at:
                    continue
                runner.abandoned = True
                self._runners.discard(runner)
                error = DeadlineExceeded(
                    f"No result within the deadline of {self._work.deadline} s; its thread was left."
                )
                results = [*runner.results[: runner.at], outcome_of_error(error)]
                complete += self._record(runner.chunk, results)
                self._pending.push_front(runner.chunk[runner.at + 1 :])
        if complete:
            self._emit(complete)
        if len(self._pending):
            self._start_runners()
