"""A run without an end: units are fed to it as they come and handed back as they finish, for servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rm_gallery.core.engine.context import Deadline, RunControl, current_deadline
from rm_gallery.core.engine.lanes import Cost, LoopLane, Unit, Work
from rm_gallery.core.engine.run import LaneName, Planned
from rm_gallery.core.engine.thread_lane import ThreadLane
from rm_gallery.core.outcome import Outcome
from rm_gallery.core.utils.errors import DeadlineExceeded
from rm_gallery.core.utils.log import logger

Results = list[tuple[int, Any]]


class StandingRun:
    """One lane that never ends, so that all who ask share its workers, its limits and its counters.

    A run that stops (a judge that is away, a budget that is used up) or breaks (an error of the configuration) takes with
    it what is in flight, and the next unit begins a new one.

    Args:
        execute: job to value, as in a run.
        merge: (data, jobs, outcomes) to a unit's result, as in a run.
        deliver: takes (number, result) pairs; called on any thread.
        broken: takes an error that ended the run and the numbers of the units that get no result; called on any thread.
        max_workers: jobs in flight at once.
        lane: "loop" for coroutines, "threads" for plain functions.
        label: what messages call it.
    """

    def __init__(
        self,
        execute: Callable[[Any], Any],
        merge: Callable[[Any, list[Any], list[Outcome[Any]]], Any],
        deliver: Callable[[Results], None],
        broken: Callable[[BaseException, list[int]], None],
        *,
        max_workers: int,
        lane: LaneName,
        label: str,
    ) -> None:
        def in_time(job: Any) -> Any:
            deadline = current_deadline.get()
            if deadline is not None and deadline.left <= 0:  # nobody waits for it any more
                raise DeadlineExceeded("The time of its request was over before its turn came.")
            return execute(job)

        self._execute, self._merge = in_time, merge
        self._deliver, self._broken = deliver, broken
        self._max_workers, self._name, self._label = max_workers, lane, label
        self._cost = Cost()
        self._turn: _Turn | None = None
        self.calls = self.cached = self.retries = 0

    def feed(self, units: Sequence[tuple[int, Planned, Deadline]]) -> None:
        """Take numbered units, each with the time it has left; returns at once. Numbers are the caller's, and unique."""
        turn = self._turn
        if turn is None or turn.work.closed or turn.control.why_stopped is not None:
            turn = self._begin()
        turn.feed(units)

    def close(self) -> None:
        """Begin nothing more and cut what is in flight."""
        if self._turn is not None:
            self._turn.end()
            self._turn.lane.abandon()
            self._turn = None

    def counters(self) -> dict[str, int]:
        """Calls of a judge so far: made, answered by the cache, repeated."""
        control = self._turn.control if self._turn is not None else RunControl()
        return {
            "calls": self.calls + control.calls,
            "cached": self.cached + control.cached,
            "retries": self.retries + control.retries,
        }

    def _begin(self) -> _Turn:
        if self._turn is not None:
            control = self._turn.control
            self.calls += control.calls
            self.cached += control.cached
            self.retries += control.retries
            if control.stopped is not None:
                logger.warning("{}: {} What is asked from now on is tried again.", self._label, control.stopped)
            self._turn.end()
        self._turn = _Turn(self)
        return self._turn


class _Turn:
    """A run from its begin until it stops or breaks."""

    def __init__(self, standing: StandingRun) -> None:
        self.control = control = RunControl(fail_fast=None)
        workers = standing._max_workers
        control.begin(max_workers=workers, budget=None, cache=None, repeat=0)
        self._standing = standing
        self._open: dict[int, bool] = {}
        self.work = Work(standing._execute, standing._merge, control, self._deliver, self._fail, cost=standing._cost)
        threads = standing._name == "threads"
        self.lane: ThreadLane | LoopLane = (
            ThreadLane(workers, eager=False) if threads else LoopLane(self.work, workers, patience=0.0)
        )

    def feed(self, units: Sequence[tuple[int, Planned, Deadline]]) -> None:
        made = []
        for number, (data, jobs), deadline in units:
            unit = Unit(self.work, number, data, [] if jobs is None else jobs)
            unit.deadline = deadline
            made.append(unit)
            self._open[number] = True
        self.lane.feed(made)
        if self.work.closed:  # it broke meanwhile, and may have been told so before these were known
            self._fail(RuntimeError("the run ended"))

    def _deliver(self, results: Results) -> None:
        # a unit that broke the run is told so, and not also that it was not run
        known = [result for result in results if self._open.pop(result[0], False)]
        if known:
            self._standing._deliver(known)

    def _fail(self, error: BaseException) -> None:
        lost = []
        while self._open:
            lost.append(self._open.popitem()[0])
        if lost:
            self._standing._broken(error, lost)

    def end(self) -> None:
        """Give back what the run held."""
        self.control.end()
