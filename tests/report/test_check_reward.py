"""`check_reward` and its command beyond the golden files: cases out of a file, and what only a live object shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rm_gallery import reward_function
from rm_gallery.report.check.run import check_reward
from tests.support.command import command

CASE = {"prompt": "What is 40 + 2?", "truth": "42", "gold": "So it is.\n<answer>42</answer>"}
OWN = """from rm_gallery import reward_function

@reward_function(score_range=(0, 1))
def own(messages, ground_truth="", **kwargs):
    return float(messages[-1].text.strip().endswith(f"<answer>{ground_truth}</answer>"))
"""


def test_cases_stand_in_a_file_and_json_has_every_completion(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    mine = {"completion": "<answer>41</answer>", "name": "near", "expect": "full"}
    (tmp_path / "cases.jsonl").write_text(json.dumps({**CASE, "completions": [mine]}) + "\n", encoding="utf-8")
    done = command(
        "check-reward",
        str(tmp_path / "own.py"),
        "--cases",
        str(tmp_path / "cases.jsonl"),
        "--reference",
        "truth",
        "--json",
    )
    said = json.loads(done.out)
    assert (done.code, said["passed"], said["full"]) == (1, False, 1)
    assert done.err.splitlines()[-1] == "rm-gallery: unexpected: own: near gets 0; expected was full."
    kinds = {one["kind"] for one in said["completions"]}
    assert kinds >= {
        "gold",
        "null",
        "empty",
        "blank",
        "wrong",
        "all answers",
        "off-format",
        "stuffed",
        "truncated",
        "repeated",
    }


def test_a_function_that_no_process_can_be_sent_is_noted() -> None:
    @reward_function(score_range=(0, 1))
    def inner(messages: list[Any], ground_truth: str = "", **kwargs: Any) -> float:
        return float(messages[-1].text.strip().endswith(f"<answer>{ground_truth}</answer>"))

    found = check_reward(inner, [CASE], reference="truth")
    assert [(finding.level, finding.name) for finding in found.findings] == [("note", "not_picklable")]
    assert [one.scored.score for one in found.tried if one.kind == "gold"] == [1.0]
