"""How many calls an endpoint gets, in which order, and what an outage costs; single steps are in
the golden files.
"""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from rm_gallery import ProviderError
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.model.client import with_retries
from rm_gallery.core.model.limits import End, Endpoint, RateLimit, RetryPolicy, Visit
from rm_gallery.core.utils.errors import DeadlineExceeded, ProviderErrorKind
from tests.engine.virtual_time import now, run_virtual

LATENCY = 0.5


def limiter(ceiling: int) -> Endpoint:
    return Endpoint(ceiling, clock=now)


async def entered(bound: Endpoint, run: str = "", began: float | None = None) -> Visit:
    turn = Visit(bound)
    if began is not None:
        turn.began = began
    if not bound.enter(turn):
        await bound.wait(turn, run)
    return turn


def test_first_come_first_served_and_runs_take_turns() -> None:
    async def main() -> list[str]:
        bound, order = limiter(2), list[str]()

        async def call(run: str, number: int) -> None:
            turn = await entered(bound, run)
            order.append(f"{run}{number}")
            await asyncio.sleep(0.1)
            bound.leave(turn)

        first = [asyncio.ensure_future(call("a", number)) for number in range(5)]
        await asyncio.sleep(0)
        await asyncio.gather(*first, *(call("b", number) for number in range(2)))
        return order

    assert run_virtual(main()) == ["a0", "a1", "a2", "b0", "a3", "b1", "a4"]


def test_a_waiter_that_is_cancelled_just_after_it_was_handed_the_slot_passes_it_on() -> None:
    async def main() -> None:
        bound = limiter(1)
        turn = await entered(bound)
        cancelled, patient = (asyncio.ensure_future(entered(bound)) for _ in range(2))
        await asyncio.sleep(0)
        bound.leave(turn)
        cancelled.cancel()
        bound.leave(await asyncio.wait_for(patient, 1.0))
        assert cancelled.cancelled() and bound.in_flight == bound.waiting == 0

    run_virtual(main())


def test_a_call_that_is_cancelled_just_as_its_rate_allows_it_leaves_its_turn_to_the_next() -> None:
    async def main() -> float:
        rate, loop = RateLimit(60.0, clock=now), asyncio.get_running_loop()
        assert rate.enter(1)
        cancelled, patient = (asyncio.ensure_future(rate.wait(1, "a")) for _ in range(2))
        await asyncio.sleep(0)
        loop.call_later(1.0, cancelled.cancel)
        began = now()
        await patient
        assert cancelled.cancelled()
        return now() - began

    assert run_virtual(main()) == pytest.approx(1.0, abs=0.01)


def test_a_budget_s_turn_is_no_time_of_the_sample_where_an_endpoint_asks_for_patience() -> None:
    """Whoever began to wait for it then was on the clock until the end, and named the endpoint."""

    async def main() -> tuple[float, str]:
        bound, clock = limiter(8), Deadline(5.0, clock=now)
        bound.leave(await entered(bound), "transient", retry_after=1.0)
        assert bound.state == "limited"
        with Visit(bound, {clock}).waiting():
            await asyncio.sleep(10.0)
            return clock.left, clock.by

    assert run_virtual(main()) == (5.0, "caller")


def test_an_endpoint_that_takes_far_longer_than_it_did_is_slow_until_it_is_quick_again() -> None:
    async def main() -> list[str]:
        bound, said = limiter(4), list[str]()
        for seconds in (0.1, 4.0, 0.1):
            for _ in range(16):
                turn = await entered(bound)
                turn.note_sent()
                await asyncio.sleep(seconds)
                bound.leave(turn)
            said.append(bound.trouble)
        return said

    assert run_virtual(main()) == ["", "The endpoint is slow", ""]


def test_a_call_that_is_cancelled_as_it_is_let_go_to_look_leaves_the_look_to_the_next() -> None:
    async def main() -> None:
        bound = limiter(4)
        ends: tuple[End, ...] = ("ok", "unreachable")
        for end in ends:
            bound.leave(await entered(bound), end)
        cancelled, patient = (asyncio.ensure_future(entered(bound, began=0.0)) for _ in range(2))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.5, cancelled.cancel)  # when the first look is due
        turn = await asyncio.wait_for(patient, 5.0)
        assert cancelled.cancelled()
        bound.leave(turn)
        assert (bound.state, bound.in_flight) == ("open", 0)

    run_virtual(main())


