"""A run on a Ray cluster: this process plans, merges and keeps the run folder and the limits; actors
judge.

This process keeps the budget of the run as well: an actor asks it for each call (`ask`) or tells it
(`reserve`, `settle`, `cancel`), and it hears facts that one of them learnt for all (`fact`).

All that an actor has to say (results, what it asks of the budget, what it counts) comes by one road
in the order in which it came to be: this process takes one letter after another. So a result is
counted after what was spent on it, and a call that Ray fails says that the actor is gone. Rates are
shared out among the actors; replies are kept by each machine.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import pickle
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from loguru import logger as _loguru

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import Claims, RunControl
from rm_gallery.core.engine.engine import (
    RELAXED_GC,
    Lane,
    Plan,
    Unit,
    Work,
    lane_named,
)
from rm_gallery.core.engine.folder import AskedNotes
from rm_gallery.core.engine.options import RunOptions, detached_options
from rm_gallery.core.model.budget import Budget, Reservation, Usage
from rm_gallery.core.model.limits import FailFast
from rm_gallery.core.score import Score, failed, score_of_error
from rm_gallery.core.utils.errors import ConfigError, DataError, MissingExtra, RMGalleryError
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.models import with_keys

GATHER_SECONDS = 0.004
"""So long a message waits for others, since each letter costs a call of Ray."""
NEWS_SECONDS = 0.02
"""So long it waits where its sender goes on meanwhile."""
BEAT_SECONDS = 0.25
"""An actor that has nothing to say says so, and this process looks whether the run was stopped."""
SILENT_SECONDS = 30.0
"""An actor that says nothing for so long is gone, and its node perhaps with it."""
_STARTS = 3
"""So many actors may die before they are ready; then the run ends."""
_COUNTERS = "cached", "skipped_by_gate", "retries", "in_flight"
"""What an actor counts itself; calls are counted where the budget is."""
Message = tuple[Any, ...]
"""What it is about, and what there is to say."""


def connected(address: str | None, what: str) -> Any:
    """Ray, connected to the cluster at this address, or the one it is connected to, else
    RAY_ADDRESS, else one that is begun here with the cores of this machine.

    Raises:
        MissingExtra: Ray is not installed; `what` needs it.
        ConfigError: no cluster answers at the address.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", what) from None
    if not ray.is_initialized():
        try:
            context = ray.init(address=address, log_to_driver=False, logging_level="error")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"No Ray cluster answers at {address or 'RAY_ADDRESS'}: {error!s:.200}"
            ) from error
        if (url := getattr(context, "dashboard_url", None)) and sys.stderr.isatty():
            sys.stderr.write(f"Ray's dashboard: http://{url}\n")
    return ray


# -- in the process that began the run -------------------------------------------------------------


@dataclass(frozen=True)
class RayPlan:
    """What judges a batch on a cluster."""

    batch: tuple[type, dict[str, Any]]
    """Class and keywords of the batch that each actor makes for itself."""
    options: RunOptions
    asked: Callable[[Any, set[str]], None] | None = None
    """Takes (what a unit's jobs are of, hashes of what judges were asked); None where nobody wants
    to know.
    """


