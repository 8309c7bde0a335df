"""An endpoint has a state (open, limited, down), and how many calls it gets at once follows from
how it copes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Literal

from rm_gallery.core.engine.calls.limits import CallsOut, FairQueue, StoppableClock
from rm_gallery.core.utils.errors import ConfigError, ProviderError

CallEnd = Literal["ok", "rate_limit", "transient", "unreachable", "other"]
State = Literal["open", "limited", "down"]

PAUSE_CAP = 60.0
"""Longest pause in seconds that a server's Retry-After is given; after it one call looks."""
MAX_OUTAGE = 300.0
_SHRINK = 0.8
_SMALLEST_ROUND = 32
_COOLDOWN, _REGROW_AFTER, _GROWTH_PAUSE = 5.0, 1.0, 1.0
# Refusals come back in a millisecond: a slot that turned over so fast would burn the attempts of
# every waiting call.
_REFUSAL_HOLD = 0.25
_FIRST_PROBE, _LAST_PROBE = 0.5, 1.0
# A probe that gets no answer must not be the only one to find out that the endpoint is back.
_PROBE_HANGS = 10.0
# So many different calls in a row have to fail before that is the endpoint's fault and not theirs.
_SUSPECT = 4
# A call that is sent so long after the last failure begins a new silence: nobody asked meanwhile.
_UNASKED = 60.0


