"""What belongs to one run and has to reach every call made for it: control, counters, deadline.

Context variables carry it through worker tasks and threads, so that rewards need no extra parameter.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rm_gallery.core.engine.calls.budget import Budget
from rm_gallery.core.engine.calls.retry import FailFast, RetryPolicy
from rm_gallery.core.engine.calls.usage import Usage
from rm_gallery.core.utils.errors import RMGalleryError


class RunStopped(RMGalleryError):
    """The run was halted before this attempt was made."""

    reason = "stopped"


@dataclass
class RunControl:
    """Counters and the stop switch of one run; shared by all its workers, threads included.

    `stop(reason)` ends the run: samples not begun become failed("stopped"), those in flight finish. With `halt` those make
    no further attempt either.
    """

    max_workers: int = 0
    """Calls the run may have in flight; the ceiling of its endpoint's limiter."""
    budget: Budget | None = None
    retry: RetryPolicy | None = None
    fail_fast: FailFast | None = field(default_factory=FailFast)
    use_cache: bool | None = None
    """None: on at temperature 0. False: neither read nor written."""
    repeat: int = 0
    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    cached: int = 0
    retries: int = 0
    in_flight: int = 0
    started: float = field(default_factory=time.monotonic)
    stopped: str | None = None
    stop_error: BaseException | None = None
    halted: bool = False
    trace: Callable[[dict[str, Any]], None] | None = None
    """Called by a judge once per judgement with its prompt, reply, tokens and seconds."""
    _held: dict[str, Callable[[], None]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def stop(self, reason: str, error: BaseException | None = None, *, halt: bool = False) -> None:
        """Begin no further sample; the first reason given is the one reported."""
        with self._lock:
            self.halted = self.halted or halt
            if self.stopped is None:
                self.stopped, self.stop_error = reason, error

    def check_halted(self) -> None:
        """Raise RunStopped when no further attempt is to be made."""
        if self.halted:
            raise RunStopped(f"Not judged: the run stopped ({self.stopped}).")

    def hold(self, name: str, take: Callable[[], Callable[[], None]]) -> None:
        """Take something once for the whole run; what `take` returns gives it back when the run ends."""
        if name not in self._held:
            self._held[name] = take()

    def end(self) -> None:
        """Give back what the run held."""
        while self._held:
            self._held.popitem()[1]()

    def count(self, *, usage: Usage | None = None, calls: int = 0, cached: int = 0, retries: int = 0) -> None:
        """Add to the counters."""
        with self._lock:
            self.calls += calls
            self.cached += cached
            self.retries += retries
            if usage is not None:
                self.usage.add(usage)


class Deadline:
    """When a sample runs out of time; the clock stands still while one of its calls waits for the library's own limits.

    Shared by all jobs of the sample and read from any thread; `paused` is for coroutines of one event loop.
    """

    __slots__ = ("_end", "_since", "_waiting", "note")

    def __init__(self, seconds: float = math.inf) -> None:
        self._end = time.monotonic() + seconds
        self._waiting = 0
        self._since = 0.0
        self.note = ""
        """What a call was at when its time ended, for the message; empty where there is nothing to tell."""

    @property
    def end(self) -> float:
        """Monotonic seconds (time.monotonic) at which the time is over, if nothing waits any longer."""
        return self._end if not self._waiting else self._end + time.monotonic() - self._since

    @property
    def left(self) -> float:
        """Seconds left, below 0 when it is over."""
        return self.end - time.monotonic()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock while the block waits for its turn."""
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._end += time.monotonic() - self._since


class Cut:
    """Cancels the task inside when the deadline is over, wherever it was moved to, and raises TimeoutError then."""

    __slots__ = ("_before", "_deadline", "_loop", "_task", "_timer", "expired")

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self.expired = False

    def __enter__(self) -> Cut:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling() if sys.version_info >= (3, 11) else 0
        self._timer = self._loop.call_later(max(0.0, self._deadline.left), self._look)
        return self

    def _look(self) -> None:
        left = self._deadline.left
        if left > 0:
            self._timer = self._loop.call_later(max(left, 0.001), self._look)
        else:
            self.expired = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if not self.expired:
            return
        # Somebody else may have cancelled the task in the same turn; their wish goes first.
        others = sys.version_info >= (3, 11) and self._task.uncancel() > self._before
        if kind is not None and issubclass(kind, asyncio.CancelledError) and not others:
            raise asyncio.TimeoutError from error


current_run: ContextVar[RunControl | None] = ContextVar("rm_gallery_run", default=None)
current_deadline: ContextVar[Deadline | None] = ContextVar("rm_gallery_deadline", default=None)
"""When the current sample runs out, or None."""


def remaining_seconds() -> float | None:
    """Seconds until the current sample's deadline, at least 0; None without one."""
    deadline = current_deadline.get()
    return None if deadline is None else max(0.0, deadline.left)


def snapshot(control: RunControl) -> dict[str, Any]:
    """The run's counters as plain numbers, for summaries."""
    return {
        "calls": control.calls,
        "cached": control.cached,
        "retries": control.retries,
        "input_tokens": control.usage.input_tokens,
        "output_tokens": control.usage.output_tokens,
        "cost": control.usage.cost,
    }
