"""A call that hangs, dies or eats the memory costs itself and nothing else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rm_gallery.core.engine.workers import process as worker_process
from rm_gallery.core.engine.workers.pool import WorkerCrashed, WorkerMemoryExceeded, WorkerPool
from rm_gallery.core.utils.errors import DeadlineExceeded
from tests.engine import worker_jobs
from tests.engine.worker_pools import is_alive, read_pid, wait_until

_CAP = 2**30


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (worker_jobs.hang_at_seven, DeadlineExceeded, "deadline of 0.5 s"),
        (worker_jobs.hold_interpreter_lock_at_seven, DeadlineExceeded, "deadline of 0.5 s"),
        (worker_jobs.exit_at_seven, WorkerCrashed, "exit code 3"),
        (worker_jobs.segfault_at_seven, WorkerCrashed, "segmentation fault"),
        (worker_jobs.eat_memory_at_seven, WorkerMemoryExceeded, "1,024 MB"),
    ],
)
def test_only_the_bad_call_fails(function: Callable[[int], int], error: type[Exception], message: str) -> None:
    with WorkerPool(2, memory_cap=_CAP) as pool:
        pool.map(worker_jobs.plus_one, range(200))  # warm, so that the bad call travels inside a chunk
        results = pool.map(function, range(40), deadline=0.5)
        assert type(results[7]) is error
        assert message in str(results[7])
        assert [result for result in results if result is not results[7]] == [n for n in range(40) if n != 7]
        assert pool.map(function, range(8, 40), deadline=20) == list(range(8, 40))


def test_crash_tells_its_exit_code() -> None:
    with WorkerPool(1) as pool:
        error = pool.submit(worker_jobs.exit_at_seven, 7).exception()
    assert isinstance(error, WorkerCrashed)
    assert error.exit_code == 3


def test_deadline_counts_from_the_start_of_the_call_itself() -> None:
    with WorkerPool(1) as pool:
        results = pool.map(worker_jobs.nap, [0.2] * 5, deadline=0.9)
    assert results == [0.2] * 5


def test_every_hang_is_found() -> None:
    with WorkerPool(2) as pool:
        results = pool.map(worker_jobs.hang_at_seven, [7, 1, 7, 2, 7], deadline=0.2)
    assert [type(result) for result in results] == [DeadlineExceeded, int, DeadlineExceeded, int, DeadlineExceeded]


def test_worker_killed_while_idle_costs_nothing() -> None:
    with WorkerPool(1) as pool:
        worker = pool.submit(worker_jobs.pid).result()
        os.kill(worker, 9)
        assert wait_until(lambda: not is_alive(worker))
        assert pool.submit(worker_jobs.plus_one, 1).result() == 2


def test_kill_takes_grandchildren_along(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with WorkerPool(1) as pool:
        future = pool.submit(worker_jobs.grandchild_then_hang, str(note), deadline=1.0)
        grandchild = read_pid(note)
        assert isinstance(future.exception(), DeadlineExceeded)
    assert wait_until(lambda: not is_alive(grandchild))


def test_interpreter_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with WorkerPool(1) as pool:
        error = pool.submit(worker_jobs.plus_one, 1).exception()
    assert isinstance(error, WorkerCrashed)
    assert "/no/such/python" in str(error)


def test_worker_that_ends_before_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_BOOT", "raise SystemExit(5)")
    with WorkerPool(1) as pool:
        results = pool.map(worker_jobs.plus_one, range(3))
    assert [type(result) for result in results] == [WorkerCrashed] * 3
    assert "could not begin" in str(results[0])


def test_pipes_without_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_PIPES", worker_process._ThreadPipes)
    with WorkerPool(1) as pool:
        started = time.monotonic()
        results = pool.map(worker_jobs.hang_at_seven, range(20), deadline=0.5)
        assert isinstance(results[7], DeadlineExceeded)
        assert [result for result in results if result is not results[7]] == [n for n in range(20) if n != 7]
        assert time.monotonic() - started >= 0.5
