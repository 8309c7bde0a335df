"""A run without an end: what is fed comes back under its number, and what breaks takes only what
was in flight.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

from rm_gallery import ConfigError
from rm_gallery.core.engine.context import current_run
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.engine import Plan
from rm_gallery.serve.standing import StandingRun

Told = queue.Queue[tuple[str, Any]]


def work(job: str) -> str:
    run = current_run.get()
    assert run is not None
    run.count("calls")
    run.count("cached", 2)
    run.count("retries", 3)
    if job == "mend":
        raise ConfigError("mend this")
    if job == "stop":
        run.stop("enough")
    return job.upper()


async def awaited(job: str) -> str:
    return work(job)


def plan(*jobs: str) -> Plan:
    outcomes = yield list(jobs)
    return "data", [outcome.value or outcome.code for outcome in outcomes]


@pytest.fixture(params=["threads", "loop"])
def standing(request: pytest.FixtureRequest) -> Iterator[tuple[StandingRun, Told]]:
    told: Told = queue.Queue()
    run = StandingRun(
        work if request.param == "threads" else awaited,
        lambda results: told.put(("done", results)),
        lambda error, lost: told.put(("broken", (str(error), lost))),
        max_workers=2,
        lane=request.param,
        label="it",
    )
    yield run, told
    run.close()


def test_what_is_fed_comes_back_and_what_breaks_is_begun_anew(
    standing: tuple[StandingRun, Told],
) -> None:
    run, told = standing

    def ask(number: int, *jobs: str, seconds: float = 30.0) -> tuple[str, Any]:
        run.feed([(number, plan(*jobs), Deadline(seconds))])
        return told.get(timeout=30)

    assert ask(7, "a", "b") == ("done", [(7, ("data", ["A", "B"]))]) and ask(8) == (
        "done",
        [(8, ("data", []))],
    )
    assert ask(9, "late", seconds=-1.0) == ("done", [(9, ("data", ["deadline"]))])
    assert run.counters() == {"calls": 2, "cached": 4, "retries": 6}
    assert ask(5, "mend") == ("broken", ("mend this", [5])) and ask(6, "stop") == (
        "done",
        [(6, ("data", ["STOP"]))],
    )
    assert ask(4, "again") == ("done", [(4, ("data", ["AGAIN"]))]), (
        "one that stopped is followed by another"
    )
    assert run.counters() == {"calls": 5, "cached": 10, "retries": 15} and told.empty()
