"""What becomes of jobs that are given up, and of those beside them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from rm_gallery.core.engine import engine
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.batch import Run
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.engine import (
    Clock,
    Lane,
    LoopLane,
    Plan,
    ThreadLane,
    Unit,
    Work,
)
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.engine.single import run_single


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def plan(*jobs: Any) -> Plan:
    """These jobs, and what came of each."""
    scores = yield list(jobs)
    return [score.value if score.ok else score.code for score in scores]


def test_a_thread_that_was_given_up_and_wakes_says_nothing_twice() -> None:
    """It told once more what it had done before, and its unit ended with jobs that had not run."""
    results, over = list[Any](), threading.Event()

    def deliver(found: list[Any]) -> None:
        results.extend(found)
        over.set()

    work = Work(sleep, RunControl(), deliver, lambda error: None, deadline=0.3)
    ThreadLane(1).feed([Unit(work, 0, plan(0.0, 0.34, 0.1, 0.0))])
    assert over.wait(10.0)
    time.sleep(0.2)  # until the one that was left has woken
    [(_, said)] = results
    assert said == [0.0, "deadline", "deadline", "deadline"]


def test_a_coroutine_that_blocks_the_event_loop_holds_up_no_plain_function() -> None:
    """Threads told the loop of what they had done: a `time.sleep` in a coroutine stopped them all."""
    over, blocked = threading.Event(), threading.Event()
    results = list[Any]()

    async def block() -> None:
        blocked.set()
        over.wait(20.0)

    blocking = library_loop.submit(block())
    assert blocked.wait(10.0)

    def deliver(found: list[Any]) -> None:
        results.extend(found)
        over.set()

    work = Work(float, RunControl(), deliver, print)
    try:
        ThreadLane(2).feed([Unit(work, 0, plan("0.5"))])
        assert over.wait(5.0) and results == [(0, [0.5])]
    finally:
        over.set()
        blocking.result(timeout=20)


def test_who_waited_behind_one_that_hangs_has_all_its_time() -> None:
    """A unit's clock began with its first job, while the other one stood behind a stranger."""
    results, over = dict[int, Any](), threading.Event()

    def deliver(found: list[Any]) -> None:
        results.update(found)
        if len(results) == 2:
            over.set()

    work = Work(sleep, RunControl(), deliver, lambda error: None, deadline=0.3)
    ThreadLane(1).feed([Unit(work, 0, plan(0.01)), Unit(work, 1, plan(0.02, 1.0, 0.0))])
    assert over.wait(10.0)
    assert results == {0: [0.01], 1: [0.02, "deadline", "deadline"]}


def test_a_lane_of_threads_that_is_abandoned_begins_nothing_more() -> None:
    begun, first = list[float](), threading.Event()

    def note(seconds: float) -> float:
        begun.append(seconds)
        first.set()
        return sleep(seconds)

    lane = ThreadLane(1)
    work = Work(note, RunControl(), lambda found: None, lambda error: None)
    lane.feed([Unit(work, 0, plan(*[0.02] * 50))])
    assert first.wait(10.0)
    lane.abandon()
    time.sleep(0.2)
    assert len(begun) <= 2


@pytest.mark.parametrize("lane", [LoopLane, ThreadLane])
def test_a_plan_may_ask_again_and_is_finished_before_others_begin(lane: type[Lane]) -> None:
    begun, results, over = list[str](), list[Any](), threading.Event()

    def note(job: str) -> str:
        begun.append(job)
        return job.upper()

    def twice(name: str) -> Plan:
        first = yield [f"{name}1"]
        second = yield [f"{name}2", f"{name}3"]
        nothing = yield []
        return [score.value for score in (*first, *second, *nothing)]

    def deliver(found: list[Any]) -> None:
        results.extend(found)
        if len(results) == 3:
            over.set()

    def known() -> Plan:
        yield from ()
        return "known"

    work = Work(note, RunControl(), deliver, lambda error: None)
    lane(1).feed([Unit(work, 0, twice("a")), Unit(work, 1, known()), Unit(work, 2, twice("b"))])
    assert over.wait(10.0)
    assert dict(results) == {0: ["A1", "A2", "A3"], 1: "known", 2: ["B1", "B2", "B3"]}
    assert begun == ["a1", "a2", "a3", "b1", "b2", "b3"]


@pytest.mark.parametrize(("late", "said"), [(0.0, 1), (5.0, 0)], ids=["in time", "late"])
def test_a_loop_that_stands_still_is_told_unless_the_machine_is_busy(
    late: float, said: int, monkeypatch: pytest.MonkeyPatch, warned: list[str]
) -> None:
    """A clock that is late itself says that nobody got a processor."""
    monkeypatch.setattr("rm_gallery.core.engine.engine.BEAT_SECONDS", 0.1)
    monkeypatch.setattr(library_loop, "_still_said", -100.0)
    over, looked = threading.Event(), threading.Event()

    async def block(seconds: float) -> None:
        looked.set()
        time.sleep(seconds)

    work = Work(block, RunControl(), lambda found: over.set(), print, deadline=60.0)
    lane = LoopLane(1)
    monkeypatch.setattr(lane, "_look_at", lambda due: None)  # this test is the clock
    lane.feed([Unit(work, 0, plan(0.5))])
    assert looked.wait(10.0)
    for _ in range(4):
        lane.look(late)
        time.sleep(0.1)
    assert over.wait(10.0)
    library_loop.submit(asyncio.sleep(0.01)).result(10.0)
    assert len(warned) == said


caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")


