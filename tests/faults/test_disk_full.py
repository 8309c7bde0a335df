"""The disk fills up, or the cache cannot be used: a clear message, nothing damaged, and a run that can be continued."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.faults.material import eval_arguments, records, write_data
from tests.support.children import Finished, run_command, run_python
from tests.support.judge_server import JudgeServer

N = 300
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
from rm_gallery.cli.main import main
main()
"""


def with_little_room(size: int, arguments: list[str], cwd: Path) -> Finished:
    return run_python("-c", LIMITED.format(size=size), *arguments, cwd=cwd)


@pytest.mark.skipif(os.name != "posix", reason="file sizes are limited on POSIX only")
def test_no_room_for_results(server: JudgeServer, tmp_path: Path) -> None:
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--no-cache")
    stopped = with_little_room(40_000, arguments, tmp_path)
    assert stopped.returncode in (1, 2)
    assert stopped.stdout == ""
    assert "Traceback" not in stopped.stderr
    assert str(folder) in stopped.stderr
    assert "cannot be written" in stopped.stderr or "could not be written" in stopped.stderr
    kept = records(folder)
    assert 0 < len(kept) < N
    assert {record["status"] for record in kept} == {"scored"}

    server.reset()
    finished = run_command(*arguments, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    assert (result["n_scored"], result["score"]) == (N, 1.0)
    assert server.stats()["requests"] == N - len(kept)
    assert sorted(record["id"] for record in records(folder)) == sorted(f"sum-{k}" for k in range(N))


def test_a_cache_that_cannot_be_or_takes_nothing_more_is_said_once(server: JudgeServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    data, broken = write_data(tmp_path / "data.jsonl", N), {"RM_GALLERY_CACHE": str(tmp_path / "file" / "cache")}
    arguments = eval_arguments(data, server, None)
    for said, done in (
        ("cannot be used", run_command(*arguments, cwd=tmp_path, env=broken)),
        ("cannot be written", with_little_room(60_000, arguments, tmp_path)),
    ):
        assert (done.returncode, json.loads(done.stdout)["n_scored"]) == (0, N), done.stderr
        (warned,) = [line for line in done.stderr.splitlines() if "the call cache" in line]
        assert said in warned
    assert (tmp_path / "file").read_text() == "in the way"
    assert json.loads(run_command(*arguments, cwd=tmp_path).stdout)["n_scored"] == N
    assert server.stats()["requests"] < 3 * N, "what was stored before is used"
