"""Many threads on one pool, and how many processes a pool starts."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from rm_gallery.core.engine.context import Deadline, current_deadline
from rm_gallery.core.engine.workers.pool import WorkerPool
from rm_gallery.core.utils.errors import DeadlineExceeded
from tests.engine import worker_jobs


def test_sixteen_threads_share_a_pool() -> None:
    def work(thread: int) -> list[int | BaseException]:
        return pool.map(worker_jobs.plus_one, range(thread * 100, thread * 100 + 100), deadline=30)

    with WorkerPool(2) as pool, ThreadPoolExecutor(16) as threads:
        results = list(threads.map(work, range(16)))
        assert len(pool.worker_pids()) <= 2
    assert results == [list(range(thread * 100 + 1, thread * 100 + 101)) for thread in range(16)]


def test_hang_of_one_thread_leaves_the_others_alone() -> None:
    with WorkerPool(2) as pool, ThreadPoolExecutor(4) as threads:
        hanging = threads.submit(pool.map, worker_jobs.hang_at_seven, [7], deadline=0.5)
        others = [threads.submit(pool.map, worker_jobs.plus_one, range(300), deadline=30) for _ in range(3)]
        assert [other.result() for other in others] == [list(range(1, 301))] * 3
        assert isinstance(hanging.result()[0], DeadlineExceeded)


def test_one_call_at_a_time_needs_one_process() -> None:
    with WorkerPool(4) as pool:
        workers = {pool.submit(worker_jobs.pid).result() for _ in range(50)}
    assert len(workers) == 1


def test_no_process_before_the_first_call() -> None:
    with WorkerPool(4) as pool:
        assert pool.worker_pids() == []


def test_a_samples_clock_stands_still_while_its_call_waits_for_a_process() -> None:
    async def left_after(first: float) -> float:
        clock = Deadline(2.0)
        current_deadline.set(clock)
        with WorkerPool(1) as pool:
            await pool.asubmit(worker_jobs.plus_one, 1)
            before = clock.left
            others = [pool.submit(time.sleep, first), pool.submit(time.sleep, first)]
            assert await pool.asubmit(worker_jobs.plus_one, 1) == 2
            assert all(other.done() for other in others)
            waiting = pool.submit(time.sleep, first), pool.asubmit(worker_jobs.plus_one, 1)
            waiting[1].cancel()
            await asyncio.wait([waiting[1]])
            return before - clock.left

    assert asyncio.run(left_after(0.3)) < 0.25
