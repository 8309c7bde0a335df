"""What calls cost, and a stop before a run costs more than it may."""

from __future__ import annotations

import asyncio
import math
import statistics
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery.core.model.usage import Ledger, Usage
from rm_gallery.core.utils.errors import BudgetExceeded, ConfigError, reason_of

_MAX_BYTES = 1 << 20
_HIGHEST = sys.float_info.max
_EXAMPLE = (
    "write one line per model: `gpt-4o-mini: {input: 0.15, output: 0.60, cached_input: 0.075}`"
)


@dataclass(frozen=True)
class Price:
    """Money per million tokens; `cached_input` is that of input the provider had cached."""

    input: float
    output: float
    cached_input: float

    def cost(self, usage: Usage) -> float:
        """Money for a usage."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        fresh = usage.input_tokens - cached
        return (
            fresh * self.input + cached * self.cached_input + usage.output_tokens * self.output
        ) / 1e6


class PriceTable:
    """Prices by model name or glob pattern; an exact name wins, then the first matching pattern in
    the file.
    """

    def __init__(self, prices: Mapping[str, Price], source: str = "the price table") -> None:
        self.source = source
        self._prices = dict(prices)
        self._patterns = [name for name in self._prices if any(sign in name for sign in "*?[")]
        self._by_model: dict[str, Price | None] = {}

    @classmethod
    def from_yaml(cls, path: Path | str) -> PriceTable:
        """Read a YAML mapping of model (or pattern) to `input`, `output` and, optionally,
        `cached_input`.

        Raises ConfigError: the file cannot be read, or an entry is not right; names file, model and
        field.
        """
        import yaml

        try:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise ConfigError(
                    f"price file {path} is larger than {_MAX_BYTES:,} bytes; {_EXAMPLE}"
                )
            content = yaml.safe_load(data.decode("utf-8-sig"))
        except ConfigError:
            raise
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"price file {path} cannot be read: {reason_of(error)}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"price file {path} is not valid YAML: {str(error)[:500]}") from None
        if not isinstance(content, dict) or not content:
            raise ConfigError(f"price file {path} holds no mapping of models to prices; {_EXAMPLE}")
        if not all(isinstance(model, str | int | float) for model in content):
            raise ConfigError(f"price file {path} holds a model name that is no text; {_EXAMPLE}")
        return cls(
            {str(model): _price(path, str(model), entry) for model, entry in content.items()},
            f"price file {path}",
        )

    def find(self, model: str) -> Price | None:
        """The price of a model, or None."""
        if model not in self._by_model:
            match = next((name for name in self._patterns if fnmatchcase(model, name)), None)
            self._by_model[model] = self._prices.get(model) or (
                self._prices[match] if match is not None else None
            )
        return self._by_model[model]

    def cost(self, model: str, usage: Usage) -> float | None:
        """Money for a usage of a model; None when the model has no price."""
        price = self.find(model)
        return None if price is None else price.cost(usage)


def _price(path: Path | str, model: str, entry: Any) -> Price:
    if not isinstance(entry, dict):
        raise ConfigError(
            f"price file {path}, model {model}: found {_show_value(entry)} instead of fields; {_EXAMPLE}"
        )
    unknown = sorted(
        _show_value(field).strip("'")
        for field in entry
        if field not in ("input", "output", "cached_input")
    )
    if unknown:
        raise ConfigError(
            f"price file {path}, model {model}: unknown field {', '.join(unknown)}; known are "
            f"input, output, cached_input"
        )

    def field(name: str) -> float:
        value = entry.get(name)
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 <= value <= _HIGHEST
        ):
            kind = "nothing" if value is None else _show_value(value)
            raise ConfigError(
                f"price file {path}, model {model}, field {name}: found {kind}, needs a number >= "
                f"0 (per million tokens)"
            )
        return float(value)

    return Price(
        field("input"),
        field("output"),
        field("cached_input" if "cached_input" in entry else "input"),
    )


def _show_value(value: Any) -> str:
    """A value for a message: a few lines of references in YAML can stand for gigabytes."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 80 else repr(value[:80]) + "…"
    return repr(value) if isinstance(value, bool | int | float) else f"a {type(value).__name__}"


# From so many settled calls on the dearest of them, and a quarter more, bounds the next call better
# than the caller can.
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


class _Waiting(NamedTuple):
    future: asyncio.Future[Reservation]
    model: str
    expected: int
    most: int | None


