"""Requests and tokens per minute are kept, in turns, and corrected by what was really used."""

from __future__ import annotations

import asyncio

import pytest

from rm_gallery.core.engine.calls.rate_limit import RateLimit
from rm_gallery.core.utils.errors import ConfigError
from tests.engine.virtual_time import now, run_virtual


async def next_start(rate: RateLimit, tokens: int = 0, calls: int = 1) -> float:
    """How long the last of these calls waits."""
    start = now()
    await asyncio.gather(*(rate.acquire(tokens) for _ in range(calls)))
    return round(now() - start, 6)


@pytest.mark.parametrize(("used", "wait"), [(10, 0.0), (100, 9.0), (0, 0.0), (30, 2.0)])
def test_reserved_tokens_are_corrected(used: int, wait: float) -> None:
    async def main() -> float:
        rate = RateLimit(tokens_per_minute=600, clock=now)
        await rate.acquire(10)
        rate.settle(10, used)
        await asyncio.sleep(1.0)
        return await next_start(rate, 10)

    assert run_virtual(main()) == wait


@pytest.mark.parametrize("cancelled", [False, True])
def test_tokens_given_back_wake_the_calls_already_waiting(cancelled: bool) -> None:
    """A turn that is handed over to a call in the instant that is cancelled is given back as well."""

    async def main() -> float:
        rate = RateLimit(tokens_per_minute=600, clock=now)
        await rate.acquire(1000)
        waiting = asyncio.ensure_future(rate.acquire(10))
        await asyncio.sleep(0)
        assert rate.waiting == 1
        rate.settle(1000, 0 if cancelled else 10)
        start = now()
        if cancelled:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await rate.acquire(10)
        else:
            await waiting
        return now() - start

    # of what was taken 990 come back, and ten more in a second; without them it were a hundred
    assert run_virtual(main()) == (0.0 if cancelled else 1.0)


def test_a_cancelled_wait_takes_nothing() -> None:
    async def main() -> list[float]:
        rate = RateLimit(60, clock=now)
        await rate.acquire()
        waiting = [asyncio.ensure_future(rate.acquire()) for _ in range(10)]
        await asyncio.sleep(0.5)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert rate.waiting == 0
        return [await next_start(rate), await next_start(rate)]

    assert run_virtual(main()) == [0.5, 1.0]


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_rates_that_are_no_rates_are_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="requests_per_minute must be a positive number"):
        RateLimit(rate)
    with pytest.raises(ConfigError, match="tokens_per_minute"):
        RateLimit(None, rate)


def test_what_is_asked_for_last_holds() -> None:
    async def main() -> list[float]:
        rate = RateLimit(6000, clock=now)
        rate.set(60)
        rate.set(None, None)
        slow = await next_start(rate, calls=2)
        rate.set(600)
        return [slow, await next_start(rate, calls=12)]

    assert run_virtual(main()) == [1.0, 1.2]


def test_a_quiet_time_saves_up_a_second_and_no_more() -> None:
    async def main() -> list[float]:
        rate, free = RateLimit(180, clock=now), RateLimit(clock=now)
        waits = [await next_start(rate, calls=3)]
        await asyncio.sleep(100.0)
        return [*waits, await next_start(rate, calls=4), await next_start(free, 10**9, calls=99)]

    assert run_virtual(main()) == [0.0, 0.333333, 0.0]


def test_runs_take_turns() -> None:
    async def main() -> list[str]:
        rate, order = RateLimit(60, clock=now), list[str]()

        async def call(run: str) -> None:
            await rate.acquire(0, run)
            order.append(run)

        await rate.acquire()
        await asyncio.gather(*(call("large") for _ in range(5)), *(call("small") for _ in range(2)))
        return order

    assert run_virtual(main()) == ["large", "small", "large", "small", "large", "large", "large"]
