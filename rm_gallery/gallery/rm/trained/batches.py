"""Inputs from any number of samples in flight are scored together, in batches of about equal length.

Every job of every run awaits its own score; one thread per model takes what is waiting and runs the model. So a model in
this process is used alike from all doors, and no door needs a batch path of its own.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import current_deadline
from rm_gallery.core.utils.errors import ScoreError

IDLE_SECONDS = 0.2
LINGER_SECONDS = 0.001
"""How long a batch that is not full waits for others that are just being sent."""
Q = TypeVar("Q")


class Encoded(Protocol):
    """An input as the model takes it."""

    def __len__(self) -> int:
        """Its length in tokens."""


E = TypeVar("E", bound=Encoded)


class Scorer(Protocol[Q, E]):
    """A model in this process; used by one thread at a time."""

    def encode(self, requests: list[Q]) -> list[E | Exception]:
        """Each request as the model takes it, or why it cannot be scored."""

    def forward(self, batch: list[E]) -> list[list[float]]:
        """The numbers of each input of a batch."""


class _Item(Generic[Q, E]):
    """One request that waits for its numbers."""

    __slots__ = ("encoded", "future", "gone", "loop", "number", "paused", "request")

    def __init__(self, request: Q, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.loop = loop
        self.future: asyncio.Future[list[float]] = loop.create_future()
        self.gone = False
        self.number = 0
        self.encoded: E
        deadline = current_deadline.get()
        # the time of a sample does not run while it waits for its turn
        self.paused: AbstractContextManager[None] | None = None if deadline is None else deadline.paused()
        if self.paused is not None:
            self.paused.__enter__()

    def resume(self) -> None:
        """Let the sample's clock go on; on the loop only."""
        paused, self.paused = self.paused, None
        if paused is not None:
            paused.__exit__(None, None, None)


_Result = tuple[_Item[Q, E], list[float] | BaseException]


