"""What belongs to one run and has to reach every call made for it: control, counters, deadline.

Context variables carry it through worker tasks and threads, so that rewards need no extra parameter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
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


current_run: ContextVar[RunControl | None] = ContextVar("rm_gallery_run", default=None)
current_deadline: ContextVar[float | None] = ContextVar("rm_gallery_deadline", default=None)
"""Monotonic time (time.monotonic seconds) at which the current sample runs out, or None."""


def remaining_seconds() -> float | None:
    """Seconds until the current sample's deadline, at least 0; None without one."""
    deadline = current_deadline.get()
    return None if deadline is None else max(0.0, deadline - time.monotonic())


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
