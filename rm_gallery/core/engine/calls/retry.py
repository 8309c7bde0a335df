"""Attempts at one call: what may be tried again, after how long, and when a run should stop trying
at all.
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar

from rm_gallery.core.engine.calls.endpoint import PAUSE_CAP, Endpoint, EndpointDown
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.utils.errors import (
    ConfigError,
    DeadlineExceeded,
    ProviderError,
    ProviderErrorKind,
)

T = TypeVar("T")

_ACCOUNT = frozenset({401, 402, 429})
_ONE_REQUEST = frozenset({400, 413, 422})
"""Refusals that are about what was asked: too long a prompt comes back in the same words, and the
next one may be shorter.
"""
# Gateways answer so for any call while there is nobody behind them.
_NOT_THE_CALL = frozenset({404, 405, 502, 503, 529})

# A server that answered before and now refuses connections is restarting: that takes seconds, not
# fractions of one.
_RESTART_FACTOR = 4.0


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how patiently a failed call is tried again.

    Waits are drawn from U(0, min(cap, base * 2**(n-1))) seconds after attempt n ("full jitter",
    Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog 2015). `unreachable_attempts`
    holds for an endpoint that has never answered. Give an `rng` with a seed for reproducible waits.
    Raises ConfigError: a count below 1 or a wait that is not positive.
    """

    max_attempts: int = 6
    base: float = 0.5
    cap: float = 60.0
    unreachable_attempts: int = 3
    rng: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.unreachable_attempts < 1:
            raise ConfigError(f"a retry policy needs at least 1 attempt, got max_attempts={self.max_attempts}, "
                              f"unreachable_attempts={self.unreachable_attempts}")  # fmt: skip
        if not 0 < self.base <= self.cap < math.inf:
            raise ConfigError(
                f"a retry policy needs 0 < base <= cap, got base={self.base}, cap={self.cap}"
            )

    def ceiling(self, attempt: int, *, restarting: bool = False) -> float:
        """Longest jittered wait in seconds after attempt number `attempt` (from 1)."""
        base = self.base * _RESTART_FACTOR if restarting else self.base
        return min(self.cap, base * 2.0 ** min(attempt - 1, 60))


@dataclass(frozen=True)
class RetryEvent:
    """One retry about to be waited for: after attempt `attempt` of this kind, in `wait` seconds."""

    attempt: int
    kind: ProviderErrorKind
    wait: float
    error: ProviderError


async def run_attempts(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    deadline: Deadline | None = None,
    on_retry: Callable[[RetryEvent], None] | None = None,
    endpoint: Endpoint | None = None,
) -> T:
    """Await `call()` until it succeeds, may not be repeated, or the deadline passes between two
    attempts.

    `call` itself waits for the endpoint and keeps within the deadline. While the endpoint is shut
    or pauses there is no wait here, and from the second attempt on what says nothing about the call
    (refused connections, 429, 502, 503, 529) is free. A pause the server asks for is the sample's
    time, and none is begun that ends after its deadline. Only ProviderError is retried; anything else passes through.

    Raises:
        ProviderError: fatal at once; any other kind when its attempts are used up.
        DeadlineExceeded: no time is left for another attempt; names attempts and last cause.
    """
    made, counted = 0, 0.0
    cause: ProviderError | None = None
    while True:
        if deadline is not None and deadline.left <= 0:
            raise _late(made, cause) from cause
        made += 1
        try:
            return await call()
        except EndpointDown:
            raise
        except ProviderError as error:
            if error.kind == "fatal":
                raise
            cause = error
        held, answered = _endpoint_says(endpoint, cause)
        counted += 1.0 if made == 1 else _weight(endpoint, cause)
        absent = cause.kind == "unreachable" and not answered
        allowed = (
            min(policy.unreachable_attempts, policy.max_attempts) if absent else policy.max_attempts
        )
        if counted >= allowed:
            raise ProviderError(
                f"{cause} (gave up after {_tries(made)})",
                kind=cause.kind, status=cause.status, retry_after=cause.retry_after,
            ) from cause  # fmt: skip
        asked, wait = (0.0, 0.0) if held else _waits(policy, cause, counted, absent, deadline)
        if deadline is not None:
            if max(wait * (not held), min(cause.retry_after or 0.0, PAUSE_CAP)) >= deadline.left:
                raise _late(made, cause) from cause
            deadline.note = f"{_tries(made)}, last cause ({cause.kind}): {cause}"
        if on_retry is not None:
            on_retry(RetryEvent(made, cause.kind, asked + wait, cause))
        if asked + wait:
            await asyncio.sleep(asked + wait)


def _endpoint_says(endpoint: Endpoint | None, cause: ProviderError) -> tuple[bool, bool]:
    """Whether the endpoint holds calls back by itself, and whether it ever answered."""
    if endpoint is None:
        return False, False
    endpoint.answered = endpoint.answered or cause.status is not None or cause.kind == "rate_limit"
    return endpoint.shut or endpoint.paused, endpoint.answered


def _weight(endpoint: Endpoint | None, cause: ProviderError) -> float:
    """How much of an attempt a failure uses up: less, the likelier any other call would have ended
    so.
    """
    if endpoint is None or not endpoint.served:
        return 1.0
    if endpoint.shut:
        if cause.kind in ("unreachable", "rate_limit") or cause.status in _NOT_THE_CALL:
            return 0.0
        return 0.25 if endpoint.waiting else 1.0
    return 0.5 if cause.kind == "rate_limit" else 1.0


