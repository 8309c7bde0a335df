"""The disk fills up, or the cache cannot be used: a clear message, nothing damaged, and a run that can be continued."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from pathlib import Path

import pytest

from rm_gallery.core.utils.errors import RMGalleryError
from tests.faults.material import eval_arguments, make_judge, make_samples, records, run, truth, write_data
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
@pytest.mark.parametrize("cache", ["--cache", "--no-cache"])
def test_no_room_for_results(server: JudgeServer, tmp_path: Path, cache: str) -> None:
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, cache)
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
    assert server.stats()["requests"] <= N - len(kept)
    assert sorted(record["id"] for record in records(folder)) == sorted(f"sum-{k}" for k in range(N))


def test_no_room_in_the_middle_of_a_batch(server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, samples, folder = make_judge(server.base_url), make_samples(60), tmp_path / "run"
    write, room = os.write, [20_000]

    def little_room(fd: int, data: bytes) -> int:
        if not os.readlink(f"/proc/self/fd/{fd}").endswith("results.jsonl"):
            return write(fd, data)
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = bytes(data[: room[0]])
        room[0] -= len(part)
        return write(fd, part)

    if not Path("/proc/self/fd").exists():
        pytest.skip("open files cannot be named on this system")
    monkeypatch.setattr(os, "write", little_room)
    with pytest.raises(RMGalleryError, match="No space left"):
        run(judge, samples, run_dir=str(folder), cache=False)
    monkeypatch.undo()
    kept = records(folder)
    assert 0 < len(kept) < 60
    monkeypatch.setenv("RM_GALLERY_CACHE", str(tmp_path / "cache"))
    again = run(judge, samples, run_dir=str(folder), cache=False)
    assert again.scores == truth(samples)
    assert again.control.calls == 60 - len(kept)


def test_a_cache_folder_that_cannot_be(server: JudgeServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    data = write_data(tmp_path / "data.jsonl", 20)
    arguments = eval_arguments(data, server, tmp_path / "run")
    finished = run_command(*arguments, cwd=tmp_path, env={"RM_GALLERY_CACHE": str(tmp_path / "file" / "cache")})
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["n_scored"] == 20
    warned = [line for line in finished.stderr.splitlines() if "the call cache" in line]  # its path says "cache", too
    assert len(warned) == 1, finished.stderr
    assert "cannot be used" in warned[0]
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_cache_that_no_longer_takes_anything(server: JudgeServer, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.jsonl", N)
    stopped = with_little_room(60_000, eval_arguments(data, server, None), tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    assert json.loads(stopped.stdout)["n_scored"] == N
    assert sum("the call cache" in line for line in stopped.stderr.splitlines()) == 1, stopped.stderr
    again = run_command(*eval_arguments(data, server, None), cwd=tmp_path)
    assert json.loads(again.stdout)["n_scored"] == N
    assert server.stats()["requests"] <= 2 * N


def test_a_damaged_cache_is_set_aside(server: JudgeServer, tmp_path: Path) -> None:
    cache = tmp_path / "kept"
    data = write_data(tmp_path / "data.jsonl", 20)
    arguments, env = eval_arguments(data, server, None), {"RM_GALLERY_CACHE": str(cache)}
    assert run_command(*arguments, cwd=tmp_path, env=env).returncode == 0
    database = next(cache.glob("*.sqlite3"))
    for extra in ("-wal", "-shm"):
        Path(f"{database}{extra}").unlink(missing_ok=True)
    database.write_bytes(b"this is no database" * 500)
    finished = run_command(*arguments, cwd=tmp_path, env=env)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["n_scored"] == 20
    assert "damaged" in finished.stderr
    assert [path.read_bytes()[:19] for path in cache.glob("*corrupt*")] == [b"this is no database"]
    with sqlite3.connect(database) as fresh:
        assert fresh.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    fresh.close()
    server.reset()
    assert run_command(*arguments, cwd=tmp_path, env=env).returncode == 0
    assert server.stats()["requests"] == 0
