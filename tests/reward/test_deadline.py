"""Whatever hangs costs its own sample's deadline: a plain function, a coroutine, a worker process, a judge."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.models import FakeLLM, OpenaiLLM
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import DeadlineExceeded
from tests.reward.rewards import AsyncRule, ListJudge, PointJudge, Rule, longest, scored
from tests.support.judge_server import JudgeServer
from tests.support.samples import issues, make_sample, scores

DEADLINE = 0.3
PATIENT_DEADLINE = 2.0
"""Long enough for a worker process to start, or for twenty connections to open, on a busy machine."""
RELEASE = threading.Event()


@pytest.fixture(autouse=True, scope="module")
def release() -> Iterator[None]:
    """Abandoned threads end with this module."""
    RELEASE.clear()
    yield
    RELEASE.set()


def hangs(sample: DataSample) -> bool:
    return sample.output[0].answer.text == "hang"


class Hanging(Rule):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if hangs(sample):
            RELEASE.wait(60)
        return scored(self.name, 1.0)


class HangingAsync(AsyncRule):
    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if hangs(sample):
            await asyncio.sleep(60)
        return scored(self.name, 1.0)


class HangingInWorker(Rule):
    cpu_bound: ClassVar[bool] = True

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        while hangs(sample):
            pass
        return scored(self.name, 1.0)


class InnerDeadline(AsyncRule):
    """Ends by a time limit of its own, long before the sample's."""

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if hangs(sample):
            raise DeadlineExceeded("the comparison took longer than 1 s")
        return scored(self.name, 1.0)


REWARDS: list[BaseReward] = [
    Hanging(deadline=DEADLINE),
    HangingAsync(deadline=DEADLINE),
    HangingInWorker(deadline=PATIENT_DEADLINE),
    InnerDeadline(),
]
DOORS: dict[str, Callable[[BaseReward, Sequence[DataSample]], list[DataSample]]] = {
    "evaluate": lambda reward, given: [reward.evaluate(sample) for sample in given],
    "evaluate_batch": lambda reward, given: reward.evaluate_batch(given, max_workers=3),
    "async_evaluate": lambda reward, given: asyncio.run(gathered(reward, given)),
}


async def gathered(reward: BaseReward, given: Sequence[DataSample]) -> list[DataSample]:
    return list(await asyncio.gather(*(reward.async_evaluate(sample) for sample in given)))


# one by one the worker process would be waited for once more
CASES = [(r, door) for r in REWARDS for door in DOORS if (r.name, door) != ("HangingInWorker", "evaluate")]


@pytest.mark.parametrize(("reward", "door"), CASES, ids=[f"{reward.name}-{door}" for reward, door in CASES])
def test_the_hanging_sample_fails_and_the_others_are_scored(reward: BaseReward, door: str) -> None:
    answers = ["fine", "hang", "fine", "fine"]
    started = time.monotonic()
    found = DOORS[door](reward, [make_sample(text, unique_id=str(k)) for k, text in enumerate(answers)])
    assert time.monotonic() - started < 15
    assert [scores(sample) for sample in found] == [[1.0], [None], [1.0], [1.0]]
    assert issues(found[1]) == [("failed", "deadline")]


def test_more_hanging_samples_than_workers_still_end() -> None:
    samples = [make_sample("hang" if k % 2 else "fine", unique_id=str(k)) for k in range(12)]
    found = Hanging().evaluate_batch(samples, max_workers=2, deadline=0.1)
    assert [scores(sample) for sample in found] == [[None] if k % 2 else [1.0] for k in range(12)]


def test_a_silent_judge() -> None:
    faults = {"hang": 0.3, "sticky": True, "hang_s": 30.0}
    samples = [make_sample(f"answer {k}", unique_id=str(k)) for k in range(20)]
    with JudgeServer("fixed:<score>1</score>", faults=faults, in_process=True) as server:
        reward = PointJudge(llm=OpenaiLLM("judge-1", base_url=server.base_url), deadline=PATIENT_DEADLINE)
        found = reward.evaluate_batch(samples, max_workers=20)
        hung = server.stats()["by_fault"]["hang"]
    assert 0 < hung < 20
    assert [issues(sample) for sample in found].count([("failed", "deadline")]) == hung
    assert [scores(sample) for sample in found].count([1.0]) == 20 - hung


def test_the_deadline_is_the_samples_and_not_the_batchs() -> None:
    """Twenty samples of 0.1 s on two workers take longer than a single one may."""
    reward = ListJudge(llm=FakeLLM(reply=longest, latency=0.1))
    found = reward.evaluate_batch(
        [make_sample("a", "a b", unique_id=str(k)) for k in range(20)], max_workers=2, deadline=0.9
    )
    assert [scores(sample) for sample in found] == [[0.0, 1.0]] * 20


def test_without_a_deadline_nothing_is_cut() -> None:
    assert scores(ListJudge(llm=FakeLLM(reply=longest), deadline=None).evaluate(make_sample("a", "a b"))) == [0.0, 1.0]
    assert scores(Rule(deadline=None).evaluate(make_sample("a b"))) == [2.0]