FAILURES: dict[str, tuple[ProviderErrorKind, int | None, float | None]] = {
    "refused": ("unreachable", None, None), "503": ("transient", 503, None), "500": ("transient", 500, None),
    "dropped": ("transient", None, None), "429": ("rate_limit", 429, None), "429 beyond eight": ("rate_limit", 429, None),
    "429 retry-after": ("rate_limit", 429, 1.0),
}  # fmt: skip


class Server:
    """Serves in half a second, and fails in one of several ways between `begin` and `end`."""

    def __init__(self, how: str, begin: float, end: float) -> None:
        self.how, self.begin, self.end = how, begin, end
        self.served_at: list[float] = []
        self.asked_while_gone = self.flying = 0

    async def call(self) -> None:
        start = now()
        if self.begin <= start < self.end and not (
            self.how.endswith("beyond eight") and self.flying < 8
        ):
            self.asked_while_gone += 1
            await self.fail(start)
        self.flying += 1
        await asyncio.sleep(LATENCY)
        self.flying -= 1
        if self.begin <= now() < self.end and not self.how.startswith("429"):
            raise ProviderError("dropped", kind="transient")
        self.served_at.append(now())

    async def fail(self, start: float) -> None:
        await asyncio.sleep(0.001)
        if self.how == "hangs":
            await asyncio.sleep(self.end - start)
            return
        kind, status, retry_after = FAILURES[self.how]
        raise ProviderError(self.how, kind=kind, status=status, retry_after=retry_after)


def play(
    server: Server, calls: int, workers: int, max_outage: float = 300.0, deadline: float = math.inf
) -> tuple[float, list[Exception], float]:
    """Seconds it took, the errors of lost calls, and calls served per second within 5 s of the end
    of the trouble.
    """
    lost: list[Exception] = []

    async def main() -> float:
        server.begin += now()
        server.end += now()
        endpoint = Endpoint(workers, clock=now, name="http://judge/v1")
        policy, left, start = RetryPolicy(rng=random.Random(1)), iter(range(calls)), now()

        async def worker() -> None:
            for _ in left:
                clock = Deadline(deadline, clock=now)
                visit = Visit(endpoint, {clock}, patience=max_outage)

                async def attempt(turn: Visit = visit) -> None:
                    if not endpoint.enter(turn):
                        await endpoint.wait(turn)
                    turn.note_sent()
                    try:
                        await server.call()
                    except ProviderError as error:
                        assert error.kind != "fatal"
                        endpoint.leave(turn, error.kind, error.retry_after, why=str(error))
                        raise
                    endpoint.leave(turn)

                try:
                    await with_retries(attempt, policy, endpoint, patience=max_outage)
                    if clock.left <= 0:
                        lost.append(DeadlineExceeded("late"))
                except ProviderError as error:
                    lost.append(error)

        await asyncio.gather(*(worker() for _ in range(workers)))
        assert endpoint.in_flight == endpoint.waiting == 0
        return now() - start

    seconds = run_virtual(main())
    window = [at for at in server.served_at if server.end + 4.0 <= at < server.end + 5.0]
    return seconds, lost, float(len(window))


@pytest.mark.parametrize(("workers", "length"), [(1, 10.0), (8, 60.0), (32, 1.0), (32, 10.0)])
@pytest.mark.parametrize("how", ["refused", "503", "500", "dropped", "hangs"])
def test_an_outage_costs_its_length_and_three_seconds_and_no_call(
    how: str, length: float, workers: int
) -> None:
    if workers == 1 and how in ("500", "dropped"):
        how = "503"  # what may be the one call's own fault uses up its attempts
    calls = 20 * workers
    server = Server(how, 3.0, 3.0 + length)
    seconds, lost, _ = play(server, calls, workers)
    assert lost == [] and seconds <= 20 * LATENCY + length + 3.0 + LATENCY
    assert server.asked_while_gone <= workers + 4 + length


