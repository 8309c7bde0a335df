"""What becomes of a judge's pairwise verdicts under each aggregation."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rm_gallery.core.model.fake import FakeLLM
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.group.pairwise import GroupPairWiseReward
from tests.gallery.groups.judges import PAIRWISE, Beats, create, larger, pair_judge, paper_scissors, reason_of
from tests.support.samples import make_sample, scores


def close(value: list[float]) -> Any:
    return pytest.approx(value, abs=1e-9)


EXPECTED: dict[str, list[float]] = {
    "group_win_rate": [0.5, 1.0, 0.0],
    "group_copeland": [0.5, 1.0, 0.0],
}


@pytest.mark.parametrize("name", PAIRWISE)
def test_a_judge_of_one_mind_gives_its_order(name: str) -> None:
    reward = create(name, llm=pair_judge(larger))
    scored = reward.evaluate(make_sample("5", "9", "1"))
    middle, best, worst = (score for score in scores(scored) if score is not None)
    assert 1 >= best > middle > worst >= 0
    if name != "group_elo":
        assert [middle, best + worst] == close([0.5, 1.0])
    if name in EXPECTED:
        assert [middle, best, worst] == EXPECTED[name]
    extra = scored.output[0].answer.reward.extra_data[name]
    assert extra["flip_rate"] == 0
    assert set(extra["pairs"]) == {"0,1", "0,2", "1,2"}


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize(
    ("answers", "beats"),
    [
        (("rock", "scissors", "paper"), paper_scissors),
        (("1", "2", "3", "4"), lambda first, second: 1),
        (("1", "2", "3", "4"), lambda first, second: 2),
    ],
    ids=["cycle", "always the first", "always the second"],
)
def test_a_cycle_and_a_liking_for_a_place_are_ties(name: str, answers: tuple[str, ...], beats: Beats) -> None:
    scored = create(name, llm=pair_judge(beats)).evaluate(make_sample(*answers))
    assert scores(scored) == [0.5] * len(answers)


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("both_orders", [True, False])
def test_calls(name: str, both_orders: bool) -> None:
    reward = create(name, llm=pair_judge(larger), both_orders=both_orders)
    assert len(reward.plan(make_sample("1", "2", "3", "4"))) == (12 if both_orders else 6)


@pytest.mark.parametrize("name", PAIRWISE)
def test_one_missing_verdict_is_no_score_for_anybody(name: str) -> None:
    llm = pair_judge(lambda first, second: 0 if {first, second} == {"1", "2"} else 1)
    scored = create(name, llm=llm, repair_attempts=0).evaluate(make_sample("1", "2", "3"))
    assert scores(scored) == [None] * 3
    assert reason_of(scored) == {("unscored", "parse")}


@pytest.mark.parametrize("name", PAIRWISE)
def test_one_answer_alone_is_no_group(name: str) -> None:
    scored = create(name, llm=pair_judge(larger)).evaluate(make_sample("1"))
    assert reason_of(scored) == {("unscored", "single_output")}


def test_elo_and_bradley_terry_can_be_told_from_their_scores() -> None:
    sample = make_sample("1", "2")
    low, high = scores(create("group_elo", llm=pair_judge(larger)).evaluate(sample))
    assert low is not None and high is not None
    second = 32 * (1 - 1 / (1 + 10 ** (-32 / 400)))
    assert 400 * math.log10(high / (1 - high)) == pytest.approx(16 + second)
    # two wins and half a drawn game against the phantom each
    low, high = scores(create("group_bradley_terry", llm=pair_judge(larger)).evaluate(sample))
    assert low is not None and high is not None
    strength = math.log(high / (1 - high))
    assert 1 * high + 2 / (1 + math.exp(-2 * strength)) == pytest.approx(2.5, abs=1e-6)


def test_the_prior_is_a_setting() -> None:
    spread = []
    for prior in (0.1, 1.0, 50.0):
        found = scores(
            create("group_bradley_terry", llm=pair_judge(larger), prior=prior).evaluate(make_sample("1", "2"))
        )
        spread.append((found[1] or 0) - (found[0] or 0))
    assert spread[0] > spread[1] > spread[2] > 0


@pytest.mark.parametrize("aggregation", ["win_rate", "copeland", "elo", "bradley_terry"])
def test_one_class_does_them_all(aggregation: str) -> None:
    single = GroupPairWiseReward(llm=pair_judge(larger), aggregation=aggregation, name="mine")  # type: ignore[arg-type]
    named = create(f"group_{aggregation}", llm=pair_judge(larger))
    sample = make_sample("3", "1", "2", "7")
    assert scores(single.evaluate(sample)) == scores(named.evaluate(sample))


def test_an_aggregation_that_is_none_is_refused() -> None:
    with pytest.raises((ConfigError, ValueError), match="aggregation"):
        create("group_elo", llm=FakeLLM(), aggregation="borda")