class Budget:
    """Counts calls, tokens and cost of a run and refuses the call that would exceed a limit;
    thread-safe.

    Every attempt is a call, also one that fails. Calls in flight count with what they may use, so
    that a thousand of them cannot overshoot together: one that does not fit beside them waits for
    them. What a call may use is the limit given with it, later the dearest seen and a quarter more;
    with a limit on tokens or cost the first calls go 1, 2, 4, … at a time to find out. Spent may
    exceed the limit by what calls in flight used beyond that. Once a limit has been hit every
    further call is refused: the run stops in one clean cut.

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
        for name, limit in (
            ("max_calls", max_calls),
            ("max_tokens", max_tokens),
            ("max_cost", max_cost),
        ):
            if limit is not None and not (isinstance(limit, int | float) and 0 < limit < math.inf):
                raise ConfigError(f"{name} must be a positive number, got {limit!r:.80}")
        if max_cost is not None and prices is None:
            raise ConfigError(
                "max_cost needs prices: give a YAML file with input and output per million tokens "
                "per model"
            )
        self.max_calls = max_calls
        self.max_tokens = max_tokens
        self.max_cost = max_cost
        self.prices = prices
        self._limited = not (max_calls is None and max_tokens is None and max_cost is None)
        self.at_once = False
        """Whether the first calls go all together, since nothing is known of any before all are
        back, as in a batch.
        """
        self.message: str | None = None
        self._spent = Usage() if spent is None else spent.copy()
        self._money = self._spent.cost or 0.0
        self._settled_calls = self._in_flight = 0
        self._tokens = self._cost = 0.0  # settled in this process, for the means
        self._most_tokens = self._most_cost = 0.0  # of one call
        self._waiting: deque[_Waiting] = deque()
        self._ledger: Ledger | None = None
        self._counted: set[str] = set()
        self._reserved_tokens = self._reserved_cost = 0.0
        self._lock = threading.Lock()

    @property
    def spent(self) -> Usage:
        """A copy of what has been used so far."""
        with self._lock:
            return self._spent.copy()

    @property
    def limited(self) -> bool:
        """Whether it has a limit, and does more than count."""
        return self._limited

    def attach(self, ledger: Ledger) -> None:
        """Count what earlier parts of the run spent, and keep in `ledger` what this one does."""
        with self._lock:
            self._ledger = ledger
            if ledger.name not in self._counted:
                self._counted.add(ledger.name)
                self._spent.add(ledger.before)
                self._money += ledger.before.cost or 0.0

    def try_reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation | None:
        """Claim one call before it is made; None when it has to wait for calls in flight.

        `expected` guesses its input tokens; `most` bounds input and output together where the
        caller can.

        Raises:
            BudgetExceeded: the call would go beyond a limit; says which, and how to go on.
            ConfigError: `max_cost` is set and the model has no price.
        """
        with self._lock:
            return (
                None
                if self._waiting and self.message is None
                else self._claim(model, expected, most)
            )

    async def reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation:
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
        self._check_room()
        if self._in_flight and not self._fits_beside(tokens, cost):
            return None
        self._in_flight += 1
        self._reserved_tokens += tokens
        self._reserved_cost += cost
        if self._ledger is None:
            return Reservation(tokens, cost)
        return Reservation(tokens, cost, self._ledger.begin(tokens, cost))

    def _bounds(self, model: str, expected: int, most: int | None) -> tuple[float, float]:
        """The most the next call is taken to use."""
        tokens = float(
            most if most is not None else max(expected + UNKNOWN_REPLY_TOKENS, self._most_tokens)
        )
        if self._settled_calls >= _TRUST_SEEN_FROM:
            seen = max(_MARGIN * self._most_tokens, float(expected))
            tokens = seen if most is None else min(tokens, seen)
        if self.max_cost is None or self.prices is None:
            return tokens, 0.0
        price = self.prices.find(model)
        if price is None:
            raise ConfigError(
                f"max_cost is set, but {self.prices.source} has no price for: "
                f"{model or '(no name)'}"
            )
        dearest = tokens * max(price.input, price.output) / 1e6
        return tokens, min(
            dearest, _MARGIN * self._most_cost
        ) if self._settled_calls >= _TRUST_SEEN_FROM else dearest

    def _check_room(self) -> None:
        """Refuse a call for which there is no room even when those in flight turn out to have used
        nothing more.
        """
        used, known = self._spent, max(1, self._settled_calls)
        over = ""
        if self.max_calls is not None and used.calls + 1 > self.max_calls:
            over = self._describe("max-calls", f"{self.max_calls:,} calls")
        elif (
            self.max_tokens is not None
            and used.total_tokens + max(self._tokens / known, 1) > self.max_tokens
        ):
            over = self._describe("max-tokens", f"{self.max_tokens:,} tokens")
        elif self.max_cost is not None and self._money > 0:
            # a run that is continued knows no mean yet: what is used up is used up
            if self._money + self._cost / known > self.max_cost * (
                1 + 1e-9
            ) or self._money >= self.max_cost * (1 - 1e-9):
                over = self._describe("max-cost", f"{self.max_cost:g}")
        if over:
            self.message = over
            raise BudgetExceeded(over)

    def _fits_beside(self, tokens: float, cost: float) -> bool:
        """Whether a call can be made beside those in flight, whatever they use within their
        reservations.
        """
        used = self._spent
        if self.max_calls is not None and used.calls + self._in_flight + 1 > self.max_calls:
            return False
        if self.max_tokens is None and self.max_cost is None:
            return True
        if self._in_flight > self._settled_calls and not self.at_once:
            return False
        if (
            self.max_tokens is not None
            and used.total_tokens + self._reserved_tokens + tokens > self.max_tokens
        ):
            return False
        return (
            self.max_cost is None
            or self._money + self._reserved_cost + cost <= self.max_cost * (1 + 1e-9)
        )

    def _describe(self, option: str, limit: str) -> str:
        used = self._spent
        cost = "" if used.cost is None else f", cost {used.cost:.4f}"
        earlier = " in all parts of this run" if self._counted else ""
        return (
            f"--{option} of {limit} reached (used{earlier}: calls {used.calls:,}, tokens "
            f"{used.total_tokens:,}{cost}; in flight: {self._in_flight:,}). Everything finished is "
            f"kept; run the same command with a higher --{option} to "
            "do the rest."
        )

    def settle(self, reservation: Reservation, usage: Usage, model: str = "") -> None:
        """Replace a reservation by what the call used; an empty `Usage` for one that was never
        paid.

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
            decided = self._serve_waiting() if self._waiting else ()
        for future, outcome in decided:
            if asyncio._get_running_loop() is (loop := future.get_loop()):
                _hand_over(future, outcome)
            else:
                # a loop that closed meanwhile took whoever waited with it
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(_hand_over, future, outcome)

    def _serve_waiting(self) -> list[tuple[asyncio.Future[Reservation], Reservation | Exception]]:
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
    if not future.done():
        future.set_exception(outcome) if isinstance(outcome, Exception) else future.set_result(
            outcome
        )


