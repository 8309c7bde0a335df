"""Requests and tokens per minute, as one line of waiting calls before two token buckets."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable

from rm_gallery.core.utils.errors import ConfigError


class _Bucket:
    """Refills at `per_minute`/60 per second up to a few seconds' worth; may go into debt for one large take."""

    def __init__(self, per_minute: float, burst_seconds: float, now: float) -> None:
        self.burst_seconds = burst_seconds
        self.stamp = now
        self.set_rate(per_minute)
        self.level = self.capacity

    def set_rate(self, per_minute: float) -> None:
        self.per_minute = per_minute
        self.rate = per_minute / 60.0
        self.capacity = max(1.0, self.rate * self.burst_seconds)

    def delay(self, need: float, now: float) -> float:
        """Seconds until `need` can be taken; a need above the capacity waits for a full bucket."""
        self.level = min(self.capacity, self.level + (now - self.stamp) * self.rate)
        self.stamp = now
        missing = min(need, self.capacity) - self.level
        # Refilling in floating point may end a hair below the mark for ever.
        return missing / self.rate if missing > 1e-9 * self.capacity else 0.0


class RateLimit:
    """Keeps calls under requests and tokens per minute; None leaves a side unlimited.

    Tokens are reserved by estimate and corrected by `settle`. Calls start in the order they asked. At most
    `burst_seconds` worth is given out at once after a quiet time. Not thread-safe: all calls must run on one event loop.

    Raises:
        ConfigError: a rate that is not positive.
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        burst_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._burst_seconds = burst_seconds
        self._requests: _Bucket | None = None
        self._tokens: _Bucket | None = None
        self._waiters: deque[tuple[asyncio.Future[None], int]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.tighten(requests_per_minute, tokens_per_minute)

    @property
    def waiting(self) -> int:
        """Callers waiting for their turn."""
        return sum(not waiter.done() for waiter, _ in self._waiters)

    def tighten(self, requests_per_minute: float | None = None, tokens_per_minute: float | None = None) -> None:
        """Lower the rates to the given ones; a higher rate than the present one changes nothing."""
        self._requests = self._tightened(self._requests, requests_per_minute, "requests_per_minute")
        self._tokens = self._tightened(self._tokens, tokens_per_minute, "tokens_per_minute")

    def _tightened(self, bucket: _Bucket | None, per_minute: float | None, name: str) -> _Bucket | None:
        if per_minute is None:
            return bucket
        if not 0 < per_minute < math.inf:
            raise ConfigError(f"{name} must be a positive number, got {per_minute}")
        if bucket is None:
            return _Bucket(per_minute, self._burst_seconds, self._clock())
        if per_minute < bucket.per_minute:
            bucket.set_rate(per_minute)
        return bucket

    async def acquire(self, tokens: int = 0) -> None:
        """Wait for the turn of one call expected to use `tokens` tokens; a cancelled wait takes nothing."""
        if self._requests is None and self._tokens is None:
            return
        if not self._waiters and self._delay(tokens) <= 0.0:
            self._take(1, tokens)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((waiter, tokens))
        self._serve()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._take(-1, -tokens)
            self._serve()
            raise

    def settle(self, reserved: int, used: int) -> None:
        """Correct a reservation of `reserved` tokens by the `used` ones the reply reports (0 for a refused call)."""
        if self._tokens is not None and reserved != used:
            self._tokens.level += reserved - used
            self._serve()

    def _delay(self, tokens: int) -> float:
        now = self._clock()
        wait = self._requests.delay(1.0, now) if self._requests is not None else 0.0
        return max(wait, self._tokens.delay(tokens, now)) if self._tokens is not None else wait

    def _take(self, requests: int, tokens: int) -> None:
        if self._requests is not None:
            self._requests.level -= requests
        if self._tokens is not None:
            self._tokens.level -= tokens

    def _serve(self) -> None:
        """Start the calls whose turn it is and set the timer for the next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiters:
            waiter, tokens = self._waiters[0]
            if not waiter.done():
                wait = self._delay(tokens)
                if wait > 0.0:
                    self._timer = asyncio.get_running_loop().call_later(wait, self._serve)
                    return
                self._take(1, tokens)
                waiter.set_result(None)
            self._waiters.popleft()
