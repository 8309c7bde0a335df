"""The coroutine lane: `max_workers` workers on the library loop take jobs as they come."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, Generic, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import Cut, RunStopped, current_deadline, current_run
from rm_gallery.core.engine.outcome import Outcome, outcome_of_error, scored
from rm_gallery.core.engine.scheduler import NOT_RUN, Mailbox, PendingJobs, Unit, Work
from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded, RMGalleryError

R = TypeVar("R")
FLUSH_SECONDS = 0.004
"""Results wait this long for company: waking the waiting thread for each one costs more than judging it."""


class LoopLane(Generic[R]):
    """Runs jobs whose `execute` is a coroutine function; at most `max_workers` are in flight."""

    def __init__(self, work: Work[R], max_workers: int, mailbox: Mailbox[R] | None = None) -> None:
        self._work = work
        self._max_workers = max_workers
        self._loop = library_loop.get_loop()
        self._mailbox: Mailbox[R] = mailbox or Mailbox()
        self._pending = PendingJobs()
        self._workers: set[asyncio.Task[None]] = set()
        self._finished: list[tuple[int, R]] = []
        self._open_units = 0
        self._flush_due = False
        self._cut = False

    def feed(self, units: list[Unit]) -> None:
        """Queue units; called from the thread that consumes the results."""
        if library_loop.is_current(self._loop):
            self._loop.call_soon_threadsafe(self._add, units)
        else:
            self._closed()

    def collect(self, timeout: float | None) -> list[tuple[int, R]]:
        """Finished results, see `Lane`."""
        return self._mailbox.take(timeout)

    def cancel(self, grace: float) -> None:
        """Drop waiting jobs and cut those in flight after `grace` seconds."""
        if not library_loop.is_current(self._loop):
            return
        future = library_loop.submit(self._drain(grace))
        if library_loop.on_loop():  # a forgotten stream may be collected on any thread
            return
        try:
            future.result(grace + 1.0)
        except (TimeoutError, concurrent.futures.TimeoutError):  # two classes before Python 3.11
            future.cancel()

    def abandon(self) -> None:
        """Drop waiting jobs and cut those in flight, without waiting for it; from any thread."""
        if library_loop.is_current(self._loop):
            library_loop.submit(self._drain(0.0))

    async def _drain(self, grace: float) -> None:
        self._pending = PendingJobs()
        workers = list(self._workers)
        if workers and grace > 0:
            await asyncio.wait(workers, timeout=grace)
        self._cut = True
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _closed(self) -> None:
        """The loop closed under the run: tell whoever waits, unless the whole interpreter goes."""
        if not library_loop.is_exiting():
            self._mailbox.fail(RunStopped("The run was cut off: the library's event loop was shut down."))

    def _add(self, units: list[Unit]) -> None:
        if not library_loop.is_current(self._loop):
            self._closed()
            return
        self._open_units += len(units)
        for unit in units:
            if not unit.jobs:
                self._complete(unit)
        self._pending.add(units)
        for _ in range(min(self._max_workers - len(self._workers), len(self._pending))):
            worker = self._loop.create_task(self._run_jobs())
            self._workers.add(worker)
            worker.add_done_callback(self._worker_done)

    def _worker_done(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if worker.cancelled():
            self._closed()
        elif (error := worker.exception()) is not None:
            self._pending = PendingJobs()
            self._mailbox.fail(error)

    async def _run_jobs(self) -> None:
        control = self._work.control
        current_run.set(control)
        while self._pending:
            unit, i = self._pending.pop()
            if control.stopped is not None:
                unit.outcomes[i] = stopped_outcome(control.stopped)
            else:
                control.in_flight += 1
                try:
                    unit.outcomes[i] = await self._run_one(unit, unit.jobs[i])
                finally:
                    control.in_flight -= 1
            unit.remaining -= 1
            if unit.remaining == 0:
                self._complete(unit)

    async def _run_one(self, unit: Unit, job: Any) -> Outcome[Any]:
        end = unit.end(self._work.deadline)
        current_deadline.set(end)
        try:
            if end is None:
                return scored(await self._work.execute(job))
            with Cut(end):
                return scored(await self._work.execute(job))
        except DeadlineExceeded as error:
            return outcome_of_error(error)
        except asyncio.TimeoutError:
            if end is not None and end.left <= 0.001:
                said = f"No result within the deadline of {self._work.deadline:g} s{end.note and f'; {end.note}'}."
                return outcome_of_error(DeadlineExceeded(said))
            return Outcome("failed", reason="error", message="TimeoutError raised by the reward.")
        except asyncio.CancelledError:
            if self._cut or not library_loop.is_current(self._loop):
                raise
            return Outcome("failed", reason="error", message="CancelledError raised by the reward.")
        except ConfigError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever user code raises is recorded
            return outcome_of_error(error)

    def _complete(self, unit: Unit) -> None:
        self._finished.append((unit.index, self._work.merge(unit)))
        self._open_units -= 1
        if self._open_units == 0:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_later(FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._finished:
            finished, self._finished = self._finished, []
            try:
                if self._work.flush is not None:
                    self._work.flush()
            except RMGalleryError as error:
                self._pending = PendingJobs()
                self._mailbox.fail(error)
                return
            self._mailbox.put(finished)


def stopped_outcome(reason: str) -> Outcome[Any]:
    """Outcome of a job that was never begun because the run stopped."""
    return Outcome(NOT_RUN.status, reason="stopped", message=f"Not judged: the run stopped ({reason}).")
