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
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import (
    NotAsked,
    RunControl,
    RunStopped,
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
    stopped,
)
from rm_gallery.core.utils.errors import Cause, ConfigError, DeadlineExceeded

FLUSH_SECONDS = 0.004
"""Results wait this long for company: waking the waiting thread for each one costs more than
judging it.
"""
LATE_SECONDS = 0.005
"""A call that ends by itself at its deadline says more about it than we do: it gets this long to.
"""
ABANDON_SECONDS = 0.3
"""How long code that was cancelled may take to end before its sample is given up and its task left.
"""
BEAT_SECONDS = 1.0
"""How often a lane looks whether its event loop turns, and how late that may be before it says so.
"""
WATCH_SECONDS = 0.05
"""How often threads are looked at."""
STUCK_SECONDS = 0.1
"""A thread that is at its chunk for so long gets another one beside it."""
TRIAL_THREADS = 8
CHUNK_SECONDS = 0.005
MAX_CHUNK = 512
CHEAP_SECONDS = 2e-4
"""Below this a job holds the interpreter lock all the time it runs: more threads only take turns.
"""
LaneName = Literal["loop", "threads"]
Plan = Generator[list[Any], list[Score[Any]], Any]
"""Yields jobs, is sent their scores in the same order, and returns the result. One that yields
nothing has its result already.
"""


@dataclass(eq=False)
class JobCost:
    """Seconds that one job of a kind takes, as seen lately; None before the first."""

    seconds: float | None = None

    def learn(self, seconds: float) -> None:
        """Take in what a job took on average."""
        known = self.seconds
        self.seconds = seconds if known is None else 0.7 * known + 0.3 * seconds

    @property
    def cheap(self) -> bool:
        """Whether such a job is known to be over at once."""
        return self.seconds is not None and self.seconds <= CHEAP_SECONDS

    def chunk(self) -> int:
        """How many jobs to take at a time."""
        cost = self.seconds
        return 1 if cost is None else max(1, min(MAX_CHUNK, int(CHUNK_SECONDS / max(cost, 1e-7))))


