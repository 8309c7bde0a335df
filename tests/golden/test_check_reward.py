"""What `check_reward` finds wrong with the rewards of the golden files below `check_reward`."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.report.check.run import check_reward
from tests.golden.golden import Line, check, files

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
    "function": "@reward_function(score_range=(0, 1))\ndef score(messages, ground_truth='', **kwargs):\n    text = messages[-1].text\n",
    "coroutine": "@reward_function\nasync def score(messages, ground_truth=None, **kwargs):\n    text = messages[-1].text\n",
    "file": "",
}
DEPTH = {"environment": 8, "function": 4, "coroutine": 4, "file": 0}


@pytest.mark.parametrize("path", files("check_reward"))
def test_what_is_wrong_with_a_reward_is_named(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def answer(line: Line) -> Line:
        reward = line.get("name") or "reward.py"
        if "kind" in line:
            code = KINDS[line["kind"]] + indent(line["code"], " " * DEPTH[line["kind"]]) + "\n" + line.get("more", "")
            (tmp_path / "reward.py").write_text(HEAD + code, encoding="utf-8")
            reward = f"{tmp_path / 'reward.py'}{line.get('of', '')}"
        try:
            found = check_reward(reward, line.get("cases"), params=line.get("params"), **line.get("settings", {}))
        except ConfigError as error:
            return {"error": str(error).replace(f"{tmp_path}/", "")}
        texts = {one.kind: one.text for one in found.tried if one.kind in line.get("made", ())}
        by_level: dict[str, list[str]] = {"fault": [], "note": []}
        for finding in found.findings:
            by_level[finding.level].append(finding.name)
        told = {"full": found.full, "tried": len(found.tried), "texts": texts or None}
        return {"faults": by_level["fault"], "notes": by_level["note"], **told}

    check(path, answer, ("faults", "notes", "full", "tried", "texts", "error"))
