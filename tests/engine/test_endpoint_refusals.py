"""What a 429 does: one cut per burst, a pause for Retry-After, and no starving by random refusals."""

from __future__ import annotations

import asyncio
import random

import pytest

from rm_gallery.core.engine.calls.endpoint import Endpoint
from rm_gallery.core.engine.calls.retry import RetryPolicy, run_attempts
from rm_gallery.core.engine.context import Deadline
from rm_gallery.core.utils.errors import ProviderError
from tests.engine.virtual_time import now, run_virtual


def limiter(ceiling: int, **more: float) -> Endpoint:
    return Endpoint(ceiling, clock=now, **more)  # type: ignore[arg-type]


async def burst(bound: Endpoint, calls: int, retry_after: float | None = None) -> None:
    """That many calls in flight at once, all refused."""

    async def refused() -> None:
        async with bound:
            await asyncio.sleep(0.01)
            raise ProviderError("slow down", kind="rate_limit", status=429, retry_after=retry_after)

    await asyncio.gather(*(refused() for _ in range(calls)), return_exceptions=True)


def test_a_burst_cuts_once_and_the_next_one_again() -> None:
    async def main() -> list[int]:
        bound = limiter(100, start=100)
        limits = []
        for _ in range(3):
            await burst(bound, 60)
            limits.append(bound.limit)
            await asyncio.sleep(6.0)
        return limits

    assert run_virtual(main()) == [80, 64, 51]


def test_the_limit_never_falls_below_the_minimum() -> None:
    async def main() -> None:
        bound = limiter(3, minimum=2)
        for _ in range(10):
            await burst(bound, 3)
            await asyncio.sleep(6.0)
        assert bound.limit == 2

    run_virtual(main())


def test_retry_after_holds_back_new_starts() -> None:
    async def main() -> None:
        bound = limiter(100, start=100)
        await burst(bound, 10, retry_after=3.0)
        start = now()
        times = []

        async def call() -> None:
            async with bound:
                times.append(now() - start)

        await asyncio.gather(*(call() for _ in range(20)))
        assert times == [pytest.approx(3.0)] * 20
        assert bound.state == "open"

    run_virtual(main())


def test_a_longer_retry_after_extends_the_pause() -> None:
    async def main() -> None:
        bound = limiter(10)
        await bound.acquire()
        await bound.acquire()
        bound.release("rate_limit", 2.0)
        await asyncio.sleep(1.0)
        bound.release("rate_limit", 5.0)
        start = now()
        async with bound:
            assert now() - start == pytest.approx(5.0)

    run_virtual(main())


def test_a_refused_slot_does_not_turn_over_at_once() -> None:
    """A server that refuses in a millisecond would burn a thousand attempts a second through one slot."""

    async def main() -> int:
        bound = limiter(1)
        start = now()
        refusals = 0
        while now() - start < 10.0:
            with pytest.raises(ProviderError):
                async with bound:
                    refusals += 1
                    await asyncio.sleep(0.001)
                    raise ProviderError("slow down", kind="rate_limit", status=429)
        assert bound.in_flight == 0
        return refusals

    assert run_virtual(main()) <= 41


class Server:
    """Refuses beyond `capacity` calls at once, or at random."""

    def __init__(self, capacity: int, share: float, retry_after: float | None) -> None:
        self.capacity, self.share, self.retry_after = capacity, share, retry_after
        self.inside = self.calls = 0
        self.random = random.Random(0)

    async def call(self) -> None:
        self.calls += 1
        if self.inside >= self.capacity or self.random.random() < self.share:
            await asyncio.sleep(0.001)
            raise ProviderError("slow down", kind="rate_limit", status=429, retry_after=self.retry_after)
        self.inside += 1
        await asyncio.sleep(0.1)
        self.inside -= 1


@pytest.mark.parametrize(
    ("samples", "ceiling", "capacity", "share", "retry_after", "within"),
    [
        (1000, 256, 20, 0.0, None, 12.0),
        (1000, 256, 20, 0.0, 1.0, 20.0),
        (400, 64, 4, 0.0, None, 25.0),
        (1000, 256, 10**6, 0.2, None, 25.0),
        (1000, 256, 10**6, 0.2, 1.0, 30.0),
    ],
    ids=["20 at once", "20 at once, retry-after", "4 at once", "a fifth at random", "a fifth at random, retry-after"],
)
def test_every_call_gets_through_a_refusing_endpoint(
    samples: int, ceiling: int, capacity: int, share: float, retry_after: float | None, within: float
) -> None:
    """Virtual seconds; at full capacity the first takes 5, the third 10."""
    endpoint = Server(capacity, share, retry_after)
    failed = 0

    async def main() -> float:
        bound, policy, left = limiter(ceiling), RetryPolicy(seed=0), iter(range(samples))

        async def attempt() -> None:
            async with bound:
                await endpoint.call()

        async def worker() -> None:
            nonlocal failed
            for _ in left:
                try:
                    await run_attempts(attempt, policy, deadline=Deadline(120, clock=now), endpoint=bound)
                except ProviderError:
                    failed += 1

        start = now()
        await asyncio.gather(*(worker() for _ in range(ceiling)))
        assert bound.in_flight == 0
        return now() - start

    assert run_virtual(main()) <= within
    assert failed <= samples // 200
    assert endpoint.calls <= 2.5 * samples
