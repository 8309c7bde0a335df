"""What can be sent to a worker process and what comes back; what hangs or dies costs itself alone,
and nothing is left.
"""

from __future__ import annotations

import asyncio
import functools
import math
import os
import pickle
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError
from rm_gallery.core.engine.context import current_deadline
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.pool import (
    RemoteTraceback,
    WorkerCrashed,
    WorkerMemoryExceeded,
    WorkerPool,
    get_pool,
)
from rm_gallery.core.utils.errors import DeadlineExceeded
from tests.engine import worker_jobs
from tests.engine.processes import (
    every,
    finish,
    is_alive,
    kill_after_lines,
    read_pid,
    start,
    wait_until,
    worker_pids,
)
from tests.support.children import ROOT

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2, memory_cap=2**30) as shared:
        yield shared


def test_kinds_of_functions(pool: WorkerPool) -> None:
    times, ten = worker_jobs.Scaler(3), functools.partial(worker_jobs.add, 10)
    for function in (worker_jobs.plus_one, math.factorial, int, times.scale, times, ten):
        assert pool.submit(function, 5, deadline=20).result() == function(5)
    assert pool.submit("中文,".split, ",", deadline=20).result() == ["中文", ""]


def _inner() -> Callable[[int], int]:
    def inside(number: int) -> int:
        return number

    return inside


def _replaced(number: int) -> int:
    return number


_original = _replaced


def _replaced(number: int) -> int:  # type: ignore[no-redef]
    return -number


