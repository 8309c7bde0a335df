"""A worker process, and one call with what its future becomes."""

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
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, NamedTuple

from rm_gallery.core.engine.processes.main import (
    ANSWER,
    ERROR,
    MEMORY,
    REQUEST,
    function_reference,
)
from rm_gallery.core.utils.errors import ConfigError, RMGalleryError

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
