"""What has to be true once for all processes of a run (rates, budget, one call for equal
questions), asked of one of them.

The process that began the run keeps the figures. What it knows of its members is a channel each:
they ask (`permit`, `reserve`, `flight`) and tell (`settle`, `used`, `landed`), and a call of theirs
goes the same way as one of its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls import cache as call_cache
from rm_gallery.core.engine.calls.budget import Budget, Reservation
from rm_gallery.core.engine.calls.limits import RateLimit
from rm_gallery.core.engine.calls.usage import Usage
from rm_gallery.core.utils.errors import BudgetExceeded

Rates = tuple[float | None, float | None]
"""Requests and tokens per minute."""


class Shared(Protocol):
    """What other processes share with this one: one call for equal questions, and rates."""

    async def lead(self, key: str) -> tuple[bytes, bool] | None:
        """None for whoever is to ask, and to say `landed` at the end; else another process has: its
        reply, or b"" where that is in the cache, and whether it had been kept before.
        """

    async def landed(self, key: str, reply: bytes | None) -> None:
        """Say what came of a question: the reply, b"" for one that is in the cache, None where
        there is none.
        """

    def rate(self, key: str) -> RateLimit:
        """The limit of an endpoint by its key."""


def shared() -> Shared | None:
    """What this process shares with others: a Redis server, or the run it is a member of; None for
    nothing.
    """
    if url := call_cache.server():
        from rm_gallery.core.engine.calls.redis import share

        return share(url)
    return elsewhere


async def answered(
    others: Shared,
    key: str,
    cache: call_cache.CallCache | None,
    restore: Callable[[bytes, bool], Any | None],
) -> Any | None:
    """The reply to an equal question of another process; None where this one is to ask, and to say
    what came of it.

    A reply that cannot be read, or is gone from the cache again, is asked for anew.
    """
    while (said := await others.lead(key)) is not None:
        reply, kept = said
        stored = reply or (cache.get(key) if cache is not None else None)
        found = None if stored is None else restore(stored, kept)
        if found is not None or kept:
            return found
    return None


# -- the side of a member --------------------------------------------------------------------------


class Elsewhere:
    """The coordinator as a member sees it: each question is a message, and so is the answer. Lives
    on one event loop.
    """

    def __init__(self, say: Callable[[Any], None], limited: bool) -> None:
        self._say = say
        self.limited = limited
        """Whether a call has to wait until it is known that there is budget for it."""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any] | None, Callable[[Any], None]]] = {}

    def next_number(self) -> int:
        """A number for what is told in two parts."""
        return next(self._numbers)

    def tell(self, what: str, *args: Any) -> None:
        """Send what needs no answer."""
        self._say(("tell", what, args))

    async def ask(self, undo: Callable[[Any], None], what: str, *args: Any) -> Any:
        """Ask and wait for the answer; `undo` gives an answer back that came when nobody waited any
        more.
        """
        number = self.next_number()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future, undo
        self._say(("ask", number, what, args))
        try:
            return await future
        except asyncio.CancelledError:
            if number in self._waiting:
                self._waiting[number] = None, undo
                self._say(("tell", "cancel", (number,)))
            elif future.done() and not future.cancelled() and future.exception() is None:
                undo(future.result())
            raise

    def said(self, number: int, error: BaseException | None, value: Any) -> None:
        """Take an answer."""
        future, undo = self._waiting.pop(number)
        if future is None or future.done():
            if error is None:
                undo(value)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    async def lead(self, key: str) -> tuple[bytes, bool] | None:
        """As `Shared` has it; what is counted as kept is counted where it is."""
        found: bytes | None = await self.ask(
            lambda found: None if found is not None else self.tell("landed", key, None),
            "flight",
            key,
        )
        return None if found is None else (found, False)

    async def landed(self, key: str, reply: bytes | None) -> None:
        """As `Shared` has it."""
        self.tell("landed", key, reply)

    def rate(self, key: str) -> RateLimit:
        """The limit of an endpoint that the other process keeps."""
        return RateElsewhere(self, key)


elsewhere: Elsewhere | None = None
"""Where this process is a member of a run that another one coordinates."""


hearers: dict[str, Callable[..., Any]] = {}
"""Who takes in what a member found out and what holds for all, by the name of what it is about."""


def found_out(about: str, *what: Any) -> None:
    """Tell the process that began the run, where this one is a member of it; on the library's loop."""
    if elsewhere is not None:
        elsewhere.tell("found out", about, *what)