@dataclass(eq=False)
class Work:
    """What is done with some units, and who waits for them."""

    execute: Callable[[Any], Any]
    """Job to a score, or to the value of one. What it returns is awaited if it can be."""
    control: RunControl
    deliver: Callable[[list[tuple[int, Any]]], None]
    """Takes (index, result) pairs."""
    fail: Callable[[BaseException], None]
    """Takes the error that ends the work; the first one counts."""
    deadline: float | None = None
    """Seconds a unit may take from the start of its first job."""
    outer: Deadline | None = None
    """Of the sample this work is done for."""
    flush: Callable[[], None] | None = None
    """Called before results are delivered, to make durable what plans noted down."""
    cost: JobCost = field(default_factory=JobCost)
    count: Callable[[list[Score[Any]]], None] | None = None
    """Hears the scores of each unit."""
    lock: AbstractContextManager[Any] = field(default_factory=threading.RLock)
    """Held while a plan goes on: one at a time."""
    holds: bool = False
    """Whether `deliver` takes a `Doubtful` in the place of a result."""
    ended: bool = False
    """Whether no further job is begun."""

    def hand_over(self, results: list[tuple[int, Any]]) -> None:
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

    __slots__ = (
        "_plan",
        "context",
        "deadline",
        "index",
        "is_over",
        "jobs",
        "lost",
        "outcomes",
        "remaining",
        "result",
        "work",
    )

    def __init__(
        self, work: Work, index: int, plan: Plan, context: contextvars.Context | None = None
    ) -> None:
        """Begin the plan, on the caller's thread."""
        self.work = work
        self.index = index
        self.context = context
        """Where its jobs run, if not in the context the lane was made in."""
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
        self.remaining = len(self.jobs)
        self.outcomes: list[Score[Any]] = [NOT_RUN] * self.remaining

    def begin(self) -> Deadline | None:
        """The unit's deadline, counted from the first job that asks."""
        if self.deadline is None:
            seconds, outer = self.work.deadline, self.work.outer
            self.deadline = outer if seconds is None else Deadline(seconds, outer)
        return self.deadline

    def not_begun(self, outer: StopMark | None) -> Score[Any] | None:
        """Score of a job that is not begun, since its run has stopped or the time of its sample is
        over; None where it goes on.
        """
        control = self.work.control
        why = control.stopped if control.parent is None else control.why_stopped
        if why is not None:
            note_stop(outer)
            return stopped(why, control.who_stopped)
        return self.work.late(self.deadline) if self.is_late else None

    @property
    def is_late(self) -> bool:
        """Whether the time of whoever asked for it is over: its own begins with its first job, which
        others may hold up.
        """
        return self.work.deadline is None and self.deadline is not None and self.deadline.left <= 0

    def settled_below(self, mark: StopMark, outcome: Score[Any]) -> Score[Any]:
        """What a job gave, or where a call of it was stopped with the run that it was stopped,
        whatever its code made of that. The unit hears of calls that were lost.
        """
        if mark.lost or mark.made_up:
            self.lost += mark.taken(outcome.ok)
        if not mark.noted or outcome.code in NOT_BEGUN:
            return outcome
        control = self.work.control
        if (why := control.why_stopped) is not None:
            return stopped(why, control.who_stopped)
        asked = failed(NotAsked.reason, "A model would have to be asked.", NotAsked.cause)
        return asked if control.offline else outcome

    def call(self, i: int) -> Score[Any]:
        """Do a job here and now, on a thread that may block."""
        work = self.work
        try:
            if self.context is not None:
                return self.context.copy().run(self._in_context, i)
            value = work.execute(self.jobs[i])
            if type(value) not in plain_types and awaitable(value):
                value = _wait_for(value, self.deadline)
            return _score_of(value)
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is recorded
            return work.score_of(error)

    def _in_context(self, i: int) -> Score[Any]:
        current_run.set(self.work.control)
        current_deadline.set(self.deadline)
        mark, ok = StopMark(stop_mark.get()), False
        stop_mark.set(mark)
        try:
            value = self.work.execute(self.jobs[i])
            score = _score_of(_wait_for(value, self.deadline) if awaitable(value) else value)
            ok = score.ok
        finally:
            mark.taken(ok)
        return score

    def go_on(self) -> Any:
        """Let the plan go on with the scores of its jobs. Its result, or what makes that doubtful;
        where jobs are `remaining` it has none yet.
        """
        if self.lost and self.work.holds:
            return Doubtful(self)
        return self.settle(self.outcomes)

    def settle(self, scores: list[Score[Any]]) -> Any:
        """Let the plan go on with these scores; its result, where no jobs are `remaining`."""
        with self.work.lock:
            while not self.is_over:
                if self.work.count is not None:
                    self.work.count(scores)
                self._take(scores)
                if self.jobs:
                    break
                scores = []
        return self.result


class Doubtful(NamedTuple):
    """A unit that has a number though calls of its jobs got no answer:
    `except Exception: return 0.5`. Where the run stops because of them, they are what came of it.
    """

    unit: Unit

    def settled(self, error: BaseException | None) -> Any:
        """The result, or the one of a unit that failed with an error; the unit may have more to do."""
        unit = self.unit
        unit.lost = []
        outcomes = unit.outcomes if error is None else [score_of_error(error)] * len(unit.jobs)
        return unit.settle(outcomes)


