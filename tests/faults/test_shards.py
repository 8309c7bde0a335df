"""A run that several machines judge in shards, in a folder that all of them see, is the run that
one would have made.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rm_gallery
from rm_gallery import ConfigError, GradingRunner
from rm_gallery.gallery.graders.text import StringMatchGrader
from rm_gallery.study.benchmark import evaluate_repeatedly
from rm_gallery.study.grading import grade
from rm_gallery.study.runs import open_run
from rm_gallery.study.table import score_table
from rm_gallery.study.winrate import winrate
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
def no_replies_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RM_GALLERY_CACHE", "off")


@pytest.mark.long("a run in trouble")
def test_shards_are_put_together(server: JudgeServer, tmp_path: Path) -> None:
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    # one sample stands there twice
    data.write_bytes(data.read_bytes() + data.read_bytes().splitlines(True)[0])
    arguments = eval_arguments(data, server, folder, "--trace", "--max-workers", "4")
    with started(*command(*arguments, "--shard", "1/2"), cwd=tmp_path) as one:
        done = here(*arguments, "--shard", "2/2")
        assert done.code == 0 and one.wait(60) == 0, done.err
    first, second = (
        {r.key for r in open_run(folder / "shards" / f"{k}of2").samples()} for k in (1, 2)
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


@pytest.mark.long("a run in trouble")
def test_what_a_lost_shard_owes_is_judged_by_whoever_puts_together(
    server: JudgeServer, tmp_path: Path
) -> None:
    server.set(latency=0.05)
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--max-workers", "4")
    with started(*command(*arguments, "--shard", "1/3"), cwd=tmp_path) as one:
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


def test_shards_of_tables_and_of_graders(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"q{k}", "a": "x" * (k + 1), "b": "y" * (20 - k), "c": f"q{k % 3}"}
        for k in range(20)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    score = [
        "score",
        "length_baseline",
        str(tmp_path / "t.jsonl"),
        "--prompt",
        "prompt",
        "--answer",
        "a",
        "--json",
    ]
    against = ["winrate", *score[1:5], "--a", "a", "--b", "b", "--json"]
    for asked in (score, against):
        folder = str(tmp_path / asked[0])
        assert [here(*asked, "--out", folder, "--shard", f"{k}/3").code for k in (1, 2, 3)] == [
            0,
            0,
            0,
        ]
        assert told(here(*asked, "--out", folder).out) == told(here(*asked).out)
        assert json.loads((Path(folder) / "summary.json").read_text())["samples"]["reused"] == 20
    runner = GradingRunner({"same": StringMatchGrader()})
    named = [{"response": row["c"], "reference_response": row["prompt"]} for row in rows]
    counts = [grade(runner, named, shard=f"{k}/2", run_dir=str(tmp_path / "g")).n for k in (1, 2)]
    assert sum(counts) == 20 and min(counts) > 0
    assert grade(runner, named, run_dir=str(tmp_path / "g")).score == grade(runner, named).score


def test_what_is_no_shard_of_the_run_is_refused(tmp_path: Path) -> None:
    data = [{"prompt": f"q{k}", "chosen": "a" * k, "rejected": "b"} for k in range(9)]
    for wrong in ("0/2", "3/2", "2", "a/b", "-1/2", "²/3", ""):
        with pytest.raises(ConfigError, match="2/4"):
            rm_gallery.evaluate("length_baseline", data, shard=wrong)
    folder = str(tmp_path / "run")
    rm_gallery.evaluate("length_baseline", data, shard="1/2", run_dir=folder)
    with pytest.raises(ConfigError, match="data_seed: 0 → 5"):
        rm_gallery.evaluate("length_baseline", data, shard="2/2", seed=5, run_dir=folder)
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(ConfigError, match="1of2 holds a different run"):
        rm_gallery.evaluate("length_baseline", data, seed=5, run_dir=folder)
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in data))
    for beside in (["--fail-under", "0.5"], ["--export", "x.csv"], []):
        out = ["--out", folder] if beside else []
        assert here("eval", "length_baseline", str(path), "--shard", "1/2", *out, *beside).code == 2


ROWS = [{"prompt": f"q{k}", "chosen": "a" * k, "rejected": "b"} for k in range(9)]


def test_a_run_begun_under_the_earlier_name_is_read_and_continued(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    rm_gallery.evaluate("length_baseline", ROWS, shard="1/2", run_dir=str(folder))
    (folder / "shards").rename(folder / "parts")
    first = len(list(open_run(folder).samples()))
    for shard in ("1/2", "2/2"):
        rm_gallery.evaluate("length_baseline", ROWS, shard=shard, run_dir=str(folder))
    assert [path.name for path in (folder / "shards").iterdir()] == ["2of2"]
    assert open_run(folder / "parts" / "1of2").summary["samples"]["reused"] == first > 0
    assert len(list(open_run(folder).samples())) == len(ROWS)
    whole = rm_gallery.evaluate("length_baseline", ROWS, run_dir=str(folder))
    assert whole.score == rm_gallery.evaluate("length_baseline", ROWS).score
    assert open_run(folder).summary["samples"]["reused"] == len(ROWS)


def test_a_folder_of_runs_called_shards_holds_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs in a folder called as that of shards were refused for the settings of each other."""
    monkeypatch.chdir(tmp_path)
    for place in ("shards", "parts"):
        for seed in (1, 2):
            rm_gallery.evaluate("length_baseline", ROWS, seed=seed, run_dir=f"{place}/{seed}")
    assert not Path("manifest.json").exists()


@pytest.mark.parametrize(
    ("earlier", "name"),
    [
        ("--part 1/2", "--part"),
        ("--config run.part=1/2", "run.part"),
        ("--config part=1/2", "part"),
        ("--config eval.run.shard=1/2", "eval.run.shard"),
    ],
)
def test_the_earlier_option_does_the_same_and_names_the_new_one(
    earlier: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    done = here(
        "eval", "length_baseline", str(path), "--out", str(tmp_path / "run"), *earlier.split()
    )
    assert done.code == 0 and (tmp_path / "run" / "shards" / "1of2").is_dir(), done.err
    assert f"rm-gallery: {name} is spelled --shard now." in done.err.splitlines()


def test_the_earlier_keyword_is_refused_with_the_new_one() -> None:
    rows = [{"prompt": "q", "a": "x", "b": "yy"}]
    runner = GradingRunner({"same": StringMatchGrader()})
    doors: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (rm_gallery.evaluate, ("length_baseline", ROWS)),
        (partial(evaluate_repeatedly, repeats=2), ("length_baseline", ROWS)),
        (grade, (runner, ROWS)),
        (score_table, ("length_baseline", rows, "prompt", "a")),
        (winrate, ("length_baseline", rows, "prompt", ["a", "b"])),
    ]
    for door, asked in doors:
        with pytest.raises(ConfigError, match="part= is spelled shard= now"):
            door(*asked, part="1/2")