class Batches(Generic[Q, E]):
    """The waiting inputs of one model, and the thread that scores them.

    The input that has waited longest is always in the next batch, with those nearest to it in length, so that padding is
    short and nothing waits for ever.

    Args:
        open_model: makes the model, on that thread, when it is first needed. What it raises, every waiting input gets.
        size: inputs in a batch, at most.
        tokens: length of a batch's longest input times the number of its inputs, at most; one input may be longer.
    """

    def __init__(self, open_model: Callable[[], Scorer[Q, E]], size: int, tokens: int) -> None:
        self._open = open_model
        self._model: Scorer[Q, E] | None = None
        self._size, self._tokens = size, tokens
        self._ready = threading.Condition()
        self._new: list[_Item[Q, E]] = []
        self._running = False
        self._count = 0

    async def score(self, request: Q) -> list[float]:
        """The model's numbers for a request, each finite; on the library loop only.

        Raises what `encode` says of the request, and ScoreError when a number is NaN or infinite.
        """
        item: _Item[Q, E] = _Item(request, asyncio.get_running_loop())
        try:
            with self._ready:
                self._new.append(item)
                start, self._running = not self._running, True
                self._ready.notify()
            if start:
                library_loop.start_thread(self._work)
            return await item.future
        finally:
            item.gone = True
            item.resume()

    # -- on the thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        pool: list[_Item[Q, E]] = []
        try:
            while True:
                new = self._arrived(wait=not pool)
                if new is None:
                    return
                if new:
                    pool += self._encoded(new)
                    while len(pool) < self._size and (more := self._arrived(LINGER_SECONDS)):
                        pool += self._encoded(more)
                    pool.sort(key=_length)
                if pool:
                    self._run(self._next_batch(pool))
        except BaseException as error:  # noqa: BLE001 - whoever waits is told, whatever it is
            with self._ready:
                left, self._new, self._running = pool + self._new, [], False
            self._tell([(item, error) for item in left])

    def _arrived(self, linger: float = 0.0, *, wait: bool = False) -> list[_Item[Q, E]] | None:
        """What was sent since; waits for the first where there is nothing else to do, and is None when nothing comes."""
        with self._ready:
            if not self._new and (wait or linger):
                self._ready.wait(linger or IDLE_SECONDS)
                if not self._new and wait:
                    self._running = False
                    return None
            new, self._new = self._new, []
            return new

    def _encoded(self, new: list[_Item[Q, E]]) -> list[_Item[Q, E]]:
        kept: list[_Item[Q, E]] = []
        refused: list[_Result[Q, E]] = []
        try:
            if self._model is None:
                self._model = self._open()
            encoded = list(zip(new, self._model.encode([item.request for item in new]), strict=True))
        except BaseException as error:  # noqa: BLE001 - each of them is told
            self._tell([(item, error) for item in new])
            return []
        for item, found in encoded:
            if isinstance(found, Exception):
                refused.append((item, found))
                continue
            item.encoded = found
            item.number = self._count = self._count + 1
            kept.append(item)
        self._tell(refused)
        return kept

    def _next_batch(self, pool: list[_Item[Q, E]]) -> list[_Item[Q, E]]:
        """Take the oldest input and its neighbours in length out of the pool, which is sorted by length."""
        low = min(range(len(pool)), key=lambda at: pool[at].number)
        high = low + 1
        while high - low < self._size:
            longest = _length(pool[high]) if high < len(pool) else math.inf
            grown = high - low + 1
            if longest * grown <= self._tokens:
                high += 1
            elif low > 0 and _length(pool[high - 1]) * grown <= self._tokens:
                low -= 1
            else:
                break
        batch = pool[low:high]
        del pool[low:high]
        return [item for item in batch if not item.gone]

    def _run(self, batch: list[_Item[Q, E]]) -> None:
        if not batch:
            return None
        assert self._model is not None
        self._post(batch[0].loop, partial(_resume, batch))
        try:
            numbers = self._model.forward([item.encoded for item in batch])
            found = [(item, _checked(own)) for item, own in zip(batch, numbers, strict=True)]
        except BaseException as error:  # noqa: BLE001 - one input that breaks the model must not cost the others, nor a full memory
            if len(batch) == 1:
                return self._tell([(batch[0], error)])
            half = len(batch) // 2
            self._run(batch[:half])
            return self._run(batch[half:])
        return self._tell(found)

    def _tell(self, results: list[_Result[Q, E]]) -> None:
        """Hand results to whoever waits for them: one wake-up of the loop for all."""
        by_loop: dict[Any, list[_Result[Q, E]]] = {}
        for result in results:
            by_loop.setdefault(result[0].loop, []).append(result)
        for loop, own in by_loop.items():
            self._post(loop, partial(_settle, own))

    @staticmethod
    def _post(loop: asyncio.AbstractEventLoop, callback: Callable[[], Any]) -> None:
        with suppress(RuntimeError):  # that loop is closed, so nobody waits
            library_loop.post(loop, callback)


def _length(item: _Item[Any, Any]) -> int:
    return len(item.encoded)


def _resume(items: list[_Item[Any, Any]]) -> None:
    for item in items:
        item.resume()


def _checked(numbers: list[float]) -> list[float] | BaseException:
    odd = next((number for number in numbers if not math.isfinite(number)), None)
    return numbers if odd is None else ScoreError(f"The model gave {odd}, which is no score.")


def _settle(results: list[_Result[Any, Any]]) -> None:
    for item, result in results:
        if item.future.done():
            continue
        if not isinstance(result, BaseException):
            item.future.set_result(result)
        elif isinstance(result, Exception) and not isinstance(result, StopIteration):
            item.future.set_exception(result)
        else:  # no future takes the one, and others would end the loop
            item.future.set_exception(RuntimeError(f"{type(result).__name__} in the model: {result}"))
