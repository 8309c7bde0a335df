"""One sample's way to its credit: the row, what was asked and replied, what was read from it, and
why a score is missing.
"""

from __future__ import annotations

from pathlib import Path

import rm_gallery
from rm_gallery import FakeLLM
from tests.support.command import command

ROWS = [
    {"id": f"r{number}", "prompt": f"q {number}", "chosen": "short", "rejected": "a longer one"}
    for number in range(3)
]


def test_a_rule_is_explained_by_its_scores(tmp_path: Path) -> None:
    rm_gallery.evaluate("length_baseline", ROWS, run_dir=str(tmp_path / "run"))
    shown = command("explain", str(tmp_path / "run"), "r1")
    assert shown.code == 0 and ": 0" in shown.out and "--trace keeps them" in shown.out
    missing = command("explain", str(tmp_path / "run"), "r10")
    assert missing.code == 2 and "near are r" in missing.err


def test_a_judge_is_explained_by_what_was_asked_and_replied(tmp_path: Path) -> None:
    judge = FakeLLM(reply="\x1b[31mno verdict")
    rm_gallery.evaluate(
        "base_helpfulness_pairwise", ROWS, llm=judge, run_dir=str(tmp_path / "run"), trace=True
    )
    shown = command("explain", str(tmp_path / "run"), "r0").out
    assert "--- reply" in shown and "no verdict" in shown and "\x1b" not in shown
    assert "by judge" in shown and "missing by judge" in shown and "q 1" not in shown
