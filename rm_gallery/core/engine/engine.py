"""Jobs in, scores out, with bounded concurrency and one clock.

A plan is a generator: it yields jobs, is sent their scores, may yield more, and returns a result.
Unit is what the engine knows of one. A lane runs the jobs of the units it is fed: workers pull one
after another, as coroutines on the library's event loop or as plain functions on daemon threads.
When the jobs of a unit have their scores its plan goes on, ahead of units that have not begun; what
it returns is delivered. Whatever happens to a lane or a job, whoever waits for a unit gets a result
or an error.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import inspect
import math
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Literal

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import (
    NotAsked,
    RunControl,
    StopMark,
    current_deadline,
    current_run,
    note_stop,
    stop_mark,
)
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.score import (
    NOT_BEGUN,
    NOT_RUN,
    Score,
    failed,
    score_of_error,
)
from rm_gallery.core.utils.errors import Cause, ConfigError, DeadlineExceeded

FLUSH_SECONDS = 0.004
"""Results wait this long for company: waking the waiting thread for each one costs more than
judging it.
"""
LATE_SECONDS = 0.005
"""A call that ends by itself at its deadline says more about it than we do: it gets this long to.

Its HTTP timeout is cut to the deadline (`Call`), and between attempts `with_retries` raises
DeadlineExceeded. What is later by these seconds `WorkerLane._look` cuts, and gives up
ABANDON_SECONDS later.
"""
ABANDON_SECONDS = 0.3
"""How long code that was cancelled may take to end before its sample is given up and its task left.
"""
BEAT_SECONDS = 1.0
"""How often it is looked whether an event loop turns, and how long it may not before that is said."""
WATCH_SECONDS = 0.05
"""How often threads are looked at."""
STUCK_SECONDS = 0.1
"""A thread that is at its job for so long gets another one beside it."""
TRIAL_THREADS = 8
"""So many jobs of unknown cost are tried at once where not all threads are had."""
CHEAP_SECONDS = 2e-4
"""Below this a job holds the interpreter lock all the time it runs: more threads only take turns.
"""
LaneName = Literal["loop", "threads"]
Results = list[tuple[int, Any]]
"""What came of units, each by its index; of a doubtful one the unit itself, see `Unit.go_on`."""
Plan = Generator[list[Any], list[Score[Any]], Any]
"""Yields jobs, is sent their scores in the same order, and returns the result. One that yields
nothing has its result already. Its first part runs where it is drawn, the rest (merging, writing the
record) on the library's loop or a worker's thread.
"""


@dataclass(eq=False)
class JobCost:
    """Seconds that one job of a kind takes, as seen lately; None before the first."""

    seconds: float | None = None

    def learn(self, seconds: float) -> None:
        """Take in what a job took. One that waited for the interpreter seems a thousand times as
        long: no single one says that all are.
        """
        if self.seconds is not None:
            known = max(self.seconds, 1e-6)
            seconds = 0.7 * known + 0.3 * min(seconds, 4 * known)
        self.seconds = seconds

    @property
    def cheap(self) -> bool:
        """Whether such a job is known to be over at once."""
        return self.seconds is not None and self.seconds <= CHEAP_SECONDS


@dataclass(eq=False)
class Work:
    """What is done with some units, and who waits for them."""

    execute: Callable[[Any], Any]
    """Job to a score, or to the value of one. What it returns is awaited if it can be."""
    control: RunControl
    deliver: Callable[[Results], None]
    fail: library_loop.Fail
    """Takes the error that ends the work; the first one counts."""
    deadline: float | None = None
    """Seconds a unit may take from the start of its first job."""
    outer: Deadline | None = None
    """Of the sample this work is done for."""
    flush: library_loop.Callback | None = None
    """Called before results are delivered, to make durable what their calls spent."""
    cost: JobCost = field(default_factory=JobCost)
    count: Callable[[list[Score[Any]]], None] | None = None
    """Hears the scores of each unit."""
    lock: AbstractContextManager[Any] = field(default_factory=threading.RLock)
    """Held while a plan goes on, after its first step: one at a time. It also guards the counters of
    `Run`.
    """
    holds_doubtful: bool = False
    """Whether `deliver` takes a doubtful unit in the place of its result, to be fed again once it is
    decided."""
    ended: bool = False
    """Whether no further job is begun."""

    def hand_over(self, results: Results) -> None:
        """Deliver results, once they are durable."""
        try:
            if self.flush is not None:
                self.flush()
            self.deliver(results)
        except BaseException as error:  # noqa: BLE001 - a full disk ends the run; whoever waits raises it
            self.end(error)

    def end(self, error: BaseException) -> None:
        """Begin nothing more and tell whoever waits."""
        self.ended = True
        self.fail(error)

    def score_of(self, error: BaseException) -> Score[Any]:
        """Score of a job that raised; an error of the settings ends the work."""
        try:
            return score_of_error(error)
        except ConfigError as fatal:
            self.end(fatal)
            return NOT_RUN

    def late(self, deadline: Deadline | None, left: str = "") -> Score[Any]:
        """Score of a job that was given up at its deadline."""
        seconds = "" if self.deadline is None else f" of {self.deadline:g} s"
        note = f"; {deadline.note}" if deadline is not None and deadline.note else ""
        by: Cause = "caller" if deadline is None else deadline.by
        return score_of_error(
            DeadlineExceeded(f"No result within the deadline{seconds}{note}{left}.", cause=by)
        )


class Unit:
    """A plan on its way, and the jobs that it waits for."""

    def __init__(
        self, work: Work, index: int, plan: Plan, context: contextvars.Context | None = None
    ) -> None:
        """Begin the plan, on the caller's thread."""
        self.work = work
        self.index = index
        self.context = context
        """What its jobs find set, if not what was set where the lane was made."""
        self.deadline: Deadline | None = None
        """When this unit runs out of time, set when its first job starts."""
        self.lost: list[BaseException] = []
        """Errors of the calls that its jobs lost, and have a number all the same."""
        self.is_over, self.result = False, None
        self._plan = plan
        self._take(None)

    def _take(self, scores: Any) -> None:
        """Let the plan go on to its next jobs, or to its end."""
        try:
            self.jobs = self._plan.send(scores)
        except StopIteration as end:
            self.is_over, self.result, self.jobs = True, end.value, []
        self.taken = 0
        """How many of its jobs are taken."""
        self.remaining = len(self.jobs)
        self.outcomes: list[Score[Any]] = [NOT_RUN] * self.remaining

    def deadline_from_now(self) -> Deadline | None:
        """The unit's deadline, counted from the first job that asks."""
        if self.deadline is None:
            seconds, outer = self.work.deadline, self.work.outer
            self.deadline = outer if seconds is None else Deadline(seconds, outer)
        return self.deadline

    def score_if_not_begun(self, outer: StopMark | None) -> Score[Any] | None:
        """Score of a job that is not begun, since its run has stopped or the time of its sample is
        over; None where it goes on.
        """
        control = self.work.control
        goes_on = control.stopped is None and control.parent is None  # as nearly always
        if not goes_on and (outcome := control.not_begun) is not None:
            note_stop(outer)
            return outcome
        is_over = self.deadline is not None and self.deadline.left <= 0
        return self.work.late(self.deadline) if is_over else None

    @property
    def caller_is_gone(self) -> bool:
        """Whether the time of whoever asked for it is over; at the end of its own the clock looks."""
        return self.work.deadline is None and self.deadline is not None and self.deadline.left <= 0

    def outcome_given_calls(self, mark: StopMark, outcome: Score[Any]) -> Score[Any]:
        """What a job gave, or where a call of it was stopped with the run that it was stopped,
        whatever its code made of that. The unit hears of calls that got no answer.
        """
        if mark.unanswered or mark.covered:
            self.lost += mark.taken(outcome.ok)
        if not mark.call_stopped or outcome.code in NOT_BEGUN:
            return outcome
        control = self.work.control
        if (not_begun := control.not_begun) is not None:
            return not_begun
        return _not_asked(outcome) if control.offline else outcome

    def go_on(self) -> Any:
        """Let the plan go on with the scores of its jobs: its result, where none are `remaining` then.

        The unit itself, where that is doubtful: it has a number though calls of its jobs got no
        answer, as with `except Exception: return 0.5`. If the run stops because of these errors, the
        unit has failed with them; else its number stands.
        """
        if self.lost and self.work.holds_doubtful:
            return self
        scores = self.outcomes
        with self.work.lock:
            while not self.is_over:
                if self.work.count is not None:
                    self.work.count(scores)
                self._take(scores)
                if self.jobs:
                    break
                scores = []
        return self.result

    def decide(self, error: BaseException | None) -> None:
        """Have a doubtful unit go on with its numbers, or as one that failed with this error."""
        self.lost = []
        if error is not None:
            self.outcomes = [score_of_error(error)] * len(self.jobs)


