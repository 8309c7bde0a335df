"""A budget that is spent ends the run: what is left is counted and not walked, and nothing is read into its being missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import rm_gallery
from rm_gallery.core.engine.calls.budget import Budget
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.graders.llm import LLMGrader
from rm_gallery.core.model.base import FakeLLM
from rm_gallery.core.reward.base import BaseReward
from rm_gallery.core.runner.grading_runner import GradingRunner
from rm_gallery.gallery.benchmarks.preferences import Preferences
from rm_gallery.study.grading import grade
from rm_gallery.study.table import score_table
from rm_gallery.study.winrate import winrate
from tests.reward.rewards import ListJudge, PairJudge, PointJudge, longest
from tests.support.samples import make_sample

N, CALLS = 12_000, 40
ROWS = [{"id": f"r{k}", "prompt": f"q{k}", "chosen": "a b", "rejected": "c"} for k in range(N)]


def judge(kind: type[BaseReward] = PointJudge) -> BaseReward:
    return kind(llm=FakeLLM(reply=longest))


def grader_report(rows: Any, **how: Any) -> Any:
    grader = LLMGrader(name="g", model=FakeLLM(reply="<score>1</score>"), prompt="x {{response}}")
    named = [{"query": row["prompt"], "response": row["chosen"]} for row in rows]
    return grade(GradingRunner({"g": grader}, show_progress=False), named, **how)


def written(folder: Path) -> str:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(folder / "rows.jsonl")


DOORS: dict[str, Callable[[Path, dict[str, Any]], Any]] = {
    "evaluate a file": lambda tmp, how: rm_gallery.evaluate(judge(), written(tmp), **how),
    "evaluate rows": lambda tmp, how: rm_gallery.evaluate(judge(), ROWS, **how),
    "evaluate samples": lambda tmp, how: rm_gallery.evaluate(
        judge(PairJudge), [make_sample("a b", "c", unique_id=f"s{k}", chosen=0) for k in range(N)], **how
    ),
    "evaluate lists": lambda tmp, how: rm_gallery.evaluate(judge(ListJudge), ROWS, **how),
    "score": lambda tmp, how: score_table(judge(), ROWS, "prompt", ["chosen"], **how),
    "winrate": lambda tmp, how: winrate(judge(), ROWS, "prompt", ["chosen", "rejected"], **how),
    "grade": lambda tmp, how: grader_report(ROWS, **how),
}


@pytest.mark.parametrize("door", DOORS)
def test_what_is_left_is_counted_and_not_walked(door: str, tmp_path: Path) -> None:
    control, folder = RunControl(), tmp_path / "run"
    budget = Budget(max_calls=CALLS)
    report = DOORS[door](tmp_path, {"budget": budget, "control": control, "run_dir": str(folder), "progress": False})
    assert control.calls == CALLS and control.progress.done < N / 2, "the others were not walked"
    assert report.n == N == report.n_scored + report.n_unscored + report.n_failed + report.n_stopped
    assert 0 < report.n_scored <= CALLS and report.missing == {"caller": N - report.n_scored}
    assert report.suspicion == {}, "that rows were not begun says nothing about them"
    assert sum(found["n"] for reason, found in report.reasons.items() if reason.endswith("stopped")) >= N - CALLS - 1, (
        "one of them hit the limit"
    )
    assert f"{N - report.n_scored:,} stopped" in control.progress.facts(None) and "-" not in control.progress.facts(None)
    counts = orjson.loads((folder / "summary.json").read_bytes())["samples"]
    assert counts["scored"] + counts["stopped"] == N
    low, high = report.bounds
    assert low <= report.score <= high and high - low > 0.9 * (1 if door != "grade" else 0)


def test_what_an_earlier_part_scored_behind_the_stop_still_counts(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    rm_gallery.evaluate(judge(), ROWS[2500:5000], run_dir=folder, progress=False, manifest={"data_of": "both"})
    report = rm_gallery.evaluate(
        judge(), ROWS[:9000], run_dir=folder, budget=Budget(max_calls=5010), progress=False, manifest={"data_of": "both"}
    )
    assert 2500 < report.n_scored < 2520 and report.n == 9000


def test_a_part_counts_its_own_rows(tmp_path: Path) -> None:
    whole = [rm_gallery.evaluate(judge(), ROWS, part=f"{k}/2", budget=Budget(max_calls=CALLS), progress=False) for k in (1, 2)]
    assert sum(report.n for report in whole) == N and all(report.n_stopped > N / 3 for report in whole)


def test_a_rule_that_weighs_parts_is_open_where_they_are_unknown() -> None:
    rows = [{**row, "subset": f"s{k % 2}"} for k, row in enumerate(ROWS)]
    report = rm_gallery.evaluate(judge(), rows, Preferences(), budget=Budget(max_calls=CALLS), progress=False)
    assert (
        report.bounds is not None
        and report.bounds[0] < 0.01
        and report.bounds[1] == 1.0
        and sum(part.n for part in report.by_subset.values()) < N
    )
