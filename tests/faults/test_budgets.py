"""A budget ends a run cleanly; the same command with a higher one finishes it, and every sample is
paid once.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.material import eval_arguments, records, write_data
from tests.support.command import Done, command
from tests.support.judge_server import JudgeServer

N = 60


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    file = tmp_path / "prices.yaml"
    file.write_text("judge-*: {input: 1000, output: 2000}\n")
    return file


def judged(server: JudgeServer, data: Path, folder: Path | None, *options: str) -> Done:
    return command(*eval_arguments(data, server, folder, "--max-workers", "4", *options))


@pytest.mark.long("a run in trouble")
@pytest.mark.parametrize(
    ("option", "low"), [("--max-calls", "20"), ("--max-tokens", "9000"), ("--max-cost", "9.5")]
)
def test_a_stopped_run_is_finished_later(
    server: JudgeServer, tmp_path: Path, prices: Path, option: str, low: str
) -> None:
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    fixed = ["--prices", str(prices), "--no-cache"]
    judged(server, data, folder, option, low, *fixed)
    before = server.stats()["requests"]
    stopped = judged(server, data, folder, option, low, *fixed)
    asked = server.stats()["requests"]
    assert asked <= before + 4, (
        "the same command spends its limit once, but for what was set aside for calls in flight"
    )
    result = json.loads(stopped.out)
    assert stopped.code == 1 and "with a higher --config budget.max_" in stopped.err
    assert (
        0 < result["n_scored"] < N
        and result["n_scored"] + result["n_failed"] + result["n_stopped"] == N
    )
    assert server.stats()["requests"] == asked == result["n_scored"]
    assert len(records(folder)) == result["n_scored"], (
        "a sample that was not begun leaves no record"
    )

    finished = judged(server, data, folder, option, "1000000", *fixed)
    whole = json.loads(finished.out)
    assert (finished.code, whole["n_scored"], whole["score"]) == (0, N, 1.0) and server.stats()[
        "requests"
    ] == N
    assert server.stats()["max_attempts"] == 1
    assert sorted(record["id"] for record in records(folder)) == sorted(
        f"sum-{k}" for k in range(N)
    )


def test_an_estimate_is_near_what_the_run_takes(
    server: JudgeServer, tmp_path: Path, prices: Path
) -> None:
    data = write_data(tmp_path / "data.jsonl", N)
    estimate = json.loads(judged(server, data, None, "--estimate", "--prices", str(prices)).out)
    assert server.stats()["requests"] == 10 and (
        estimate["samples"],
        estimate["calls"]["mean"],
    ) == (N - 10, N - 10)
    assert judged(server, data, tmp_path / "run", "--prices", str(prices)).code == 0
    assert server.stats()["requests"] == N, "what the estimate asked is not paid again"
    asked, replied = (
        (N - 10) * server.stats()["usage"][f"{kind}_tokens"] / N
        for kind in ("prompt", "completion")
    )
    cost = (1000 * asked + 2000 * replied) / 1e6
    for name, value in (("input_tokens", asked), ("output_tokens", replied), ("cost", cost)):
        found = estimate[name]
        assert found["low"] * 0.98 <= value <= found["high"] * 1.02 and found[
            "mean"
        ] == pytest.approx(value, rel=0.05)
    assert 0 < estimate["seconds"]["mean"]