def _not_asked(outcome: Score[Any]) -> Score[Any]:
    """What a job gave below which a model would have been asked: no score, and what else was found
    out of each output.
    """
    asked = failed(NotAsked.reason, "A model would have to be asked.", NotAsked.cause)
    if not isinstance(outcome.value, list):
        return asked
    return replace(outcome, value=[replace(asked, extra=each.extra) for each in outcome.value])


class Mailbox:
    """Where a lane leaves results for the one who waits for them: a thread, or a coroutine of any
    event loop.
    """

    def __init__(self) -> None:
        self._ready = threading.Condition(threading.Lock())
        self._results: Results = []
        self._error: BaseException | None = None
        self._news = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, results: Results, error: BaseException | None = None) -> None:
        """Leave results, or an error that is raised to the waiter once, and wake him; also with
        neither.
        """
        with self._ready:
            self._results.extend(results)
            self._error, self._news = self._error or error, True
            self._ready.notify()
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            library_loop.wake(waiter)

    def fail(self, error: BaseException) -> None:
        """Leave an error."""
        self.put([], error)

    async def take(self, timeout: float | None) -> Results:
        """What has come; waits for the first news, or the timeout."""
        with self._ready:
            if self._news:
                return self._taken()
            if library_loop.is_driven():
                library_loop.refuse_blocking()
                self._ready.wait(timeout)
                return self._taken()
            waiter = self._waiter = asyncio.get_running_loop().create_future()
        await (waiter if timeout is None else asyncio.wait([waiter], timeout=timeout))
        with self._ready:
            return self._taken()

    def _taken(self) -> Results:
        results, self._results = self._results, []
        if not results:
            self.check()
        self._news = self._error is not None
        return results

    def check(self) -> None:
        """Raise the error that nobody was told yet."""
        error, self._error = self._error, None
        if error is not None:
            raise error


