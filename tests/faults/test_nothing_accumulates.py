"""Run after run in one process: no thread, no descriptor and no connection more than after the
first.
"""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunStopped
from tests.faults import material
from tests.faults.rewards import Awaited, Plain
from tests.support.judge_server import Faults, JudgeServer
from tests.support.samples import make_sample

WORKERS = 5
RULES = [make_sample("x" * k) for k in range(30)]


def descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


@pytest.mark.long("a run in trouble")
def test_ten_runs_hold_what_one_holds(server: JudgeServer, tmp_path: Path) -> None:
    judge, samples = material.make_judge(server.base_url), material.make_samples(20)

    def once(number: int) -> None:
        ran = material.run(
            judge, samples, max_workers=WORKERS, repeat=number, run_dir=str(tmp_path / str(number))
        )
        assert ran.scores == material.truth(samples)
        Plain().evaluate_batch(RULES, max_workers=WORKERS)
        Awaited().evaluate_batch(RULES, max_workers=WORKERS)
        asyncio.run(judge.async_evaluate(samples[0]))

    before = material.open_connections()  # to servers of other tests
    once(0)
    threads, open_files = threading.active_count(), descriptors()
    for number in range(1, 11):
        once(number)
    assert threading.active_count() <= threads + 3, (
        "the idle threads of one run, and the one that looks after deadlines"
    )
    assert descriptors() <= open_files + 1 and material.open_connections() <= before + WORKERS
    assert server.stats()["connections_opened"] <= WORKERS, "connections stay warm from run to run"
    assert material.calls_in_flight() == 0


@pytest.mark.parametrize("share", ["drop_mid_body", "hang", "rate_limit"])
def test_failed_calls_leave_no_slot_and_no_connection_behind(
    server: JudgeServer, share: str
) -> None:
    faults = Faults(**{share: 0.5}, retry_after="ms", retry_after_s=0.01)  # type: ignore[arg-type]  # a share's name
    server.set(faults=faults)
    judge = material.make_judge(server.base_url, timeout=0.2, max_attempts=2)
    material.run(
        judge,
        material.make_samples(20),
        retry=material.quick_retries(2),
        max_workers=WORKERS,
        cache=False,
    )
    assert material.calls_in_flight() == 0
    stats = server.wait_until(lambda stats: stats["in_flight"] == 0)
    assert stats["connections_open"] <= WORKERS
    server.set(faults=Faults())
    assert material.run(
        judge, material.make_samples(20), max_workers=WORKERS, cache=False
    ).scores == material.truth(material.make_samples(20))


def test_a_loop_that_is_shut_down_ends_the_run_and_the_next_starts_anew(
    server: JudgeServer,
) -> None:
    server.set(latency=30.0)
    judge, samples = material.make_judge(server.base_url), material.make_samples(10)
    ended: list[BaseException] = []

    def batch() -> None:
        try:
            judge.evaluate_batch(samples)
        except RunStopped as error:
            ended.append(error)

    thread = threading.Thread(target=batch)
    thread.start()
    server.wait_until(lambda stats: stats["in_flight"] == 8)
    library_loop.shutdown()
    thread.join(25)
    assert not thread.is_alive(), "nobody waits for the judge's 30 s"
    assert "shut down" in str(ended[0])
    server.wait_until(lambda stats: stats["connections_open"] == 0)
    server.set(latency=0.0)
    assert material.scores_of(judge.evaluate_batch(samples)) == material.truth(samples)


def test_a_stream_left_early_cuts_what_it_began(server: JudgeServer) -> None:
    stream = material.make_judge(server.base_url).evaluate_stream(
        material.make_samples(200), max_workers=WORKERS
    )
    assert next(stream).unique_id == "sum-0"
    server.set(faults=Faults(hang=1.0))
    server.wait_until(lambda stats: stats["in_flight"] == WORKERS)
    stream.close()  # type: ignore[attr-defined]  # what leaving a loop over it does
    stats = server.wait_until(lambda stats: stats["in_flight"] == 0)
    assert stats["requests"] < 200
    asked = stats["requests"]
    time.sleep(0.1)
    assert server.stats()["requests"] == asked and material.calls_in_flight() == 0
