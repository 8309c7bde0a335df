"""Calls of several runs take turns, and as many start per minute as are allowed."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from rm_gallery.core.utils.errors import Cause, ConfigError

W = TypeVar("W")


class FairQueue(Generic[W]):
    """Waiting calls of several runs: one of each run in turn, and within a run first come, first
    served.
    """

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[tuple[asyncio.Future[bool], W]]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __len__(self) -> int:
        return sum(not waiter.done() for line in self._lines.values() for waiter, _ in line)

    def push(self, line: Hashable, waiter: asyncio.Future[bool], what: W) -> None:
        """Stand in the line of a run."""
        self._lines.setdefault(line, deque()).append((waiter, what))

    def first(self) -> tuple[asyncio.Future[bool], W] | None:
        """Whose turn is next; callers that went away are forgotten."""
        while self._lines:
            key = next(iter(self._lines))
            line = self._lines[key]
            while line and line[0][0].done():
                line.popleft()
            if line:
                return line[0]
            del self._lines[key]
        return None

    def pop(self) -> asyncio.Future[bool] | None:
        """Take out whose turn is next; after it the other runs come first."""
        entry = self.first()
        if entry is None:
            return None
        key = next(iter(self._lines))
        line = self._lines.pop(key)
        line.popleft()
        if line:
            self._lines[key] = line
        return entry[0]


class RateLimit:
    """Keeps calls under requests and tokens per minute; None leaves a side unlimited.

    Tokens are reserved by estimate and corrected by `settle`. Runs take turns; calls of one run
    start in the order they asked. At most one second's worth is given out at once after a quiet
    time. Not thread-safe: one event loop. Raises ConfigError: a rate that is not positive.
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._requests: _Bucket | None = None
        self._tokens: _Bucket | None = None
        self._queue: FairQueue[int] = FairQueue()
        self._timer: asyncio.TimerHandle | None = None
        self.set(requests_per_minute, tokens_per_minute)

    def set(
        self, requests_per_minute: float | None = None, tokens_per_minute: float | None = None
    ) -> None:
        """Take over rates; what is asked for last holds, None changes nothing."""
        self._requests = self._changed(self._requests, requests_per_minute, "requests_per_minute")
        self._tokens = self._changed(self._tokens, tokens_per_minute, "tokens_per_minute")

    def _changed(
        self, bucket: _Bucket | None, per_minute: float | None, name: str
    ) -> _Bucket | None:
        if per_minute is None:
            return bucket
        if not 0 < per_minute < math.inf:
            raise ConfigError(f"{name} must be a positive number, got {per_minute}")
        if bucket is None:
            return _Bucket(per_minute, self._clock())
        bucket.set_rate(per_minute)
        return bucket

    def enter(self, tokens: int) -> bool:
        """Take the turn of a call expected to use `tokens` tokens if it is its turn at once; else
        `wait` for it.
        """
        if self._requests is None and self._tokens is None:
            return True
        if self._queue or self._delay(tokens) > 0.0:
            return False
        self._take(1, tokens)
        return True

    async def wait(self, tokens: int, line: Hashable) -> None:
        """Wait for the turn of a call in the line of one run; a cancelled wait takes nothing."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.push(line, waiter, tokens)
        self._start_next()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._take(-1, -tokens)
            self._start_next()
            raise

    async def acquire(self, tokens: int = 0, line: Hashable = None) -> None:
        """`enter`, else `wait`."""
        if not self.enter(tokens):
            await self.wait(tokens, line)

    def settle(self, reserved: int, used: int) -> None:
        """Correct a reservation of `reserved` tokens by the `used` ones the reply reports (0 for a
        refused call).
        """
        if self._tokens is not None and reserved != used:
            self._tokens.level += reserved - used
            self._start_next()

    def _delay(self, tokens: int) -> float:
        now = self._clock()
        wait = self._requests.delay(1.0, now) if self._requests is not None else 0.0
        return max(wait, self._tokens.delay(tokens, now)) if self._tokens is not None else wait

    def _take(self, requests: int, tokens: int) -> None:
        if self._requests is not None:
            self._requests.level -= requests
        if self._tokens is not None:
            self._tokens.level -= tokens

    def _start_next(self) -> None:
        """Start the calls whose turn it is and set the timer for the next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while (entry := self._queue.first()) is not None:
            waiter, tokens = entry
            wait = self._delay(tokens)
            if wait > 0.0:
                self._timer = asyncio.get_running_loop().call_later(wait, self._start_next)
                return
            self._take(1, tokens)
            self._queue.pop()
            waiter.set_result(False)


class _Bucket:
    """Refills at `per_minute`/60 per second up to one second's worth; may go into debt for one
    large take.
    """

    def __init__(self, per_minute: float, now: float) -> None:
        self.stamp = now
        self.set_rate(per_minute)
        self.level = self.capacity

    def set_rate(self, per_minute: float) -> None:
        self.rate = per_minute / 60.0
        self.capacity = max(1.0, self.rate)

    def delay(self, need: float, now: float) -> float:
        """Seconds until `need` can be taken; a need above the capacity waits for a full bucket."""
        self.level = min(self.capacity, self.level + (now - self.stamp) * self.rate)
        self.stamp = now
        missing = min(need, self.capacity) - self.level
        # Refilling in floating point may end a hair below the mark for ever.
        return missing / self.rate if missing > 1e-9 * self.capacity else 0.0


_KNOWN = 512
_ENOUGH = 8
"""So many answers have to be known before anything can be told from them."""


class StoppableClock(Protocol):
    """A sample's clock."""

    by: Cause
    """Who is named where its time ends."""

    def stop(self, since: float) -> None:
        """Let it stand still from `since` on."""

    def go(self) -> None:
        """Let it go on."""


class CallsOut:
    """The calls that are at an endpoint: how long they take, and the clocks of their samples, which
    stand still from when each was sent while the endpoint is down. An outage is nobody's deadline.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._out: dict[object, tuple[float, StoppableClock | None]] = {}
        self._stopped = False
        self._took: deque[float] = deque(maxlen=_KNOWN)

    def sent(self, call: object, clock: StoppableClock | None = None) -> float:
        """Note a call that is about to be sent, and its sample's clock; when that was."""
        now = self._clock()
        self._out[call] = now, clock
        if clock is not None and self._stopped:
            clock.stop(now)
        return now

    def ended(self, call: object, *, answered: bool) -> None:
        """Note that a call ended, with an answer or without."""
        sent, clock = self._out.pop(call, (math.inf, None))
        if clock is not None and self._stopped:
            clock.go()
        if answered and sent < math.inf:
            self._took.append(self._clock() - sent)

    @property
    def slow(self) -> bool:
        """Whether the last answers took more than a second and than five times what quick ones do."""
        took = list(self._took)
        if len(took) < _ENOUGH:
            return False
        return sorted(took[-_ENOUGH:])[_ENOUGH // 2] > max(1.0, 5.0 * sorted(took)[len(took) // 10])

    def stand_still(self, stopped: bool) -> None:
        """Stop the clocks of all samples whose calls are out, or let them go on."""
        if stopped != self._stopped:
            self._stopped = stopped
            for sent, clock in self._out.values():
                if clock is not None:
                    clock.stop(sent) if stopped else clock.go()
