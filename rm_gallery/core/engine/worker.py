"""What runs in a worker process of the pool: it answers one call after the other, each by itself, and
leaves with its parent.

Both sides write pickles to one socket. A chunk is a list of calls (pickled function, pickled
arguments, seconds or None). Its answers are None once the functions are loaded, then per call the
pickled outcome (value, error, traceback), or None beyond the memory cap, and whether the process
is to be replaced.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import pickle
import queue
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rm_gallery.core.utils.errors import ConfigError

Request = tuple[bytes, bytes, float | None]

ORPHAN_SLACK = 5.0
"""Seconds beyond a call's limit after which its process ends by itself: the parent, which kills it at
the limit, must have died.
"""
_FOR_EVER = 1e6
_serving = threading.Event()


def in_worker() -> bool:
    """Whether this process is a worker of a pool, so that every child of it belongs to the call it
    runs.
    """
    return _serving.is_set()


def main(memory_cap: int) -> None:
    """Serve chunks from stdin until it closes; a cap of 0 bytes is none."""
    _serving.set()
    connection = _claim_connection()
    inbox: queue.SimpleQueue[list[Request]] = queue.SimpleQueue()
    # A thread of its own notices the parent's death also while a call is running.
    threading.Thread(target=_take_chunks, args=(connection, inbox), daemon=True).start()
    _limit_resources(memory_cap)
    null = open(os.devnull, "w")
    fresh, most, covered = True, 0.0, 0.0
    while True:
        requests = inbox.get()
        for reference, arguments, _ in requests:
            with suppress(Exception):  # becomes the outcome of its calls
                _loaded(reference)
                if fresh:
                    # imports the modules of its classes before the clock runs: a busy machine takes
                    # seconds for what is no answer's work
                    pickle.loads(arguments)
            fresh = False
        _send(connection, None)
        for number, (reference, arguments, seconds) in enumerate(requests, 1):
            # Ends this process also while native code holds the interpreter lock. It costs a thread
            # start, so one serves all calls of the next second.
            until = time.monotonic() + (seconds or _FOR_EVER) + ORPHAN_SLACK
            if until - covered > 1.0:
                faulthandler.dump_traceback_later(until - time.monotonic(), exit=True, file=null)
                covered = until
            leave = False
            try:
                payload: bytes | None = _outcome(reference, arguments)
            except MemoryError as error:
                error.__traceback__ = None  # frees the frames that hold the memory
                payload, leave = None, True
            if leave or number == len(requests):
                faulthandler.cancel_dump_traceback_later()
                covered = 0.0
                # caches of user code may have eaten so much, against the first chunk, that a fresh
                # process is due
                peak = _peak_memory()
                most = most or max(memory_cap / 2, 2 * peak)
                leave = leave or (memory_cap > 0 and peak > most)
            _send(connection, (payload, leave))
            if leave:
                break


def _claim_connection() -> socket.socket:
    """Take the connection away from stdin, and have prints of user code go to stderr."""
    if sys.platform == "win32":
        connection = socket.fromshare(sys.stdin.buffer.read())
    else:
        connection = socket.socket(fileno=os.dup(0))
        # a child that user code forks must not keep the parent waiting once this process is dead
        os.register_at_fork(after_in_child=lambda: os.dup2(0, connection.fileno(), False))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    with suppress(OSError):  # started without a stderr
        os.dup2(2, 1)
    sys.stdout = sys.stderr
    return connection


def _take_chunks(connection: socket.socket, inbox: queue.SimpleQueue[list[Request]]) -> None:
    try:
        stream = connection.makefile("rb")
        while True:
            inbox.put(pickle.load(stream))
    finally:  # the parent is gone
        os._exit(0)


def _send(connection: socket.socket, answer: tuple[bytes | None, bool] | None) -> None:
    try:
        connection.sendall(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
    except OSError:  # the parent is gone
        os._exit(0)


def _limit_resources(memory_cap: int) -> None:
    with suppress(ImportError):  # Windows
        import resource

        for kind, cap in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, memory_cap))[
            : 1 + (memory_cap > 0)
        ]:
            # what is tighter already stays; macOS refuses a cap on memory
            with suppress(OSError, ValueError):
                resource.setrlimit(kind, (cap, resource.getrlimit(kind)[1]))


def _peak_memory() -> int:
    with suppress(OSError, StopIteration), open("/proc/self/status", encoding="ascii") as status:
        # Linux counts what the parent held when it started this process in `ru_maxrss`, but not
        # here
        return int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) * 1024
    with suppress(ImportError):  # Windows
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return 0


@functools.lru_cache(64)
def _loaded(reference: bytes) -> Callable[..., Any]:
    """Unpickle a function, and have its module's `prepare_worker`, where there is one, do what only a
    first call pays.
    """
    function: Callable[..., Any] = pickle.loads(reference)
    home = sys.modules.get(getattr(function, "__module__", None) or type(function).__module__)
    getattr(home, "prepare_worker", bool)()
    return function


def _outcome(reference: bytes, pickled: bytes) -> bytes:
    """What a call ends as, for the parent; raises MemoryError alone."""
    try:
        try:
            function, arguments = _loaded(reference), pickle.loads(pickled)
        except MemoryError:
            raise
        except Exception as error:
            raise ConfigError(
                f"a call cannot be rebuilt in a worker process ({brief(error)}); its function and "
                "the classes of its arguments have to live in an importable module, not in the "
                "script that is run"
            ) from error
        value = function(*arguments)
        try:
            return pickle.dumps((value, None, ""), pickle.HIGHEST_PROTOCOL)
        except MemoryError:
            raise
        except Exception as error:
            raise TypeError(
                f"a result of type {type(value).__qualname__} cannot be pickled ({brief(error)})"
            ) from error
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 - travels to the parent and is raised there
        return _portable(error)


def _portable(error: BaseException) -> bytes:
    """The exception itself where a copy survives pickling, else a RuntimeError with its type name
    and message.
    """
    text = "\n" + "".join(traceback.format_exception(error))
    # SystemExit and its like must not stop the thread that asks for the result.
    if isinstance(error, Exception):
        with suppress(Exception):
            data = pickle.dumps((None, error, text), pickle.HIGHEST_PROTOCOL)
            if type(pickle.loads(data)[1]) is type(error):
                return data
    return pickle.dumps((None, RuntimeError(brief(error)), text), pickle.HIGHEST_PROTOCOL)


def brief(error: BaseException) -> str:
    """Type and message of an error, whatever its `__str__` does."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide which error it was
        message = "no message"
    return f"{type(error).__qualname__}: {message[:2000]}"
