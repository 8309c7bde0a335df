"""A run in a folder: killed, out of disk or asked for by another command, it is never damaged, and
nothing is paid twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from rm_gallery import ConfigError, RewardRegistry
from rm_gallery.study.runs import open_run
from tests.faults.material import (
    eval_arguments,
    make_judge,
    make_samples,
    records,
    run,
    truth,
    write_data,
)
from tests.faults.processes import command, group_ended, reached, started
from tests.support.children import Finished, run_command, run_python
from tests.support.command import command as here
from tests.support.judge_server import JudgeServer

N = 240
KILLS = 2
WORKERS = 12


def kill_once(arguments: list[str], server: JudgeServer, cwd: Path, after: int) -> None:
    """Start the command and kill it once the server saw `after` more requests."""
    seen = server.stats(detail=False)["requests"]
    with started(*command(*arguments), cwd=cwd) as process:
        reached(server, process, lambda stats: stats["requests"] >= seen + after)
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL and group_ended(process.pid)
    server.wait_until(lambda stats: stats["in_flight"] == 0 and stats["connections_open"] == 0)


@pytest.mark.long("kills")
@pytest.mark.skipif(os.name != "posix", reason="processes are killed by a signal on POSIX only")
def test_killed_again_and_again(server: JudgeServer, tmp_path: Path) -> None:
    server.set(latency=0.05)
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--max-workers", str(WORKERS))
    moments = random.Random(5)
    for _ in range(KILLS):
        kill_once(arguments, server, tmp_path, moments.randint(1, N // (KILLS + 1)))
    finished = here(*arguments)
    assert finished.code == 0, finished.err
    result = json.loads(finished.out)
    assert (result["n"], result["n_scored"], result["score"]) == (N, N, 1.0)
    ids = Counter(f"sum-{k}" for k in range(N))
    assert Counter(record["id"] for record in records(folder)) == ids
    assert Counter(row.id for row in open_run(folder).samples()) == ids
    assert server.stats()["requests"] <= N + KILLS * WORKERS, (
        "no more is paid twice than what was in flight"
    )


ROWS = 300
LIMITED = """
import resource, sys
sys.dont_write_bytecode = True  # CPython keeps a .pyc that was cut off (gh-126606), and all who come read it
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
from rm_gallery.cli.main import main
main()
"""


def with_little_room(size: int, arguments: list[str], cwd: Path) -> Finished:
    return run_python("-c", LIMITED.format(size=size), *arguments, cwd=cwd)


@pytest.mark.long("kills")
@pytest.mark.skipif(os.name != "posix", reason="file sizes are limited on POSIX only")
def test_no_room_for_results(server: JudgeServer, tmp_path: Path) -> None:
    data, folder = write_data(tmp_path / "data.jsonl", ROWS), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--no-cache")
    stopped = with_little_room(40_000, arguments, tmp_path)
    assert (stopped.returncode in (1, 2), stopped.stdout, "Traceback" in stopped.stderr) == (
        True,
        "",
        False,
    )
    assert str(folder) in stopped.stderr
    assert "cannot be written" in stopped.stderr or "could not be written" in stopped.stderr
    kept = records(folder)
    assert 0 < len(kept) < ROWS and {record["status"] for record in kept} == {"scored"}

    server.reset()
    finished = here(*arguments)
    assert finished.code == 0, finished.err
    result = json.loads(finished.out)
    assert (result["n_scored"], result["score"]) == (ROWS, 1.0) and server.stats()[
        "requests"
    ] == ROWS - len(kept)
    assert sorted(record["id"] for record in records(folder)) == sorted(
        f"sum-{k}" for k in range(ROWS)
    )


@pytest.mark.long("kills")
def test_a_cache_that_cannot_be_or_takes_nothing_more_is_said_once(
    server: JudgeServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    data, broken = (
        write_data(tmp_path / "data.jsonl", ROWS),
        {"RM_GALLERY_CACHE": str(tmp_path / "file" / "cache")},
    )
    arguments = eval_arguments(data, server, None)
    for said, done in (
        ("cannot be written", run_command(*arguments, cwd=tmp_path, env=broken)),
        ("cannot be written", with_little_room(60_000, arguments, tmp_path)),
    ):
        assert (done.returncode, json.loads(done.stdout)["n_scored"]) == (0, ROWS), done.stderr
        (warned,) = [line for line in done.stderr.splitlines() if "the call cache" in line]
        assert said in warned
    assert (tmp_path / "file").read_text() == "in the way" and json.loads(here(*arguments).out)[
        "n_scored"
    ] == ROWS
    assert server.stats()["requests"] < 3 * ROWS, "what was stored before is used"


FEW = 8


@pytest.fixture
def folder(server: JudgeServer, tmp_path: Path) -> Path:
    """The folder of a run that is over."""
    run(make_judge(server.base_url), make_samples(FEW), run_dir=str(tmp_path / "run"))
    server.reset()
    return tmp_path / "run"


def test_another_model_or_reward_is_refused(server: JudgeServer, folder: Path) -> None:
    judge = make_judge(server.base_url)
    others = {
        "llm.temperature: 0.0 → 0.5": make_judge(server.base_url, temperature=0.5),
        "http://127.0.0.1:1/v1": make_judge("http://127.0.0.1:1/v1"),
        "route": make_judge(server.base_url, default_headers={"x-deployment": "b"}),
        "Be strict.": judge.model_copy(update={"desc": "Be strict."}),
        "length_baseline": RewardRegistry.create("length_baseline"),
    }
    for named, other in others.items():
        with pytest.raises(ConfigError) as refused:
            run(other, make_samples(FEW), run_dir=str(folder))
        assert named in str(refused.value) and str(folder) in str(refused.value)
    assert len(records(folder)) == FEW, "a refusal touches nothing"


def test_a_sample_whose_text_changed_is_judged_again(server: JudgeServer, folder: Path) -> None:
    samples = make_samples(FEW)
    samples[3].output[0].answer.content = "Something else."
    again = run(make_judge(server.base_url), samples, run_dir=str(folder))
    assert server.stats()["requests"] == 1 and again.scores[:3] == truth(samples[:3])


def test_a_repair_is_cached_like_any_other_question(server: JudgeServer) -> None:
    server.set(behaviour=["no verdict", "<best>1</best>"])
    judge, samples = make_judge(server.base_url), make_samples(1)
    first = run(judge, samples)
    again = run(judge, samples)
    assert first.scores == again.scores and (
        first.control.calls,
        again.control.calls,
        again.control.cached,
    ) == (2, 0, 2)
