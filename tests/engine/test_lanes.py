"""What becomes of jobs on threads that are given up."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.engine import Lane, LoopLane, Plan, ThreadLane, Unit, Work


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
