"""Hooks and judges that raise, cancel, block or take too long: a sample ends by its deadline with
that reason, and its neighbours are scored.

What hangs here hangs for minutes: that a test ends is that it was not waited for.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from rm_gallery import BaseReward
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine import single
from rm_gallery.core.engine.context import RunControl
from tests.faults.material import make_judge, make_samples, outcomes_of, run
from tests.faults.rewards import Awaited, Blocking, Plain
from tests.support.judge_server import Faults, JudgeServer
from tests.support.samples import issues, make_sample, scores

REWARDS = pytest.mark.parametrize("reward", [Plain(), Awaited()], ids=lambda reward: reward.name)


@pytest.fixture(autouse=True)
def _count_anew() -> None:
    Blocking.inside = 0
    Blocking.threads.clear()
    Blocking.go_on.clear()


@REWARDS
@pytest.mark.parametrize("text", ["raise", "cancel"])
def test_what_a_hook_raises_is_that_samples_failure(reward: BaseReward, text: str) -> None:
    texts = [text if k % 10 == 0 else "x" * k for k in range(60)]
    scored = reward.evaluate_batch([make_sample(t) for t in texts], max_workers=4)
    assert [scores(sample) for sample in scored] == [
        [None] if t == text else [len(t)] for t in texts
    ]
    assert [issues(sample) for sample in scored if issues(sample)] == [[("failed", "error")]] * 6


def test_plain_hooks_awaited_by_themselves_share_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many run at once depends on what they cost, which a busy machine makes look dear; never
    more than is allowed.
    """
    monkeypatch.setattr(single, "MAX_SINGLE_THREADS", 12)
    monkeypatch.setattr(single, "_shared", None)

    async def main() -> list[list[float | None]]:
        calls = [
            asyncio.ensure_future(Blocking().async_evaluate(make_sample("x"))) for _ in range(100)
        ]
        while Blocking.inside < 12:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert Blocking.inside == 12
        Blocking.go_on.set()
        return [scores(await call) for call in calls]

    assert asyncio.run(main()) == [[1.0]] * 100 and len(Blocking.threads) <= 12


def test_plain_hooks_that_block_block_threads_and_not_the_loop() -> None:
    """The loop lets them go on once all four are at it: had they blocked it, or each other, nobody
    would.
    """

    async def let_go() -> None:
        while Blocking.inside < 4:
            await asyncio.sleep(0.005)
        Blocking.go_on.set()

    letting = library_loop.submit(let_go())
    scored = Blocking().evaluate_batch([make_sample("x")] * 4, max_workers=4)
    assert [scores(sample) for sample in scored] == [[1.0]] * 4
    letting.result(20)


def test_a_slow_judge_is_given_up(server: JudgeServer) -> None:
    server.set(latency=30.0)
    ran = run(
        make_judge(server.base_url, channel="text"), make_samples(12), max_workers=12, deadline=1.0
    )
    assert ran.outcomes == {("failed", "deadline"): 12}
    stats = server.wait_until(lambda stats: stats["connections_open"] == 0)
    assert (stats["requests"], stats["client_closed"], stats["in_flight"]) == (12, 12, 0), (
        "none was waited for"
    )


def test_the_deadline_counts_attempts_and_waits_together(server: JudgeServer) -> None:
    server.set(faults=Faults(server_error=1.0))
    ran = run(
        make_judge(server.base_url, max_attempts=50, channel="text"),
        make_samples(3),
        max_workers=3,
        deadline=1.0,
    )
    assert ran.outcomes == {("failed", "deadline"): 3}
    assert all("last cause (transient)" in message for message in ran.messages)


@pytest.mark.parametrize("first", [0, 3])
def test_a_deadline_bounds_the_pause_a_server_asks_for_and_names_the_endpoint(
    server: JudgeServer, first: int
) -> None:
    judge = make_judge(server.base_url, channel="text")
    assert first == 0 or run(judge, make_samples(first), cache=False).outcomes
    server.set(faults=Faults(rate_limit=1.0, retry_after_s=60.0))
    before = server.stats()["requests"]
    ran = run(judge, make_samples(4), max_workers=2, deadline=0.5, cache=False, blame="probe")
    assert ran.outcomes == {("failed", "deadline"): 4}
    assert ran.causes == {"endpoint"}
    assert server.stats()["requests"] - before <= 4, "what is to come later is not asked before"


