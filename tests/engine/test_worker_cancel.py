"""Cancelling queued and running calls, and closing the pool."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from rm_gallery.core.engine.workers.pool import WorkerPool, get_pool
from rm_gallery.core.utils.errors import ConfigError
from tests.engine import worker_jobs
from tests.engine.worker_pools import is_alive, read_pid, wait_until


def test_queued_call_is_cancelled_and_never_runs(tmp_path: Path) -> None:
    with WorkerPool(1) as pool:
        running = pool.submit(worker_jobs.touch_and_nap, str(tmp_path / "first"), 0.3)
        queued = pool.submit(worker_jobs.touch_and_nap, str(tmp_path / "second"), 0.0)
        read_pid(tmp_path / "first")
        assert queued.cancel()
        assert not running.cancel()
        assert running.result() == 0.3
        assert pool.submit(worker_jobs.plus_one, 1).result() == 2
    assert not (tmp_path / "second").exists()


def test_running_call_is_cut_and_its_neighbours_finish(tmp_path: Path) -> None:
    with WorkerPool(1) as pool:
        running = pool.submit(worker_jobs.touch_and_nap, str(tmp_path / "pid"), 600.0)
        queued = pool.submit(worker_jobs.plus_one, 1)
        worker = read_pid(tmp_path / "pid")
        assert pool.cancel_running(running)
        with pytest.raises(CancelledError):
            running.result()
        assert queued.result() == 2
    assert not is_alive(worker)


def test_finished_call_cannot_be_cut() -> None:
    with WorkerPool(1) as pool:
        done = pool.submit(worker_jobs.plus_one, 1)
        assert done.result() == 2
        assert not pool.cancel_running(done)


def test_cancelling_the_awaiting_task_kills_the_call(tmp_path: Path) -> None:
    async def cancel_one(pool: WorkerPool) -> int:
        waiter = pool.asubmit(worker_jobs.touch_and_nap, str(tmp_path / "pid"), 600.0)
        worker = await asyncio.get_running_loop().run_in_executor(None, read_pid, tmp_path / "pid")
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        return worker

    with WorkerPool(1) as pool:
        worker = asyncio.run(cancel_one(pool))
        assert wait_until(lambda: not is_alive(worker))


def test_await_from_two_event_loops() -> None:
    async def several(pool: WorkerPool) -> list[int]:
        return list(await asyncio.gather(*(pool.asubmit(worker_jobs.plus_one, n, deadline=20) for n in range(50))))

    with WorkerPool(2) as pool:
        assert asyncio.run(several(pool)) == asyncio.run(several(pool)) == list(range(1, 51))


def test_shutdown_ends_running_and_queued_calls(tmp_path: Path) -> None:
    pool = WorkerPool(1)
    running = pool.submit(worker_jobs.touch_and_nap, str(tmp_path / "pid"), 600.0)
    queued = pool.submit(worker_jobs.plus_one, 1)
    worker = read_pid(tmp_path / "pid")
    pool.shutdown()
    for future in (running, queued):
        with pytest.raises(CancelledError):
            future.result(timeout=20)
    assert not is_alive(worker)
    with pytest.raises(ConfigError, match="shut down"):
        pool.submit(worker_jobs.plus_one, 1)
    pool.shutdown()


def test_shared_pool_is_one_and_comes_back_after_shutdown() -> None:
    first = get_pool()
    assert get_pool() is first
    assert first.submit(worker_jobs.plus_one, 1).result() == 2
    first.shutdown()
    second = get_pool()
    assert second is not first
    assert second.submit(worker_jobs.plus_one, 2).result() == 3
    second.shutdown()


def test_max_workers_below_one() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        WorkerPool(0)