def made_of(lane: Lane, execute: Callable[[Any], Any], *plans: Plan, deadline: float) -> list[Any]:
    """What becomes of plans on a lane, in their order."""
    results, over = dict[int, Any](), threading.Event()

    def deliver(found: list[Any]) -> None:
        results.update(found)
        if len(results) == len(plans):
            over.set()

    work = Work(execute, RunControl(), deliver, lambda error: over.set(), deadline)
    lane.feed([Unit(work, index, each) for index, each in enumerate(plans)])
    assert over.wait(10.0)
    return [results[index] for index in sorted(results)]


async def stay(seconds: float) -> str:
    """Stay that long, whoever cancels it; then who called."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            pass
    return caller.get()


def test_who_comes_after_a_task_that_was_left_knows_its_caller() -> None:
    """The clock's thread had the next worker started, in a context of its own."""
    caller.set("me")
    assert made_of(LoopLane(1), stay, plan(1.0), plan(0.0), deadline=0.1) == [["deadline"], ["me"]]


def test_a_single_sample_s_jobs_do_not_see_what_the_one_before_has_set() -> None:
    def enter(name: str) -> str:
        before = caller.get()
        caller.set(name)
        return before

    how: Any = {"max_workers": 1, "deadline": None, "lane": "threads", "kind": Clock}
    caller.set("me")
    for drive in (library_loop.drive, asyncio.run):
        assert drive(run_single(plan("a", "b", "c"), enter, **how)) == ["me"] * 3


def no_more(function: Callable[[], None]) -> NoReturn:
    raise RuntimeError("can't start new thread")


def test_where_there_is_no_thread_to_be_had_nobody_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock had none, and that took the worker with it, or the clock for all that followed."""
    library_loop.get_loop()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_clock", Clock())
        patch.setattr(library_loop, "start_thread", no_more)
        made = made_of(LoopLane(2), stay, plan(0.0), plan(0.6), deadline=0.1)
        assert made == [[caller.get()], ["deadline"]]
        with pytest.raises(RuntimeError, match="thread"):
            made_of(ThreadLane(2), sleep, plan(0.0), deadline=0.1)


def test_a_clock_without_threads_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plan asked after its only worker was left had none, and the error ended the clock."""

    def asks_again() -> Plan:
        (first,) = yield [0.5]
        (second,) = yield [0.0]
        return first.code, second.code

    results = list[Any]()
    work = Work(sleep, RunControl(), results.extend, lambda error: None, deadline=0.1)
    ThreadLane(1).feed([Unit(work, 0, asks_again())])
    monkeypatch.setattr(library_loop, "start_thread", no_more)
    time.sleep(0.4)
    monkeypatch.undo()
    assert made_of(ThreadLane(1), sleep, plan(1.0), deadline=0.1) == [["deadline"]]
    assert results == [(0, ("deadline", "deadline"))]


def test_a_stream_whose_lane_takes_nothing_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn counted as begun, and was waited for."""
    monkeypatch.setattr(ThreadLane, "feed", lambda lane, units: no_more(print))
    run = Run[Any](iter([plan(0.0)]), sleep, RunOptions(), lane="threads", streaming=True)
    found = list[Any]()

    def take() -> None:
        with pytest.raises(RuntimeError, match="thread"):
            library_loop.drive(run.all())
        found.append("raised")

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(5.0)
    assert found == ["raised"]


def test_a_plan_that_takes_its_time_holds_up_no_deadline_of_others() -> None:
    """One clock looks at all lanes, and the code of a plan ran on its thread."""
    going = threading.Event()

    def slow() -> Plan:
        yield [1.0]
        going.set()
        return sleep(2.0)

    work = Work(sleep, RunControl(), lambda found: None, lambda error: None, deadline=0.05)
    ThreadLane(1).feed([Unit(work, 0, slow())])
    assert going.wait(10.0)
    began = time.monotonic()
    assert made_of(ThreadLane(1), sleep, plan(3.0), deadline=0.1) == [["deadline"]]
    assert time.monotonic() - began < 1.0


def test_lanes_that_are_over_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of single calls each woke the clock, which went through all of them."""
    looks = list[ThreadLane]()
    monkeypatch.setattr(ThreadLane, "look", looks.append)
    how: Any = {"max_workers": 1, "deadline": 1.0, "lane": "threads", "kind": Clock}
    for _ in range(50):
        library_loop.drive(run_single(plan(0.0), sleep, **how))
    time.sleep(2 * engine.WATCH_SECONDS)
    assert len(looks) < 10


@pytest.mark.parametrize("lane", [LoopLane, ThreadLane])
def test_a_lane_that_was_idle_is_looked_at_again(lane: type[Lane]) -> None:
    """A look that found nobody at work was the last one."""

    async def rest(seconds: float) -> None:
        await asyncio.sleep(seconds)

    one, execute = lane(1), sleep if lane is ThreadLane else rest
    made_of(one, execute, plan(0.0), deadline=0.1)
    time.sleep(0.3)
    assert made_of(one, execute, plan(3.0), deadline=0.1) == [["deadline"]]


def test_threads_go_on_when_the_event_loop_is_shut_down() -> None:
    """What was fed after that was an IndexError to whoever waited."""
    begun = threading.Event()

    def note(seconds: float) -> float:
        begun.set()
        return sleep(seconds)

    results, plans = list[Any](), (plan(0.05) for _ in range(8))
    run = Run[Any](plans, note, RunOptions(max_workers=2), lane="threads")
    thread = threading.Thread(target=lambda: results.extend(library_loop.drive(run.all())))
    thread.start()
    assert begun.wait(10.0)
    library_loop.shutdown()
    thread.join(10.0)
    assert results == [[0.05]] * 8