class Mailbox:
    """Where a lane leaves results for whoever waits for them: a thread, or a coroutine of any event
    loop.
    """

    def __init__(self) -> None:
        self._ready = threading.Condition(threading.Lock())
        self._results: list[tuple[int, Any]] = []
        self._error: BaseException | None = None
        self._news = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, results: list[tuple[int, Any]], error: BaseException | None = None) -> None:
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

    async def take(self, timeout: float | None) -> list[tuple[int, Any]]:
        """What has come; waits for the first news, or the timeout."""
        with self._ready:
            if not self._news and library_loop.is_driven():
                library_loop.refuse_blocking("A blocking stream", "async_evaluate_stream")
                self._ready.wait(timeout)
                return self._taken()
            if self._news:
                return self._taken()
            waiter = self._waiter = asyncio.get_running_loop().create_future()
        await (waiter if timeout is None else asyncio.wait([waiter], timeout=timeout))
        with self._ready:
            return self._taken()

    def _taken(self) -> list[tuple[int, Any]]:
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
    """A coroutine or a thread that takes one job after another, and the job it is at."""

    unit: Unit = field(init=False)
    at: int = 0
    deadline: Deadline | None = None
    """Of the job it is at; None while it is at none, or at one without a deadline."""
    abandoned: bool = False
    # a coroutine's
    task: asyncio.Task[None] = field(init=False)
    expired: bool = False
    cut_at: float = 0.0
    """When it was cancelled."""
    # a thread's
    chunk: list[tuple[Unit, int]] = field(default_factory=list)
    done: list[tuple[Unit, int, Score[Any]]] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    """Holds one thing while a job runs; whoever takes it, the thread or the clock, says what became
    of the job.
    """
    started: float = 0.0


class Lane:
    """What lanes share: they are fed units and deliver what is made of them. A subclass has workers.

    One lane may serve the units of many works.
    """

    _before: library_loop.Spent
    """What the clocks said when the next look was arranged."""

    def __init__(self, max_workers: int, flush_after: float = FLUSH_SECONDS) -> None:
        self._max_workers, self._flush_after = max_workers, flush_after
        self._loop = library_loop.get_loop()
        self._outer = stop_mark.get()
        self._lock: AbstractContextManager[Any] = nullcontext()
        """Held where jobs are taken, put back and counted, if that is done on several threads."""
        self._pending: deque[tuple[Unit, int]] = deque()
        self._workers: set[Worker] = set()
        self._finished: list[tuple[Work, tuple[int, Any]]] = []
        self._open_units = 0
        self._flush_due = self._looking = False
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    @property
    def is_alive(self) -> bool:
        """Whether the event loop it lives on still runs."""
        return library_loop.is_current(self._loop)

    def feed(self, units: list[Unit]) -> None:
        """Queue units, all of one work; returns at once."""
        if not units:
            return
        library_loop.wake_at_end(units[0].work, units[0].work.fail)
        if library_loop.on_loop():
            self._add_units(units)
        elif library_loop.is_current(self._loop):
            context = contextvars.copy_context()
            library_loop.post(self._loop, lambda: context.run(self._add_units, units))
        else:
            loop_closed(units[0].work)

    def cancel(self, grace: float) -> None:
        """Drop waiting jobs and leave or cut those in flight after `grace` seconds."""
        if not library_loop.is_current(self._loop):
            return
        future = library_loop.submit(self._drain(grace))
        if library_loop.on_loop():  # a forgotten stream may be collected on any thread
            return
        try:
            future.result(grace + ABANDON_SECONDS + 1.0)
        except (TimeoutError, concurrent.futures.TimeoutError):  # two classes before Python 3.11
            future.cancel()

    def abandon(self) -> None:
        """Drop waiting jobs and leave those in flight, without waiting for it; from any thread."""
        if library_loop.is_current(self._loop):
            library_loop.submit(self._drain(0.0))

    def look(self) -> None:
        """Look at the clock now: the time of a job was ended. From any thread."""
        if not self._looking and library_loop.is_current(self._loop):
            self._looking = True
            library_loop.post(self._loop, self._look_now)

    def _start_workers(self) -> None:
        """Have as many workers as there is work for."""
        raise NotImplementedError

    def _check(self, worker: Worker) -> float:
        """Deal with a worker whose time is over; in how many seconds to look again."""
        raise NotImplementedError

    async def _drain(self, grace: float) -> None:
        raise NotImplementedError

    def _add_units(self, units: list[Unit]) -> None:
        if not library_loop.is_current(self._loop):
            loop_closed(units[0].work)
            return
        self._open_units += len(units)
        for unit in units:
            if unit.jobs:
                self._pending.extend([(unit, i) for i in range(len(unit.jobs))])
            else:
                self._complete(unit)
        if self._pending:
            self._start_workers()

    def _record(self, done: list[tuple[Unit, int, Score[Any]]]) -> None:
        for unit, i, outcome in done:
            unit.outcomes[i] = outcome
            unit.remaining -= 1
            if unit.remaining == 0:
                self._complete(unit)

    def _complete(self, unit: Unit) -> None:
        try:
            result = unit.go_on()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            self._end(unit.work, error)
        else:
            if unit.remaining:  # a sample is finished before the next one begins
                with self._lock:
                    jobs = range(len(unit.jobs))
                    self._pending.extendleft((unit, i) for i in reversed(jobs))
                    self._start_workers()
                return
            self._finished.append((unit.work, (unit.index, result)))
        self._open_units -= 1
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._open_units == 0:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_later(self._flush_after, self._flush)

    def _end(self, work: Work, error: BaseException) -> None:
        work.end(error)

    def _flush(self) -> None:
        self._flush_due = False
        finished, self._finished = self._finished, []
        for work, group in groupby(finished, key=itemgetter(0)):
            work.hand_over([result for _, result in group])

    # -- the clock ---------------------------------------------------------------------------------

    def _look_now(self) -> None:
        self._looking = False
        if self._timer is not None:
            self._timer.cancel()
            self._look()

    def _look(self) -> None:
        """Look who is late, and look again when the next one can be."""
        self._timer = None
        if self._loop.time() - self._due > BEAT_SECONDS:
            now = library_loop.spent(self._loop.time())
            if (delay := library_loop.own_delay(self._before, self._due, now)) > BEAT_SECONDS:
                library_loop.stood_still(delay)
        nearest = min(map(self._check, list(self._workers)), default=math.inf)
        if nearest < math.inf:
            self._look_in(max(nearest, 0.001))

    def _look_in(self, seconds: float) -> None:
        if self._timer is None:
            self._before = library_loop.spent(self._loop.time())
            self._due = self._before.now + min(seconds, BEAT_SECONDS)
            self._timer = self._loop.call_at(self._due, self._look)