@dataclass(eq=False)
class Worker:
    """A coroutine (its `task`) or a thread that takes one job after another, and the job it is at."""

    mark: StopMark
    """Of the job it is at, where that has no context of its own."""
    job: tuple[Unit, int] | None = None
    since: float = 0.0
    """When it took that job."""
    task: Any = None
    """Of a thread, what it waits for where a plain function returned something awaitable."""
    cut_at: float | None = None
    """When the task was cancelled since the job was late."""


class Lane:
    """What lanes share: they are fed units and deliver what is made of them.

    One lane may serve the units of many works.
    """

    def __init__(self, max_workers: int, flush_after: float = FLUSH_SECONDS) -> None:
        self._max_workers, self._flush_after = max_workers, flush_after
        self._loop = library_loop.get_loop()
        self._lock = threading.RLock()
        """Held where jobs are taken, put back and counted."""
        self._pending: deque[Unit] = deque()
        """Units with jobs that are not taken yet."""
        self._finished: dict[Work, Results] = {}
        """What is not handed over yet."""
        self._open_units = 0
        self._flush_due = False

    @property
    def is_alive(self) -> bool:
        """Whether the event loop it lives on still runs."""
        return library_loop.is_current(self._loop)

    def feed(self, units: list[Unit]) -> None:
        """Queue units, all of one work; returns at once."""
        if not units:
            return
        library_loop.wake_at_end(units[0].work, units[0].work.fail)
        if library_loop.on_loop() or not self.is_alive:
            self._add_units(units)
        else:
            self._loop.call_soon_threadsafe(self._add_units, units)

    async def cancel(self, grace: float) -> None:
        """Drop waiting jobs and leave or cut those in flight after `grace` seconds."""
        if not self.is_alive:
            return
        future = library_loop.submit(self._drain(grace))
        if library_loop.on_loop():  # a forgotten stream may be collected on any thread
            return
        longest = grace + ABANDON_SECONDS + 1.0
        if library_loop.is_driven():
            concurrent.futures.wait([future], longest)
        else:
            await asyncio.wait([asyncio.wrap_future(future)], timeout=longest)
        future.cancel()  # where it is not over

    def abandon(self) -> None:
        """Drop waiting jobs and, without waiting for it, cut coroutines and leave threads; from any
        thread.
        """
        if self.is_alive:
            library_loop.submit(self._drain(0.0))

    def _start_workers(self) -> None:
        """Have what is pending worked off."""
        raise NotImplementedError

    async def _drain(self, grace: float) -> None:
        raise NotImplementedError

    def _add_units(self, units: list[Unit]) -> None:
        if not self.is_alive:
            library_loop.cut_off(units[0].work.end)
            return
        known = [unit for unit in units if not unit.remaining]  # before others can be worked off
        with self._lock:
            self._open_units += len(units)
            self._pending.extend([unit for unit in units if unit.remaining])
        for unit in known:
            self._go_on(unit)
        if self._pending:
            self._start_workers()

    def _note_outcome(self, unit: Unit, i: int, outcome: Score[Any]) -> None:
        unit.outcomes[i] = outcome
        with self._lock:
            unit.remaining -= 1
            is_last = unit.remaining == 0
        if is_last:
            self._go_on(unit)

    def _go_on(self, unit: Unit) -> None:
        came: Results = []
        try:
            came.append((unit.index, unit.go_on()))
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            self._end(unit.work, error)
        if came and unit.remaining:  # a sample is finished before the next one begins
            with self._lock:
                self._pending.appendleft(unit)
            with suppress(RuntimeError):  # no thread to be had now: the clock tries again
                self._start_workers()
            return
        with self._lock:
            if came:
                self._finished.setdefault(unit.work, []).extend(came)
            self._open_units -= 1
        self._flush_soon(unit.work)

    def _flush_soon(self, work: Work) -> None:
        if self._open_units == 0:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_later(self._flush_after, self._flush)

    def _end(self, work: Work, error: BaseException) -> None:
        work.end(error)

    def _flush(self) -> None:
        self._flush_due = False
        with self._lock:
            finished, self._finished = self._finished, {}
        for work, results in finished.items():
            work.hand_over(results)


