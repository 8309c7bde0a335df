"""What `check_reward` finds wrong with the rewards of the golden files below `check_reward`, and
with those no file can hold.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from rm_gallery import (
    BasePointWiseReward,
    ConfigError,
    DataSample,
    RewardDimensionWithScore,
    RewardResult,
    Unscored,
    check_reward,
    fuzz_reward,
    reward_function,
)
from rm_gallery.core.utils.errors import ProviderError
from rm_gallery.study.attacks import forgeries
from rm_gallery.study.fuzz import MUTATIONS
from tests.golden.golden import Line, check, files
from tests.support.system import require_bubblewrap

HEAD = """
import asyncio, math, re
from typing import ClassVar
from rm_gallery import BasePointWiseReward, EvaluateResult, RewardDimensionWithScore, RewardResult, reward_function
from rm_gallery.envs.reward_helpers import extract_completion_text as said, extract_strict_answer

def answer(messages):
    return extract_strict_answer(said(messages, which="last"))

def truth(task):
    return (task or {}).get("ground_truth", "-")

def right(messages, truth):
    return float(messages[-1].text.strip().endswith(f"<answer>{truth}</answer>"))

"""
KINDS = {
    "environment": "class Env:\n    async def compute_reward(self, rollout_id, messages, task, **kwargs):\n        RIGHT = "
    "float(answer(messages) == truth(task))\n",
    "function": (
        "@reward_function(score_range=(0, 1))\ndef score(messages, ground_truth='', **kwargs):\n   "
        " text = messages[-1].text\n"
    ),
    "coroutine": (
        "@reward_function\nasync def score(messages, ground_truth=None, **kwargs):\n    text = "
        "messages[-1].text\n"
    ),
    "file": "",
}
DEPTH = {"environment": 8, "function": 4, "coroutine": 4, "file": 0}


def reward_of(line: Line, folder: Path) -> str:
    """The reward that a line names, or the file with its code."""
    if "kind" not in line:
        return line.get("name") or "reward.py"
    code = (
        KINDS[line["kind"]]
        + indent(line["code"], " " * DEPTH[line["kind"]])
        + "\n"
        + line.get("more", "")
    )
    (folder / "reward.py").write_text(HEAD + code, encoding="utf-8")
    return f"{folder / 'reward.py'}{line.get('of', '')}"


@pytest.mark.long("much work")
@pytest.mark.parametrize("path", files("fuzz"))
def test_wrong_texts_that_pass_are_named(path: Path, tmp_path: Path) -> None:
    def answer(line: Line) -> Line:
        try:
            found = fuzz_reward(
                reward_of(line, tmp_path),
                line.get("cases"),
                params=line.get("params"),
                **line.get("settings", {}),
            )
        except ConfigError as error:
            return {"error": str(error).replace(f"{tmp_path}/", "")}
        assert (
            set(found.tried) <= set(MUTATIONS)
            and json.loads(json.dumps(found.to_dict()))["passed"] is not None
        )
        again = fuzz_reward(
            reward_of(line, tmp_path),
            line.get("cases"),
            params=line.get("params"),
            **line.get("settings", {}),
        )
        assert again == found
        shortest = {
            one.mutation: one.text for one in reversed(found.passed) if one.mutation != "dressed"
        }
        told = {
            "tasks": found.cases,
            "left_out": list(found.left_out) or None,
            "missing": found.missing or None,
        }
        return {
            **told,
            "of": sum(found.tried.values()),
            "passed": len(found.passed),
            "shortest": shortest or None,
        }

    check(path, answer, ("tasks", "left_out", "missing", "of", "passed", "shortest", "error"))


def test_other_seeds_draw_other_mixtures_and_none_equals_the_right_answer() -> None:
    drawn = []
    for seed in (0, 1):
        found = fuzz_reward(always, [CASE], reference="truth", seed=seed)
        drawn.append({one.text for one in found.passed if one.mutation == "dressed"})
        assert CASE["gold"] not in {one.text for one in found.passed} and "42" not in {
            one.text.strip() for one in found.passed
        }
    assert drawn[0] and drawn[1] and drawn[0] != drawn[1]


@pytest.mark.long("much work")
@pytest.mark.parametrize("path", files("check_reward"))
def test_what_is_wrong_with_a_reward_is_named(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.stem == "sandboxed":
        require_bubblewrap()
    monkeypatch.chdir(tmp_path)

    def answer(line: Line) -> Line:
        reward = reward_of(line, tmp_path)
        try:
            found = check_reward(
                reward, line.get("cases"), params=line.get("params"), **line.get("settings", {})
            )
        except ConfigError as error:
            return {"error": str(error).replace(f"{tmp_path}/", "")}
        texts = {one.kind: one.text for one in found.tried if one.kind in line.get("made", ())}
        by_level: dict[str, list[str]] = {"fault": [], "note": []}
        for finding in found.findings:
            by_level[finding.level].append(finding.name)
        told = {"full": found.full, "tried": len(found.tried), "texts": texts or None}
        return {"faults": by_level["fault"], "notes": by_level["note"], **told}

    check(path, answer, ("faults", "notes", "full", "tried", "texts", "error"))


CASE = {"prompt": "What is 40 + 2?", "truth": "42", "gold": "So it is.\n<answer>42</answer>"}


@reward_function(score_range=(0, 1))
def last_number(messages: list[Any], ground_truth: str = "", **kwargs: Any) -> float:
    """The ordinary rule, which raises where there is no number."""
    return float(float(re.findall(r"-?[0-9]+", messages[-1].text)[-1]) == float(ground_truth))


@reward_function(score_range=(0, 1))
def always(messages: list[Any], **kwargs: Any) -> float:
    """Passes whatever is said."""
    return 1.0


def test_breaking_an_ordinary_rule_does_not_pay_unless_its_worst_score_is_above_a_wrong_answers() -> (
    None
):
    for params, paid in (({}, False), ({"worst": 0.0}, False), ({"worst": 0.5}, True)):
        found = check_reward(last_number, [CASE], reference="truth", params=params)
        assert ("breaking_pays" in [fault.name for fault in found.faults]) is paid
        assert found.training["empty"] == found.training["crash"] == params.get("worst", 0.0)
        assert (
            found.training["gold"] == 1.0
            and found.training["huge"] == 0.0
            and found.training["outage"] is None
        )
        assert found.missing["mean"][0] == "verl" and found.missing["none"][0] == "TRL"


class Away(BasePointWiseReward):
    """Right answers get 1 and wrong ones 0; what one text brings has no score, by the endpoint."""

    score_range: Any = (0.0, 1.0)
    unscored: bool

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if not text and self.unscored:
            raise Unscored("it refuses to judge this", reason="content_filter", cause="endpoint")
        if not text:
            raise ProviderError("it is away", kind="fatal")
        score = float(str((sample.metadata or {}).get("truth")) in text)
        return RewardResult(
            name="away", details=[RewardDimensionWithScore(name="away", score=score, reason="")]
        )


@pytest.mark.parametrize("unscored", [False, True])
def test_a_missing_score_is_worth_what_others_get_whatever_its_status(unscored: bool) -> None:
    found = check_reward(Away(name="away", unscored=unscored), [CASE], reference="truth")
    status = "unscored" if unscored else "failed"
    assert {one.scored.status for one in found.tried if one.kind == "empty"} == {status}
    assert (found.training["gold"], found.training["empty"], found.training["wrong"]) == (
        1,
        None,
        0,
    )
    order = [*found.training]
    assert order.index("gold") < order.index("empty") < order.index("wrong")
    [fault] = [fault for fault in found.faults if fault.name == "breaking_pays"]
    assert "empty 0.333333" in fault.what


@pytest.mark.parametrize("given", ["gold", "reference"])
def test_a_case_with_code_tests_is_forged_with_or_without_an_answer(given: str) -> None:
    """Its tests are the task's; the right answer may be a reference alone."""
    right = "def add(a, b):\n    return a + b"
    case = {"prompt": "Write add.", given: right, "tests": ["assert add(1, 2) == 3"]}
    found = fuzz_reward(always, [case], texts=5)
    assert found.tried["forged"] == len(forgeries())
    checked = check_reward(always, [case], forge=True)
    assert len([one for one in checked.tried if "_answer" in one.text]) == len(forgeries())


def test_a_function_that_no_process_can_be_sent_is_noted() -> None:
    @reward_function(score_range=(0, 1))
    def inner(messages: list[Any], ground_truth: str = "", **kwargs: Any) -> float:
        return float(messages[-1].text.strip().endswith(f"<answer>{ground_truth}</answer>"))

    found = check_reward(inner, [CASE], reference="truth")
    assert [(finding.level, finding.name) for finding in found.findings] == [
        ("note", "not_picklable")
    ]
    assert [one.scored.value for one in found.tried if one.kind == "gold"] == [1.0]


@pytest.mark.system("bubblewrap")
def test_programs_that_solve_nothing_are_tried_on_a_cases_code_tests() -> None:
    require_bubblewrap()
    case = {
        "prompt": "add",
        "gold": "def add(a, b):\n    return a + b",
        "tests": ["assert add(81, 92) == 173"],
    }
    found = check_reward("code_unit_tests", [case], forge=True)
    assert found.faults == [] and sum(one.kind.startswith("own: ") for one in found.tried) >= 50
    weak = {**case, "tests": ["assert add(1, 2) != 7"]}
    assert {fault.name for fault in check_reward("code_unit_tests", [weak], forge=True).faults} >= {
        "gold_unscored"
    }
