"""Files of a run: a lock that its owner's death frees, files that are whole or not there, and JSON lines that survive a kill."""

from __future__ import annotations

import errno
import importlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from rm_gallery.core.utils.errors import ConfigError, DataError

_open_locks: set[int] = set()
"""Descriptors this process holds a lock by."""
_guard = threading.Lock()
_hooked = False


class FileLock:
    """Exclusive lock on a file, between processes and between holders in one process; its owner's death frees it.

    It belongs to the open file, so that copying or reading the file does not free it. Forked children close what they
    inherit of it: a killed run is free at once even while its orphaned workers live on. The file stays behind; it names the
    last owner.
    """

    def __init__(self, path: Path) -> None:
        _install_fork_hook()
        self.path = path
        self._fd = -1
        self._pid = 0

    def acquire(self, timeout: float = 0.0) -> bool:
        """Try to take the lock for up to `timeout` seconds; False when somebody else keeps it. Raises OSError."""
        give_up = time.monotonic() + timeout
        while not self._try():
            if time.monotonic() >= give_up:
                return False
            time.sleep(0.02)
        return True

    def _try(self) -> bool:
        with _guard:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
            try:
                locked = _lock_open_file(fd)
                if locked:
                    os.ftruncate(fd, 0)
                    os.write(fd, f"{os.getpid()} {socket.gethostname()}\n".encode())
            except (OSError, ConfigError):
                os.close(fd)
                raise
            if not locked:
                os.close(fd)
                return False
            self._fd, self._pid = fd, os.getpid()
            _open_locks.add(fd)
            return True

    def release(self) -> None:
        """Give the lock back; harmless when it is not held, or held by the process this one was forked from."""
        with _guard:
            if self._fd >= 0 and self._pid == os.getpid():
                _open_locks.discard(self._fd)
                os.close(self._fd)
            self._fd = -1

    def owner(self) -> str:
        """Who took the lock last, as `pid N on HOST`; for messages."""
        try:
            pid, _, host = self.path.read_text(encoding="utf-8").strip().partition(" ")
        except (OSError, UnicodeDecodeError):
            return "another process"
        if (pid, host) == (str(os.getpid()), socket.gethostname()):
            return "this process"
        return f"pid {pid} on {host}" if pid else "another process"

    def __enter__(self) -> FileLock:
        if not self.acquire(timeout=10.0):
            raise TimeoutError(f"{self.path} has been locked by {self.owner()} for 10 s")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def _in_child() -> None:
    global _guard
    _guard = threading.Lock()
    while _open_locks:
        os.close(_open_locks.pop())


def _install_fork_hook() -> None:
    """No fork happens while a lock is being taken, and a child keeps none of its parent's locks alive."""
    global _hooked
    if not _hooked and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lambda: _guard.acquire(), after_in_parent=lambda: _guard.release(), after_in_child=_in_child)
    _hooked = True


def _lock_open_file(fd: int) -> bool:
    # imported where it is used: a run without a folder needs no lock of the system
    try:
        import fcntl
    except ImportError:
        return _lock_on_windows(fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK):
            return False
        raise
    return True


def _lock_on_windows(fd: int) -> bool:
    try:
        msvcrt: Any = importlib.import_module("msvcrt")
    except ImportError:
        raise ConfigError(
            "This system locks no files (neither fcntl nor msvcrt is there), so two runs could write one folder at once: "
            "run without a run folder (run_dir, --out)."
        ) from None
    # Far behind the text, which others have to be able to read.
    os.lseek(fd, 1 << 30, os.SEEK_SET)
    try:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    os.lseek(fd, 0, os.SEEK_SET)
    return True


_BLOCK = 1 << 20


def to_line(record: dict[str, Any]) -> bytes:
    """A record as one JSON line with its line end.

    Raises:
        DataError: it holds something JSON has no form for.
    """
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        # Lone surrogates, integers above 64 bit, keys that are no strings: slower, and escaped.
        try:
            return json.dumps(record).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise DataError(f"the record of {record.get('id')!r} cannot be written as JSON: {error}") from None


def from_line(line: bytes) -> dict[str, Any] | None:
    """The record in a line; None when the line holds none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return record if isinstance(record, dict) else None


def read_lines(path: Path) -> Iterator[bytes]:
    """The non-empty lines of a file that may not exist, one in memory at a time."""
    try:
        file = open(path, "rb")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            if line.strip():
                yield line


def mend_tail(fd: int) -> int:
    """Cut a half-written last line, or end a whole one that lacks its line end; returns the bytes cut.

    `fd` is open for reading and appending.
    """
    end = os.lseek(fd, 0, os.SEEK_END)
    start = _line_start(fd, end)
    if start == end:
        return 0
    os.lseek(fd, start, os.SEEK_SET)
    tail = os.read(fd, end - start)
    if from_line(tail) is not None:
        os.write(fd, b"\n")
        return 0
    os.ftruncate(fd, start)
    return end - start


def _line_start(fd: int, end: int) -> int:
    """Where the text after the last line end before `end` begins."""
    position = end
    while position > 0:
        step = min(_BLOCK, position)
        position -= step
        os.lseek(fd, position, os.SEEK_SET)
        found = os.read(fd, step).rfind(b"\n")
        if found >= 0:
            return position + found + 1
    return 0
