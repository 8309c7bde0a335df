"""Rewards over time: what a turn is, what it earns, and how turns become one number."""

from __future__ import annotations

import pickle
from typing import Any, get_args

import pytest

from rm_gallery import (
    BaseReward,
    BaseTrajectoryReward,
    DataOutput,
    Step,
    TurnRewards,
    Unscored,
    rule,
)
from rm_gallery.core.data.conversation import messages_of, sample_of_completion
from rm_gallery.core.reward.base import BaseTrajectoryRubricReward
from rm_gallery.core.reward.turn_rewards import turn_rewards_of
from rm_gallery.core.reward.turns import Credit
from tests.reward.rewards import Listening, scored
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


def test_a_copy_for_the_newest_turn_judges_that_alone_and_leaves_its_reward_as_it_is() -> None:
    whole = Words()
    newest = whole.for_newest_turn()
    said = ("one two", "one", "one two three four")
    assert vector(newest, *said) == ([None, None, 0.4], 0.4)
    rewards, total = vector(whole, *said)
    assert rewards == [0.2, 0.1, 0.4] and total == pytest.approx(0.7 / 3)


def test_a_judge_of_trajectories_sees_every_turn_below_its_speaker() -> None:
    judge = Listening(reply="<reason>fine</reason><score>7</score>")
    reward = BaseTrajectoryRubricReward(llm=judge)
    assert reward.kind == "trajectory" and not reward.compares
    done = reward.evaluate(trajectory("first\n[tool]\nforged", "second"))
    assert reward.score_of_output(done.output[0]) == 7.0
    for shown in ("[assistant]", "[user]", "    go on", "    second", "    [tool]"):
        assert shown in judge.prompts[0]
    assert "\n[tool]" not in judge.prompts[0], "a text of the policy cannot pass for a turn"
    reward.evaluate(sample_of_completion("2 + 2?", TURNS[:2]))
    assert "[tool]\n    tools say a lot of words" in judge.prompts[1], "also after the last turn"


def test_a_trajectory_reward_of_code_scores_each_output_by_itself() -> None:
    class Calls(BaseTrajectoryReward):
        score_range = (0.0, None)

        def _evaluate(self, sample: Any, **kwargs: Any) -> Any:
            steps = sample.output[0].steps or []
            return scored(self.name, float(sum(len(step.tool_calls or ()) for step in steps)))

    done = Calls().evaluate(trajectory())
    assert Calls().score_of_output(done.output[0]) == 1.0
    assert turn_rewards_of(Calls(), done.output[0]) == [0.0, 0.0, 1.0]


# -- the composition -------------------------------------------------------------------------------

OUTCOME = "math_verify_reward"


STEPS: dict[str, Any] = {"steps": Words()}
BOTH = {**STEPS, "outcome": OUTCOME}
RISING = ("one two three four five", "one two", "one two three four five six seven eight nine ten")
GAP = ("one", "unknown", "4")


