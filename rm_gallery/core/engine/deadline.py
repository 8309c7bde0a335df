"""When a sample runs out of time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rm_gallery.core.utils.errors import Cause


class Deadline:
    """When a sample runs out of time; the clock stands still while one of its calls waits for the
    library's own limits.

    Shared by all jobs of the sample and read from any thread; `paused` is for coroutines of one
    event loop.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        outer: Deadline | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        shared: bool = False,
        process_seconds: float = math.inf,
    ) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self.due = self._end if shared else math.inf
        """Where all samples of a request share it, when whoever asked goes away, whatever waits: no
        clock stands still for him.
        """
        self.process_seconds = process_seconds
        """Seconds of worker processes that are left to the request; what begins without any is cut
        short. For coroutines of one event loop.
        """
        self._outer = outer
        """Of the sample around this one, whose end holds here as well and whose clock stands still
        with this one.
        """
        self._waiting = 0
        """How many calls wait; the first one noted since when."""
        self._followers = [outer] if outer else []
        """The clocks that stand still with this one."""
        self.by: Cause = "caller"
        """Who is to be named where the time ends now: the endpoint, while it is what is waited for."""
        self.note = ""
        """What a call was at when its time ended, for the message; empty where there is nothing to
        tell.
        """

    @property
    def end(self) -> float:
        """Monotonic seconds (time.monotonic) at which the time is over, if nothing waits any
        longer.
        """
        end = self._end if not self._waiting else self._end + self._clock() - self._since
        return end if self._outer is None else min(end, self._outer.end)

    @property
    def left(self) -> float:
        """Seconds left, below 0 when it is over."""
        return self.end - self._clock()

    def expire(self) -> None:
        """End the time now: nobody waits for the sample any more."""
        self._end = -math.inf

    @property
    def request(self) -> Deadline | None:
        """That of the request around this sample; None where nobody waits for several samples at
        once.
        """
        each: Deadline = self
        while each._outer is not None:
            each = each._outer
        return each if each.due < math.inf else None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock, and those of its followers, while the block waits for its turn."""
        self.add_waiting()
        try:
            yield
        finally:
            self.add_waiting(-1)

    @contextmanager
    def following(self, leader: Deadline) -> Iterator[None]:
        """Inside the block this clock stands still whenever a call of `leader`'s sample waits for
        its turn.
        """
        leader._followers.append(self)
        self.add_waiting(leader._waiting)
        try:
            yield
        finally:
            leader._followers.remove(self)
            self.add_waiting(-leader._waiting)

    def add_waiting(self, turns: int = 1, since: float | None = None) -> None:
        """So many more calls wait, from `since` on, else from now; the clock stands while any does,
        and so do those of its followers.
        """
        if not turns:
            return
        if not self._waiting:
            self._since = self._clock() if since is None else since
        if not self._waiting + turns:  # before it goes on: it is read on other threads meanwhile
            self._end += self._clock() - self._since
        self._waiting += turns
        for each in self._followers:
            each.add_waiting(turns, since)