def loop_closed(work: Work) -> None:
    """The loop closed under the run: tell whoever waits, unless the whole interpreter goes."""
    if not library_loop.is_exiting():
        work.end(RunStopped("The run was cut off: the library's event loop was shut down."))


class LoopLane(Lane):
    """Runs jobs as coroutines on the library loop; at most `max_workers` are in flight.

    A job past its deadline is cancelled; one that will not be cancelled is given up, and its task
    left behind.
    """

    _cut = False

    async def _drain(self, grace: float) -> None:
        self._pending.clear()
        tasks = [worker.task for worker in self._workers]
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        self._cut = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ABANDON_SECONDS)
        self._flush()

    def _start_workers(self) -> None:
        for _ in range(min(self._max_workers - len(self._workers), len(self._pending))):
            worker = Worker()
            self._workers.add(worker)
            worker.task = self._loop.create_task(self._work_off(worker))

    async def _work_off(self, worker: Worker) -> None:
        mark = StopMark(self._outer)
        stop_mark.set(mark)
        work: Work | None = None
        try:
            while self._pending:
                unit, i = self._pending.popleft()
                if work is not unit.work:
                    work = unit.work
                    current_run.set(work.control)
                if work.ended:
                    continue
                if (outcome := unit.not_begun(self._outer)) is None:
                    mark.noted = mark.declared = False
                    worker.unit, worker.at = unit, i
                    work.control.in_flight += 1
                    try:
                        outcome = await self._run_one(worker, unit, unit.jobs[i])
                    finally:
                        if not worker.abandoned:
                            work.control.in_flight -= 1
                    if worker.abandoned:
                        return
                    outcome = unit.settled_below(mark, outcome)
                self._record([(unit, i, outcome)])
        except asyncio.CancelledError:
            if work is not None and not library_loop.is_current(self._loop):
                loop_closed(work)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            if work is not None:
                work.end(error)
        finally:
            # here and not in a callback: units that are added meanwhile must not count on a worker
            # that has ended
            self._workers.discard(worker)

    async def _run_one(self, worker: Worker, unit: Unit, job: Any) -> Score[Any]:
        worker.deadline = deadline = unit.begin()
        current_deadline.set(deadline)
        if deadline is not None and self._timer is None:
            self._look_in(max(0.0, deadline.left) + LATE_SECONDS)
        try:
            value = unit.work.execute(job)
            if awaitable(value):
                value = await value
            if not (worker.expired or unit.is_late):
                return _score_of(value)
        except asyncio.CancelledError:
            if self._cut or not library_loop.is_current(self._loop):
                raise
            if not worker.expired:
                return failed("error", "CancelledError raised by the reward.", "rule")
        except GeneratorExit:  # the loop is gone
            raise
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is recorded
            if not worker.expired or isinstance(error, DeadlineExceeded):
                return unit.work.score_of(error)
        finally:
            worker.deadline = None
            if worker.expired and sys.version_info >= (3, 11):
                worker.task.uncancel()
            worker.expired = worker.expired and worker.abandoned
        return unit.work.late(deadline)

    def _check(self, worker: Worker) -> float:
        if worker.deadline is None:
            return math.inf
        left = worker.deadline.left + LATE_SECONDS
        if left > 0:
            return left
        if not worker.expired:
            worker.expired, worker.cut_at = True, self._loop.time()
            worker.task.cancel()
            return ABANDON_SECONDS
        if (grace := ABANDON_SECONDS + max(left, worker.cut_at - self._loop.time())) > 0:
            return grace
        worker.abandoned = True
        self._workers.discard(worker)
        unit = worker.unit
        unit.work.control.in_flight -= 1
        late = unit.work.late(worker.deadline, "; its task ignored that and was left")
        self._record([(unit, worker.at, late)])
        self._start_workers()
        return math.inf


