"""A grader run is kept in its folder: the same run continues there, only what is missing is judged
again, and traced.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    ConfigError,
    FakeLLM,
    FunctionGrader,
    GraderConfig,
    GraderRank,
    GraderRegistry,
    GraderScore,
    GradingRunner,
    LLMGrader,
    RewardRegistry,
    Unscored,
    WeightedSum,
)
from rm_gallery.core.engine.folder import read_trace
from rm_gallery.core.graders.base import GraderResult
from rm_gallery.core.runner.aggregator import WeightedSumAggregator
from tests.support.samples import make_sample, scores

ROWS = [{"id": f"r{n}", "query": f"q{n}", "response": "x" * n} for n in range(6)]
CALLS: Counter[str] = Counter()
BROKEN: set[str] = set()


def length(response: str) -> float:
    CALLS["length"] += 1
    return len(response) / 10


async def fragile(query: str) -> float:
    CALLS["fragile"] += 1
    if query in BROKEN:
        raise OSError(f"{query} broke")
    if query == "q1":
        raise Unscored("nothing to grade by", reason="empty")
    return 1.0


def ranking(responses: list[str]) -> GraderRank:
    CALLS["ranking"] += 1
    return GraderRank(
        rank=[2, 1], reason="the second", metadata={"seen": tuple(responses), "of": {1: 2}}
    )


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FunctionGrader, "fingerprint", "nothing is graded again")
    CALLS.clear()
    BROKEN.clear()


def runner(folder: Path, graders: Mapping[str, Any], **settings: Any) -> GradingRunner:
    return GradingRunner(graders, show_progress=False, run_dir=folder, **settings)


def plain(results: Mapping[str, list[GraderResult]]) -> dict[str, list[Any]]:
    return {
        name: [result.model_dump(exclude={"usage"}) for result in column]
        for name, column in results.items()
    }


def test_the_same_run_continues_and_only_what_failed_is_judged_again(tmp_path: Path) -> None:
    BROKEN.update({"q2", "q4"})
    made = runner(
        tmp_path / "run",
        {"length": length, "fragile": fragile},
        aggregators=WeightedSumAggregator("all"),
    )
    first = made.run(ROWS)
    assert CALLS == {"length": 6, "fragile": 6}
    assert [result.ok for result in first["fragile"]] == [True, False, False, True, False, True]
    BROKEN.clear()
    second = made.run(ROWS)
    assert CALLS == {"length": 6, "fragile": 8}, (
        "of the rows that failed only the grader that failed is asked again"
    )
    assert [result.ok for result in second["all"]] == [True, False, True, True, True, True]
    assert plain(made.run(ROWS)) == plain(asyncio.run(made.arun(iter(ROWS)))) == plain(second)
    assert [row["all"].ok for row in made.stream(ROWS)] == [True, False, True, True, True, True]
    assert CALLS == {"length": 6, "fragile": 8}
    summary = json.loads((tmp_path / "run" / "summary.json").read_bytes())
    assert summary["samples"]["reused"] == 6
    lines = (tmp_path / "run" / "results.jsonl").read_bytes().splitlines()
    statuses = [json.loads(line)["status"] for line in lines]
    assert Counter(statuses) == {"scored": 5, "failed": 2, "unscored": 1}


def test_ranks_equal_rows_and_odd_metadata_come_back(tmp_path: Path) -> None:
    rows = [{"responses": ["a", "b"]}] * 3
    made = runner(tmp_path, {"ranking": FunctionGrader(ranking, mode="listwise")})
    first, again = made.run(rows), made.run(rows)
    assert CALLS == {"ranking": 3}
    assert [(r.rank, r.reason) for r in again["ranking"]] == [([2, 1], "the second")] * 3  # type: ignore[attr-defined]
    assert len(first["ranking"]) == 3


@pytest.mark.parametrize(("other", "said"), [
    ({"other": length}, "graders"),
    ({"length": FunctionGrader(length, score_range=(0, 5))}, "score_range"),
])  # fmt: skip
def test_another_run_in_the_folder_is_refused_with_the_difference(
    other: dict[str, Any], said: str, tmp_path: Path
) -> None:
    runner(tmp_path, {"length": length}).run(ROWS)
    with pytest.raises(ConfigError, match=f"different run(.|\n)*{said}"):
        runner(tmp_path, other).run(ROWS)
    runner(tmp_path, {"length": length}, aggregators=WeightedSumAggregator("new")).run(ROWS)
    assert CALLS == {"length": 6}, "an aggregator works on what is there"


def test_what_a_grader_reads_makes_a_row_and_no_other_column_does(tmp_path: Path) -> None:
    def graded(rows: list[dict[str, Any]], response: str) -> list[float]:
        mapped = GraderConfig(
            FunctionGrader(length), mapper=lambda row: {"response": row[response]}
        )
        return [r.score for r in runner(tmp_path, {"length": mapped}).run(rows)["length"]]

    first = graded(ROWS, "query")
    assert graded([{**row, "more": 1} for row in ROWS], "query") == first and CALLS == {"length": 6}
    rows = [{**row, "other": "longer"} for row in ROWS]
    assert graded(rows, "other") == [0.6] * 6 != first, "another mapper reads other fields"
    assert CALLS == {"length": 12}


def test_on_error_is_laid_over_what_is_kept(tmp_path: Path) -> None:
    BROKEN.add("q3")
    made = runner(tmp_path, {"fragile": GraderConfig(FunctionGrader(fragile), on_error=0.5)})
    for _ in range(2):
        found = made.run(ROWS)["fragile"]
        assert [r.score for r in found] == [1.0, 0.5, 1.0, 0.5, 1.0, 1.0]
        assert "broke" in found[3].reason
    assert CALLS == {"fragile": 7}, "what is unscored stays so, what failed is tried again"


def test_a_run_of_the_earlier_spelling_goes_on(tmp_path: Path) -> None:
    earlier: Any = "propagate"
    first = runner(tmp_path, {"length": GraderConfig(FunctionGrader(length), on_error=earlier)})
    first.run(ROWS)
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    assert manifest["graders"]["length"]["on_error"] == "propagate", "as in earlier folders"
    runner(tmp_path, {"length": GraderConfig(FunctionGrader(length), on_error="none")}).run(ROWS)
    assert CALLS == {"length": 6}


def test_a_damaged_record_is_judged_again(tmp_path: Path) -> None:
    made = runner(tmp_path, {"length": length})
    expected = made.run(ROWS)
    path = tmp_path / "results.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    records = [json.loads(line) for line in lines]
    records[0]["results"]["length"]["score"] = 7.0
    records[1]["results"] = [1]
    records[2]["results"]["length"]["kind"] = "opinion"
    whole = b"".join(json.dumps(record).encode() + b"\n" for record in records[:4])
    path.write_bytes(whole + lines[4] + lines[5][: len(lines[5]) // 2])
    assert plain(made.run(ROWS)) == plain(expected) and CALLS == {"length": 6 + 4}


def test_a_trace_names_the_row_also_behind_a_strategy_and_in_a_reward(tmp_path: Path) -> None:
    model = FakeLLM(reply=lambda prompt: "<reason>so</reason><score>4</score>")
    graders = {
        "relevance": GraderRegistry.create("relevance", model=model),
        "twice": GraderConfig(GraderRegistry.create("correctness", model=model), repeat=2),
        "reward": RewardRegistry.create(
            "base_helpfulness_pointwise", llm=FakeLLM(reply=lambda prompt: "<score>4</score>")
        ),
    }
    found = runner(tmp_path, graders, trace=True).run(ROWS[:2])
    assert all(isinstance(result, GraderScore) for column in found.values() for result in column)
    entries = list(read_trace(tmp_path))
    seen = Counter(
        entry["id"] for entry in entries if entry["reward"] != "base_helpfulness_pointwise"
    )
    assert seen == {"r0": 3, "r1": 3}
    assert len(entries) == 8 and all(entry["prompt"] for entry in entries)


def test_a_single_grader_keeps_its_batch_too(tmp_path: Path) -> None:
    first, again = (FunctionGrader(length).evaluate_batch(ROWS, run_dir=tmp_path) for _ in "ab")
    assert CALLS == {"length": 6} and [r.score for r in first] == [r.score for r in again]


ASKED = [{"id": f"r{n}", "query": f"q{n}", "response": "a b"} for n in range(6)]
JUDGES: dict[str, Any] = {
    "a grader": lambda prompt: LLMGrader(
        name="g", model=FakeLLM(reply="<score>1</score>"), prompt=prompt
    ),
    "a grader in a reward": lambda prompt: JUDGES["a grader"](prompt),
}


@pytest.mark.parametrize("kind", JUDGES)
def test_a_judge_is_not_asked_other_things_however_it_is_wrapped(kind: str, tmp_path: Path) -> None:
    grader = JUDGES[kind]("x {{response}}")
    runner(tmp_path, {"g": grader}).run(ASKED)
    path = tmp_path / "results.jsonl"
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(record["asked"] for record in kept)
    path.write_text("".join(json.dumps({**record, "asked": ["0" * 12]}) + "\n" for record in kept))
    with pytest.raises(ConfigError, match="the judge was asked something else"):
        runner(tmp_path, {"g": grader}).run(ASKED)


def test_a_run_that_told_a_grader_of_samples_as_a_reward_around_it_goes_on(tmp_path: Path) -> None:
    judge = FakeLLM(reply="<score>4</score>")
    samples = [make_sample("one", "two", unique_id=name) for name in "ab"]

    def run() -> list[Any]:
        reward: Any = WeightedSum({"it": RewardRegistry.create("grader:relevance", llm=judge)})
        return [scores(each) for each in reward.evaluate_batch(samples, run_dir=tmp_path)]

    first = run()
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    told = manifest["reward"]["rewards"]["it"]
    around = {"class": "rm_gallery.GraderReward", "name": "grader:relevance", "llm": told["llm"]}
    manifest["reward"]["rewards"]["it"] = {**around, "grader": {**told, "name": "relevance"}}
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert run() == first == [[4.0, 4.0]] * 2
    manifest["reward"]["rewards"]["it"]["grader"]["desc"] = "Another question."
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ConfigError, match="it.desc"):
        run()


def own_scale(response: str) -> GraderScore:
    said = {"range": (0, 10), "threshold": 5.0, "higher_is_better": False}
    return GraderScore(name="mine", score=len(response), **said)  # type: ignore[arg-type]


def test_what_a_result_says_of_its_own_scale_comes_out_at_every_door(tmp_path: Path) -> None:
    """In the place of what its grader says, which has [0, 1] and a higher score as the better one."""
    grader = FunctionGrader(own_scale)
    rows = [{"id": "a", "query": "q", "response": "four"}]
    runner = GradingRunner({"own": grader}, show_progress=False)
    found = [
        grader.evaluate(rows[0]),
        *grader.evaluate_batch(rows),
        *(runner.run(rows)["own"] + runner.run(rows, blame="probe")["own"]),
        *(runner.run(rows, run_dir=tmp_path)["own"][0] for _ in range(2)),
        *(row["own"] for row in runner.stream(rows)),
    ]
    for result in found:
        scale = result.range, result.higher_is_better, result.threshold
        assert (result.name, result.score, scale) == ("mine", 4.0, ((0.0, 10.0), False, 5.0))
        assert (result.metadata, result.passed()) == ({}, True)
