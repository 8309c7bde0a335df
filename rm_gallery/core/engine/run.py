"""A run: units are planned, their jobs executed with bounded concurrency, the outcomes merged, and
nothing is lost.

Rewards, graders, servers and trainers all come through here; what a job is only they know.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl, current_deadline, note_stop, stop_mark
from rm_gallery.core.engine.engine import Doubtful, Lane, LoopLane, ThreadLane, Unit, Work
from rm_gallery.core.engine.garbage import relaxed_gc
from rm_gallery.core.engine.options import Progress, RunOptions
from rm_gallery.core.engine.ray import RayLane, RayPlan
from rm_gallery.core.score import Score

if TYPE_CHECKING:
    from typing_extensions import Unpack

R = TypeVar("R")
T = TypeVar("T")
LaneName = Literal["loop", "threads"]
Planned = tuple[Any, list[Any] | None]
"""What belongs to a unit, and its jobs; None where its result is there already."""
CANCEL_GRACE_SECONDS = 5.0
INTERRUPTED = "interrupted"
LIST_WINDOW = 2048
"""Units of a list that are fed and not yet handed back, at least: enough to keep every worker busy
in flat memory.
"""
STREAM_WINDOW = 4
"""Units of a stream that are begun and not yet handed back, per worker."""
CHEAP_WINDOW = 256


class Unbegun(NamedTuple):
    """Stands in a plan for a unit that the run did not get to before it stopped."""

    result: Any
    """Handed out as it is: neither a lane nor `merge` sees it."""


class Mailbox:
    """Where a lane leaves results for whoever waits for them: a thread, or a coroutine of any event
    loop.
    """

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._results: list[tuple[int, Any]] = []
        self._error: BaseException | None = None
        self._over = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, results: list[tuple[int, Any]]) -> None:
        """Leave results and wake the waiter."""
        with self._ready:
            self._results.extend(results)
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Leave a run-level error, raised to the waiter once."""
        with self._ready:
            self._error = self._error or error
            self._wake()

    def source_over(self) -> None:
        """Wake the waiter, since nothing more is fed."""
        with self._ready:
            self._over = True
            self._wake()

    def _wake(self) -> None:
        self._ready.notify()
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            library_loop.wake(waiter)

    def take(self, timeout: float | None) -> list[tuple[int, Any]]:
        """What has come; waits for the first result, an error, the end of the source, or the
        timeout.
        """
        with self._ready:
            if not self._results and self._error is None and not self._over:
                self._ready.wait(timeout)
            return self._taken()

    async def atake(self, timeout: float | None) -> list[tuple[int, Any]]:
        """`take` for a coroutine."""
        with self._ready:
            if self._results or self._error is not None or self._over:
                return self._taken()
            waiter = self._waiter = asyncio.get_running_loop().create_future()
        await asyncio.wait([waiter], timeout=timeout)
        with self._ready:
            return self._taken()

    def _taken(self) -> list[tuple[int, Any]]:
        self._over = False
        if self._results:
            results, self._results = self._results, []
            return results
        self.check()
        return []

    def check(self) -> None:
        """Raise the error that nobody was told yet."""
        error, self._error = self._error, None
        if error is not None:
            raise error


class How(TypedDict, total=False):
    """How a run is driven."""

    label: str
    """What progress and messages call it."""
    lane: LaneName | None
    """"loop" for a function that is not seen to be a coroutine function, "threads" for none."""
    ordered: bool
    """Whether results come in the order of the plan (the default), or as they finish."""
    streaming: bool
    """Feed as the plan goes on, a few units ahead of the consumer, from a thread of its own;
    otherwise many at a time.
    """
    flush: Callable[[], None] | None
    """Called before results are handed on, to make durable what `merge` noted down."""
    ray: RayPlan | None
    """What judges on a cluster; None for this process."""
    later: bool
    """The caller looks again at what came out, and says at the end what failed
    (`control.progress.account`).
    """


IDLE_SECONDS = 0.5
"""So long a source may give nothing while all that was drawn from it is doubtful."""