class _Actor:
    """An actor, what it has, and what it says: what is called like a message takes it."""

    def __init__(self, lane: RayLane, handle: Any, ahead: int) -> None:
        self.control = control = lane._work.control
        self._lane, self.handle = lane, handle
        self._claims: dict[int, Claims] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}
        self.ahead = ahead
        """Units that it may have at once, so that it never waits for work."""
        self.units: dict[int, Unit] = {}
        self.counts = dict.fromkeys(_COUNTERS, 0)
        self.ready = False
        self.told: Message = ()
        """What it knows of why the run stopped."""
        self._out: list[Message] = []
        self.done = partial(lane._done, self)
        self.log, self.served, self.trace = lane._log, control.note_served, control.trace
        self.reply = control.replies and control.replies.put

    def say(self, *message: Any) -> None:
        """Tell it, soon, with what else there is to say."""
        if not self._out:
            self._lane._loop.call_later(GATHER_SECONDS, self._send)
        self._out.append(message)

    def _send(self) -> None:
        out, self._out = self._out, []
        if self in self._lane._actors:
            self.handle.hear.remote(out)

    def ask(self, number: int, *call: Any) -> None:
        """Take a question for budget; its answer comes at once or later."""
        asking = self._asking[number] = self._lane._loop.create_task(self._claim(number, *call))
        asking.add_done_callback(partial(self._tell_answer, number))

    def _tell_answer(self, number: int, asking: asyncio.Task[None]) -> None:
        del self._asking[number]
        if not asking.cancelled():
            self.say("answer", number, asking.exception())  # raised by whoever asked

    def reserve(self, number: int, *call: Any) -> None:
        """Claim a call that nobody waits with: nothing is limited."""
        with suppress(StopIteration):
            self._claim(number, *call).send(None)

    async def _claim(self, number: int, *call: Any) -> None:
        claims = Claims(self.control, *call)
        try:
            await claims.reserve()
        except BaseException:
            claims.settle(Usage())
            raise
        self._claims[number] = claims

    def settle(self, number: int, used: Usage) -> None:
        """Hear what a call used."""
        if (claims := self._claims.pop(number, None)) is not None:
            claims.settle(used)
            self.control.count("calls", used.calls, used)

    def cancel(self, number: int) -> None:
        """Hear that nobody waits any more, perhaps while the answer was on its way."""
        if (task := self._asking.get(number)) is not None:
            task.cancel()
        self.settle(number, Usage())

    def fact(self, name: str, *values: Any) -> None:
        """Hear what it learnt and what holds for all."""
        listeners[name](*values)

    def gone(self) -> None:
        """It is gone: what it had claimed counts as used, and others may have what it asked for."""
        for task in self._asking.values():
            task.cancel()
        for number, claims in list(self._claims.items()):
            self.settle(number, Usage(calls=1, input_tokens=claims.expected))
        self.account({**self.counts, "in_flight": 0})

    def account(self, counts: dict[Any, int]) -> None:
        """Hear what it counted so far."""
        for name, now in counts.items():
            self.control.count(name, now - self.counts[name])
        self.counts = counts

    def stop(self, reason: str, halt: bool, by: Any) -> None:
        """Hear that it stopped."""
        self.control.stop(reason, halt=halt, by=by)


