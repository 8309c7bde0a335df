"""A worker process, one call and what its future becomes, and the thread that owns the process: it
is replaced when it hangs or dies.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import queue
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, NamedTuple

from rm_gallery.core.engine.processes.main import (
    ANSWER,
    ERROR,
    MEMORY,
    REQUEST,
    Request,
    function_reference,
)
from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded, RMGalleryError

if TYPE_CHECKING:
    from rm_gallery.core.engine.processes.pool import WorkerPool

STARTUP_SECONDS = 60.0
"""How long a process may take to start, and to load the functions of a chunk."""
# Handing over the search path makes the child import exactly what the parent would, whatever its
# working folder holds; `-c` instead of `-m` for the same reason. The script of the user is never
# imported.
_BOOT = (
    "import sys; sys.path[:] = sys.argv[1:]; import rm_gallery.core.engine.processes.main as "
    "_worker; _worker.main()"
)

# There is a worker per processor already, and thread pools count against the memory cap.
ONE_THREAD_EACH = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_ALIVE_CHECK = 1.0
_READ_SIZE = 1 << 16
KILL = 9
_SIGNAL_NAMES = {
    4: "illegal instruction",
    6: "abort",
    7: "bus error",
    8: "arithmetic error",
    11: "segmentation fault",
}


class WorkerSilent(Exception):
    """No answer within the time given."""


class WorkerGone(Exception):
    """The process ended or its pipe broke."""


class AnswerFrame(NamedTuple):
    """One frame from a worker."""

    kind: int
    leave: bool
    seconds: float
    payload: bytes


class WorkerProcess:
    """One running child; used by a single thread, apart from `kill`, which any thread may call."""

    def __init__(self) -> None:
        if not sys.executable:
            raise ConfigError(
                "worker processes need the path of the Python interpreter, but sys.executable is "
                "empty"
            )
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, *(entry for entry in sys.path if isinstance(entry, str))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=ONE_THREAD_EACH | os.environ,
            # A group of its own: Ctrl-C in a terminal is the parent's to handle, and killing takes
            # grandchildren along.
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._pipes = _PIPES(self._stdin.fileno(), self._stdout.fileno())
        self._buffer = bytearray()
        self._ending = threading.Lock()
        self.functions_seen: set[bytes] = set()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def send(self, message: object, timeout: float | None) -> None:
        """Write one pickled message; raises WorkerGone or, after `timeout` seconds, WorkerSilent."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        try:
            self._pipes.write(REQUEST.pack(len(body)) + body, timeout)
        except (OSError, ValueError) as error:
            raise WorkerGone from error

    def receive(self, timeout: float | None) -> AnswerFrame:
        """Wait for the next answer; raises WorkerGone or, after `timeout` seconds of silence,
        WorkerSilent.
        """
        answer = self._buffered_answer()
        give_up = None if timeout is None else time.monotonic() + timeout
        while answer is None:
            wait = (
                _ALIVE_CHECK if give_up is None else min(_ALIVE_CHECK, give_up - time.monotonic())
            )
            try:
                data = self._pipes.read(max(0.0, wait))
            except (OSError, ValueError) as error:
                raise WorkerGone from error
            if data:
                self._buffer += data
                answer = self._buffered_answer()
            elif data is not None or self._process.poll() is not None:
                # A grandchild may hold the pipe open after its parent's death, so the pipe's end is
                # not waited for.
                raise WorkerGone
            elif give_up is not None and time.monotonic() >= give_up:
                raise WorkerSilent
        return answer

    def _buffered_answer(self) -> AnswerFrame | None:
        if len(self._buffer) < ANSWER.size:
            return None
        kind, leave, seconds, length = ANSWER.unpack_from(self._buffer)
        end = ANSWER.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[ANSWER.size : end])
        del self._buffer[:end]
        return AnswerFrame(kind, bool(leave), seconds, payload)

    def kill(self) -> None:
        """Kill the process and whatever it started in its group; harmless when it has ended."""
        with self._ending:
            # Not yet reaped means that the process id still belongs to the child.
            if self._process.returncode is None:
                if hasattr(os, "killpg"):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(self._process.pid, KILL)
                self._process.kill()

    def close(self) -> int | None:
        """Kill, reap and close the pipes; returns the exit code, negative for a signal."""
        self.kill()
        with self._ending:
            code = self._process.wait()
        self._stdin.close()
        self._stdout.close()
        return code

    def forget(self) -> None:
        """In a forked copy of the parent: let go of a process that belongs to the original."""
        self._stdin.close()
        self._stdout.close()
        self._process.returncode = 0


def describe_exit(code: int | None) -> str:
    """Words for an exit code: 'exit code 3', 'killed by signal 11, segmentation fault'."""
    if code is None:
        return "exit code unknown"
    if code >= 0:
        return f"exit code {code}"
    name = _SIGNAL_NAMES.get(-code)
    return f"killed by signal {-code}" + (
        f", {name}" if name else ", out of memory?" if -code == KILL else ""
    )


