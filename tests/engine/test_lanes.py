"""What becomes of jobs on threads that are given up."""

from __future__ import annotations

import threading
import time
from typing import Any

from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.engine import JobCost, ThreadLane, Unit, Work


def test_a_thread_that_was_given_up_and_wakes_says_nothing_twice() -> None:
    """It told once more what it had done before, and its unit ended with jobs that had not run."""
    results, over = list[Any](), threading.Event()

    def deliver(found: list[Any]) -> None:
        results.extend(found)
        over.set()

    def merge(_: Any, jobs: list[float], scores: list[Any]) -> list[Any]:
        return [score.value if score.ok else score.code for score in scores]

    def sleep(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    work = Work(sleep, merge, RunControl(), deliver, lambda error: None, deadline=0.3)
    work.cost = JobCost(0.0024)  # two jobs a chunk
    ThreadLane(1).feed([Unit(work, 0, "", [0.0, 0.34, 0.1, 0.0])])
    assert over.wait(10.0)
    time.sleep(0.2)  # until the one that was left has woken
    [(_, said)] = results
    assert said == [0.0, "deadline", "deadline", "deadline"], "nothing is begun after its time"
