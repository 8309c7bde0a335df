"""The command as people run it: a process of its own that can be piped, interrupted and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.rows import best_of_4
from tests.support.children import child_environment, run_command
from tests.support.judge_server import JudgeServer


def test_stdout_holds_the_object_and_nothing_else(tmp_path: Path) -> None:
    data = best_of_4(tmp_path / "data.jsonl")
    work = tmp_path / "work"
    work.mkdir()
    finished = run_command("eval", "length_baseline", str(data), "--json", cwd=work)
    assert finished.returncode == 0
    assert json.loads(finished.stdout)["n_scored"] == 12
    assert "12/12 done" in finished.stderr
    assert list(work.iterdir()) == [], "nothing is written where it was not asked for"


def test_wrong_input_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    finished = run_command("eval", "length_baseline", "nothing.parquet", cwd=tmp_path)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("rm-gallery: nothing.parquet: no such file or folder")
    assert finished.stderr.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C reaches a child process by a signal on POSIX only")
def test_ctrl_c_leaves_a_run_that_the_same_command_continues(tmp_path: Path) -> None:
    data, run = best_of_4(tmp_path / "data.jsonl", count=60), tmp_path / "run"
    with JudgeServer("first", in_process=True, latency=0.1) as server:
        arguments = ["eval", "safety_listwise_reward", str(data), "--llm", "judge-1", "--base-url", server.base_url]
        arguments += ["--no-cache", "--out", str(run), "--json", "--max-workers", "2"]
        process = subprocess.Popen(
            [sys.executable, "-m", "rm_gallery", *arguments],
            cwd=tmp_path,
            env=child_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        server.wait_until(lambda stats: stats["by_status"].get("200", 0) >= 6, timeout=30)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        asked = server.stats()["requests"]
        server.set(latency=0.0)
        finished = run_command(*arguments, cwd=tmp_path)
        requests, attempts = server.stats()["requests"], server.stats()["max_attempts"]
    assert (process.returncode, out) == (130, "")
    assert "interrupted; the same command continues it" in err
    assert "Traceback" not in err
    assert asked < 60
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["n_scored"] == 60
    # what was in flight may be finished or cut, depending on where the interrupt finds the program; the rest is kept
    assert requests <= 60 + 2, "only the two calls in flight may be asked again"
    assert attempts <= 2
