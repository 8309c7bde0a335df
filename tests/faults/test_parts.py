"""A run that several machines judge in parts, on a shared folder or an object store, is the run
that one would have made.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import fsspec
import pytest

import rm_gallery
from rm_gallery.core.engine import run_remote
from rm_gallery.core.runner.grading_runner import GradingRunner
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import FileLock
from rm_gallery.gallery.graders.text import StringMatchGrader
from rm_gallery.study.grading import grade
from rm_gallery.study.runs import open_run
from tests.faults.material import eval_arguments, write_data
from tests.faults.processes import command, reached, started
from tests.support.command import command as here
from tests.support.judge_server import JudgeServer

N = 60
TIMES = ("seconds", "calls", "cached", "usage")


def told(out: str) -> dict[str, Any]:
    """A report without what it took."""
    return {name: value for name, value in json.loads(out).items() if name not in TIMES}


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("RM_GALLERY_CACHE", "off")


def test_parts_are_put_together(server: JudgeServer, tmp_path: Path) -> None:
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    # one sample stands there twice
    data.write_bytes(data.read_bytes() + data.read_bytes().splitlines(True)[0])
    arguments = eval_arguments(data, server, folder, "--trace", "--max-workers", "4")
    with started(*command(*arguments, "--part", "1/2"), cwd=tmp_path) as one:
        done = here(*arguments, "--part", "2/2")
        assert done.code == 0 and one.wait(60) == 0, done.err
    first, second = (
        {r.key for r in open_run(folder / "parts" / f"{k}of2").samples()} for k in (1, 2)
    )
    assert len(first | second) == N and not first & second and first and second
    assert json.loads(done.out)["samples"]["scored"] in (len(second), len(second) + 1)
    assert len(list(open_run(folder).samples())) == N + 1 and not open_run(folder).finished, (
        "before they are put together"
    )
    whole = here(*arguments)
    assert whole.code == 0, whole.err
    assert server.stats()["requests"] == N + 1
    alone = here(*eval_arguments(data, server, tmp_path / "alone", "--trace"))
    assert told(whole.out) == told(alone.out)
    summary = open_run(folder).summary
    assert (
        summary["spent"]["calls"] == N + 1
        and summary["spent"]["input_tokens"] > 0
        and summary["samples"]["reused"] == N + 1
    )
    assert len(list(open_run(folder).trace())) == N + 1


def test_what_a_lost_part_owes_is_judged_by_whoever_puts_together(
    server: JudgeServer, tmp_path: Path
) -> None:
    server.set(latency=0.05)
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--max-workers", "4")
    with started(*command(*arguments, "--part", "1/3"), cwd=tmp_path) as one:
        reached(server, one, lambda stats: stats["requests"] >= 8)
        busy = here(*arguments)
        assert busy.code == 2 and "1of3 is being written by pid" in busy.err
        one.send_signal(signal.SIGKILL)
        one.wait(10)
    whole = here(*arguments)
    assert whole.code == 0 and json.loads(whole.out)["n_scored"] == N
    assert server.stats()["requests"] <= N + 2 * 4, (
        "what was out, and what had come back and was not written yet"
    )


def test_parts_of_tables_and_of_graders(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"q{k}", "a": "x" * (k + 1), "b": "y" * (20 - k), "c": f"q{k % 3}"}
        for k in range(20)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    score = [
        "score",
        str(tmp_path / "t.jsonl"),
        "--prompt",
        "prompt",
        "--answer",
        "a",
        "--reward",
        "length_baseline",
        "--json",
    ]
    against = ["winrate", str(tmp_path / "t.jsonl"), "--prompt", "prompt", "--a", "a", "--b", "b"]
    for asked in (score, [*against, "--reward", "length_baseline", "--json"]):
        folder = str(tmp_path / asked[0])
        assert [here(*asked, "--out", folder, "--part", f"{k}/3").code for k in (1, 2, 3)] == [
            0,
            0,
            0,
        ]
        assert told(here(*asked, "--out", folder).out) == told(here(*asked).out)
        assert json.loads((Path(folder) / "summary.json").read_text())["samples"]["reused"] == 20
    runner = GradingRunner({"same": StringMatchGrader()})
    named = [{"response": row["c"], "reference_response": row["prompt"]} for row in rows]
    counts = [grade(runner, named, part=f"{k}/2", run_dir=str(tmp_path / "g")).n for k in (1, 2)]
    assert sum(counts) == 20 and min(counts) > 0
    assert grade(runner, named, run_dir=str(tmp_path / "g")).score == grade(runner, named).score


def test_what_is_no_part_of_the_run_is_refused(tmp_path: Path) -> None:
    data = [{"prompt": f"q{k}", "chosen": "a" * k, "rejected": "b"} for k in range(9)]
    for wrong in ("0/2", "3/2", "2", "a/b", "-1/2", "²/3", ""):
        with pytest.raises(ConfigError, match="2/4"):
            rm_gallery.evaluate("length_baseline", data, part=wrong)
    folder = str(tmp_path / "run")
    rm_gallery.evaluate("length_baseline", data, part="1/2", run_dir=folder)
    with pytest.raises(ConfigError, match="data_seed: 0 → 5"):
        rm_gallery.evaluate("length_baseline", data, part="2/2", seed=5, run_dir=folder)
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(ConfigError, match="1of2 is a part of a different run"):
        rm_gallery.evaluate("length_baseline", data, seed=5, run_dir=folder)
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in data))
    for beside in (["--fail-under", "0.5"], ["--export", "x.csv"], []):
        out = ["--out", folder] if beside else []
        assert here("eval", "length_baseline", str(path), "--part", "1/2", *out, *beside).code == 2


# -- object stores ---------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place that is only read and written through fsspec, and never appended to."""
    local = fsspec.filesystem("file")
    opened = type(local).open

    def no_append(self: Any, path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        assert "a" not in mode and "+" not in mode
        return opened(self, path, mode, *args, **kwargs)

    monkeypatch.setattr(type(local), "open", no_append)
    monkeypatch.setattr(type(local), "auto_mkdir", True, raising=False)
    local.auto_mkdir = True
    return f"file://{tmp_path}/bucket/run"


def test_parts_meet_on_an_object_store(server: JudgeServer, tmp_path: Path, store: str) -> None:
    data = write_data(tmp_path / "data.jsonl", N)
    arguments = eval_arguments(data, server, None, "--out", store, "--trace")
    for part in ("1/2", "2/2"):
        done = here(*arguments, "--part", part)
        assert done.code == 0, done.err
    there = sorted(path.name for path in (tmp_path / "bucket" / "run").rglob("*") if path.is_file())
    assert (
        "results.jsonl" not in there
        and "results.jsonl.000000000000000" in there
        and run_remote.WRITER not in there
    )
    whole = here(*arguments)
    assert whole.code == 0 and server.stats()["requests"] == N, whole.err
    alone = here(*eval_arguments(data, server, tmp_path / "alone"))
    assert told(whole.out) == told(alone.out)
    again = here("compare", store, str(tmp_path / "alone"), "--json")
    assert again.code == 0 and open_run(store).report["n_scored"] == N, again.err
    assert len(list(open_run(store).trace())) == N
    assert here(*arguments, "--force-new").code == 2


def test_a_machine_that_is_lost_costs_what_it_had_not_sent(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_remote, "SECONDS", 0.05)
    bucket = tmp_path / "bucket" / "run"
    with run_remote.run_at(store) as folder:
        (folder / "manifest.json").write_text("{}")
        for k in range(5):
            with (folder / "results.jsonl").open("a") as file:
                file.write(f'{{"k": {k}}}\n{{"torn')
            _until(
                lambda k=k: (
                    f'"k": {k}'.encode()
                    in b"".join(p.read_bytes() for p in bucket.glob("results.jsonl.*"))
                )
            )
            (folder / "results.jsonl").write_bytes(
                b"".join((folder / "results.jsonl").read_bytes().splitlines(True)[:-1])
            )
        assert (bucket / run_remote.WRITER).is_file()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))  # another machine
        with (
            pytest.raises(ConfigError, match="being written by another process"),
            run_remote.run_at(store),
        ):
            pass
        assert [
            json.loads(line)["k"]
            for line in (run_remote.fetched(store) / "results.jsonl").read_text().splitlines()
        ] == [*range(5)]
    (bucket / run_remote.WRITER).write_text(json.dumps({"who": "gone", "at": 1.0}))
    with run_remote.run_at(store) as folder:
        assert (folder / "results.jsonl").read_text().count("\n") == 5
    pieces = sorted(bucket.glob("results.jsonl.*"))
    pieces[1].unlink()
    with pytest.raises(DataError, match="is missing"):
        run_remote.fetched(store)


