"""One sandboxed process as its parent sees it: its limits, three pipes, what it uses, a kill that
reaches everything.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from rm_gallery.core.engine.worker import in_worker
from rm_gallery.core.sandbox.inside.base import MAX_FRAME, FrameTooLarge
from rm_gallery.core.sandbox.inside.codec import encode
from rm_gallery.core.utils.errors import ConfigError, SandboxUnavailable


@dataclass(frozen=True)
class SandboxLimits:
    """Upper bounds for a sandboxed process and everything it starts; every figure is positive.

    Raises ConfigError when a bound is zero, negative or not finite, or too small for the
    interpreter itself (64 MB, four processes).
    """

    wall_seconds: float = 10.0
    """Wall time of one test unit (one `check`, one assert line, one input)."""
    cpu_seconds: float = 10.0
    """CPU time of one process, rounded up to whole seconds by the kernel's limit."""
    memory_mb: int = 512
    """Address space of one process, and resident memory of all processes of one sandbox together.
    """
    processes: int = 16
    """Processes and threads of one sandbox, the interpreter itself included."""
    file_mb: int = 16
    """Largest single file, and the whole private temp folder."""
    output_kb: int = 256
    """Kilobytes the program may print to stdout and stderr together."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not 0 < value < math.inf
            ):
                raise ConfigError(
                    f"SandboxLimits.{field.name} must be a positive number, found {value!r}"
                )
        for name, least in (("memory_mb", 64), ("processes", 4)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"SandboxLimits.{name} must be at least {least}, or the interpreter itself "
                    f"does not start; found {getattr(self, name)}"
                )

    @property
    def output_bytes(self) -> int:
        """The output bound in bytes."""
        return int(self.output_kb * 1024)

    @property
    def memory_bytes(self) -> int:
        """The memory bound in bytes."""
        return int(self.memory_mb * 1024 * 1024)

    @property
    def file_bytes(self) -> int:
        """The file bound in bytes."""
        return int(self.file_mb * 1024 * 1024)


def tree_usage(root: int, helpers: int = 0) -> tuple[int, int] | None:
    """Return the resident bytes and the number of processes of `root` and its descendants but for the
    outermost `helpers`, or None where /proc cannot tell.
    """
    resident, processes = 0, -helpers
    pending = [root]
    while pending and processes <= 4096:
        pid = pending.pop()
        try:
            with open(f"/proc/{pid}/statm", "rb") as statm:
                pages = int(statm.read().split()[1])
            if processes >= 0:
                resident += pages * os.sysconf("SC_PAGE_SIZE")
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children", "rb") as children:
                    pending.extend(map(int, children.read().split()))
        except (OSError, IndexError, ValueError):  # gone meanwhile, or no such /proc here
            continue
        processes += 1
    return (resident, max(0, processes)) if processes != -helpers else None


def children_of(pid: int) -> list[int]:
    """Return the ids of a process's direct children; empty where /proc cannot tell."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as children:
            return list(map(int, children.read().split()))
    except (OSError, ValueError):
        return []


def tasks_of_user() -> int:
    """Count the threads of this process's user: where the kernel counts them all, a limit has to
    start from there.
    """
    user, total = os.getuid(), 0
    with contextlib.suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    total += len(os.listdir(f"/proc/{name}/task"))
    return total


_CHUNK = 65536
_HIGH_WATER = 1 << 20


def framed(payload: bytes) -> bytes:
    """A message as it goes to a sandboxed process: its length in four bytes, then itself."""
    return len(payload).to_bytes(4, "big") + payload