class _PollPipes:
    """Pipes where the system can wait for one with a time limit: a late answer in the pipe is never
    overlooked.

    `read` gives bytes, b"" at the end of the pipe, None when nothing came in time.
    """

    def __init__(self, write_fd: int, read_fd: int) -> None:
        self._write_fd, self._read_fd = write_fd, read_fd
        os.set_blocking(write_fd, False)
        self._writable, self._readable = select.poll(), select.poll()
        self._writable.register(write_fd, select.POLLOUT)
        self._readable.register(read_fd, select.POLLIN)

    def write(self, data: bytes, timeout: float | None) -> None:
        rest = memoryview(data)
        while rest:
            if not self._writable.poll(None if timeout is None else timeout * 1000):
                raise WorkerSilent
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(self._write_fd, rest) :]

    def read(self, timeout: float) -> bytes | None:
        # poll counts whole milliseconds; rounding up keeps the last one from becoming a busy loop
        if not self._readable.poll(int(timeout * 1000) + 1):
            return None
        return os.read(self._read_fd, _READ_SIZE)


class _ThreadPipes:
    """Pipes where nothing but a blocking read exists (Windows): a thread reads ahead."""

    _GRACE = 0.05

    def __init__(self, write_fd: int, read_fd: int) -> None:
        self._write_fd, self._read_fd = write_fd, read_fd
        self._chunks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(
            target=self._read_ahead, name="rm-gallery-worker-pipe", daemon=True
        ).start()

    def _read_ahead(self) -> None:
        data = b"-"
        while data:
            try:
                data = os.read(self._read_fd, _READ_SIZE)
            except OSError:
                data = b""
            self._chunks.put(data)

    def write(self, data: bytes, timeout: float | None) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._write_fd, rest) :]

    def read(self, timeout: float) -> bytes | None:
        # The grace lets a starved reading thread hand over what is in the pipe before an item is
        # called overdue.
        try:
            return self._chunks.get(timeout=timeout + self._GRACE)
        except queue.Empty:
            return None


_PIPES: type[_PollPipes] | type[_ThreadPipes] = (
    _PollPipes if hasattr(select, "poll") else _ThreadPipes
)


_STARTS_PER_CALL = 3


class WorkerCrashed(RMGalleryError):
    """The process that ran a call ended by itself; `exit_code` is negative for a signal."""

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


# in the other order it cannot be rebuilt from a pickle
class WorkerMemoryExceeded(MemoryError, RMGalleryError):
    """A call needed more than the memory cap of a worker process."""


class RemoteTraceback(Exception):
    """Cause of an error raised in a worker: the traceback there, as text."""

    def __str__(self) -> str:
        return "\n" + "".join(str(argument) for argument in self.args)


class PoolCall:
    """A function, its arguments and the future that gets the outcome.

    Raises ConfigError: function or arguments cannot be sent to another process, or the deadline is
    no positive number.
    """

    __slots__ = (
        "_begun",
        "_on_begin",
        "_running",
        "aborted",
        "arguments",
        "deadline",
        "future",
        "name",
        "owner",
        "reference",
    )

    def __init__(
        self,
        fn: Callable[..., Any],
        arguments: tuple[Any, ...],
        deadline: float | None,
        on_begin: Callable[[], None] | None,
    ) -> None:
        if deadline is not None and not (deadline > 0 and math.isfinite(deadline)):
            raise ConfigError(
                f"a deadline is a positive number of seconds or None, found {deadline!r}"
            )
        self.name, self.reference = function_reference(fn)
        try:
            self.arguments = pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise ConfigError(
                f"an argument of {self.name} cannot be pickled: {type(error).__name__}: {error}"
            ) from error
        self.deadline = deadline
        self.owner: Any = None
        """Whose call it is, for the pool's turns."""
        self.future: Future[Any] = Future()
        self.aborted = 0
        self._on_begin = on_begin
        self._begun = self._running = False

    def begin(self) -> bool:
        """Mark the future as running; False when it was cancelled before, so that its answer is
        dropped.
        """
        if not self._begun:
            self._begun = True
            self._running = self.future.set_running_or_notify_cancel()
            if self._on_begin is not None:
                self._on_begin()
        return self._running

    def finish(self, answer: AnswerFrame, memory_cap: int | None) -> None:
        """Give the answer of a worker to the future."""
        if not self.begin():
            return
        if answer.kind == MEMORY:
            cap = f"{memory_cap / 2**20:,.0f} MB" if memory_cap else "what the system gives"
            self.fail(
                WorkerMemoryExceeded(
                    f"{self.name} needed more memory than its worker process may use ({cap})"
                )
            )
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
            self.fail(
                RuntimeError(
                    f"the result of {self.name} cannot be rebuilt: {type(error).__name__}: {error}"
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
