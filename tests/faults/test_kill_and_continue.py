"""`kill -9` at any moment: the same command finishes the run, every sample once, and pays at most what was in flight."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from rm_gallery.report.opened import open_run
from tests.faults.material import eval_arguments, records, write_data
from tests.faults.processes import command, group_ended, reached, started
from tests.support.children import run_command
from tests.support.judge_server import JudgeServer

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are killed by a signal on POSIX only")
N = 240
KILLS = 4
WORKERS = 12


def kill_once(arguments: list[str], server: JudgeServer, cwd: Path, after: int) -> None:
    """Start the command and kill it once the server saw `after` more requests."""
    seen = server.stats(detail=False)["requests"]
    with started(*command(*arguments), cwd=cwd) as process:
        reached(server, process, lambda stats: stats["requests"] >= seen + after)
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
        assert group_ended(process.pid)
    server.wait_until(lambda stats: stats["in_flight"] == 0 and stats["connections_open"] == 0)


def ended_whole(folder: Path, ids: list[str]) -> bool:
    """Whether the folder holds each sample once, for people and for reports."""
    found = Counter(record["id"] for record in records(folder)), Counter(row.id for row in open_run(folder).samples())
    return found == (Counter(ids), Counter(ids)) and {record["status"] for record in records(folder)} == {"scored"}


def test_killed_again_and_again(server: JudgeServer, tmp_path: Path) -> None:
    server.set(latency=0.05)
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--max-workers", str(WORKERS))
    moments = random.Random(5)
    for _ in range(KILLS):
        kill_once(arguments, server, tmp_path, moments.randint(1, N // (KILLS + 1)))
    finished = run_command(*arguments, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    assert (result["n"], result["n_scored"], result["score"]) == (N, N, 1.0)
    assert ended_whole(folder, [f"sum-{k}" for k in range(N)])
    assert server.stats()["requests"] <= N + KILLS * WORKERS, "no more is paid twice than what was in flight"


def test_a_kill_before_the_first_reply_costs_nothing_but_what_was_asked(server: JudgeServer, tmp_path: Path) -> None:
    server.set(latency=30.0)
    data, folder = write_data(tmp_path / "data.jsonl", 20), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--max-workers", "4")
    kill_once(arguments, server, tmp_path, 4)
    assert records(folder) == []
    server.set(latency=0.0)
    finished = run_command(*arguments, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert server.stats()["requests"] == 20 + 4


def test_a_grader_run_that_is_killed_continues(server: JudgeServer, tmp_path: Path) -> None:
    server.set(latency=0.05)
    folder, n = tmp_path / "run", 80
    rows = [{"id": f"r{k}", "query": f"q{k}", "response": f"a{k}"} for k in range(n)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "graders.yaml").write_text(
        "judge: fake-judge\n"
        "graders:\n"
        "  kind: {grader: llm, params: {prompt: 'Is {response} kind?', score_range: [0, 100], structured: false}}\n",
        encoding="utf-8",
    )
    server.set(behaviour="fixed:<reason>so</reason><score>4</score>")
    arguments = ["grade", "graders.yaml", "rows.jsonl", "--base-url", server.base_url, "--out", str(folder)]
    arguments += ["--max-workers", str(WORKERS), "--no-cache", "--json"]
    for after in (9, 31):
        kill_once(arguments, server, tmp_path, after)
    finished = run_command(*arguments, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    assert (result["n"], result["n_scored"], result["score"]) == (n, n, 4.0)
    assert ended_whole(folder, [f"r{k}" for k in range(n)])
    # of each kill: what was in flight, and on a busy machine what was answered and not read yet
    assert server.stats()["requests"] <= n + 2 * 2 * WORKERS
