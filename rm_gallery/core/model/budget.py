"""What calls used and cost, the file that keeps it while a run goes, and a stop before a run costs
more than it may.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery.core.utils.errors import BudgetExceeded, ConfigError, reason_of
from rm_gallery.core.utils.file import AppendedFile, read_yaml
from rm_gallery.core.utils.log import logger

SPEND_LOG = "spend.log"


@dataclass
class Usage:
    """What one or many calls used.

    `cached_tokens` (input the provider had in its own cache) are part of `input_tokens`,
    `reasoning_tokens` part of `output_tokens`. `calls`: every attempt that reached somebody, refused
    ones included; the further requests by which one learns what an endpoint takes count with it.
    `cost` is None where nothing is known about it, which one call without a price makes true of the
    whole sum.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    calls: int = 0
    cost: float | None = None

    @property
    def total_tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def empty(self) -> bool:
        """Whether nothing was paid for: neither calls nor tokens nor cost."""
        return not (self.calls or self.total_tokens or self.cost)

    def add(self, other: Usage, cost: float | None = None) -> None:
        """Count another usage in, at `cost` where it has none of its own."""
        cost = cost if other.cost is None else other.cost
        if self.cost is None and self.empty:
            self.cost = cost  # nothing paid for yet, so nothing unknown either
        elif not other.empty:
            self.cost = None if self.cost is None or cost is None else self.cost + cost
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def copy(self) -> Usage:
        """An independent copy."""
        return replace(self)


