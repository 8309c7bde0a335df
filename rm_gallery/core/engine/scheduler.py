"""The one engine: opaque units of work in, results out, with bounded concurrency and nothing lost.

A unit has jobs; `execute` turns a job into a value, or raises; `merge` turns a unit's outcomes into its result. How jobs
run is a lane: coroutines on the library loop, or plain functions on daemon threads. Both lanes share everything else.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from rm_gallery.core.engine.context import Deadline, RunControl
from rm_gallery.core.engine.outcome import Outcome

R = TypeVar("R")
LaneName = Literal["loop", "threads"]
CANCEL_GRACE_SECONDS = 5.0


NOT_RUN: Outcome[Any] = Outcome("failed", reason="stopped", message="The run stopped before this sample was judged.")


class Unit:
    """One sample as the engine sees it: an index, opaque jobs, and room for their outcomes."""

    __slots__ = ("data", "deadline", "index", "jobs", "outcomes", "remaining")

    def __init__(self, index: int, jobs: list[Any], data: Any = None) -> None:
        self.index = index
        self.jobs = jobs
        self.data = data
        self.outcomes: list[Outcome[Any]] = [NOT_RUN] * len(jobs)
        self.remaining = len(jobs)
        self.deadline: Deadline | None = None
        """When this unit runs out of time, set when its first job starts."""

    def end(self, seconds: float | None) -> Deadline | None:
        """The unit's deadline, `seconds` after the first job that asks."""
        if self.deadline is None and seconds is not None:
            self.deadline = Deadline(seconds)
        return self.deadline


@dataclass
class Work(Generic[R]):
    """What a run does with its units."""

    execute: Callable[[Any], Any]
    merge: Callable[[Unit], R]
    """Called for one unit at a time, on whichever thread finished it."""
    deadline: float | None
    """Seconds a unit may take from the start of its first job."""
    control: RunControl
    flush: Callable[[], None] | None = None
    """Called before a group of results is handed out, to make durable what `merge` noted down."""


class Lane(Protocol[R]):
    """Runs fed units and hands back finished ones."""

    def feed(self, units: list[Unit]) -> None:
        """Take more units; returns at once."""

    def collect(self, timeout: float | None) -> list[tuple[int, R]]:
        """Finished (index, result) pairs; waits until there is one or the timeout is over. Raises a run-level error."""

    def cancel(self, grace: float) -> None:
        """Start nothing more, give what is in flight `grace` seconds, then cut it."""

    def abandon(self) -> None:
        """Start nothing more and cut what is in flight; returns at once."""


def stream(
    units: Iterable[Unit],
    lane: Lane[R],
    control: RunControl,
    *,
    window: int,
    ordered: bool = False,
    on_tick: Callable[[], None] | None = None,
) -> Iterator[tuple[int, R]]:
    """Feed `units` lazily to a lane and yield (index, result) as they finish, or in order.

    At most `window` units are fed and not yet yielded, so an endless input needs flat memory. Ctrl-C cancels the lane:
    the first one waits up to five seconds for calls in flight, a second one leaves at once.
    """
    source = iter(units)
    held: dict[int, R] = {}
    fed = yielded = next_index = 0
    exhausted = False
    try:
        while True:
            if not exhausted and fed - yielded < window:
                batch = _take(source, window - (fed - yielded))
                exhausted = len(batch) < window - (fed - yielded)
                if batch:
                    lane.feed(batch)
                    fed += len(batch)
            if exhausted and fed == yielded:
                return
            done = lane.collect(0.1 if on_tick else None)
            if on_tick:
                on_tick()
            if not ordered:
                for pair in done:
                    yielded += 1
                    yield pair
                continue
            held.update(done)
            while next_index in held:
                yielded += 1
                next_index += 1
                yield next_index - 1, held.pop(next_index - 1)
    except KeyboardInterrupt:
        control.stop("interrupted", halt=True)
        lane.cancel(CANCEL_GRACE_SECONDS)
        raise
    except BaseException:  # a closed generator or a run-level error: leave nothing running
        lane.cancel(0.0)
        raise
    finally:
        control.end()


def _take(source: Iterator[Unit], n: int) -> list[Unit]:
    batch: list[Unit] = []
    for unit in source:
        batch.append(unit)
        if len(batch) >= n:
            break
    return batch


class Mailbox(Generic[R]):
    """Where a lane leaves results for the thread that waits for them."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._results: list[tuple[int, R]] = []
        self._error: BaseException | None = None

    def put(self, results: list[tuple[int, R]]) -> None:
        """Leave results and wake the waiter."""
        with self._ready:
            self._results.extend(results)
            self._ready.notify()

    def fail(self, error: BaseException) -> None:
        """Leave a run-level error, raised to the waiter once."""
        with self._ready:
            self._error = self._error or error
            self._ready.notify()

    def take(self, timeout: float | None) -> list[tuple[int, R]]:
        """What has come; waits for the first result, an error, or the timeout."""
        with self._ready:
            if not self._results and self._error is None:
                self._ready.wait(timeout)
            if self._results:
                results, self._results = self._results, []
                return results
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            return []


class FutureBox(Mailbox[R]):
    """A mailbox for a single result, which any event loop can await."""

    def __init__(self) -> None:
        super().__init__()
        self.future: concurrent.futures.Future[R] = concurrent.futures.Future()
        # a waiter that is cancelled must not settle it under the lane's hands
        self.future.set_running_or_notify_cancel()

    def put(self, results: list[tuple[int, R]]) -> None:
        """Settle the future with the result."""
        if not self.future.done():
            self.future.set_result(results[0][1])

    def fail(self, error: BaseException) -> None:
        """Settle the future with the error."""
        if not self.future.done():
            self.future.set_exception(error)


class PendingJobs:
    """Jobs waiting to start, in feeding order."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Unit, int]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, units: list[Unit]) -> None:
        """Queue every job of the units."""
        self._queue.extend([(unit, i) for unit in units for i in range(len(unit.jobs))])

    def pop(self) -> tuple[Unit, int]:
        """The next job."""
        return self._queue.popleft()

    def push_front(self, jobs: list[tuple[Unit, int]]) -> None:
        """Put jobs back that were taken and not run."""
        self._queue.extendleft(reversed(jobs))
