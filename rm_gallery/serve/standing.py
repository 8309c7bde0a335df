"""A run without an end, to which a server feeds units as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl, RunStopped
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.engine import (
    JobCost,
    LaneName,
    Plan,
    Unit,
    Work,
    WorkerLane,
    lane_named,
)
from rm_gallery.core.utils.log import logger

Results = list[tuple[int, Any]]


class _Turn(NamedTuple):
    """A run from its begin until it stops or breaks."""

    work: Work
    lane: WorkerLane
    open: dict[int, bool]
    """The units that nobody was told of yet, by number."""


class StandingRun:
    """One lane that never ends, so that all who ask share its workers, its limits and its counters.

    A run that stops (a judge that is away, a budget that is used up) or breaks (an error of the
    configuration) takes with it what is in flight, and the next unit begins a new one.

    Args:
        execute: job to value, as in a run.
        deliver: takes (number, result) pairs; called on any thread.
        broken: takes an error that ended the run and the numbers of the units that get no result;
            called on any thread.
        max_workers: jobs in flight at once.
        lane: "loop" for coroutines, "threads" for plain functions.
        label: what messages call it.
    """

    def __init__(
        self,
        execute: Callable[[Any], Any],
        deliver: Callable[[Results], None],
        broken: Callable[[BaseException, list[int]], None],
        *,
        max_workers: int,
        lane: LaneName,
        label: str,
    ) -> None:
        self._execute, self._deliver, self._broken = execute, deliver, broken
        self._max_workers, self._lane, self._label = max_workers, lane, label
        self._cost = JobCost()
        self._turn: _Turn | None = None
        self._before = dict.fromkeys(("calls", "cached", "retries"), 0)

    def feed(self, units: Sequence[tuple[int, Plan, Deadline]]) -> None:
        """Take numbered units, each with the time it has left; returns at once. Numbers are the
        caller's, and unique.
        """
        turn = self._turn
        if turn is None or turn.work.ended or turn.work.control.why_stopped is not None:
            turn = self._begin()
        work, made = turn.work, []
        for number, plan, deadline in units:
            made.append(Unit(work, number, plan))
            made[-1].deadline = deadline
            turn.open[number] = True
        turn.lane.feed(made)
        if work.ended:  # it broke meanwhile, and may have been told so before these were known
            work.fail(RuntimeError("the run ended"))

    def expire(self, deadline: Deadline) -> None:
        """Give up the units of a deadline: what has not begun is not begun, what waits for a reply
        is cut.
        """
        deadline.expire()
        if self._turn is not None:
            self._turn.lane.look()

    def close(self) -> None:
        """Begin nothing more and cut what is in flight."""
        if self._turn is not None:
            self._end_turn(self._turn)
            self._turn.work.end(RunStopped("The server is being closed."))
            self._turn.lane.abandon()
            self._turn = None

    def counters(self) -> dict[str, int]:
        """Calls of a judge so far: made, answered by the cache, repeated."""
        control = self._turn and self._turn.work.control
        return {name: n + getattr(control, name, 0) for name, n in self._before.items()}

    def _end_turn(self, turn: _Turn) -> None:
        self._before = self.counters()
        turn.work.control.end()
        library_loop.no_longer_waiting(turn.work)

    def _begin(self) -> _Turn:
        if self._turn is not None:
            self._end_turn(self._turn)
            if (why := self._turn.work.control.stopped) is not None:
                what = "{}: {} What is asked from now on is tried again."
                logger.warning(what, self._label, why)
        # what is served may train, so that who is to blame is found out always
        control = RunControl(fail_fast=None, probes=True)
        control.begin(max_workers=self._max_workers, budget=None, cache=None, repeat=0)
        open_units: dict[int, bool] = {}

        def deliver(results: Results) -> None:
            # a unit that broke the run is told so, and not also that it was not run
            if known := [result for result in results if open_units.pop(result[0], False)]:
                self._deliver(known)

        def fail(error: BaseException) -> None:
            if lost := [number for number in list(open_units) if open_units.pop(number, False)]:
                self._broken(error, lost)

        work = Work(self._execute, control, deliver, fail, cost=self._cost)
        lane = lane_named(self._lane, self._max_workers, 0.0, eager=False)
        self._turn = _Turn(work, lane, open_units)
        return self._turn