class LaneClock:
    """Looks at lanes when somebody in them may be late, on a thread of its own: an event loop that
    is blocked holds up no plain function.
    """

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._lanes: set[WorkerLane] = set()
        self._runs = False
        self._wakes = math.inf
        """When it looks again, if nobody asks for an earlier look."""

    def look_at(self, lane: WorkerLane, due: float) -> None:
        """Have `lane.look()` called at a time of `time.monotonic`, or before; RuntimeError where
        there is no thread for that.
        """
        with self._ready:
            self._lanes.add(lane)
            lane.due = min(due, lane.due)
            if not self._runs:
                library_loop.start_thread(self._run)
                self._runs = True
            elif due < self._wakes:
                self._ready.notify()

    def forget(self, *lanes: WorkerLane) -> None:
        """Look at these no more: thousands that are over would each wake it."""
        with self._ready:
            for lane in lanes:
                self._lanes.discard(lane)
                lane.due = math.inf

    def _run(self) -> None:
        while lanes := self._those_due():
            for lane, late in lanes:
                lane.look(late)

    def _those_due(self) -> list[tuple[WorkerLane, float]]:
        """The lanes that are due, as soon as one is, and how late it is for them; none where none
        waits to be looked at.
        """
        with self._ready:
            while self._lanes:
                now = time.monotonic()
                if due := [(lane, now - lane.due) for lane in self._lanes if lane.due <= now]:
                    self.forget(*(lane for lane, _ in due))
                    return due
                self._wakes = min(lane.due for lane in self._lanes)
                self._ready.wait(min(self._wakes - now, threading.TIMEOUT_MAX))
            self._runs = False
            return []


