"""The child side of the worker pool: reads chunks of calls, answers each by itself, leaves with its
parent; and how functions are named.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import importlib
import math
import operator
import os
import pickle
import queue
import struct
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from rm_gallery.core.utils.errors import ConfigError

REQUEST = struct.Struct("<Q")
"""Head of a frame to the child: length of the pickle that follows."""
ANSWER = struct.Struct("<BBdQ")
"""Head of a frame to the parent: kind, whether the child should be replaced, seconds used, length
of the pickle.
"""

STARTED, VALUE, ERROR, MEMORY = range(4)
"""Kinds of answers: the chunk's functions are loaded; then per call a value, an exception, or the
memory cap.
"""

_ORPHAN_SLACK = 5.0
_SERVING = threading.Event()
_FUNCTIONS_KEPT = 64


class Request(NamedTuple):
    """One call of a chunk: which of the chunk's functions, its pickled positional arguments, its
    limit in seconds.
    """

    function: int
    arguments: bytes
    deadline: float | None


def in_worker() -> bool:
    """Whether this process is a worker of a pool, so that every child of it belongs to the call it
    runs.
    """
    return _SERVING.is_set()


def main() -> None:
    """Serve chunks from stdin until it closes."""
    _SERVING.set()
    frames_in, frames_out = claim_pipes()
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    # A thread of its own notices the parent's death also while a call is running.
    threading.Thread(target=_read_frames, args=(frames_in, inbox), daemon=True).start()
    memory_cap: int | None = pickle.loads(inbox.get())
    _limit_resources(memory_cap)
    server = _Server(frames_out, memory_cap)
    while True:
        server.serve(inbox.get())


def claim_pipes() -> tuple[int, int]:
    """Take the frame pipes away from stdin and stdout, so that prints of user code go to stderr."""
    frames_in, frames_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # started without a stderr
        os.dup2(null, 1)
    os.close(null)
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    return frames_in, frames_out


def _read_frames(fd: int, inbox: queue.SimpleQueue[bytes]) -> None:
    with os.fdopen(fd, "rb") as stream:
        while True:
            head = stream.read(REQUEST.size)
            body = stream.read(REQUEST.unpack(head)[0]) if len(head) == REQUEST.size else b""
            if not body:
                os._exit(0)
            inbox.put(body)


def _limit_resources(memory_cap: int | None) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    caps = [
        (resource.RLIMIT_CORE, 0),
        *([] if memory_cap is None else [(resource.RLIMIT_AS, memory_cap)]),
    ]
    for kind, cap in caps:
        hard = resource.getrlimit(kind)[1]
        with contextlib.suppress(OSError, ValueError):  # macOS refuses a cap on memory
            resource.setrlimit(
                kind, (cap if hard == resource.RLIM_INFINITY else min(cap, hard), hard)
            )


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    with (
        contextlib.suppress(OSError, StopIteration),
        open("/proc/self/status", encoding="ascii") as status,
    ):
        # Linux counts what the parent held when it started this process in `ru_maxrss`, but not
        # here
        return int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class _Server:
    def __init__(self, frames_out: int, memory_cap: int | None) -> None:
        self._out = frames_out
        self._memory_cap = memory_cap
        self._functions: dict[bytes, Callable[..., Any] | ConfigError] = {}
        self._orphan_timer = _OrphanTimer()
        self._memory_limit = math.inf

    def serve(self, frame: bytes) -> None:
        references: list[bytes]
        requests: list[Request]
        references, requests = pickle.loads(frame)
        fresh = not self._functions
        functions = [self._function(reference) for reference in references]
        if fresh:
            # imports the modules of its classes before the clock runs: a busy machine takes seconds
            # for what is no answer's work
            with contextlib.suppress(Exception):
                pickle.loads(requests[0].arguments)
        self._send_answer(STARTED, 0.0, b"")
        last = len(requests) - 1
        for position, request in enumerate(requests):
            self._orphan_timer.cover(request.deadline)
            begun = time.perf_counter()
            kind, payload = _outcome(functions[request.function], request.arguments)
            if position == last:
                self._orphan_timer.cancel()
            leave = kind == MEMORY or (position == last and self._has_grown())
            self._send_answer(kind, time.perf_counter() - begun, payload, leave=leave)

    def _function(self, reference: bytes) -> Callable[..., Any] | ConfigError:
        function = self._functions.get(reference)
        if function is None:
            try:
                function = _load_function(reference)
            except Exception as error:  # noqa: BLE001 - becomes the outcome of every call of this function
                return ConfigError(
                    f"a function cannot be loaded in a worker process ({_brief(error)})"
                )
            if len(self._functions) >= _FUNCTIONS_KEPT:
                self._functions.clear()
            self._functions[reference] = function
        return function

    def _has_grown(self) -> bool:
        """Whether caches of user code have eaten so much, against the first chunk, that a fresh
        process is due.
        """
        if self._memory_cap is None:
            return False
        peak = _peak_memory()
        if self._memory_limit == math.inf:
            self._memory_limit = max(self._memory_cap / 2, 2 * peak)
        return peak > self._memory_limit

    def _send_answer(
        self, kind: int, seconds: float, payload: bytes, *, leave: bool = False
    ) -> None:
        data = memoryview(ANSWER.pack(kind, leave, seconds, len(payload)) + payload)
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError:  # the parent is gone
            os._exit(0)


class _OrphanTimer:
    """Ends this process by itself when the parent died while native code holds the interpreter
    lock.

    The parent kills an overdue call first; this timer needs no lock and fires some seconds after
    that.
    """

    def __init__(self) -> None:
        self._expires = math.inf
        self._null = open(os.devnull, "w")

    def cover(self, deadline: float | None) -> None:
        if deadline is None:
            self.cancel()
            return
        now = time.monotonic()
        # Arming costs a thread start, so one arming serves all calls of the next second.
        if self._expires == math.inf or self._expires < now + deadline + _ORPHAN_SLACK - 1.0:
            faulthandler.dump_traceback_later(deadline + _ORPHAN_SLACK, exit=True, file=self._null)
            self._expires = now + deadline + _ORPHAN_SLACK

    def cancel(self) -> None:
        if self._expires != math.inf:
            faulthandler.cancel_dump_traceback_later()
            self._expires = math.inf


def _load_function(reference: bytes) -> Callable[..., Any]:
    """Import or unpickle a function, and have its module's `prepare_worker`, where there is one, do
    what only a first call pays.
    """
    module, qualname, pickled = pickle.loads(reference)
    function: Callable[..., Any]
    function = (
        operator.attrgetter(qualname)(importlib.import_module(module))
        if pickled is None
        else pickle.loads(pickled)
    )
    home = sys.modules.get(getattr(function, "__module__", None) or type(function).__module__)
    getattr(home, "prepare_worker", lambda: None)()
    return function


def _outcome(function: Callable[..., Any] | ConfigError, arguments: bytes) -> tuple[int, bytes]:
    try:
        if isinstance(function, ConfigError):
            raise function
        value = function(*_rebuilt(arguments))
        try:
            return VALUE, pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except MemoryError:
            raise
        except Exception as error:
            raise TypeError(
                f"a result of type {type(value).__qualname__} cannot be pickled ({_brief(error)})"
            ) from error
    except MemoryError as error:
        error.__traceback__ = None  # frees the frames that hold the memory
        return MEMORY, b""
    except BaseException as error:  # noqa: BLE001 - travels to the parent and is raised there
        return ERROR, _portable(error)


def _rebuilt(pickled: bytes) -> tuple[Any, ...]:
    try:
        arguments: tuple[Any, ...] = pickle.loads(pickled)
    except MemoryError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the arguments of a call cannot be rebuilt in a worker process ({_brief(error)}); "
            "their classes have to live in an importable module, not in the script that is run"
        ) from error
    return arguments


def _portable(error: BaseException) -> bytes:
    """The exception itself where a copy survives pickling, else a RuntimeError with its type name
    and message.
    """
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    # SystemExit and its like must not stop the thread that asks for the result.
    if isinstance(error, Exception):
        with contextlib.suppress(Exception):
            data = pickle.dumps((error, text), pickle.HIGHEST_PROTOCOL)
            if type(pickle.loads(data)[0]) is type(error):
                return data
    return pickle.dumps((RuntimeError(_brief(error)), text), pickle.HIGHEST_PROTOCOL)


def _brief(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide which error it was
        message = "no message"
    return f"{type(error).__qualname__}: {message[:2000]}"


def function_reference(function: Callable[..., Any]) -> tuple[str, bytes]:
    """Name and reference by which a worker process finds the function.

    Functions and classes travel by name; bound methods, partials and callable objects are pickled.
    Raises ConfigError: the function lives in the script that is run, is a lambda or a closure, or
    cannot be pickled.
    """
    module, qualname = _home(function)
    name = f"{module}.{qualname}"
    if module in ("__main__", "__mp_main__"):
        raise ConfigError(
            f"{name} lives in the script that is run; move it to a module, worker processes import it"
        )
    if "<locals>" in qualname or "<lambda>" in qualname:
        raise ConfigError(
            f"{name} is a lambda or an inner function; use a function at the top of a module"
        )
    by_name = isinstance(function, types.FunctionType | type) or (
        isinstance(function, types.BuiltinFunctionType)
        and isinstance(function.__self__, types.ModuleType)
    )
    if by_name:
        importable: Any = sys.modules.get(module)
        for part in qualname.split("."):
            importable = getattr(importable, part, None)
        if importable is not function:
            raise ConfigError(
                f"{module}:{qualname} is not the function given, so worker processes cannot find it"
            )
    try:
        pickled = None if by_name else pickle.dumps(function, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be sent to a worker process: {type(error).__name__}: {error}"
        ) from error
    return name, pickle.dumps((module, qualname, pickled))


def _home(function: Callable[..., Any]) -> tuple[str, str]:
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    owner = getattr(target, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        owner_class = owner if isinstance(owner, type) else type(owner)
        return (
            owner_class.__module__,
            f"{owner_class.__qualname__}.{getattr(target, '__name__', 'call')}",
        )
    if not hasattr(target, "__qualname__"):
        target = type(target)
    return getattr(target, "__module__", None) or "builtins", target.__qualname__