_COUNTS = ("calls", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
"""What a usage counts besides its cost, in the order of a ledger's line."""


class Ledger:
    """An append-only file with a line before each call and one after it.

    `+ ID TOKENS COST` is what a call may use, `- ID CALLS INPUT OUTPUT CACHED REASONING COST` what
    it used (`?` for a cost nobody knows). A call that was begun and never ended, because the
    process was killed, counts with what it might use. A torn last line counts for nothing: its call
    was not made yet, or counts as begun. One process writes the file at a time: the run folder's
    lock sees to that.
    """

    def __init__(self, folder: Path | str, others: Iterable[Path] = ()) -> None:
        self.path = Path(folder) / SPEND_LOG
        self.name = str(self.path.absolute())
        self.spent, self._last = Usage(), 0
        """By the earlier parts of the run, by `others` of the same run, and by this part so far."""
        self.paid = 0
        """Calls among them that used something."""
        for each in (self.path.parent, *others):
            self._count_log(each / SPEND_LOG)
        self._lock = threading.RLock()
        self._pending = ""
        self._file: AppendedFile | None = None  # a run that makes no call leaves none
        self._is_open = True

    def begin(self, tokens: float, cost: float) -> int:
        """Note a call that is about to be made; the note survives a killed process when this
        returns.
        """
        with self._lock:
            self._last += 1
            # what ended meanwhile goes with it: should that be lost, the line of its begin stands
            # for it
            self._pending += f"+ {self._last} {tokens:.0f} {cost:.9g}\n"
            self.flush()
            return self._last

    def end(self, entry: int, usage: Usage) -> None:
        """Note what a call used; written with the next begin or `flush`."""
        counts = " ".join(f"{getattr(usage, name):d}" for name in _COUNTS)
        cost = "?" if usage.cost is None else f"{usage.cost:.9g}"
        with self._lock:
            self._add(usage)
            self._pending += f"- {entry} {counts} {cost}\n"

    def flush(self) -> None:
        """Write what is pending."""
        with self._lock:
            if self._pending and self._is_open:
                try:
                    self._file = self._file or AppendedFile(self.path, 0o600)
                    self._file.write(self._pending.encode())
                except OSError as error:
                    self._is_open = False
                    logger.warning(
                        "what the run spends is no longer kept in {}: {}", self.path, error
                    )
            self._pending = ""

    def close(self) -> None:
        """Write what is pending and close the file."""
        with self._lock:
            self.flush()
            self._is_open = False
            if self._file is not None:
                self._file.close()

    def _count_log(self, path: Path) -> None:
        begun = dict[int, Usage]()
        with suppress(FileNotFoundError), path.open("rb") as file:
            for line in file:
                with suppress(ValueError):  # an earlier release ended a torn line and went on
                    match line.split() if line.endswith(b"\n") else ():
                        case [b"+", entry, tokens, cost]:
                            self._last = max(self._last, int(entry))
                            begun[int(entry)] = Usage(
                                int(tokens), calls=1, cost=float(cost) or None
                            )
                        case [b"-", entry, *counts, cost] if int(entry) in begun:
                            used = dict(zip(_COUNTS, map(int, counts), strict=True))
                            money = None if cost == b"?" else float(cost)
                            self._add(Usage(**used, cost=money))
                            del begun[int(entry)]
        for usage in begun.values():
            self._add(usage)

    def _add(self, usage: Usage) -> None:
        self.spent.add(usage)
        self.paid += usage.total_tokens > 0


_MAX_BYTES = 1_048_576
_EXAMPLE = (
    "write one line per model: `gpt-4o-mini: {input: 0.15, output: 0.60, cached_input: 0.075}`"
)


class Price(NamedTuple):
    """Money per million tokens; `cached_input` is that of input the provider had cached."""

    input: float
    output: float
    cached_input: float


@dataclass
class PriceTable:
    """Prices by model name or glob pattern; an exact name wins, then the first matching pattern in
    the file.
    """

    prices: Mapping[str, Price]
    source: str = "the price table"

    @classmethod
    def from_yaml(cls, path: Path | str) -> PriceTable:
        """Read a YAML mapping of model (or pattern) to `input`, `output` and, optionally,
        `cached_input`.

        Raises ConfigError: the file cannot be read, or an entry is not right; names file, model and
        field.
        """
        import yaml

        source = f"price file {path}"
        try:
            with Path(path).open("rb") as file:
                data, is_larger = file.read(_MAX_BYTES), file.read(1)
            content = None if is_larger else read_yaml(data.decode("utf-8-sig"), source)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{source} cannot be read: {reason_of(error)}") from None
        except ConfigError:
            raise
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"{source} is not valid YAML: {str(error)[:500]}") from None
        if is_larger:
            problem = f"is larger than {_MAX_BYTES:,} bytes"
        elif not isinstance(content, dict) or not content:
            problem = "holds no mapping of models to prices"
        elif None in content:
            problem = "holds a model name that is no text"
        else:
            return cls(
                {
                    str(model): _price(f"{source}, model {model}", entry)
                    for model, entry in content.items()
                },
                source,
            )
        raise ConfigError(f"{source} {problem}; {_EXAMPLE}")

    def find(self, model: str) -> Price | None:
        """The price of a model, or None."""
        matching = (price for name, price in self.prices.items() if fnmatchcase(model, name))
        return self.prices.get(model) or next(matching, None)

    def cost(self, model: str, usage: Usage) -> float | None:
        """Money for a usage of a model; None when the model has no price."""
        price = self.find(model)
        if price is None:
            return None
        cached = min(usage.cached_tokens, usage.input_tokens)
        fresh = (usage.input_tokens - cached) * price.input
        return (fresh + cached * price.cached_input + usage.output_tokens * price.output) / 1e6


def _price(where: str, entry: Any) -> Price:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: found {_show(entry)} instead of fields; {_EXAMPLE}")
    unknown = ", ".join(sorted(map(str, entry.keys() - set(Price._fields))))
    if unknown:
        raise ConfigError(
            f"{where}: unknown field {unknown:.200}; known are input, output, cached_input"
        )
    entry.setdefault("cached_input", entry.get("input"))
    for name in Price._fields:
        value: Any = entry.get(name)
        if type(value) not in (int, float) or not 0 <= value <= sys.float_info.max:
            raise ConfigError(
                f"{where}, field {name}: found {_show(value)}, needs a number >= 0 (per million "
                "tokens)"
            )
    return Price(**entry)


