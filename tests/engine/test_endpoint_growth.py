"""The limit grows while the endpoint copes, and only as far and as fast as it should."""

from __future__ import annotations

import asyncio

import pytest

from rm_gallery.core.engine.calls.endpoint import Endpoint
from rm_gallery.core.utils.errors import ConfigError, ProviderError
from tests.engine.virtual_time import VirtualLoop, now, run_virtual


def limiter(ceiling: int, **more: float) -> Endpoint:
    return Endpoint(ceiling, clock=now, **more)  # type: ignore[arg-type]


async def serve(bound: Endpoint, calls: int, callers: int, latency: float = 0.1) -> int:
    """Make calls that all succeed; the most that were ever in flight."""
    most = 0
    left = calls

    async def caller() -> None:
        nonlocal most, left
        while left > 0:
            left -= 1
            async with bound:
                most = max(most, bound.in_flight)
                await asyncio.sleep(latency)

    await asyncio.gather(*(caller() for _ in range(callers)))
    assert bound.in_flight == bound.waiting == 0
    return most


@pytest.mark.parametrize(
    ("ceiling", "callers", "calls", "limit"),
    [
        (8, 100, 500, 8),
        (256, 256, 3000, 256),
        (1024, 1024, 8000, 1024),
        (1024, 64, 3000, 80),
        (1024, 10, 1000, 64),
    ],
    ids=["start below 64", "to 256", "to 1,024", "no growth beyond 125 % of what is used", "idle slots never grow"],
)
def test_where_growth_ends(ceiling: int, callers: int, calls: int, limit: int) -> None:
    bound = limiter(ceiling)
    most = run_virtual(serve(bound, calls, callers))
    assert most <= min(ceiling, callers)
    assert abs(bound.limit - limit) <= 1


def test_slow_start_doubles_per_round_trip() -> None:
    """64 → 1,024 takes four round trips, so that 10,000 calls lose less than half a second to it."""

    async def main() -> float:
        start = now()
        await serve(limiter(1024), 10_000, 1024)
        return now() - start

    assert run_virtual(main()) <= 10_000 / 1024 * 0.1 + 0.45


def test_failures_other_than_429_pause_growth_but_do_not_shrink() -> None:
    async def main() -> None:
        bound = limiter(100, start=10)

        async def fail() -> None:
            async with bound:
                await asyncio.sleep(0.1)
                raise ProviderError("oops", kind="transient", status=500)

        await asyncio.gather(*(fail() for _ in range(10)), return_exceptions=True)
        await serve(bound, 60, 10)
        assert bound.limit == 10, "growth waits a second after a 5xx"
        await asyncio.sleep(1.0)
        await serve(bound, 60, 10)
        assert bound.limit > 10

    run_virtual(main())


def test_the_highest_open_lease_is_the_ceiling() -> None:
    async def main() -> None:
        bound = limiter(8)
        assert (bound.ceiling, bound.limit) == (8, 8)
        with bound.lease(32):
            assert (bound.ceiling, bound.limit) == (32, 32)
            with bound.lease(256):
                assert (bound.ceiling, bound.limit) == (256, 64)
                assert await serve(bound, 2000, 256) == 256
            assert (bound.ceiling, bound.limit) == (32, 32)
            assert await serve(bound, 200, 100) == 32
        assert (bound.ceiling, bound.limit) == (8, 8)

    run_virtual(main())


def test_waiting_callers_start_when_a_lease_raises_the_ceiling() -> None:
    async def main() -> None:
        bound = limiter(1)
        await bound.acquire()
        waiting = asyncio.ensure_future(bound.acquire())
        await asyncio.sleep(0)
        assert bound.waiting == 1
        with bound.lease(2):
            await asyncio.wait_for(waiting, 1)
            bound.release()
        bound.release()
        assert bound.in_flight == 0

    run_virtual(main())


@pytest.mark.parametrize("fields", [{"ceiling": 0}, {"ceiling": 4, "start": 0}, {"ceiling": 4, "minimum": 0}])
def test_impossible_limits_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        limiter(**fields)


def test_a_limiter_may_be_made_outside_a_loop() -> None:
    bound = Endpoint(4)
    loop = VirtualLoop()
    loop.run_until_complete(serve(bound, 10, 10))
    loop.close()
