"""What has to be true once for all processes of a run (rates, budget, one call for equal
questions), kept by the process that began it.

The processes that judge send it messages: they ask (`permit`, `reserve`, `flight`) and tell
(`settle`, `used`, `landed`). A call of theirs counts as one of its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls.limits import RateLimit
from rm_gallery.core.model import storage
from rm_gallery.core.model.budget import Budget, Reservation
from rm_gallery.core.model.usage import Usage
from rm_gallery.core.utils.errors import BudgetExceeded

Rates = tuple[float | None, float | None]
"""Requests and tokens per minute."""


async def answered(
    others: CoordinatorClient,
    key: str,
    cache: storage.ReplyCache | None,
    restore: Callable[[bytes], tuple[Any, bytes] | None],
) -> tuple[Any, bytes] | None:
    """The reply to an equal question of another process, and its bytes; None where this one is to ask, and to say
    what came of it.

    A reply that cannot be read, or is gone from the cache again, is asked for anew.
    """
    while (reply := await others.lead(key)) is not None:
        stored = reply or (cache.get(key) if cache is not None else None)
        restored = None if stored is None else restore(stored)
        if restored is not None:
            return restored
    return None


# -- in a process that judges ----------------------------------------------------------------------


class CoordinatorClient:
    """The coordinator as a process that judges sees it: each question is a message, and so is the
    answer. Lives on one event loop.

    Args:
        send: sends a message.
        limited: whether a call has to wait until it is known that there is budget for it.
    """

    def __init__(self, send: Callable[[Any], None], limited: bool) -> None:
        self._send = send
        self.limited = limited
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any] | None, Callable[[Any], None]]] = {}

    def next_number(self) -> int:
        """A number for what comes in two messages."""
        return next(self._numbers)

    def tell(self, what: str, *args: Any) -> None:
        """Send what needs no answer."""
        self._send(("tell", what, args))

    async def ask(self, undo: Callable[[Any], None], what: str, *args: Any) -> Any:
        """Ask and wait for the answer; `undo` gives an answer back that came when nobody waited any
        more.
        """
        number = self.next_number()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future, undo
        self._send(("ask", number, what, args))
        try:
            return await future
        except asyncio.CancelledError:
            if number in self._waiting:
                self._waiting[number] = None, undo
                self._send(("tell", "cancel", (number,)))
            elif future.done() and not future.cancelled() and future.exception() is None:
                undo(future.result())
            raise

    def answer(self, number: int, error: BaseException | None, value: Any) -> None:
        """Take an answer."""
        future, undo = self._waiting.pop(number)
        if future is None or future.done():
            if error is None:
                undo(value)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    async def lead(self, key: str) -> bytes | None:
        """None for whoever is to ask, and to say `landed` at the end; else the reply another
        process got, b"" where that is in the cache.
        """
        reply: bytes | None = await self.ask(
            lambda reply: None if reply is not None else self.landed(key, None), "flight", key
        )
        return reply

    def landed(self, key: str, reply: bytes | None) -> None:
        """Say what came of a question: the reply, b"" for one that is in the cache, None where
        there is none.
        """
        self.tell("landed", key, reply)


client: CoordinatorClient | None = None
"""That of this process, where it judges for a run that another one coordinates."""


listeners: dict[str, Callable[..., Any]] = {}
"""What takes in a fact that a process learnt and that holds for all, by the fact's name."""


def share_fact(name: str, *values: Any) -> None:
    """Tell the process that began the run, where this one judges for it; on the library's loop."""
    if client is not None:
        client.tell("fact", name, *values)


class CoordinatedRate(RateLimit):
    """A rate that the coordinator keeps."""

    def __init__(self, there: CoordinatorClient, key: str) -> None:
        super().__init__()
        self._client, self._key = there, key
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
        await self._client.ask(
            lambda _: self.settle(tokens, 0), "permit", self._key, tokens, self._rates
        )

    def settle(self, reserved: int, used: int) -> None:
        """Correct what a call was expected to use."""
        if self._rates[1] is not None and reserved != used:
            self._client.tell("used", self._key, reserved, used)


class CoordinatedBudget(Budget):
    """The budget of a run that the coordinator keeps; where nothing is limited no call waits for
    an answer.
    """

    def __init__(self, there: CoordinatorClient) -> None:
        super().__init__()
        self._client = there

    def try_reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation | None:
        """Claim one call, where that needs no answer."""
        if self._client.limited:
            return None
        number = self._client.next_number()
        self._client.tell("reserve", number, model, expected, most)
        return Reservation(0.0, 0.0, number)

    async def reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation:
        """Claim one call; raises what the budget's keeper raises."""
        number = self._client.next_number()
        await self._client.ask(
            lambda _: self._give_back(number, model), "reserve", number, model, expected, most
        )
        return Reservation(0.0, 0.0, number)

    def _give_back(self, number: int, model: str) -> None:
        self._client.tell("settle", number, Usage(), model)

    def settle(self, reservation: Reservation, usage: Usage, model: str = "") -> None:
        """Say what a call used."""
        self._client.tell("settle", reservation.entry, usage, model)


def rate_of(key: str, rates: Rates) -> RateLimit:
    """The limit of an endpoint, kept here or where this process's run is coordinated; rates that
    are given are taken over.
    """
    rate = _rates.get((client, key))
    if rate is None:
        rate = RateLimit() if client is None else CoordinatedRate(client, key)
        _rates[client, key] = rate
    rate.set(*rates)
    return rate


_rates: dict[tuple[CoordinatorClient | None, str], RateLimit] = {}


@library_loop.after_fork
def forget() -> None:
    """Let go of all limits."""
    _rates.clear()


# -- in the process that began the run -------------------------------------------------------------


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


class Coordinator:
    """Answers what the processes that judge for one run ask. Lives on one event loop. KeptReplies are
    looked up and kept here, since the others may have other disks.

    Args:
        control: the run's.
        reply: (member, number, error, value) sends an answer.
    """

    def __init__(
        self,
        control: Any,
        reply: Callable[[Hashable, int, BaseException | None, Any], None],
    ) -> None:
        self._control, self._reply = control, reply
        self._cache = storage.shared()
        self._claims: dict[tuple[Hashable, int], Claims] = {}
        self._flights: dict[str, _SharedCall] = {}
        self._asking: dict[tuple[Hashable, int], asyncio.Task[None]] = {}

    def budgets(self) -> list[tuple[Any, Budget]]:
        """The budgets of the run and of those around it, with the run that each belongs to; each
        once.
        """
        budgets: list[tuple[Any, Budget]] = []
        run = self._control
        while run is not None:
            if run.budget is not None and not any(run.budget is budget for _, budget in budgets):
                budgets.append((run, run.budget))
            run = run.parent
        return budgets

    def ask(self, member: Hashable, number: int, what: str, args: tuple[Any, ...]) -> None:
        """Take a question; its answer comes at once or later."""
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

    def tell(self, member: Hashable, what: str, args: tuple[Any, ...]) -> None:
        """Take what needs no answer."""
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
        elif what == "fact":
            listeners[args[0]](*args[1:])
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
