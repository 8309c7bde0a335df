"""What becomes of jobs on threads that are given up."""

from __future__ import annotations

import threading
import time
from typing import Any

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.engine import JobCost, ThreadLane, Unit, Work


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def merge(_: Any, jobs: list[float], scores: list[Any]) -> list[Any]:
    return [score.value if score.ok else score.code for score in scores]


def test_a_thread_that_was_given_up_and_wakes_says_nothing_twice() -> None:
    """It told once more what it had done before, and its unit ended with jobs that had not run."""
    results, over = list[Any](), threading.Event()

    def deliver(found: list[Any]) -> None:
        results.extend(found)
        over.set()

    work = Work(sleep, merge, RunControl(), deliver, lambda error: None, deadline=0.3)
    work.cost = JobCost(0.0024)  # two jobs a chunk
    ThreadLane(1).feed([Unit(work, 0, "", [0.0, 0.34, 0.1, 0.0])])
    assert over.wait(10.0)
    time.sleep(0.2)  # until the one that was left has woken
    [(_, said)] = results
    assert said == [0.0, "deadline", "deadline", 0.0]


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

    work = Work(float, lambda _, __, scores: scores[0].value, RunControl(), deliver, print)
    try:
        ThreadLane(2).feed([Unit(work, 0, "", ["0.5"])])
        assert over.wait(5.0) and results == [(0, 0.5)]
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

    work = Work(sleep, merge, RunControl(), deliver, lambda error: None, deadline=0.3)
    work.cost = JobCost(0.0012)  # four jobs a chunk
    ThreadLane(1).feed([Unit(work, 0, "", [0.01]), Unit(work, 1, "", [0.02, 1.0, 0.0])])
    assert over.wait(10.0)
    assert results == {0: [0.01], 1: [0.02, "deadline", 0.0]}


def test_a_lane_of_threads_that_is_abandoned_begins_nothing_more() -> None:
    begun, first = list[float](), threading.Event()

    def note(seconds: float) -> float:
        begun.append(seconds)
        first.set()
        return sleep(seconds)

    lane = ThreadLane(1)
    work = Work(note, merge, RunControl(), lambda found: None, lambda error: None)
    lane.feed([Unit(work, 0, "", [0.02] * 50)])
    assert first.wait(10.0)
    lane.abandon()
    time.sleep(0.2)
    assert len(begun) <= 2