class ThreadLane(Lane):
    """Runs jobs as plain function calls on at most `max_workers` daemon threads, in chunks sized by
    what a job costs.

    A thread cannot be killed: a job past its deadline becomes failed(deadline), its thread is
    abandoned, and what that thread had not yet begun is run by another. Nothing here waits for the
    event loop: a coroutine that blocks it holds up no plain function.
    """

    def __init__(
        self, max_workers: int, flush_after: float = FLUSH_SECONDS, *, eager: bool = True
    ) -> None:
        super().__init__(max_workers, flush_after)
        self._eager = eager
        """Whether jobs of unknown cost get all threads at once."""
        self._lock = threading.RLock()
        self._merging = threading.RLock()
        self._watched = False
        self._context = contextvars.copy_context()

    def feed(self, units: list[Unit]) -> None:
        """Queue units, all of one work; returns at once."""
        with self._merging:
            for unit in units:
                if not unit.jobs:
                    self._complete(unit)
            self._flush()
        with self._lock:
            self._pending.extend((unit, i) for unit in units for i in range(len(unit.jobs)))
            self._start_workers()

    def cancel(self, grace: float) -> None:
        """Drop waiting jobs and leave those in flight after `grace` seconds."""
        with self._lock:
            self._pending.clear()
        end = time.monotonic() + grace
        while self._workers and time.monotonic() < end:
            time.sleep(0.01)
        with self._lock:
            for worker in self._workers:
                worker.abandoned = True
            self._workers.clear()

    def abandon(self) -> None:
        """Drop waiting jobs and leave those in flight, without waiting for it; from any thread."""
        self.cancel(0.0)

    def look(self) -> None:
        """Nothing: threads are looked at all the time."""

    def _flush_soon(self) -> None:
        """Nothing: a chunk is flushed as a whole."""

    def _start_workers(self) -> None:
        if not self._pending:
            return
        if not self._watched:
            self._watched = True
            library_loop.start_thread(self._watch)
        work = self._pending[0][0].work
        chunks = -(-len(self._pending) // work.cost.chunk())
        for _ in range(min(self._threads_wanted(work.cost) - len(self._workers), chunks)):
            worker = Worker()
            self._workers.add(worker)
            serve = partial(self._context.copy().run, self._serve, worker)
            try:
                library_loop.start_thread(serve)
            except RuntimeError:  # there are no more; those there are do the rest
                self._workers.discard(worker)
                if not self._workers:
                    raise
                break

    def _threads_wanted(self, cost: JobCost) -> int:
        """One for cheap jobs, and one more for each thread that a job holds up; else as many as are
        allowed.
        """
        if not cost.cheap and (self._eager or cost.seconds is not None):
            return self._max_workers
        since = time.monotonic() - STUCK_SECONDS
        stuck = sum(bool(worker.chunk) and worker.started < since for worker in self._workers)
        return min(self._max_workers, (1 if cost.cheap else TRIAL_THREADS) + stuck)

    def _serve(self, worker: Worker) -> None:
        """What a thread does: chunk after chunk, as long as it is wanted."""
        mark = StopMark(stop_mark.get())
        stop_mark.set(mark)
        while self._take_chunk(worker) and self._run_chunk(worker, mark):
            done, worker.done, worker.chunk = worker.done, [], []
            self._record(done)

    def _take_chunk(self, worker: Worker) -> bool:
        with self._lock:
            pending = self._pending
            while pending and pending[0][0].work.ended:
                pending.popleft()
            cost = pending[0][0].work.cost if pending else JobCost()
            few = len(self._workers) <= self._threads_wanted(cost)
            if not pending or worker.abandoned or not few:
                self._workers.discard(worker)
                return False
            worker.at, worker.started, worker.chunk = 0, time.monotonic(), []
            for _ in range(min(cost.chunk(), len(pending))):
                if pending[0][0].work.cost is not cost:
                    break
                worker.chunk.append(pending.popleft())
            self._start_workers()
            return True

    def _run_chunk(self, worker: Worker, mark: StopMark) -> bool:
        """Run a chunk; False where the thread was given up meanwhile."""
        work: Work | None = None
        began = time.perf_counter()
        for at, (unit, i) in enumerate(worker.chunk):
            if work is not unit.work:
                work = unit.work
                current_run.set(work.control)
            outer = mark.outer if unit.context is None else unit.context.get(stop_mark)
            outcome = NOT_RUN if work.ended else unit.not_begun(outer)
            if outcome is None:
                worker.deadline = unit.begin()
                current_deadline.set(worker.deadline)
                worker.at, mark.noted, mark.declared = at, False, False
                worker.busy = busy = [i]
                outcome = unit.call(i)
                try:
                    busy.pop()
                except IndexError:  # given up
                    return False
                outcome = unit.settled_below(mark, outcome)
                if outcome.ok and unit.is_late:
                    outcome = work.late(unit.deadline)
            worker.done.append((unit, i, outcome))
        if work is not None:
            work.cost.learn((time.perf_counter() - began) / len(worker.chunk))
        return True

    def _record(self, done: list[tuple[Unit, int, Score[Any]]]) -> None:
        ended = []
        with self._lock:
            for unit, i, outcome in done:
                unit.outcomes[i] = outcome
                unit.remaining -= 1
                if unit.remaining == 0:
                    ended.append(unit)
        if ended:
            with self._merging:
                for unit in ended:
                    self._complete(unit)
                self._flush()

    def _watch(self) -> None:
        """Look after the threads, on one of its own, until there are none."""
        while True:
            time.sleep(WATCH_SECONDS)
            with self._lock:
                workers = list(self._workers)
                if not (workers or self._pending):
                    self._watched = False
                    return
            for worker in workers:
                self._check(worker)
            with self._lock, suppress(RuntimeError):  # no thread to be had now
                self._start_workers()

    def _check(self, worker: Worker) -> float:
        busy, chunk, at, deadline = worker.busy, worker.chunk, worker.at, worker.deadline
        if not busy or at >= len(chunk) or deadline is None or deadline.left > 0:
            return WATCH_SECONDS
        unit, i = chunk[at]
        try:
            busy.pop()
        except IndexError:  # it ended just now
            return WATCH_SECONDS
        worker.abandoned = True
        with self._lock:
            self._workers.discard(worker)
            self._pending.extendleft(reversed(chunk[at + 1 :]))
            # the time of those that it held up begins anew
            for behind, _ in chunk[at + 1 :]:
                if behind is not unit and behind.work.deadline is not None:
                    behind.deadline = None
        done, worker.done = worker.done, []
        self._record([*done, (unit, i, unit.work.late(deadline, "; its thread was left"))])
        return math.inf


def _score_of(value: Any) -> Score[Any]:
    """What a job gave: a score, or the value of one."""
    return value if isinstance(value, Score) else Score(value)


def _wait_for(value: Any, deadline: Deadline | None) -> Any:
    """The result of something awaitable that a plain function returned; it runs on the library loop
    as any coroutine.
    """

    async def wait() -> Any:
        return await value

    future = library_loop.submit(wait())
    while True:
        try:
            return future.result(
                None if deadline is None else max(0.0, deadline.left) + LATE_SECONDS
            )
        except concurrent.futures.TimeoutError:
            if future.done():  # its own
                raise
            if deadline is not None and deadline.left > 0:  # its clock stood still meanwhile
                continue
            future.cancel()
            raise DeadlineExceeded("No result within the deadline.") from None


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
) -> Lane:
    """The lane for coroutines ("loop"), or for plain functions ("threads")."""
    if name == "loop":
        return LoopLane(max_workers, flush_after)
    return ThreadLane(max_workers, flush_after, eager=eager)


