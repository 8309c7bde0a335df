"""Which calls are asked a second time, and when; on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rm_gallery.core.engine.calls.limits import Overdue
from tests.engine.virtual_time import now, run_virtual

Asked = list[tuple[int, float, bool]]
"""Number of the call, seconds since the beginning, and whether that was instead of the first
attempt.
"""


def asked_again(
    play: Callable[[Callable[[int], None], Callable[[int], None]], object], room: bool = True
) -> Asked:
    """What is asked again in 40 seconds after ten answers of 0.1 s; `play` gets `send` and
    `answer`, and may be awaited.
    """

    async def main() -> Asked:
        began, found = now(), Asked()
        calls = Overdue(now, lambda: True, lambda: room)

        def send(number: int) -> None:
            def ask_again(instead: bool) -> bool:
                if number in (each for each, *_ in found):
                    return False
                found.append((number, round(now() - began, 1), instead))
                return True

            calls.sent(number, ask_again)

        def answer(number: int) -> None:
            calls.ended(number, answered=True)

        for number in range(-10, 0):
            send(number)
        await asyncio.sleep(0.1)
        for number in range(-10, 0):
            answer(number)
        began = now()
        playing = play(send, answer)
        if asyncio.iscoroutine(playing):
            await playing
        await asyncio.sleep(40.0)
        for number in range(20):
            calls.ended(number, answered=False)
        await asyncio.sleep(10.0)  # the last look finds nothing, and there is no other
        return found

    return run_virtual(main())


def test_what_is_old_is_asked_again_once_a_later_call_was_answered() -> None:
    async def play(send: Callable[[int], None], answer: Callable[[int], None]) -> None:
        send(0)
        await asyncio.sleep(4.0)
        send(2)
        await asyncio.sleep(0.1)
        answer(2)

    found = asked_again(play)
    assert [(number, instead) for number, _, instead in found] == [(0, False)] and 5.0 <= found[0][
        1
    ] <= 6.0


def test_where_nothing_is_answered_one_after_the_other_is_asked_in_growing_steps() -> None:
    def play(send: Callable[[int], None], answer: Callable[[int], None]) -> None:
        for number in range(20):
            send(number)

    found = asked_again(play, room=False)
    assert [number for number, *_ in found] == list(range(len(found))) and all(
        instead for *_, instead in found
    )
    steps = [later[1] - earlier[1] for earlier, later in zip(found, found[1:], strict=False)]
    assert (
        5.0 <= found[0][1] <= 6.0
        and min(steps) >= 1.0
        and steps[-1] > 4.0 * steps[0]
        and len(found) < 12
    )


def test_a_slow_endpoint_has_no_overdue_calls() -> None:
    async def play(send: Callable[[int], None], answer: Callable[[int], None]) -> None:
        for number in range(10):
            send(number)
        await asyncio.sleep(4.5)
        for number in range(10):
            answer(number)
        send(10)
        send(11)
        await asyncio.sleep(1.0)
        answer(11)

    assert asked_again(play) == []
