"""With `--out` the same command continues an unfinished run and asks nothing twice; another run is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.rows import best_of_4
from tests.support.command import Done, command
from tests.support.judge_server import JudgeServer


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return best_of_4(tmp_path / "data.jsonl", count=40)


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer("first", in_process=True) as running:
        yield running


def judged(server: JudgeServer, data: Path, run: Path, *options: str) -> Done:
    endpoint = ["--llm", "judge-1", "--base-url", server.base_url, "--no-cache"]
    return command("eval", "safety_listwise_reward", str(data), *endpoint, "--out", str(run), "--json", *options)


def test_a_run_is_continued(server: JudgeServer, data: Path, tmp_path: Path) -> None:
    server.reset()
    run = tmp_path / "run"
    stopped = judged(server, data, run, "--max-calls", "15", "--max-workers", "4")
    counts = json.loads(stopped.out)
    assert (stopped.code, counts["n_scored"], counts["n_stopped"], counts["n_failed"]) == (1, 15, 25, 0)
    assert "higher --max-calls" in stopped.err
    assert server.stats()["requests"] == 15

    finished = judged(server, data, run, "--max-workers", "4")
    result = json.loads(finished.out)
    assert (finished.code, result["n_scored"], result["n_failed"], result["calls"]) == (0, 40, 0, 25)
    assert (server.stats()["requests"], server.stats()["max_attempts"]) == (40, 1), "no call is repeated"

    again = json.loads(judged(server, data, run).out)
    cost = {"seconds", "calls", "usage"}
    assert {k: v for k, v in again.items() if k not in cost} == {k: v for k, v in result.items() if k not in cost}
    assert again["calls"] == 0
    assert server.stats()["requests"] == 40

    fresh = json.loads(judged(server, data, tmp_path / "other").out)
    assert fresh["by_subset"] == result["by_subset"], "a run in parts gives what a run at once gives"


@pytest.mark.parametrize(
    ("options", "change"),
    [(["--limit", "30"], "limit"), (["--seed", "5"], "seed"), (["--param", "desc=Be strict."], "desc")],
)
def test_another_run_is_refused_with_what_differs(
    server: JudgeServer, data: Path, tmp_path: Path, options: list[str], change: str
) -> None:
    run = tmp_path / "run"
    assert judged(server, data, run, "--max-calls", "1").code == 1
    refused = judged(server, data, run, *options)
    assert (refused.code, refused.out) == (2, "")
    assert "--force-new" in refused.err
    assert change in refused.err
    assert judged(server, data, run, *options, "--force-new").code == 0
