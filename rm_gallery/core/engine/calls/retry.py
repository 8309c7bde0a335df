"""Attempts at one call: what may be tried again, after how long, and when a run should stop trying at all."""

from __future__ import annotations

import asyncio
import math
import random
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import TypeVar

from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded, ProviderError, ProviderErrorKind

T = TypeVar("T")

# A server that answered before and now refuses connections is restarting: that takes seconds, not fractions of one.
_RESTART_FACTOR = 4.0


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how patiently a failed call is tried again.

    Waits are drawn from U(0, min(cap, base * 2**(n-1))) seconds after attempt n ("full jitter", Brooker,
    "Exponential Backoff And Jitter", AWS Architecture Blog 2015). `unreachable_attempts` holds for an endpoint that has
    never answered. Give `rng` or `seed` for reproducible waits.

    Raises:
        ConfigError: a count below 1 or a wait that is not positive.
    """

    max_attempts: int = 6
    base: float = 0.5
    cap: float = 60.0
    unreachable_attempts: int = 3
    seed: int | None = None
    rng: random.Random | None = field(default=None, repr=False, compare=False)
    _jitter: random.Random = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.unreachable_attempts < 1:
            raise ConfigError(f"a retry policy needs at least 1 attempt, got max_attempts={self.max_attempts}, "
                              f"unreachable_attempts={self.unreachable_attempts}")  # fmt: skip
        if not 0 < self.base <= self.cap < math.inf:
            raise ConfigError(f"a retry policy needs 0 < base <= cap, got base={self.base}, cap={self.cap}")
        object.__setattr__(self, "_jitter", random.Random(self.seed) if self.rng is None else self.rng)

    def jitter(self, ceiling: float) -> float:
        """A wait in seconds drawn from U(0, ceiling)."""
        return self._jitter.uniform(0.0, ceiling)

    def ceiling(self, attempt: int, *, restarting: bool = False) -> float:
        """Longest jittered wait in seconds after attempt number `attempt` (from 1)."""
        base = self.base * _RESTART_FACTOR if restarting else self.base
        return min(self.cap, base * 2.0 ** min(attempt - 1, 60))


@dataclass
class Reachability:
    """Whether an endpoint has ever answered; shared by all calls to it."""

    answered: bool = False


@dataclass(frozen=True)
class RetryEvent:
    """One retry about to be waited for: after attempt `attempt` of this kind, in `wait` seconds."""

    attempt: int
    kind: ProviderErrorKind
    wait: float
    error: ProviderError


class _State:
    """Progress of one call through its attempts."""

    __slots__ = ("attempts", "cause", "expired", "reach")

    def __init__(self, reach: Reachability | None) -> None:
        self.attempts = 0
        self.cause: ProviderError | None = None
        self.expired = False
        self.reach = Reachability() if reach is None else reach

    def deadline_exceeded(self, why: str) -> DeadlineExceeded:
        cause = "none had failed before" if self.cause is None else f"last cause ({self.cause.kind}): {self.cause}"
        tried = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return DeadlineExceeded(f"deadline reached after {tried}: {why}; {cause}. Give the sample a longer deadline.")


async def run_attempts(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    deadline: float | None = None,
    on_retry: Callable[[RetryEvent], None] | None = None,
    reach: Reachability | None = None,
) -> T:
    """Await `call()` until it succeeds, may not be repeated, or the deadline (absolute `loop.time()` seconds) passes.

    An attempt still running at the deadline is cancelled. Only ProviderError is retried; anything else passes through.

    Raises:
        ProviderError: fatal at once; any other kind when its attempts are used up.
        DeadlineExceeded: the attempt, or the wait for the next one, does not fit; names attempts and last cause.
    """
    state = _State(reach)
    if deadline is None:
        return await _attempts(call, policy, state, None, on_retry)
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    if loop.time() >= deadline:
        raise state.deadline_exceeded("no time was left to start")
    cancelled_before = task.cancelling() if sys.version_info >= (3, 11) else 0

    def expire() -> None:
        state.expired = True
        task.cancel()

    timer = loop.call_at(deadline, expire)
    try:
        return await _attempts(call, policy, state, deadline, on_retry)
    except asyncio.CancelledError:
        # Somebody else may have cancelled the task in the same turn; their wish goes first.
        if state.expired and (sys.version_info < (3, 11) or task.cancelling() <= cancelled_before + 1):
            raise state.deadline_exceeded("the attempt was cut while running") from state.cause
        raise
    finally:
        timer.cancel()
        if state.expired and sys.version_info >= (3, 11):
            task.uncancel()


async def _attempts(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    state: _State,
    deadline: float | None,
    on_retry: Callable[[RetryEvent], None] | None,
) -> T:
    while True:
        state.attempts += 1
        try:
            result = await call()
        except ProviderError as error:
            state.cause = error
            room = math.inf if deadline is None else deadline - asyncio.get_running_loop().time()
            wait = _next_wait(policy, state, error, room)
            if on_retry is not None:
                on_retry(RetryEvent(state.attempts, error.kind, wait, error))
            await asyncio.sleep(wait)
        else:
            state.reach.answered = True
            return result


def _next_wait(policy: RetryPolicy, state: _State, error: ProviderError, room: float) -> float:
    """Seconds until the next attempt, or the error that ends the call; `room` is the time left."""
    if error.kind == "fatal":
        raise error
    if error.status is not None or error.kind == "rate_limit":
        state.reach.answered = True
    unreachable = error.kind == "unreachable"
    absent = unreachable and not state.reach.answered
    allowed = min(policy.unreachable_attempts, policy.max_attempts) if absent else policy.max_attempts
    if state.attempts >= allowed:
        tried = "1 attempt" if state.attempts == 1 else f"{state.attempts} attempts"
        raise ProviderError(
            f"{error} (gave up after {tried})", kind=error.kind, status=error.status, retry_after=error.retry_after
        ) from error
    floor = error.retry_after or 0.0
    if room <= floor:
        raise state.deadline_exceeded(
            f"the next try has to wait {floor:.3g} s, {max(room, 0.0):.3g} s are left"
        ) from error
    # Jitter is drawn within the time left: a shorter wait than planned is worth more than none.
    wait = policy.jitter(min(policy.ceiling(state.attempts, restarting=unreachable and not absent), room))
    if floor:
        # All calls refused together would come back together.
        wait = max(wait, floor + policy.jitter(min(policy.base, room - floor)))
    return wait


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds the server asks to wait: `retry-after-ms`, else `retry-after` as number or HTTP-date.

    `now` is wall-clock time in seconds since the epoch. A date in the past is 0; anything unreadable, negative or
    not finite is None. Source: RFC 9110 section 10.2.3; the milliseconds form is Azure's and OpenAI's.
    """
    milliseconds = _number(_header(headers, "retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = _header(headers, "retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        date = parsedate_to_datetime(text)
        if date.tzinfo is None:
            date = date.replace(tzinfo=timezone.utc)
        return max(0.0, date.timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _header(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    if value is not None:
        return value
    return next((v for k, v in headers.items() if k.lower() == name), None)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if 0.0 <= value < math.inf else None


class FailFast:
    """Says when a run is pointless: `limit` calls failed for good (fatal or unreachable) before any succeeded.

    Thread-safe. Failures of other kinds count for neither side. `message` is None until it trips.
    """

    def __init__(self, limit: int = 20) -> None:
        if limit < 1:
            raise ConfigError(f"FailFast needs a limit of at least 1, got {limit}")
        self.limit = limit
        self.message: str | None = None
        self._armed = True
        self._causes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def success(self) -> None:
        """Note a call that succeeded; from now on the tracker never trips."""
        self._armed = False

    def failure(self, error: BaseException) -> bool:
        """Note a call that failed; True exactly once, when this failure trips the tracker."""
        if not self._armed or not isinstance(error, ProviderError) or error.kind not in ("fatal", "unreachable"):
            return False
        with self._lock:
            status = f"HTTP {error.status}" if error.status is not None else error.kind
            self._causes[f"{status}: {error}"] += 1
            if not self._armed or sum(self._causes.values()) < self.limit:
                return False
            self._armed = False
            cause, count = self._causes.most_common(1)[0]
            self.message = (
                f"the first {self.limit} calls all failed, so the run stops. {count} times: {cause}. "
                "Check endpoint, key and model name, then run the same command again; finished samples are kept."
            )
            return True