_clock = LaneClock()


@library_loop.after_fork
def _forget_clock() -> None:
    global _clock
    _clock = LaneClock()


class WorkerLane(Lane):
    """A lane with at most `max_workers` workers of its own, each at one job."""

    due = math.inf
    """When the clock looks next; the clock writes it."""
    _is_cut = False
    """Whether what was in flight is cancelled."""
    _learns = False
    """Whether it learns what jobs cost."""

    def __init__(
        self, max_workers: int, flush_after: float = FLUSH_SECONDS, *, eager: bool = True
    ) -> None:
        super().__init__(max_workers, flush_after)
        self._eager = eager
        """Whether jobs of unknown cost get all threads at once."""
        self._workers: set[Worker] = set()
        self._outer = stop_mark.get()
        """Of the job around the run, which hears what its jobs' marks do."""
        self._context = contextvars.copy_context()
        """What its jobs find set, whoever has a worker started."""

    def _start(self, worker: Worker) -> None:
        raise NotImplementedError

    def _own_context(self, unit: Unit) -> contextvars.Context:
        """The context of one job: what it sets (a tenant, a trace) no other sample finds."""
        return (self._context if unit.context is None else unit.context).copy()

    def _cut(self, worker: Worker, left: float) -> float:
        """End a job where that can be; seconds until it is given up. `left`, of its time, is 0 or
        below: so long it is over.
        """
        now, task = time.monotonic(), worker.task
        if task is None:
            return 0.0
        if worker.cut_at is None:
            worker.cut_at = now
            task.cancel()
            return ABANDON_SECONDS
        return ABANDON_SECONDS + max(left, worker.cut_at - now)

    def _beat(self) -> float:
        """So often, in seconds, the clock looks at all workers."""
        raise NotImplementedError

    def look(self, late: float = 0.0) -> None:
        """Look who is late now, which was due so many seconds ago; from any thread."""
        raise NotImplementedError

    def _wanted(self) -> int:
        """How many workers what is pending is worth."""
        return self._max_workers

    def _start_workers(self) -> None:
        with self._lock:
            missing = max(0, self._wanted() - len(self._workers)) if self._pending else 0
            if missing and self.due == math.inf:
                self._look_at(time.monotonic() + self._beat())
            jobs = sum(len(unit.jobs) - unit.taken for unit in islice(self._pending, missing))
            for _ in range(min(missing, jobs)):
                worker = Worker(StopMark(self._outer))
                self._workers.add(worker)
                self._start(worker)

    def _next(self, worker: Worker) -> tuple[Unit, int] | None:
        """The next job; None where the worker has to end."""
        with self._lock:
            while self._pending and worker in self._workers:
                if len(self._workers) > 1 and len(self._workers) > self._wanted():
                    break
                unit = self._pending[0]
                i, unit.taken = unit.taken, unit.taken + 1
                if unit.taken == len(unit.jobs) or unit.work.ended:
                    self._pending.popleft()
                if not unit.work.ended:
                    return unit, i
            # here and not when it has ended: what is fed meanwhile must not count on it
            self._workers.discard(worker)
            if not (self._workers or self._pending):
                _clock.forget(self)
            return None

    def _begin(self, worker: Worker, unit: Unit, i: int) -> Score[Any] | StopMark:
        """Take up a job in the current context: its score where it is not begun, else what hears of
        calls that it loses.
        """
        mark = worker.mark if unit.context is None else StopMark(unit.context.get(stop_mark))
        if (outcome := unit.score_if_not_begun(mark.outer)) is not None:
            return outcome
        mark.call_stopped = mark.declares_missing = False
        stop_mark.set(mark)
        current_run.set(unit.work.control)
        with self._lock:
            unit.work.control.in_flight += 1
            worker.job, worker.since, worker.cut_at = (unit, i), time.monotonic(), None
            deadline = unit.deadline_from_now()
            if deadline is not None and (due := deadline.end + LATE_SECONDS) < self.due:
                self._look_at(due)
        current_deadline.set(deadline)
        return mark

    def _leave(self, worker: Worker) -> bool:
        """Let the worker be done with its job; False where that was given up meanwhile."""
        with self._lock:
            if worker.job is None:
                return False
            worker.job[0].work.control.in_flight -= 1
            worker.job = None
            return True

    async def _do(self, worker: Worker, unit: Unit, i: int) -> None:
        """Do a job in the current context and note what came of it, if it was not given up
        meanwhile.
        """
        begun = self._begin(worker, unit, i)
        if isinstance(begun, StopMark):
            outcome = await self._outcome(worker, unit, i)
            if self._learns:
                unit.work.cost.learn(time.monotonic() - worker.since)
            if not self._leave(worker):
                return
            begun = unit.outcome_given_calls(begun, outcome)
        self._note_outcome(unit, i, begun)

    async def _outcome(self, worker: Worker, unit: Unit, i: int) -> Score[Any]:
        """What a job comes to, whatever its code does."""
        try:
            value = unit.work.execute(unit.jobs[i])
            if awaitable(value):
                value = await self._awaited(worker, value)
            if worker.cut_at is None and not unit.caller_is_gone:
                return value if isinstance(value, Score) else Score(value)
        except (asyncio.CancelledError, GeneratorExit) as error:
            if self._is_cut or not self.is_alive:
                raise
            if worker.cut_at is None:
                return failed("error", f"{type(error).__name__} raised by the reward.", "rule")
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is recorded
            if worker.cut_at is None or isinstance(error, DeadlineExceeded):
                return unit.work.score_of(error)
        return unit.work.late(unit.deadline)

    async def _awaited(self, worker: Worker, value: Any) -> Any:
        """What a job returned to be awaited."""
        raise NotImplementedError

    def _abandon(self, worker: Worker) -> None:
        """Leave a worker behind with its job."""
        with self._lock:
            self._leave(worker)
            self._workers.discard(worker)

    def _look_at(self, due: float) -> None:
        _clock.look_at(self, due)

    def _look(self) -> None:
        """Give up what is late, and arrange the next look."""
        now, late = time.monotonic(), list[tuple[Unit, int]]()
        due = now + self._beat()
        with self._lock:
            for worker in list(self._workers):
                if worker.job is None or (deadline := worker.job[0].deadline) is None:
                    continue
                left = deadline.left + LATE_SECONDS
                patience = left if left > 0 else self._cut(worker, left)
                due = min(due, now + max(patience, 0.001))
                if patience <= 0:
                    late.append(worker.job)
                    self._abandon(worker)
        if late:
            self._aside(partial(self._give_up, late))
        with suppress(RuntimeError):  # no thread to be had now
            self._start_workers()
        with self._lock:
            _clock.forget(self)
            if self._workers or self._pending:
                self._look_at(due)

    def _aside(self, function: library_loop.Callback) -> None:
        """Call what may take its time, since plans have code of their own; not on the clock's
        thread.
        """
        function()

    def _give_up(self, late: list[tuple[Unit, int]]) -> None:
        for unit, i in late:
            self._note_outcome(unit, i, unit.work.late(unit.deadline, self.left_behind))

    left_behind: ClassVar[str]
    """What becomes of a worker whose job is given up."""


