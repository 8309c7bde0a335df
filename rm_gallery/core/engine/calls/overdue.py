"""Calls that an endpoint seems to have forgotten: far older than its calls take, while it answers others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

LEAST_SECONDS = 5.0
"""No call younger than this is overdue."""
FACTOR = 10.0
"""Nor one younger than so many times what 99 of 100 calls take."""
_KNOWN = 512
_ENOUGH = 8
"""So many answers have to be known before anything can be told from them."""
_LOOK_SECONDS = 0.25
_PAUSE, _SHARE = 1.0, 0.25
"""While nothing at all is answered one call after the other is asked again: so many seconds, and this share of their age, apart."""


class AskAgain(Protocol):
    """How a call is asked a second time."""

    def __call__(self, *, instead: bool) -> bool:
        """Ask beside the first attempt, or instead of it; False where the call was asked twice before."""


class Overdue:
    """Has calls asked a second time that are older than `max(5 s, 10 times the 99th percentile)` of this endpoint's.

    A call is asked again once one that was sent after it has been answered. Where none is, because all are stuck, the oldest
    is, in its own place if there is no room beside it, and after a while the next: the first answer then frees the others.
    Not thread-safe: one event loop.

    Args:
        clock: monotonic seconds.
        open: whether the endpoint takes calls; one that is down has its own way of looking.
        room: whether there is room for another call beside those in flight.
    """

    def __init__(self, clock: Callable[[], float], open: Callable[[], bool], room: Callable[[], bool]) -> None:
        self._clock, self._open, self._room = clock, open, room
        self._out: dict[object, tuple[float, AskAgain]] = {}
        """Calls in flight in the order they were sent, when that was, and how they are asked again."""
        self._took: deque[float] = deque(maxlen=_KNOWN)
        self._newest = self._next = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where the next look is arranged."""

    def sent(self, call: object, ask_again: AskAgain) -> float:
        """Note a call that is about to be sent; when that was."""
        now = self._clock()
        if self._loop is None or self._loop.is_closed():
            self._out.clear()
            self._look_in(LEAST_SECONDS)
        self._out[call] = now, ask_again
        return now

    def ended(self, call: object, *, answered: bool) -> None:
        """Note that a call ended, with an answer or without."""
        known = self._out.pop(call, None)
        if answered and known is not None:
            self._took.append(self._clock() - known[0])
            self._newest = max(self._newest, known[0])

    def _look(self) -> None:
        self._loop = None
        if not self._out:
            return
        now = self._clock()
        oldest = next(iter(self._out.values()))[0]
        if len(self._took) < _ENOUGH or not self._open():
            self._look_in(_PAUSE)
            return
        bound = max(LEAST_SECONDS, FACTOR * sorted(self._took)[int(0.99 * len(self._took))])
        if now - oldest < bound:
            self._look_in(max(0.01, oldest + bound - now))
            return
        if self._newest < oldest and self._next < oldest + bound:
            self._next = now  # nothing is answered any more, and nobody has looked why
        for sent, ask_again in list(self._out.values()):
            if now - sent < bound:
                break
            if sent < self._newest:
                ask_again(instead=False)
            elif now >= self._next and ask_again(instead=not self._room()):
                self._next = now + max(_PAUSE, _SHARE * (now - oldest))
        self._look_in(_LOOK_SECONDS)

    def _look_in(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(seconds, self._look)
