"""Exit code 0 when done, 1 when too many samples failed, 2 for wrong usage or input; results alone go to stdout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.rows import best_of_4
from tests.support.command import command
from tests.support.judge_server import JudgeServer


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return best_of_4(tmp_path / "data.jsonl", count=40)


@pytest.mark.parametrize(("max_failures", "code"), [("0", 1), ("1", 1), ("1000", 0)])
def test_failures_beyond_the_limit(data: Path, max_failures: str, code: int) -> None:
    faults = {"server_error": 0.3, "sticky": True}
    with JudgeServer("fixed:<best>1</best>", faults=faults, in_process=True) as server:
        llm = json.dumps({"model": "judge-1", "base_url": server.base_url, "max_attempts": 1})
        judge = ["safety_listwise_reward", str(data), "--param", f"llm={llm}", "--json"]
        done = command("eval", *judge, "--max-failures", max_failures)
    result = json.loads(done.out)
    assert 2 <= result["n_failed"] < 30
    assert result["n_scored"] == 40 - result["n_failed"]
    assert result["score"] is not None
    assert done.code == code
    assert f"{result['n_failed']} samples failed: transient: {server.base_url} answered 500" in done.err


def test_why_a_run_stopped_is_said_once_and_what_was_not_begun_is_not_called_failed(data: Path) -> None:
    llm = json.dumps({"model": "judge-1", "base_url": "http://127.0.0.1:1/v1", "max_attempts": 1})
    done = command("eval", "safety_listwise_reward", str(data), "--param", f"llm={llm}", "--max-workers", "4", "--json")
    result = json.loads(done.out)
    assert done.code == 1 and result["n_stopped"] > 0
    assert done.err.count("Cannot connect to") == 1, done.err
    assert "samples failed" not in done.err
    assert result["reasons"]["stopped: stopped"]["n"] == result["n_stopped"]


USAGE = [
    ([], "Missing argument"),
    (["length_baseline"], "Missing argument"),
    (["length_baseline", "DATA", "--limit", "0"], "--limit"),
    (["length_baseline", "DATA", "--limit", "few"], "--limit"),
    (["length_baseline", "DATA", "--max-workers", "0"], "--max-workers"),
    (["length_baseline", "DATA", "--no-such-option"], "--no-such-option"),
    (["length_baseline", "DATA", "--llm", "judge-1"], "length_baseline calls no model"),
    (["length_baseline", "DATA", "--base-url", "http://127.0.0.1:1/v1"], "length_baseline calls no model"),
    (["safety_listwise_reward", "DATA"], "is judged by a model and none is named; say which with --llm MODEL"),
    (["safety_listwise_reward", "DATA", "--base-url", "http://127.0.0.1:1/v1"], "none is named"),
    (["length_baseline", "DATA", "--trace"], "name one with --out RUN"),
    (["length_baseline", "DATA", "--benchmark", "rewardbnch2"], "There is no benchmark 'rewardbnch2'"),
    (["safety_listwise_reward", "DATA", "--llm", "x", "--param", 'llm={"model": "y"}'], "names the judge already"),
    (["length_baseline", "DATA", "--max-cost", "1"], "max_cost needs prices"),
    (["lenght_baseline", "DATA"], "There is no reward 'lenght_baseline'. Did you mean length_baseline"),
    (["length_baseline", "missing.parquet"], "missing.parquet: no such file or folder"),
    (["bt:no/such/folder", "DATA"], "no/such/folder"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE)
@pytest.mark.parametrize("as_json", [False, True])
def test_wrong_usage(data: Path, arguments: list[str], message: str, as_json: bool) -> None:
    given = [str(data) if argument == "DATA" else argument for argument in arguments]
    done = command("eval", *given, *(["--json"] if as_json else []))
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_no_command_shows_the_help_and_an_unknown_one_is_wrong_usage() -> None:
    assert command().code == 2
    assert "eval" in command("--help").out
    assert command("--help").code == 0
    assert command("evaluate").code == 2