class LoopLane(WorkerLane):
    """Runs jobs as coroutines on the library loop.

    A job past its deadline is cancelled; one that will not be cancelled is given up, and its task
    left behind.
    """

    left_behind = "; its task ignored that and was left"
    _asked: float | None = None
    """Since when the loop is to look, and the clock was on time."""
    _seen = 0.0
    """When the clock came last."""

    async def _drain(self, grace: float) -> None:
        self._pending.clear()
        tasks = [worker.task for worker in self._workers]
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        self._is_cut = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ABANDON_SECONDS)
        self._flush()

    def _beat(self) -> float:
        return BEAT_SECONDS

    def look(self, late: float = 0.0) -> None:
        """Ask the loop to look who is late, which was due so many seconds ago; from any thread."""
        now = time.monotonic()
        with self._lock:
            if not (self.is_alive and self._workers):
                return
            self._look_at(now + BEAT_SECONDS)
        if self._asked is None:
            self._asked = now
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._look_on_loop, context=self._context)
        elif late >= BEAT_SECONDS / 4:  # the machine is busy, and the loop waits for it as well
            self._asked = now
        self._seen = now

    def _look_on_loop(self) -> None:
        """Look, and say so where the loop stood still meanwhile."""
        if self._asked is not None and self._seen - self._asked >= BEAT_SECONDS:
            library_loop.stood_still(time.monotonic() - self._asked)
        self._asked = None
        self._look()

    def _look_at(self, due: float) -> None:
        try:
            super()._look_at(due)
        except RuntimeError:  # no thread to be had: the loop looks itself
            seconds = max(0.0, due - time.monotonic())
            self._loop.call_later(seconds, self._look, context=self._context)

    def _start(self, worker: Worker) -> None:
        worker.task = self._loop.create_task(self._work_off(worker))

    async def _work_off(self, worker: Worker) -> None:
        work: Work | None = None
        try:
            while (job := self._next(worker)) is not None:
                work = job[0].work
                await _run_in(self._own_context(job[0]), self._do(worker, *job))
        except asyncio.CancelledError:
            if work is not None and not self.is_alive:
                library_loop.cut_off(work.end)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            if work is not None:
                work.end(error)
        finally:
            self._abandon(worker)

    async def _awaited(self, worker: Worker, value: Any) -> Any:
        try:
            return await value
        finally:
            if worker.cut_at is not None and sys.version_info >= (3, 11):
                worker.task.uncancel()


