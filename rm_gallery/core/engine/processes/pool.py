"""A pool of killable worker processes for cpu-bound calls that may hang, crash or eat the memory."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import current_deadline
from rm_gallery.core.engine.processes.driver import Driver, PoolCall, RemoteTraceback, WorkerCrashed, WorkerMemoryExceeded
from rm_gallery.core.utils.errors import ConfigError

__all__ = ["RemoteTraceback", "WorkerCrashed", "WorkerMemoryExceeded", "WorkerPool", "get_pool"]


T = TypeVar("T")

_CHUNK_SECONDS = 0.02
_CHUNK_CALLS = 512
_CALL_OVERHEAD = 3e-5
_FUNCTIONS_MEASURED = 256
_JOIN_SECONDS = 5.0


class WorkerPool:
    """Runs calls in worker processes; each call ends as its value, its own error, or an error of the pool.

    A call that passes its deadline (seconds, counted from its own start, not from its submission) fails with
    `DeadlineExceeded`; one whose process dies with `WorkerCrashed`; one that needs more than `memory_cap` bytes with
    `WorkerMemoryExceeded`. In each case only that call fails: its process is replaced and its neighbours run elsewhere.
    Processes start when first needed, up to `max_workers` (default: the processors this process may use).
    A `prepare_worker()` of a function's module is called before any clock runs.

    Safe from many threads; a forked child has its own processes. The script of the user is not imported by workers, so
    functions must live in importable modules.
    """

    def __init__(self, max_workers: int | None = None, *, memory_cap: int | None = 4 * 2**30) -> None:
        if max_workers is not None and max_workers < 1:
            raise ConfigError(f"max_workers is at least 1, found {max_workers}")
        self.max_workers = max_workers or processors()
        self.memory_cap = memory_cap
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._work = threading.Condition()
        self._queue: deque[PoolCall] = deque()
        self._drivers: list[Driver] = []
        self._open = 0
        self._closed = False
        self._seconds: dict[bytes, float] = {}

    def submit(self, fn: Callable[..., T], /, *args: Any, deadline: float | None = None) -> Future[T]:
        """Queue one call and return its future; `Future.cancel` works until the call begins.

        Raises ConfigError: the function or an argument cannot be sent to another process, or the pool is shut down.
        """
        return self._queued(PoolCall(fn, args, deadline, None))

    def _queued(self, call: PoolCall) -> Future[Any]:
        with self._work:
            if self._closed:
                raise ConfigError("the worker pool is shut down; make a new WorkerPool or use get_pool()")
            self._queue.append(call)
            self._open += 1
            # a driver for every open call, up to the limit: one caller at a time needs one process
            while len(self._drivers) < min(self.max_workers, self._open):
                driver = Driver(self, len(self._drivers))
                driver.thread.start()
                self._drivers.append(driver)
            self._work.notify(len(self._queue))
        return call.future

    def asubmit(self, fn: Callable[..., T], /, *args: Any, deadline: float | None = None) -> asyncio.Future[T]:
        """Like `submit`, for `await` in a running event loop; cancelling the awaiting task kills the running call.

        The clock of the sample that the call belongs to stands still until the call begins.
        """
        clock, waiting = current_deadline.get(), ExitStack()
        if clock is None:
            future = self.submit(fn, *args, deadline=deadline)
        else:
            loop = asyncio.get_running_loop()

            def begun() -> None:
                with suppress(RuntimeError):  # the loop is gone, and its clocks with it
                    loop.call_soon_threadsafe(waiting.close)

            future = self._queued(PoolCall(fn, args, deadline, begun))
            waiting.enter_context(clock.paused())
        waiter = asyncio.wrap_future(future)

        def done(waiter: asyncio.Future[T]) -> None:
            waiting.close()
            if waiter.cancelled():
                self.cancel_running(future)

        waiter.add_done_callback(done)
        return waiter

    def cancel_running(self, future: Future[Any]) -> bool:
        """Cancel a call even when it is running, by killing its process; its future then raises CancelledError."""
        if future.cancel():
            return True
        with self._work:
            drivers = list(self._drivers)
        return any(driver.cut(future) for driver in drivers)

    def worker_pids(self) -> list[int]:
        """Process ids of the workers that are up."""
        with self._work:
            return [pid for driver in self._drivers if (pid := driver.pid) is not None]

    def shutdown(self) -> None:
        """Cancel what is queued, kill what runs (both raise CancelledError), end all processes and threads."""
        with self._work:
            self._closed = True
            calls, drivers = list(self._queue), list(self._drivers)
            self._queue.clear()
            self._work.notify_all()
        for call in calls:
            call.drop()
        for driver in drivers:
            driver.stop()
        for driver in drivers:
            if driver.thread is not threading.current_thread():
                driver.thread.join(_JOIN_SECONDS)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    @property
    def closed(self) -> bool:
        """Whether the pool is shut down."""
        return self._closed

    def take(self) -> list[PoolCall] | None:
        """Wait for work and take about 20 ms of it; None when the pool is shut down."""
        with self._work:
            while True:
                if self._closed:
                    return None
                if chunk := self._next_chunk():
                    return chunk
                self._work.wait()

    def _next_chunk(self) -> list[PoolCall]:
        # Half of an even share at most, so that the workers end together.
        most = min(_CHUNK_CALLS, max(1, len(self._queue) // (2 * self.max_workers)))
        chunk: list[PoolCall] = []
        seconds = 0.0
        while self._queue and len(chunk) < most:
            call = self._queue[0]
            seconds += self._seconds.get(call.reference, _CHUNK_SECONDS) + _CALL_OVERHEAD
            # A call that once went down with its chunk before it began runs alone.
            if chunk and (seconds > _CHUNK_SECONDS or call.aborted):
                break
            self._queue.popleft()
            if call.future.cancelled():
                self._open -= 1
                call.drop()
                continue
            chunk.append(call)
            if call.aborted:
                break
        return chunk

    def put_back(self, calls: Sequence[PoolCall]) -> None:
        """Return calls that no worker has begun to the front of the queue."""
        with self._work:
            if not self._closed:
                self._queue.extendleft(reversed(calls))
                self._work.notify(len(calls))
                return
        for call in calls:
            call.drop()

    def settling(self, call: PoolCall, seconds: float | None = None) -> None:
        """Hear that a call is about to get its outcome, and learn how many of its kind make a chunk."""
        with self._work:
            self._open -= 1
            if seconds is None:
                return
            if len(self._seconds) >= _FUNCTIONS_MEASURED:
                self._seconds.clear()
            known = self._seconds.get(call.reference, seconds)
            self._seconds[call.reference] = 0.8 * known + 0.2 * seconds

    def forget_processes(self) -> None:
        """In a forked copy of the process: start empty, leaving the parent's workers and futures to the parent."""
        for driver in self._drivers:
            driver.forget()
        self._reset()


def get_pool(name: str = "rewards", *, max_workers: int | None = None, memory_cap: int | None = 4 * 2**30) -> WorkerPool:
    """The pool of this name, shared by the whole process, made on first use and ended at exit.

    Rewards share one; the sandbox and SQL have their own, so that what a stranger's code holds up is its like alone. The
    settings count when the pool is made.
    """
    with _guard:
        pool = _shared.get(name)
        if pool is None or pool.closed:
            pool = _shared[name] = WorkerPool(max_workers, memory_cap=memory_cap)
        return pool


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_shared: dict[str, WorkerPool] = {}
_guard = threading.Lock()
_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _shutdown_all() -> None:
    for pool in list(_pools):
        pool.shutdown()


@library_loop.after_fork
def _forget_all() -> None:
    global _guard
    _guard = threading.Lock()
    for pool in list(_pools):
        pool.forget_processes()


atexit.register(_shutdown_all)
