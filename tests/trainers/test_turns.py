"""The reward of each turn is the same number in every trainer that takes one, in its own code."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery import TurnRewards
from rm_gallery.core.reward.turn_rewards import turn_rewards_of
from tests.reward.turns import Words, trajectory
from tests.trainers.environments import run

pytestmark = pytest.mark.trainers
ROLLOUTS = (("one", "one two", "4"), ("x y z", "so it is", "5"), ("one", "unknown", "4"))


def expected() -> list[tuple[list[float | None], float | None]]:
    reward = TurnRewards(steps=Words(), outcome="math_verify_reward", weight=0.25)
    outputs = [reward.evaluate(trajectory(*texts)).output[0] for texts in ROLLOUTS]
    return [(turn_rewards_of(reward, each), reward.score_of_output(each)) for each in outputs]


def test_the_vector_by_hand() -> None:
    [(right, total), (wrong, _), (unknown, missing)] = expected()
    assert right == [0.025, 0.05, 1.025] and total == pytest.approx(1.1)
    assert wrong == pytest.approx([0.075, 0.075, 0.025])
    assert unknown == [0.025, None, 1.025] and missing is None


@pytest.mark.system("skyrl")
def test_skyrl_adds_up_what_each_turn_earned() -> None:
    for paid, (turns, _) in zip(
        run("skyrl", "turns_in_skyrl.py", ROLLOUTS), expected(), strict=True
    ):
        assert paid == [0.0 if each is None else each for each in turns]


@pytest.mark.system("verifiers")
def test_a_trace_of_verifiers_v1_holds_the_vector() -> None:
    found: list[Any] = run("verifiers", "turns_in_verifiers.py", ROLLOUTS)
    for trace, (turns, total) in zip(found, expected(), strict=True):
        assert trace == {"reward": total, "turns": turns}


@pytest.mark.system("verifiers-v0")
def test_a_trajectory_of_verifiers_v0_holds_the_vector() -> None:
    found: list[Any] = run("verifiers-v0", "turns_in_verifiers_v0.py", ROLLOUTS)
    for state, (turns, total) in zip(found, expected(), strict=True):
        assert state["turns"] == [0.0 if each is None else each for each in turns]
        assert state["reward"] == (0.0 if total is None else total)
