"""`max_workers` is the true number in flight: never more, and as many as there is work for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import ConfigError
from tests.reward.rewards import scored
from tests.support.judge_server import JudgeServer
from tests.support.samples import make_sample

SAMPLES = [make_sample("a", "b", unique_id=str(k)) for k in range(60)]


class Gauge:
    """How many are inside now, and how many were at most."""

    def __init__(self, awaited: int) -> None:
        self.awaited = awaited
        self._lock = threading.Lock()
        self._inside = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1

    def pauses(self) -> Iterator[float]:
        """Short waits until as many were inside as are awaited, for two seconds at most."""
        for _ in range(400):
            if self.most >= self.awaited:
                break
            yield 0.005
        yield 0.005


GAUGES: dict[str, Gauge] = {}


class Slow(BasePointWiseReward):
    """A plain function that waits for company."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        with GAUGES[self.name]:
            for pause in GAUGES[self.name].pauses():
                time.sleep(pause)
        return scored(self.name, 1.0)


class SlowAsync(BasePointWiseReward):
    """A coroutine function that waits for company."""

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        with GAUGES[self.name]:
            for pause in GAUGES[self.name].pauses():
                await asyncio.sleep(pause)
        return scored(self.name, 1.0)


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer("first") as running:
        yield running


@pytest.mark.parametrize("workers", [1, 3, 16])
@pytest.mark.parametrize("kind", [Slow, SlowAsync])
def test_functions_of_ones_own(kind: type[BasePointWiseReward], workers: int) -> None:
    name = f"{kind.__name__}-{workers}"
    GAUGES[name] = Gauge(workers)
    result = kind(name=name).evaluate_batch(SAMPLES[: 3 * workers + 6], max_workers=workers)
    assert GAUGES[name].most == workers
    assert all(output.answer.reward.score == 1.0 for sample in result for output in sample.output)


# the more connections have to be opened, the longer the first replies have to wait for the last requests
@pytest.mark.parametrize(("workers", "latency"), [(1, 0.01), (5, 0.1), (40, 0.3)])
@pytest.mark.parametrize("name", ["safety_listwise_reward", "safety_pairwise_reward", "safety_pointwise_reward"])
def test_judgements(server: JudgeServer, name: str, workers: int, latency: float) -> None:
    server.set(latency=latency)
    server.reset()
    reward = RewardRegistry.create(name, llm=OpenaiLLM("judge-1", base_url=server.base_url, cache=False))
    reward.evaluate_batch(SAMPLES[: workers + 5], max_workers=workers)
    assert server.stats()["max_in_flight"] == workers


@pytest.mark.parametrize("given", [None, 0])
def test_without_a_number_the_rewards_own_holds(server: JudgeServer, given: int | None) -> None:
    server.set(latency=0.1)
    server.reset()
    llm = OpenaiLLM("judge-1", base_url=server.base_url, cache=False)
    reward = RewardRegistry.create("safety_listwise_reward", llm=llm, max_workers=7)
    reward.evaluate_batch(SAMPLES[:20], max_workers=given)
    assert server.stats()["max_in_flight"] == 7


def test_two_batches_at_once_each_get_theirs(server: JudgeServer) -> None:
    server.set(latency=0.05)
    server.reset()
    llm = OpenaiLLM("judge-1", base_url=server.base_url, cache=False)
    reward = RewardRegistry.create("safety_listwise_reward", llm=llm)
    threads = [threading.Thread(target=reward.evaluate_batch, args=(SAMPLES, 6)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 6 <= server.stats()["max_in_flight"] <= 12


@pytest.mark.parametrize("given", [-1, -100])
def test_a_negative_number_is_refused(given: int) -> None:
    with pytest.raises(ConfigError, match=f"max_workers is {given}"):
        RewardRegistry.create("accuracy").evaluate_batch(SAMPLES, max_workers=given)


class Sleeps(BasePointWiseReward):
    """Sleeps a moment, or for long."""

    seconds: float = 0.02

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        time.sleep(self.seconds)
        return scored(self.name, 1.0)


def test_f8_fewer_threads_than_asked_for_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    start, had = threading.Thread.start, [0]

    def limited(thread: threading.Thread) -> None:
        had[0] += thread.name == "rm-gallery-worker"
        if had[0] > 8:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(library_loop, "_threads", library_loop.DaemonThreads())  # none idle from other tests
    monkeypatch.setattr(threading.Thread, "start", limited)
    done = Sleeps().evaluate_batch(SAMPLES, max_workers=40)
    assert all(sample.output[1].answer.reward.score == 1.0 for sample in done)
    monkeypatch.undo()
    began = time.monotonic()
    late = Sleeps(seconds=20.0).evaluate_batch(SAMPLES[:1], deadline=0.3)
    assert late[0].output[0].answer.reward.issues[0].reason == "deadline", "threads are still watched"
    assert time.monotonic() - began < 5.0
