"""`max_workers` is the true number in flight, and whatever hangs costs its own sample's deadline: by function, coroutine, process, judge."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.models import FakeLLM, OpenaiLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import DeadlineExceeded
from tests.reward.rewards import AsyncRule, ListJudge, PointJudge, Rule, longest, scored
from tests.support.judge_server import JudgeServer
from tests.support.samples import issues, make_sample, scores

SAMPLES = [make_sample("a", "b", unique_id=str(k)) for k in range(60)]

# -- in flight ------------------------------------------------------------------------------------------------------------------


class Gauge:
    """How many are inside now, and how many were at most."""

    def __init__(self, awaited: int) -> None:
        self.awaited, self.inside, self.most, self._lock = awaited, 0, 0, threading.Lock()

    def pauses(self) -> Iterator[float]:
        """Short waits until as many were inside as are awaited, for two seconds at most."""
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        for _ in range(400):
            if self.most >= self.awaited:
                break
            yield 0.005
        yield 0.005
        with self._lock:
            self.inside -= 1


class Slow(Rule):
    """Waits for company, on its thread."""

    gauge: Any = None

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        for pause in self.gauge.pauses():
            time.sleep(pause)
        return scored(self.name, 1.0)


class SlowAsync(Slow):
    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:  # type: ignore[override]
        for pause in self.gauge.pauses():
            await asyncio.sleep(pause)
        return scored(self.name, 1.0)


@pytest.mark.parametrize("workers", [1, 3, 16])
@pytest.mark.parametrize("kind", [Slow, SlowAsync])
def test_as_many_functions_of_ones_own_are_in_flight_as_was_said(kind: type[Slow], workers: int) -> None:
    reward = kind(gauge=Gauge(workers))
    result = reward.evaluate_batch(SAMPLES[: 3 * workers + 6], max_workers=workers)
    assert reward.gauge.most == workers
    assert all(scores(sample) == [1.0, 1.0] for sample in result)


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer("first") as running:
        yield running


def most(server: JudgeServer, name: str, latency: float, count: int, given: int | None, **settings: Any) -> int:
    server.set(latency=latency)
    server.reset()
    reward = RewardRegistry.create(name, llm=OpenaiLLM("judge-1", base_url=server.base_url, cache=False), **settings)
    reward.evaluate_batch(SAMPLES[:count], max_workers=given)
    return int(server.stats()["max_in_flight"])


# the more connections have to be opened, the longer the first replies have to wait for the last requests
@pytest.mark.parametrize(("workers", "latency"), [(1, 0.01), (5, 0.1), (40, 0.3)])
@pytest.mark.parametrize("kind", ["listwise", "pairwise", "pointwise"])
def test_as_many_judgements_are_in_flight_as_was_said(
    server: JudgeServer, kind: str, workers: int, latency: float
) -> None:
    assert most(server, f"safety_{kind}_reward", latency, workers + 5, workers) == workers


def test_without_a_number_the_rewards_own_holds_and_two_batches_get_theirs(server: JudgeServer) -> None:
    for given in (None, 0):
        assert most(server, "safety_listwise_reward", 0.1, 20, given, max_workers=7) == 7
    server.set(latency=0.05)
    server.reset()
    reward = RewardRegistry.create("safety_listwise_reward", llm=OpenaiLLM("j", base_url=server.base_url, cache=False))
    threads = [threading.Thread(target=reward.evaluate_batch, args=(SAMPLES, 6)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 6 <= server.stats()["max_in_flight"] <= 12


class Sleeps(Rule):
    seconds: float = 0.02

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        time.sleep(self.seconds)
        return scored(self.name, 1.0)


def test_fewer_threads_than_asked_for_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    start, had = threading.Thread.start, [0]

    def limited(thread: threading.Thread) -> None:
        had[0] += thread.name == "rm-gallery-worker"
        if had[0] > 8:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(library_loop, "_threads", library_loop.DaemonThreads())  # none idle from other tests
    monkeypatch.setattr(threading.Thread, "start", limited)
    assert all(scores(sample) == [1.0, 1.0] for sample in Sleeps().evaluate_batch(SAMPLES, max_workers=40))
    monkeypatch.undo()
    (late,) = Sleeps(seconds=20.0).evaluate_batch(SAMPLES[:1], deadline=0.3)
    assert issues(late)[0][1] == "deadline", "threads are still watched"


# -- deadlines --------------------------------------------------------------------------------------------------------------------

DEADLINE, PATIENT = 0.3, 2.0
"""The second is long enough for a worker process to start, or for twenty connections to open, on a busy machine."""
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


async def gathered(reward: BaseReward, given: Sequence[DataSample]) -> list[DataSample]:
    return list(await asyncio.gather(*(reward.async_evaluate(sample) for sample in given)))


REWARDS = [
    Hanging(deadline=DEADLINE),
    HangingAsync(deadline=DEADLINE),
    HangingInWorker(deadline=PATIENT),
    InnerDeadline(),
]
DOORS: dict[str, Callable[[BaseReward, Sequence[DataSample]], list[DataSample]]] = {
    "evaluate": lambda reward, given: [reward.evaluate(sample) for sample in given],
    "evaluate_batch": lambda reward, given: reward.evaluate_batch(given, max_workers=3),
    "async_evaluate": lambda reward, given: asyncio.run(gathered(reward, given)),
}
# one by one the worker process would be waited for once more
CASES = [(r, door) for r in REWARDS for door in DOORS if (r.name, door) != ("HangingInWorker", "evaluate")]


@pytest.mark.parametrize(("reward", "door"), CASES, ids=[f"{reward.name}-{door}" for reward, door in CASES])
def test_the_hanging_sample_fails_and_the_others_are_scored(reward: BaseReward, door: str) -> None:
    answers = ["fine", "hang", "fine", "fine"]
    found = DOORS[door](reward, [make_sample(text, unique_id=str(k)) for k, text in enumerate(answers)])
    assert [scores(sample) for sample in found] == [[1.0], [None], [1.0], [1.0]]
    assert issues(found[1]) == [("failed", "deadline")]


def test_more_hanging_samples_than_workers_still_end() -> None:
    samples = [make_sample("hang" if k % 2 else "fine", unique_id=str(k)) for k in range(12)]
    found = Hanging().evaluate_batch(samples, max_workers=2, deadline=0.1)
    assert [scores(sample) for sample in found] == [[None] if k % 2 else [1.0] for k in range(12)]


def test_a_silent_judge_costs_the_samples_it_leaves_without_a_reply() -> None:
    faults = {"hang": 0.3, "sticky": True, "hang_s": 30.0}
    samples = [make_sample(f"answer {k}", unique_id=str(k)) for k in range(20)]
    with JudgeServer("fixed:<score>1</score>", faults=faults, in_process=True) as server:
        reward = PointJudge(llm=OpenaiLLM("judge-1", base_url=server.base_url), deadline=PATIENT)
        found = reward.evaluate_batch(samples, max_workers=20)
        hung = server.stats()["by_fault"]["hang"]
    assert 0 < hung < 20
    assert [issues(sample) for sample in found].count([("failed", "deadline")]) == hung
    assert [scores(sample) for sample in found].count([1.0]) == 20 - hung


def test_the_deadline_is_the_samples_and_not_the_batchs_and_none_cuts_nothing() -> None:
    """Twenty samples of 0.1 s on two workers take longer than a single one may."""
    reward, given = ListJudge(llm=FakeLLM(reply=longest, latency=0.1)), make_sample("a", "a b")
    found = reward.evaluate_batch(
        [given.model_copy(update={"unique_id": str(k)}) for k in range(20)], max_workers=2, deadline=0.9
    )
    assert [scores(sample) for sample in found] == [[0.0, 1.0]] * 20
    assert scores(ListJudge(llm=FakeLLM(reply=longest), deadline=None).evaluate(given)) == [0.0, 1.0]
    assert scores(Rule(deadline=None).evaluate(given)) == [1.0, 2.0]