@pytest.mark.parametrize("limited", [False, True])
def test_nothing_is_tried_out_on_an_endpoint_that_is_limited(
    server: JudgeServer, limited: bool
) -> None:
    judge = make_judge(server.base_url, max_attempts=1, channel="text")
    faults = Faults(nonsense=0.5, rate_limit=0.1 * limited, retry_after_s=30.0, sticky=True)
    server.set(faults=faults)
    ran = run(judge, make_samples(48), max_workers=48, deadline=1.0, cache=False, blame="probe")
    # an unreadable reply is asked for twice
    assert (server.stats()["requests"] <= 1.2 * 72) is limited
    assert "answer" not in ran.causes


def test_waiting_for_the_librarys_own_limits_is_not_the_samples_time(server: JudgeServer) -> None:
    server.set(latency=0.05)
    judge = make_judge(server.base_url, requests_per_minute=300)
    ran = run(judge, make_samples(25), max_workers=25, deadline=2.0, cache=False)
    # five go at once, the others at five a second
    assert ran.outcomes == {("scored", ""): 25}
    assert ran.seconds > 2.0, "they did wait"


def test_giving_up_an_awaited_call_closes_its_connection(server: JudgeServer) -> None:
    server.set(latency=30.0)
    judge = make_judge(server.base_url)

    async def impatient() -> None:
        calls = [asyncio.ensure_future(judge.async_evaluate(sample)) for sample in make_samples(8)]
        while server.stats()["in_flight"] < 8:
            await asyncio.sleep(0.01)
        for call in calls:
            call.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError)
            for end in await asyncio.gather(*calls, return_exceptions=True)
        )

    asyncio.run(impatient())
    stats = server.wait_until(lambda stats: stats["connections_open"] == 0)
    assert (stats["requests"], stats["client_closed"]) == (8, 8)


def test_who_joins_a_call_keeps_its_own_deadline(server: JudgeServer) -> None:
    server.set(latency=2.0)
    patient, sample = make_judge(server.base_url), make_samples(1)[0]
    hasty = patient.model_copy(update={"deadline": 0.4})

    async def main(*judges: BaseReward) -> list[object]:
        first = asyncio.ensure_future(judges[0].async_evaluate(sample))
        while not server.stats()["in_flight"]:
            await asyncio.sleep(0.01)
        second = await judges[1].async_evaluate(sample)
        return [outcomes_of([await first]), outcomes_of([second])]

    assert asyncio.run(main(patient, hasty)) == [{("scored", ""): 1}, {("failed", "deadline"): 1}]
    assert server.stats()["requests"] == 1
    sample = make_samples(2)[1]
    server.wait_until(lambda stats: not stats["in_flight"])
    assert asyncio.run(main(hasty, patient)) == [{("failed", "deadline"): 1}, {("scored", ""): 1}]


def test_who_joins_a_call_waits_for_its_turn_with_it(server: JudgeServer) -> None:
    judge = make_judge(server.base_url, requests_per_minute=20)
    busy, sample = make_samples(2)

    async def main() -> list[object]:
        await judge.async_evaluate(busy)  # the next turn comes after 3 s
        hasty = judge.model_copy(update={"deadline": 2.0})
        calls = [asyncio.ensure_future(judge.async_evaluate(sample))]
        await asyncio.sleep(0.1)
        calls += [asyncio.ensure_future(hasty.async_evaluate(sample)) for _ in range(2)]
        return [outcomes_of([await call]) for call in calls]

    assert asyncio.run(main()) == [{("scored", ""): 1}] * 3 and server.stats()["requests"] == 2


def test_a_hook_that_will_not_be_cancelled_holds_up_its_own_sample_only() -> None:
    texts = ["stubborn", *("x" * k for k in range(1, 20))]
    control = RunControl()
    ended = Awaited.ended
    given = [make_sample(text) for text in texts]
    scored = Awaited().evaluate_batch(given, max_workers=2, deadline=0.5, control=control)
    assert [scores(sample) for sample in scored] == [[None], *([float(k)] for k in range(1, 20))]
    assert issues(scored[0]) == [("failed", "deadline")]
    assert (
        "its task ignored that and was left" in scored[0].output[0].answer.reward.issues[0].message
    )
    while Awaited.ended == ended:  # long after its run
        time.sleep(0.01)
    assert library_loop.submit(asyncio.sleep(0, "turned")).result(20) == "turned"
    assert control.in_flight == 0, "what was given up counts no second time when it ends"
