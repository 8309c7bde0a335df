"""Kinds × scorers × doors × where the call is made: the same result bit for bit, or one documented
error at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import pytest

from rm_gallery import BaseReward, ConfigError, DataSample, FakeLLM, Gate, Step, WeightedSum
from tests.reward import rewards as r
from tests.reward.rewards import ListRule, PointJudge, Rule, StepRule, longest
from tests.support.samples import make_sample, scores, through

Doors = dict[str, Callable[[BaseReward, Sequence[DataSample]], list[DataSample]]]


class ListInWorker(ListRule):
    cpu_bound: ClassVar[bool] = True


class StepInWorker(StepRule):
    cpu_bound: ClassVar[bool] = True


KINDS: dict[type[BaseReward], Any] = {
    **dict.fromkeys((Rule, r.AsyncRule, r.CpuBound, PointJudge), [1.0, 3.0, 2.0]),
    **dict.fromkeys((ListRule, ListInWorker), [1.0, 3.0, 2.0]),
    r.ListJudge: [0.0, 1.0, 0.0],
    **dict.fromkeys((r.PairRule, r.PairJudge), [0.0, 1.0, 0.5]),
    **dict.fromkeys((StepRule, StepInWorker), [[101.0, 202.0]] * 3),
    r.StepJudge: [[1.0, 2.0]] * 3,
}
"""A reward of every kind and scorer, and what it makes of three answers of one, three and two words
with two steps each.
"""
REWARDS: list[BaseReward] = [
    kind(llm=FakeLLM(reply=longest)) if kind.judged else kind() for kind in KINDS
]
REWARDS += [
    Gate(Rule(), ListRule(), threshold=2.0, otherwise=0.0),
    WeightedSum([Rule(), PointJudge(llm=FakeLLM(reply=longest))]),
]
KINDS |= {Gate: [0.0, 3.0, 2.0], WeightedSum: [2.0, 6.0, 4.0]}


def three() -> DataSample:
    made = make_sample("one", "one two three", "one two")
    for output in made.output:
        output.steps = [Step(content="first"), Step(content="and second")]
    return made


def samples() -> list[DataSample]:
    """Samples of no to four answers of different lengths, with and without steps."""
    found = [three()]
    for k in range(8):
        sample = make_sample(
            *("word " * ((3 * k + j) % 5 + 1) for j in range(k % 5)), unique_id=str(k)
        )
        for j, output in enumerate(sample.output):
            output.steps = [Step(content="step " * (s + j)) for s in range(k % 3)] or None
        found.append(sample)
    return found


async def gathered(
    reward: BaseReward, given: Sequence[DataSample], bound: int = 0
) -> list[DataSample]:
    settings: dict[str, Any] = {"semaphore": asyncio.Semaphore(bound)} if bound else {}
    return list(
        await asyncio.gather(*(reward.async_evaluate(sample, **settings) for sample in given))
    )


BLOCKING: Doors = {
    name: partial(through, name) for name in ("evaluate", "evaluate_batch", "evaluate_stream")
}


def with_a_pool(reward: BaseReward, given: Sequence[DataSample]) -> list[DataSample]:
    with ThreadPoolExecutor(1) as pool:
        found = [
            reward.evaluate(given[0], thread_pool=pool),
            *reward.evaluate_batch(given[1:], thread_pool=pool),
        ]
        assert pool.submit(int, "3").result(10) == 3, "the pool is left to its owner"
    return found


def in_threads(reward: BaseReward, given: Sequence[DataSample]) -> list[DataSample]:
    with ThreadPoolExecutor(6) as pool:
        whole = list(pool.map(reward.evaluate_batch, [given] * 6))
    assert all(each == whole[0] for each in whole)
    return whole[0]


def under_a_loop(reward: BaseReward, given: Sequence[DataSample]) -> list[DataSample]:
    async def notebook() -> list[list[DataSample]]:
        return [call(reward, given) for call in BLOCKING.values()]

    found = asyncio.run(notebook())
    assert found[1:] == found[:-1]
    return found[0]


DOORS: Doors = {
    **BLOCKING,
    **{f"async_{name}": partial(through, f"async_{name}") for name in BLOCKING},
    "gathered": lambda reward, given: asyncio.run(gathered(reward, given)),
    "a second loop": lambda reward, given: asyncio.run(gathered(reward, given)),
    "a semaphore": lambda reward, given: asyncio.run(gathered(reward, given, bound=2)),
    "dicts": lambda reward, given: reward.evaluate_batch([sample.model_dump() for sample in given]),
    "one worker": lambda reward, given: reward.evaluate_batch(given, max_workers=1),
    "many workers": lambda reward, given: reward.evaluate_batch(given, max_workers=64),
    "an iterator": lambda reward, given: reward.evaluate_batch(iter(given)),
    "a pool as an argument": with_a_pool,
    "threads": in_threads,
    "a running loop": under_a_loop,
}


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward.name)
def test_every_door_gives_the_same_and_leaves_what_it_is_given(reward: BaseReward) -> None:
    given = samples()
    expected = [sample.model_dump() for sample in DOORS["evaluate"](reward, given)]
    for name, door in DOORS.items():
        assert [sample.model_dump() for sample in door(reward, given)] == expected, name
    assert given == samples()
    found = reward.evaluate(three())
    steps = [[step.reward.score for step in output.steps or ()] for output in found.output]
    assert (steps if reward.kind == "stepwise" else scores(found)) == KINDS[type(reward)]


@pytest.mark.parametrize("reward", [Rule(), r.AsyncRule(), WeightedSum([Rule()])])
def test_a_stream_begun_in_an_event_loop_outlives_it(reward: BaseReward) -> None:
    """The loop ended it with its own generators, as if there were no more samples."""
    given = [make_sample(f"answer {k}") for k in range(6)]

    async def begin() -> list[Any]:
        going = reward.evaluate_stream(given)
        return [next(going), going]

    first, going = asyncio.run(begin())
    assert [scores(one) for one in (first, *going)] == [[2.0]] * 6


def test_a_blocking_stream_is_refused_where_it_would_wait_for_itself() -> None:
    going = r.AsyncRule().evaluate_stream([make_sample("one")])

    class Waits(r.AsyncRule):
        async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
            next(going)

    with pytest.raises(ConfigError, match="would wait for itself"):
        Waits().evaluate(make_sample("one"))