def messages_in(buffer: bytearray, most: int, *, kinds: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Take the whole messages off a buffer: the bytes before each that name its kind, and the message
    as it is framed.

    Raises FrameTooLarge for one of more than `most` bytes.
    """
    while len(buffer) >= kinds + 4:
        size = int.from_bytes(buffer[kinds : kinds + 4], "big")
        if size > most:
            raise FrameTooLarge(f"message of {size} bytes")
        end = kinds + 4 + size
        if len(buffer) < end:
            return
        kind, message = bytes(buffer[:kinds]), bytes(buffer[kinds:end])
        del buffer[:end]
        yield kind, message


class Pump:
    """Readers get each chunk (b'' once at the end); written bytes wait until the pipe takes them."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._readers: dict[int, Callable[[bytes], None]] = {}
        self._pending: dict[int, bytearray] = {}
        self._paused_by: dict[int, int] = {}
        self._closing: set[int] = set()

    def __enter__(self) -> Pump:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def on_read(
        self, descriptor: int, take: Callable[[bytes], None], *, fills: int | None = None
    ) -> None:
        """Call `take` with what arrives; while the pipe `fills` is choked, nothing more is read."""
        os.set_blocking(descriptor, False)
        self._readers[descriptor] = take
        if fills is not None:
            self._paused_by[descriptor] = fills
        self._selector.register(descriptor, selectors.EVENT_READ)

    def write(self, descriptor: int, data: bytes) -> None:
        """Queue bytes for a pipe; bytes for a reader that has gone are dropped."""
        if descriptor not in self._pending:
            os.set_blocking(descriptor, False)
        pending = self._pending.setdefault(descriptor, bytearray())
        idle = not pending
        pending += data
        if idle:
            self._flush(descriptor)

    def close_after_flush(self, descriptor: int) -> None:
        """Let the pipe's reader see its end once all queued bytes are through; nothing may be
        written after this.
        """
        self._closing.add(descriptor)
        self.write(descriptor, b"")

    def _flush(self, descriptor: int) -> None:
        pending = self._pending[descriptor]
        try:
            while pending:
                del pending[: os.write(descriptor, memoryview(pending)[:_CHUNK])]
        except BlockingIOError:
            pass
        except OSError:  # the reader has gone; its end shows on the other pipe
            pending.clear()
        registered = descriptor in self._selector.get_map()
        if pending and not registered:
            self._selector.register(descriptor, selectors.EVENT_WRITE)
        elif registered and not pending:
            self._selector.unregister(descriptor)
        if not pending and descriptor in self._closing:
            self._shut(descriptor)

    def _shut(self, descriptor: int) -> None:
        # the number stays taken until its owner closes it; only the pipe behind it goes
        self._closing.discard(descriptor)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)

    def turn(self, timeout: float) -> None:
        """Wait for the next readable or writable pipe, at most `timeout` seconds, and serve all
        that are ready.
        """
        self._pause_and_resume()
        for key, events in self._selector.select(timeout):
            descriptor = key.fd
            if events & selectors.EVENT_WRITE:
                self._flush(descriptor)
            elif descriptor in self._readers:
                self._read_chunk(descriptor)

    def _read_chunk(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        take = self._readers[descriptor]
        if not data:
            self._selector.unregister(descriptor)
            del self._readers[descriptor]
            self._paused_by.pop(descriptor, None)
        take(data)

    def _pause_and_resume(self) -> None:
        listening = self._selector.get_map()
        for source, sink in self._paused_by.items():
            choked = len(self._pending.get(sink, b"")) > _HIGH_WATER
            if choked and source in listening:
                self._selector.unregister(source)
            elif not choked and source not in listening and source in self._readers:
                self._selector.register(source, selectors.EVENT_READ)


class Prints:
    """Counts what a process prints and keeps its last bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.count = 0

    def take(self, data: bytes) -> None:
        """Count a chunk."""
        self.count += len(data)
        self._kept += data
        del self._kept[: -max(self._limit, 2000)]

    def reset(self) -> None:
        """Start counting for the next unit."""
        self.count = 0

    @property
    def exceeded(self) -> bool:
        """Whether the limit is passed."""
        return self.count > self._limit

    @property
    def text(self) -> str:
        """What is kept."""
        return self._kept.decode("utf-8", "replace")

    @property
    def last_line(self) -> str:
        """Last line printed."""
        lines = self.text.strip().splitlines()
        return lines[-1][:300] if lines else ""


_REAP_SECONDS = 2.0
_WATCH_EVERY = 0.1
_PR_SET_CHILD_SUBREAPER = 36
_ORPHAN_ROUNDS = 100


def kill_children(pid: int) -> None:
    """Kill the children of a process: below one that stands by, process 1 and so its whole namespace."""
    for child in children_of(pid):
        _kill(child)


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def kill_group(leader: int) -> None:
    """Kill a process that began a session, and everything it started there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


class SandboxProcess:
    """A started process with binary pipes; `end` must be called once, in the thread that started
    it.

    `helpers` are the outermost processes of its tree that are the sandbox's own: one that stands by,
    and process 1 of a namespace; none where there is no namespace.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        limits: SandboxLimits,
        environment: Mapping[str, str],
        helpers: int,
        folder: str,
        pass_fds: Sequence[int] = (),
        after_wait: Callable[[], None],
    ) -> None:
        """Start `command`; raises OSError when that fails.

        `after_wait` cleans up once the outermost process is gone.
        """
        _adopts_orphans()
        self._after_wait = after_wait
        self.limits = limits
        self.prints = Prints(limits.output_bytes)
        self.ended = False
        """Whether it has said all."""
        self._helpers = helpers
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd=folder,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            bufsize=0,
        )
        self._next_watch = time.monotonic() + _WATCH_EVERY
        assert self._popen.stdin and self._popen.stdout and self._popen.stderr
        self.stdin = self._popen.stdin.fileno()
        self.stdout = self._popen.stdout.fileno()
        self.stderr = self._popen.stderr.fileno()

    @property
    def pid(self) -> int:
        """Process id of the outermost process."""
        return self._popen.pid

    def excess(self) -> str:
        """Return 'memory' or 'processes' when the tree uses more than its limits, else ''; looks
        ten times a second.
        """
        now = time.monotonic()
        if now < self._next_watch:
            return ""
        self._next_watch = now + _WATCH_EVERY
        resident, processes = tree_usage(self.pid, self._helpers) or (0, 0)
        if resident > self.limits.memory_bytes:
            return "memory"
        # the kernel's own limit comes first where it holds; this one also covers users it exempts
        return "processes" if processes > 2 * self.limits.processes else ""

    def exit_code(self, patience: float) -> int | None:
        """Return the exit code if the process ends within `patience` seconds; negative for a
        signal.
        """
        until = time.monotonic() + patience
        while True:
            code = self._peek()
            if code is not None or time.monotonic() >= until:
                return code
            time.sleep(0.002)

    def _peek(self) -> int | None:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            code = self._popen.poll()
            return None if code is None else _signed(code)
        # not reaped yet: its number, which is also its group's, must not be given away before `end`
        # has killed the group
        state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if state is None:
            return None
        return _signed(state.si_status) if state.si_code == os.CLD_EXITED else -state.si_status

    def end(self) -> None:
        """Kill the process with everything it started, close the pipes, clean up."""
        if self._helpers:
            # Who left the session dies with process 1 alone. Killing its parent first would leave the
            # remains to whatever is process 1 here, and an application that is process 1 of its
            # container never collects them.
            kill_children(self.pid)
            self.exit_code(_REAP_SECONDS)
        kill_group(self.pid)
        self._popen.kill()
        for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._popen.wait()
        self._after_wait()


@contextlib.contextmanager
def with_job(
    started: tuple[SandboxProcess, bytes],
    pump: Pump,
    job: object,
    take: Callable[[bytes], None],
    *,
    fills: int | None = None,
) -> Iterator[SandboxProcess]:
    """Give a process that a runner has started its job, and end it at last; `take` gets what it says,
    and b'' at the end of that.
    """
    process, boot = started

    def said(data: bytes) -> None:
        process.ended = not data
        take(data)

    try:
        pump.on_read(process.stderr, process.prints.take)
        pump.on_read(process.stdout, said, fills=fills)
        pump.write(process.stdin, boot + framed(encode(job, limit=MAX_FRAME)))
        yield process
    finally:
        process.end()


def not_started(cause: str) -> SandboxUnavailable:
    """The error for a process that was gone before it began with its job."""
    return SandboxUnavailable(f"a sandboxed interpreter did not start: {cause}")


def _signed(code: int) -> int:
    # the sandbox reports a signal as 128 + number, as a shell does
    return 128 - code if 128 < code < 160 else code


@functools.cache
def _adopts_orphans() -> bool:
    """Have the system hand processes that lost their parent to this one; only in a worker process,
    whose children are known.
    """
    if not in_worker() or sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def end_orphans(known: set[int]) -> None:
    """In a worker process: kill and reap every child but the known ones, as long as killing brings
    new ones.
    """
    if not _adopts_orphans():
        return
    for _ in range(_ORPHAN_ROUNDS):
        orphans = [pid for pid in children_of(os.getpid()) if pid not in known]
        if not orphans:
            return
        for pid in orphans:
            _kill(pid)
        for pid in orphans:
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)
