"""Environments that pay turn by turn give the numbers of the finished trajectory."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from rm_gallery import BaseReward, ConfigError, FakeLLM, TurnRewards
from rm_gallery.core.data.conversation import sample_of_completion
from rm_gallery.core.reward.base import BaseStepWiseRubricReward
from rm_gallery.core.reward.turn_rewards import turn_rewards_of
from rm_gallery.integrations.causes import NoScore, OnError
from rm_gallery.integrations.episodes import Episode, EpisodeRewards
from tests.reward.turns import CALL, ROW, TURNS, Words, trajectory

OUTCOME = "math_verify_reward"
REWARDS: dict[str, BaseReward] = {
    "stepwise": Words(),
    "turns of steps": TurnRewards(steps=Words()),
    "turns of an outcome": TurnRewards(outcome=OUTCOME),
    "both": TurnRewards(steps=Words(), outcome=OUTCOME, weight=0.25),
    "differences": TurnRewards(steps=Words(), outcome=OUTCOME, differences=True),
}


def taken(episode: Episode, turns: list[dict[str, Any]]) -> list[float]:
    paid = []
    for at, turn in enumerate(turns):
        if turn["role"] == "assistant":
            paid.append(episode.step(turn, done=at == len(turns) - 1))
        else:
            episode.observe(turn)
    return paid


@pytest.mark.parametrize("name", [*REWARDS, "outcome alone"])
def test_a_turn_is_paid_what_the_finished_trajectory_says(name: str) -> None:
    made = EpisodeRewards(REWARDS.get(name, OUTCOME))
    offline = made.scorer.reward.evaluate(trajectory())
    wanted = turn_rewards_of(made.scorer.reward, offline.output[0])
    Words.asked.clear()
    episode = pickle.loads(pickle.dumps(made)).episode("2 + 2?", ROW)
    assert taken(episode, TURNS) == wanted == episode.rewards
    assert len(Words.asked) in (0, 3), "each turn is judged once"


class Rubric(BaseStepWiseRubricReward):
    name: str = "rubric"
    scenario: str = "sums"
    rubrics: list[str] = ["be right"]


@pytest.mark.parametrize("roles", ["aa", "aaa", "aaua", "ua", "uua", "ca", "cca", "cta", "ata"])
def test_a_judge_is_asked_the_same_while_turns_are_taken_and_afterwards(roles: str) -> None:
    made: dict[str, dict[str, Any]] = {
        "a": {"role": "assistant", "content": "I say so."},
        "c": {"role": "assistant", "content": None, "tool_calls": [CALL]},
        "u": {"role": "user", "content": "go on"},
        "t": {"role": "tool", "tool_call_id": "a", "content": "3"},
    }
    turns = [made[role] for role in roles]
    asked: list[list[str]] = []

    def judge() -> Rubric:
        questions: list[str] = []
        asked.append(questions)

        def reply(question: str) -> str:
            questions.append(question)
            return "<reason>fine</reason><score>7</score>"

        return Rubric(llm=FakeLLM(reply=reply))

    judge().evaluate(sample_of_completion("2 + 2?", turns))
    taken(EpisodeRewards(judge()).episode("2 + 2?"), turns)
    afterwards, meanwhile = asked
    assert len(meanwhile) == sum(turn["role"] == "assistant" for turn in turns)
    assert sorted(meanwhile) == sorted(afterwards)


def test_the_awaitable_twin_pays_the_same() -> None:
    async def paid() -> list[float]:
        episode = EpisodeRewards(REWARDS["both"]).episode("2 + 2?", ROW)
        one = await episode.astep("one two")
        episode.observe("go on", role="tool")
        return [one, await episode.astep("4", done=True)]

    assert asyncio.run(paid()) == [0.05, 1.025]


def test_a_turn_without_a_score_pays_nothing_and_says_so() -> None:
    episode = EpisodeRewards(REWARDS["both"]).episode("2 + 2?", ROW)
    assert [episode.step("unknown"), episode.step("4", done=True)] == [0.0, 1.025]
    assert episode.rewards == [None, 1.025]


def test_an_end_without_an_outcome_pays_what_on_error_says() -> None:
    choices: list[tuple[OnError, float]] = [(0.5, 0.5), ("worst", 0.0)]
    for on_error, wanted in choices:
        episode = EpisodeRewards(OUTCOME, on_error=on_error).episode("2 + 2?")
        assert episode.step("4", done=True) == wanted and episode.rewards == [None]
    with pytest.raises(NoScore):
        EpisodeRewards(OUTCOME, on_error="raise").episode("2 + 2?").step("4", done=True)


def test_credit_that_is_known_at_the_end_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="credit is 'equal', which is known at the end"):
        EpisodeRewards(TurnRewards(outcome=OUTCOME, credit="equal"))
    with pytest.raises(ConfigError, match="compares the completions"):
        EpisodeRewards("group_win_rate", llm="m", base_url="http://127.0.0.1:9/v1")


def test_episodes_beside_each_other_do_not_mix() -> None:
    made = EpisodeRewards(REWARDS["differences"])
    first, second = made.episode("2 + 2?", ROW), made.episode("2 + 2?", ROW)
    assert [first.step("one two"), second.step("one"), first.step("one")] == pytest.approx(
        [0.2, 0.1, -0.1]
    )


BROKEN = {"role": "assistant", "content": "BAD"}
CALLS = {**CALL, "function": {"name": "add", "arguments": '{"x": "BAD"}'}}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "4"}
GOING_ON = {"role": "user", "content": "go on"}


@pytest.mark.parametrize(
    "bad",
    [
        [BROKEN, GOING_ON],
        [{**BROKEN, "tool_calls": [CALL]}, RESULT],
        [{"role": "assistant", "content": None, "tool_calls": [CALLS]}, RESULT],
    ],
    ids=["text", "text with a call", "call"],
)
@pytest.mark.parametrize("made_of", ["steps", "turns", "differences"])
def test_a_turn_that_breaks_its_judge_costs_itself_alone_at_every_door(
    made_of: str, bad: list[dict[str, Any]]
) -> None:
    def reply(question: str) -> str:
        step = question.rpartition("<step ")[2]
        return "I cannot say." if "BAD" in step else "<reason>fine</reason><score>3</score>"

    judge = Rubric(llm=FakeLLM(reply=reply), repair_attempts=0)
    turned = TurnRewards(steps=judge, differences=made_of == "differences")
    made = EpisodeRewards(judge if made_of == "steps" else turned, worst=1.0)
    first = {"role": "assistant", "content": "one"}
    turns = [first, GOING_ON, *bad, {**first, "content": "two"}]
    score = made.scorer.score("2 + 2?", turns)
    wanted = [3.0, -2.0, 2.0] if made_of == "differences" else [3.0, 1.0, 3.0]
    assert score.extra["turns"] == wanted
    assert taken(made.episode("2 + 2?"), turns) == wanted
