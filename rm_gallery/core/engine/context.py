"""What belongs to one run and has to reach every call made for it: control, counters, deadline.

Context variables carry it through worker tasks and threads, so that rewards need no extra parameter.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from rm_gallery.core.engine.calls.budget import Budget
from rm_gallery.core.engine.calls.prices import Usage
from rm_gallery.core.engine.calls.retry import FailFast, RetryPolicy
from rm_gallery.core.engine.loop import RunStopped as RunStopped


@dataclass
class RunControl:
    """Counters and the stop switch of one run; shared by all its workers, threads included.

    `stop(reason)` ends the run: samples not begun become failed("stopped"), those in flight finish. With `halt` those make
    no further attempt either. A run that is started inside another one counts there as well and stops with it.
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
    spared: int = 0
    """Judgements that a gate or cascade found not to be needed."""
    retries: int = 0
    in_flight: int = 0
    started: float = field(default_factory=time.monotonic)
    stopped: str | None = None
    halted: bool = False
    quiet: bool = False
    """Whether the caller says itself what failed, so that the run does not."""
    trace: Callable[[dict[str, Any]], None] | None = None
    """Called by a judge once per judgement with its prompt, reply, tokens and seconds."""
    parent: RunControl | None = None
    """The run this one was started in."""
    _held: dict[str, Callable[[], None]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, *, max_workers: int, budget: Budget | None, cache: bool | None, repeat: int) -> None:
        """Start fresh, as a child of the run that this is called in, from which comes whatever is not given."""
        outer = current_run.get()
        self.max_workers = max_workers
        self.budget, self.use_cache, self.repeat = budget, cache, repeat
        self.usage, self.started = Usage(), time.monotonic()
        self.calls = self.cached = self.spared = self.retries = self.in_flight = 0
        self.stopped = None
        self.halted = False
        self.parent = None
        if outer is not None and outer is not self:
            self.parent = outer
            self.budget = budget or outer.budget
            self.use_cache = outer.use_cache if cache is None else cache
            self.repeat = repeat or outer.repeat
            self.retry = self.retry or outer.retry
            self.fail_fast = outer.fail_fast
            self.trace = self.trace or outer.trace
        elif self.fail_fast is not None:
            self.fail_fast = FailFast(self.fail_fast.limit)

    def stop(self, reason: str, *, halt: bool = False) -> None:
        """Begin no further sample; the first reason given is the one reported."""
        with self._lock:
            self.halted = self.halted or halt
            if self.stopped is None:
                self.stopped = reason
        if halt and self.parent is not None:  # what cannot go on here cannot go on around it
            self.parent.stop(reason, halt=True)

    @property
    def why_stopped(self) -> str | None:
        """Why this run, or one around it, begins nothing more; None while it goes on."""
        if self.stopped is None and self.parent is not None:
            return self.parent.why_stopped
        return self.stopped

    def check_halted(self) -> None:
        """Raise RunStopped when no further attempt is to be made."""
        if self.halted:
            raise RunStopped(f"Not judged: the run stopped ({self.stopped}).")
        if self.parent is not None:
            self.parent.check_halted()

    def hold(self, name: str, take: Callable[[], Callable[[], None]]) -> None:
        """Take something once for the whole run; what `take` returns gives it back when the run ends."""
        if name not in self._held:
            self._held[name] = take()

    def end(self) -> None:
        """Give back what the run held."""
        while self._held:
            self._held.popitem()[1]()

    def count(
        self, *, usage: Usage | None = None, calls: int = 0, cached: int = 0, retries: int = 0, spared: int = 0
    ) -> None:
        """Add to the counters."""
        with self._lock:
            self.calls += calls
            self.cached += cached
            self.spared += spared
            self.retries += retries
            if usage is not None:
                self.usage.add(usage)
        if self.parent is not None:
            self.parent.count(usage=usage, calls=calls, cached=cached, retries=retries, spared=spared)


class Deadline:
    """When a sample runs out of time; the clock stands still while one of its calls waits for the library's own limits.

    Shared by all jobs of the sample and read from any thread; `paused` is for coroutines of one event loop.
    """

    __slots__ = ("_clock", "_end", "_followers", "_outer", "_since", "_turns", "_waiting", "note")

    def __init__(
        self, seconds: float = math.inf, outer: Deadline | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self._outer = outer
        """Of the sample around this one, whose end holds here as well and whose clock stands still with this one."""
        self._waiting = self._turns = 0
        self._since = 0.0
        self._followers: list[Deadline] = []
        self.note = ""
        """What a call was at when its time ended, for the message; empty where there is nothing to tell."""

    @property
    def end(self) -> float:
        """Monotonic seconds (time.monotonic) at which the time is over, if nothing waits any longer."""
        end = self._end if not self._waiting else self._end + self._clock() - self._since
        return end if self._outer is None else min(end, self._outer.end)

    @property
    def left(self) -> float:
        """Seconds left, below 0 when it is over."""
        return self.end - self._clock()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock, and those of its followers, while the block waits for its turn."""
        self._turns += 1
        for each in (self, *self._followers):
            each._count(1)
        try:
            yield
        finally:
            self._turns -= 1
            for each in (self, *self._followers):
                each._count(-1)

    @contextmanager
    def following(self, leader: Deadline) -> Iterator[None]:
        """Inside the block this clock stands still whenever a call of `leader`'s sample waits for its turn."""
        leader._followers.append(self)
        self._count(leader._turns)
        try:
            yield
        finally:
            leader._followers.remove(self)
            self._count(-leader._turns)

    def _count(self, turns: int) -> None:
        each: Deadline | None = self
        while each is not None:
            for _ in range(abs(turns)):
                each._hold() if turns > 0 else each._go_on()
            each = each._outer

    def _hold(self) -> None:
        if not self._waiting:
            self._since = self._clock()
        self._waiting += 1

    def _go_on(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._end += self._clock() - self._since


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
        **({"spared": control.spared} if control.spared else {}),
        "retries": control.retries,
        "input_tokens": control.usage.input_tokens,
        "output_tokens": control.usage.output_tokens,
        "cost": control.usage.cost,
    }