def _show(value: Any) -> str:
    """A value for a message: a few lines of references in YAML can stand for gigabytes."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value[:80]) + "…" * (len(value) > 80)
    return repr(value) if isinstance(value, int | float) else f"a {type(value).__name__}"


# From so many settled calls on the dearest of them, and a quarter more, bounds the next call better
# than the caller can.
_TRUST_SEEN_FROM = 10
_MARGIN = 1.25
_UNKNOWN_REPLY_TOKENS = 512  # guess for a reply whose length nobody limited
_ROUNDING = 1e-9  # share of a limit within which a sum of costs equals it


class Reservation(NamedTuple):
    """What one call in flight may use; handed back to `Budget.settle`."""

    tokens: float
    cost: float
    entry: int = 0
    """Its number in the ledger."""


class Budget:
    """Counts calls, tokens and cost of a run and refuses the call that would exceed a limit;
    thread-safe.

    Every attempt that was sent to somebody is a call, also one that fails. Calls in flight count
    with what they may use, so that a thousand of them cannot overshoot together: one that does not
    fit beside them waits for them. What a call may use is the limit given with it, later the most
    tokens seen and a quarter more, at the dearest price of its model; with a limit on tokens or
    cost the first calls go 1, 2, 4, … at a time to find out. Spent may exceed the limit by what calls in flight used beyond that.
    A call for which there is no room, were it like those of the run so far, hits the limit; from
    then on every call is refused: the run stops in one clean cut.

    Args:
        max_calls: most calls, as `Usage.calls` counts them. Replies from the cache are free.
        max_tokens: most tokens, input and output together.
        max_cost: most money, in the currency of the prices.
        prices: needed with `max_cost`, otherwise used to count the cost.
        spent: what earlier parts of the same run used already, with the number of their calls.

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
        self.limits = {"calls": max_calls, "tokens": max_tokens, "cost": max_cost}
        for kind, limit in self.limits.items():
            if not (limit is None or (isinstance(limit, int | float) and 0 < limit < math.inf)):
                raise ConfigError(f"max_{kind} must be a positive number, got {limit!r:.80}")
        if max_cost and prices is None:
            raise ConfigError(
                "max_cost needs prices: give a YAML file with input and output per million tokens "
                "per model"
            )
        self.prices = prices
        self.limited = any(self.limits.values())
        """Whether it has a limit, and does more than count."""
        self.at_once = not (max_tokens or max_cost)
        """Whether the first calls go all together: nothing is to be found out, or nothing is known
        of any before all are back, as in a batch.
        """
        self.message: str | None = None
        """Which limit was hit, and how to go on."""
        # what a usage without a price counts: it must not hide what is known where that is limited
        self._unpriced = max_cost and 0.0
        self._spent = Usage()
        self._spent.add(spent or Usage(), self._unpriced)
        self._in_flight = self._settled = 0
        self._paid_before = self._spent.calls
        """Calls of earlier parts that used something: a mean over failed ones would be too small."""
        self._held_tokens = self._held_cost = 0.0  # by calls in flight
        self._most_tokens = 0  # of one call
        self._waiting = deque[asyncio.Future[None]]()
        self._ledger: Ledger | None = None
        self._counted: set[str] = set()
        self._lock = threading.RLock()  # a wait that is collected as garbage ends anywhere

    @property
    def spent(self) -> Usage:
        """A copy of what has been used so far."""
        with self._lock:
            return self._spent.copy()

    def attach(self, ledger: Ledger) -> None:
        """Count what earlier parts of the run spent, and keep in `ledger` what this one does."""
        with self._lock:
            self._ledger = ledger
            if ledger.name not in self._counted:
                self._counted.add(ledger.name)
                self._spent.add(ledger.spent, self._unpriced)
                self._paid_before += ledger.paid

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
            return None if self._waiting else self._claim(model, expected, most)

    async def reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation:
        """As `try_reserve`, and wait where that says so; a cancelled wait claims nothing."""
        turn = None
        try:
            while True:
                with self._lock:
                    may_claim = turn is not None or not self._waiting
                    if may_claim and (claim := self._claim(model, expected, most)) is not None:
                        return claim
                    # one that does not fit yet keeps its place: smaller ones would starve it
                    keep = self._waiting.append if turn is None else self._waiting.appendleft
                    keep(turn := asyncio.Future[None]())
                await turn
        finally:
            self._wake()  # the next one may fit as well, or goes in the place of this one

    def settle(self, reservation: Reservation, usage: Usage, model: str = "") -> None:
        """Replace a reservation by what the call used; an empty `Usage` for one that was never
        paid.

        A usage without a cost gets it from the prices.
        """
        if usage.cost is None and self.prices:
            usage.cost = self.prices.cost(model, usage)
        with self._lock:
            self._in_flight -= 1
            self._held_tokens -= reservation.tokens
            self._held_cost -= reservation.cost
            self._settled += usage.total_tokens > 0  # a failure tells nothing
            self._most_tokens = max(self._most_tokens, usage.total_tokens)
            self._spent.add(usage, self._unpriced)
            if self._ledger:
                self._ledger.end(reservation.entry, usage)
        self._wake()

    def _wake(self) -> None:
        """Let one of those that wait try again, on its own loop."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                # a loop that closed meanwhile took whoever waited with it
                with suppress(RuntimeError):
                    if not turn.cancelled():
                        turn.get_loop().call_soon_threadsafe(_go_on, turn)
                        return

    def _claim(self, model: str, expected: int, most: int | None) -> Reservation | None:
        seen = _MARGIN * self._most_tokens
        tokens = max(expected + _UNKNOWN_REPLY_TOKENS, seen) if most is None else most
        if self._settled >= _TRUST_SEEN_FROM:
            tokens = min(tokens, max(seen, expected))
        cost = 0.0
        if self.prices and self.limits["cost"]:
            price = self.prices.find(model)
            if price is None:
                raise ConfigError(
                    f"max_cost is set, but {self.prices.source} has no price for: "
                    f"{model or '(no name)'}"
                )
            cost = tokens * max(price) / 1e6
        if self.limited and not self._fits(tokens, cost) and self._in_flight:
            return None
        self._in_flight += 1
        self._held_tokens += tokens
        self._held_cost += cost
        entry = self._ledger.begin(tokens, cost) if self._ledger else 0
        return Reservation(tokens, cost, entry)

    def _fits(self, tokens: float, cost: float) -> bool:
        """Whether there is room for a call beside those in flight; BudgetExceeded where there is none
        without them either.
        """
        used, paid = self._spent, self._paid_before + self._settled
        fits = self.at_once or self._in_flight <= self._settled
        for kind, spent, held, more, calls in (
            ("calls", used.calls, self._in_flight, 1, used.calls),
            ("tokens", used.total_tokens, self._held_tokens, tokens, paid),
            ("cost", used.cost or 0.0, self._held_cost, cost, paid),
        ):
            highest = (self.limits[kind] or math.inf) * (1 + _ROUNDING)
            # no room for a call like those before, even when those in flight use nothing more
            if spent + spent / max(1, calls) > highest:
                self.message = self.message or self._describe(kind)
            fits = fits and spent + held + more <= highest
        if self.message:
            raise BudgetExceeded(self.message)
        return fits

    def _describe(self, kind: str) -> str:
        used, unit = self._spent, "" if kind == "cost" else f" {kind}"
        cost = "" if used.cost is None else f", cost {used.cost:.4f}"
        earlier = " in all parts of this run" if self._counted else ""
        return (
            f"budget.max_{kind} of {self.limits[kind]:,.10g}{unit} reached (used{earlier}: calls "
            f"{used.calls:,}, tokens {used.total_tokens:,}{cost}; in flight: {self._in_flight:,}). "
            f"Everything finished is kept; run the same command with a higher "
            f"--config budget.max_{kind}= to do the rest."
        )


def _go_on(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
