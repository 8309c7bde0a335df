"""No attempt and no wait goes beyond the deadline."""

from __future__ import annotations

import asyncio

import pytest

from rm_gallery.core.engine.calls.retry import RetryPolicy, run_attempts
from rm_gallery.core.utils.errors import DeadlineExceeded, ProviderError
from tests.engine.virtual_time import now, run_virtual

POLICY = RetryPolicy(seed=1)


def test_a_running_attempt_is_cut_and_cleaned_up() -> None:
    closed = False

    async def call() -> None:
        nonlocal closed
        try:
            await asyncio.sleep(3600)
        finally:
            closed = True

    async def main() -> float:
        start = now()
        with pytest.raises(DeadlineExceeded, match="deadline reached after 1 attempt: .*cut while running"):
            await run_attempts(call, POLICY, deadline=start + 2.0)
        return now() - start

    assert run_virtual(main()) == pytest.approx(2.0)
    assert closed


def test_a_retry_after_beyond_the_deadline_fails_at_once() -> None:
    async def call() -> None:
        raise ProviderError("busy here", kind="rate_limit", status=429, retry_after=30.0)

    async def main() -> float:
        start = now()
        with pytest.raises(
            DeadlineExceeded, match=r"after 1 attempt: .*wait 30 s, 5 s are left; .*rate_limit.*busy here"
        ):
            await run_attempts(call, POLICY, deadline=start + 5.0)
        return now() - start

    assert run_virtual(main()) == 0.0


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
        result = await run_attempts(call, RetryPolicy(seed=3), deadline=start + 1.0)
        return result, now() < start + 1.0

    assert run_virtual(main()) == ("up", True)


def test_no_attempt_starts_after_the_deadline() -> None:
    async def call() -> None:
        raise AssertionError("must not run")

    async def main() -> None:
        await run_attempts(call, POLICY, deadline=now() - 1.0)

    with pytest.raises(DeadlineExceeded, match="after 0 attempts"):
        run_virtual(main())


def test_a_cancelled_caller_sees_its_cancellation() -> None:
    async def call() -> None:
        await asyncio.sleep(3600)

    async def main() -> None:
        task = asyncio.ensure_future(run_attempts(call, POLICY, deadline=now() + 10.0))
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())


def test_the_task_can_go_on_after_its_deadline() -> None:
    """The cut must not linger as a cancellation of the task."""

    async def call() -> None:
        await asyncio.sleep(3600)

    async def main() -> str:
        with pytest.raises(DeadlineExceeded):
            await run_attempts(call, POLICY, deadline=now() + 1.0)
        await asyncio.sleep(1.0)
        task = asyncio.current_task()
        assert task is not None
        assert getattr(task, "cancelling", lambda: 0)() == 0
        return "went on"

    assert run_virtual(main()) == "went on"


def test_an_attempt_that_answers_the_cut_with_an_error_still_ends_as_deadline() -> None:
    async def call() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise ProviderError("connection dropped", kind="transient") from None

    async def main() -> None:
        await run_attempts(call, POLICY, deadline=now() + 1.0)

    with pytest.raises(DeadlineExceeded, match="connection dropped"):
        run_virtual(main())
