"""Open, limited, down: an outage costs its own length and no call, and one that does not end is said once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rm_gallery.core.engine.calls.endpoint import Endpoint, EndpointDown
from rm_gallery.core.engine.calls.retry import RetryPolicy, run_attempts
from rm_gallery.core.utils.errors import ProviderError, ProviderErrorKind
from tests.engine.virtual_time import now, run_virtual

LATENCY = 0.5


class Server:
    """Serves in half a second, and fails in one of several ways between `begin` and `end`."""

    def __init__(self, how: str, begin: float, end: float) -> None:
        self.how, self.begin, self.end = how, begin, end
        self.served_at: list[float] = []
        self.asked_while_gone = self.flying = 0

    async def call(self) -> None:
        start = now()
        if self.begin <= start < self.end and not (self.how.endswith("beyond eight") and self.flying < 8):
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
        failures: dict[str, tuple[ProviderErrorKind, int | None, float | None]] = {
            "refused": ("unreachable", None, None),
            "503": ("transient", 503, None),
            "500": ("transient", 500, None),
            "dropped": ("transient", None, None),
            "429": ("rate_limit", 429, None),
            "429 beyond eight": ("rate_limit", 429, None),
            "429 retry-after": ("rate_limit", 429, 1.0),
        }
        kind, status, retry_after = failures[self.how]
        raise ProviderError(self.how, kind=kind, status=status, retry_after=retry_after)


def play(server: Server, calls: int, workers: int, max_outage: float = 300.0) -> tuple[float, list[Exception], float]:
    """Seconds it took, the errors of lost calls, and calls served per second within 5 s of the end of the trouble."""
    lost: list[Exception] = []

    async def main() -> float:
        server.begin += now()
        server.end += now()
        endpoint = Endpoint(workers, clock=now, max_outage=max_outage, name="http://judge/v1")
        policy, left, start = RetryPolicy(seed=1), iter(range(calls)), now()

        async def worker() -> None:
            for number in left:
                fresh = [True]

                async def attempt(number: int = number, fresh: list[bool] = fresh) -> None:
                    probe = await endpoint.acquire(fresh=fresh[0])
                    fresh[0] = False
                    try:
                        await server.call()
                    except ProviderError as error:
                        assert error.kind != "fatal"
                        endpoint.release(error.kind, error.retry_after, call=number, probe=probe, why=str(error))
                        raise
                    endpoint.release(probe=probe)

                try:
                    await run_attempts(attempt, policy, endpoint=endpoint)
                except ProviderError as error:
                    lost.append(error)

        await asyncio.gather(*(worker() for _ in range(workers)))
        assert endpoint.in_flight == endpoint.waiting == 0
        return now() - start

    seconds = run_virtual(main())
    window = [at for at in server.served_at if server.end + 4.0 <= at < server.end + 5.0]
    return seconds, lost, float(len(window))


@pytest.mark.parametrize(
    ("workers", "length"), [(1, 1.0), (1, 10.0), (8, 10.0), (8, 60.0), (32, 1.0), (32, 10.0), (32, 60.0)]
)
@pytest.mark.parametrize("how", ["refused", "503", "500", "dropped", "hangs"])
def test_e2_an_outage_costs_its_length_and_three_seconds_and_no_call(how: str, length: float, workers: int) -> None:
    if workers == 1 and how in ("500", "dropped"):
        how = "503"  # what may be the one call's own fault uses up its attempts
    calls = 20 * workers
    server = Server(how, 3.0, 3.0 + length)
    seconds, lost, _ = play(server, calls, workers)
    assert lost == []
    assert seconds <= 20 * LATENCY + length + 3.0 + LATENCY
    assert server.asked_while_gone <= workers + 4 + length


@pytest.mark.parametrize("how", ["429", "429 beyond eight", "429 retry-after"])
def test_e3_a_storm_of_429_loses_nothing_and_the_rate_is_back_in_five_seconds(how: str) -> None:
    before = 64 / LATENCY
    server = Server(how, 10.0, 20.0)
    _, lost, rate = play(server, 64 * 80, 64)
    assert lost == []
    assert rate >= 0.9 * before


def test_e2_dead_for_good_ends_for_all_at_once_within_the_limit() -> None:
    server = Server("refused", 3.0, 1e9)
    seconds, lost, _ = play(server, 32, 32, max_outage=20.0)
    assert lost == []
    server = Server("refused", 1.2, 1e9)
    seconds, lost, _ = play(server, 20 * 32, 32, max_outage=20.0)
    assert {type(error) for error in lost[:32]} == {EndpointDown}
    assert "http://judge/v1 has been down for 20 s" in str(lost[0])
    assert "max_outage=20" in str(lost[0])
    first = lost[0]
    assert isinstance(first, EndpointDown)
    assert "same command" in str(first)


def test_e1_a_longer_pause_than_a_minute_is_a_minute_and_then_one_looks() -> None:
    async def main() -> tuple[float, int]:
        endpoint, start = Endpoint(32, clock=now), now()
        await endpoint.acquire()
        endpoint.release()
        await endpoint.acquire()
        endpoint.release("rate_limit", 3600.0, call="one")
        shut = endpoint.state
        began: list[float] = []

        async def call() -> None:
            probe = await endpoint.acquire()
            began.append(now() - start)
            await asyncio.sleep(0.5)
            endpoint.release(probe=probe)

        await asyncio.gather(*(call() for _ in range(32)))
        assert (shut, endpoint.state) == ("limited", "open")
        looked = sum(at < 60.4 for at in began)
        return now() - start, looked

    seconds, looked = run_virtual(main())
    assert 61.0 <= seconds <= 61.6
    assert looked == 1


def test_e_minor_a_small_run_beside_a_large_one_is_not_starved() -> None:
    async def main() -> float:
        endpoint, start, done = Endpoint(16, clock=now), now(), asyncio.Event()

        async def call(run: str) -> None:
            await endpoint.acquire(run)
            await asyncio.sleep(0.1)
            endpoint.release()

        async def large() -> None:
            while not done.is_set():
                await call("large")

        crowd = [asyncio.ensure_future(large()) for _ in range(200)]
        await asyncio.sleep(1.0)
        start = now()
        await asyncio.gather(*(call("small") for _ in range(20)))
        seconds = now() - start
        done.set()
        await asyncio.gather(*crowd)
        return seconds

    # half of 16 slots: 20 calls take three rounds
    assert run_virtual(main()) <= 0.5


@pytest.mark.parametrize(
    ("calls", "state"),
    [
        (lambda e: e.release("unreachable", call=1), "down"),
        (lambda e: [e.release("transient", call=number) for number in (1, 2, 3)], "open"),
        (lambda e: [e.release("transient", call=1) for _ in range(9)], "open"),
        (lambda e: [e.release("transient", call=number) for number in range(4)], "down"),
        (lambda e: [e.release(end, call=n) for n, end in enumerate(["transient", "ok"] * 5)], "open"),
        (lambda e: [e.release("rate_limit", call=number) for number in range(9)], "open"),
        (lambda e: [e.release("rate_limit", call=number) for number in range(10)], "limited"),
    ],
    ids=["refused connection", "three", "one call again and again", "four", "every other", "one still runs", "all 429"],
)
def test_what_makes_a_state(calls: Callable[[Endpoint], object], state: str) -> None:
    async def main() -> str:
        endpoint = Endpoint(10, clock=now)
        await endpoint.acquire()
        endpoint.release()
        for _ in range(10):
            await endpoint.acquire()
        calls(endpoint)
        found = endpoint.state
        await asyncio.sleep(1.0)
        return found

    assert run_virtual(main()) == state


def test_an_endpoint_that_never_served_is_not_waited_for() -> None:
    server = Server("refused", 0.0, 1e9)
    seconds, lost, _ = play(server, 5, 1)
    assert len(lost) == 5
    assert seconds < 10.0
