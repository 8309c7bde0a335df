"""The parent's handle on one worker process: start it, exchange frames with it, kill it with all it started."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from rm_gallery.core.engine.processes.main import ANSWER, REQUEST
from rm_gallery.core.utils.errors import ConfigError

# Handing over the search path makes the child import exactly what the parent would, whatever its working folder holds;
# `-c` instead of `-m` for the same reason. The script of the user is never imported.
_BOOT = "import sys; sys.path[:] = sys.argv[1:]; import rm_gallery.core.engine.processes.main as _worker; _worker.main()"

# There is a worker per processor already, and thread pools count against the memory cap.
_ONE_THREAD_EACH = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_ALIVE_CHECK = 1.0
_READ_SIZE = 1 << 16
_KILL = 9
_SIGNAL_NAMES = {4: "illegal instruction", 6: "abort", 7: "bus error", 8: "arithmetic error", 11: "segmentation fault"}


class WorkerSilent(Exception):
    """No answer within the time given."""


class WorkerGone(Exception):
    """The process ended or its pipe broke."""


class Answer(NamedTuple):
    """One frame from a worker."""

    kind: int
    leave: bool
    seconds: float
    payload: bytes


class WorkerProcess:
    """One running child; used by a single thread, apart from `kill`, which any thread may call."""

    def __init__(self) -> None:
        if not sys.executable:
            raise ConfigError("worker processes need the path of the Python interpreter, but sys.executable is empty")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, *(entry for entry in sys.path if isinstance(entry, str))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=_ONE_THREAD_EACH | os.environ,
            # A group of its own: Ctrl-C in a terminal is the parent's to handle, and killing takes grandchildren along.
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

    def receive(self, timeout: float | None) -> Answer:
        """Wait for the next answer; raises WorkerGone or, after `timeout` seconds of silence, WorkerSilent."""
        answer = self._buffered_answer()
        give_up = None if timeout is None else time.monotonic() + timeout
        while answer is None:
            wait = _ALIVE_CHECK if give_up is None else min(_ALIVE_CHECK, give_up - time.monotonic())
            data = self._read(max(0.0, wait))
            if data:
                self._buffer += data
                answer = self._buffered_answer()
            elif data is not None or self._process.poll() is not None:
                # A grandchild may hold the pipe open after its parent's death, so the pipe's end is not waited for.
                raise WorkerGone
            elif give_up is not None and time.monotonic() >= give_up:
                raise WorkerSilent
        return answer

    def _read(self, timeout: float) -> bytes | None:
        try:
            return self._pipes.read(timeout)
        except (OSError, ValueError) as error:
            raise WorkerGone from error

    def _buffered_answer(self) -> Answer | None:
        if len(self._buffer) < ANSWER.size:
            return None
        kind, leave, seconds, length = ANSWER.unpack_from(self._buffer)
        end = ANSWER.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[ANSWER.size : end])
        del self._buffer[:end]
        return Answer(kind, bool(leave), seconds, payload)

    def kill(self) -> None:
        """Kill the process and whatever it started in its group; harmless when it has ended."""
        with self._ending:
            # Not yet reaped means that the process id still belongs to the child.
            if self._process.returncode is None:
                if hasattr(os, "killpg"):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(self._process.pid, _KILL)
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
    return f"killed by signal {-code}" + (f", {name}" if name else ", out of memory?" if -code == _KILL else "")


class _Pipes(Protocol):
    def write(self, data: bytes, timeout: float | None) -> None: ...

    def read(self, timeout: float) -> bytes | None:
        """Bytes, b'' at the end of the pipe, None when nothing came in time."""


class _PollPipes:
    """Pipes where the system can wait for one with a time limit: a late answer in the pipe is never overlooked."""

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
        threading.Thread(target=self._read_ahead, name="rm-gallery-worker-pipe", daemon=True).start()

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
        # The grace lets a starved reading thread hand over what is in the pipe before an item is called overdue.
        try:
            return self._chunks.get(timeout=timeout + self._GRACE)
        except queue.Empty:
            return None


_PIPES: Callable[[int, int], _Pipes] = _PollPipes if hasattr(select, "poll") else _ThreadPipes