class EndpointDown(ProviderError):
    """An endpoint that answered before has been down, or refused every call, for longer than
    `max_outage`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="unreachable")


class Endpoint:
    """Bounds the calls in flight to one endpoint and holds them back while it cannot serve them.

    Concurrency: slow start adds one slot per success (doubling per round trip) until the first 429,
    which multiplies the limit by 0.8. From then on every full round of calls is judged: a third
    refused cuts again, at most an eighth refused adds slots (1, then 2, 3, … up to ceiling/32 while
    rounds stay clean). A 429 after 5 quiet seconds cuts at once. After 1 s without one the limit
    doubles per round trip again, up to the last that held. Growth needs >= 80 % of the slots in use
    and pauses for 1 s after a 5xx or a dropped connection. A slot stays taken for 0.25 s after a
    429 without Retry-After.

    State: once the endpoint has served a call, a refused connection or failures of up to four
    different calls in a row without a success between make it *down* (429 alone: *limited*). Then
    calls wait; one probe at a time looks, every 0.5 to 1 s, and the first success lets all go on.
    `Retry-After` holds back new starts (at most 60 s, and where most calls keep succeeding at most
    once in eight rounds). After `max_outage` seconds all who wait get EndpointDown; 0 never waits.
    Runs take turns, and calls of one run are served first come, first served. Not thread-safe: one
    event loop.

    Args:
        ceiling: most calls in flight; `lease` replaces it while callers hold one.
        start: first limit, where the ceiling is not lower.
        name: what messages call it.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        ceiling: int,
        *,
        start: int = 64,
        max_outage: float = MAX_OUTAGE,
        name: str = "The endpoint",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if ceiling < 1:
            raise ConfigError(f"concurrency must be at least 1, got {ceiling}")
        # 64 doubles to 1,024 in four round trips, and no hosted endpoint minds 64 calls
        self._start = start
        self.name = name
        self.max_outage = max_outage
        self.answered = False
        """Whether it ever gave an answer of any kind."""
        self.served = False
        """Whether it ever served a call."""
        self._base_ceiling = self._ceiling = ceiling
        self._leases: Counter[int] = Counter()
        self._limit = min(self._start, ceiling)
        self._in_flight = 0
        self._queue: FairQueue[None] = FairQueue()
        self._clock = clock
        self._held: deque[float] = deque()
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle, float] | None = None
        # growth
        self._slow_start = True
        self._step = 1
        self._no_growth_until = 0.0
        self._last_refusal = -math.inf
        self._stale = self._round = self._refused = 0
        self._clean = self._good = 0
        self._grown = False
        self._since_pause: int | None = None
        # state
        self._paused_until = 0.0
        self._shut: Literal["limited", "down"] | None = None
        self._probe_at = 0.0
        self._probe_every = _FIRST_PROBE
        self._probing = False
        self._open = True
        self._failing: set[object] = set()
        self._away_since = math.inf
        """Since when it has served nobody, in so far as that is held against it; infinite while it
        serves.
        """
        self._failed_at = self._served_at = -math.inf
        self._trouble = ""
        self._clocks: dict[object, StoppableClock] = {}
        self._still = True
        """Whether the clocks of samples whose calls wait stand still."""
        self.out = CallsOut(clock)

    @property
    def state(self) -> State:
        """Whether calls start freely, are held back because it refuses them, or wait for it to come
        back.
        """
        return self._shut or ("limited" if self._paused_until else "open")

    @property
    def shut(self) -> bool:
        """Whether calls wait, one looks at a time, and waiting costs no attempts."""
        return self._shut is not None

    @property
    def paused(self) -> bool:
        """Whether calls wait here as long as the server asked for."""
        return self._paused_until > self._clock()

    @property
    def trouble(self) -> str:
        """Why what it does now says nothing of whom it judges, for whoever would try out an answer:
        it is limited, down or slow; empty while it works as it did.
        """
        if self.state != "open" or (self._held and self._held[-1] > self._clock()):
            return f"{self.name} is {'limited' if self.state == 'open' else self.state}"
        return f"{self.name} is slow" if self.out.slow else ""

    @contextmanager
    def waiting_on(self, clock: StoppableClock | None) -> Iterator[None]:
        """The clock of a sample while its call waits here.

        It stands still for our own limits, and while the endpoint is down, which `max_outage`
        bounds. It goes on while the server asks for patience or refuses all: a deadline bounds that.
        """
        if clock is None:
            yield
            return
        waiter = object()
        self._clocks[waiter] = clock
        if self._still:
            clock.stop(self._clock())
        else:
            clock.by = "endpoint"
        try:
            yield
            # where it is cut, whoever says that the time is over asks by whom
            clock.by = "caller"
        finally:
            del self._clocks[waiter]
            if self._still:
                clock.go()

    def _set_clocks(self) -> None:
        still = self._shut == "down" or self.state == "open"
        if still != self._still:
            self._still = still
            for clock in self._clocks.values():
                if still:
                    clock.stop(self._clock())
                else:
                    clock.by = "endpoint"
                    clock.go()

    @property
    def given_up(self) -> str:
        """What is told of an endpoint that has served nobody for too long; empty for any other."""
        now = self._clock()
        return self._gone_message(now) if self._gone(now) else ""

    @property
    def limit(self) -> int:
        """Calls allowed in flight at present."""
        return self._limit

    @property
    def in_flight(self) -> int:
        """Calls running at present."""
        return self._in_flight - len(self._held)

    @property
    def waiting(self) -> int:
        """Callers waiting for a slot."""
        return len(self._queue)

    @contextmanager
    def lease(self, ceiling: int) -> Iterator[Endpoint]:
        """Ask for up to `ceiling` calls in flight while the block runs; the highest of all open
        leases holds.
        """
        if ceiling < 1:
            raise ConfigError(f"concurrency must be at least 1, got {ceiling}")
        self._leases[ceiling] += 1
        if self._leases[ceiling] == 1:
            self._apply_ceiling()
        try:
            yield self
        finally:
            self._leases[ceiling] -= 1
            if not self._leases[ceiling]:
                del self._leases[ceiling]
                self._apply_ceiling()

    def _apply_ceiling(self) -> None:
        self._ceiling = max(self._leases, default=self._base_ceiling)
        self._limit = min(self._limit, self._ceiling)
        if self._slow_start:
            self._limit = max(self._limit, min(self._start, self._ceiling))
        self._wake()

    def enter(self) -> bool:
        """Take a slot if there is one at once; else `wait` for it."""
        if self._open and self._in_flight < self._limit and not self._queue:
            self._in_flight += 1
            return True
        return False

    async def wait(
        self, line: Hashable = None, *, fresh: bool = True, since: float | None = None
    ) -> bool:
        """Wait for a slot in the line of one run; True for a call sent ahead to see whether the
        endpoint is back.

        A cancelled wait takes no slot. `fresh` marks the first attempt of a call; `since` is when
        its run began, where the run itself is bounded: it has then waited for as long. Raises
        EndpointDown when the endpoint stays away for too long.
        """
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if not self._open and not self._queue and not self._probing:
            now = self._clock()
            if self._shut and fresh:
                self._probe_at = now  # nobody is looking, and this one has not failed yet
            if self._gone(now):  # given up before: whoever comes now starts anew
                if since is not None and now - since + 1e-3 >= self.max_outage:
                    raise EndpointDown(self._gone_message(now))
                self._away_since = now if since is None else since
        self._queue.push(line, waiter, None)
        self._tick()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._in_flight -= 1
                if waiter.result():
                    self._probing, self._probe_at = False, self._clock()
                self._tick()
            raise

    async def acquire(self, line: Hashable = None, *, fresh: bool = True) -> bool:
        """`enter`, else `wait`."""
        return False if self.enter() else await self.wait(line, fresh=fresh)

    def release(
        self,
        end: CallEnd = "ok",
        retry_after: float | None = None,
        *,
        call: object = None,
        probe: bool = False,
        why: str = "",
        sent: float | None = None,
    ) -> None:
        """Give the slot back and learn from how the attempt ended.

        `retry_after` in seconds counts with a 429 or a 5xx. `call` tells the attempts of one call
        from those of others, `probe` is what `wait` said, `why` what went wrong. `sent` is when it
        was first asked in vain, for a run that is bounded itself: silence counts since then and not
        only since failures say that it is down.
        """
        held = False
        if probe:
            self._probing = False
        if end == "ok":
            self._served_at = self._clock()
            if self._failing or self._shut or not self.served:
                self._recovered()
            self._clean += 1
            if (
                self._limit < self._ceiling
                and (self._slow_start or self._limit < self._good)
                and self._may_grow()
            ):
                self._limit += 1
                self._clean, self._grown = 0, True
        elif end != "other":
            held = self._ailing(end, retry_after, call, probe, why, sent)
        elif probe:
            self._probe_at = self._clock()
        if not self._slow_start:
            self._count(end == "rate_limit")
        if not held:
            self._in_flight -= 1
        if not self._open:
            self._tick()
        elif self._queue:
            self._wake()

    def _may_grow(self) -> bool:
        if 10 * self._in_flight < 8 * self._limit:
            return False
        if self._slow_start and not self._no_growth_until:
            return True
        now = self._clock()
        regrowing = (
            self._slow_start
            or self._limit >= self._good
            or now - self._last_refusal >= _REGROW_AFTER
        )
        return regrowing and now >= self._no_growth_until

    def _recovered(self) -> None:
        self.served = self.answered = True
        self._failing.clear()
        self._away_since = math.inf
        self.out.stand_still(False)
        if self._shut:
            self._shut = None
            self._probe_every = _FIRST_PROBE
            self._open = not self._paused_until
            self._set_clocks()
            self._last_refusal = min(self._last_refusal, self._clock() - _REGROW_AFTER)

    def _ailing(
        self,
        end: CallEnd,
        retry_after: float | None,
        call: object,
        probe: bool,
        why: str,
        sent: float | None,
    ) -> bool:
        """Learn from a failure; whether its slot stays taken for a while."""
        now = self._clock()
        self._note_silence(sent, now)
        refused = end == "rate_limit"
        self._trouble = why or self._trouble
        self._failing.add(call)
        if refused:
            if self._clean >= max(self._limit, _SMALLEST_ROUND):
                self._good = max(self._good, self._limit)
            elif self._grown and not self._slow_start and not self._shut:
                # it grew back too far
                self._good = min(self._good - 1, max(self._limit - 1, int(0.9 * self._good)))
            self._clean, self._grown = 0, False
            self._slow_start = False
            if now - self._last_refusal >= _COOLDOWN:
                self._cut()
            self._last_refusal = now
        else:
            self._no_growth_until = now + _GROWTH_PAUSE
        if retry_after and (
            self._since_pause is None or self._paused_until or self._refused_at_least(1, 2)
        ):
            self._paused_until = max(self._paused_until, now + min(retry_after, PAUSE_CAP))
            self._since_pause = 0
            self._open = False
        if self._shut:
            if probe:
                self._probe_every = min(_LAST_PROBE, 1.5 * self._probe_every)
                self._probe_at = now + self._probe_every
        elif self._to_be_shut(end):
            if sent is None:
                self._away_since = now
            self._shut_endpoint("limited" if refused else "down", now)
        hold = refused and not retry_after and not self._shut
        if hold:
            self._held.append(now + _REFUSAL_HOLD)
        if hold or not self._open:
            self._tick()
        return hold

    def _shut_endpoint(self, state: Literal["limited", "down"], now: float) -> None:
        self._shut, self._open = state, False
        self._probe_at = now + self._probe_every
        self.out.stand_still(True)

    def _note_silence(self, sent: float | None, now: float) -> None:
        began = now if sent is None else sent
        if self._away_since == math.inf or began - self._failed_at > _UNASKED:
            self._away_since = max(began, self._served_at)
        self._failed_at = now

    def _to_be_shut(self, end: CallEnd) -> bool:
        if not self.served or self.max_outage <= 0:
            return False
        if end == "unreachable":
            return True
        # Refusals come back first: those still running may well be served.
        only_call = self.in_flight <= 1
        if end == "rate_limit" and not only_call:
            return False
        present = (
            1 if only_call and not self._queue else min(_SUSPECT, self.in_flight + len(self._queue))
        )
        return len(self._failing) >= max(present, 1)

    def _cut(self) -> None:
        self._limit = max(1, int(self._limit * _SHRINK))
        self._step = 1
        self._stale, self._round, self._refused = self.in_flight, 0, 0

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
        # Refusals come back first: calls still running count as accepted, or the start of each
        # round would look dire.
        return whole * self._refused >= part * (self._round + self.in_flight)

    def _judge_round(self) -> None:
        if self._refused_at_least(1, 3):
            self._cut()
            return
        if self._refused:
            self._step = 1
        if 8 * self._refused <= self._round and self._may_grow():
            self._limit = min(self._ceiling, self._limit + self._step)
            self._clean, self._grown = 0, True
            self._step = min(self._step + 1, max(1, self._ceiling // 32))
        self._round = self._refused = 0

    def _tick(self) -> None:
        """Do what is due (free held slots, end the pause, probe, give up) and see to it that this
        loop comes back.
        """
        now = self._clock()
        while self._held and self._held[0] <= now:
            self._held.popleft()
            self._in_flight -= 1
        if self._paused_until <= now:
            self._paused_until = 0.0
        self._open = not self._paused_until and not self._shut
        self._set_clocks()
        if self._open:
            self._wake()
        elif self._queue and self._gone(now):
            message = self._gone_message(now)
            while (waiter := self._queue.pop()) is not None:
                waiter.set_exception(EndpointDown(message))
        elif self._shut and self._queue and not self._paused_until:
            if self._probe_at <= now and (waiter := self._queue.pop()) is not None:
                self._in_flight += 1
                self._probing, self._probe_at = True, now + _PROBE_HANGS
                waiter.set_result(True)
        due = min(self._held[0] if self._held else math.inf, self._paused_until or math.inf)
        if self._queue and not self._open:
            if self.max_outage > 0:
                due = min(due, self._away_since + self.max_outage)
            if self._shut and not self._paused_until:
                due = min(due, max(self._probe_at, now + 0.001))
        if due < math.inf:
            self._come_back(due, now)

    def _come_back(self, due: float, now: float) -> None:
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
        while (
            self._open
            and self._in_flight < self._limit
            and (waiter := self._queue.pop()) is not None
        ):
            self._in_flight += 1
            waiter.set_result(False)

    def _gone(self, now: float) -> bool:
        return 0 < self.max_outage <= now - self._away_since + 1e-3

    def _gone_message(self, now: float) -> str:
        what = "has been down" if self._shut == "down" else "has refused every call"
        return (
            f"{self.name} {what} for {now - self._away_since:.0f} s, the longest wait allowed "
            f"(max_outage={self.max_outage:g}). Last: {self._trouble or 'no answer'} Everything "
            f"finished is kept; run the same "
            "command again once it is back."
        )
