"""One call of the worker pool: how its function is named, what its future becomes, and the errors only a pool has."""

from __future__ import annotations

import functools
import math
import pickle
import sys
import types
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

from rm_gallery.core.engine.workers.main import ERROR, MEMORY, Request
from rm_gallery.core.engine.workers.process import Answer, describe_exit
from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded, RMGalleryError


class WorkerCrashed(RMGalleryError):
    """The process that ran a call ended by itself; `exit_code` is negative for a signal."""

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class WorkerMemoryExceeded(RMGalleryError, MemoryError):
    """A call needed more than the memory cap of a worker process."""


class RemoteTraceback(Exception):
    """Cause of an error raised in a worker: the traceback there, as text."""

    def __str__(self) -> str:
        return "\n" + "".join(str(argument) for argument in self.args)


class Call:
    """A function, its arguments and the future that gets the outcome."""

    __slots__ = ("_begun", "_running", "aborted", "arguments", "deadline", "future", "name", "reference")

    def __init__(self, name: str, reference: bytes, arguments: bytes, deadline: float | None) -> None:
        self.name = name
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
        self.fail(
            DeadlineExceeded(f"{self.name} ran longer than its deadline of {self.deadline:g} s; its process was killed")
        )

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


def function_reference(function: Callable[..., Any]) -> tuple[str, bytes]:
    """Name and reference by which a worker process finds the function.

    Functions and classes travel by name; bound methods, partials and callable objects are pickled.

    Raises:
        ConfigError: the function lives in the script that is run, is a lambda or a closure, or cannot be pickled.
    """
    module, qualname = _home(function)
    name = f"{module}.{qualname}"
    if module in ("__main__", "__mp_main__"):
        raise ConfigError(f"{name} lives in the script that is run; move it to a module, worker processes import it")
    if "<locals>" in qualname or "<lambda>" in qualname:
        raise ConfigError(f"{name} is a lambda or an inner function; use a function at the top of a module")
    if _travels_by_name(function):
        found: Any = sys.modules.get(module)
        for part in qualname.split("."):
            found = getattr(found, part, None)
        if found is not function:
            raise ConfigError(f"{module}:{qualname} is not the function given, so worker processes cannot find it")
        return name, pickle.dumps((module, qualname, None))
    try:
        return name, pickle.dumps((module, qualname, pickle.dumps(function, pickle.HIGHEST_PROTOCOL)))
    except Exception as error:
        raise ConfigError(f"{name} cannot be sent to a worker process: {type(error).__name__}: {error}") from error


def pickle_arguments(name: str, arguments: tuple[Any, ...]) -> bytes:
    """Arguments as bytes; raises ConfigError naming the function when one cannot be pickled."""
    try:
        return pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ConfigError(f"an argument of {name} cannot be pickled: {type(error).__name__}: {error}") from error


def check_deadline(deadline: float | None) -> None:
    """Raise ConfigError unless the deadline is None or a positive number of seconds."""
    if deadline is not None and not (deadline > 0 and math.isfinite(deadline)):
        raise ConfigError(f"a deadline is a positive number of seconds or None, found {deadline!r}")


def _home(function: Callable[..., Any]) -> tuple[str, str]:
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    owner = getattr(target, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        owner_class = owner if isinstance(owner, type) else type(owner)
        return owner_class.__module__, f"{owner_class.__qualname__}.{getattr(target, '__name__', 'call')}"
    if not hasattr(target, "__qualname__"):
        target = type(target)
    return getattr(target, "__module__", None) or "builtins", target.__qualname__


def _travels_by_name(function: Callable[..., Any]) -> bool:
    if isinstance(function, types.BuiltinFunctionType):
        return isinstance(function.__self__, types.ModuleType)
    return isinstance(function, (types.FunctionType, type))
