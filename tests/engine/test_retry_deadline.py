"""No attempt and no wait of its own goes beyond the deadline; waiting for somebody else's limits does not count."""

from __future__ import annotations

import asyncio

import pytest

from rm_gallery.core.engine.calls.retry import RetryPolicy, run_attempts
from rm_gallery.core.engine.context import Deadline
from rm_gallery.core.utils.errors import DeadlineExceeded, ProviderError
from tests.engine.virtual_time import now, run_virtual

POLICY = RetryPolicy(seed=1)


def test_jitter_is_drawn_within_the_time_left() -> None:
    made = 0

    async def call() -> str:
        nonlocal made
        made += 1
        if made < 5:
            raise ProviderError("down", kind="transient")
        return "up"

    async def main() -> tuple[str, bool]:
        start = now()
        # Full waits of 0.5 + 1 + 2 + 4 s would not fit.
        result = await run_attempts(call, RetryPolicy(seed=3), deadline=Deadline(1.0, clock=now))
        return result, now() < start + 1.0

    assert run_virtual(main()) == ("up", True)


def test_no_attempt_starts_after_the_deadline() -> None:
    async def call() -> None:
        raise AssertionError("must not run")

    async def main() -> None:
        await run_attempts(call, POLICY, deadline=Deadline(-1.0, clock=now))

    with pytest.raises(DeadlineExceeded, match="after 0 attempts"):
        run_virtual(main())


def test_the_message_names_attempts_and_last_cause() -> None:
    async def call() -> None:
        await asyncio.sleep(0.6)
        raise ProviderError("busy here", kind="transient", status=500)

    async def main() -> None:
        await run_attempts(call, POLICY, deadline=Deadline(1.0, clock=now))

    with pytest.raises(DeadlineExceeded, match=r"after 2 attempts: .*\(transient\): busy here"):
        run_virtual(main())


def test_e1_a_pause_the_server_asks_for_is_capped_and_not_the_samples_time() -> None:
    made = 0

    async def call() -> str:
        nonlocal made
        made += 1
        if made == 1:
            raise ProviderError("later", kind="rate_limit", status=429, retry_after=3600.0)
        return "up"

    async def main() -> float:
        start = now()
        assert await run_attempts(call, POLICY, deadline=Deadline(5.0, clock=now)) == "up"
        return now() - start

    assert run_virtual(main()) == pytest.approx(60.0, abs=0.6)


def test_e4_the_clock_stands_still_while_any_call_waits_and_for_the_sample_around_as_well() -> None:
    async def main() -> list[float]:
        outer = Deadline(10.0, clock=now)
        deadline = Deadline(2.0, outer, clock=now)
        with deadline.paused(), deadline.paused():
            await asyncio.sleep(30.0)
        await asyncio.sleep(0.5)
        return [deadline.left, outer.left]

    assert run_virtual(main()) == pytest.approx([1.5, 9.5])