class _FromScript:
    __module__ = "__main__"

    def method(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda number: number, "lambda or an inner function"),
        (_inner(), "lambda or an inner function"),
        (_original, "is not the function given"),
        (_FromScript().method, "move it to a module"),
    ],
)
def test_functions_that_workers_cannot_find(
    pool: WorkerPool, function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        pool.submit(function, 1)
    with pytest.raises(ConfigError, match=r"an argument of tests\.engine\.worker_jobs\.plus_one"):
        pool.submit(worker_jobs.plus_one, lambda: None)


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("value", ValueError, "^no such value: 數$"),
        ("odd", RuntimeError, "OddError: code 4"),
        ("interrupt", RuntimeError, "KeyboardInterrupt"),
    ],
)
def test_errors_of_a_call(
    pool: WorkerPool, kind: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        pool.submit(worker_jobs.fail, kind).result()
    assert type(caught.value) is error and isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in fail" in str(caught.value.__cause__)


def test_what_cannot_come_back_is_the_error_of_its_call_alone(pool: WorkerPool) -> None:
    with pytest.raises(TypeError, match="a result of type function"):
        pool.submit(worker_jobs.unpicklable).result()
    text = "數" * 3_000_000
    assert pool.submit(str.upper, text, deadline=60).result() == text


def test_a_module_prepares_itself_before_the_call(pool: WorkerPool) -> None:
    assert pool.submit(worker_jobs.prepared_here).result()


def test_prints_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with WorkerPool(1) as pool:
        assert every(pool, worker_jobs.chatter, range(3), deadline=60) == [0, 1, 2]
    captured = capfd.readouterr()
    assert captured.out == ""
    for text in ("to stdout 2", "to stderr 2", "straight to the descriptor", "from a grandchild"):
        assert text in captured.err


@pytest.mark.parametrize(
    ("mishap", "error", "message"),
    [
        ("hang", DeadlineExceeded, "deadline of 1 s"),
        ("hold the interpreter lock", DeadlineExceeded, "deadline of 1 s"),
        ("exit", WorkerCrashed, "exit code 3"),
        ("segfault", WorkerCrashed, "segmentation fault"),
        ("eat memory", WorkerMemoryExceeded, "1,024 MB"),
        ("leave", RuntimeError, "leaving"),
    ],
)
def test_only_the_bad_call_fails(
    pool: WorkerPool, mishap: str, error: type[Exception], message: str
) -> None:
    function = functools.partial(worker_jobs.at_seven, mishap)
    # warm, so that the bad call travels inside a chunk
    every(pool, worker_jobs.plus_one, range(200))
    results = every(pool, function, range(40), deadline=1.0)
    assert type(results[7]) is error and message in str(results[7])
    assert getattr(results[7], "exit_code", None) == (
        None if error is not WorkerCrashed else -11 if "fault" in message else 3
    )
    assert [result for result in results if result is not results[7]] == [
        n for n in range(40) if n != 7
    ]
    assert every(pool, function, range(8, 40), deadline=60) == list(range(8, 40))


def test_deadline_counts_from_the_start_of_the_call_itself() -> None:
    with WorkerPool(1) as pool:
        results = every(pool, worker_jobs.nap, [0.2] * 5, deadline=0.8)
    assert results == [0.2] * 5


def test_a_fresh_process_imports_what_its_first_call_is_about_before_the_clock_runs() -> None:
    from tests.engine.slow_to_import import SECONDS, Labelled  # three seconds, here alone

    with WorkerPool(1) as pool:
        done = pool.submit(worker_jobs.label_of, Labelled("a"), deadline=SECONDS / 2)
        assert done.result() == "a"


def test_worker_killed_while_idle_costs_nothing() -> None:
    with WorkerPool(1) as pool:
        worker = pool.submit(worker_jobs.pid).result()
        os.kill(worker, 9)
        assert (
            wait_until(lambda: not is_alive(worker))
            and pool.submit(worker_jobs.plus_one, 1).result() == 2
        )


@pytest.mark.long("worker processes")
def test_a_worker_that_has_grown_beyond_half_of_its_cap_is_replaced_however_large_its_parent_is() -> (
    None
):
    parent = bytearray(b"x") * (350 << 20)
    with WorkerPool(1, memory_cap=2**29) as pool:
        workers = [pool.submit(worker_jobs.pid).result() for _ in range(2)]
        assert every(pool, worker_jobs.grow, [100, 300, 1]) == [100, 300, 1]
        workers += [pool.submit(worker_jobs.pid).result() for _ in range(2)]
    assert workers[0] == workers[1] != workers[2] == workers[3] and parent


def test_kill_takes_grandchildren_along(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with WorkerPool(1) as pool:
        future = pool.submit(worker_jobs.grandchild_then_hang, str(note), deadline=3.0)
        grandchild = read_pid(note)
        assert isinstance(future.exception(), DeadlineExceeded)
    assert wait_until(lambda: not is_alive(grandchild))


@pytest.mark.parametrize("interpreter", ["/no/such/python", "/bin/false"])
def test_a_worker_that_does_not_begin(interpreter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", interpreter)
    with WorkerPool(1) as pool:
        results = every(pool, worker_jobs.plus_one, range(3))
    assert [type(result) for result in results] == [WorkerCrashed] * 3
    assert "could not begin" in str(results[0])
    assert ("No such file" in str(results[0])) == (interpreter == "/no/such/python")


def test_queued_call_is_cancelled_and_never_runs(tmp_path: Path) -> None:
    with WorkerPool(1) as pool:
        running = pool.submit(worker_jobs.touch_and_nap, str(tmp_path / "first"), 0.7)
        queued = pool.submit(worker_jobs.touch_and_nap, str(tmp_path / "second"), 0.0)
        behind = pool.submit(worker_jobs.plus_one, 1)
        assert wait_until(running.running) and queued.cancel()
        assert not running.cancel() and running.result() == 0.7
        assert wait([queued], timeout=60).done == {queued}, "whoever waits for it hears of it"
        assert behind.result(60) == pool.submit(worker_jobs.plus_one, 1).result() == 2
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
        assert not pool.cancel_running(queued), "it is over"
    assert not is_alive(worker)


def test_a_call_cancelled_before_its_worker_is_heard_of_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is at it already, while the thread that waits for it has not had its turn."""
    heard, load = threading.Event(), pickle.load

    def late(stream: Any) -> Any:
        heard.wait(30)
        return load(stream)

    monkeypatch.setattr(pickle, "load", late)
    with WorkerPool(1) as pool:
        running = pool.submit(worker_jobs.touch_and_nap, str(tmp_path / "pid"), 600.0)
        queued = pool.submit(worker_jobs.plus_one, 1)
        read_pid(tmp_path / "pid")
        assert pool.cancel_running(running)
        heard.set()
        assert queued.result(60) == 2


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


def test_await_from_two_event_loops(pool: WorkerPool) -> None:
    async def several() -> list[int]:
        return list(
            await asyncio.gather(
                *(pool.asubmit(worker_jobs.plus_one, n, deadline=60) for n in range(50))
            )
        )

    assert asyncio.run(several()) == asyncio.run(several()) == list(range(1, 51))


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


@pytest.mark.long("worker processes")
def test_shared_pool_is_one_and_comes_back_after_shutdown() -> None:
    first = get_pool()
    assert get_pool() is first and first.submit(worker_jobs.plus_one, 1).result() == 2
    first.shutdown()
    second = get_pool()
    assert second is not first and second.submit(worker_jobs.plus_one, 2).result() == 3
    assert get_pool("another") is not second
    second.shutdown()


def test_sixteen_threads_share_a_pool(pool: WorkerPool) -> None:
    def work(thread: int) -> list[Any]:
        return every(
            pool, worker_jobs.plus_one, range(thread * 100, thread * 100 + 100), deadline=60
        )

    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(work, range(16)))
    assert len(worker_pids(pool)) == 2
    assert results == [list(range(thread * 100 + 1, thread * 100 + 101)) for thread in range(16)]


def test_one_call_at_a_time_needs_one_process_and_none_before_the_first() -> None:
    with WorkerPool(4) as pool:
        assert (
            worker_pids(pool) == []
            and len({pool.submit(worker_jobs.pid).result() for _ in range(20)}) == 1
        )


def test_a_samples_clock_stands_still_while_its_call_waits_for_a_process() -> None:
    async def left_after(first: float) -> float:
        clock = Deadline(2.0)
        current_deadline.set(clock)
        with WorkerPool(1) as pool:
            await pool.asubmit(worker_jobs.plus_one, 1)
            before = clock.left
            others = [pool.submit(time.sleep, first), pool.submit(time.sleep, first)]
            assert await pool.asubmit(worker_jobs.plus_one, 1) == 2 and all(
                other.done() for other in others
            )
            waiting = pool.submit(time.sleep, first), pool.asubmit(worker_jobs.plus_one, 1)
            waiting[1].cancel()
            await asyncio.wait([waiting[1]])
            return before - clock.left

    assert asyncio.run(left_after(0.6)) < 0.55


def test_scripts_need_no_guard_and_send_what_is_in_modules(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text("def double(n):\n    return 2 * n\n", encoding="utf-8")
    script = """
        import rules
        from rm_gallery.core.engine.pool import get_pool
        from rm_gallery.core.utils.errors import ConfigError
        print('once')
        print(get_pool().submit(rules.double, 4, deadline=60).result())
        def double(n): return 2 * n
        class Thing: pass
        try:
            get_pool().submit(double, 1)
        except ConfigError as error:
            print(error)
        error = get_pool().submit(repr, Thing()).exception()
        print(type(error).__name__, error)
    """
    once, doubled, refused, failed = finish(start(script, cwd=tmp_path)).splitlines()
    assert (once, doubled) == ("once", "8")
    assert "__main__.double lives in the script" in refused and "move it to a module" in refused
    assert failed.startswith("ConfigError") and "importable module" in failed


def test_end_of_the_program_ends_hanging_workers(tmp_path: Path) -> None:
    script = """
        import os, time
        from rm_gallery.core.engine.pool import get_pool
        print(get_pool().submit(os.getpid).result())
        get_pool().submit(time.sleep, 600)
    """
    assert not is_alive(int(finish(start(script, cwd=tmp_path))))


@needs_fork
def test_forked_child_uses_processes_of_its_own(tmp_path: Path) -> None:
    script = """
        import gc, os, sys, time
        from rm_gallery.core.engine.pool import get_pool
        pool = get_pool()
        before = pool.submit(os.getpid).result()
        slow = pool.submit(time.sleep, 0.5)
        child = os.fork()
        if child == 0:
            inside = pool.submit(abs, -1, deadline=60).result() == 1 and get_pool() is pool
            fresh = before != pool.submit(os.getpid).result()
            pool.shutdown()
            gc.collect()  # whatever a thread of the parent was at, nothing waits for it here
            sys.exit(0 if inside and fresh else 1)
        print(os.waitpid(child, 0)[1], slow.result(), pool.submit(os.getpid).result() == before)
    """
    assert finish(start(script, cwd=tmp_path)) == "0 None True\n"


@needs_fork
@pytest.mark.parametrize("call", ["pool.submit(time.sleep, 600)", "None"], ids=["hanging", "idle"])
def test_killed_parent_leaves_no_worker(tmp_path: Path, call: str) -> None:
    script = f"""
        import os, time
        from rm_gallery.core.engine.pool import WorkerPool
        pool = WorkerPool(1)
        worker = pool.submit(os.getpid).result()
        {call}
        print(worker, flush=True)
        time.sleep(600)
    """
    (line,) = kill_after_lines(start(script, cwd=tmp_path), 1)
    assert wait_until(lambda: not is_alive(int(line)))


@needs_fork
def test_a_worker_that_ends_is_heard_of_whatever_it_forked(pool: WorkerPool) -> None:
    error = pool.submit(worker_jobs.fork_and_exit, deadline=60).exception()
    assert isinstance(error, WorkerCrashed) and error.exit_code == 3


def test_orphan_that_holds_the_interpreter_lock_ends_itself() -> None:
    script = """
        from rm_gallery.core.engine import worker
        worker.ORPHAN_SLACK = 0.05
        worker.main(0)
    """
    ours, theirs = socket.socketpair()
    pipe, what = subprocess.PIPE, (worker_jobs.at_seven, ("hold the interpreter lock", 7))
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with (
        ours,
        theirs,
        subprocess.Popen(command, stdin=theirs.fileno(), stderr=pipe, cwd=ROOT) as process,
    ):
        ours.sendall(pickle.dumps([(*map(pickle.dumps, what), 0.1)]))
        assert process.wait(timeout=60) == 1
        assert process.stderr is not None and process.stderr.read() == b""


# -- turns -----------------------------------------------------------------------------------------


def _asked_by(
    of: Deadline, pool: WorkerPool, function: Callable[..., Any], *given: Any, **how: Any
) -> Future[Any]:
    """A call of the request that has this deadline."""

    def submit() -> Future[Any]:
        current_deadline.set(of)
        return pool.submit(function, *given, **how)

    return copy_context().run(submit)


def test_requests_take_turns() -> None:
    one, other = Deadline(600, shared=True), Deadline(600, shared=True)
    done: list[str] = []
    with WorkerPool(1) as pool:
        first = [_asked_by(one, pool, time.sleep, 0.1) for _ in range(12)]
        last = _asked_by(other, pool, worker_jobs.plus_one, 1)
        for name, futures in (("one", first), ("other", [last])):
            for future in futures:
                future.add_done_callback(lambda _, name=name: done.append(name))  # type: ignore[misc]
        wait([*first, last])
    assert done.index("other") < 11, "it did not wait for all that was queued before"


def test_calls_that_hang_hold_up_their_own_request_alone() -> None:
    one, other = Deadline(600, shared=True), Deadline(600, shared=True)
    with WorkerPool(2) as pool:
        hanging = [_asked_by(one, pool, worker_jobs.at_seven, "hang", 7) for _ in range(6)]
        assert [_asked_by(other, pool, worker_jobs.plus_one, i).result(120) for i in range(3)] == [
            1,
            2,
            3,
        ]
        assert not any(future.done() for future in hanging) and len(worker_pids(pool)) <= 4


def test_what_is_to_settle_a_call_comes_before_the_other_calls_of_its_request() -> None:
    done: list[str] = []

    async def main() -> None:
        current_deadline.set(Deadline(600, shared=True))
        with WorkerPool(1) as pool:
            calls: list[tuple[str, asyncio.Future[Any]]] = [
                (f"queued {i}", pool.asubmit(time.sleep, 0.1)) for i in range(6)
            ]
            calls.append(("urgent", pool.asubmit(worker_jobs.plus_one, 1, urgent=True)))
            for name, future in calls:
                future.add_done_callback(lambda _, name=name: done.append(name))  # type: ignore[misc]
            await asyncio.gather(*(future for _, future in calls))

    asyncio.run(main())
    assert done.index("urgent") < 5


@needs_fork
def test_calls_of_a_request_share_its_time(tmp_path: Path) -> None:
    one, other, hang = Deadline(3.0, shared=True), Deadline(600, shared=True), worker_jobs.at_seven
    os.mkfifo(tmp_path / "go")
    with WorkerPool(1) as pool:
        first = _asked_by(one, pool, Path.read_text, tmp_path / "go")
        calls = [_asked_by(one, pool, hang, "hang", 7, deadline=5.0) for _ in range(3)]
        (tmp_path / "go").write_text("they are all queued", encoding="utf-8")
        said = [str(call.exception()).partition("deadline of ")[2] for call in calls]
        limits = [float(each.partition(" s;")[0]) for each in said]
        alone = _asked_by(other, pool, hang, "hang", 7, deadline=0.3)
        assert "deadline of 0.3 s" in str(alone.exception()), "its own where there is time enough"
        assert first.result() == "they are all queued"
    assert 0.2 <= min(limits) and limits[0] <= 0.75 * 3.0 / 3


def test_limits_in_a_row_add_up_to_what_is_left_to_their_request() -> None:
    request = Deadline(600, shared=True, process_seconds=0.5)

    async def main(pool: WorkerPool) -> list[str]:
        current_deadline.set(Deadline(500, request))
        said = []
        for _ in range(6):
            with pytest.raises(DeadlineExceeded) as error:
                await pool.asubmit(worker_jobs.at_seven, "hang", 7, deadline=0.3)
            said.append(str(error.value))
        return said

    with WorkerPool(1) as pool:
        said = asyncio.run(main(pool))
    assert request.process_seconds <= 0
    assert sum("max_seconds" in each for each in said) >= 4 and "max_seconds" not in said[0]


def test_what_a_request_no_longer_waits_for_leaves_the_queue() -> None:
    async def main(pool: WorkerPool) -> int:
        current_deadline.set(Deadline(600, shared=True))
        calls = [
            asyncio.ensure_future(pool.asubmit(worker_jobs.at_seven, "hang", 7)) for _ in range(4)
        ]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        return await pool.asubmit(worker_jobs.plus_one, 1)

    with WorkerPool(1) as pool:
        assert asyncio.run(main(pool)) == 2
        wait_until(lambda: not pool._queues and not pool._unsettled)