class _Run(Generic[R]):
    """One run while it goes: draws from the plan, feeds the lane, counts, and hands results on."""

    def __init__(
        self,
        plan: Iterable[Planned | Unbegun],
        execute: Callable[[Any], Any],
        merge: Callable[[Any, list[Any], list[Score[Any]]], R],
        options: RunOptions,
        how: How,
    ) -> None:
        self.options = options
        self.control = control = options.control or RunControl()
        begin(control, options)
        self._mailbox = Mailbox()
        self._counting = threading.Lock()
        self._merge_unit = merge
        self._outer_mark = stop_mark.get()
        deadlines = options.deadline, current_deadline.get()
        self.work = Work(
            execute,
            self._merge,
            control,
            self._take_in,
            self._mailbox.fail,
            *deadlines,
            how.get("flush"),
        )
        self.work.holds = control.fail_fast is not None
        self._doubtful: list[tuple[int, Doubtful]] = []
        self._came, self._idle_since = 0, math.inf
        self._merging = threading.RLock()
        loops = (
            how.get("lane") or ("loop" if inspect.iscoroutinefunction(execute) else "threads")
        ) == "loop"
        most = options.max_workers
        self._lane: Lane
        if (plan_on_ray := how.get("ray")) is not None:
            self._lane = RayLane(self.work, most, plan_on_ray)
        else:
            self._lane = LoopLane(most) if loops else ThreadLane(most)
        self.progress = control.progress = Progress(
            control, options.total, options.progress, how.get("label", "run")
        )
        self._later = how.get("later", False)
        self._units = self._number_units(plan)
        self._ordered, self._streaming = how.get("ordered", True), how.get("streaming", False)
        self._fed = self._yielded = 0
        self._exhausted, self._stop_feeding = False, threading.Event()
        self._reading = self._blocking = False
        self._source_error: BaseException | None = None
        self._room = threading.Condition()
        self._held: dict[int, R] = {}
        self._next = 0

    def _number_units(self, plan: Iterable[Planned | Unbegun]) -> Iterator[Unit | tuple[int, R]]:
        for index, planned in enumerate(plan):
            if isinstance(planned, Unbegun):
                with self._counting:
                    self.progress.stopped += 1
                note_stop(self._outer_mark)
                yield index, planned.result
                continue
            data, jobs = planned
            if jobs is None:
                self.progress.reused += 1
            yield Unit(self.work, index, data, [] if jobs is None else jobs)

    def _merge(self, data: Any, jobs: list[Any], outcomes: list[Score[Any]]) -> R:
        with self._merging:
            result = self._merge_unit(data, jobs, outcomes)
        with self._counting:
            self.progress.count(outcomes)
        return result

    def _take_in(self, results: list[tuple[int, Any]]) -> None:
        with self._counting:
            self._came += len(results)
            doubtful = [pair for pair in results if type(pair[1]) is Doubtful]
            self._doubtful += doubtful
        if self._doubtful:
            results = [
                pair for pair in results if type(pair[1]) is not Doubtful
            ] + self._settled_doubts()
        with self._counting:
            self.progress.done += len(results)
        self._mailbox.put(results)

    def _settled_doubts(self, idle: bool = False) -> list[tuple[int, Any]]:
        """What is settled of the doubtful: with the run's stop, with a call that succeeds, or since
        nothing else is under way.
        """
        fail_fast, settled, left = self.control.fail_fast, [], []
        with self._counting:
            for index, doubt in self._doubtful:
                known = (
                    [(error, fail_fast.lost(error)) for error in doubt.unit.lost]
                    if fail_fast is not None
                    else []
                )
                error = next((error for error, lost in known if lost), None)
                if error is not None or idle or all(lost is False for _, lost in known):
                    settled.append((index, doubt, error))
                else:
                    left.append((index, doubt))
            self._doubtful = left
        try:
            results = [(index, doubt.settled(error)) for index, doubt, error in settled]
            if results and self.work.flush is not None:
                self.work.flush()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who raises it
            self.work.end(error)
            return []
        return results

    # -- feeding -----------------------------------------------------------------------------------

    def _window(self) -> int:
        workers = self.options.max_workers
        if self.options.batch:  # so many fit into one, and more would only wait in memory
            return workers
        if not self._streaming:
            return max(LIST_WINDOW, 4 * workers)
        return len(self._doubtful) + max(
            CHEAP_WINDOW if self.work.cost.cheap else 1, STREAM_WINDOW * workers
        )

    def _feed_from_source(self) -> None:
        """Draw from a source that may wait for what its consumer does with earlier results.

        Once the run is over, a consumer that blocks draws what is left itself: to wake a thread for
        each result that was not begun costs more than the result.
        """
        try:
            while not (self._blocking and self.control.over):
                with self._room:
                    while (
                        not self._stop_feeding.is_set()
                        and self._fed - self._yielded >= self._window()
                    ):
                        self._room.wait(0.5)
                    if self._stop_feeding.is_set():
                        return
                unit = next(self._units, None)
                if unit is None or self._stop_feeding.is_set():
                    return
                self._feed([unit])
            self._reading = False
        except BaseException as error:  # noqa: BLE001 - raised to the consumer, after what was begun
            self._source_error = error
        finally:
            self._exhausted = self._reading
            self._mailbox.source_over()

    def _pump(self) -> None:
        """Draw and feed what there is room for; a source that raises is over, and its error kept
        for the end.
        """
        if self._reading or self._exhausted:
            return
        if self._streaming:
            if self._fed == self._yielded:
                self._draw(1)
            return
        if not self._fed:  # the first calls are out while the others are planned
            self._draw(self.options.max_workers)
        room = self._window() - (self._fed - self._yielded)
        if room > 0 and not self._exhausted:
            self._draw(room)

    def _draw(self, room: int) -> None:
        batch: list[Unit | tuple[int, R]] = []
        try:
            batch.extend(islice(self._units, room))
            self._exhausted = len(batch) < room
        except Exception as error:  # noqa: BLE001 - raised to the consumer, after what was begun
            self._source_error, self._exhausted = error, True
        if batch:
            self._feed(batch)

    def _feed(self, drawn: list[Unit | tuple[int, R]]) -> None:
        """Hand units to the lane; the results of those that were not begun go past it."""
        self._fed += len(drawn)
        unbegun = [each for each in drawn if not isinstance(each, Unit)]
        if len(unbegun) < len(drawn):
            self._lane.feed([each for each in drawn if isinstance(each, Unit)])
        if unbegun:
            self._take_in(unbegun)

    # -- handing on --------------------------------------------------------------------------------

    def _finished(self) -> bool:
        if not (self._exhausted and self._fed == self._yielded):
            return False
        self._mailbox.check()  # the last results may have come before the error was told
        if self._source_error is not None:
            raise self._source_error
        return True

    def _ready(self, done: list[tuple[int, R]]) -> Iterator[tuple[int, R]]:
        """Of what is done, what may be handed on."""
        if not self._ordered:
            for pair in done:
                self._count_one()
                yield pair
            return
        self._held.update(done)
        while self._next in self._held:
            self._count_one()
            self._next += 1
            yield self._next - 1, self._held.pop(self._next - 1)

    def _count_one(self) -> None:
        self._yielded += 1
        if self._streaming and (self._fed - self._yielded) * 2 <= self._window():
            with self._room:
                self._room.notify()

    def _tick(self) -> float | None:
        """Refresh what is shown; how long to wait for results until the next time."""
        if self._doubtful:
            self._settle_idle()
        if not self.progress.shown:
            return 0.1 if self._doubtful else None
        self.progress.tick()
        return 0.1

    def _settle_idle(self) -> None:
        """Let the doubtful go when nothing else comes: the source may wait for them."""
        now = time.monotonic()
        if self._came < self._fed:
            self._idle_since = math.inf
            return
        self._idle_since = min(self._idle_since, now)
        if self._exhausted or now - self._idle_since >= IDLE_SECONDS:
            results = self._settled_doubts(idle=True)
            with self._counting:
                self.progress.done += len(results)
            self._mailbox.put(results)

    def results(self) -> Generator[tuple[int, R], None, None]:
        """(index, result) as they finish, or in order."""
        self._blocking = True
        with self._going_on():
            while True:
                self._pump()
                if self._finished():
                    return
                yield from self._ready(self._mailbox.take(self._tick()))

    def all(self) -> list[R]:
        """All results in order, without handing on each of them."""
        results: dict[int, R] = {}
        with self._going_on(kept=self.options.total or 0):
            while True:
                self._pump()
                if self._finished():
                    return [results[index] for index in range(len(results))]
                done = self._mailbox.take(self._tick())
                self._yielded += len(done)
                results.update(done)

    async def aresults(self) -> AsyncIterator[tuple[int, R]]:
        """`results` for a coroutine of any event loop."""
        with self._going_on(grace=0.0):
            while True:
                self._pump()
                if self._finished():
                    return
                for pair in self._ready(await self._mailbox.atake(self._tick())):
                    yield pair

    @contextmanager
    def _going_on(self, grace: float | None = None, kept: int = 0) -> Iterator[None]:
        """Ctrl-C: the first one waits up to five seconds for calls in flight, a second one leaves
        at once.
        """
        if self._streaming:
            self._reading = True
            context = contextvars.copy_context()
            library_loop.start_thread(lambda: context.run(self._feed_from_source))
        try:
            with relaxed_gc(kept):
                yield
        except KeyboardInterrupt:
            self._cut_off(INTERRUPTED, CANCEL_GRACE_SECONDS if grace is None else grace)
            raise
        except BaseException:  # a closed generator or a run-level error: leave nothing running
            # Ctrl-C hit whoever draws the results
            if grace is None and self.control.stopped == INTERRUPTED:
                grace = CANCEL_GRACE_SECONDS
            self._cut_off(None, grace)
            raise
        else:
            if not self._later:
                self.progress.account()
        finally:
            library_loop.no_longer_waiting(self.work)
            if not library_loop.is_exiting():
                # a stream that is still open when the interpreter goes: nothing else works any more
                self.progress.close()
                self.control.end()

    def _cut_off(self, reason: str | None, grace: float | None) -> None:
        self._stop_feeding.set()
        if reason is not None:
            self.control.stop(reason, halt=True)
        with self._room:
            self._room.notify_all()
        if library_loop.on_loop():
            self._lane.abandon()
        else:
            self._lane.cancel(grace or 0.0)


