"""One call and what its future becomes; and the thread that owns a worker process, replacing it when it hangs or dies."""

from __future__ import annotations

import math
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol

from rm_gallery.core.engine.processes.main import ERROR, MEMORY, Request, Setup
from rm_gallery.core.engine.processes.process import Answer, WorkerGone, WorkerProcess, WorkerSilent, describe_exit
from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded, RMGalleryError

_STARTS_PER_CALL = 3


class WorkerCrashed(RMGalleryError):
    """The process that ran a call ended by itself; `exit_code` is negative for a signal."""

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class WorkerMemoryExceeded(MemoryError, RMGalleryError):  # in the other order it cannot be rebuilt from a pickle
    """A call needed more than the memory cap of a worker process."""


class RemoteTraceback(Exception):
    """Cause of an error raised in a worker: the traceback there, as text."""

    def __str__(self) -> str:
        return "\n" + "".join(str(argument) for argument in self.args)


class Call:
    """A function, its arguments and the future that gets the outcome."""

    __slots__ = ("_begun", "_running", "aborted", "arguments", "deadline", "future", "name", "on_begin", "reference")

    def __init__(
        self,
        name: str,
        reference: bytes,
        arguments: bytes,
        deadline: float | None,
        on_begin: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.on_begin = on_begin
        self.reference = reference
        self.arguments = arguments
        self.deadline = deadline
        self.future: Future[Any] = Future()
        self.aborted = 0
        self._begun = False
        self._running = False

    def request(self, function: int) -> Request:
        """The call as it is sent to a worker."""
        return Request(function, self.arguments, self.deadline)

    def begin(self) -> bool:
        """Mark the future as running; False when it was cancelled before, so that its answer is dropped."""
        if not self._begun:
            self._begun = True
            self._running = self.future.set_running_or_notify_cancel()
            if self.on_begin is not None:
                self.on_begin()
        return self._running

    def finish(self, answer: Answer, memory_cap: int | None) -> None:
        """Give the answer of a worker to the future."""
        if not self.begin():
            return
        if answer.kind == MEMORY:
            cap = f"{memory_cap / 2**20:,.0f} MB" if memory_cap else "what the system gives"
            self.fail(WorkerMemoryExceeded(f"{self.name} needed more memory than its worker process may use ({cap})"))
            return
        try:
            value = pickle.loads(answer.payload)
            if answer.kind == ERROR:
                error, text = value
                error.__cause__ = RemoteTraceback(text)
                self.future.set_exception(error)
            else:
                self.future.set_result(value)
        except Exception as error:  # noqa: BLE001 - an answer that cannot be rebuilt is this call's failure alone
            self.fail(RuntimeError(f"the result of {self.name} cannot be rebuilt: {type(error).__name__}: {error}"))

    def overdue(self) -> None:
        """Fail the call for its deadline."""
        self.fail(DeadlineExceeded(f"{self.name} ran longer than its deadline of {self.deadline:g} s; its process was killed"))

    def crashed(self, exit_code: int | None) -> None:
        """Fail the call because its process ended while running it."""
        message = f"the worker process running {self.name} ended ({describe_exit(exit_code)})"
        self.fail(WorkerCrashed(message, exit_code=exit_code))

    def never_began(self) -> None:
        """Fail the call because processes kept ending before it."""
        self.fail(
            WorkerCrashed(
                f"{self.name} could not begin: {self.aborted} worker processes ended or hung while loading it; "
                "their messages are on stderr"
            )
        )

    def fail(self, error: Exception) -> None:
        """Give an error of the pool's own to the future, unless it was cancelled."""
        if self.begin():
            self.future.set_exception(error)

    def drop(self) -> None:
        """The pool is closing or the call was cut: end the future as cancelled."""
        self.future.cancel()
        self.fail(CancelledError())


def check_deadline(deadline: float | None) -> None:
    """Raise ConfigError unless the deadline is None or a positive number of seconds."""
    if deadline is not None and not (deadline > 0 and math.isfinite(deadline)):
        raise ConfigError(f"a deadline is a positive number of seconds or None, found {deadline!r}")


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