class ThreadLane(WorkerLane):
    """Runs jobs as plain function calls on daemon threads.

    A thread cannot be killed: a job past its deadline becomes failed(deadline), and its thread is
    left behind. Nothing here waits for the event loop: a coroutine that blocks it holds up no plain
    function.
    """

    left_behind = "; its thread was left"
    _learns = True
    _flush_at = 0.0

    @property
    def is_alive(self) -> bool:
        """True: no event loop is needed here."""
        return True

    def feed(self, units: list[Unit]) -> None:
        """Queue units, all of one work; returns at once."""
        self._add_units(units)

    async def cancel(self, grace: float) -> None:
        """Drop waiting jobs and leave those in flight after `grace` seconds."""
        self._drop(grace)

    def _drop(self, grace: float) -> None:
        with self._lock:
            self._pending.clear()
        end = time.monotonic() + grace
        while self._workers and time.monotonic() < end:
            time.sleep(0.01)
        with self._lock:
            for worker in list(self._workers):
                if worker.task is not None:
                    worker.task.cancel()
                self._abandon(worker)

    def abandon(self) -> None:
        """Drop waiting jobs and leave those in flight, without waiting for it; from any thread."""
        self._drop(0.0)

    def look(self, late: float = 0.0) -> None:
        """Look who is late now, which was due so many seconds ago; from any thread."""
        if self._finished:
            self._aside(self._flush)
        self._look()

    def _aside(self, function: library_loop.Callback) -> None:
        try:
            library_loop.start_thread(function)
        except RuntimeError:  # there are no more
            function()

    def _beat(self) -> float:
        return WATCH_SECONDS

    def _flush_soon(self, work: Work) -> None:
        """At once, but where the next job is over in no time."""
        now = time.monotonic()
        if self._open_units == 0 or not work.cost.cheap or now >= self._flush_at:
            self._flush_at = now + self._flush_after
            self._flush()

    def _wanted(self) -> int:
        """One for cheap jobs, and one more for each thread that a job holds up; else as many as are
        allowed.
        """
        cost = self._pending[0].work.cost
        if not cost.cheap and (self._eager or cost.seconds is not None):
            return self._max_workers
        since = time.monotonic() - STUCK_SECONDS
        stuck = sum(worker.job is not None and worker.since < since for worker in self._workers)
        return min(self._max_workers, (1 if cost.cheap else TRIAL_THREADS) + stuck)

    def _start(self, worker: Worker) -> None:
        try:
            library_loop.start_thread(partial(self._serve, worker))
        except RuntimeError:  # there are no more; those there are do the rest
            self._workers.discard(worker)
            if not self._workers:
                raise

    def _serve(self, worker: Worker) -> None:
        """What a thread does: one job after another, as long as it is wanted."""
        while (job := self._next(worker)) is not None:
            self._own_context(job[0]).run(library_loop.drive, self._do(worker, *job))
        if self._finished:  # nothing comes that would bring it along
            self._flush()

    async def _awaited(self, worker: Worker, value: Any) -> Any:
        """What a plain function returned to be awaited runs on the library loop, as any coroutine."""
        with self._lock:  # who leaves the worker has the task, or it is left already
            worker.task = task = library_loop.submit(_result_of(value))
            if worker not in self._workers:
                task.cancel()
        try:
            return task.result()
        finally:
            worker.task = None


