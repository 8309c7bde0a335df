"""`max_workers` is the true number in flight, of functions and of judgements."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from rm_gallery import DataSample, FakeLLM, OpenaiLLM, RewardRegistry, RewardResult
from rm_gallery.core.engine import loop as library_loop
from tests.reward.rewards import ListJudge, Rule, longest, scored
from tests.support.judge_server import JudgeServer, judge_fixture
from tests.support.samples import issues, make_sample, scores

SAMPLES = [make_sample("a", "b", unique_id=str(k)) for k in range(60)]


class Together(Rule):
    """Goes on once as many were inside as are awaited."""

    awaited: int = 1
    reached: Any = None
    inside: Any = None
    most: Any = None

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        self.inside.append(sample)
        self.most.append(len(self.inside))
        if len(self.inside) >= self.awaited:
            self.reached.set()
        self.reached.wait(5)
        time.sleep(0.005)
        self.inside.pop()
        return scored(self.name, 1.0)


@pytest.mark.parametrize("workers", [1, 3, 16])
def test_as_many_functions_of_ones_own_are_in_flight_as_was_said(workers: int) -> None:
    reward = Together(awaited=workers, reached=threading.Event(), inside=[], most=[])
    found = reward.evaluate_batch(SAMPLES[: 3 * workers + 6], max_workers=workers)
    assert max(reward.most) == workers and all(scores(sample) == [1.0, 1.0] for sample in found)


server = judge_fixture("first")


def most(
    server: JudgeServer, name: str, latency: float, count: int, given: int | None, **settings: Any
) -> int:
    server.set(latency=latency)
    server.reset()
    reward = RewardRegistry.create(
        name, llm=OpenaiLLM("judge-1", base_url=server.base_url, cache=False), **settings
    )
    reward.evaluate_batch(SAMPLES[:count], max_workers=given)
    return int(server.stats()["max_in_flight"])


# the more connections have to be opened, the longer the first replies have to wait for the last
# requests
@pytest.mark.parametrize(("workers", "latency"), [(1, 0.01), (5, 0.1), (40, 0.3)])
@pytest.mark.parametrize("kind", ["listwise", "pairwise", "pointwise"])
def test_as_many_judgements_are_in_flight_as_was_said(
    server: JudgeServer, kind: str, workers: int, latency: float
) -> None:
    assert most(server, f"safety_{kind}_reward", latency, workers + 5, workers) == workers


def test_without_a_number_the_rewards_own_holds_and_two_batches_get_theirs(
    server: JudgeServer,
) -> None:
    for given in (None, 0):
        assert most(server, "safety_listwise_reward", 0.1, 20, given, max_workers=7) == 7
    server.set(latency=0.05)
    server.reset()
    reward = RewardRegistry.create(
        "safety_listwise_reward", llm=OpenaiLLM("j", base_url=server.base_url, cache=False)
    )
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

    # none idle from other tests
    monkeypatch.setattr(library_loop, "_threads", library_loop.DaemonThreads())
    monkeypatch.setattr(threading.Thread, "start", limited)
    done = Sleeps().evaluate_batch(SAMPLES, max_workers=40)
    assert [scores(sample) for sample in done] == [[1.0, 1.0]] * len(SAMPLES)
    monkeypatch.undo()
    (late,) = Sleeps(seconds=20.0).evaluate_batch(SAMPLES[:1], deadline=0.3)
    assert issues(late)[0][1] == "deadline", "threads are still watched"


def test_no_deadline_cuts_nothing() -> None:
    judge = ListJudge(llm=FakeLLM(reply=longest), deadline=None)
    assert scores(judge.evaluate(make_sample("a", "a b"))) == [0.0, 1.0]
    assert scores(Rule(deadline=None).evaluate(SAMPLES[0])) == [1.0, 1.0]
