"""What calls cost, and a stop before a run costs more than it may."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from contextlib import suppress
from typing import NamedTuple, Protocol

from rm_gallery.core.engine.calls.prices import PriceTable, Usage
from rm_gallery.core.utils.errors import BudgetExceeded, ConfigError

# From so many settled calls on the dearest of them, and a quarter more, bounds the next call better than the caller can.
_TRUST_SEEN_FROM = 10
_MARGIN = 1.25
UNKNOWN_REPLY_TOKENS = 512
"""Guess for a reply whose length nobody limited, until one has come."""


class Reservation(NamedTuple):
    """What one call in flight may use; handed back to `Budget.settle`."""

    tokens: float
    cost: float
    entry: int = 0
    """Its line in the ledger."""


class SpendLedger(Protocol):
    """Keeps what a run spends while it runs; see `core.engine.folder.ledger`."""

    name: str
    before: Usage

    def begin(self, tokens: float, cost: float, *, at_once: bool = True) -> int:
        """Note a call that is about to be made."""

    def end(self, entry: int, usage: Usage) -> None:
        """Note what it used."""


class _Waiting(NamedTuple):
    future: asyncio.Future[Reservation]
    model: str
    expected: int
    most: int | None


class Budget:
    """Counts calls, tokens and cost of a run and refuses the call that would exceed a limit; thread-safe.

    Every attempt is a call, also one that fails. Calls in flight count with what they may use, so that a thousand of them
    cannot overshoot together: one that does not fit beside them waits for them. What a call may use is the limit given with
    it, later the dearest seen and a quarter more; with a limit on tokens or cost the first calls go 1, 2, 4, … at a time to
    find out. Spent may exceed the limit by what calls in flight used beyond that. Once a limit has been hit every further
    call is refused: the run stops in one clean cut.

    Args:
        max_calls: most calls paid for; replies from the cache are free.
        max_tokens: most tokens, input and output together.
        max_cost: most money, in the currency of the prices.
        prices: needed with `max_cost`, otherwise used to count the cost.
        spent: what earlier parts of the same run used already.

    Raises:
        ConfigError: a limit that is not positive, or `max_cost` without prices.
    """

    def __init__(
        self,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        prices: PriceTable | None = None,
        spent: Usage | None = None,
    ) -> None:
        for name, limit in (("max_calls", max_calls), ("max_tokens", max_tokens), ("max_cost", max_cost)):
            if limit is not None and not (isinstance(limit, int | float) and 0 < limit < math.inf):
                raise ConfigError(f"{name} must be a positive number, got {limit!r:.80}")
        if max_cost is not None and prices is None:
            raise ConfigError("max_cost needs prices: give a YAML file with input and output per million tokens per model")
        self.max_calls = max_calls
        self.max_tokens = max_tokens
        self.max_cost = max_cost
        self.prices = prices
        self._limited = not (max_calls is None and max_tokens is None and max_cost is None)
        self.message: str | None = None
        self._spent = Usage() if spent is None else spent.copy()
        self._money = self._spent.cost or 0.0
        self._settled_calls = self._in_flight = 0
        self._tokens = self._cost = 0.0  # settled in this process, for the means
        self._most_tokens = self._most_cost = 0.0  # of one call
        self._waiting: deque[_Waiting] = deque()
        self._ledger: SpendLedger | None = None
        self._counted: set[str] = set()
        self._reserved_tokens = self._reserved_cost = 0.0
        self._lock = threading.Lock()

    @property
    def spent(self) -> Usage:
        """A copy of what has been used so far."""
        with self._lock:
            return self._spent.copy()

    def attach(self, ledger: SpendLedger) -> None:
        """Count what earlier parts of the run spent, and keep in `ledger` what this one does."""
        with self._lock:
            self._ledger = ledger
            if ledger.name not in self._counted:
                self._counted.add(ledger.name)
                self._spent.add(ledger.before)
                self._money += ledger.before.cost or 0.0

    def try_reserve(self, model: str = "", expected: int = 0, most: int | None = None) -> Reservation | None:
        """Claim one call before it is made; None when it has to wait for calls in flight.

        `expected` guesses its input tokens; `most` bounds input and output together where the caller can.

        Raises:
            BudgetExceeded: the call would go beyond a limit; says which, and how to go on.
            ConfigError: `max_cost` is set and the model has no price.
        """
        with self._lock:
            return None if self._waiting and self.message is None else self._claim(model, expected, most)

    async def reserve(self, model: str = "", expected: int = 0, most: int | None = None) -> Reservation:
        """As `try_reserve`, and wait where that says so; a cancelled wait claims nothing."""
        future: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()
        with self._lock:
            claim = None if self._waiting else self._claim(model, expected, most)
            if claim is not None:
                return claim
            self._waiting.append(_Waiting(future, model, expected, most))
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.settle(future.result(), Usage())
            raise

    def _claim(self, model: str, expected: int, most: int | None) -> Reservation | None:
        if self.message is not None:
            raise BudgetExceeded(self.message)
        tokens, cost = self._bounds(model, expected, most)
        self._check(model, expected)
        if self._in_flight and not self._fits_beside(tokens, cost):
            return None
        self._in_flight += 1
        self._reserved_tokens += tokens
        self._reserved_cost += cost
        if self._ledger is None:
            return Reservation(tokens, cost)
        return Reservation(tokens, cost, self._ledger.begin(tokens, cost, at_once=self._limited))

    def _bounds(self, model: str, expected: int, most: int | None) -> tuple[float, float]:
        """The most the next call is taken to use."""
        tokens = float(most if most is not None else max(expected + UNKNOWN_REPLY_TOKENS, self._most_tokens))
        if self._settled_calls >= _TRUST_SEEN_FROM:
            seen = max(_MARGIN * self._most_tokens, float(expected))
            tokens = seen if most is None else min(tokens, seen)
        if self.max_cost is None or self.prices is None:
            return tokens, 0.0
        price = self.prices.find(model)
        if price is None:
            raise ConfigError(f"max_cost is set, but {self.prices.source} has no price for: {model or '(no name)'}")
        dearest = tokens * max(price.input, price.output) / 1e6
        return tokens, min(dearest, _MARGIN * self._most_cost) if self._settled_calls >= _TRUST_SEEN_FROM else dearest

    def _check(self, model: str, expected: int) -> None:
        """Refuse a call for which there is no room even when those in flight turn out to have used nothing more."""
        used, known = self._spent, max(1, self._settled_calls)
        over = ""
        if self.max_calls is not None and used.calls + 1 > self.max_calls:
            over = self._describe("max-calls", f"{self.max_calls:,} calls")
        elif self.max_tokens is not None and used.total_tokens + max(self._tokens / known, 1) > self.max_tokens:
            over = self._describe("max-tokens", f"{self.max_tokens:,} tokens")
        elif self.max_cost is not None and self._money > 0:
            # a run that is continued knows no mean yet: what is used up is used up
            if self._money + self._cost / known > self.max_cost * (1 + 1e-9) or self._money >= self.max_cost * (1 - 1e-9):
                over = self._describe("max-cost", f"{self.max_cost:g}")
        if over:
            self.message = over
            raise BudgetExceeded(over)

    def _fits_beside(self, tokens: float, cost: float) -> bool:
        """Whether a call can be made beside those in flight, whatever they use within their reservations."""
        used = self._spent
        if self.max_calls is not None and used.calls + self._in_flight + 1 > self.max_calls:
            return False
        if self.max_tokens is None and self.max_cost is None:
            return True
        if self._in_flight > self._settled_calls:
            return False
        if self.max_tokens is not None and used.total_tokens + self._reserved_tokens + tokens > self.max_tokens:
            return False
        return self.max_cost is None or self._money + self._reserved_cost + cost <= self.max_cost * (1 + 1e-9)

    def _describe(self, option: str, limit: str) -> str:
        used = self._spent
        cost = "" if used.cost is None else f", cost {used.cost:.4f}"
        earlier = " in all parts of this run" if self._counted else ""
        return (
            f"--{option} of {limit} reached (used{earlier}: calls {used.calls:,}, tokens {used.total_tokens:,}{cost}; in "
            f"flight: {self._in_flight:,}). Everything finished is kept; run the same command with a higher --{option} to "
            "do the rest."
        )

    def settle(self, reservation: Reservation, usage: Usage, model: str = "") -> None:
        """Replace a reservation by what the call used; an empty `Usage` for one that was never paid.

        A usage without a cost gets it from the prices.
        """
        if usage.cost is None and self.prices is not None and not usage.empty:
            usage.cost = self.prices.cost(model, usage)
        tokens = usage.input_tokens + usage.output_tokens
        with self._lock:
            self._in_flight -= 1
            self._reserved_tokens -= reservation.tokens
            self._reserved_cost -= reservation.cost
            if tokens or usage.cost:
                self._settled_calls += 1
                self._tokens += tokens
                self._most_tokens = max(self._most_tokens, tokens)
                self._cost += usage.cost or 0.0
                self._most_cost = max(self._most_cost, usage.cost or 0.0)
                self._money += usage.cost or 0.0
            self._spent.add(usage)
            if self._ledger is not None:
                self._ledger.end(reservation.entry, usage)
            decided = self._serve() if self._waiting else ()
        for future, outcome in decided:
            _hand_over(future, outcome)

    def _serve(self) -> list[tuple[asyncio.Future[Reservation], Reservation | Exception]]:
        """Who of those waiting goes on, and with what."""
        decided: list[tuple[asyncio.Future[Reservation], Reservation | Exception]] = []
        while self._waiting:
            future, model, expected, most = self._waiting[0]
            if not future.done():
                try:
                    claim: Reservation | Exception | None = self._claim(model, expected, most)
                except BudgetExceeded as error:
                    claim = error
                if claim is None:
                    break
                decided.append((future, claim))
            self._waiting.popleft()
        return decided


def _hand_over(future: asyncio.Future[Reservation], outcome: Reservation | Exception) -> None:
    def deliver() -> None:
        if not future.done():
            future.set_exception(outcome) if isinstance(outcome, Exception) else future.set_result(outcome)

    loop = future.get_loop()
    if asyncio._get_running_loop() is loop:
        deliver()
    else:
        with suppress(RuntimeError):  # a loop that closed meanwhile took whoever waited with it
            loop.call_soon_threadsafe(deliver)
