"""Who caused that a row has no result: each grader's rows are looked at by themselves, what comes of
it goes to that grader's result alone, and is kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    Budget,
    ConfigError,
    FakeLLM,
    FunctionGrader,
    GraderConfig,
    GraderError,
    GraderScore,
    GradingRunner,
    LLMGrader,
)
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.graders.base import score_of

TEXTS = ("TRAP", "0.5", "0.25", "another TRAP")
ROWS = [{"id": text, "query": "q", "response": text} for text in TEXTS]
BROKEN: set[str] = set()


def length(response: str) -> float:
    return len(response) / 100


def numeric(response: str) -> GraderScore:
    """The answer's number; breaks at what is none, and once at what is to break."""
    if response in BROKEN:
        BROKEN.remove(response)
        raise OSError("no luck")
    return GraderScore(score=float(response), reason="read", metadata={"read": response})


def made(function: Any, **settings: Any) -> GraderConfig:
    return GraderConfig(FunctionGrader(function, score_range=(0.0, 1.0)), **settings)


def scores(column: list[Any]) -> list[float | None]:
    return [each.score if isinstance(each, GraderScore) else None for each in column]


def test_what_is_found_about_one_grader_is_not_said_of_another(tmp_path: Path) -> None:
    """Also with rows that were not looked at, and with what a grader says beside its score."""
    BROKEN.add("0.25")
    runner = GradingRunner({"length": made(length), "numeric": made(numeric)}, show_progress=False)
    found = runner.run(ROWS, blame="probe", run_dir=tmp_path)
    assert scores(found["length"]) == [0.04, 0.03, 0.04, 0.12]
    assert not any(each.metadata for each in found["length"])
    assert scores(found["numeric"]) == [0.0, 0.5, 0.25, 0.0]
    trap, plain, again, other = found["numeric"]
    assert trap.metadata["caused_by"] == other.metadata["caused_by"] == "answer"
    assert (plain.reason, plain.metadata) == ("read", {"read": "0.5"})
    assert (again.reason, again.metadata) == ("read", {"read": "0.25"}), "as it says when it can"


def test_a_grader_is_looked_at_alike_beside_others() -> None:
    """Its answers with a score were no controls beside another grader, and what broke it went free:
    no neutral text is JSON.
    """

    def reads(response: str) -> float:
        return float(json.loads(response)["n"])

    rows = [{"query": "q", "response": text} for text in ('{"n": 0.5}', "TRAP", '{"n": 0.25}')]
    for others in ({}, {"length": made(length)}):
        runner = GradingRunner({"reads": made(reads), **others}, show_progress=False)
        found = runner.run(rows, blame="probe")["reads"]
        assert scores(found) == [0.5, 0.0, 0.25]
        assert found[1].metadata == {"caused_by": "answer", "reason": "error"}


def test_what_is_found_is_kept_in_the_folder_of_the_run(tmp_path: Path) -> None:
    runner = GradingRunner({"length": made(length), "numeric": made(numeric)}, show_progress=False)

    def run() -> tuple[list[float | None], dict[str, int]]:
        found = runner.run(ROWS, blame="probe", run_dir=tmp_path)["numeric"]
        summary = json.loads((tmp_path / "summary.json").read_bytes())["samples"]
        return scores(found), {name: summary[name] for name in ("scored", "failed", "reused")}

    expected = [0.0, 0.5, 0.25, 0.0]
    assert run() == (expected, {"scored": 4, "failed": 0, "reused": 0})
    kept = [json.loads(line) for line in (tmp_path / "results.jsonl").read_bytes().splitlines()]
    assert sorted(record["id"] for record in kept) == sorted([*TEXTS, "TRAP", "another TRAP"]), (
        "once more for those of which something was found, and for no other"
    )
    last = {record["id"]: record for record in kept}
    assert {record["status"] for record in last.values()} == {"scored"}
    assert last["TRAP"]["results"]["numeric"]["score"] == 0.0
    assert run()[0] == expected and run()[1]["reused"] == 4


