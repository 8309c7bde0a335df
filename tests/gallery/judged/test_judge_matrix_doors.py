"""Every door tells the same about a judge: one sample, a batch, a coroutine, a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from tests.gallery.judged.material import ONE_OF_EACH, Judge, accuracy, reasons, tasks

Door = Callable[[BaseReward, list[DataSample]], list[DataSample]]


def _awaited(reward: BaseReward, samples: list[DataSample]) -> list[DataSample]:
    async def all_at_once() -> list[DataSample]:
        return list(await asyncio.gather(*(reward.async_evaluate(sample) for sample in samples)))

    return asyncio.run(all_at_once())


DOORS: dict[str, Door] = {
    "evaluate": lambda reward, samples: [reward.evaluate(sample) for sample in samples],
    "evaluate_batch": lambda reward, samples: reward.evaluate_batch(samples, max_workers=16),
    "async_evaluate": _awaited,
    "evaluate_stream": lambda reward, samples: list(reward.evaluate_stream(iter(samples), max_workers=16)),
}
VERDICTS: dict[str, float] = {"perfect": 1.0, "worst": 0.0}
POSITIONS = ("first", "last")
UNREADABLE = ("garbage", "empty")
FAULTS = {500: ("failed", "transient"), 401: ("failed", "fatal")}


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_verdict_is_the_same_through_every_door(judge: Judge, name: str) -> None:
    judge.behave("perfect")
    reward = judge.reward(name)
    samples = tasks(1)
    through = {door: run(reward, samples) for door, run in DOORS.items()}
    assert all(found == through["evaluate_batch"] for found in through.values())
    assert accuracy(reward, through["evaluate"]) == (1, 1.0)
    assert samples == tasks(1)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_no_door_makes_a_score_of_a_failure(failing: Judge, name: str) -> None:
    failing.behave("perfect", always=500)
    reward = failing.reward(name)
    for run in DOORS.values():
        found = run(reward, tasks(1))
        assert accuracy(reward, found) == (0, None)
        assert reasons(found) == {FAULTS[500]}


@pytest.mark.parametrize("behaviour", [*VERDICTS, *POSITIONS, *UNREADABLE])
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_judge_is_the_same_through_every_door(judge: Judge, name: str, behaviour: str) -> None:
    judge.behave(behaviour)
    reward = judge.reward(name)
    samples = tasks(4)
    through = {door: run(reward, samples) for door, run in DOORS.items()}
    assert all(found == through["evaluate_batch"] for found in through.values())
    n_scored, share = accuracy(reward, through["evaluate"])
    assert n_scored == (0 if behaviour in UNREADABLE else 4)
    assert share == VERDICTS.get(behaviour, share)


@pytest.mark.parametrize("status", FAULTS)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_failure_is_the_same_through_every_door(failing: Judge, name: str, door: str, status: int) -> None:
    failing.behave("perfect", always=status)
    reward = failing.reward(name)
    found = DOORS[door](reward, tasks(1))
    assert accuracy(reward, found) == (0, None)
    assert reasons(found) == {FAULTS[status]}
