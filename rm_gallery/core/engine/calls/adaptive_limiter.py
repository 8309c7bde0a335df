"""How many calls one endpoint gets at once: grows while it copes, shrinks when it says 429."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal

from rm_gallery.core.utils.errors import ConfigError, ProviderError

CallEnd = Literal["ok", "rate_limit", "transient", "other"]

# 64 doubles to 1,024 in four round trips, and no hosted endpoint minds 64 calls.
DEFAULT_START = 64
_SHRINK = 0.8
_SMALLEST_ROUND = 32


class AdaptiveLimiter:
    """Bounds the calls in flight to one endpoint; use as `async with limiter:` around each attempt.

    Slow start adds one slot per success (doubling per round trip) until the first 429, which multiplies the limit by
    0.8. From then on every full round of calls is judged: a third refused cuts again, at most an eighth refused adds
    slots (1, then 2, 3, … up to ceiling/32 while rounds stay clean). A 429 after `cooldown` quiet seconds cuts at once.
    So a burst cuts once, a limit far too high falls fast, and an endpoint that refuses at random is not starved.
    Growth needs >= 80 % of the slots in use and pauses for `growth_pause` seconds after a 5xx or a dropped connection.
    `Retry-After` holds back new starts, but where most calls keep succeeding at most once in eight rounds. Waiters are
    served first come, first served. Not thread-safe: all calls must run on one event loop.

    Args:
        ceiling: most calls in flight; `lease` replaces it while callers hold one.
        start: first limit, min(ceiling, 64) by default.
        minimum: the limit never falls below it.
        cooldown: seconds without a 429 that end a burst.
        growth_pause: seconds without growth after a failure that hints at load.
        refusal_hold: seconds a slot stays taken after a 429 without Retry-After. Refusals come back in a millisecond;
            a slot that turned over so fast would burn the attempts of every waiting call.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        ceiling: int,
        *,
        start: int | None = None,
        minimum: int = 1,
        cooldown: float = 5.0,
        growth_pause: float = 1.0,
        refusal_hold: float = 0.25,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if ceiling < 1 or minimum < 1 or (start is not None and start < 1):
            raise ConfigError(
                f"concurrency must be at least 1, got ceiling={ceiling}, start={start}, minimum={minimum}"
            )
        self._start = DEFAULT_START if start is None else start
        self._base_ceiling = self._ceiling = ceiling
        self._leases: list[int] = []
        self._minimum = minimum
        self._limit = min(self._start, ceiling)
        self._in_flight = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._clock = clock
        self._cooldown = cooldown
        self._growth_pause = growth_pause
        self._refusal_hold = refusal_hold
        self._held: deque[float] = deque()
        self._slow_start = True
        self._step = 1
        self._no_growth_until = 0.0
        self._paused_until = 0.0
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle, float] | None = None
        self._last_refusal = -math.inf
        self._stale = self._round = self._refused = 0
        self._since_pause: int | None = None
        self.cuts = 0

    @property
    def limit(self) -> int:
        """Calls allowed in flight at present."""
        return self._limit

    @property
    def ceiling(self) -> int:
        """Highest limit growth may reach at present."""
        return self._ceiling

    @property
    def in_flight(self) -> int:
        """Calls running at present."""
        return self._in_flight - len(self._held)

    @property
    def waiting(self) -> int:
        """Callers waiting for a slot."""
        return sum(not waiter.done() for waiter in self._waiters)

    @property
    def paused_for(self) -> float:
        """Seconds until new calls may start again after a Retry-After; 0 when not paused."""
        return max(0.0, self._paused_until - self._clock()) if self._paused_until else 0.0

    @contextmanager
    def lease(self, ceiling: int) -> Iterator[AdaptiveLimiter]:
        """Ask for up to `ceiling` calls in flight while the block runs; the highest of all open leases holds."""
        if ceiling < 1:
            raise ConfigError(f"concurrency must be at least 1, got {ceiling}")
        self._leases.append(ceiling)
        self._apply_ceiling()
        try:
            yield self
        finally:
            self._leases.remove(ceiling)
            self._apply_ceiling()

    def _apply_ceiling(self) -> None:
        self._ceiling = max(self._leases, default=self._base_ceiling)
        self._limit = min(self._limit, self._ceiling)
        if self._slow_start:
            self._limit = max(self._limit, min(self._start, self._ceiling))
        self._wake()

    async def acquire(self) -> None:
        """Take a slot, waiting in line for it; a cancelled wait takes none."""
        if self._in_flight < self._limit and not self._waiters and not self._paused_until:
            self._in_flight += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self._paused_until or self._held:
            self._tick()
        else:
            self._wake()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._in_flight -= 1
                self._wake()
            raise

    def release(self, end: CallEnd = "ok", retry_after: float | None = None) -> None:
        """Give the slot back and learn from how the call ended; `retry_after` in seconds counts with a 429 or a 5xx."""
        if end == "ok":
            if self._slow_start and self._limit < self._ceiling and self._may_grow():
                self._limit += 1
        elif end != "other":
            self._ailing(end == "rate_limit", retry_after)
        if not self._slow_start:
            self._count(end == "rate_limit")
        if end != "rate_limit" or retry_after:
            self._in_flight -= 1
            if self._waiters:
                self._wake()

    async def __aenter__(self) -> AdaptiveLimiter:
        # The fast path is written out again: one coroutine less per call.
        if self._in_flight < self._limit and not self._waiters and not self._paused_until:
            self._in_flight += 1
        else:
            await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.release()
        elif not isinstance(error, ProviderError) or error.kind == "fatal":
            self.release("other")
        else:
            self.release("rate_limit" if error.kind == "rate_limit" else "transient", error.retry_after)

    def _may_grow(self) -> bool:
        if 10 * self._in_flight < 8 * self._limit:
            return False
        return not self._no_growth_until or self._clock() >= self._no_growth_until

    def _ailing(self, refused: bool, retry_after: float | None) -> None:
        now = self._clock()
        if refused:
            self._slow_start = False
            if now - self._last_refusal >= self._cooldown:
                self._cut()
            self._last_refusal = now
            if not retry_after:
                self._held.append(now + self._refusal_hold)
        else:
            self._no_growth_until = now + self._growth_pause
        if retry_after and (self._since_pause is None or self._paused_until or self._refused_at_least(1, 2)):
            self._paused_until = max(self._paused_until, now + retry_after)
            self._since_pause = 0
        if self._held or self._paused_until:
            self._tick()

    def _cut(self) -> None:
        self._limit = min(self._limit, max(self._minimum, int(self._limit * _SHRINK)))
        self._step = 1
        self._stale, self._round, self._refused = self.in_flight, 0, 0
        self.cuts += 1

    def _count(self, refused: bool) -> None:
        size = max(self._limit, _SMALLEST_ROUND)
        if self._since_pause is not None:
            self._since_pause += 1
            if self._since_pause > 8 * size:
                self._since_pause = None
        if self._stale:
            # The calls in flight at a cut say nothing about the new limit.
            self._stale -= 1
            return
        self._round += 1
        self._refused += refused
        if self._round >= size:
            self._judge_round()

    def _refused_at_least(self, part: int, whole: int) -> bool:
        # Refusals come back first: calls still running count as accepted, or the start of each round would look dire.
        return whole * self._refused >= part * (self._round + self.in_flight)

    def _judge_round(self) -> None:
        if self._refused_at_least(1, 3):
            self._cut()
            return
        if self._refused:
            self._step = 1
        if 8 * self._refused <= self._round and self._may_grow():
            self._limit = min(self._ceiling, self._limit + self._step)
            self._step = min(self._step + 1, max(1, self._ceiling // 32))
        self._round = self._refused = 0

    def _tick(self) -> None:
        """Free the slots whose hold is over, end the pause when it is, and see to it that this loop comes back."""
        now = self._clock()
        while self._held and self._held[0] <= now:
            self._held.popleft()
            self._in_flight -= 1
        if self._paused_until <= now:
            self._paused_until = 0.0
        self._wake()
        due = min(self._held[0] if self._held else math.inf, self._paused_until or math.inf)
        if due == math.inf:
            return
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer[0] is loop and self._timer[2] <= due:
                return
            self._timer[1].cancel()
        self._timer = loop, loop.call_later(due - now, self._on_timer), due

    def _on_timer(self) -> None:
        self._timer = None
        self._tick()

    def _wake(self) -> None:
        waiters = self._waiters
        while waiters and (waiters[0].done() or (self._in_flight < self._limit and not self._paused_until)):
            waiter = waiters.popleft()
            if not waiter.done():
                self._in_flight += 1
                waiter.set_result(None)
