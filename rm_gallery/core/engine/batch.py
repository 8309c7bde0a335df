"""A run, and a batch with the folder that keeps what comes of it.

Plans are drawn, their jobs executed with bounded concurrency, their results kept, and nothing is
lost. Rewards, graders and trainers all come through here; what a job is only they know.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sized
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import itemgetter, length_hint
from typing import Any, Generic, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import (
    RunControl,
    StopMark,
    current_deadline,
    current_run,
    note_stop,
    snapshot,
    stop_mark,
)
from rm_gallery.core.engine.engine import (
    Lane,
    LaneName,
    Mailbox,
    Plan,
    Results,
    Unit,
    Work,
    lane_named,
    relaxed_gc,
)
from rm_gallery.core.engine.folder import Again, RunFolder
from rm_gallery.core.engine.options import BATCH_PROVIDERS, RunOptions, detached_options
from rm_gallery.core.engine.progress import Progress
from rm_gallery.core.engine.ray import RayLane, RayPlan
from rm_gallery.core.score import Score, is_run_level
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.spans import RunSpan

R = TypeVar("R")
Going = AsyncGenerator[tuple[int, R], None]
"""(index, result) as they come."""
Makes = Callable[[Any, int], R]
"""Makes a result from an item and its number."""
AtOnce = Makes[tuple[R, Score[Any] | None]]
"""Makes a result, and the score it lacks."""
CANCEL_GRACE_SECONDS = 5.0
LIST_WINDOW = 2048
"""Units of a list that are fed and not yet handed back, at least: enough to keep every worker busy
in flat memory.
"""
STREAM_WINDOW = 4
"""Units of a stream that are begun and not yet handed back, per worker."""
CHEAP_WINDOW = 256
"""Units of a stream that are begun and not yet handed back, at least, where jobs are cheap."""
IDLE_SECONDS = 0.5
"""So long a source may give nothing while all that was drawn from it is doubtful."""
TICK_SECONDS = 0.1


def begin(options: RunOptions, label: str) -> RunControl:
    """Start the counters of a run anew and take over what the run around it has."""
    control = options.control or RunControl()
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
    control.progress = Progress(control, options.total, options.progress, label)
    return control


@contextmanager
def _until_its_end(control: RunControl) -> Iterator[None]:
    try:
        with relaxed_gc():
            yield
    finally:
        # a stream that is still open when the interpreter goes: nothing else works any more
        if not library_loop.is_exiting():
            control.progress.tick(end=True)
            control.end()


class Run(Generic[R]):
    """One run while it goes: draws from the plan, feeds the lane, counts, and hands results on.

    Args:
        plans: one for each unit, drawn lazily; an exception from one ends the run.
        execute: job to value; coroutine functions run on the library loop, others on threads. What
            can be awaited is.
        options: how the run goes.
        lane: "loop" for coroutine functions, "threads" for others.
        label: what progress and messages call it.
        ordered: whether results come in the order of the plans, or as they finish.
        streaming: feed as plans are drawn, a few units ahead of the consumer, from a thread of its
            own; otherwise many at a time.
        flush: called before results are handed on, to make durable what their calls spent.
        ray: what judges on a cluster; None for this process.
    """

    def __init__(
        self,
        plans: Iterable[Plan],
        execute: Callable[[Any], Any],
        options: RunOptions,
        *,
        lane: LaneName,
        label: str = "run",
        ordered: bool = True,
        streaming: bool = False,
        flush: Callable[[], None] | None = None,
        ray: RayPlan | None = None,
    ) -> None:
        self._control = control = begin(options, label)
        self.progress: Progress = control.progress
        self._mailbox = Mailbox()
        self._work = work = Work(
            execute,
            control,
            self._take_in,
            self._mailbox.fail,
            options.deadline,
            current_deadline.get(),
            flush,
            count=self.progress.count,
            holds_doubtful=control.fail_fast is not None,
        )
        workers = options.max_workers
        self._lane: Lane = lane_named(lane, workers) if ray is None else RayLane(work, workers, ray)
        self._options, self._ordered, self._streaming = options, ordered, streaming
        self._units = self._begin_units(plans)
        self._fed = self._came = self._yielded = 0
        self._came_at = 0.0
        self._exhausted = False
        """Whether nothing more is to be drawn."""
        self._source_error: BaseException | None = None
        self._room = threading.Condition()
        self._doubts: list[Unit] = []
        """Units that have a number though calls of their jobs got no answer."""
        self._held: dict[int, R] = {}

    def _begin_units(self, plans: Iterable[Plan]) -> Iterator[Unit]:
        for index, plan in enumerate(plans):
            unit = Unit(self._work, index, plan)
            self.progress.reused += unit.is_over
            yield unit

    def _take_in(self, results: Results, idle: bool = False) -> None:
        """Leave results for whoever waits; what is doubtful is held until that is decided."""
        decided: list[Unit] = []
        with self._work.lock:
            came, self._came_at = len(results), time.monotonic()
            if self._doubts or Unit in map(type, map(itemgetter(1), results)):
                self._doubts += [each for _, each in results if type(each) is Unit]
                results = [pair for pair in results if type(pair[1]) is not Unit]
                decided = self._doubts_decided(idle)
            self._came += came - len(decided)
            self.progress.done += len(results)
        self._mailbox.put(results)
        self._lane.feed(decided)

    def _doubts_decided(self, idle: bool) -> list[Unit]:
        """The doubtful that are decided, to go on: with the run's stop, with a call that succeeds, or
        since nothing else is under way.
        """
        decided, fail_fast, left = [], self._control.fail_fast, []
        assert fail_fast is not None
        for unit in self._doubts:
            lost = [fail_fast.stopped_because_of(error) for error in unit.lost]
            if None in lost and True not in lost and not idle:
                left.append(unit)
            else:
                unit.decide(unit.lost[lost.index(True)] if True in lost else None)
                decided.append(unit)
        self._doubts = left
        return decided

    # -- feeding -----------------------------------------------------------------------------------

    def _room_left(self) -> int:
        """How many units may be drawn now."""
        workers, open_units = self._options.max_workers, self._fed - self._yielded
        if self._options.batch:  # so many fit into one, and more would only wait in memory
            return workers - open_units
        if self._streaming:
            least = CHEAP_WINDOW if self._work.cost.cheap else 1
            return len(self._doubts) + max(least, STREAM_WINDOW * workers) - open_units
        # the first calls are out while the others are planned
        return max(LIST_WINDOW, 4 * workers) - open_units if self._fed else workers

    def _feed_from_source(self) -> None:
        """Draw from a source that may wait for what its consumer does with earlier results."""
        try:
            while not self._exhausted:
                with self._room:
                    while self._room_left() <= 0 and not self._exhausted:
                        self._room.wait(0.5)
                if not self._exhausted:
                    self._draw(1)
        except BaseException as error:  # noqa: BLE001 - raised to the consumer, after what was begun
            self._source_error, self._exhausted = error, True
        finally:
            self._mailbox.put([])

    def _draw(self, room: int) -> None:
        """Draw and feed; a source that raises is over, and its error kept for the end."""
        drawn: list[Unit] = []
        try:
            drawn.extend(islice(self._units, room))
        except Exception as error:  # noqa: BLE001 - raised to the consumer, after what was begun
            self._source_error = error
        if self._exhausted:  # whoever drew has left meanwhile
            return
        self._fed += len(drawn)
        if len(drawn) < room:
            self._exhausted = True
        try:
            self._lane.feed(drawn)
        except RuntimeError as error:  # no thread to be had: nobody waits for what was drawn
            self._work.end(error)

    # -- handing on --------------------------------------------------------------------------------

    def _draw_until_over(self) -> bool:
        """Whether all is handed on; draws what there is room for."""
        while not (self._streaming or self._exhausted) and (room := self._room_left()) > 0:
            self._draw(room)
        if not (self._exhausted and self._fed == self._yielded):
            return False
        self._mailbox.check()  # the last results may have come before the error was told
        if self._source_error is not None:
            raise self._source_error
        return True

    def _tick(self) -> float | None:
        """Refresh what is shown; how long to wait for results until the next time."""
        if self._doubts and self._came == self._fed:  # the source may wait for them
            if self._exhausted or time.monotonic() - self._came_at >= IDLE_SECONDS:
                self._take_in([], idle=True)
        self.progress.tick()
        return TICK_SECONDS if self.progress.shown or self._doubts else None

    def _ready(self, done: list[tuple[int, R]]) -> Iterator[tuple[int, R]]:
        """Of what is done, what may be handed on."""
        for pair in self._in_order(done) if self._ordered else done:
            self._yielded += 1
            if self._streaming and self._room_left() >= self._fed - self._yielded:
                with self._room:
                    self._room.notify()
            yield pair

    def _in_order(self, done: list[tuple[int, R]]) -> Iterator[tuple[int, R]]:
        self._held.update(done)
        while self._yielded in self._held:
            yield self._yielded, self._held.pop(self._yielded)

    async def results(self) -> Going[R]:
        """(index, result) as they finish, or in order; raises ConfigError that a job raised."""
        async with self._going_on(CANCEL_GRACE_SECONDS if library_loop.is_driven() else 0.0):
            while not self._draw_until_over():
                for pair in self._ready(await self._mailbox.take(self._tick())):
                    yield pair

    async def all(self) -> list[R]:
        """All results, in order; says what failed."""
        async with aclosing(self.results()) as going:
            results = [result async for _, result in going]
        self.progress.account()
        return results

    @asynccontextmanager
    async def _going_on(self, grace: float) -> AsyncIterator[None]:
        """Ctrl-C: the first one waits up to `grace` seconds for calls in flight, a second one leaves
        at once. What finishes within the grace is kept in the folder; nothing more is returned. One
        that hits in the code of whoever takes the results of a stream closes it, without a grace.
        """
        control = self._control
        with _until_its_end(control):
            if self._streaming:
                context = contextvars.copy_context()
                library_loop.start_thread(partial(context.run, self._feed_from_source))
            try:
                yield
            except BaseException as error:  # also a closed generator: leave nothing running
                if isinstance(error, KeyboardInterrupt):
                    control.interrupt()
                self._exhausted = True
                with self._room:
                    self._room.notify_all()
                await self._lane.cancel(grace if control.interrupted else 0.0)
                raise
            finally:
                library_loop.no_longer_waiting(self._work)


# -- batches ---------------------------------------------------------------------------------------


Parts = tuple[Iterator[Plan], Callable[[Any], Any], RunOptions]
"""What a run takes: the plans, what does their jobs, and how it goes."""


class Batch(Generic[R]):
    """Items on their way through the engine, and the folder that keeps what comes of them: what
    rewards and graders share.

    A subclass says what is done with the items (`_run_plan`), and where it is kept (`_open_folder`,
    `_checks_resume`).
    """

    _folder: Any = None

    def __init__(
        self, items: Iterable[Any], options: RunOptions, label: str, lane: LaneName
    ) -> None:
        known = len(items) if isinstance(items, Sized) else length_hint(items) or None
        self._control = options.control or RunControl()
        total = options.total if known is None else known
        changes: dict[str, Any] = {"control": self._control, "total": total}
        # a round is as large as the provider takes, and nobody's time runs out while it is waited
        # for
        if options.batch:
            most = max(options.max_workers, BATCH_PROVIDERS[options.batch])
            changes |= {"max_workers": most, "deadline": None}
        self._items, self.label, self.lane = items, label, lane
        self.options: RunOptions = replace(options, **changes)

    def _open_folder(self, options: RunOptions) -> RunFolder:
        """Open or continue the folder of the run."""
        raise NotImplementedError

    def _run_plan(self, items: Iterable[Any], folder: Any, options: RunOptions) -> Parts:
        """What the engine runs; each plan is of one item, drawn with it.

        Each plan takes its result from `folder` or keeps it there before it returns; the engine only
        hands it on.
        """
        raise NotImplementedError

    def _not_begun(self, outcome: Score[Any]) -> Makes[R]:
        """What makes the result of an item that the run did not get to."""
        raise NotImplementedError

    @property
    def _checks_resume(self) -> bool:
        """Whether a run that is continued looks whether its records are what comes out now."""
        raise NotImplementedError

    async def _look_once_more(self, results: list[R]) -> None:
        """Look once more at what came out, before the run is over."""

    def _made_again(self) -> dict[str, Any]:
        """The keywords an actor makes this batch with, besides the options."""
        raise NotImplementedError

    def _inline(self) -> AtOnce[R] | None:
        """What makes results at once on the caller's thread; None where items go through a lane."""
        return None

    def _ray_plan(self, options: RunOptions) -> RayPlan | None:
        """What judges on a cluster, where that is asked for."""
        # a run inside a run is a part of a sample: it stays in the actor that judges this
        if options.engine is None or current_run.get() is not None:
            return None
        batch = type(self), self._made_again()
        return RayPlan(batch, options, self._folder and self._folder.note_asked)

    @contextmanager
    def _begun(self) -> Iterator[RunOptions]:
        """Around the run: its span, and its folder while it is open; it says what failed."""
        options, control, outer = self.options, self._control, current_run.get()
        about = {"rm_gallery.reward": self.label, "rm_gallery.samples": options.total}
        span = RunSpan(f"rm_gallery.run {self.label}", about, outer and outer.span)
        control.span = span.context
        try:
            if options.run_dir:
                self._folder = folder = self._open_folder(options)
                options = folder.begin(options, control)
                if self._checks_resume:
                    folder.draw_check()
            yield options
            control.progress.account()
        except KeyboardInterrupt:  # it may have hit between two results
            control.interrupt()
            raise
        finally:
            spent = {**snapshot(control), "stopped": control.stopped}
            span.end({f"rm_gallery.{name}": value for name, value in spent.items()})
            if self._folder is not None:
                self._folder.close(control)

    def _run(self, options: RunOptions, how: dict[str, Any]) -> Run[R]:
        items, folder = iter(self._items), self._folder
        ray = self._ray_plan(options)
        own, execute, options = self._run_plan(items, folder, options)
        plans, flush = self._until_over(own, items), None
        if folder is not None:
            # records are with the system as soon as they are kept
            plans, flush = self._with_resume_check(plans), folder.ledger.flush
        return Run(
            plans, execute, options,
            label=self.label, lane=self.lane, flush=flush, ray=ray, **how,
        )  # fmt: skip

    def _outcome_of_the_rest(self) -> Makes[R]:
        outcome = self._control.not_begun
        assert outcome is not None
        return self._not_begun(outcome)

    def _until_over(self, plans: Iterator[Plan], items: Iterator[Any]) -> Iterator[Plan]:
        """The plans until the run is over; what is left of `items` is neither planned nor looked up,
        and has one outcome for all.
        """

        def not_begun(result: R) -> Plan:
            yield [None]  # a job that no lane begins: the run has stopped
            return result

        begun = 0
        while not self._control.over:
            plan = next(plans, None)
            if plan is None:
                return
            yield plan
            begun += 1
        result_of = self._outcome_of_the_rest()
        for number, item in enumerate(items, begun):
            result = result_of(item, number)
            if self._folder is not None:
                self._folder.count("stopped")
            yield not_begun(result)

    def _with_resume_check(self, plans: Iterator[Plan]) -> Iterator[Plan]:
        """The plans, and between them finished samples are judged once more; the run stops
        where they get something else.
        """
        try:
            for plan in plans:
                yield plan
                self._compare()
            self._compare(rest=True)
        except ConfigError as error:
            if is_run_level(error):  # what is in flight is finished and kept, nothing more begun
                self._control.stop("the run folder holds results of something else")
            raise

    def _compare(self, *, rest: bool = False) -> None:
        """Score items once more; ConfigError where one gets something else than its record says."""
        check = self._folder.check
        if not (taken := check.take(rest=rest)):
            return
        began = time.monotonic()
        items, records = zip(*taken, strict=True)
        # beside the run, keeping nothing, and from the replies they were judged by instead of a model
        control = RunControl(quiet=True, offline=True, replies=self._folder.replies)
        options = detached_options(
            self.options, control=control, total=None, budget=None, blame="off"
        )
        again = self._run_plan(items, Again(self._folder, records), options)
        library_loop.drive(Run(*again, label=self.label, lane=self.lane).all())
        check.learn(len(taken), time.monotonic() - began)
        self._control.progress.compared = f"{check.compared:,} of {check.of:,}"

    async def _run_inline(self, inline: AtOnce[R]) -> Going[R]:
        """(index, result) item by item, each made on the caller's thread when it is drawn; a run
        that stops begins no further one.
        """
        control, outer = begin(self.options, self.label), stop_mark.get()
        progress, mark = control.progress, StopMark(outer)
        # one of its own: between two items the consumer's code runs
        context = contextvars.copy_context()
        context.run(current_run.set, control)
        context.run(stop_mark.set, mark)
        with _until_its_end(control):
            for index, item in enumerate(self._items):
                missing = None
                if control.why_stopped is None:
                    result, missing = context.copy().run(inline, item, index)
                else:
                    note_stop(mark)
                if mark.call_stopped and control.why_stopped is not None:
                    # not begun, or a call of the rule was stopped: its number was made up
                    result = self._outcome_of_the_rest()(item, index)
                    progress.stopped += 1
                elif missing is not None:
                    progress.count((missing,))
                progress.done = index + 1
                if progress.shown:
                    progress.tick()
                yield index, result

    async def all(self) -> list[R]:
        """All results, in order."""
        with self._begun() as options:
            # in order, one slow sample would keep those that come LIST_WINDOW after it from being fed
            async with aclosing(self._results(options, {"ordered": False})) as going:
                found = {index: result async for index, result in going}
            results = [found[index] for index in range(len(found))]
            if self.options.blame == "probe":
                await self._look_once_more(results)
        return results

    async def stream(self, **how: bool) -> Going[R]:
        """(index, result) as they come; `streaming` draws items as results are taken,
        `ordered=False` takes them as they finish.
        """
        with self._begun() as options:
            async with aclosing(self._results(options, how)) as going:
                async for index, result in going:
                    if self.options.blame == "probe":
                        await self._look_once_more([result])
                    yield index, result

    def _results(self, options: RunOptions, how: dict[str, Any]) -> Going[R]:
        driven = library_loop.is_driven()
        if driven and (inline := self._inline()) is not None:
            return self._run_inline(inline)
        if not driven and self._folder is not None and self._folder.restoring:
            # comparing blocks, and so the plan is drawn from on a thread
            how = {**how, "streaming": True}
        return self._run(options, how).results()