class RayLane(Lane):
    """Runs units on actors of one processor each, spread over the nodes of a cluster. What a lost
    one had goes to the others.

    A unit whose actor died is tried again, and the second time by itself; where that one dies,
    too, it has killed it.

    Raises:
        MissingExtra: Ray is not installed.
        ConfigError: what judges cannot be sent.
    """

    def __init__(self, work: Work, max_workers: int, plan: RayPlan) -> None:
        super().__init__(max_workers)
        self._work, self._plan = work, plan
        self._ray = connected(plan.options.address, "engine='ray'")
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        count = plan.options.processes or max(1, cores)
        self._each = -(-max_workers // count)
        """Jobs that one actor has in flight at most: together no fewer than were asked for."""
        self._setup = self._packed_setup()
        self._remote = self._ray.remote(JudgeActor).options(
            num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        self._deaths: Counter[int] = Counter()
        """How many actors a unit died with, by its index."""
        self._actors: dict[_Actor, asyncio.Task[None]] = {}
        """By actor that there is, what takes its letters."""
        self._log = cache(logger.log)  # each actor says it, and one is enough
        self._starts, self._over = 0, False
        work.control.hold("ray", lambda: self._close_soon)
        library_loop.submit(self._watch(count))

    def _packed_setup(self) -> bytes:
        """What an actor begins with, by value where another machine could not import it."""
        from ray import cloudpickle

        control, options, each = self._work.control, self._plan.options, self._each
        limit = None if control.fail_fast is None else control.fail_fast.limit
        # an actor has one processor, also for what can be killed
        there = detached_options(
            options,
            control=None,
            budget=None,
            manifest=None,
            cache=control.use_cache,
            repeat=control.repeat,
            processes=1,
            max_workers=each,
        )
        wanted = self._plan.asked, control.replies, control.trace
        keeps = [each is not None for each in wanted]
        settings = {
            "retry": control.retry,
            "max_outage": control.max_outage,
            "rate_share": control.rate_share * min(1.0, each / options.max_workers),
        }
        try:
            with with_keys():
                packed: bytes = cloudpickle.dumps(
                    (*self._plan.batch, there, settings, limit, control.limited, keeps)
                )
        except Exception as error:
            raise ConfigError(
                f"What is to judge cannot be sent to Ray's actors ({type(error).__name__}: "
                f"{error!s:.300}). Leave out what holds connections, locks or open files, or leave "
                f"out engine='ray'."
            ) from error
        return packed

    # -- actors ------------------------------------------------------------------------------------

    async def _watch(self, count: int) -> None:
        for _ in range(0 if self._over else count):
            self._start()
        while not self._over:
            self._start_workers()
            await asyncio.sleep(BEAT_SECONDS)

    def _start(self) -> None:
        ahead = self._each + self._each // 2 + 1
        actor = _Actor(self, self._remote.remote(self._setup), ahead)
        self._actors[actor] = self._loop.create_task(self._serve(actor))

    async def _serve(self, actor: _Actor) -> None:
        """Take one letter of an actor after another."""
        try:
            while actor in self._actors:
                letter = actor.handle.take.remote()
                # where the cluster is full it may begin much later
                messages = await asyncio.wait_for(letter, SILENT_SECONDS if actor.ready else None)
                actor.ready = True
                for what, *args in messages if actor in self._actors else ():
                    getattr(actor, what)(*args)
                self._give(actor)
        except Exception as error:  # noqa: BLE001 - of Ray, whose errors have no common class
            self._lost(actor, error)

    def _lost(self, actor: _Actor, error: Exception) -> None:
        """An actor is gone: others get what it had. What it raised itself ends the run."""
        if self._actors.pop(actor, None) is None:
            return
        actor.gone()
        self._kill(actor)
        first_line = (str(error).strip() or "no reason given").splitlines()[0]
        why = f"{type(error).__name__}: {first_line[:200]}"
        fatal: BaseException = error
        if isinstance(error, self._ray.exceptions.RayTaskError):
            fatal = error.cause
            if not isinstance(fatal, RMGalleryError):
                fatal = ConfigError(f"An actor of Ray had to end: {why}")
        elif not actor.ready:
            self._starts += 1
            if self._starts >= _STARTS:
                fatal = ConfigError(f"Ray's actors do not start: {why}")
        if isinstance(fatal, RMGalleryError):
            self._end(self._work, fatal)
            return
        for unit in reversed(actor.units.values()):
            if self._deaths[unit.index] > 1:
                message = (
                    f"The process that judged this sample died ({why}), and so did two before it."
                )
                self._complete_with(unit, failed("crashed", message, "rule"))
            else:
                self._deaths[unit.index] += 1
                self._pending.appendleft(unit)
        if self._work.control.why_stopped is None:
            logger.warning("An actor of Ray is gone ({}); another one takes its place.", why)
            self._start()
        self._start_workers()

    def _kill(self, actor: _Actor) -> None:
        # whatever Ray has to say: it is gone, or will be with this process
        with suppress(Exception):
            self._ray.kill(actor.handle, no_restart=True)

    # -- units -------------------------------------------------------------------------------------

    def _start_workers(self) -> None:
        while self._pending and (outcome := self._work.control.not_begun) is not None:
            self._complete_with(self._pending.popleft(), outcome)
        for actor in sorted(self._actors, key=lambda actor: len(actor.units)):
            self._give(actor)

    def _give(self, actor: _Actor) -> None:
        """Send an actor what it will be through with soon, or that the run has stopped."""
        control, waiting = self._work.control, self._pending
        if not actor.ready or actor not in self._actors:
            return
        if control.why_stopped is not None:
            told = "stop", control.why_stopped, control.halted, control.who_stopped
            if told != actor.told:
                actor.told = told
                actor.say(*told)
            return
        share = -(-len(waiting) // sum(each.ready for each in self._actors))
        most = min(actor.ahead, len(actor.units) + share)
        while waiting and len(actor.units) < most:
            # what two actors died with is tried by itself
            together = (waiting[0].index, *actor.units) if self._deaths and actor.units else ()
            if any(self._deaths[index] > 1 for index in together):
                return
            unit = waiting.popleft()
            try:
                packed = pickle.dumps(unit.jobs, pickle.HIGHEST_PROTOCOL)
            except Exception as error:  # noqa: BLE001 - whatever a sample holds is its own trouble
                problem = f"cannot be sent to an actor: {type(error).__name__}: {error!s:.200}"
                self._complete_with(unit, score_of_error(DataError(f"The sample {problem}.")))
                continue
            actor.units[unit.index] = unit
            actor.say("judge", unit.index, packed)

    def _done(self, actor: _Actor, index: int, packed: bytes) -> None:
        unit = actor.units.pop(index)
        if not actor.units and self._pending:  # it was through before it got more
            actor.ahead *= 2
        outcomes, asked = pickle.loads(packed)
        for place, hashes in asked:
            if self._plan.asked is not None:
                self._plan.asked(unit.jobs[place].of, hashes)
        self._complete_with(unit, outcomes)

    def _complete_with(self, unit: Unit, outcomes: list[Score[Any]] | Score[Any]) -> None:
        """Complete a unit, by one score for all of its jobs where it is one."""
        unit.outcomes = outcomes if isinstance(outcomes, list) else [outcomes] * len(unit.jobs)
        unit.remaining = 0
        self._deaths.pop(unit.index, None)
        self._go_on(unit)

    def _end(self, work: Work, error: BaseException) -> None:
        super()._end(work, error)
        self._close()

    async def _drain(self, grace: float) -> None:
        self._pending.clear()
        self._start_workers()
        end = self._loop.time() + grace
        while any(actor.units for actor in self._actors) and self._loop.time() < end:
            await asyncio.sleep(0.02)
        self._close()
        self._flush()

    def _close_soon(self) -> None:
        self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        """Let the actors go: nobody waits for what they are at."""
        self._over = True
        self._pending.clear()
        actors, self._actors = self._actors, {}

        def kill() -> None:
            for actor in actors:
                self._kill(actor)

        library_loop.start_thread(kill)


# -- in an actor -----------------------------------------------------------------------------------

tell_driver: Callable[..., None] | None = None
"""Sends a message to the process that began the run, where this one judges for it."""
listeners: dict[str, Callable[..., Any]] = {}
"""What takes in a fact that a process learnt and that holds for all, by the fact's name."""


def share_fact(name: str, *values: Any) -> None:
    """Tell the process that began the run, where this one judges for it."""
    if tell_driver is not None:
        tell_driver("fact", name, *values)


class _BudgetThere(Budget):
    """The budget of the run, which the process that began it keeps; where nothing is limited no call
    waits for an answer. Lives on one event loop.

    Args:
        send: sends a message.
        limited: whether a call has to wait until it is known that there is budget for it.
    """

    def __init__(self, send: Callable[..., None], limited: bool) -> None:
        super().__init__()
        self._send, self._asks = send, limited
        self._numbers = itertools.count(1)
        self.answers: dict[int, asyncio.Future[None]] = {}
        """By the number of a call, where its answer comes."""

    def _say(self, what: str, *call: Any) -> Reservation:
        number = next(self._numbers)
        self._send(what, number, *call)
        return Reservation(0.0, 0.0, number)

    def try_reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation | None:
        """Claim one call, where that needs no answer."""
        return None if self._asks else self._say("reserve", model, expected, most)

    async def reserve(
        self, model: str = "", expected: int = 0, most: int | None = None
    ) -> Reservation:
        """Claim one call; raises what the budget's keeper raises."""
        claim = self._say("ask", model, expected, most)
        answer = self.answers[claim.entry] = asyncio.get_running_loop().create_future()
        try:
            await answer
        except asyncio.CancelledError:
            self._send("cancel", claim.entry)
            raise
        finally:
            del self.answers[claim.entry]
        return claim

    def answer(self, number: int, error: BaseException | None) -> None:
        """Take an answer; one that nobody waits for any more was cancelled there as well."""
        future = self.answers.get(number)
        if future is not None and not future.done():
            future.set_result(None) if error is None else future.set_exception(error)

    def settle(self, reservation: Reservation, usage: Usage, model: str = "") -> None:
        """Say what a call used."""
        self._send("settle", reservation.entry, usage)


class _AskedHere(AskedNotes):
    """Stands in for the run folder, which the process that began the run keeps: it notes what
    judges are asked.
    """

    def taken(self, jobs: list[Any]) -> list[tuple[int, set[str]]]:
        """What was asked for a unit, by the place of a job of each sample in it."""
        ids = [id(getattr(job, "of", None)) for job in jobs]
        return [(ids.index(of), self._asked.pop(of).hashes) for of in {*ids} & self._asked.keys()]


class _RepliesThere:
    """Replies are kept where the run was begun, beside its records; what is scored once more is
    scored there as well.
    """

    def __init__(self, send: Callable[[str, bytes | None], None]) -> None:
        self.put = send
        """Sends a reply; it goes ahead of the scores that were made of it."""

    def get(self, key: str) -> bytes | None:
        """No reply: only the process that began the run has them."""
        return None

    def knows(self, key: str) -> bool:
        """Whether a reply was kept: not here."""
        return False


class JudgeActor:
    """What Ray runs on a node: it makes the same batch again and judges what it is sent, within the
    limits of the whole run.

    Args:
        setup: what `RayLane` packed.
    """

    def __init__(self, setup: bytes) -> None:
        self._loop = library_loop.get_loop()
        self._out: deque[Message] = deque()
        self._control: RunControl | None = None
        self._error: BaseException | None = None
        self._open = 0
        """Units it has."""
        _log_through(partial(self._say, "log"))
        try:
            self._begin(setup)
        except ConfigError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - raised to whoever takes the first letter
            self._error = ConfigError(
                f"An actor of Ray cannot judge here ({type(error).__name__}: {error!s:.300}). Its "
                f"node needs this library and what the reward imports, in the same versions."
            )
        # as where a run is begun: what is judged holds no cycles
        gc.freeze()
        gc.set_threshold(*RELAXED_GC)

    def _say(self, *message: Any) -> None:
        self._out.append(message)

    def _begin(self, setup: bytes) -> None:
        global tell_driver
        say = tell_driver = self._say
        with with_keys():
            cls, keywords, options, settings, limit, limited, keeps = pickle.loads(setup)
        asked, replies, trace = keeps
        self._budget = _BudgetThere(say, limited)
        control = RunControl(
            fail_fast=None if limit is None else FailFast(limit),
            replies=_RepliesThere(partial(say, "reply")) if replies else None,
            trace=partial(say, "trace") if trace else None,
            quiet=True,
            probes=options.blame == "probe",
            **settings,
        )
        batch = cls(**keywords, options=replace(options, control=control))
        self._asked = _AskedHere() if asked else None
        _, execute, options = batch._run_plan((), self._asked, batch.options)
        control.begin(
            max_workers=options.max_workers,
            budget=self._budget,
            cache=options.cache,
            repeat=options.repeat,
        )
        self._work = Work(execute, control, self._deliver, self._fail, options.deadline)
        # what only computes gains nothing by taking turns
        workers = options.max_workers if batch._inline() is None else 1
        self._lane = lane_named(batch.lane, workers, eager=False)
        self._control = control

    async def take(self) -> list[Message]:
        """What there is to say, soon, or after a while that there is nothing."""
        for turn in range(int(BEAT_SECONDS / GATHER_SECONDS)):
            await asyncio.sleep(GATHER_SECONDS)
            waits = not self._open or self._budget.answers
            if (
                self._error is not None
                or self._out
                and (waits or turn * GATHER_SECONDS >= NEWS_SECONDS)
            ):
                break
        if not self._out and self._error is not None:
            raise self._error
        said = [self._out.popleft() for _ in range(len(self._out))]  # threads say more meanwhile
        return said if self._control is None else [*self._news(self._control), *said]

    def _news(self, control: RunControl) -> Iterator[Message]:
        """What was counted and what it came to, which belongs before the results."""
        yield "account", {name: getattr(control, name) for name in _COUNTERS}
        for asked, names in [*control.served.items()]:
            yield from [("served", asked, each) for each in [*names]]
        if control.stopped is not None:
            yield "stop", control.stopped, control.halted, control.stopped_by

    def hear(self, messages: list[Message]) -> None:
        """Take what the process that began the run says."""
        self._loop.call_soon_threadsafe(self._hear, messages)

    def _hear(self, messages: list[Message]) -> None:
        units = []
        for what, *args in messages:
            if what == "judge":
                index, packed = args
                self._open += 1
                units.append(Unit(self._work, index, self._plan(packed)))
            elif what == "answer":
                self._budget.answer(*args)
            else:
                self._stop(*args)
        self._lane.feed(units)

    def _stop(self, reason: str, halt: bool, by: Any) -> None:
        control = self._work.control
        control.stop(reason, halt=halt, by=by)
        if halt and by == "endpoint":  # nobody waits for an endpoint that is given up
            for call in list(control.calls_out):
                call.cut()

    def _plan(self, packed: bytes) -> Plan:
        """These jobs; their plan goes on where the sample is."""
        try:
            jobs = pickle.loads(packed)
        except Exception:  # noqa: BLE001 - whatever a sample holds is its own trouble
            lost = DataError("The sample cannot be rebuilt in an actor.")
            return pickle.dumps((score_of_error(lost), []))
        outcomes = yield jobs
        asked = [] if self._asked is None else self._asked.taken(jobs)
        try:
            return pickle.dumps((outcomes, asked), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 - a result that cannot travel is the rule's doing
            problem = (
                f"a result cannot be sent from an actor ({type(error).__name__}: {error!s:.200})"
            )
            return pickle.dumps((score_of_error(TypeError(problem)), asked))

    def _deliver(self, results: list[tuple[int, bytes]]) -> None:
        self._open -= len(results)
        # else the run would be over, with what was not judged, before it hears of the error
        if self._error is None:
            for result in results:
                self._say("done", *result)

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error


def _log_through(send: Callable[[str, str], None]) -> None:
    def sink(message: Any) -> None:
        record = message.record
        # braces would be read as fields where it is logged again
        send(record["level"].name, record["message"].replace("{", "{{").replace("}", "}}"))

    _loguru.remove()
    _loguru.add(sink, format="{message}", level="INFO")
