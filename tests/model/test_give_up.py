"""Whoever ends for all ends for all at once, and what was not taken is not given back."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import Any

import pytest

from rm_gallery import Budget, FakeLLM, ProviderError
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl, RunStopped, current_run
from rm_gallery.core.model.client import complete
from rm_gallery.core.model.limits import RetryPolicy
from tests.reward.rewards import PointJudge
from tests.support.samples import issues, make_sample


class Gone(FakeLLM):
    """Answers once, and then nobody is there."""

    cache: bool | None = False
    max_outage: float = 0.6
    served: list[int] = []

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        if not self.served:
            self.served.append(1)
            return await super().attempt(payload, timeout)
        raise ProviderError("Cannot connect.", kind="unreachable")


def test_an_endpoint_that_is_given_up_is_given_up_for_all_who_wait_for_it() -> None:
    """Each waited out its own patience: calls that came later held up the end of the run."""
    llm = Gone(model="gone-for-all", reply="yes", served=[])

    ended = list[float]()

    async def ask(number: int) -> Any:
        try:
            return await complete(llm, llm.payload(f"{number}"))
        finally:
            ended.append(time.monotonic())

    async def main() -> list[Any]:
        control = RunControl()
        control.begin(max_workers=8, budget=None, cache=None, repeat=0)
        current_run.set(control)
        await complete(llm, llm.payload("first"))
        tasks = []
        for number in range(6):
            tasks.append(asyncio.ensure_future(ask(number)))
            await asyncio.sleep(0.1)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        control.end()
        return ends

    ends = library_loop.submit(main()).result(timeout=20)
    assert [type(end) for end in ends] == [RunStopped] * 6
    assert len({str(end) for end in ends}) == 1 and "has been down" in str(ends[0])
    # one looks as it comes, and is told so a little later
    assert max(ended) - min(ended) < 0.25, "they came half a second apart"


def test_a_wait_for_a_rate_that_is_cut_gives_nothing_back() -> None:
    llm = FakeLLM(model="cut-wait", reply="yes", tokens_per_minute=60, max_outage=0.0, cache=False)

    async def main() -> bool:
        await complete(llm, llm.payload("x" * 400))  # 101 tokens: in debt for a minute and more
        task = asyncio.ensure_future(complete(llm, llm.payload("x" * 4000)))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
        task = asyncio.ensure_future(complete(llm, llm.payload("hi")))
        await asyncio.wait({task}, timeout=0.2)
        waits = not task.done()
        task.cancel()
        return waits

    assert library_loop.submit(main()).result(timeout=20)


class Slow(FakeLLM):
    """Answers after a moment, and counts whom it has answered."""

    cache: bool | None = False
    answered: list[str] = []

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        self.answered.append(str(payload["messages"][-1]["content"]))
        return await super().attempt(payload, timeout)


def test_whoever_waits_for_a_budget_takes_no_slot_from_others() -> None:
    """The first calls of a budget of tokens go 1, 2, 4, … at a time: the others held all slots."""
    llm = Slow(model="budget-waits", reply="yes", answered=[])

    async def of_a_run(control: RunControl, number: int) -> Any:
        current_run.set(control)
        return await complete(llm, llm.payload(f"run {number}"))

    async def main() -> None:
        control = RunControl()
        control.begin(max_workers=4, budget=Budget(max_tokens=10_000), cache=None, repeat=0)
        tasks = [asyncio.ensure_future(of_a_run(control, number)) for number in range(16)]
        await asyncio.sleep(0.01)
        other = RunControl()
        other.begin(max_workers=4, budget=None, cache=None, repeat=0)
        await of_a_run(other, 99)
        await asyncio.gather(*tasks)
        control.end()
        other.end()

    library_loop.submit(main()).result(timeout=20)
    assert llm.answered.index("run 99") <= 2 and len(llm.answered) == 17


class Broken(FakeLLM):
    cache: bool | None = False

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        raise ProviderError("It is broken.", kind="transient", status=500)


def test_calls_that_fail_until_the_deadline_of_their_sample_end_a_run_as_others_do() -> None:
    judge, control = PointJudge(llm=Broken(reply="yes", max_attempts=1000)), RunControl()
    samples = [make_sample(str(number)) for number in range(100)]
    found = judge.evaluate_batch(samples, deadline=0.1, max_workers=4, control=control)
    assert "calls all failed" in str(control.stopped)
    assert issues(found[0]) == [("failed", "deadline")]
    assert issues(found[-1]) == [("failed", "stopped")]


class Later(FakeLLM):
    cache: bool | None = False

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        raise ProviderError("Later.", kind="rate_limit", status=429, retry_after=60.0)


def test_who_waits_until_his_deadline_for_an_endpoint_that_asks_for_patience_names_it() -> None:
    judge = PointJudge(llm=Later(model="later", reply="yes"))
    samples = [make_sample(str(number)) for number in range(3)]
    found = judge.evaluate_batch(samples, deadline=0.3, max_workers=1)
    said = [issue for one in found for issue in one.output[0].answer.reward.issues]
    assert [(issue.reason, issue.cause) for issue in said] == [("deadline", "endpoint")] * 3


class LaterOnce(Later):
    """Asks for a moment of patience once, and answers then."""

    asked: list[str] = []

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        self.asked.append("")
        if len(self.asked) > 1:
            return await FakeLLM.attempt(self, payload, timeout)
        await asyncio.sleep(0.1)  # until the others wait
        raise ProviderError("Later.", kind="rate_limit", status=429, retry_after=0.05)


def test_who_waits_for_a_rate_of_ours_has_all_its_time_whatever_the_endpoint_said_meanwhile() -> (
    None
):
    """Its clock went on from when another call was asked for patience, and never stood again."""
    llm = LaterOnce(
        model="later-once",
        reply="<score>1</score>",
        asked=[],
        requests_per_minute=150,
        max_attempts=1,
    )
    samples = [make_sample(str(number)) for number in range(6)]
    found = PointJudge(llm=llm).evaluate_batch(samples, deadline=0.6, max_workers=6)
    assert sorted(issues(one) for one in found) == [[]] * 5 + [[("failed", "rate_limit")]]


class Held(FakeLLM):
    """Answers what is asked first once it is let go; the rest fails."""

    cache: bool | None = False
    asked: list[str] = []
    go: asyncio.Event = None  # type: ignore[assignment]

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        self.asked.append("")
        if len(self.asked) > 1:
            raise ProviderError("It is broken.", kind="transient", status=500)
        await self.go.wait()
        return await super().attempt(payload, timeout)


HELD_BACK: dict[str, dict[str, Any]] = {
    "rate": {"model": {"requests_per_minute": 1.0}},
    "budget": {"budget": Budget(max_tokens=10_000)},
    "slot": {"max_workers": 1},
    "pause": {"retry": RetryPolicy(base=1e4, cap=1e4, rng=random.Random(1))},
}


@pytest.mark.parametrize("by", HELD_BACK)
def test_a_run_that_is_halted_waits_for_no_turn_any_more(by: str) -> None:
    """Each of its calls still waited for its turn of the rate, and took it from others."""
    how = HELD_BACK[by]

    async def main() -> None:
        llm = Held(
            model=f"held-by-{by}", reply="yes", asked=[], go=asyncio.Event(), **how.get("model", {})
        )
        control = RunControl(retry=how.get("retry"))
        control.begin(
            max_workers=how.get("max_workers", 8), budget=how.get("budget"), cache=None, repeat=0
        )
        current_run.set(control)
        first, *others = [
            asyncio.ensure_future(complete(llm, llm.payload(f"{i}"))) for i in range(4)
        ]
        await asyncio.sleep(0.1)
        threading.Thread(target=control.stop, args=("pointless",), kwargs={"halt": True}).start()
        over, _ = await asyncio.wait(others, timeout=5.0)
        assert [type(each.exception()) for each in over] == [RunStopped] * 3
        with pytest.raises(RunStopped):
            await asyncio.wait_for(complete(llm, llm.payload("later")), 5.0)
        assert not first.done(), "what is in flight finishes"
        llm.go.set()
        assert (await first).text == "yes"
        assert control.retries == (3 if by == "pause" else 0)
        assert len(llm.asked) == 1 + control.retries
        control.end()

    library_loop.submit(main()).result(timeout=30)
