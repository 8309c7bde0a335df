"""The thread that owns one worker process: feeds it chunks, takes its answers, replaces it when it hangs or dies."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from rm_gallery.core.engine.workers.calls import Call, WorkerCrashed
from rm_gallery.core.engine.workers.main import Setup
from rm_gallery.core.engine.workers.process import WorkerGone, WorkerProcess, WorkerSilent

_STARTS_PER_CALL = 3


class Source(Protocol):
    """What a driver needs of its pool."""

    setup: Setup
    startup_allowance: float

    @property
    def closed(self) -> bool:
        """Whether the pool is shutting down."""

    def take(self) -> list[Call] | None:
        """Wait for a chunk; None when the pool closes."""

    def put_back(self, calls: Sequence[Call]) -> None:
        """Return calls that no worker has begun, to the front of the queue."""

    def settling(self, call: Call, seconds: float | None = None) -> None:
        """Hear that a call is about to get its outcome, and how long it took where that says something."""


class Driver:
    """Runs chunks in its process until the pool closes."""

    def __init__(self, pool: Source, number: int) -> None:
        self._pool = pool
        self._process: WorkerProcess | None = None
        self._lock = threading.Lock()
        self._current: Call | None = None
        self._cut: Call | None = None
        self.thread = threading.Thread(target=self._run, name=f"rm-gallery-worker-{number}", daemon=True)

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

    def _run(self) -> None:
        while (chunk := self._pool.take()) is not None:
            calls = deque(chunk)
            try:
                self._serve(calls)
            except Exception as error:  # noqa: BLE001 - whatever goes wrong here, no future may wait for ever
                self._end_process()
                self._fail_all(calls, f"{type(error).__name__}: {error}")
        self._end_process()

    def _serve(self, calls: deque[Call]) -> None:
        """Run a chunk; calls that the process had not begun when it ended go back to the queue."""
        started = False
        try:
            process = self._ready_process()
            self._send(process, calls)
            process.receive(self._pool.startup_allowance)
            started = True
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
            if self._pool.closed:  # shut down while the process was starting, so nobody else has killed it
                raise WorkerGone
            process.send(self._pool.setup, self._pool.startup_allowance)
        return process

    def _send(self, process: WorkerProcess, calls: Iterable[Call]) -> None:
        numbers: dict[bytes, int] = {}
        requests = [call.request(numbers.setdefault(call.reference, len(numbers))) for call in calls]
        process.send((list(numbers), requests), self._pool.startup_allowance)

    def _answer_next(self, process: WorkerProcess, calls: deque[Call]) -> None:
        call = calls[0]
        call.begin()
        with self._lock:
            self._current = call
        # The child works on this call since its previous answer arrived here at the latest, so silence counts from now.
        answer = process.receive(call.deadline)
        with self._lock:
            self._current = None
        calls.popleft()
        # The first call of a function also warms caches up and says little about the next.
        warm = call.reference in process.functions_seen
        process.functions_seen.add(call.reference)
        self._pool.settling(call, answer.seconds if warm else None)
        call.finish(answer, self._pool.setup.memory_cap)
        if answer.leave:
            self._end_process()
            if calls:
                raise WorkerGone

    def _settle_overdue(self, calls: deque[Call]) -> None:
        call = calls.popleft()
        self._pool.settling(call)
        if self._cut is call:
            call.drop()
        else:
            call.overdue()

    def _settle_interrupted(self, calls: deque[Call], exit_code: int | None) -> None:
        interrupted, cut = self._current, self._cut
        if interrupted is None or (cut is not None and cut is not interrupted):
            return  # nothing was running, or the kill was meant for a call that finished in the same moment
        calls.popleft()
        self._pool.settling(interrupted)
        if self._pool.closed or cut is interrupted:
            interrupted.drop()
        else:
            interrupted.crashed(exit_code)

    def _return(self, calls: Iterable[Call], started: bool) -> None:
        again = []
        for call in calls:
            call.aborted += not started
            if call.aborted < _STARTS_PER_CALL:
                again.append(call)
            else:
                self._pool.settling(call)
                call.never_began()
        self._pool.put_back(again)

    def _fail_all(self, calls: Iterable[Call], reason: str) -> None:
        for call in calls:
            self._pool.settling(call)
            call.fail(WorkerCrashed(f"no worker process could run {call.name}: {reason}"))

    def _end_process(self) -> int | None:
        with self._lock:
            process, self._process = self._process, None
        return None if process is None else process.close()
