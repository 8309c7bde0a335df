"""The budget of a run that several processes judge for, kept by the process that began it, and the
facts that one of them learnt for all.

The processes that judge ask it (`reserve`) and tell it (`settle`, `cancel`, `fact`) by messages. Rates
and replies are each process's own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

from rm_gallery.core.engine.context import Claims, RunControl
from rm_gallery.core.model.budget import Budget, Reservation, Usage

# -- in a process that judges ----------------------------------------------------------------------

tell_driver: Callable[[tuple[Any, ...]], None] | None = None
"""Sends a message to the process that began the run, where this one judges for it."""
listeners: dict[str, Callable[..., Any]] = {}
"""What takes in a fact that a process learnt and that holds for all, by the fact's name."""


def share_fact(name: str, *values: Any) -> None:
    """Tell the process that began the run, where this one judges for it; on the library's loop."""
    if tell_driver is not None:
        tell_driver(("tell", "fact", (name, *values)))


class CoordinatedBudget(Budget):
    """The budget of a run that its coordinator keeps; where nothing is limited no call waits for an
    answer. Lives on one event loop.

    Args:
        send: sends a message.
        limited: whether a call has to wait until it is known that there is budget for it.
    """

    def __init__(self, send: Callable[[tuple[Any, ...]], None], limited: bool) -> None:
        super().__init__()
        self._send, self._asks = send, limited
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[None]] = {}

    def try_reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation | None:
        """Claim one call, where that needs no answer."""
        if self._asks:
            return None
        number = next(self._numbers)
        self._send(("tell", "reserve", (number, model, expected, most)))
        return Reservation(0.0, 0.0, number)

    async def reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation:
        """Claim one call; raises what the budget's keeper raises."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send(("ask", number, model, expected, most))
        try:
            await answer
        except asyncio.CancelledError:
            self._send(("tell", "cancel", (number,)))
            raise
        finally:
            del self._answers[number]
        return Reservation(0.0, 0.0, number)

    def answer(self, number: int, error: BaseException | None) -> None:
        """Take an answer; one that nobody waits for any more was cancelled there as well."""
        future = self._answers.get(number)
        if future is not None and not future.done():
            future.set_result(None) if error is None else future.set_exception(error)

    def settle(self, reservation: Reservation, usage: Usage, model: str = "") -> None:
        """Say what a call used."""
        self._send(("tell", "settle", (reservation.entry, usage)))


# -- in the process that began the run -------------------------------------------------------------


class Coordinator:
    """Answers what the processes that judge for one run ask. Lives on one event loop.

    Args:
        control: the run's.
        reply: (member, number, error) sends an answer.
    """

    def __init__(
        self, control: RunControl, reply: Callable[[Hashable, int, BaseException | None], None]
    ) -> None:
        self._control, self._reply = control, reply
        self._claims: dict[tuple[Hashable, int], Claims] = {}
        self._asking: dict[tuple[Hashable, int], asyncio.Task[None]] = {}

    def ask(self, member: Hashable, number: int, *call: Any) -> None:
        """Take a question for budget; its answer comes at once or later."""
        task = asyncio.get_running_loop().create_task(self._reserve(member, number, *call))
        self._asking[member, number] = task

        def over(task: asyncio.Task[None]) -> None:
            if self._asking.pop((member, number), None) is not None and not task.cancelled():
                self._reply(member, number, task.exception())

        task.add_done_callback(over)

    async def _reserve(
        self, member: Hashable, number: int, model: str, expected: int, most: int | None
    ) -> None:
        claims = Claims(self._control, model, expected, most)
        try:
            await claims.reserve()
        except BaseException:
            claims.settle(Usage())
            raise
        self._claims[member, number] = claims

    def tell(self, member: Hashable, what: str, args: tuple[Any, ...]) -> None:
        """Take what needs no answer."""
        if what == "fact":
            listeners[args[0]](*args[1:])
        elif what == "reserve":  # nothing is limited: nobody waits
            with suppress(StopIteration):
                self._reserve(member, *args).send(None)
        elif what == "settle":
            self._settle(member, *args)
        elif (task := self._asking.get((member, args[0]))) is not None:
            task.cancel()
        else:  # cancelled while the answer was on its way
            self._settle(member, args[0], Usage())

    def _settle(self, member: Hashable, number: int, used: Usage | None) -> None:
        claims = self._claims.pop((member, number), None)
        if claims is not None:
            used = Usage(calls=1, input_tokens=claims.expected) if used is None else used
            claims.settle(used)
            self._control.count("calls", used.calls, used)

    def gone(self, member: Hashable) -> None:
        """A member is gone: what it had claimed counts as used."""
        for key in [key for key in self._asking if key[0] == member]:
            self._asking.pop(key).cancel()
        for _, number in [key for key in self._claims if key[0] == member]:
            self._settle(member, number, None)
