"""The environments and rubrics of SkyRL and verifiers get the scores of `evaluate` in their own
code.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rm_gallery import FakeLLM, RewardRegistry
from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.data.load.rollouts import RolloutConverter
from rm_gallery.integrations.scoring import RowScorer
from tests.data.test_rollouts import check_turns
from tests.trainers.environments import run
from tests.trainers.rewards import FEW, ROWS, Parts, Row, expected, flaky_judge, judged

pytestmark = pytest.mark.trainers
REWARDS = """
from rm_gallery.integrations.verifiers import verifiers_reward
from tests.trainers.rewards import Parts, judged

correct = verifiers_reward(Parts(), reference="answer", name="parts")
helpful = verifiers_reward(judged({base_url!r}))
"""


@pytest.mark.system("skyrl")
def test_an_environment_of_skyrl_gets_the_scores_of_evaluate() -> None:
    found = run("skyrl", "in_skyrl.py", ROWS)
    for episode, wanted in zip(found["episodes"], expected(Parts()), strict=True):
        value = -1.0 if wanted.score is None else wanted.score
        flags = {name: float(wanted.status == name) for name in ("unscored", "failed")}
        parts = {name: wanted.part(name, value) for name in ("length", "gold")}
        assert episode == {
            "reward": value,
            "status": wanted.status,
            "metrics": {"score": value, **parts, **flags},
        }
    share = sum(wanted.status == "failed" for wanted in expected(Parts())) / len(ROWS)
    assert found["together"]["failed"] == pytest.approx(share)


@pytest.mark.system("verifiers-v0")
def test_a_rubric_of_verifiers_v0_gets_the_scores_of_evaluate() -> None:
    found = run("verifiers-v0", "in_verifiers_v0.py", ROWS)
    other = expected(RewardRegistry.create("math_verify_reward"))
    for state, wanted, second in zip(found, expected(Parts()), other, strict=True):
        value = 0.0 if wanted.score is None else wanted.score
        assert state["metrics"]["parts"] == value
        assert state["metrics"]["math_verify_reward"] == (second.score or 0.0)
        assert state["reward"] == value + 0.5 * (second.score or 0.0)
        assert state["metrics"]["parts/failed"] == (wanted.status == "failed")
        assert state["metrics"]["parts/unscored"] == (wanted.status == "unscored")
        assert state["metrics"]["parts/gold"] == wanted.part("gold", 0.0)
        # an errored rollout is v0's word for one that has no reward
        assert (state["error"] == "Error") == (None in (wanted.score, second.score))


@pytest.mark.system("verifiers-v0")
def test_a_rubric_of_verifiers_v0_compares_the_rollouts_of_a_prompt() -> None:
    reply = "<scores>[0.9, 0.1, 0.5]</scores>"
    texts = ("It is 4.", "this breaks", "\\boxed{5} or so")
    groups = [[("2+2?", text, truth) for text in texts] for truth in ("4", None)]
    # the judge scores three answers, and there are two different ones
    groups.append([("2+2?", text, "4") for text in (*texts[:2], texts[0])])
    found = run("verifiers-v0", "groups_in_verifiers_v0.py", {"reply": reply, "groups": groups})
    other = RewardRegistry.create("math_verify_reward")
    for states, group in zip(found, groups, strict=True):
        rows = tuple(Row(*row) for row in group)
        ruler = RowScorer("ruler", llm=FakeLLM(reply=reply))
        compared = ruler.score_rows(*zip(*((r.prompt, r.completion) for r in rows), strict=True))
        singles = zip(expected(Parts(), rows), expected(other, rows), strict=True)
        total = 0.0
        for state, first, (parts, maths) in zip(states, compared, singles, strict=True):
            numbers = [first.value or 0.0, parts.score or 0.0, maths.score or 0.0]
            names = ("ruler", "parts", "math_verify_reward")
            assert [state["metrics"][name] for name in names] == numbers
            assert state["metrics"]["ruler/unscored"] == (first.status == "unscored")
            assert state["metrics"]["parts/failed"] == (parts.status == "failed")
            assert state["metrics"]["parts/gold"] == parts.part("gold", 0.0)
            assert state["reward"] == numbers[0] + 0.5 * numbers[1] + 0.25 * numbers[2]
            missing = None in (first.value, parts.score, maths.score)
            assert (state["error"] == "Error") == missing
            total += state["reward"]
        assert [each["advantage"] for each in states] == pytest.approx(
            [each["reward"] - total / 3 for each in states]
        )
    assert sorted(state["metrics"]["ruler"] for state in found[0]) == [0.1, 0.5, 0.9]
    assert [state["metrics"]["ruler/unscored"] for state in found[2]] == [1.0] * 3


@pytest.mark.system("verifiers")
def test_a_task_of_verifiers_v1_gets_the_scores_of_evaluate(tmp_path: Path) -> None:
    file = tmp_path / "my_rewards.py"
    with flaky_judge() as judge:
        file.write_text(REWARDS.format(base_url=judge.base_url), encoding="utf-8")
        found = run(
            "verifiers", "in_verifiers.py", {"file": str(file), "rows": ROWS, "few": len(FEW)}
        )
        helpful = expected(judged(judge.base_url), FEW)
    assert 0 < sum(each.score is None for each in helpful) < len(helpful)
    for (trace, plugged, other), second in zip(found, helpful, strict=False):
        assert (trace["rewards"], trace["metrics"]) == (plugged["rewards"], plugged["metrics"])
        assert other["rewards"] == {"helpful": second.score and [second.score, 1.0]}
        assert (other["error"] is None) == (second.score is not None)
    for (trace, *_), wanted in zip(found, expected(Parts()), strict=True):
        flags = {f"parts/{name}": float(wanted.status == name) for name in ("unscored", "failed")}
        assert (
            trace["metrics"]
            == {f"parts/{name}": value for name, value in wanted.components.items()} | flags
        )
        assert trace["rewards"] == {"parts": None if wanted.score is None else [wanted.score, 0.5]}
        assert wanted.status in (trace["error"] or "scored")


@pytest.mark.system("verifiers")
def test_traces_that_verifiers_wrote_are_read_back() -> None:
    trace, reward, unscored = run("verifiers", "traces_of_verifiers.py", None)
    sample = RolloutConverter().convert(trace, RowRef("traces.jsonl", 1))
    check_turns(sample)
    recorded = (sample.metadata or {})["recorded"]
    parts = {"right": 1.0, "short": 0.5, "judge": None}
    assert recorded == {"layout": "verifiers", "reward": reward, "parts": parts}
    assert sample.reference() == "3" and (sample.metadata or {})["branches"] == 2
    again = RolloutConverter().convert(unscored, RowRef("traces.jsonl", 2))
    assert (again.metadata or {})["recorded"]["reward"] is None
