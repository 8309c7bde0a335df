"""Packages that call a reward, with their own code: OpenEnv's containers, AReaL's rollouts, LangSmith, Langfuse."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery import RewardRegistry
from tests.integrations.adapters import Row
from tests.integrations.test_same_score import REWARDS, expected, rows, sample_of
from tests.trainers.environments import run
from tests.trainers.rewards import as_float32

pytestmark = pytest.mark.trainers

ROWS = [
    {"prompt": "What is 1/2?", "completion": said, "reference": truth}
    for said, truth in (
        ("So it is \\boxed{0.5}", "\\frac{1}{2}"),
        ("\\boxed{0.4}", "0.5"),
        ("答案是 \\boxed{一半}", "0.5"),
        ("", "0.5"),
        ("line one\r\n\\boxed{1e300}", "1e300"),
    )
]


SAME = {"rewards": list(REWARDS.values()), "same": rows()}


def evaluated() -> list[float | None]:
    """What `evaluate` says of the rows."""
    reward = RewardRegistry.create("math_verify_reward")
    samples = [sample_of(Row(row["prompt"], row["completion"], row["reference"])) for row in ROWS]
    return [reward.score_of_output(sample.output[0]) for sample in reward.evaluate_batch(samples)]


@pytest.fixture(scope="module")
def openenv() -> dict[str, Any]:
    found: dict[str, Any] = run("openenv", "openenv_rubrics.py", SAME)
    return found


@pytest.fixture(scope="module")
def areal() -> dict[str, Any]:
    found: dict[str, Any] = run("areal", "areal_rewards.py", {"rows": ROWS, **SAME})
    return found


@pytest.fixture(scope="module")
def tools() -> dict[str, Any]:
    found: dict[str, Any] = run("tools", "evaluation_tools.py", {"rows": ROWS}, LANGSMITH_TRACING="false")
    return found


def test_a_rubric_scores_in_containers_and_environments(openenv: dict[str, Any]) -> None:
    assert openenv["forward"]["containers"] == {"gate": 1.0, "sum": 0.75, "sequential": 1.0, "world": 1.0}


@pytest.mark.parametrize("name", REWARDS.values(), ids=REWARDS)
def test_the_completions_of_every_door(openenv: dict[str, Any], areal: dict[str, Any], name: str) -> None:
    wanted = list(expected(name))
    assert openenv["forward"]["same"][name] == wanted
    assert areal["same"][name] == [None if score is None else as_float32(score) for score in wanted]


def test_a_rubrics_outcome_travels_beside_its_number(openenv: dict[str, Any]) -> None:
    beside = openenv["forward"]["beside"]
    assert beside["values"] == [4.0, -1.0, -1.0]
    assert beside["statuses"] == ["scored", "unscored", "failed"]
    assert beside["scores"] == {"Sometimes": 4.0, "Sometimes/words": 1.0, "Sometimes/reset": 1.0}
    assert [[one["status"], one["reason"]] for place in beside["outcomes"] for one in place] == [
        ["unscored", "no_reference"],
        ["failed", "error"],
    ]
    assert beside["children"] == {"words": 1.0, "reset": 1.0}
    assert beside["reset is still a method"]
    assert beside["copied"] == 4.0


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("unscored in a gate", "Sometimes gave no score (unscored, no_reference)"),
        ("failed in a gate", "Sometimes gave no score (failed, error)"),
    ],
)
def test_a_rubric_that_cannot_score_says_so(openenv: dict[str, Any], case: str, said: str) -> None:
    assert said in openenv["forward"][case]


def test_a_rubric_is_a_reward(openenv: dict[str, Any]) -> None:
    found = openenv["backward"]
    passed, stopped = found["matches"]
    assert passed == [1.0, "scored", {"rubric_0": 1.0, "rubric_0.rubric": 1.0, "rubric_1": 1.0}]
    # the member that was skipped has no score of an earlier call
    assert stopped == [0.0, "scored", {"rubric_0": 0.0, "rubric_0.rubric": 0.0}]
    assert found["there and back"] == [1.0, "scored"]
    assert found["pickled"] == 1.0


def test_samples_in_flight_keep_their_own_scores(openenv: dict[str, Any]) -> None:
    found = openenv["backward"]
    assert found["apart"] == [["slow one", 0.375], ["quick one", 0.625]]
    assert found["members"] == {"rubric_0": 0.25, "rubric_1": 0.5}


def test_no_reference_reaches_a_judging_rubric(openenv: dict[str, Any]) -> None:
    assert openenv["backward"]["shown"] == "Rate slow one after Q"
    assert not openenv["backward"]["secret"]


@pytest.mark.parametrize("door", ["through the pool", "own workflow"])
def test_areal_trains_on_what_evaluate_says(areal: dict[str, Any], door: str) -> None:
    assert areal[door] == [None if score is None else [score] for score in evaluated()]


def test_areal_leaves_out_what_has_no_score(areal: dict[str, Any]) -> None:
    assert areal["groups"] == [[4.0], None]
    assert "unscored, no_reference" in areal["unscored"]
    assert areal["statistics"]["rollout/reward_unscored__count"] >= 6
    assert areal["statistics"]["rollout/reward/words"] == 1.0


def test_areal_never_waits_so_long_that_it_invents_a_zero(areal: dict[str, Any]) -> None:
    said, in_time = areal["deadline"]
    assert "failed, deadline" in said
    assert in_time


@pytest.mark.parametrize("door", ["langsmith", "alangsmith", "langfuse"])
def test_evaluation_tools_record_what_evaluate_says(tools: dict[str, Any], door: str) -> None:
    key = 2 if door == "langfuse" else 1
    assert [found[0][key] for found in tools[door]] == evaluated()


def test_evaluation_tools_record_no_invented_number(tools: dict[str, Any]) -> None:
    scored, unscored, failed = tools["langsmith outcomes"]
    assert scored == [["Sometimes", 4.0, None], ["Sometimes.words", 1.0, None], ["Sometimes.reset", 1.0, None]]
    assert unscored == [["Sometimes", None, "no_reference: there is nothing to judge by"]]
    assert failed.startswith("Sometimes failed (error)")
    scored, unscored, failed = tools["langfuse outcomes"]
    assert [one[:3] for one in scored] == [
        ["Evaluation", "Sometimes", 4.0],
        ["Evaluation", "Sometimes.words", 1.0],
        ["Evaluation", "Sometimes.reset", 1.0],
    ]
    assert unscored == [["Evaluation", "Sometimes.unscored", 1.0, "no_reference: there is nothing to judge by"]]
    assert failed == []