def _waits(
    policy: RetryPolicy,
    cause: ProviderError,
    counted: float,
    absent: bool,
    deadline: Deadline | None,
) -> tuple[float, float]:
    """Seconds the server asks for, and seconds of jitter after them."""
    asked = min(cause.retry_after or 0.0, PAUSE_CAP)
    restarting = cause.kind == "unreachable" and not absent
    left = math.inf if deadline is None else max(0.0, deadline.left)
    # Jitter is drawn within the time left: a shorter wait than planned is worth more than none. All
    # calls refused together would come back together, so a wait the server asks for gets some as
    # well.
    longest = policy.base if asked else policy.ceiling(int(counted), restarting=restarting)
    return asked, policy.rng.uniform(0.0, min(longest, left))


def _tries(made: int) -> str:
    return "1 attempt" if made == 1 else f"{made} attempts"


def _late(made: int, cause: ProviderError | None) -> DeadlineExceeded:
    last = "none had failed before" if cause is None else f"last cause ({cause.kind}): {cause}"
    return DeadlineExceeded(
        f"deadline reached after {_tries(made)}: no time was left for another; {last}. Give the "
        f"sample a longer deadline.",
        cause="caller" if cause is None else "endpoint",
    )


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds the server asks to wait: `retry-after-ms`, else `retry-after` as number or HTTP-date.

    `now` is wall-clock time in seconds since the epoch. A date in the past is 0; anything
    unreadable, negative or not finite is None. Source: RFC 9110 section 10.2.3; the milliseconds
    form is Azure's and OpenAI's.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    milliseconds = _parse_number(lowered.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = lowered.get("retry-after")
    seconds = _parse_number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        date = parsedate_to_datetime(text)
        if date.tzinfo is None:
            date = date.replace(tzinfo=timezone.utc)
        return max(0.0, date.timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _parse_number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if 0.0 <= value < math.inf else None


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
        self._causes: Counter[str] = Counter()
        self._counted: list[BaseException] = []
        self._lock = threading.Lock()

    def success(self) -> None:
        """Note a call that succeeded; the count begins anew."""
        self._succeeded = True
        if self._causes:
            with self._lock:
                self._causes.clear()
                if self.message is None:
                    self._counted.clear()

    def lost(self, error: BaseException) -> bool | None:
        """Whether the run stopped for a call that failed with this error, or after it; None while
        that is open.
        """
        if not any(counted is error for counted in self._counted):
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
            if self.message is not None:
                self._counted.append(error)
                return False
            message = (
                f"{f'HTTP {error.status}' if error.status is not None else error.kind}: {error}"
            )
            of_all = error.kind == "unreachable" or error.status in _ACCOUNT
            if self._succeeded and not of_all and message not in self._causes:
                self._causes.clear()
                self._counted.clear()
            self._causes[message] += 1
            self._counted.append(error)
            if sum(self._causes.values()) < self.limit:
                return False
            cause, count = self._causes.most_common(1)[0]
            which = (
                f"the last {self.limit} calls"
                if self._succeeded
                else f"the first {self.limit} calls"
            )
            self.message = (
                f"{which} all failed, so the run stops. {count} times: {cause}. "
                "Check endpoint, key and model name, then run the same command again; finished "
                "samples are kept."
            )
            return True


@dataclass(eq=False)
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    leader: Any
    waiters: list[asyncio.Future[T]] = field(default_factory=list)


class SingleFlight(Generic[T]):
    """Runs at most one execution per key at a time; everybody who asks meanwhile gets its result or
    its error.

    Nothing is remembered afterwards. A caller that is cancelled leaves the others alone; the
    execution itself is cancelled once nobody waits for it any more. Not thread-safe: all calls must
    run on one event loop.
    """

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def leader(self, key: str) -> Any:
        """What the first caller of the execution in flight for `key` gave as `leader`; None when
        there is none.
        """
        flight = self._flights.get(key)
        return None if flight is None else flight.leader

    async def run(
        self, key: str, factory: Callable[[], Coroutine[Any, Any, T]], leader: Any = None
    ) -> T:
        """The result of the execution in flight for `key`, or of `factory()` when there is none.

        The execution runs in a task of its own, in a copy of the first caller's context.
        """
        loop = asyncio.get_running_loop()
        flight = self._flights.get(key)
        if flight is None or flight.task.get_loop() is not loop:
            flight = self._start_flight(key, loop.create_task(factory()), leader)
        waiter: asyncio.Future[T] = loop.create_future()
        flight.waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter in flight.waiters:
                flight.waiters.remove(waiter)
                # nobody waits any more: cancel it, and return when its connection is closed
                if not flight.waiters:
                    if self._flights.get(key) is flight:
                        # a newcomer must not join an execution that is being cancelled
                        del self._flights[key]
                    flight.task.cancel()
                    await asyncio.wait({flight.task})
            raise

    def _start_flight(self, key: str, task: asyncio.Task[T], leader: Any) -> _Flight[T]:
        flight = self._flights[key] = _Flight(task, leader)

        def land(task: asyncio.Task[T]) -> None:
            if self._flights.get(key) is flight:
                del self._flights[key]
            waiters, flight.waiters = flight.waiters, []
            if task.cancelled():
                for waiter in waiters:
                    waiter.cancel()
                return
            # Reading the exception also marks it as seen when nobody is left to receive it.
            error = task.exception()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(task.result()) if error is None else waiter.set_exception(
                        error
                    )

        task.add_done_callback(land)
        return flight
