"""A grader inside a reward, a reward inside a grader, both inside an aggregator: from plain and async code, one budget, one
trace, one outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rm_gallery import Budget, DataSample
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.graders.bridge import as_grader, as_reward
from rm_gallery.core.graders.common import RelevanceGrader
from rm_gallery.core.graders.result import GraderError, GraderScore
from rm_gallery.core.graders.strategy import VotingGrader
from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult
from rm_gallery.core.runner.aggregator import WeightedSumAggregator
from rm_gallery.core.runner.grading_runner import GradingRunner
from tests.support.judge_server import JudgeServer

ROWS = [{"id": f"r{n}", "query": f"q{n}", "response": f"a{n}"} for n in range(4)]


def result(reward: Any, score: float) -> RewardResult:
    return RewardResult(name=reward.name, details=[RewardDimensionWithScore(name=reward.name, score=score, reason="")])


class PlainReward(BasePointWiseReward):
    """Asks a grader from plain code."""

    grader: Any = None

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        found = self.grader.evaluate(query=sample.query_text(), response=sample.output[0].answer.text)
        return result(self, found.score)


class AsyncReward(BasePointWiseReward):
    """Asks a grader from async code."""

    grader: Any = None

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        found = await self.grader.aevaluate(query=sample.query_text(), response=sample.output[0].answer.text)
        return result(self, found.score)


class PlainGrader(BaseGrader):
    """Asks a grader from plain code."""

    inner: Any = None
    score_range: tuple[float | None, float | None] = (1.0, 5.0)

    def _grade(self, query: str, response: str) -> Any:
        return self.inner.evaluate(query=query, response=response)


class AsyncGrader(PlainGrader):
    """Asks a grader from async code."""

    async def _grade(self, query: str, response: str) -> Any:
        return await self.inner.aevaluate(query=query, response=response)


WRAPPED: dict[str, Callable[[BaseGrader], BaseGrader]] = {
    "grader": lambda g: g,
    "grader in a reward": lambda g: as_grader(GraderOnly(g)),
    "grader in a plain reward": lambda g: as_grader(PlainReward(grader=g)),
    "grader in an async reward": lambda g: as_grader(AsyncReward(grader=g)),
    "grader in a plain grader": lambda g: PlainGrader(inner=g),
    "grader in an async grader": lambda g: AsyncGrader(inner=g),
    "reward in a grader in a strategy": lambda g: VotingGrader(as_grader(AsyncReward(grader=g)), n=2),
    "three deep": lambda g: PlainGrader(inner=AsyncGrader(inner=as_grader(PlainReward(grader=g)))),
}


def GraderOnly(grader: BaseGrader) -> Any:
    reward = as_reward(grader)
    reward.name = "wrapped"
    return reward


def made(kind: str, url: str, **settings: Any) -> BaseGrader:
    judge = OpenaiLLM("judge", base_url=url, max_attempts=1, max_outage=1.0)
    return WRAPPED[kind](RelevanceGrader(model=judge, structured=False, repair_attempts=0, **settings))


DOORS: dict[str, Callable[[GradingRunner, Any], dict[str, list[Any]]]] = {
    "run": lambda runner, options: runner.run(ROWS, **options),
    "arun": lambda runner, options: asyncio.run(runner.arun(ROWS, **options)),
    "run inside a loop": lambda runner, options: asyncio.run(_inside(runner, options)),
}


async def _inside(runner: GradingRunner, options: Any) -> Any:
    return runner.run(ROWS, **options)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", WRAPPED)
def test_the_same_scores_calls_and_aggregate(kind: str, door: str) -> None:
    control = RunControl()
    with JudgeServer("fixed:<reason>so</reason><score>4</score>") as server:
        runner = GradingRunner(
            {"one": made(kind, server.base_url), "plain": lambda response: 1.0},
            WeightedSumAggregator("all", weights={"one": 1.0}),
            show_progress=False,
            cache=False,
        )
        found = DOORS[door](runner, {"control": control})
    assert [r.score for r in found["one"]] == [4.0] * 4, found["one"]
    assert all(isinstance(r, GraderScore) for r in found["all"])
    assert control.calls == 4 * (2 if "strategy" in kind else 1), "one run counts what is asked inside"


@pytest.mark.parametrize("kind", [kind for kind in WRAPPED if "strategy" not in kind])
def test_a_budget_holds_for_what_is_inside_and_an_outage_is_never_a_score(kind: str) -> None:
    with JudgeServer("fixed:<reason>so</reason><score>4</score>") as server:
        runner = GradingRunner(
            {"one": made(kind, server.base_url)}, show_progress=False, cache=False, max_concurrency=1
        )
        found = runner.run(ROWS, budget=Budget(max_calls=2))
        assert server.stats()["requests"] <= 2
    assert sum(isinstance(r, GraderScore) for r in found["one"]) == 2, found["one"]
    with JudgeServer("garbage", faults={"unavailable": 1.0}) as server:
        runner = GradingRunner(
            {"one": made(kind, server.base_url)}, WeightedSumAggregator("all"), show_progress=False, cache=False
        )
        found = runner.run(ROWS, deadline=20)
    assert all(isinstance(r, GraderError) for column in found.values() for r in column)


def test_identity_tells_what_is_inside_apart() -> None:
    kinds = {kind: made(kind, "http://127.0.0.1:9/v1") for kind in WRAPPED}
    again = {kind: made(kind, "http://127.0.0.1:9/v1") for kind in WRAPPED}
    other = {kind: made(kind, "http://127.0.0.1:9/v1", language="zh") for kind in WRAPPED}
    for kind in WRAPPED:
        assert kinds[kind].settings_hash == again[kind].settings_hash, kind
        assert kinds[kind].settings_hash != other[kind].settings_hash, kind
    assert as_grader(as_reward(kinds["grader"])) is kinds["grader"], "there and back is the same grader"
    assert len({grader.settings_hash for grader in kinds.values()}) == len(WRAPPED) - 1
