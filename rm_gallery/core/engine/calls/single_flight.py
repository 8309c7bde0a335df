"""Equal calls in flight share one execution."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Flight(Generic[T]):
    __slots__ = ("leader", "task", "waiters")

    def __init__(self, task: asyncio.Task[T], leader: Any) -> None:
        self.task = task
        self.leader = leader
        self.waiters: list[asyncio.Future[T]] = []


class SingleFlight(Generic[T]):
    """Runs at most one execution per key at a time; everybody who asks meanwhile gets its result or its error.

    Nothing is remembered afterwards. A caller that is cancelled leaves the others alone; the execution itself is
    cancelled once nobody waits for it any more. Not thread-safe: all calls must run on one event loop.
    """

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def leader(self, key: str) -> Any:
        """What the first caller of the execution in flight for `key` gave as `leader`; None when there is none."""
        flight = self._flights.get(key)
        return None if flight is None else flight.leader

    async def run(self, key: str, factory: Callable[[], Coroutine[Any, Any, T]], leader: Any = None) -> T:
        """The result of the execution in flight for `key`, or of `factory()` when there is none.

        The execution runs in a task of its own, in a copy of the first caller's context.
        """
        loop = asyncio.get_running_loop()
        flight = self._flights.get(key)
        if flight is None or flight.task.get_loop() is not loop:
            flight = self._start(key, loop.create_task(factory()), leader)
        waiter: asyncio.Future[T] = loop.create_future()
        flight.waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter in flight.waiters:
                flight.waiters.remove(waiter)
                if not flight.waiters:
                    await self._abandon(key, flight)
            raise

    def _start(self, key: str, task: asyncio.Task[T], leader: Any) -> _Flight[T]:
        flight = self._flights[key] = _Flight(task, leader)

        def land(task: asyncio.Task[T]) -> None:
            if self._flights.get(key) is flight:
                del self._flights[key]
            waiters, flight.waiters = flight.waiters, []
            if task.cancelled():
                for waiter in waiters:
                    waiter.cancel()
                return
            # Reading the exception also marks it as seen when nobody is left to receive it.
            error = task.exception()
            for waiter in waiters:
                if waiter.done():
                    continue
                if error is None:
                    waiter.set_result(task.result())
                else:
                    waiter.set_exception(error)

        task.add_done_callback(land)
        return flight

    async def _abandon(self, key: str, flight: _Flight[T]) -> None:
        """Cancel an execution nobody waits for, and return when its connection is closed."""
        if self._flights.get(key) is flight:
            # A newcomer must not join an execution that is being cancelled.
            del self._flights[key]
        if not flight.task.done():
            flight.task.cancel()
            await asyncio.wait({flight.task})
