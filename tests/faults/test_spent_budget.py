"""A budget that is spent ends the run: what is left is counted and not walked, and nothing is read
into its being missing.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import rm_gallery
from rm_gallery import BaseReward, Budget, DataSample, FakeLLM, GradingRunner, LLMGrader, Step
from rm_gallery.core.engine.context import RunControl
from rm_gallery.gallery.benchmarks.preferences import Preferences
from rm_gallery.study.grading import grade
from rm_gallery.study.table import score_table
from rm_gallery.study.winrate import winrate
from tests.reward.rewards import ListJudge, PairJudge, PointJudge, StepJudge, longest
from tests.support.choice import some
from tests.support.command import command
from tests.support.samples import make_sample

N, CALLS = 12_000, 40
ROWS = [{"id": f"r{k}", "prompt": f"q{k}", "chosen": "a b", "rejected": "c"} for k in range(N)]


class RangedJudge(PointJudge):
    """Says what its scores can be, without which a mean has no bounds."""

    score_range: tuple[float | None, float | None] = (0.0, 100.0)


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
        judge(PairJudge),
        [make_sample("a b", "c", unique_id=f"s{k}", chosen=0) for k in range(N)],
        **how,
    ),
    "evaluate lists": lambda tmp, how: rm_gallery.evaluate(judge(ListJudge), ROWS, **how),
    "score": lambda tmp, how: score_table(judge(RangedJudge), ROWS, "prompt", ["chosen"], **how),
    "winrate": lambda tmp, how: winrate(judge(), ROWS, "prompt", ["chosen", "rejected"], **how),
    "grade": lambda tmp, how: grader_report(ROWS, **how),
}


@pytest.mark.long("a run in trouble")
@pytest.mark.parametrize("door", DOORS)
def test_what_is_left_is_counted_and_not_walked(door: str, tmp_path: Path) -> None:
    control, folder = RunControl(), tmp_path / "run"
    budget = Budget(max_calls=CALLS)
    report = DOORS[door](
        tmp_path, {"budget": budget, "control": control, "run_dir": str(folder), "progress": False}
    )
    assert control.calls == CALLS and control.progress.done < N / 2, "the others were not walked"
    assert report.n == N == report.n_scored + report.n_unscored + report.n_failed + report.n_stopped
    assert 0 < report.n_scored <= CALLS and report.missing == {"caller": N - report.n_scored}
    assert report.suspicion == {}, "that rows were not begun says nothing about them"
    assert (
        sum(found["n"] for reason, found in report.reasons.items() if reason.endswith("stopped"))
        >= N - CALLS - 1
    ), "one of them hit the limit"
    assert f"{N - report.n_scored:,} stopped" in control.progress.facts(
        None
    ) and "-" not in control.progress.facts(None)
    counts = orjson.loads((folder / "summary.json").read_bytes())["samples"]
    assert counts["scored"] + counts["stopped"] == N
    low, high = report.bounds
    assert low <= report.score <= high and high - low > 0.9 * (1 if door != "grade" else 0)


@pytest.mark.long("a run in trouble")
def test_what_an_earlier_part_scored_behind_the_stop_still_counts(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    rm_gallery.evaluate(
        judge(), ROWS[2500:5000], run_dir=folder, progress=False, manifest={"data_of": "both"}
    )
    report = rm_gallery.evaluate(
        judge(),
        ROWS[:9000],
        run_dir=folder,
        budget=Budget(max_calls=5010),
        progress=False,
        manifest={"data_of": "both"},
    )
    assert 2500 < report.n_scored < 2520 and report.n == 9000


@pytest.mark.long("a run in trouble")
def test_a_shard_counts_its_own_rows(tmp_path: Path) -> None:
    whole = [
        rm_gallery.evaluate(
            judge(), ROWS, shard=f"{k}/2", budget=Budget(max_calls=CALLS), progress=False
        )
        for k in (1, 2)
    ]
    assert sum(report.n for report in whole) == N and all(
        report.n_stopped > N / 3 for report in whole
    )


def test_a_rule_that_weighs_parts_is_open_where_they_are_unknown() -> None:
    rows = [{**row, "subset": f"s{k % 2}"} for k, row in enumerate(ROWS)]
    report = rm_gallery.evaluate(
        judge(), rows, Preferences(), budget=Budget(max_calls=CALLS), progress=False
    )
    assert (
        report.bounds is not None
        and report.bounds[0] < 0.01
        and report.bounds[1] == 1.0
        and sum(part.n for part in report.by_subset.values()) < N
    )


# -- doors that return one result for each item ----------------------------------------------------

ITEMS = 5000


async def _streamed(reward: BaseReward, given: list[DataSample], **how: Any) -> list[DataSample]:
    return [one async for one in reward.async_evaluate_stream(iter(given), **how)]


MANY: dict[str, Callable[..., list[DataSample]]] = {
    "evaluate_batch": lambda reward, given, **how: reward.evaluate_batch(given, **how),
    "evaluate_stream": lambda reward, given, **how: list(
        reward.evaluate_stream(iter(given), **how)
    ),
    "async_evaluate_batch": lambda reward, given, **how: asyncio.run(
        reward.async_evaluate_batch(given, **how)
    ),
    "async_evaluate_stream": lambda reward, given, **how: asyncio.run(
        _streamed(reward, given, **how)
    ),
}
KINDS = (PointJudge, ListJudge, PairJudge, StepJudge)


def counted(base: type[BaseReward]) -> tuple[BaseReward, Counter[str]]:
    """A judge of this kind, and how often it plans, judges and merges."""
    seen: Counter[str] = Counter()

    class CountingKind(type(base.kind)):  # type: ignore[misc]
        def jobs(self, *given: Any) -> Any:
            seen["plan"] += 1
            return super().jobs(*given)

        def merge(self, *given: Any) -> Any:
            seen["merge"] += 1
            return super().merge(*given)

    class Counting(base):  # type: ignore[misc,valid-type]
        kind = CountingKind(str(base.kind))
        kind.__dict__ |= vars(base.kind)

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
            seen["judge"] += 1
            return super()._evaluate(sample, **kwargs)

    return judge(Counting), seen


def issues_of(sample: DataSample) -> list[list[Any]]:
    return [
        [issue.model_dump() for issue in step.reward.issues]
        for o in sample.output
        for step in (o.answer, *(o.steps or ()))
    ]


CASES = [("evaluate_batch", kind, False) for kind in KINDS] + [
    (door, PointJudge, True) for door in MANY
]
CASES += [(door, StepJudge, False) for door in MANY if door != "evaluate_batch"]


@pytest.mark.parametrize(("door", "kind", "kept"), some(CASES, 1), ids=str)
def test_what_is_left_is_handed_back_without_being_planned(
    door: str, kind: type[BaseReward], kept: bool, tmp_path: Path
) -> None:
    given = [make_sample("a b", "c", unique_id=f"s{k}", query=f"q{k}") for k in range(ITEMS)]
    for one in given:
        for output in one.output:
            output.steps = [Step(content="x y")]
    reward, seen = counted(kind)
    control, folder = RunControl(), tmp_path / "run"
    how: dict[str, Any] = {"budget": Budget(max_calls=CALLS), "control": control, "progress": False}
    found = MANY[door](reward, given, **how, **({"run_dir": str(folder)} if kept else {}))
    assert control.calls == CALLS and max(seen.values()) < ITEMS / 2, (
        "the planner and the judge saw only the first"
    )
    assert [one.unique_id for one in found] == [one.unique_id for one in given]
    assert all(not output.answer.reward.issues for one in given for output in one.output), (
        "what was given stays as it was"
    )
    stopped = [
        one for one in found if any(reward.score_of_output(output) is None for output in one.output)
    ]
    assert ITEMS - CALLS <= len(stopped) < ITEMS
    # of those in flight, which were planned, some had been judged in part and some been refused
    assert issues_of(found[-1]) in map(issues_of, stopped[:64]), (
        "the same as where the run had planned it"
    )
    progress = control.progress
    assert (progress.done, progress.failed, progress.reused) == (
        ITEMS,
        0,
        0,
    ) and progress.stopped == len(stopped)
    if kept:
        counts = orjson.loads((folder / "summary.json").read_bytes())["samples"]
        assert counts["scored"] == ITEMS - len(stopped) and counts["stopped"] == len(stopped)
        assert len((folder / "results.jsonl").read_text().splitlines()) == counts["scored"]


RUNNER: dict[str, Callable[..., list[Any]]] = {
    "run": lambda runner, rows, **how: runner.run(rows, **how)["g"],
    "arun": lambda runner, rows, **how: asyncio.run(runner.arun(rows, **how))["g"],
    "stream": lambda runner, rows, **how: [
        found["g"] for found in runner.stream(iter(rows), **how)
    ],
}


@pytest.mark.parametrize("door", RUNNER)
def test_rows_that_are_left_are_not_mapped(door: str) -> None:
    seen: Counter[str] = Counter()

    def mapper(row: Any) -> dict[str, Any]:
        seen["mapped"] += 1
        return {"response": row["answer"]}

    grader = LLMGrader(
        name="g", model=FakeLLM(reply="<score>1</score>"), prompt="x {{response}} {{id}}"
    )
    runner = GradingRunner({"g": (grader, mapper)}, show_progress=False)
    rows = [{"id": f"r{k}", "answer": "a b"} for k in range(ITEMS)]
    control = RunControl()
    found = RUNNER[door](runner, rows, budget=Budget(max_calls=CALLS), control=control)
    assert len(found) == ITEMS and control.calls == CALLS and seen["mapped"] < ITEMS / 2
    stopped = [one for one in found if not one.ok]
    assert len(stopped) == ITEMS - CALLS == control.progress.stopped and {
        one.status for one in stopped
    } == {"failed"}
    assert stopped[-1].model_dump(exclude={"metadata"}) == stopped[50].model_dump(
        exclude={"metadata"}
    )


# -- one run, one count ----------------------------------------------------------------------------

TABLE = [
    {
        "id": f"r{k}",
        "prompt": f"q{k}",
        "chosen": "a b",
        "rejected": "c",
        "query": f"q{k}",
        "response": "a b",
    }
    for k in range(100)
]
BEST_OF_4 = [
    {
        "id": f"r{k}",
        "prompt": f"q{k}",
        "chosen": ["a b"],
        "rejected": ["c", "d", "e"],
        "subset": "Focus",
    }
    | {"num_correct": 1, "num_incorrect": 3}
    for k in range(100)
]
JUDGE = "base_helpfulness_pointwise"
COMMANDS = {
    "eval": ["eval", JUDGE, "rows.jsonl"],
    "score": ["score", JUDGE, "rows.jsonl", "--prompt", "prompt", "--answer", "chosen"],
    "winrate": [
        "winrate",
        JUDGE,
        "rows.jsonl",
        "--prompt",
        "prompt",
        "--a",
        "chosen",
        "--b",
        "rejected",
    ],
    "grade": ["grade", "graders.yaml", "rows.jsonl"],
    "bench": ["bench", JUDGE, "rewardbench2", "--data", "four.jsonl"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_closing_line_json_summary_and_page_count_alike(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget that ends in the middle of a row: 21 calls, where a row takes one, two or four."""
    monkeypatch.chdir(tmp_path)
    for file, rows in (("rows.jsonl", TABLE), ("four.jsonl", BEST_OF_4)):
        Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("graders.yaml").write_text("graders: {g: {grader: relevance}}")
    how = [
        "--llm",
        "fake:<score>3</score>",
        "--no-cache",
        "--max-calls",
        "21",
        "--out",
        "run",
        "--json",
    ]
    done = command(*COMMANDS[name], *how)
    report = json.loads(done.out)
    scored, stopped = report["n_scored"], report["n_stopped"]
    assert done.code == 1 and report["calls"] == 21
    assert (
        0 < scored <= 21
        and scored + stopped == report["n"] == 100
        and report["missing"] == {"caller": stopped}
    )
    assert f"{scored}/100 done · {stopped} stopped · 0 unscored" in done.err.replace(
        f"{scored} done", f"{scored}/100 done"
    )
    summary = orjson.loads(Path("run/summary.json").read_bytes())
    counts = {"scored": scored, "unscored": 0, "failed": 0, "stopped": stopped}
    assert {key: summary["samples"][key] for key in counts} == counts and summary["spent"][
        "calls"
    ] == 21
    assert command("report", "run").code == 0
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", Path("run/report.html").read_text()))
    assert (
        f"{stopped} of 100 rows are missing ({stopped} by the caller)" in page
        and f"Not in the score: {stopped} stopped" in page
    )
    assert f"over {scored} scored of 100 samples" in page or f"judges {scored} of 100 rows" in page
