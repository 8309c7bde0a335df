"""Which waits are drawn, what the deadline allows, and when a run stops trying; the cases are in
the golden files.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from rm_gallery import ProviderError
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.model.client import with_retries
from rm_gallery.core.model.limits import Endpoint, RetryPolicy
from tests.engine.virtual_time import now, run_virtual

DOWN = ProviderError("down", kind="transient", status=502)


def waits(policy: RetryPolicy, error: ProviderError = DOWN) -> list[tuple[int, Exception, float]]:
    """The retries of a call that never succeeds."""
    told = list[tuple[int, Exception, float]]()

    async def call() -> None:
        raise error

    with pytest.raises(ProviderError, match="gave up after 6 attempts") as caught:
        run_virtual(
            with_retries(
                call, policy, Endpoint(clock=now), on_retry=lambda *said: told.append(said)
            )
        )
    assert caught.value.__cause__ is error and caught.value.status == error.status
    return told


@pytest.mark.parametrize("seed", range(2))
def test_jitter_is_full_seeded_and_never_below_retry_after(seed: int) -> None:
    told = waits(RetryPolicy(rng=random.Random(seed)))
    assert told == waits(RetryPolicy(rng=random.Random(seed)))
    assert [(made, error) for made, error, _ in told] == [(made, DOWN) for made in range(1, 6)]
    assert all(0 <= wait <= 0.5 * 2**i for i, (_, _, wait) in enumerate(told))
    later = ProviderError("later", kind="rate_limit", status=429, retry_after=3.0)
    asked = waits(RetryPolicy(rng=random.Random(seed)), later)
    assert all(3.0 <= wait <= 3.5 for _, _, wait in asked)


def test_the_clock_stands_still_while_any_call_waits_and_for_the_sample_around_as_well() -> None:
    async def main() -> list[float]:
        outer = Deadline(10.0, clock=now)
        deadline = Deadline(2.0, outer, clock=now)
        with deadline.paused(), deadline.paused():
            await asyncio.sleep(30.0)
        await asyncio.sleep(0.5)
        return [deadline.left, outer.left]

    assert run_virtual(main()) == pytest.approx([1.5, 9.5])


def test_a_clock_follows_the_calls_of_another_sample_that_it_waits_for() -> None:
    async def main() -> list[float]:
        leader, follower = Deadline(9.0, clock=now), Deadline(9.0, clock=now)
        with leader.paused(), follower.following(leader):
            await asyncio.sleep(5.0)
        found = [leader.left, follower.left]
        with leader.paused():
            await asyncio.sleep(2.0)
        with follower.following(leader):
            await asyncio.sleep(1.0)
            with leader.paused():
                await asyncio.sleep(3.0)
        return [*found, leader.left, follower.left]

    assert run_virtual(main()) == pytest.approx([9.0, 9.0, 8.0, 6.0])