def test_what_was_found_is_not_compared_with_what_the_code_says(tmp_path: Path) -> None:
    """A run that was cut off goes on: its records are made again, and there nobody looks twice."""

    def not_always(response: str) -> Any:
        return "no number" if "TRAP" in response else 0.5

    runner = GradingRunner({"it": made(not_always)}, show_progress=False, run_dir=tmp_path)
    assert scores(runner.run(ROWS, blame="probe")["it"]) == [0.0, 0.5, 0.5, 0.0]
    more = [*ROWS, {"id": "new", "query": "q", "response": "new"}]
    assert scores(runner.run(more, blame="probe")["it"]) == [0.0, 0.5, 0.5, 0.0, 0.5]


def test_on_error_is_for_what_is_nobodys_or_somebody_elses_doing() -> None:
    """Each answer breaks it: none says that another one could have been judged."""

    def broken(response: str) -> float:
        raise OSError(f"{response} broke")

    graders = {"numeric": made(numeric, on_error=0.75), "broken": made(broken, on_error=0.75)}
    found = GradingRunner(graders, show_progress=False).run(ROWS, blame="probe")
    assert scores(found["numeric"]) == [0.0, 0.5, 0.25, 0.0]
    assert scores(found["broken"]) == [0.75] * 4
    assert "TRAP broke" in found["broken"][0].metadata["on_error"]["error"]


def reply(prompt: Any) -> str:
    return "no verdict" if "TRAP" in str(prompt) else "<reason>so</reason><score>7</score>"


def read_by_a_judge(**options: Any) -> tuple[list[float | None], int]:
    """The scores, and how many calls the run says it made."""
    judge: Any = {"model": FakeLLM(reply=reply), "prompt": "{{response}}", "repair_attempts": 0}
    grader = LLMGrader(name="read", score_range=(0, 10), **judge)
    control = RunControl()
    found = grader.evaluate_batch(ROWS, blame="probe", cache=False, control=control, **options)
    return scores(found), control.calls


@pytest.mark.parametrize("kept", [False, True])
def test_the_budget_of_the_run_is_that_of_its_second_look(kept: bool, tmp_path: Path) -> None:
    """What is spent is spent: nobody is blamed by calls that the run may not make."""
    folder: dict[str, Any] = {"run_dir": tmp_path / "run"} if kept else {}
    assert read_by_a_judge(budget=Budget(max_calls=4), **folder) == ([None, 7.0, 7.0, None], 4)


def test_what_a_second_look_asks_is_on_the_bill_of_the_run(tmp_path: Path) -> None:
    found, calls = read_by_a_judge(run_dir=tmp_path)
    assert found == [0.0, 7.0, 7.0, 0.0] and calls > 4
    assert json.loads((tmp_path / "summary.json").read_bytes())["spent"]["calls"] == calls


def test_a_row_without_its_field_ends_a_run_that_is_to_raise_at_once() -> None:
    """No answer made that: what comes later is not graded before it is told."""
    graded = list[str]()

    def noted(response: str, context: str) -> float:
        graded.append(response)
        return 0.5

    rows: list[dict[str, Any]] = [{"response": "first"}]
    rows += [{"response": str(n), "context": "c"} for n in range(300)]
    runner = GradingRunner(
        {"noted": made(noted, on_error="raise")}, show_progress=False, max_workers=1
    )
    with pytest.raises(ConfigError, match="noted of row"):
        runner.run(rows, blame="probe")
    assert len(graded) < 300


def test_rows_the_run_did_not_get_to_are_looked_at_by_no_grader() -> None:
    control = RunControl()

    def stops(response: str) -> float:
        control.stop("enough")
        return 0.5

    runner = GradingRunner({"length": made(length), "stops": made(stops)}, show_progress=False)
    found = runner.run(ROWS * 550, blame="probe", max_workers=1, control=control)
    for column in found.values():
        assert score_of(column[-1]).code == "stopped"
    assert 0.5 in scores(found["stops"])


def test_what_breaks_on_its_own_reference_as_well_is_no_answers_doing() -> None:
    def reads(response: str, reference_response: str) -> float:
        return float(response)

    rows = [{"response": "TRAP", "reference_response": text} for text in ("0.5", "a word")]
    runner = GradingRunner({"reads": made(reads)}, show_progress=False)
    readable, unreadable = (runner.run([row], blame="probe")["reads"][0] for row in rows)
    assert (scores([readable]), readable.metadata["caused_by"]) == ([0.0], "answer")
    assert isinstance(unreadable, GraderError) and unreadable.cause == "rule"