@dataclass(frozen=True)
class PredictionInterval:
    """An expected total and its 95 % prediction interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """What the samples not yet probed will take: calls, tokens, money (None without prices) and
    wall seconds.
    """

    samples: int
    calls: PredictionInterval
    input_tokens: PredictionInterval
    output_tokens: PredictionInterval
    cost: PredictionInterval | None
    seconds: PredictionInterval

    @classmethod
    def from_probe(
        cls,
        usages: Sequence[Usage],
        seconds: Sequence[float],
        n_total: int,
        *,
        concurrency: int = 1,
    ) -> Estimate:
        """Extrapolate from the usage and latency of each probed sample to the other n_total - n of
        them.

        The sum over m further samples has the 95 % interval m * mean ± t(n-1) * s * sqrt(m + m²/n),
        which covers the spread of those samples as well as the probe's own; without bound for a
        single probed sample. Wall time is the summed latency over `concurrency`, but not less than
        one call. Raises ConfigError: an empty probe, or one that does not fit to `seconds` or
        `n_total`.
        """
        n = len(usages)
        if n == 0 or n != len(seconds) or n_total < n or concurrency < 1:
            raise ConfigError(
                f"an estimate needs one usage and one latency per probed sample: got {n} usages, "
                f"{len(seconds)} latencies, {n_total} samples, concurrency {concurrency}"
            )
        rest = n_total - n
        costs = [usage.cost for usage in usages if usage.cost is not None or not usage.empty]
        priced = bool(costs) and None not in costs
        lanes = max(1, min(concurrency, rest))
        return cls(
            samples=rest,
            calls=_total([usage.calls for usage in usages], rest),
            input_tokens=_total([usage.input_tokens for usage in usages], rest),
            output_tokens=_total([usage.output_tokens for usage in usages], rest),
            cost=_total([usage.cost or 0.0 for usage in usages], rest) if priced else None,
            seconds=_total([value / lanes for value in seconds], rest),
        )


def _total(values: Sequence[float], rest: int) -> PredictionInterval:
    mean = statistics.fmean(values)
    if rest == 0:
        return PredictionInterval(0.0, 0.0, 0.0)
    total = mean * rest
    if len(values) < 2:
        return PredictionInterval(total, 0.0, math.inf)
    from scipy.stats import t  # only here: it takes longer to import than the library

    half = (
        float(t.ppf(0.975, len(values) - 1))
        * statistics.stdev(values)
        * math.sqrt(rest + rest * rest / len(values))
    )
    return PredictionInterval(total, max(0.0, total - half), total + half)
