"""A pool of killable worker processes for cpu-bound calls that may hang, crash or eat the memory."""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import LIMIT_SHARE, current_deadline, current_run
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.processes.main import Request
from rm_gallery.core.engine.processes.worker_process import (
    STARTUP_SECONDS,
    PoolCall,
    RemoteTraceback,
    WorkerCrashed,
    WorkerGone,
    WorkerMemoryExceeded,
    WorkerProcess,
    WorkerSilent,
    describe_exit,
)
from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded

__all__ = ["RemoteTraceback", "WorkerCrashed", "WorkerMemoryExceeded", "WorkerPool", "get_pool"]


T = TypeVar("T")
Owner = Deadline | int
"""The deadline of a request, or the number of a run."""

_CHUNK_SECONDS = 0.02
_CHUNK_CALLS = 512
_CALL_OVERHEAD = 3e-5
_FUNCTIONS_MEASURED = 256
_STARTS_PER_CALL = 3
_JOIN_SECONDS = 5.0
_PATIENCE = 0.25
"""Seconds after which a worker that is still at its chunk is no longer counted among those that
others wait for.
"""
_SHORTEST = 0.2
"""Seconds that a call gets at least, however many share the time of their request."""


class WorkerPool:
    """Runs calls in worker processes; each call ends as its value, its own error, or an error of
    the pool.

    A call that passes its deadline (seconds, counted from its own start, not from its submission)
    fails with `DeadlineExceeded`; one whose process dies with `WorkerCrashed`; one that needs more
    than `memory_cap` bytes with `WorkerMemoryExceeded`. In each case only that call fails: its
    process is replaced and its neighbours run elsewhere. Processes start when first needed, up to
    `max_workers` (default: the processors this process may use). A `prepare_worker()` of a
    function's module is called before any clock runs.

    Callers take turns: a request, or a run, that has queued a thousand calls does not make another
    one wait for them, and workers that are held up by calls of one are replaced for the others, by
    up to `max_workers` more.

    Safe from many threads; a forked child has its own processes. The script of the user is not
    imported by workers, so functions must live in importable modules.
    """

    def __init__(
        self, max_workers: int | None = None, *, memory_cap: int | None = 4 * 2**30
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise ConfigError(f"max_workers is at least 1, found {max_workers}")
        self.max_workers = max_workers or processors()
        self.memory_cap = memory_cap
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._work = threading.Condition()
        self._queues: dict[Owner, deque[PoolCall]] = {}
        """What waits, by owner, in the order of their turns."""
        self._unsettled: dict[Owner, int] = {}
        self._busy: dict[Driver, tuple[Owner, float]] = {}
        """By driver, whose calls it is at, and since when."""
        self._drivers: list[Driver] = []
        self._open = 0
        self._shut_down = False
        self._seconds: dict[bytes, float] = {}
        self.startup_seconds = 0.0
        """What the last process took until it was ready, which each call costs that has its process
        killed.
        """

    def submit(
        self, fn: Callable[..., T], /, *args: Any, deadline: float | None = None
    ) -> Future[T]:
        """Queue one call and return its future; `Future.cancel` works until the call begins.

        Raises ConfigError: the function or an argument cannot be sent to another process, or the
        pool is shut down.
        """
        return self._queued(PoolCall(fn, args, deadline, None))

    def _queued(self, call: PoolCall, urgent: bool = False) -> Future[Any]:
        call.owner = _owner()
        with self._work:
            if self._shut_down:
                raise ConfigError(
                    "the worker pool is shut down; make a new WorkerPool or use get_pool()"
                )
            queue = self._queues.setdefault(call.owner, deque())
            queue.insert(0 if urgent else len(queue), call)
            self._open += 1
            self._unsettled[call.owner] = self._unsettled.get(call.owner, 0) + 1
            # A driver for every open call, up to the limit: one caller at a time needs one process.
            # Where several have calls, as many again stand by for those that wait behind a call
            # that hangs; they have no process before it comes to that.
            most = self.max_workers * min(2, len(self._unsettled))
            while len(self._drivers) < min(most, self._open):
                driver = Driver(self, len(self._drivers))
                driver.thread.start()
                self._drivers.append(driver)
            self._work.notify_all()
        return call.future

    def asubmit(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        deadline: float | None = None,
        urgent: bool = False,
    ) -> asyncio.Future[T]:
        """Like `submit`, for `await` in a running event loop; cancelling the awaiting task kills
        the running call.

        An `urgent` call comes before all others of its owner: what settles a call that ran out of
        time. The clock of the sample that the call belongs to stands still until the call begins.
        """
        clock, waiting = current_deadline.get(), ExitStack()
        request, began = None if clock is None else clock.request, list[float]()
        if request is not None and request.work <= 0:
            raise DeadlineExceeded(
                "Its request has used up the computing it may take (max_seconds)."
            )
        if clock is None:
            future = self._queued(PoolCall(fn, args, deadline, None), urgent)
        else:
            loop = asyncio.get_running_loop()

            def begun() -> None:
                began.append(time.monotonic())
                with suppress(RuntimeError):  # the loop is gone, and its clocks with it
                    loop.call_soon_threadsafe(waiting.close)

            future = self._queued(PoolCall(fn, args, deadline, begun), urgent)
            waiting.enter_context(clock.paused())
        waiter = asyncio.wrap_future(future)

        def done(waiter: asyncio.Future[T]) -> None:
            waiting.close()
            if request is not None and began:
                request.work -= time.monotonic() - began[0]
            if waiter.cancelled():
                self.cancel_running(future)

        waiter.add_done_callback(done)
        return waiter

    def cancel_running(self, future: Future[Any]) -> bool:
        """Cancel a call even when it is running, by killing its process; its future then raises
        CancelledError.
        """
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
        """Cancel what is queued, kill what runs (both raise CancelledError), end all processes and
        threads.
        """
        with self._work:
            self._shut_down = True
            calls, drivers = (
                [call for queue in self._queues.values() for call in queue],
                list(self._drivers),
            )
            self._queues.clear()
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
    def is_shut_down(self) -> bool:
        """Whether the pool is shut down."""
        return self._shut_down

    def take(self, driver: Driver) -> list[PoolCall] | None:
        """Wait for work and take about 20 ms of it; None when the pool is shut down."""
        with self._work:
            self._busy.pop(driver, None)
            self._work.notify_all()
            while True:
                if self._shut_down:
                    return None
                if chunk := self._next_chunk():
                    self._busy[driver] = chunk[0].owner, time.monotonic()
                    return chunk
                # a worker that hangs makes room without telling
                self._work.wait(_PATIENCE if self._queues else None)

    def _next_chunk(self) -> list[PoolCall]:
        """About 20 ms of work of the owner whose turn it is, who then is the last."""
        for owner in list(self._queues):
            if self._may_run(owner):
                chunk = self._chunk_of(owner)
                queue = self._queues.pop(owner)
                if queue:
                    self._queues[owner] = queue
                if chunk:
                    return chunk
        return []

    def _may_run(self, owner: Owner) -> bool:
        """Whether there is a worker for an owner: one that hangs is none of the `max_workers` for
        those who wait behind it.
        """
        if sum(other == owner for other, _ in self._busy.values()) >= self.max_workers:
            return False
        hanging_since = time.monotonic() - _PATIENCE
        return sum(since > hanging_since for _, since in self._busy.values()) < self.max_workers

    def _chunk_of(self, owner: Owner) -> list[PoolCall]:
        queue = self._queues[owner]
        # Half of an even share at most, so that the workers end together.
        most = min(_CHUNK_CALLS, max(1, len(queue) // (2 * self.max_workers)))
        chunk: list[PoolCall] = []
        seconds = 0.0
        while queue and len(chunk) < most:
            call = queue[0]
            seconds += self._seconds.get(call.reference, _CHUNK_SECONDS) + _CALL_OVERHEAD
            # A call that once went down with its chunk before it began runs alone.
            if chunk and (seconds > _CHUNK_SECONDS or call.aborted):
                break
            queue.popleft()
            if call.future.cancelled():
                self._count_settled(call)
                call.drop()
                continue
            self._share_time(call)
            chunk.append(call)
            if call.aborted:
                break
        return chunk

    def _share_time(self, call: PoolCall) -> None:
        """Cut a call's limit so that all calls of its request can use up theirs before whoever
        asked goes away.

        Thirty answers that explode would else take the whole time of their request, and their
        neighbours' scores with it; and twenty patterns in a row, each within its own limit, hold a
        worker for as long as the request lasts.
        """
        if isinstance(call.owner, Deadline):
            left = LIMIT_SHARE * (call.owner.due - time.monotonic()) * self.max_workers
            calls = self._unsettled.get(call.owner, 1)
            share = max(_SHORTEST, left / calls - self.startup_seconds)
            share = min(share, max(_SHORTEST, call.owner.work / calls))
            if math.isfinite(share):
                call.deadline = share if call.deadline is None else min(call.deadline, share)

    def put_back(self, calls: Sequence[PoolCall]) -> None:
        """Return calls that no worker has begun to the front of their queue."""
        with self._work:
            if not self._shut_down:
                for call in reversed(calls):
                    self._queues.setdefault(call.owner, deque()).appendleft(call)
                self._work.notify_all()
                return
        for call in calls:
            call.drop()

    def _count_settled(self, call: PoolCall) -> None:
        self._open -= 1
        left = self._unsettled[call.owner] - 1
        if left:
            self._unsettled[call.owner] = left
        else:
            del self._unsettled[call.owner]

    def settling(self, call: PoolCall, seconds: float | None = None) -> None:
        """Hear that a call is about to get its outcome, and learn how many of its kind make a
        chunk.
        """
        with self._work:
            self._count_settled(call)
            if seconds is None:
                return
            if len(self._seconds) >= _FUNCTIONS_MEASURED:
                self._seconds.clear()
            known = self._seconds.get(call.reference, seconds)
            self._seconds[call.reference] = 0.8 * known + 0.2 * seconds

    def forget_processes(self) -> None:
        """In a forked copy of the process: start empty, leaving the parent's workers and futures to
        the parent.
        """
        for driver in self._drivers:
            driver.forget()
        self._reset()


class Driver:
    """Runs chunks in its process until the pool closes."""

    def __init__(self, pool: WorkerPool, number: int) -> None:
        self._pool = pool
        self._process: WorkerProcess | None = None
        self._lock = threading.Lock()
        self._current: PoolCall | None = None
        self._cut: PoolCall | None = None
        self.thread = threading.Thread(
            target=self._take_calls, name=f"rm-gallery-worker-{number}", daemon=True
        )

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None before its start."""
        process = self._process
        return None if process is None else process.pid

    def cut(self, future: Future[Any]) -> bool:
        """Kill the process if it is running the call of this future, which then ends as cancelled."""
        with self._lock:
            call = self._current
            if call is None or call.future is not future or self._process is None:
                return False
            self._cut = call
            self._process.kill()
            return True

    def stop(self) -> None:
        """Kill the process; the thread ends by itself once the pool is closed."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def forget(self) -> None:
        """In a forked copy of the parent: let go of the process without touching it."""
        if self._process is not None:
            self._process.forget()

    def _take_calls(self) -> None:
        while (chunk := self._pool.take(self)) is not None:
            calls = deque(chunk)
            try:
                self._serve_calls(calls)
            except Exception as error:  # noqa: BLE001 - whatever goes wrong here, no future may wait for ever
                self._end_process()
                for call in calls:
                    self._pool.settling(call)
                    call.fail(
                        WorkerCrashed(
                            f"no worker process could run {call.name}: {type(error).__name__}: "
                            f"{error}"
                        )
                    )
        self._end_process()

    def _serve_calls(self, calls: deque[PoolCall]) -> None:
        """Run a chunk; calls that the process had not begun when it ended go back to the queue."""
        started, fresh, began = False, self._process is None, time.monotonic()
        try:
            process = self._ready_process()
            numbers: dict[bytes, int] = {}
            requests = [
                Request(
                    numbers.setdefault(call.reference, len(numbers)), call.arguments, call.deadline
                )
                for call in calls
            ]
            process.send((list(numbers), requests), STARTUP_SECONDS)
            process.receive(STARTUP_SECONDS)
            started = True
            if fresh:
                self._pool.startup_seconds = time.monotonic() - began
            while calls:
                self._answer_next(process, calls)
        except WorkerSilent:
            self._end_process()
            if started:
                self._settle_overdue(calls)
        except WorkerGone:
            exit_code = self._end_process()
            if started:
                self._settle_interrupted(calls, exit_code)
        finally:
            with self._lock:
                self._current = self._cut = None
        if calls:
            self._return(calls, started)

    def _ready_process(self) -> WorkerProcess:
        process = self._process
        if process is None:
            process = WorkerProcess()
            with self._lock:
                self._process = process
            # shut down while the process was starting, so nobody else has killed it
            if self._pool.is_shut_down:
                raise WorkerGone
            process.send(self._pool.memory_cap, STARTUP_SECONDS)
        return process

    def _answer_next(self, process: WorkerProcess, calls: deque[PoolCall]) -> None:
        call = calls[0]
        going = call.begin()
        with self._lock:
            self._current = call
            if not going:  # cancelled since the process was told of it, which may be at it for ever
                self._cut = call
                process.kill()
        # The child works on this call since its previous answer arrived here at the latest, so
        # silence counts from now.
        answer = process.receive(call.deadline)
        with self._lock:
            self._current = None
        calls.popleft()
        # The first call of a function also warms caches up and says little about the next.
        warm = call.reference in process.functions_seen
        process.functions_seen.add(call.reference)
        self._pool.settling(call, answer.seconds if warm else None)
        call.finish(answer, self._pool.memory_cap)
        if answer.leave:
            self._end_process()
            if calls:
                raise WorkerGone

    def _settle_overdue(self, calls: deque[PoolCall]) -> None:
        call = calls.popleft()
        self._pool.settling(call)
        if self._cut is call:
            call.drop()
        else:
            late = (
                f"{call.name} ran longer than its deadline of {call.deadline:g} s; its process was "
                f"killed"
            )
            call.fail(DeadlineExceeded(late))

    def _settle_interrupted(self, calls: deque[PoolCall], exit_code: int | None) -> None:
        interrupted, cut = self._current, self._cut
        if interrupted is None or (cut is not None and cut is not interrupted):
            # nothing was running, or the kill was meant for a call that finished in the same moment
            return
        calls.popleft()
        self._pool.settling(interrupted)
        if self._pool.is_shut_down or cut is interrupted:
            interrupted.drop()
        else:
            ended = (
                f"the worker process running {interrupted.name} ended ({describe_exit(exit_code)})"
            )
            interrupted.fail(WorkerCrashed(ended, exit_code=exit_code))

    def _return(self, calls: Iterable[PoolCall], started: bool) -> None:
        again = []
        for call in calls:
            call.aborted += not started
            if call.aborted < _STARTS_PER_CALL:
                again.append(call)
            else:
                self._pool.settling(call)
                never = (
                    f"{call.aborted} worker processes ended or hung while loading it; their "
                    f"messages are on stderr"
                )
                call.fail(WorkerCrashed(f"{call.name} could not begin: {never}"))
        self._pool.put_back(again)

    def _end_process(self) -> int | None:
        with self._lock:
            process, self._process = self._process, None
        return None if process is None else process.close()


def get_pool(
    name: str = "rewards", *, max_workers: int | None = None, memory_cap: int | None = 4 * 2**30
) -> WorkerPool:
    """The pool of this name, shared by the whole process, made on first use and ended at exit.

    Rewards share one; the sandbox and SQL have their own, so that what a stranger's code holds up
    is its like alone. The settings count when the pool is made.
    """
    with _guard:
        pool = _shared.get(name)
        if pool is None or pool.is_shut_down:
            pool = _shared[name] = WorkerPool(max_workers, memory_cap=memory_cap)
        return pool


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _owner() -> Owner:
    """Whose calls take turns with those of others: a request's, else those of a run."""
    deadline, run = current_deadline.get(), current_run.get()
    request = None if deadline is None else deadline.request
    if request is not None:
        return request
    while run is not None and run.parent is not None:
        run = run.parent
    return id(run)


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