@pytest.mark.parametrize("how", ["429", "429 beyond eight", "429 retry-after"])
def test_a_storm_of_429_loses_nothing_and_the_rate_is_back_in_five_seconds(how: str) -> None:
    before = 64 / LATENCY
    server = Server(how, 10.0, 20.0)
    _, lost, rate = play(server, 64 * 80, 64)
    assert lost == [] and rate >= 0.9 * before
    assert server.asked_while_gone <= 64 * 80


class Gateway(Server):
    """Answers in 20 ms, and refuses a steady share however many calls there are."""

    def __init__(self, share: float, seed: int) -> None:
        super().__init__("429", 0.0, 0.0)
        self.share, self.chance = share, random.Random(seed)

    async def call(self) -> None:
        await asyncio.sleep(0.02)
        if self.chance.random() < self.share:
            raise ProviderError("429", kind="rate_limit", status=429)


@pytest.mark.long("many calls")
def test_a_steady_share_of_refusals_does_not_hold_a_run_of_short_calls_at_few_in_flight() -> None:
    """A raise that was taken back by chance was not tried again for ten seconds."""
    played = [play(Gateway(0.2, seed), 3_000, 256) for seed in range(4)]
    assert [lost for _, lost, _ in played] == [[]] * 4
    assert sum(seconds for seconds, _, _ in played) <= 22.0


@pytest.mark.parametrize(("workers", "length"), [(1, 10.0), (8, 60.0), (32, 10.0)])
def test_an_endpoint_that_stops_answering_spends_its_own_time_and_no_samples(
    length: float, workers: int
) -> None:
    server = Server("hangs", 6.0, 6.0 + length)
    _, lost, _ = play(server, 40 * workers, workers, deadline=8.0)
    assert lost == [] and server.asked_while_gone > 0


LONG_WALK = pytest.mark.long("much work")


@pytest.mark.parametrize(
    ("seed", "steps"),
    [*((seed, 2_500) for seed in range(4)), pytest.param(4, 10_000, marks=LONG_WALK)],
)
def test_a_random_walk_over_all_states_holds_back_nobody_for_ever(seed: int, steps: int) -> None:
    """Calls come, are cancelled and end in every way at any time: what is started keeps within what
    the state allows, and when the endpoint serves again nobody is left behind.
    """
    chance = random.Random(seed)
    inside, waiting = list[Visit](), list[asyncio.Task[None]]()

    async def main() -> None:
        bound = Endpoint(16, clock=now)
        states = set[str]()

        def looks(bound: Endpoint) -> int:
            return 4 * (bound.state == "down")  # beside those that were there before

        async def come() -> None:
            turn = Visit(bound, patience=math.inf)
            if not bound.enter(turn):
                await bound.wait(turn, chance.randrange(3))
            assert bound.in_flight <= 16 + looks(bound)
            turn.note_sent()
            inside.append(turn)

        def go(end: End) -> None:
            turn = inside.pop(chance.randrange(len(inside)))
            after = chance.choice([None, None, 0.2, 3.0]) if end != "ok" else None
            bound.leave(turn, end, after)

        ends: tuple[End, ...] = (
            "ok",
            "ok",
            "ok",
            "rate_limit",
            "transient",
            "unreachable",
            "other",
        )
        mood = list(ends)
        for step in range(steps):
            if step % 50 == 0:  # for a while one thing happens more than others
                mood = [*ends, *[chance.choice(ends)] * chance.choice([0, 4, 40])]
            what = chance.random()
            if what < 0.4:
                waiting.append(asyncio.ensure_future(come()))
            elif what < 0.7 and inside:
                go(chance.choice(mood))
            elif what < 0.75 and waiting:
                waiting[chance.randrange(len(waiting))].cancel()
            else:
                await asyncio.sleep(chance.choice([0, 0, 0.01, 0.3, 2.0]))
            states.add(bound.state)
            waiting[:] = [task for task in waiting if not task.done()]
        for _ in range(1_000):
            while inside:
                go("ok")
            if not waiting:
                break
            await asyncio.sleep(1.0)
            waiting[:] = [task for task in waiting if not task.done()]
        await asyncio.sleep(1.0)
        assert states == {"open", "limited", "down"}
        assert (waiting, bound.waiting, bound.in_flight, bound.state) == ([], 0, 0, "open")

    run_virtual(main())
