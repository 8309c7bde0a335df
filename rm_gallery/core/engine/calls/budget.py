"""What calls cost, and a stop before a run costs more than it may."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from typing import NamedTuple

from rm_gallery.core.engine.calls.estimate import Estimate, Interval, probe_indices
from rm_gallery.core.engine.calls.prices import Price, PriceTable
from rm_gallery.core.engine.calls.usage import Usage
from rm_gallery.core.utils.errors import BudgetExceeded, ConfigError

__all__ = ["Budget", "Estimate", "Interval", "Price", "PriceTable", "Reservation", "Usage", "probe_indices"]

# From so many settled calls on their mean is a better guess for the next call than the caller's upper bound.
_TRUST_MEAN_FROM = 10


class Reservation(NamedTuple):
    """What one call in flight is expected to use; handed back to `Budget.settle`."""

    tokens: float
    cost: float


class Budget:
    """Counts calls, tokens and cost of a run and refuses the call that would exceed a limit; thread-safe.

    Calls in flight count with what they are expected to use, so that a thousand of them cannot overshoot together. Once
    a limit has been hit every further `reserve` is refused: the run stops in one clean cut.

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
            if limit is not None and not 0 < limit < math.inf:
                raise ConfigError(f"{name} must be a positive number, got {limit}")
        if max_cost is not None and prices is None:
            raise ConfigError(
                "max_cost needs prices: give a YAML file with input and output per million tokens per model"
            )
        self.max_calls = max_calls
        self.max_tokens = max_tokens
        self.max_cost = max_cost
        self.prices = prices
        self.message: str | None = None
        self._spent = Usage() if spent is None else spent.copy()
        self._money = self._spent.cost or 0.0
        self._settled_calls = self._in_flight = 0
        self._tokens = self._cost = 0.0  # settled in this process, for the means
        self._reserved_tokens = self._reserved_cost = 0.0
        self._lock = threading.Lock()

    @property
    def spent(self) -> Usage:
        """A copy of what has been used so far."""
        with self._lock:
            return self._spent.copy()

    def check_models(self, models: Iterable[str]) -> None:
        """Refuse at the start of a run what could not be stopped later.

        Raises:
            ConfigError: `max_cost` is set and a model has no price.
        """
        if self.max_cost is None or self.prices is None:
            return
        missing = sorted({model for model in models if self.prices.find(model) is None})
        if missing:
            raise ConfigError(
                f"max_cost is set, but {self.prices.source} has no price for: {', '.join(missing)}. Add a line per model "
                "(input and output per million tokens; 0 for one that is free)."
            )

    def reserve(self, model: str = "", tokens: int = 0) -> Reservation:
        """Claim one call before it is made; `tokens` is the caller's guess of input plus output, an upper bound.

        Raises:
            BudgetExceeded: the call would go beyond a limit; says which, and how to go on.
            ConfigError: `max_cost` is set and the model has no price.
        """
        with self._lock:
            if self.message is not None:
                raise BudgetExceeded(self.message)
            reservation = self._expected(model, tokens)
            over = self._over(reservation)
            if over:
                self.message = over
                raise BudgetExceeded(over)
            self._in_flight += 1
            self._reserved_tokens += reservation.tokens
            self._reserved_cost += reservation.cost
            return reservation

    def _expected(self, model: str, tokens: int) -> Reservation:
        cost = 0.0
        if self.max_cost is not None and self.prices is not None:
            price = self.prices.find(model)
            if price is None:
                raise ConfigError(f"max_cost is set, but {self.prices.source} has no price for: {model or '(no name)'}")
            cost = tokens * max(price.input, price.output) / 1e6
        known = self._settled_calls
        if known < _TRUST_MEAN_FROM:
            return Reservation(float(tokens), cost)
        return Reservation(self._tokens / known, self._cost / known)

    def _over(self, next_call: Reservation) -> str | None:
        used = self._spent
        if self.max_calls is not None and used.calls + self._in_flight + 1 > self.max_calls:
            return self._describe("max-calls", f"{self.max_calls:,} calls")
        if self.max_tokens is not None:
            if used.total_tokens + self._reserved_tokens + next_call.tokens > self.max_tokens:
                return self._describe("max-tokens", f"{self.max_tokens:,} tokens")
        if self.max_cost is not None:
            if self._money + self._reserved_cost + next_call.cost > self.max_cost * (1 + 1e-9):
                return self._describe("max-cost", f"{self.max_cost:g}")
        return None

    def _describe(self, option: str, limit: str) -> str:
        used = self._spent
        cost = "" if used.cost is None else f", cost {used.cost:.4f}"
        return (
            f"--{option} of {limit} reached (used: calls {used.calls:,}, tokens {used.total_tokens:,}{cost}; in flight: "
            f"{self._in_flight:,}). Everything finished is kept; run the same command with a higher --{option} to do the "
            "rest."
        )

    def settle(self, reservation: Reservation, usage: Usage, model: str = "") -> None:
        """Replace a reservation by what the call used; an empty `Usage` for one that was never paid.

        A usage without a cost gets it from the prices.
        """
        cost = usage.cost
        if cost is None and self.prices is not None and not usage.empty:
            cost = self.prices.cost(model, usage)
        with self._lock:
            self._in_flight -= 1
            self._reserved_tokens -= reservation.tokens
            self._reserved_cost -= reservation.cost
            self._settled_calls += usage.calls
            self._tokens += usage.input_tokens + usage.output_tokens
            if cost:
                self._cost += cost
                self._money += cost
            self._spent.add(usage, cost)

    def note(self, usage: Usage) -> None:
        """Count something that needed no reservation, such as a reply from the cache."""
        with self._lock:
            self._spent.add(usage)
