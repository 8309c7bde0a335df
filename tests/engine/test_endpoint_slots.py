"""Slots are handed out in order, and none is lost whatever happens to the callers."""

from __future__ import annotations

import asyncio
import random

import pytest

from rm_gallery.core.engine.calls.endpoint import Endpoint
from rm_gallery.core.utils.errors import ProviderError
from tests.engine.virtual_time import now, run_virtual


def limiter(ceiling: int, **more: float) -> Endpoint:
    return Endpoint(ceiling, clock=now, **more)  # type: ignore[arg-type]


def test_first_come_first_served() -> None:
    async def main() -> list[int]:
        bound, order = limiter(2), []

        async def call(number: int) -> None:
            async with bound:
                order.append(number)
                await asyncio.sleep(0.1)

        await asyncio.gather(*(call(number) for number in range(20)))
        return order

    assert run_virtual(main()) == list(range(20))


def test_a_newcomer_does_not_overtake_a_waiting_caller() -> None:
    async def main() -> None:
        bound, order = limiter(1), []

        async def call(number: int) -> None:
            async with bound:
                order.append(number)

        await bound.acquire()
        first = asyncio.ensure_future(call(1))
        await asyncio.sleep(0)
        bound.release()
        await call(2)
        await first
        assert order == [1, 2]

    run_virtual(main())


@pytest.mark.parametrize("turns", [0, 1], ids=["while waiting", "just after the slot was handed over"])
def test_a_cancelled_waiter_passes_the_slot_on(turns: int) -> None:
    async def main() -> None:
        bound = limiter(1)
        await bound.acquire()
        cancelled = asyncio.ensure_future(bound.acquire())
        patient = asyncio.ensure_future(bound.acquire())
        await asyncio.sleep(0)
        if turns:
            bound.release()
            cancelled.cancel()
        else:
            cancelled.cancel()
            bound.release()
        await asyncio.wait_for(patient, 1.0)
        assert cancelled.cancelled()
        bound.release()
        assert bound.in_flight == bound.waiting == 0

    run_virtual(main())


@pytest.mark.parametrize("seed", range(4))
def test_no_slot_is_lost_in_a_storm_of_cancels_and_failures(seed: int) -> None:
    async def main() -> None:
        rng, bound = random.Random(seed), limiter(7, start=3, max_outage=0.0)
        most = 0

        async def call() -> None:
            nonlocal most
            async with bound:
                most = max(most, bound.in_flight)
                await asyncio.sleep(rng.random())
                fate = rng.random()
                if fate < 0.1:
                    raise ProviderError("429", kind="rate_limit", status=429, retry_after=rng.choice([None, 0.2]))
                if fate < 0.2:
                    raise ProviderError("500", kind="transient", status=500)
                if fate < 0.25:
                    raise ProviderError("401", kind="fatal", status=401)
                if fate < 0.3:
                    raise KeyError("bug")

        tasks = [asyncio.ensure_future(call()) for _ in range(300)]
        for task in tasks:
            if rng.random() < 0.3:
                asyncio.get_running_loop().call_later(rng.random() * 20, task.cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(1.0)
        assert bound.in_flight == bound.waiting == 0
        assert 1 <= most <= 7
        limit = bound.limit
        async with asyncio.Lock():
            for _ in range(limit):
                await asyncio.wait_for(bound.acquire(), 5.0)
        assert bound.in_flight == limit

    run_virtual(main())


def test_a_pause_left_behind_by_one_loop_does_not_hang_the_next() -> None:
    clock = [0.0]
    bound = Endpoint(2, clock=lambda: clock[0])

    async def refused() -> None:
        await bound.acquire()
        bound.release("rate_limit", 5.0)

    async def call() -> None:
        waiting = asyncio.ensure_future(bound.acquire())
        await asyncio.sleep(0)
        assert not waiting.done()
        clock[0] = 5.0
        await asyncio.wait_for(waiting, 10.0)
        bound.release()

    run_virtual(refused())
    run_virtual(call())
