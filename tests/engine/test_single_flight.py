"""Equal calls in flight share one execution, and no caller can spoil it for the others."""

from __future__ import annotations

import asyncio

import pytest

from rm_gallery.core.engine.calls.retry import SingleFlight
from tests.engine.virtual_time import run_virtual


class Work:
    """Counts how often it was started, ended and cut."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.started = self.ended = self.cut = 0

    async def __call__(self) -> int:
        self.started += 1
        try:
            await asyncio.sleep(1.0)
        except asyncio.CancelledError:
            self.cut += 1
            raise
        self.ended += 1
        if self.error is not None:
            raise self.error
        return self.started


def test_equal_keys_share_different_ones_do_not_and_nothing_is_remembered() -> None:
    async def main() -> None:
        flights, work, other = SingleFlight[int](), Work(), Work()
        waiting = asyncio.gather(
            *(flights.run("a", work, f"the {n}th") for n in range(5)), flights.run("b", other)
        )
        await asyncio.sleep(0.5)
        assert [flights.leader(key) for key in ("a", "b", "c")] == ["the 0th", None, None]
        assert (await waiting, len(flights)) == ([1] * 6, 0)
        assert (work.started, other.started, await flights.run("a", work)) == (1, 1, 2)
        work.error = KeyError("no")
        results = await asyncio.gather(
            *(flights.run("a", work) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [KeyError] * 3, (
            "a failure reaches every waiter"
        )
        work.error = None
        assert await flights.run("a", work) == 4

    run_virtual(main())


@pytest.mark.parametrize("who", [{0}, {1}, {2}, {0, 1, 2}], ids=["first", "middle", "last", "all"])
def test_the_execution_ends_with_its_last_waiter_and_not_before(who: set[int]) -> None:
    async def main() -> None:
        flights, work = SingleFlight[int](), Work()
        tasks = [asyncio.ensure_future(flights.run("a", work)) for _ in range(3)]
        await asyncio.sleep(0.5)
        for number in who:
            tasks[number].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [
            number for number in range(3) if isinstance(results[number], asyncio.CancelledError)
        ] == sorted(who)
        assert all(results[number] == 1 for number in {0, 1, 2} - who)
        assert (work.ended, work.cut, len(flights)) == ((0, 1, 0) if len(who) == 3 else (1, 0, 0))

    run_virtual(main())


def test_a_newcomer_does_not_join_a_cancelled_execution() -> None:
    async def main() -> None:
        flights, work = SingleFlight[int](), Work()
        first = asyncio.ensure_future(flights.run("a", work))
        await asyncio.sleep(0.5)
        first.cancel()
        await asyncio.sleep(0)
        assert await flights.run("a", work) == 2 and first.cancelled()

    run_virtual(main())


def test_a_failure_nobody_waits_for_is_silent() -> None:
    """Without a waiter left the loop would otherwise complain about an exception never retrieved."""

    async def main() -> list[str]:
        complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(context["message"])
        )
        flights: SingleFlight[int] = SingleFlight()

        async def fail() -> int:
            try:
                await asyncio.sleep(1.0)
            except asyncio.CancelledError:
                raise KeyError("while being cut") from None
            return 0

        task = asyncio.ensure_future(flights.run("a", fail))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del task
        return complaints

    assert run_virtual(main()) == []


def test_one_object_serves_one_loop_after_the_other() -> None:
    flights, work = SingleFlight[int](), Work()
    assert run_virtual(flights.run("a", work)) == 1 and run_virtual(flights.run("a", work)) == 2
