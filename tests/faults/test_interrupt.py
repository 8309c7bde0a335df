"""Ctrl-C: no new work, calls in flight get five seconds, what is done is kept, and nothing is left
behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import RunOptions, evaluate
from rm_gallery.core.engine.context import RunControl
from rm_gallery.gallery.benchmarks.rules import SubsetTallies
from tests.faults.material import eval_arguments, make_judge, make_samples, records, write_data
from tests.faults.processes import command, group_ended, reached, started
from tests.support.command import command as here
from tests.support.judge_server import Faults, JudgeServer

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="Ctrl-C reaches a child process by a signal on POSIX only"
)
N = 40
WORKERS = 6
GRACE_SECONDS = 5.0
COMMAND = """
from rm_gallery.cli.main import main
from rm_gallery.core.engine import batch

batch.CANCEL_GRACE_SECONDS = {grace}
main()
"""


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)


def terminate(process: subprocess.Popen[str]) -> None:
    """Ask the process to end, as a scheduler does."""
    os.kill(process.pid, signal.SIGTERM)


def stopped(
    server: JudgeServer,
    arguments: list[str],
    cwd: Path,
    ready: Callable[[dict[str, Any]], bool],
    *presses: Callable[[subprocess.Popen[str]], None],
    grace: float | None = None,
) -> tuple[int, str, float]:
    """Press once the server has seen enough: the exit code, what was said, and the seconds after
    the last one.
    """
    line = command(*arguments) if grace is None else ["-c", COMMAND.format(grace=grace), *arguments]
    with started(*line, cwd=cwd) as process:
        reached(server, process, ready)
        for press in presses:
            press(process)
            pressed = time.monotonic()
            time.sleep(0.3)
        out, err = process.communicate(timeout=60)
        took = time.monotonic() - pressed
        assert group_ended(process.pid)
    assert out == "" and "Traceback" not in err
    return process.returncode, err, took


@pytest.mark.long("signals and processes")
@pytest.mark.parametrize(("press", "code"), [(interrupt, 130), (terminate, 143)])
def test_calls_in_flight_are_finished_and_kept(
    server: JudgeServer, tmp_path: Path, press: Callable[[subprocess.Popen[str]], None], code: int
) -> None:
    server.set(latency=0.5)
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--no-cache", "--max-workers", str(WORKERS))
    ended, err, _ = stopped(
        server, arguments, tmp_path, lambda stats: stats["requests"] >= WORKERS + 1, press
    )
    assert ended == code and "the same command continues it" in err
    asked = server.stats()["requests"]
    assert asked <= 3 * WORKERS, "no new work"
    assert len(records(folder)) == asked, "what was in flight was finished and kept"
    summary = json.loads((folder / "summary.json").read_bytes())
    assert (summary["samples"]["scored"], summary["stopped"]) == (asked, "interrupted")
    assert server.stats()["client_closed"] == 0

    server.set(latency=0.0)
    finished = here(*arguments)
    assert (finished.code, json.loads(finished.out)["n_scored"]) == (0, N) and server.stats()[
        "requests"
    ] == N


def evaluated_until_interrupted(server: JudgeServer, folder: Path, **more: Any) -> Path:
    """The folder of a run of labelled samples that Ctrl-C ends."""
    server.set(latency=0.5)
    samples = make_samples(N)
    for sample in samples:
        sample.output[0].answer.label = {"preference": "chosen"}
    options = RunOptions(
        run_dir=str(folder), cache=False, progress=False, max_workers=WORKERS, **more
    )
    with pytest.raises(KeyboardInterrupt):
        evaluate(make_judge(server.base_url, channel="text"), samples, options=options)
    return folder


def test_one_that_hits_between_two_results_loses_no_call(
    server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where counting the first result takes long, because it imports what it needs."""

    def slow_count(*_: object) -> None:
        server.wait_until(lambda stats: stats["requests"] == 2 * WORKERS)
        raise KeyboardInterrupt

    monkeypatch.setattr(SubsetTallies, "add", slow_count)
    folder = evaluated_until_interrupted(server, tmp_path / "run")
    assert len(records(folder)) == server.stats()["requests"] == 2 * WORKERS


def test_in_a_run_that_has_stopped_already_calls_in_flight_are_finished_all_the_same(
    server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when `--until-decided` has seen enough: the first reason hid the second, and paid calls
    were cut.
    """
    control = RunControl()

    def interrupted(*_: object) -> None:
        server.wait_until(lambda stats: stats["requests"] == 2 * WORKERS)
        control.stop("enough was seen")
        raise KeyboardInterrupt

    monkeypatch.setattr(SubsetTallies, "add", interrupted)
    folder = evaluated_until_interrupted(server, tmp_path / "run", control=control)
    assert json.loads((folder / "summary.json").read_bytes())["stopped"] == "enough was seen"
    assert len(records(folder)) == server.stats()["requests"] == 2 * WORKERS


@pytest.mark.long("signals and processes")
@pytest.mark.parametrize("presses", [1, 2])
def test_calls_that_hang_are_cut_after_five_seconds_or_by_the_second_one(
    server: JudgeServer, tmp_path: Path, presses: int
) -> None:
    server.set(faults=Faults(hang=1.0, hang_s=600.0))
    data, folder = (
        write_data(tmp_path / "data.jsonl", N),
        tmp_path / "run" if presses == 1 else None,
    )
    arguments = eval_arguments(data, server, folder, "--max-workers", str(WORKERS))
    grace = None if presses == 1 else 200.0  # which nobody waits for
    ended, err, took = stopped(
        server,
        arguments,
        tmp_path,
        lambda stats: stats["in_flight"] == WORKERS,
        *[interrupt] * presses,
        grace=grace,
    )
    assert ended == 130 and (presses == 2 or took > GRACE_SECONDS - 0.5)
    assert (
        "the same command continues it" if folder else "with --out RUN it could be continued"
    ) in err
    stats = server.wait_until(lambda stats: stats["connections_open"] == 0)
    assert (stats["requests"], stats["client_closed"], stats["in_flight"]) == (WORKERS, WORKERS, 0)


HANGING = """
from rm_gallery.core.engine import batch
from tests.faults import rewards
from tests.support.samples import make_sample

batch.CANCEL_GRACE_SECONDS = 1.0
reward = getattr(rewards, "{reward}")()
assert reward.evaluate(make_sample("warm")).output[0].answer.reward.score == 4
print("begun", flush=True)
try:
    reward.evaluate_batch([make_sample("hang") for _ in range(4)], max_workers=2)
except KeyboardInterrupt:
    print(reward.evaluate(make_sample("and on")).output[0].answer.reward.score, flush=True)
    raise
"""


@pytest.mark.long("signals and processes")
@pytest.mark.parametrize("reward", ["Plain", "Awaited", "InWorker"])
def test_hooks_that_hang_are_left_or_cut_and_the_session_goes_on(
    tmp_path: Path, reward: str
) -> None:
    with started("-W", "error", "-c", HANGING.format(reward=reward), cwd=tmp_path) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        time.sleep(0.3)
        interrupt(process)
        out, err = process.communicate(timeout=60)
        assert group_ended(process.pid), "no worker process is left behind"
    assert out == "6.0\n", "as in a notebook: after Ctrl-C the next cell works"
    assert err.count("Traceback") == 1 and err.rstrip().endswith("KeyboardInterrupt")