class RateElsewhere(RateLimit):
    """A rate that another process keeps."""

    def __init__(self, there: Elsewhere, key: str) -> None:
        super().__init__()
        self._there, self._key = there, key
        self._rates: Rates = None, None

    def set(
        self, requests_per_minute: float | None = None, tokens_per_minute: float | None = None
    ) -> None:
        """Take over rates, and check them here."""
        super().set(requests_per_minute, tokens_per_minute)
        self._rates = requests_per_minute, tokens_per_minute

    def enter(self, tokens: int) -> bool:
        """Never: it has to be asked for."""
        return False

    async def wait(self, tokens: int, line: Hashable) -> None:
        """Wait for the turn of a call."""
        await self._there.ask(
            lambda _: self.settle(tokens, 0), "permit", self._key, tokens, self._rates
        )

    def settle(self, reserved: int, used: int) -> None:
        """Correct what a call was expected to use."""
        if self._rates[1] is not None and reserved != used:
            self._there.tell("used", self._key, reserved, used)


class BudgetElsewhere(Budget):
    """The budget of a run that another process keeps; where nothing is limited it is told, and not
    asked.
    """

    def __init__(self, there: Elsewhere) -> None:
        super().__init__()
        self._there = there

    def try_reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation | None:
        """Claim one call, where that needs no answer."""
        if self._there.limited:
            return None
        number = self._there.next_number()
        self._there.tell("reserve", number, model, expected, most)
        return Reservation(0.0, 0.0, number)

    async def reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation:
        """Claim one call; raises what the budget's keeper raises."""
        number = self._there.next_number()
        await self._there.ask(
            lambda _: self._give_back(number, model), "reserve", number, model, expected, most
        )
        return Reservation(0.0, 0.0, number)

    def _give_back(self, number: int, model: str) -> None:
        self._there.tell("settle", number, Usage(), model)

    def settle(self, reservation: Reservation, usage: Usage, model: str = "") -> None:
        """Say what a call used."""
        self._there.tell("settle", reservation.entry, usage, model)


def rate_of(key: str, rates: Rates) -> RateLimit:
    """The limit of an endpoint, kept here or where this process's run is coordinated; rates that
    are given are taken over.
    """
    others = shared()
    found = _rates.get((others, key))
    if found is None:
        found = _rates[others, key] = RateLimit() if others is None else others.rate(key)
    found.set(*rates)
    return found


_rates: dict[tuple[Shared | None, str], RateLimit] = {}


@library_loop.after_fork
def forget() -> None:
    """Let go of all limits."""
    _rates.clear()


# -- the side of the process that began the run ----------------------------------------------------


@dataclass(eq=False)
class _SharedCall:
    leader: Hashable
    waiting: deque[tuple[Hashable, int]] = field(default_factory=deque)


class Claims:
    """What a run and those around it have of budgets, claimed for one call."""

    def __init__(self, budgets: Sequence[tuple[Any, Budget]]) -> None:
        self._budgets = budgets
        self._made: list[tuple[Budget, Reservation]] = []
        self.expected = 0

    async def reserve(self, model: str, expected: int, most: int | None) -> None:
        """Claim one call of each budget, from the inside out; BudgetExceeded stops the run whose
        budget it is.
        """
        self.expected = expected
        for run, budget in self._budgets:
            try:
                claim = budget.try_reserve(model, expected, most) or await budget.reserve(
                    model, expected, most
                )
            except BudgetExceeded as error:
                run.stop_spending(budget, str(error))
                self.settle(Usage(), model)
                raise
            except asyncio.CancelledError:
                self.settle(Usage(), model)
                raise
            self._made.append((budget, claim))

    def settle(self, used: Usage, model: str) -> None:
        """Replace what was claimed by what was used; `used` gets its cost from the innermost
        budget.
        """
        for place, (budget, claim) in enumerate(self._made):
            budget.settle(claim, used.copy() if place else used, model)
        self._made.clear()