async def _result_of(value: Any) -> Any:
    return await value


@types.coroutine
def _run_in(
    context: contextvars.Context, job: Coroutine[Any, Any, None]
) -> Generator[Any, Any, None]:
    """Await a job in a context; a task for each would take longer than most rules."""
    step: Callable[[Any], Any] = job.send
    given: Any = None
    while True:
        try:
            waits_for = context.run(step, given)
        except StopIteration:
            return
        try:
            step, given = job.send, (yield waits_for)
        except BaseException as error:  # noqa: BLE001 - that a wait was cancelled is told to the job
            step, given = job.throw, error


plain_types: set[type] = set()


def awaitable(value: Any) -> bool:
    """Whether a value can be awaited; remembered by type, since asking a pydantic model what it
    lacks is slow.
    """
    kind = type(value)
    if kind in plain_types:
        return False
    if inspect.isawaitable(value):
        return True
    if len(plain_types) > 256:
        plain_types.clear()
    plain_types.add(kind)
    return False


def lane_named(
    name: LaneName, max_workers: int, flush_after: float = FLUSH_SECONDS, *, eager: bool = True
) -> WorkerLane:
    """The lane for coroutines ("loop"), or for plain functions ("threads")."""
    kind = LoopLane if name == "loop" else ThreadLane
    return kind(max_workers, flush_after, eager=eager)


RELAXED_GC = (200_000, 50, 100)
_gc_lock = threading.Lock()
_gc_before = gc.get_threshold()
_relaxed = 0


@contextmanager
def relaxed_gc() -> Iterator[None]:
    """Fewer cycle collections while at least one run goes on.

    Python looks for cycles every 700 allocations, again and again through everything that lives; a
    run's records hold no cycles, and on a rule reward that search cost more than the judging
    (20,000 against 47,000 samples/s). A collector that the host has set otherwise stays so.
    """
    global _relaxed, _gc_before
    with _gc_lock:
        _relaxed += 1
        if _relaxed == 1:
            _gc_before = gc.get_threshold()
            if 0 < _gc_before[0] < RELAXED_GC[0]:
                gc.set_threshold(*RELAXED_GC)
    try:
        yield
    finally:
        with _gc_lock:
            _relaxed -= 1
            if _relaxed == 0 and gc.get_threshold() == RELAXED_GC:
                if gc.get_count()[0] > 10_000 and not gc.get_freeze_count():
                    # to the old objects unsearched: the search would be a quarter of a rule's time
                    gc.freeze()
                    gc.unfreeze()
                gc.set_threshold(*_gc_before)
