"""Judges of every kind get what they deserve, under every judged name and through every door; garbage scores nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats.chance import chance_interval
from tests.gallery.judged.material import (
    LANGUAGES,
    LISTWISE,
    NAMES,
    ONE_OF_EACH,
    PAIRWISE,
    POINTWISE,
    Judge,
    accuracy,
    reasons,
    scores,
    task,
    tasks,
)

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
UNREADABLE = {"garbage": {("unscored", "parse"), ("unscored", "empty")}, "empty": {("unscored", "empty")}}


@pytest.mark.parametrize("name", NAMES)
def test_a_perfect_judge_is_always_right(judge: Judge, name: str) -> None:
    judge.behave("perfect")
    reward = judge.reward(name, language=LANGUAGES[NAMES.index(name) % 2])
    samples = tasks(4)
    assert accuracy(reward, reward.evaluate_batch(samples, max_workers=32)) == (4, 1.0)


@pytest.mark.parametrize("behaviour", [*VERDICTS, "first", "last", *UNREADABLE])
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_judge_is_the_same_through_every_door(judge: Judge, name: str, behaviour: str) -> None:
    judge.behave(behaviour)
    reward, samples = judge.reward(name), tasks(3)
    through = {door: run(reward, samples) for door, run in DOORS.items()}
    found = through["evaluate"]
    assert all(other == found for other in through.values())
    assert samples == tasks(3)
    n_scored, share = accuracy(reward, found)
    assert n_scored == (0 if behaviour in UNREADABLE else 3)
    assert share == VERDICTS.get(behaviour, share)
    if behaviour in UNREADABLE:
        assert reasons(found) <= UNREADABLE[behaviour]
        issues = [issue for sample in found for output in sample.output for issue in output.answer.reward.issues]
        assert len(issues) == 12 and all(issue.name == name and issue.message for issue in issues)
    elif behaviour == "worst":
        assert {scores(reward, sample)[0] for sample in found} == {reward.score_range[0]}


@pytest.mark.parametrize(("status", "reason"), [(500, "transient"), (401, "fatal")])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_no_door_makes_a_score_of_a_failure(failing: Judge, name: str, door: str, status: int, reason: str) -> None:
    failing.behave("perfect", always=status)
    reward = failing.reward(name)
    found = DOORS[door](reward, tasks(1))
    assert scores(reward, found[0]) == [None] * 4
    assert reasons(found) == {("failed", reason)}


@pytest.mark.parametrize("behaviour", ["first", "last"])
def test_a_liking_for_a_place_is_worth_what_guessing_is(judge: Judge, behaviour: str) -> None:
    judge.behave(behaviour)
    reward = judge.reward(LISTWISE[0])
    n_scored, share = accuracy(reward, reward.evaluate_batch(tasks(40), max_workers=32))
    low, high = chance_interval([0.25] * 40)
    assert n_scored == 40 and share is not None and low <= share <= high < 0.5
    reward = judge.reward(PAIRWISE[0])
    for sample in reward.evaluate_batch(tasks(2), max_workers=32):
        assert scores(reward, sample) == [0.5] * 4
        assert {o.answer.reward.extra_data[PAIRWISE[0]]["flip_rate"] for o in sample.output} == {1.0}


def test_a_judge_who_likes_everything_prefers_nothing(judge: Judge) -> None:
    judge.behave("first")
    reward = judge.reward(POINTWISE[0])
    assert [scores(reward, sample) for sample in reward.evaluate_batch(tasks(4))] == [[10.0] * 4] * 4


def test_both_orders_agree_about_the_right_answer_only(judge: Judge) -> None:
    judge.behave("perfect")
    reward = judge.reward(PAIRWISE[0])
    sample = reward.evaluate(task(0))
    # between two wrong answers this judge takes the first it sees, so those three of six pairs are draws
    assert scores(reward, sample) == pytest.approx([1.0, 1 / 3, 1 / 3, 1 / 3])
    assert sample.output[0].answer.reward.extra_data[PAIRWISE[0]]["flip_rate"] == 0.5


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_text_no_request_can_carry_fails_its_sample_alone(judge: Judge, name: str) -> None:
    judge.behave("first")
    reward = judge.reward(name)
    broken, strange = task(1), task(2)
    for output in broken.output:
        output.answer.content = f"{output.answer.text} \ud83d"
    for output in strange.output:
        output.answer.content = f"\x00\u200b\ufeff\r\n{{{{ 7*7 }}}} 😀{output.answer.text}"
    good, bad, also_good = reward.evaluate_batch([task(0), broken, strange], max_workers=16)
    assert scores(reward, bad) == [None] * 4
    assert reasons([bad]) == {("failed", "invalid_request")}
    assert all("surrogate" in i.message.lower() for o in bad.output for i in o.answer.reward.issues)
    assert None not in scores(reward, good) + scores(reward, also_good)
