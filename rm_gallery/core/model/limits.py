"""What holds calls back: the state of an endpoint, rates, how often one call is tried again, and
when a run gives up.

An endpoint is one of three, and all calls of one model and account there share what one of them found
out:

    open     calls pass, up to the limit that 429s have set; waiting for a slot stops the sample's clock
    limited  it sent Retry-After, not long after which it is only the refused call that waits, or nothing
             is in flight and the last calls were refused; the clock runs
    down     it served before and now fails call after call: one at a time looks, the others wait
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from rm_gallery.core.model.adapt import PLAIN
from rm_gallery.core.utils.errors import ConfigError, ProviderError

if TYPE_CHECKING:
    from rm_gallery.core.engine.deadline import Deadline

W = TypeVar("W")
End = Literal["ok", "rate_limit", "transient", "unreachable", "other"]
"""How an attempt ended; `other` says nothing about the endpoint."""
State = Literal["open", "limited", "down"]

START = 64
"""Calls in flight at first: enough to double to 1,024 in four round trips, and no hosted endpoint minds
so many.
"""
CEILING = 4096
"""Calls in flight outside of any batch, whose callers decide how many."""
PAUSE_CAP = 60.0
"""Longest pause in seconds that a server's Retry-After is given."""
MAX_OUTAGE = 300.0
"""So many seconds nobody may be served until a run gives up, where nobody says otherwise."""
SUSPECT = 4
"""So many different calls in a row have to fail before that is the endpoint's fault and not theirs."""
REFUSAL_SECONDS = 0.25
"""So long a refused call keeps its slot. Refusals come back in a millisecond: a slot that turned over
so fast would burn the attempts of every call that waits.
"""
QUIET_SECONDS = 1.0
"""After so long without a refusal the limit grows by a call for each success."""
MANY_REFUSED, FEW_REFUSED = 1 / 3, 1 / 8
"""Of the last calls: above the first share the limit is cut, below the second it grows."""
FIRST_PROBE, LAST_PROBE, PROBE_HANGS = 0.5, 1.0, 10.0
"""Seconds until one call looks whether an endpoint is back: at first, at most, and where the look gets
no answer.
"""
_LAST_CALLS = 32
RAISE, TRY_AGAIN_SECONDS, TRY_AGAIN_CALLS = 0.7, 10.0, 1_600
"""The limit is raised by the inverse of this to see whether more is refused then, and where it was,
not again for so long or so many calls, whichever is over first: of 64 calls one in five refused looks
like more by chance now and then, and ten seconds are nearly all of a run of short calls.
"""


class EndpointDown(ProviderError):
    """An endpoint that answered before, or where `outage_counts` also one that never did, has served
    nobody for longer than `max_outage`.
    """


class Visit:
    """What stands in line at an endpoint, attempt after attempt, with the clocks of the samples that
    wait for it.

    They stand still while it waits for our own limits (a budget, a rate, a slot of an endpoint that is
    open), and from when it was sent while the endpoint is down: an outage is nobody's deadline. They
    go on while it waits for a slot and the server asks for patience, which a deadline bounds; whoever
    is cut then names the endpoint.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clocks: Iterable[Deadline] = (),
        *,
        patience: float = MAX_OUTAGE,
    ) -> None:
        self.endpoint, self.clocks, self.patience = endpoint, clocks, patience
        self.began = endpoint.now()
        """From when its patience counts: its call was first asked for, or in a run that bounds outages
        the run's first one."""
        self.outage_counts = False
        """Whether an outage is of its samples' time, and no clock stands still for it."""
        self.sent: float | None = None
        """When the current attempt was sent; None between attempts."""
        self.waits: Literal["", "slot", "own"] = ""
        """For a slot, for another limit of our own, or for none of them."""
        self._stopped: set[Deadline] = set()

    @contextmanager
    def waiting(self, waits: Literal["slot", "own"] = "own") -> Iterator[None]:
        """Inside the block it waits for its turn."""
        self.waits = waits
        self.set_clocks()
        try:
            yield
            for clock in self.clocks:  # where it is cut instead, whoever cuts asks by whom
                clock.by = "caller"
        finally:
            self.waits = ""
            self.set_clocks()

    def set_clocks(self) -> None:
        """Stop the clocks, or let them go on, as what it waits for demands."""
        state = self.endpoint.state
        outage = state == "down" and not self.outage_counts
        if self.waits:
            still = outage or state == "open" or self.waits == "own"
            since = self.endpoint.now()
            for clock in self.clocks:
                clock.by = "caller" if still else "endpoint"
        else:
            still, since = outage and self.sent is not None, self.sent or 0.0
        stopped, self._stopped = self._stopped, set(self.clocks if still else ())
        for clock in stopped - self._stopped:
            clock.add_waiting(-1)
        for clock in self._stopped - stopped:
            clock.add_waiting(since=since)

    def note_sent(self) -> None:
        """Note that it is sent now."""
        self.sent = self.endpoint.now()
        if self.endpoint.state != "open":
            self.set_clocks()

    def note_over(self) -> None:
        """Let all clocks go on: the attempt is over."""
        self.sent = None
        if self._stopped:
            self.set_clocks()


