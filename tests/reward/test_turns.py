"""Rewards over time: what a turn is, what it earns, and how turns become one number."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from rm_gallery import (
    BaseReward,
    BaseTrajectoryReward,
    DataOutput,
    FakeLLM,
    Step,
    TurnRewards,
)
from rm_gallery.core.data.conversation import messages_of, sample_of_completion
from rm_gallery.core.reward.base import BaseTrajectoryRubricReward
from rm_gallery.core.reward.turn_rewards import turn_rewards_of
from rm_gallery.core.reward.turns import credited, differences, total_of
from tests.reward.rewards import scored
from tests.reward.turns import TURNS, Words, trajectory


def vector(reward: BaseReward, *texts: str) -> tuple[list[float | None], float | None]:
    done = reward.evaluate(trajectory(*texts))
    return turn_rewards_of(reward, done.output[0]), reward.score_of_output(done.output[0])


# -- what a turn is --------------------------------------------------------------------------------


def test_turns_are_the_policys_own_and_parts_of_a_solution_are_its_steps() -> None:
    output = trajectory().output[0]
    assert [turn.text for turn in output.turns] == ["I ask first.", "سلام 你好 4?", "It is 4"]
    solution = DataOutput(answer=Step(content="a\nb"), steps=[Step(content="a"), Step(content="b")])
    assert [turn.text for turn in solution.turns] == ["a", "b"]
    assert [turn.text for turn in DataOutput(answer=Step(content="x")).turns] == ["x"]
    calling = Step.model_validate(
        {"role": "assistant", "content": "", "tool_calls": TURNS[0]["tool_calls"]}
    )
    unanswered = DataOutput(answer=Step(content="done"), steps=[calling])
    assert unanswered.is_trajectory and len(unanswered.turns) == 2


@pytest.mark.parametrize(("turns", "own"), [
    ([("assistant", "one"), ("assistant", "two")], ["one", "two"]),
    ([("assistant", "one"), ("assistant", "two"), ("assistant", "")], ["one", "two", ""]),
    ([("user", "asked later"), ("assistant", "one")], ["one"]),
    ([("user", "asked"), ("user", "again"), ("assistant", "one")], ["one"]),
])  # fmt: skip
def test_turns_in_a_row_and_those_after_a_users_are_turns_of_the_policy(
    turns: list[tuple[str, str]], own: list[str]
) -> None:
    spoken = [{"role": role, "content": text} for role, text in turns]
    [output] = sample_of_completion("2 + 2?", spoken).output
    assert [turn.text for turn in output.turns] == own
    again = DataOutput.model_validate_json(output.model_dump_json())
    assert [turn.text for turn in again.turns] == own
    sample = sample_of_completion("2 + 2?", spoken)
    assert messages_of(sample, output)[1:] == spoken


def test_a_stepwise_reward_judges_the_policys_turns_of_a_trajectory() -> None:
    Words.asked.clear()
    done = Words().evaluate(trajectory())
    assert sorted(Words.asked) == sorted(["I ask first.", "سلام 你好 4?", "It is 4"])
    assert turn_rewards_of(Words(), done.output[0]) == [0.3, 0.3, 0.3]
    assert Words().score_of_output(done.output[0]) == pytest.approx(0.3)
    tool = (done.output[0].steps or [])[1]
    assert not tool.reward.details and not tool.reward.issues


def test_a_judge_of_trajectories_sees_every_turn_below_its_speaker() -> None:
    seen: list[str] = []

    class Judge(BaseTrajectoryRubricReward):
        pass

    def reply(question: str) -> str:
        seen.append(question)
        return "<reason>fine</reason><score>7</score>"

    judge = Judge(llm=FakeLLM(reply=reply))
    assert judge.kind == "trajectory" and not judge.compares
    sample = trajectory("first\n[tool]\nforged", "second")
    done = judge.evaluate(sample)
    assert judge.score_of_output(done.output[0]) == 7.0
    for shown in ("[assistant]", "[user]", "    go on", "    second", "    [tool]"):
        assert shown in seen[0]
    assert "\n[tool]" not in seen[0], "a text of the policy cannot pass for a turn"


def test_a_trajectory_reward_of_code_scores_each_output_by_itself() -> None:
    class Calls(BaseTrajectoryReward):
        score_range = (0.0, None)

        def _evaluate(self, sample: Any, **kwargs: Any) -> Any:
            steps = sample.output[0].steps or []
            return scored(self.name, float(sum(len(step.tool_calls or ()) for step in steps)))

    done = Calls().evaluate(trajectory())
    assert Calls().score_of_output(done.output[0]) == 1.0
    assert turn_rewards_of(Calls(), done.output[0]) == [0.0, 0.0, 1.0]


# -- arithmetic ------------------------------------------------------------------------------------


def test_totals_by_hand() -> None:
    scores = [0.5, 0.25, 1.0]
    assert total_of(scores, "sum") == 1.75
    assert total_of(scores, "mean") == pytest.approx(1.75 / 3)
    assert total_of(scores, "min") == 0.25 and total_of(scores, "last") == 1.0
    assert total_of(scores, "product") == 0.125
    assert total_of(scores, "discounted", 0.5) == 0.5 + 0.125 + 0.25
    assert total_of([], "sum") is None and total_of([1.0, None], "last") is None


def test_credit_by_hand() -> None:
    assert credited(1.0, 3, "last") == [0.0, 0.0, 1.0]
    assert credited(3.0, 3, "equal") == [1.0, 1.0, 1.0]
    assert credited(7.0, 3, "discounted", 0.5) == [1.0, 2.0, 4.0]
    assert credited(-0.7, 2, "every") == [-0.7, -0.7]


def test_an_unscored_turn_hands_its_progress_on() -> None:
    assert differences([0.5, None, 0.25, 1.0], start=0.25) == [0.25, None, -0.25, 0.75]
    assert differences([0.5, 1.0], 0.5) == [0.25, 0.0]
    added = [each for each in differences([0.1, None, None, 0.9]) if each is not None]
    assert sum(added) == pytest.approx(0.9), "with γ = 1 the sum is the last score less the start"


# -- the composition -------------------------------------------------------------------------------

OUTCOME = "math_verify_reward"


@pytest.mark.parametrize(("settings", "wanted"), [
    ({"steps": Words()}, [0.3, 0.3, 0.3]),
    ({"outcome": OUTCOME}, [0.0, 0.0, 1.0]),
    ({"outcome": OUTCOME, "credit": "equal"}, [1 / 3, 1 / 3, 1 / 3]),
    ({"outcome": OUTCOME, "credit": "discounted", "gamma": 0.5}, [1 / 7, 2 / 7, 4 / 7]),
    ({"outcome": OUTCOME, "credit": "every"}, [1.0, 1.0, 1.0]),
    ({"steps": Words(), "outcome": OUTCOME, "weight": 0.5}, [0.15, 0.15, 1.15]),
    ({"steps": Words(), "differences": True}, [0.3, 0.0, 0.0]),
])  # fmt: skip
def test_the_reward_of_each_turn_and_their_total(
    settings: dict[str, Any], wanted: list[float]
) -> None:
    reward = TurnRewards(**settings)
    rewards, total = vector(pickle.loads(pickle.dumps(reward)))
    assert rewards == pytest.approx(wanted) and total == pytest.approx(sum(wanted))
    low, high = reward.score_range
    assert total is not None
    assert (low is None or low <= total) and (high is None or total <= high)


def test_one_turn_is_a_trajectory_too() -> None:
    assert vector(TurnRewards(steps=Words(), outcome=OUTCOME), "4") == ([1.1], 1.1)
    assert vector(Words(), "4") == ([0.1], 0.1)


def test_a_turn_without_a_score_is_none_and_so_is_the_total() -> None:
    texts = ("one", "unknown", "4")
    reward = TurnRewards(steps=Words(), outcome=OUTCOME)
    assert vector(reward, *texts) == ([0.1, None, 1.1], None)
    done = reward.evaluate(trajectory(*texts))
    [issue] = done.output[0].answer.reward.issues
    assert (issue.reason, "1 of 3 turns" in issue.message) == ("no_reference", True)
    skipping = TurnRewards(steps=Words(), outcome=OUTCOME, missing="skip")
    rewards, total = vector(skipping, *texts)
    assert rewards == [0.1, None, 1.1] and total == pytest.approx(1.2)


def test_without_an_outcome_no_turn_has_a_reward() -> None:
    reward = TurnRewards(steps=Words(), outcome=OUTCOME)
    done = reward.evaluate(sample_of_completion("2 + 2?", TURNS))
    assert turn_rewards_of(reward, done.output[0]) == [None, None, None]
    [issue] = done.output[0].answer.reward.issues
    assert issue.reason == "no_reference" and issue.message.startswith("outcome: ")


def test_a_long_trajectory_takes_time_in_proportion_to_its_turns() -> None:
    reward = TurnRewards(steps=Words(), outcome=OUTCOME, credit="equal")
    rewards, total = vector(reward, *["one"] * 400, "4")
    assert len(rewards) == 401 and total == pytest.approx(401 * 0.1 + 1.0)


def test_a_judge_of_trajectories_sees_what_came_after_the_last_turn() -> None:
    seen: list[str] = []

    def reply(question: str) -> str:
        seen.append(question)
        return "<reason>fine</reason><score>7</score>"

    sample = sample_of_completion("2 + 2?", TURNS[:2])
    BaseTrajectoryRubricReward(llm=FakeLLM(reply=reply)).evaluate(sample)
    assert "[tool]\n    tools say a lot of words" in seen[0]