def _until(said: Any) -> None:
    from tests.engine.processes import wait_until

    assert wait_until(said, 10.0)


def test_what_cannot_be_sent_stays_and_is_sent_the_next_time(tmp_path: Path, store: str) -> None:
    bucket = tmp_path / "bucket"
    with (
        pytest.raises(ConfigError, match="kept on this machine"),
        run_remote.run_at(store) as folder,
    ):
        (folder / "results.jsonl").write_text('{"k": 1}\n')
        for path in sorted(bucket.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        bucket.rmdir()
        bucket.write_text("in the way")
    bucket.unlink()
    with run_remote.run_at(store) as folder:
        assert (folder / "results.jsonl").read_text() == '{"k": 1}\n'
    assert (bucket / "run" / "results.jsonl.000000000000000").read_text() == '{"k": 1}\n'


def test_places_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_remote.url_of(Path("s3://bucket/run/")) == "s3://bucket/run"
    assert run_remote.url_of(Path("file:///tmp/run")) == "file:///tmp/run"
    assert [
        run_remote.url_of(place) for place in ("C:/run", "C:\\run", "run", "/tmp/a:b", "a:b")
    ] == [None] * 5
    assert run_remote.fetched(tmp_path) == tmp_path
    done = here("report", "nosuch://bucket/run")
    assert done.code == 2 and "nosuch" in done.err
    with FileLock(tmp_path / "x") as lock:
        assert lock.owner() == "this process" and os.getpid()