class FairQueue(Generic[W]):
    """Waiting calls of several runs: one of each run in turn, and within a run first come, first
    served. `look` starts whose turn it is.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self._lines: dict[Hashable, deque[tuple[asyncio.Future[None], W]]] = {}
        self._look = look
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._lines) and self.first() is not None

    def __iter__(self) -> Iterator[tuple[asyncio.Future[None], W]]:
        return (entry for line in list(self._lines.values()) for entry in line)

    def __len__(self) -> int:
        return sum(not waiter.done() for waiter, _ in self)

    async def wait(self, line: Hashable, what: W, give_back: Callable[[], None]) -> None:
        """Stand in the line of a run until started. Who is cancelled in that instant gives back what
        was taken.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(line, deque()).append((waiter, what))
        self._look()
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                give_back()
            self._look()
            raise

    def look_in(self, seconds: float) -> None:
        """Look again after so many seconds, and not when that was to be before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def first(self) -> W | None:
        """What waits first; callers that went away are forgotten."""
        while self._lines:
            key, line = next(iter(self._lines.items()))
            while line and line[0][0].done():
                line.popleft()
            if line:
                return line[0][1]
            del self._lines[key]
        return None

    def start_first(self) -> None:
        """Start what is `first`; after it the other runs come first."""
        key = next(iter(self._lines))
        line = self._lines.pop(key)
        line.popleft()[0].set_result(None)
        if line:
            self._lines[key] = line


class Endpoint:
    """Bounds the calls in flight to one endpoint, of one model and account, and holds them back
    while it cannot serve them.

    The limit begins at 64, and the first 429 sets it to as many calls as were out. It is cut to 0.7
    of those that are out where more than a third of the last calls were refused. While it is used
    it grows: by a call for each round where few are refused, by one for each success after a second
    without a refusal, until it is the ceiling. `Retry-After` holds back all starts, for at most
    60 s, and where most calls are served for an eighth of the time. Once it has served a call, a
    refused connection, or failures of four different calls in a row (of all, where fewer are
    there), make it *down*: one call looks every 0.5 to 1 s, and the first that gets an answer lets
    all go on. Who waits for the patience of its turn, in which nobody is served, gets EndpointDown; 0
    never waits. Runs take turns. For one event loop.

    Args:
        ceiling: most calls in flight; `lease` replaces it while callers hold one.
        name: what messages call it.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        ceiling: int = CEILING,
        *,
        name: str = "The endpoint",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.now = name, clock
        self.answered = self.served = False
        """Whether it ever gave an answer of any kind, and whether it ever served a call."""
        self.served_at = -math.inf
        self.request_form = PLAIN
        """How requests are sent to it."""
        self.learning = asyncio.Lock()
        self.rate = RateLimit(clock=clock)
        """For the calls of models that have one."""
        self._ceiling = ceiling
        self._slots = self._held = 0
        """Slots that are taken, and those of them that a refused call keeps."""
        self._leases = Counter[int]()
        self._visits = set[Visit]()
        """Those that have a slot or wait for one."""
        self._queue: FairQueue[Visit] = FairQueue(self._tick)
        self._durations: deque[float] = deque(maxlen=512)
        self._why = ""
        """What the last failure said."""
        # refusals
        self._limit: float = START
        self._refused_share = 0.0
        self._seen = [0, 0]
        """Calls that were served and that were refused since the limit was last looked at."""
        self._share_before: float | None = None
        """The share that was refused before the limit was raised to see what comes of it."""
        self._try_at, self._calls_to_try = -math.inf, 0
        self._is_bounded = False
        """Whether a refusal has said how many it takes."""
        self._refused_in_row = 0
        self._refuses_all = False
        self._refused_at = self._lowered_at = -math.inf
        self._paused_until = self._pause_again = 0.0
        # outages
        self._failing: set[Visit] = set()
        self._down = False
        self._failed_at = -math.inf
        self._probe_at, self._probe_every = 0.0, FIRST_PROBE

    @property
    def _most(self) -> int:
        return max(self._leases, default=self._ceiling)

    @property
    def limit(self) -> int:
        """Calls allowed in flight at present."""
        return int(min(self._limit, self._most))

    @property
    def in_flight(self) -> int:
        """Calls that have a slot at present, also those that wait for the rate."""
        return self._slots - self._held

    @property
    def waiting(self) -> int:
        """Callers waiting for a slot."""
        return len(self._queue)

    @property
    def state(self) -> State:
        """Whether calls start freely, are held back because it refuses them, or wait for it to come
        back.
        """
        if self._down:
            return "down"
        paused = self._paused_until and self._paused_until > self.now()
        return "limited" if paused or self._refuses_all else "open"

    @property
    def trouble(self) -> str:
        """Why what it does now says nothing of whom it judges, for whoever would try out an answer:
        it is refusing calls, limited, down or slow; empty while it works as it did.
        """
        if self.state != "open" or self._refused_at + REFUSAL_SECONDS > self.now():
            return f"{self.name} is {'refusing calls' if self.state == 'open' else self.state}"
        took = sorted(self._durations)
        last = sorted(list(self._durations)[-8:])
        slow = len(took) >= 8 and last[4] > max(1.0, 5.0 * took[len(took) // 10])
        return f"{self.name} is slow" if slow else ""

    def lease(self, ceiling: int) -> Callable[[], None]:
        """Ask for up to `ceiling` calls in flight; what is given back ends that. The highest of all
        open leases holds.
        """
        if ceiling < 1:
            raise ConfigError(f"concurrency must be at least 1, got {ceiling}")
        self._leases[ceiling] += 1
        self._free(0)
        return partial(self._end_lease, ceiling)

    def _end_lease(self, ceiling: int) -> None:
        self._leases -= Counter([ceiling])
        self._free(0)

    @property
    def _holds(self) -> bool:
        """Whether it holds back who comes next."""
        return self._down or bool(self._paused_until) or self._slots >= self.limit

    def enter(self, visit: Visit) -> bool:
        """Take a slot if there is one at once; else `wait` for it. Every turn ends with `leave`."""
        self._visits.add(visit)
        if self._queue or self._holds:
            return False
        self._slots += 1
        return True

    async def wait(self, visit: Visit, line: Hashable = None) -> None:
        """Wait for a slot in the line of one run; a cancelled wait takes none. Raises EndpointDown
        where nobody is served for too long.
        """
        now = self.now()
        if (
            not self._queue
            and visit.began >= self._failed_at
            and self._probe_at <= now + LAST_PROBE
        ):
            self._probe_at = now  # nobody is looking, and this one has not failed yet
        with visit.waiting("slot"):
            try:
                await self._queue.wait(line, visit, self._give_back)
            except BaseException:
                self._visits.remove(visit)
                raise

    def _give_back(self) -> None:
        self._probe_at = self.now()  # the next one looks
        self._slots -= 1

    def leave(
        self,
        visit: Visit,
        end: End = "ok",
        retry_after: float | None = None,
        *,
        why: str = "",
    ) -> None:
        """Give the slot back, where it has one, and learn from how the attempt ended.

        `retry_after` in seconds counts with any failure of the endpoint; `why` is what went wrong.
        """
        if visit not in self._visits:
            return
        self._visits.remove(visit)
        now, before = self.now(), self.state
        sent = visit.sent or now
        visit.note_over()
        if end == "ok":
            self._durations.append(now - sent)
            self._serves(now)
        else:
            self._fails(visit, end, retry_after, why, now)
        if self.state != before:
            self._set_clocks()
        if end == "rate_limit" and not self._paused_until:
            self._held += 1
            asyncio.get_running_loop().call_later(REFUSAL_SECONDS, self._free, 1, 1)
        else:
            self._free(1)

    def _serves(self, now: float) -> None:
        self.served = self.answered = True
        self.served_at = now
        if self._failing:
            self._failing.clear()
        self._down = self._refuses_all = False
        self._refused_in_row = 0
        self._probe_every = FIRST_PROBE
        if self._limit < math.inf:
            quiet = now - self._refused_at >= QUIET_SECONDS
            self._refused_share *= 0 if quiet else 1 - 1 / _LAST_CALLS
            if self._refused_share < FEW_REFUSED and 5 * self._slots >= 4 * self._limit:
                self._limit += 1 if quiet else 1 / self._limit
            if self._is_bounded:
                self._compare_shares(False, now)
            if self._limit >= self._most:
                self._limit, self._is_bounded = math.inf, False

    def _compare_shares(self, refused: bool, now: float) -> None:
        """Raise the limit for a while where neither few nor many are refused, and take that back
        where more are then: a gateway that refuses every fifth call, however many there are, would
        else hold a run at two calls in flight.
        """
        self._seen[refused] += 1
        if (calls := sum(self._seen)) < 2 * _LAST_CALLS:
            return
        share, self._seen = self._seen[True] / calls, [0, 0]
        before, self._share_before = self._share_before, None
        self._calls_to_try -= calls
        if before is not None and share > 1.25 * before + 0.05:
            self._limit = max(1.0, RAISE * self._limit)
            self._try_at, self._calls_to_try = now + TRY_AGAIN_SECONDS, TRY_AGAIN_CALLS
        elif FEW_REFUSED <= share < MANY_REFUSED and (
            now >= self._try_at or self._calls_to_try <= 0
        ):
            self._limit, self._share_before = min(self._limit / RAISE + 1, self._most), share

    def _fails(
        self, visit: Visit, end: End, retry_after: float | None, why: str, now: float
    ) -> None:
        if end == "rate_limit":
            self._refuses(now)
        elif end != "other":
            self._failing.add(visit)
            present = self.in_flight + len(self._queue)
            gone = end == "unreachable" or len(self._failing) >= min(SUSPECT, present)
            if gone and self.served and visit.patience > 0 and not self._down:
                self._down, self._probe_at = True, now + self._probe_every
        if end != "other":
            self._failed_at, self._why = now, why or self._why
            many = self._refused_share > MANY_REFUSED or self._refused_in_row >= SUSPECT
            if retry_after and (now >= self._pause_again or many):
                pause = min(retry_after, PAUSE_CAP)
                self._paused_until = max(self._paused_until, now + pause)
                self._pause_again = self._paused_until + 7 * pause
        if self._down:  # a look that was cut short is made again
            self._probe_at = min(self._probe_at, now + self._probe_every)

    def _refuses(self, now: float) -> None:
        self._down = False  # whoever refuses is there
        self._failing.clear()
        if not self._is_bounded:
            self._is_bounded, self._limit = True, min(self._limit, max(1, self._slots))
        self._refused_at = now
        # refusals come back first: those still running may well be served
        self._refuses_all = self._refuses_all or (self.served and self.in_flight <= 1)
        self._refused_share += (1 - self._refused_share) / _LAST_CALLS
        self._refused_in_row += 1
        self._compare_shares(True, now)
        if self._refused_share > MANY_REFUSED and now - self._lowered_at >= REFUSAL_SECONDS:
            self._limit, self._lowered_at = max(1.0, 0.7 * min(self._limit, self._slots)), now
            # what was refused before a cut says little of what comes after it
            self._refused_share = (MANY_REFUSED + FEW_REFUSED) / 2

    def _set_clocks(self) -> None:
        for visit in self._visits:
            visit.set_clocks()

    def _free(self, slots: int, held: int = 0) -> None:
        """So many slots are free again, so many of them held until now: somebody may go."""
        self._slots -= slots
        self._held -= held
        if self._queue:
            self._tick()

    def _tick(self) -> None:
        """Do what is due, and see to it that this loop comes back."""
        now = self.now()
        if self._paused_until and self._paused_until <= now:
            self._paused_until = 0.0
            self._set_clocks()
        looks = self._down and not self._paused_until and self._probe_at <= now
        if looks and self._queue:
            self._probe_at = now + PROBE_HANGS
            self._probe_every = min(LAST_PROBE, 1.5 * self._probe_every)
        while self._queue and (looks or not self._holds):
            looks = False
            self._slots += 1
            self._queue.start_first()
        if not self._queue:
            return
        due = [self._paused_until] if self._paused_until else [self._probe_at] * self._down
        if self.state != "open":
            due.append(self._fail_overdue(now))
        if due and min(due) < math.inf:
            self._queue.look_in(max(0.001, min(due) - now))

    def _fail_overdue(self, now: float) -> float:
        """Fail those that have waited too long; when the next one will have."""
        due = math.inf
        for waiter, visit in self._queue:
            if (until := self.lost_at(visit.began, visit.patience)) > now:
                due = min(due, until)
            elif not waiter.done():
                waiter.set_exception(self.gone(visit.began, visit.patience))
        return due

    def lost_at(self, began: float, patience: float) -> float:
        """When a call that was first asked for at `began` has waited for `patience` seconds in which
        nobody was served; never, where nobody waits.
        """
        return max(began, self.served_at) + patience if patience > 0 else math.inf

    def gone(self, began: float, patience: float) -> EndpointDown:
        """What is told of an endpoint that has served nobody for too long."""
        what = (
            "has refused every call" if self._refused_share and not self._down else "has been down"
        )
        return EndpointDown(
            f"{self.name} {what} for {self.now() - max(began, self.served_at):.0f} s, the longest "
            f"wait allowed (max_outage={patience:g}). Last: {self._why or 'no answer'} Everything "
            f"finished is kept; run the same command again once it is back.",
            kind="unreachable",
        )


class RateLimit:
    """Keeps calls under requests and tokens per minute; None leaves a side unlimited.

    Tokens are reserved by estimate and corrected by `settle`. Runs take turns; calls of one run
    start in the order they asked. At most one second's worth is given out at once after a quiet
    time. For one event loop. Raises ConfigError: a rate that is not positive.
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._buckets: dict[int, _Bucket] = {}
        """Of requests (0) and of tokens (1), where there is a rate."""
        self._queue: FairQueue[int] = FairQueue(self._start_next)
        self.set(requests_per_minute, tokens_per_minute)

    def set(
        self, requests_per_minute: float | None = None, tokens_per_minute: float | None = None
    ) -> None:
        """Take over rates; what is asked for last holds, None changes nothing."""
        given = {"requests_per_minute": requests_per_minute, "tokens_per_minute": tokens_per_minute}
        for side, (name, rate) in enumerate(given.items()):
            if rate is None:
                continue
            if not 0 < rate < math.inf:
                raise ConfigError(f"{name} must be a positive number, got {rate}")
            bucket = self._buckets.setdefault(side, _Bucket(self._clock(), max(1.0, rate / 60)))
            bucket.rate = rate / 60

    def enter(self, tokens: int) -> bool:
        """Take the turn of a call expected to use `tokens` tokens if it is its turn at once; else
        `wait` for it.
        """
        if self._queue or self._delay(tokens) > 0.0:
            return False
        self._take(1, tokens)
        return True

    async def wait(self, tokens: int, line: Hashable) -> None:
        """Wait for the turn of a call in the line of one run; a cancelled wait takes nothing."""
        await self._queue.wait(line, tokens, lambda: self._take(-1, -tokens))

    def settle(self, reserved: int, used: int) -> None:
        """Correct a reservation of `reserved` tokens by the `used` ones the reply reports (0 for a
        refused call).
        """
        if 1 in self._buckets and reserved != used:
            self._take(0, used - reserved)
            self._start_next()

    def _delay(self, tokens: int) -> float:
        now, needs = self._clock(), (1, tokens)
        return max(
            (each.delay(needs[side], now) for side, each in self._buckets.items()), default=0.0
        )

    def _take(self, *needs: int) -> None:
        for side, bucket in self._buckets.items():
            bucket.level -= needs[side]

    def _start_next(self) -> None:
        """Start the calls whose turn it is and set the timer for the next."""
        while (tokens := self._queue.first()) is not None:
            if (wait := self._delay(tokens)) > 0.0:
                self._queue.look_in(wait)
                return
            self._take(1, tokens)
            self._queue.start_first()


@dataclass
class _Bucket:
    """Refills at `rate` per second up to one second's worth; may go into debt for one large take."""

    stamp: float
    level: float
    rate: float = 0.0

    def delay(self, need: float, now: float) -> float:
        """Seconds until `need` can be taken; a need above the capacity waits for a full bucket."""
        capacity = max(1.0, self.rate)
        self.level = min(capacity, self.level + (now - self.stamp) * self.rate)
        self.stamp = now
        missing = min(need, capacity) - self.level
        # refilling in floating point may end a hair below the mark for ever
        return missing / self.rate if missing > 1e-9 * capacity else 0.0


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how patiently a failed call is tried again.

    Waits are drawn from U(0, min(cap, base * 2**(n-1))) seconds after n counted failures ("full
    jitter", Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog 2015); four times as long
    for a server that restarts, and at most `base` besides a pause that it asks for.
    """

    max_attempts: int = 6
    base: float = 0.5
    cap: float = 60.0
    unreachable_attempts: int = 3
    """For an endpoint that has never answered."""
    rng: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def jitter(self, failures: float, cause: ProviderError, absent: bool, left: float) -> float:
        """Seconds to wait after so many counted `failures` (a later 429 is half of one), besides a
        pause that the server asks for: all calls refused together would come back together.

        Drawn within the time left, as a shorter wait is worth more than none.
        """
        # one that answered before and now refuses connections is restarting, which takes seconds
        restarting = cause.kind == "unreachable" and not absent
        longest = self.base * (4.0 if restarting else 1.0) * 2.0 ** min(int(failures) - 1, 60)
        return self.rng.uniform(
            0.0, min(left, self.base if cause.retry_after else self.cap, longest)
        )


_ONE_REQUEST = frozenset({400, 413, 422})
"""Refusals that are about what was asked: too long a prompt comes back in the same words, and the
next one may be shorter.
"""
_ACCOUNT = frozenset({401, 402, 429})


class FailFast:
    """Says when a run is pointless: `limit` calls in a row failed for good.

    Before any call succeeded every failure counts but a rate limit. Later what holds for every call
    counts (unreachable, or a key that is refused or has nothing left: HTTP 401, 402, 429 for good),
    and one and the same refusal of different requests, but not one of what was asked (HTTP 400,
    413, 422). Thread-safe. `message` is None until it trips.
    """

    def __init__(self, limit: int = 20) -> None:
        if limit < 1:
            raise ConfigError(f"FailFast needs a limit of at least 1, got {limit}")
        self.limit = limit
        self.message: str | None = None
        self._succeeded = False
        self._counted: list[tuple[str, BaseException]] = []
        """The failures in a row, in words."""
        self._lock = threading.Lock()

    def success(self) -> None:
        """Note a call that succeeded; the count begins anew."""
        self._succeeded = True
        if self._counted:
            with self._lock:
                if self.message is None:
                    self._counted.clear()

    def stopped_because_of(self, error: BaseException) -> bool | None:
        """Whether the run stopped for a call that failed with this error, or after it; None while
        that is open.
        """
        if not any(counted is error for _, counted in self._counted):
            return False
        return True if self.message is not None else None

    def failure(self, error: BaseException) -> bool:
        """Note a call that failed; True exactly once, when this failure trips the tracker."""
        if not isinstance(error, ProviderError) or error.kind == "rate_limit":
            return False
        if self._succeeded and (
            error.kind not in ("unreachable", "fatal") or error.status in _ONE_REQUEST
        ):
            return False
        with self._lock:
            message = (
                f"{f'HTTP {error.status}' if error.status is not None else error.kind}: {error}"
            )
            of_all = error.kind == "unreachable" or error.status in _ACCOUNT
            if self._succeeded and not (of_all or self.message or message in dict(self._counted)):
                self._counted.clear()
            self._counted.append((message, error))
            if self.message is not None or len(self._counted) < self.limit:
                return False
            cause, count = Counter(told for told, _ in self._counted).most_common(1)[0]
            which = "last" if self._succeeded else "first"
            self.message = (
                f"the {which} {self.limit} calls all failed, so the run stops. {count} times: "
                f"{cause}. Check endpoint, key and model name, then run the same command again; "
                f"finished samples are kept."
            )
            return True
