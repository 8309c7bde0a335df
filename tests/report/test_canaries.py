"""Canaries of an environment: gold above every floor, hacked not above the highest, ties named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    BasePointWiseReward,
    ConfigError,
    DataError,
    DataSample,
    RewardResult,
    Unscored,
    reward_function,
)
from rm_gallery.study.canaries import check_canaries, read_canaries
from tests.reward.rewards import scored
from tests.serve.test_ors import Shortest
from tests.support.command import command

ASKED = {"role": "user", "content": "6 * 7?"}


def row(mark: str, text: str, **more: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": text}
    return {"messages": [ASKED, said], "reference": "42", "canary": mark, **more}


@reward_function(score_range=(0, 1))
def contains(messages: list[Any], ground_truth: str = "", **kwargs: Any) -> float:
    assert "canary" not in json.dumps(kwargs, default=str), "the mark is not for the reward"
    return float(ground_truth in messages[-1].text)


@reward_function(score_range=(0, 1))
def refuses_to_say(messages: list[Any], **kwargs: Any) -> float | None:
    if "42" in messages[-1].text:
        return 1.0
    raise Unscored("There is nothing to compare with.", reason="no_reference")


class Fewer(BasePointWiseReward):
    """A lower score is better: the letters of an answer."""

    higher_is_better = False

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, float(len(sample.output[0].answer.text)))


def verdicts(reward: Any, rows: Any) -> list[tuple[str, str, str]]:
    return [(one.name, one.level, one.verdict) for one in check_canaries(reward, rows).tried]


def test_gold_above_the_floors_and_hacked_not() -> None:
    rows = [row("hacked", "42 or 43", id="hedged"), row("gold", "It is 42"), row("floor", "41")]
    floors = [(name, "", "a floor") for name in ("row 3", "empty", "refusal", "did nothing")]
    assert verdicts(contains, rows) == [
        ("row 2", "", "above every floor"),
        *floors,
        ("hedged", "fault", "above every floor, the highest of which gets 0"),
    ]
    exact = [row("hacked", "42 or 43"), row("gold", "42"), row("floor", "41")]
    found = check_canaries("accuracy", exact)
    assert not found.of_level("fault") and found.to_dict()["passed"] is True
    tie = "ties with floor row 3, empty, refusal, did nothing"
    assert found.tried[-1].verdict == tie
    assert found.tried[-1].line() == f"task 1: hacked row 1 gets 0: {tie}"


def test_a_gold_that_ties_or_has_no_score_is_a_fault_and_ties_are_named() -> None:
    rows = [row("gold", "It is 42"), row("floor", "still 42", name="half")]
    assert verdicts(contains, rows)[0] == ("row 1", "fault", "ties with floor half")
    (gold, *_) = verdicts("accuracy", rows)
    assert gold[1:] == ("fault", "ties with floor half, empty, refusal, did nothing")
    unlabelled = [{**row("gold", "42"), "reference": None}]
    (gold, *floors) = verdicts("accuracy", unlabelled)
    assert gold[1] == "fault" and gold[2].startswith("no score (no_reference)")
    assert {level for _, level, _ in floors} == {"note"}
    (gold, *_) = verdicts(refuses_to_say, [row("gold", "42")])
    assert gold[1:] == ("fault", "no floor of its task has a score, so nothing is proven")


def test_a_reward_whose_lower_score_is_better_is_turned() -> None:
    rows = [row("gold", ""), row("hacked", "x" * 99), row("floor", "xx")]
    found = {name: (level, verdict) for name, level, verdict in verdicts(Fewer(), rows)}
    assert found["row 1"] == ("fault", "ties with floor empty, did nothing")
    assert found["row 2"] == ("", "below floor row 3, empty, refusal, did nothing")


def test_tasks_are_told_apart_and_a_reward_that_compares_sees_one_together() -> None:
    other = {"role": "user", "content": "2 + 2?"}
    said = [{"role": "assistant", "content": text} for text in ("4", "five, I think")]
    rows = [
        row("gold", "42"),
        {"messages": [other, said[0]], "canary": "gold", "reference": "4"},
        {"messages": [other, said[1]], "canary": "floor", "reference": "4"},
    ]
    known = read_canaries(rows)
    assert [(one.task, one.name) for one in known if one.mark == "gold"] == [
        (1, "row 1"),
        (2, "row 2"),
    ]
    assert not check_canaries("accuracy", rows).of_level("fault")
    assert len(check_canaries(Shortest(), rows).tried) == len(known)


def test_any_layout_is_read_and_a_refusal_may_be_gold() -> None:
    output = [{"type": "message", "role": "assistant", "content": "I'm sorry, but I can't help."}]
    gym = {
        "responses_create_params": {"input": "How do I make a bomb?"},
        "response": {"output": output},
        "canary": "gold",
    }
    assert [one.name for one in read_canaries([gym])] == ["row 1", "empty", "did nothing"]
    with pytest.raises(DataError, match="canaries.*1.*gold, floor or hacked"):
        read_canaries([row("golden", "42")])
    with pytest.raises(DataError, match="none is there"):
        read_canaries([{"messages": [ASKED]}])
    with pytest.raises(DataError, match="no recorded rollout"):
        read_canaries([{"canary": "gold"}])
    with pytest.raises(DataError, match="found int"):
        read_canaries([3])
    with pytest.raises(ConfigError, match="no rollout is marked canary: gold"):
        read_canaries([row("floor", "41")])


def test_the_command_gates(tmp_path: Path) -> None:
    file = tmp_path / "canaries.jsonl"
    rows = [row("gold", "42"), row("hacked", "42 or 43", id="hedged")]
    file.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    done = command("check-reward", "accuracy", "--env", str(file))
    assert done.code == 0 and "every canary is in order" in done.out
    hacked = tmp_path / "hacked.jsonl"
    hacked.write_text("".join(json.dumps({**each, "canary": "gold"}) + "\n" for each in rows))
    done = command("check-reward", "accuracy", "--env", str(hacked), "--json")
    assert done.code == 1 and json.loads(done.out)["passed"] is False
    assert "task 1: gold hedged gets 0: ties with floor empty, refusal, did nothing" in done.err
    done = command("check-reward", "accuracy", "--env", str(file), "--forge")
    assert done.code == 2 and "leave out --forge" in done.err


@pytest.mark.parametrize("start", [None, {"bill.txt": "3 4"}])
def test_canaries_have_workspaces_of_their_own(start: dict[str, str] | None) -> None:
    """Floors inherited gold's files, so that doing nothing was worth as much as gold."""
    done = {"bill.txt": "3 4", "total.txt": "7"}
    checks = [{"kind": "file", "path": "total.txt", "equals": "7"}]
    rows = [row("gold", "Done.", workspace=done, start=start, checks=checks)]
    found = check_canaries("final_state", rows)
    assert not found.of_level("fault"), [one.line() for one in found.tried]
    assert [one.scored.value for one in found.tried] == [1.0, 0.0, 0.0, 0.0]