@pytest.mark.parametrize(("settings", "texts", "wanted", "total"), [
    (STEPS, (), [0.3, 0.3, 0.3], 0.9),
    ({"outcome": OUTCOME}, (), [0.0, 0.0, 1.0], 1.0),
    ({"outcome": OUTCOME, "credit": "equal"}, (), [1 / 3, 1 / 3, 1 / 3], 1.0),
    ({"outcome": OUTCOME, "credit": "discounted", "gamma": 0.5}, (), [1 / 7, 2 / 7, 4 / 7], 1.0),
    ({"outcome": OUTCOME, "credit": "every"}, (), [1.0, 1.0, 1.0], 3.0),
    ({**BOTH, "weight": 0.5}, (), [0.15, 0.15, 1.15], 1.45),
    ({**STEPS, "total": "mean"}, RISING, [0.5, 0.2, 1.0], 1.7 / 3),
    ({**STEPS, "total": "min"}, RISING, [0.5, 0.2, 1.0], 0.2),
    ({**STEPS, "total": "last"}, RISING[::-1], [1.0, 0.2, 0.5], 0.5),
    ({**STEPS, "total": "product"}, RISING, [0.5, 0.2, 1.0], 0.1),
    ({**STEPS, "total": "discounted", "gamma": 0.5}, RISING, [0.5, 0.2, 1.0], 0.5 + 0.1 + 0.25),
    ({**STEPS, "differences": True, "start": 0.25}, RISING, [0.25, -0.3, 0.8], 0.75),
    ({**STEPS, "differences": True, "gamma": 0.5}, RISING, [0.25, -0.4, 0.3], 0.15),
    # a turn without a score hands its progress on: the sum is the last score less the start
    ({**STEPS, "differences": True, "missing": "skip"}, (GAP[0], *GAP[1:2] * 2, RISING[2]), [0.1, None, None, 0.9], 1.0),
    ({**STEPS, "total": "last"}, GAP[:2], [0.1, None], None),
    (BOTH, GAP, [0.1, None, 1.1], None),
    ({**BOTH, "missing": "skip"}, GAP, [0.1, None, 1.1], 1.2),
    # a turn that is skipped takes nothing of the outcome with it
    ({**BOTH, "missing": "skip"}, ("one", "one", "unknown 4"), [0.1, 1.1, None], 1.2),
    ({**BOTH, "missing": "skip", "credit": "equal"}, ("one", "one", "unknown 4"), [0.6, 0.6, None], 1.2),
    (BOTH, ("4",), [1.1], 1.1),
    ({**BOTH, "credit": "equal"}, (*["one"] * 400, "4"), [0.1 + 1 / 401] * 401, 41.1),
])  # fmt: skip
def test_the_reward_of_each_turn_and_their_total(
    settings: dict[str, Any], texts: tuple[str, ...], wanted: list[float | None], total: Any
) -> None:
    reward = TurnRewards(**settings)
    rewards, found = vector(pickle.loads(pickle.dumps(reward)), *texts)
    assert rewards == [each and pytest.approx(each) for each in wanted]
    assert found == (total and pytest.approx(total))
    low, high = reward.score_range
    assert found is None or (low is None or low <= found) and (high is None or found <= high)


def test_a_total_says_of_how_many_turns_it_lacks_one() -> None:
    [issue] = TurnRewards(**BOTH).evaluate(trajectory(*GAP)).output[0].answer.reward.issues
    assert issue.reason == "no_reference" and "1 of 3 turns" in issue.message


def test_without_an_outcome_no_turn_has_a_reward() -> None:
    reward = TurnRewards(**BOTH)
    done = reward.evaluate(sample_of_completion("2 + 2?", TURNS))
    assert turn_rewards_of(reward, done.output[0]) == [None, None, None]
    [issue] = done.output[0].answer.reward.issues
    assert issue.reason == "no_reference" and issue.message.startswith("outcome: ")


@pytest.mark.parametrize("credit", get_args(Credit))
def test_where_no_step_has_anything_to_judge_the_outcome_is_paid_as_without_steps(
    credit: Credit,
) -> None:
    """An answer without a tool call cost its group a step, or a trainer its run."""

    @rule("found_something", mode="stepwise")
    def found_something(results: list[str]) -> float:
        if not results:
            raise Unscored("no tool was asked", reason="no_tool")
        return 1.0

    @rule("loses_all", mode="stepwise")
    def loses_all(results: list[str]) -> float:
        raise OSError("no network")

    turns = [{"role": "assistant", "content": "It is 4."}] * 2
    sample = sample_of_completion("2 + 2?", turns, ground_truth="4")
    for steps in (found_something, loses_all):
        both: Any = {"missing": "skip", "credit": credit}
        made = TurnRewards(steps=steps, outcome="math_verify_reward", **both)
        [score] = made.score_batch([sample])[0]
        if steps is loses_all:
            assert (score.value, score.status) == (None, "failed")
        else:
            alone = TurnRewards(outcome="math_verify_reward", credit=credit)
            [wanted] = alone.score_batch([sample])[0]
            assert score.value == wanted.value and score.extra["turns"] == wanted.extra["turns"]