RELAXED_GC = (200_000, 50, 100)
RESULT_OBJECTS = 17
"""A sample of one answer, scored by one plain rule, holds no more objects that the collector
counts.
"""
MOST_HELD = 100_000
"""For so many results, at most, the search is put off."""
_gc_lock = threading.Lock()
_gc_before = _gc_now = gc.get_threshold()
_relaxed = 0


@contextmanager
def relaxed_gc(results: int = 0) -> Iterator[None]:
    """Fewer cycle collections while at least one run goes on, which keeps this many results.

    Python looks for cycles every 700 allocations, again and again through everything that lives; a
    run's records hold no cycles, and on a rule reward that search cost more than the judging
    (20,000 against 47,000 samples/s). A collector that the host has set otherwise stays so.
    """
    global _relaxed, _gc_before, _gc_now
    with _gc_lock:
        _relaxed += 1
        if _relaxed == 1:
            _gc_before = _gc_now = gc.get_threshold()
            if 0 < _gc_before[0] < RELAXED_GC[0]:
                more = RESULT_OBJECTS * min(results, MOST_HELD)
                _gc_now = RELAXED_GC[0] + more, *RELAXED_GC[1:]
                gc.set_threshold(*_gc_now)
    try:
        yield
    finally:
        with _gc_lock:
            _relaxed -= 1
            if _relaxed == 0 and gc.get_threshold() == _gc_now != _gc_before:
                # hardly anything is new besides the results: they count as old ones unsearched
                # (a quarter of a rule's time), unless a reward has left cycles, too
                most = RESULT_OBJECTS * results + 1000
                if 10_000 < most // 2 < gc.get_count()[0] <= most and not gc.get_freeze_count():
                    gc.freeze()
                    gc.unfreeze()
                gc.set_threshold(*_gc_before)