class Desk:
    """Answers what the members of one run ask. Lives on one event loop.

    Args:
        control: the run's.
        reply: (member, number, error, value) sends an answer.
        keeps: whether replies are looked up and kept here, for members that have no cache of the
            same disk.
    """

    def __init__(
        self,
        control: Any,
        reply: Callable[[Hashable, int, BaseException | None, Any], None],
        keeps: bool = False,
    ) -> None:
        self._control, self._reply = control, reply
        self._cache = call_cache.shared() if keeps else None
        self._claims: dict[tuple[Hashable, int], Claims] = {}
        self._flights: dict[str, _SharedCall] = {}
        self._asking: dict[tuple[Hashable, int], asyncio.Task[None]] = {}

    def budgets(self) -> list[tuple[Any, Budget]]:
        """The budgets of the run and of those around it, with the run that each belongs to; each
        once.
        """
        found: list[tuple[Any, Budget]] = []
        each = self._control
        while each is not None:
            if each.budget is not None and not any(each.budget is budget for _, budget in found):
                found.append((each, each.budget))
            each = each.parent
        return found

    def asked(self, member: Hashable, number: int, what: str, args: tuple[Any, ...]) -> None:
        """Hear a question; its answer comes at once or later."""
        if what == "flight":
            self._flight(member, number, *args)
            return
        answer = self._permit(member, *args) if what == "permit" else self._reserve(member, *args)
        task = asyncio.get_running_loop().create_task(answer)
        self._asking[member, number] = task

        def over(task: asyncio.Task[None]) -> None:
            if self._asking.pop((member, number), None) is not None:
                error = asyncio.CancelledError() if task.cancelled() else task.exception()
                self._reply(member, number, error, None)

        task.add_done_callback(over)

    async def _permit(self, member: Hashable, key: str, tokens: int, rates: Rates) -> None:
        await rate_of(key, rates).acquire(tokens, (member, id(self)))

    async def _reserve(
        self, member: Hashable, number: int, model: str, expected: int, most: int | None
    ) -> None:
        claims = Claims(self.budgets())
        await claims.reserve(model, expected, most)
        self._claims[member, number] = claims

    def _flight(self, member: Hashable, number: int, key: str) -> None:
        flight = self._flights.get(key)
        if (
            flight is None
            and self._cache is not None
            and (kept := self._cache.get(key)) is not None
        ):
            self._control.count("cached")
            self._reply(member, number, None, kept)
        elif flight is None:
            self._flights[key] = _SharedCall(member)
            self._reply(member, number, None, None)
        else:
            flight.waiting.append((member, number))

    def told(self, member: Hashable, what: str, args: tuple[Any, ...]) -> None:
        """Hear what needs no answer."""
        if what == "settle":
            number, used, model = args
            claims = self._claims.pop((member, number), None)
            if claims is not None:
                self._settle(claims, used, model)
        elif what == "reserve":  # nothing is limited: nobody waits
            number, model, expected, most = args
            claims = self._claims[member, number] = Claims(self.budgets())
            with suppress(StopIteration):
                claims.reserve(model, expected, most).send(None)
        elif what == "used":
            key, reserved, used = args
            rate_of(key, (None, None)).settle(reserved, used)
        elif what == "landed":
            self._landed(*args)
        elif what == "found out":
            hearers[args[0]](*args[1:])
        elif what == "cancel":
            self._cancel(member, *args)

    def _settle(self, claims: Claims, used: Usage, model: str) -> None:
        claims.settle(used, model)
        self._control.count("calls", used.calls, used)

    def _landed(self, key: str, reply: bytes | None) -> None:
        flight = self._flights.pop(key, None)
        if self._cache is not None and reply:
            self._cache.put(key, reply)
        if flight is None:
            return
        if reply is None:  # its failure is its own: the next one asks
            if flight.waiting:
                flight.leader, number = flight.waiting.popleft()
                self._flights[key] = flight
                self._reply(flight.leader, number, None, None)
            return
        for member, number in flight.waiting:
            self._reply(member, number, None, reply)

    def _cancel(self, member: Hashable, number: int) -> None:
        task = self._asking.get((member, number))
        if task is not None:
            task.cancel()
            return
        for flight in self._flights.values():
            if (member, number) in flight.waiting:
                flight.waiting.remove((member, number))
                self._reply(member, number, asyncio.CancelledError(), None)
                return

    def gone(self, member: Hashable) -> None:
        """A member is gone: what it had claimed counts as used, and what it was asking others may
        ask.
        """
        for of, number in [each for each in self._asking if each[0] == member]:
            task = self._asking.pop((of, number))
            task.cancel()
        for of, number in [each for each in self._claims if each[0] == member]:
            claims = self._claims.pop((of, number))
            self._settle(claims, Usage(calls=1, input_tokens=claims.expected), "")
        for key, flight in list(self._flights.items()):
            flight.waiting = deque(each for each in flight.waiting if each[0] != member)
            if flight.leader == member:
                self._landed(key, None)