def begin(control: RunControl, options: RunOptions) -> None:
    """Start the counters anew and take over what the run around this one has."""
    control.begin(
        max_workers=options.max_workers,
        budget=options.budget,
        cache=options.cache,
        repeat=options.repeat,
    )
    control.probes = options.blame == "probe"
    if options.batch and options.run_dir:
        control.batch = options.batch, options.run_dir, options.submit
        if control.budget is not None:
            control.budget.at_once = True


def run(
    plan: Iterable[Planned | Unbegun],
    execute: Callable[[Any], Any],
    merge: Callable[[Any, list[Any], list[Score[Any]]], R],
    options: RunOptions,
    **how: Unpack[How],
) -> Generator[tuple[int, R], None, None]:
    """Execute the jobs of every planned unit and yield (index, merged result); blocking.

    Args:
        plan: (data, jobs) per unit, drawn lazily, see `Planned`.
        execute: job to value; coroutine functions run on the library loop, others on threads. What
            can be awaited is.
        merge: (data, jobs, outcomes) to a unit's result; an exception from it ends the run.
        options: how the run goes.

    Raises:
        ConfigError: called on the library loop's thread, which it would block; or raised by a job.
    """
    library_loop.refuse_blocking("run", "arun")
    return _Run(plan, execute, merge, options, how).results()


def run_all(
    plan: Iterable[Planned | Unbegun],
    execute: Callable[[Any], Any],
    merge: Callable[[Any, list[Any], list[Score[Any]]], R],
    options: RunOptions,
    **how: Unpack[How],
) -> list[R]:
    """`run` to its end: all results in the order of the plan."""
    library_loop.refuse_blocking("run_all", "arun")
    return _Run(plan, execute, merge, options, how).all()


def arun(
    plan: Iterable[Planned | Unbegun],
    execute: Callable[[Any], Any],
    merge: Callable[[Any, list[Any], list[Score[Any]]], R],
    options: RunOptions,
    **how: Unpack[How],
) -> AsyncIterator[tuple[int, R]]:
    """Awaitable twin of `run`, for any event loop."""
    return _Run(plan, execute, merge, options, how).aresults()
