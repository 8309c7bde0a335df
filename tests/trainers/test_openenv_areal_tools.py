"""Packages that call a reward, with their own code: OpenEnv's containers, AReaL's rollouts,
LangSmith, Langfuse.
"""

from __future__ import annotations

import pytest

from tests.integrations.test_same_score import REWARDS, expected, rows
from tests.trainers.environments import run
from tests.trainers.rewards import as_float32

pytestmark = pytest.mark.trainers
SAME = {"rewards": list(REWARDS.values()), "same": [row[:3] for row in rows()]}
RULE = REWARDS["a rule"]


def test_openenvs_containers_and_environments_score_by_our_rubric_and_its_rubrics_are_rewards() -> (
    None
):
    found = run("openenv", "openenv_rubrics.py", SAME)
    for name in REWARDS.values():
        told = [
            None if isinstance(score, str) and "gave no score" in score else score
            for score in found["same"][name]
        ]
        assert told == list(expected(name, "probe"))
    assert found["containers"] == {"gate": 1.0, "sum": 0.75, "sequential": 1.0, "world": 1.0}
    scored, *lost = found["moods"]
    assert scored == 4.0
    for said, reason in zip(lost, ("unscored, no_reference", "failed, error"), strict=True):
        assert f"Moody gave no score ({reason})" in said
    passed, stopped = found["matches"]
    assert passed == [1.0, "scored", {"rubric_0": 1.0, "rubric_0.rubric": 1.0, "rubric_1": 1.0}]
    # the member that was skipped has no score of an earlier call
    assert stopped == [0.0, "scored", {"rubric_0": 0.0, "rubric_0.rubric": 0.0}]
    parts = {"rubric_0": 0.25, "rubric_1": 0.5}
    assert found["judged"] == [0.375, "scored", parts, "Rate an answer after Q"], (
        "no reference reaches a judging rubric"
    )


def test_areal_trains_on_what_evaluate_says_and_leaves_out_what_has_no_score() -> None:
    found = run("areal", "areal_rewards.py", SAME)
    for name in REWARDS.values():
        trained = [
            None if score is None else as_float32(score) for score in expected(name, "probe")
        ]
        assert found["same"][name] == trained
    few = [None if score is None else as_float32(score) for score in expected(RULE, "probe")[:12]]
    assert found["through the pool"] == few
    assert found["groups"] == [4.0, None]
    assert "unscored, no_reference" in found["unscored"]
    assert found["statistics"]["rollout/reward_unscored__count"] >= 6
    assert found["statistics"]["rollout/reward/words"] == 1.0
    said, in_time = found["deadline"]
    assert "failed, deadline" in said and in_time, "it never waits so long that a zero is invented"


def test_evaluation_tools_record_what_evaluate_says_and_no_invented_number() -> None:
    found = run("tools", "evaluation_tools.py", SAME["same"], LANGSMITH_TRACING="false")
    assert found["langsmith"] == found["alangsmith"] == list(expected(RULE))
    assert [
        None if name.endswith(".unscored") else score for name, score in found["langfuse"]
    ] == list(expected(RULE))
    scored, unscored, failed = found["langsmith outcomes"]
    assert scored == [["Moody", 4.0, None], ["Moody.words", 1.0, None]]
    assert unscored == [["Moody", None, "no_reference: nothing to judge by"]]
    assert failed.startswith("Moody failed (error)")
    scored, unscored, failed = found["langfuse outcomes"]
    assert scored == [["Evaluation", "Moody", 4.0, None], ["Evaluation", "Moody.words", 1.0, None]]
    assert unscored == [["Evaluation", "Moody.unscored", 1.0, "no_reference: nothing to judge by"]]
    assert failed == []
