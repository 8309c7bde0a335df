"""Perfect, worst, always-first and always-last judges get what they deserve, under every judged name."""

from __future__ import annotations

import pytest

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
    scores,
    tasks,
)

SIZES = {**dict.fromkeys(LISTWISE, 40), **dict.fromkeys(POINTWISE, 4), **dict.fromkeys(PAIRWISE, 2)}
WORKERS = 32


@pytest.mark.parametrize("name", NAMES)
def test_a_perfect_judge_is_always_right(judge: Judge, name: str) -> None:
    language = LANGUAGES[NAMES.index(name) % 2]
    judge.behave("perfect")
    reward = judge.reward(name, language=language)
    samples = tasks(min(SIZES[name], 10))
    assert accuracy(reward, reward.evaluate_batch(samples, max_workers=WORKERS)) == (len(samples), 1.0)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_worst_judge_is_always_wrong(judge: Judge, name: str) -> None:
    judge.behave("worst")
    reward = judge.reward(name)
    samples = tasks(min(SIZES[name], 10))
    scored = reward.evaluate_batch(samples, max_workers=WORKERS)
    assert accuracy(reward, scored) == (len(samples), 0.0)
    for sample in scored:
        right, *wrong = [score for score in scores(reward, sample) if score is not None]
        assert right == reward.score_range[0]
        assert max(wrong) > right


@pytest.mark.parametrize("behaviour", ["first", "last"])
@pytest.mark.parametrize("name", LISTWISE[:1])
def test_a_place_in_the_list_is_worth_what_guessing_is(judge: Judge, name: str, behaviour: str) -> None:
    judge.behave(behaviour)
    reward = judge.reward(name)
    samples = tasks(SIZES[name])
    n_scored, share = accuracy(reward, reward.evaluate_batch(samples, max_workers=WORKERS))
    low, high = chance_interval([1 / 4] * len(samples))
    assert n_scored == len(samples)
    assert share is not None
    assert low <= share <= high < 0.5


@pytest.mark.parametrize("behaviour", ["first", "last"])
@pytest.mark.parametrize("name", PAIRWISE[:1])
def test_a_place_in_a_pair_gives_nothing_but_draws(judge: Judge, name: str, behaviour: str) -> None:
    judge.behave(behaviour)
    reward = judge.reward(name)
    for sample in reward.evaluate_batch(tasks(SIZES[name]), max_workers=WORKERS):
        assert scores(reward, sample) == [0.5] * 4
        assert {o.answer.reward.extra_data[name]["flip_rate"] for o in sample.output} == {1.0}


@pytest.mark.parametrize("name", POINTWISE[:1])
def test_a_judge_who_likes_everything_prefers_nothing(judge: Judge, name: str) -> None:
    judge.behave("first")
    reward = judge.reward(name)
    found = [scores(reward, sample) for sample in reward.evaluate_batch(tasks(SIZES[name]), max_workers=WORKERS)]
    assert found == [[10.0] * 4] * SIZES[name]


@pytest.mark.parametrize("name", PAIRWISE[:1])
def test_both_orders_agree_about_the_right_answer_only(judge: Judge, name: str) -> None:
    judge.behave("perfect")
    reward = judge.reward(name)
    (sample,) = reward.evaluate_batch(tasks(1), max_workers=WORKERS)
    # between two wrong answers this judge takes the first it sees, so those three of six pairs are draws
    assert scores(reward, sample) == pytest.approx([1.0, 1 / 3, 1 / 3, 1 / 3])
    assert sample.output[0].answer.reward.extra_data[name]["flip_rate"] == 0.5
