"""The same reward on the same sample gives the same result through every door."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from rm_gallery.core.data.schema import DataSample, Step
from rm_gallery.core.models import FakeLLM
from rm_gallery.core.reward.reward import BaseReward
from tests.reward.rewards import (
    AsyncRule,
    CpuBound,
    ListJudge,
    ListRule,
    PairJudge,
    PairRule,
    PointJudge,
    Rule,
    StepJudge,
    StepRule,
    longest,
)
from tests.support.samples import make_sample

Door = Callable[[BaseReward, Sequence[DataSample]], list[DataSample]]


def samples() -> list[DataSample]:
    """Samples of one to four answers of different lengths, the answers with steps, one sample without an answer."""
    found = []
    for k in range(12):
        sample = make_sample(*("word " * ((3 * k + j) % 5 + 1) for j in range(k % 4 + 1)), unique_id=str(k))
        for j, output in enumerate(sample.output):
            output.steps = [Step(content="step " * (s + j)) for s in range(k % 3)] or None
        found.append(sample)
    return [*found, make_sample(unique_id="none")]


async def gathered(reward: BaseReward, given: Sequence[DataSample]) -> list[DataSample]:
    return list(await asyncio.gather(*(reward.async_evaluate(sample) for sample in given)))


async def bounded(reward: BaseReward, given: Sequence[DataSample]) -> list[DataSample]:
    two = asyncio.Semaphore(2)
    return list(await asyncio.gather(*(reward.async_evaluate(sample, semaphore=two) for sample in given)))


DOORS: dict[str, Door] = {
    "evaluate": lambda reward, given: [reward.evaluate(sample) for sample in given],
    "evaluate of dicts": lambda reward, given: [reward.evaluate(sample.model_dump()) for sample in given],
    "async_evaluate": lambda reward, given: asyncio.run(gathered(reward, given)),
    "async_evaluate with a semaphore": lambda reward, given: asyncio.run(bounded(reward, given)),
    "evaluate_batch of one worker": lambda reward, given: reward.evaluate_batch(given, max_workers=1),
    "evaluate_batch of many workers": lambda reward, given: reward.evaluate_batch(given, max_workers=64),
    "evaluate_batch of an iterator": lambda reward, given: reward.evaluate_batch(iter(given)),
    "evaluate_stream": lambda reward, given: list(reward.evaluate_stream(given)),
}
PLAIN: list[type[BaseReward]] = [Rule, AsyncRule, CpuBound, ListRule, PairRule, StepRule]
JUDGED: list[type[BaseReward]] = [PointJudge, ListJudge, PairJudge, StepJudge]


def build(kind: type[BaseReward]) -> BaseReward:
    return kind(llm=FakeLLM(reply=longest)) if kind.judged else kind()


@pytest.mark.parametrize("kind", [*PLAIN, *JUDGED], ids=lambda kind: kind.__name__)
def test_every_door_gives_the_same(kind: type[BaseReward]) -> None:
    reward, given = build(kind), samples()
    untouched = [sample.model_copy(deep=True) for sample in given]
    expected = [sample.model_dump() for sample in DOORS["evaluate"](reward, given)]
    rewards = [o["answer"]["reward"] for s in expected for o in s["output"]]
    rewards += [step["reward"] for s in expected for o in s["output"] for step in o["steps"] or ()]
    assert any(reward["score"] is not None for reward in rewards)
    for name, door in DOORS.items():
        assert [sample.model_dump() for sample in door(reward, given)] == expected, name
    assert given == untouched


@pytest.mark.parametrize("kind", [Rule, AsyncRule, CpuBound], ids=lambda kind: kind.__name__)
def test_hooks_get_the_callers_keywords_through_every_door(kind: type[BaseReward]) -> None:
    reward, sample = kind(), make_sample("two words")
    results = [
        reward.evaluate(sample, hooks={"bonus": 10}),
        asyncio.run(reward.async_evaluate(sample, hooks={"bonus": 10})),
        reward.evaluate_batch([sample], hooks={"bonus": 10})[0],
        next(reward.evaluate_stream([sample], hooks={"bonus": 10})),
    ]
    assert [result.output[0].answer.reward.score for result in results] == [12.0] * 4
