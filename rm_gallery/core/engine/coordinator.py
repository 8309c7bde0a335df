"""The budget of a run that several processes judge for, kept by the process that began it, and the
facts that one of them learnt for all.

The processes that judge ask it (`ask`) and tell it (`reserve`, `settle`, `cancel`, `fact`) by
messages. Rates and replies are each process's own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from rm_gallery.core.engine.context import Claims, RunControl
from rm_gallery.core.model.budget import Budget, Reservation, Usage

# -- in a process that judges ----------------------------------------------------------------------

tell_driver: Callable[..., None] | None = None
"""Sends a message to the process that began the run, where this one judges for it."""
listeners: dict[str, Callable[..., Any]] = {}
"""What takes in a fact that a process learnt and that holds for all, by the fact's name."""


def share_fact(name: str, *values: Any) -> None:
    """Tell the process that began the run, where this one judges for it."""
    if tell_driver is not None:
        tell_driver("fact", name, *values)


class CoordinatedBudget(Budget):
    """The budget of a run that its coordinator keeps; where nothing is limited no call waits for an
    answer. Lives on one event loop.

    Args:
        send: sends a message.
        limited: whether a call has to wait until it is known that there is budget for it.
    """

    def __init__(self, send: Callable[..., None], limited: bool) -> None:
        super().__init__()
        self._send, self._asks = send, limited
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[None]] = {}

    @property
    def asking(self) -> bool:
        """Whether a call waits for an answer."""
        return bool(self._answers)

    def try_reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation | None:
        """Claim one call, where that needs no answer."""
        if self._asks:
            return None
        number = next(self._numbers)
        self._send("reserve", number, model, expected, most)
        return Reservation(0.0, 0.0, number)

    async def reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation:
        """Claim one call; raises what the budget's keeper raises."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send("ask", number, model, expected, most)
        try:
            await answer
        except asyncio.CancelledError:
            self._send("cancel", number)
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
        self._send("settle", reservation.entry, usage)


# -- in the process that began the run -------------------------------------------------------------


class Coordinator:
    """Answers what one of the processes that judge for a run asks. Lives on one event loop."""

    def __init__(self, control: RunControl) -> None:
        """Answer for the budget of `control`."""
        self.control = control
        self._claims: dict[int, Claims] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}

    def say(self, *message: Any) -> None:
        """Tell the process."""
        raise NotImplementedError

    def ask(self, number: int, *call: Any) -> None:
        """Take a question for budget; its answer comes at once or later."""
        asking = asyncio.get_running_loop().create_task(self._claim(number, *call))
        self._asking[number] = asking
        asking.add_done_callback(partial(self._answer_asked, number))

    def _answer_asked(self, number: int, asking: asyncio.Task[None]) -> None:
        del self._asking[number]
        if not asking.cancelled():
            self.say("answer", number, asking.exception())  # raised by whoever asked

    def reserve(self, number: int, *call: Any) -> None:
        """Claim a call that nobody waits with: nothing is limited."""
        with suppress(StopIteration):
            self._claim(number, *call).send(None)

    async def _claim(self, number: int, model: str, expected: int, most: int | None) -> None:
        claims = Claims(self.control, model, expected, most)
        try:
            await claims.reserve()
        except BaseException:
            claims.settle(Usage())
            raise
        self._claims[number] = claims

    def settle(self, number: int, used: Usage) -> None:
        """Hear what a call used."""
        if (claims := self._claims.pop(number, None)) is not None:
            claims.settle(used)
            self.control.count("calls", used.calls, used)

    def cancel(self, number: int) -> None:
        """Hear that nobody waits any more, perhaps while the answer was on its way."""
        if (task := self._asking.get(number)) is not None:
            task.cancel()
        self.settle(number, Usage())

    def fact(self, name: str, *values: Any) -> None:
        """Hear what the process learnt and what holds for all."""
        listeners[name](*values)

    def gone(self) -> None:
        """The process is gone: what it had claimed counts as used, and others may have what it
        asked for.
        """
        for task in self._asking.values():
            task.cancel()
        for number, claims in list(self._claims.items()):
            self.settle(number, Usage(calls=1, input_tokens=claims.expected))
