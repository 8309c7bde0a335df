"""A run on a Ray cluster: this process plans, merges and keeps the run folder and the limits; actors
judge.

Work goes to actors as blocks of jobs and comes back as their outcomes, by Ray's own calls. What has
to be true once (the budget) is asked of this process by messages through one small actor, the
mailbox. Rates are shared out among the actors; replies are kept by each machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import pickle
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from loguru import logger as _loguru

from rm_gallery.core.engine import coordinator
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import CounterName, Questions, RunControl, RunStopped
from rm_gallery.core.engine.coordinator import CoordinatedBudget, Coordinator
from rm_gallery.core.engine.engine import (
    RELAXED_GC,
    Lane,
    LoopLane,
    ThreadLane,
    Unit,
    Work,
    loop_closed,
)
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.limits import FailFast
from rm_gallery.core.score import Score, failed, score_of_error, stopped
from rm_gallery.core.utils.errors import Cause, ConfigError, DataError, MissingExtra, logger
from rm_gallery.core.utils.models import with_keys

BEAT_SECONDS = 0.25
"""How often an actor says that it is there, and this process looks whether the run was stopped."""
SILENT_SECONDS = 30.0
"""An actor that says nothing for so long is gone, and its node perhaps with it."""
AHEAD_SECONDS = 0.05
"""What an actor gets through in this time is sent ahead, so that it never waits for work."""
LETTER_SECONDS = 0.002
"""So long a message waits for others to go with it, since each letter costs a call of Ray."""
NEWS_SECONDS = 0.05
"""So long one waits that nobody waits for."""
BLOCK_JOBS = 64
"""Most jobs of one call of Ray, which costs as much as judging several."""
_STARTS = 3
"""So many actors may die before they are ready until that is taken for how it is."""
_DRIVER = ""
"""The name of the process that began the run, in the mailbox."""
Counts = tuple[dict[CounterName, int], int, Usage | None]
"""What an actor counted: by counter, calls in flight, and what calls used where no budget counts
each.
"""
_COUNTERS: tuple[CounterName, ...] = ("cached", "skipped_by_gate", "retries")
"""What an actor counts itself; calls are counted where the budget is."""


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


def by_value(value: Any) -> bytes:
    """Pickled, by value where another machine could not import it."""
    from ray import cloudpickle

    with with_keys():
        packed: bytes = cloudpickle.dumps(value)
    return packed


def unpacked(packed: bytes) -> Any:
    """What another process of this run packed."""
    with with_keys():
        return pickle.loads(packed)


class RayMailbox:
    """The actor that messages of a run go through; a letter is a pickled list of messages."""

    def __init__(self) -> None:
        self._letters: dict[str, list[tuple[str, bytes]]] = {}
        self._come: dict[str, asyncio.Event] = {}

    async def put(self, to: str, sender: str, letter: bytes) -> None:
        """Leave a letter."""
        self._letters.setdefault(to, []).append((sender, letter))
        self._come.setdefault(to, asyncio.Event()).set()

    async def take(self, name: str) -> list[tuple[str, bytes]]:
        """The letters for somebody, with who sent them, once there are any."""
        come = self._come.setdefault(name, asyncio.Event())
        await come.wait()
        come.clear()
        return self._letters.pop(name, [])


class _Post:
    """One side of the mailbox: messages of a short time are one letter.

    Args:
        mailbox: the run's.
        name: who this is.
        receive: takes (sender, messages) of a letter; on the loop.
        cut_off: takes the error that ended the mailbox; on the loop.
    """

    def __init__(
        self,
        mailbox: Any,
        name: str,
        receive: Callable[[str, list[Any]], None],
        cut_off: Callable[[Exception], None],
    ) -> None:
        self._mailbox, self._name, self._receive, self._cut_off = mailbox, name, receive, cut_off
        self._loop = library_loop.get_loop()
        self._out: dict[str, list[Any]] = {}
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        self.letters = 0
        """How many were sent."""
        self._listening = library_loop.submit(self._listen())

    async def _listen(self) -> None:
        while True:
            try:
                letters = await self._mailbox.take.remote(self._name)
            except Exception as error:  # noqa: BLE001 - of Ray, whose errors have no common class
                self._cut_off(error)
                return
            for sender, letter in letters:
                self._receive(sender, unpacked(letter))

    def say(self, to: str, message: Any) -> None:
        """Send a message, soon where somebody waits for it; on the loop."""
        self._out.setdefault(to, []).append(message)
        within = NEWS_SECONDS if message[0] in ("tell", "beat") else LETTER_SECONDS
        due = self._loop.time() + within
        # uvloop gives a handle that knows no time where that is all but now
        if self._timer is None or self._due > due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._due = self._loop.call_at(due, self.flush), due

    def post(self, to: str, message: Any) -> None:
        """`say` from any thread."""
        # the loop is gone, and with it whoever would read it
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.say, to, message)

    def flush(self) -> None:
        """Send what waits."""
        if self._timer is not None:
            self._timer.cancel()
        out, self._out, self._timer = self._out, {}, None
        for to, messages in out.items():
            with with_keys():
                letter = pickle.dumps(messages, pickle.HIGHEST_PROTOCOL)
            self._mailbox.put.remote(to, self._name, letter)
            self.letters += 1

    def close(self) -> None:
        """Hear nothing more."""
        self._listening.cancel()


# -- in the process that began the run -------------------------------------------------------------


class Members:
    """The actors of one run as the process that began it sees them: what they begin with, ask and
    tell. Lives on the library's event loop.

    Args:
        ray: the connected package.
        control: the run's, which has begun.
        batch: class and keywords of the batch that each of them makes for itself.
        options: how the run goes; they are for all actors together.
        each: jobs that one of them has in flight at most.
        asked: whether it is noted what judges are asked.
        failed: takes the error of an actor that cannot judge, or of the cluster.
    """

    def __init__(
        self,
        ray: Any,
        control: RunControl,
        batch: tuple[type, dict[str, Any]],
        options: RunOptions,
        each: int,
        *,
        asked: bool,
        failed: Callable[[BaseException], None],
    ) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._control, self._failed = control, failed
        self._coordinator = Coordinator(
            control, lambda member, *answer: self.post.say(str(member), ("answer", *answer))
        )
        self._in_flight: dict[str, int] = {}
        self._last_letter: dict[str, float] = {}
        self._letters: Counter[str] = Counter()
        self._gone: set[str] = set()
        self._logged: set[tuple[str, str]] = set()
        self._waiting: list[tuple[str, int, Callable[[], None]]] = []
        self.setup = self._setup(batch, options, each, asked)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self.mailbox = ray.remote(RayMailbox).options(num_cpus=0, scheduling_strategy=here).remote()
        self.post = _Post(self.mailbox, _DRIVER, self._receive, self._cut_off)

    def _cut_off(self, error: Exception) -> None:
        self._failed(ConfigError(f"The Ray cluster of this run is gone: {_first_line(error)}"))

    def _setup(
        self, batch: tuple[type, dict[str, Any]], options: RunOptions, each: int, asked: bool
    ) -> bytes:
        """What an actor begins with; ConfigError for what no other process can have."""
        control = self._control
        there = replace(
            options,
            control=None,
            budget=None,
            run_dir=None,
            trace=False,
            manifest=None,
            progress=False,
            processes=1,  # an actor has one processor, also for what can be killed
            engine=None,
            address=None,
            max_workers=each,
        )
        budgets = [budget for _, budget in control.budgets()]
        settings = {
            "repeat": control.repeat,
            "cache": control.use_cache,
            "retry": control.retry,
            "replies": control.replies is not None,
            "max_outage": control.max_outage,
            "rate_share": control.rate_share * min(1.0, each / options.max_workers),
            "fail_fast": None if control.fail_fast is None else control.fail_fast.limit,
            "trace": control.trace is not None,
            "asked": asked,
            "budgeted": bool(budgets),
            "limited": any(budget.limited for budget in budgets),
        }
        try:
            return by_value((*batch, there, settings))
        except Exception as error:
            raise ConfigError(
                f"What is to judge cannot be sent to Ray's actors ({type(error).__name__}: "
                f"{error!s:.300}). Leave out what holds connections, locks or open files, or leave "
                f"out engine='ray'."
            ) from error

    def _receive(self, member: str, messages: list[Any]) -> None:
        if member not in self._last_letter and self._control.why_stopped is not None:
            self.tell_stop(member)
        self._last_letter[member] = time.monotonic()
        for kind, *args in messages:
            if kind == "ask":
                self._coordinator.ask(member, *args)
            elif kind == "beat":
                self.count_in(member, *args)
            elif kind == "error":
                self._failed(args[0])
            elif kind == "tell":
                self._take(member, *args)
        self._letters[member] += 1
        self._run_waiting()

    def _take(self, member: str, what: str, args: tuple[Any, ...]) -> None:
        control = self._control
        if what == "stop":
            reason, halt, by = args
            control.stop(reason, halt=halt, by=by)
            self.tell_stop(*self._last_letter)
        elif what == "trace":
            if control.trace is not None:
                control.trace(*args)
        elif what == "served":
            control.note_served(*args)
        elif what == "reply":
            if control.replies is not None:
                try:
                    control.replies.put(*args)
                except ConfigError as error:
                    self._failed(error)
        elif what == "log":  # each actor says it, and one is enough
            if args not in self._logged:
                self._logged.add((args[0], args[1]))
                logger.log(*args)
        else:
            self._coordinator.tell(member, what, args)

    def count_in(
        self, member: str, counts: Mapping[Any, int], in_flight: int, used: Usage | None = None
    ) -> None:
        """Add what an actor counted since the last time."""
        for name, more in counts.items():
            self._control.count(name, more)
        if used is not None:
            self._control.count("calls", used.calls, used)
        self._control.in_flight += in_flight - self._in_flight.get(member, 0)
        self._in_flight[member] = in_flight

    def tell_stop(self, *members: str) -> None:
        """Tell actors that the run has stopped, all where none is named."""
        control = self._control
        for member in members or self._last_letter:
            self.post.say(
                member, ("stop", control.why_stopped, control.halted, control.who_stopped)
            )

    def silent(self, member: str) -> float:
        """Seconds since anything came from an actor; 0 for one that has not begun."""
        return time.monotonic() - self._last_letter.get(member, time.monotonic())

    def gone(self, member: str) -> None:
        """An actor is gone: what it had claimed counts as used, and what it was asking others may
        ask.
        """
        self._gone.add(member)
        self.count_in(member, {}, 0)
        self._last_letter.pop(member, None)
        self._coordinator.gone(member)
        self._run_waiting()

    def once_read(self, member: str, letters: int, then: Callable[[], None]) -> None:
        """Call `then` once so many letters of an actor were read: results are counted after what
        was spent on them.
        """
        self._waiting.append((member, letters, then))
        self._run_waiting()

    def _run_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for member, letters, then in waiting:
            if member in self._gone or self._letters[member] >= letters:
                then()
            else:
                self._waiting.append((member, letters, then))

    def close(self, ray: Any) -> None:
        """End the mailbox."""
        self.post.close()
        # whatever Ray has to say: it is gone, or will be with this process
        with contextlib.suppress(Exception):
            ray.kill(self.mailbox, no_restart=True)


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


@dataclass(eq=False)
class _Actor:
    """An actor, and what it has."""

    name: str
    handle: Any
    blocks: dict[int, list[Unit]] = field(default_factory=dict)
    ready: bool = False
    done: int = 0
    """Units since the last beat."""
    pace: float = 0.0
    """Units a second, as seen lately."""
    on_trial: bool = False
    """Whether what it has may have killed others, and nothing goes beside it."""

    @property
    def open(self) -> int:
        """Units it has."""
        return sum(map(len, self.blocks.values()))


def in_flight_each(max_workers: int, actors: int) -> int:
    """Jobs that one of so many actors has in flight at most: together no fewer than were asked for.

    >>> in_flight_each(8, 3)
    3
    """
    return -(-max_workers // actors)


class RayLane(Lane):
    """Runs units on actors of one processor each, spread over the nodes of a cluster. What a lost
    one had goes to the others.

    A unit whose actor died is tried again, and the second time by itself; where that one dies,
    too, it has killed it.

    Raises:
        MissingExtra: Ray is not installed.
    """

    def __init__(self, work: Work, max_workers: int, plan: RayPlan) -> None:
        super().__init__(max_workers)
        self._work = work
        self._plan, self._ray = plan, connected(plan.options.address, "engine='ray'")
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        count = plan.options.processes or max(1, cores)
        self._each = in_flight_each(max_workers, count)
        """Jobs that one actor has in flight at most."""
        self._members = Members(
            self._ray,
            work.control,
            plan.batch,
            plan.options,
            self._each,
            asked=plan.asked is not None,
            failed=lambda error: self._end(work, error),
        )
        self._remote = self._ray.remote(JudgeActor).options(
            num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        self._names = itertools.count(1)
        self._numbers = itertools.count()
        self._waiting: deque[Unit] = deque()
        self._suspects: deque[Unit] = deque()
        """Units that two actors died with: each is tried by itself."""
        self._deaths: Counter[int] = Counter()
        self._starts = 0
        self._actors: set[_Actor] = set()
        self._over = self._stopped = False
        self._beaten = time.monotonic()
        work.control.hold("ray", lambda: lambda: library_loop.post(self._loop, self._close))
        library_loop.post(self._loop, lambda: self._begin(count))

    def _begin(self, count: int) -> None:
        for _ in range(count):
            self._start()
        self._beat()

    # -- actors ------------------------------------------------------------------------------------

    def _start(self) -> None:
        actor = _Actor(f"actor {next(self._names)}", self._remote.remote())
        self._actors.add(actor)
        beginning = actor.handle.begin.remote(
            self._members.setup, self._members.mailbox, actor.name
        )
        self._once_over(beginning, lambda future: self._begun(actor, future))

    def _once_over(self, call: Any, then: Callable[[Any], None]) -> None:
        call.future().add_done_callback(
            lambda future: library_loop.post(self._loop, lambda: then(future))
        )

    def _begun(self, actor: _Actor, future: Any) -> None:
        error = self._error(actor, future)
        if error is not None:
            self._lost(actor, error)
            return
        actor.ready = True
        self._give(actor)

    def _error(self, actor: _Actor, future: Any) -> BaseException | None:
        """What ended an actor; an error of the configuration ends the run."""
        error: BaseException | None = future.exception()
        cause = getattr(error, "cause", None)
        if isinstance(cause, ConfigError):
            self._end(self._work, cause)
        return error

    def _lost(self, actor: _Actor, error: BaseException) -> None:
        """An actor is gone: others get what it had."""
        if actor not in self._actors:
            return
        self._actors.discard(actor)
        self._members.gone(actor.name)
        self._kill(actor)
        if self._over:
            return
        why = f"{type(error).__name__}: {_first_line(error)}"
        if not actor.ready:
            self._starts += 1
            if self._starts >= _STARTS:
                self._end(self._work, ConfigError(f"Ray's actors do not start: {why}"))
                return
        for unit in [unit for block in actor.blocks.values() for unit in reversed(block)]:
            self._deaths[unit.index] += 1
            if actor.on_trial:
                message = (
                    f"The process that judged this sample died ({why}), and so did two before it."
                )
                self._settle(unit, [failed("crashed", message, "rule")] * len(unit.jobs))
            else:
                first = self._deaths[unit.index] == 1
                (self._waiting if first else self._suspects).appendleft(unit)
        if not self._stopped:
            logger.warning("An actor of Ray is gone ({}); another one takes its place.", why)
            self._start()
        self._give_all()

    def _kill(self, actor: _Actor) -> None:
        # whatever Ray has to say: it is gone, or will be with this process
        with contextlib.suppress(Exception):
            self._ray.kill(actor.handle, no_restart=True)

    def _beat(self) -> None:
        if self._over:
            return
        now = time.monotonic()
        seconds, self._beaten = max(now - self._beaten, 1e-3), now
        for actor in list(self._actors):
            actor.pace, actor.done = 0.5 * (actor.pace + actor.done / seconds), 0
            if actor.ready and self._members.silent(actor.name) > SILENT_SECONDS:
                self._lost(actor, TimeoutError("it says nothing"))
        pace = sum(actor.pace for actor in self._actors)
        if pace:
            self._work.cost.learn(1.0 / pace)
        if self._work.control.why_stopped is not None and not self._stopped:
            self._stopped = True
            self._members.tell_stop()
        self._give_all()
        self._loop.call_later(BEAT_SECONDS, self._beat)

    # -- units -------------------------------------------------------------------------------------

    def _add_units(self, units: list[Unit]) -> None:
        if not library_loop.is_current(self._loop):
            loop_closed(self._work)
            return
        self._open_units += len(units)
        for unit in units:
            if unit.jobs:
                self._waiting.append(unit)
            else:
                self._complete(unit)
        self._give_all()

    def _give_all(self) -> None:
        control = self._work.control
        if control.why_stopped is not None:
            while self._waiting or self._suspects:
                unit = (self._waiting or self._suspects).popleft()
                outcome = stopped(control.why_stopped, control.who_stopped)
                self._settle(unit, [outcome] * len(unit.jobs))
            return
        for actor in sorted(self._actors, key=lambda actor: actor.open):
            self._give(actor)

    def _give(self, actor: _Actor) -> None:
        """Send an actor what it will be through with soon."""
        if not actor.ready or self._over:
            return
        if not actor.blocks:
            actor.on_trial = False
            if self._suspects:
                actor.on_trial = True
                self._send(actor, [self._suspects.popleft()])
        if actor.on_trial or not self._waiting:
            return
        ready = sum(each.ready for each in self._actors)
        ahead = max(self._each + self._each // 2 + 1, int(AHEAD_SECONDS * actor.pace))
        share = -(-len(self._waiting) // max(1, ready))
        room = min(ahead - actor.open, share)
        while room > 0 and self._waiting:
            # a block is done with its slowest job: several small ones keep the actor busy
            size = min(room, BLOCK_JOBS, max(1, ahead // 8))
            block = [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]
            room -= len(block)
            self._send(actor, block)

    def _send(self, actor: _Actor, block: list[Unit]) -> None:
        try:
            packed = pickle.dumps([unit.jobs for unit in block], pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 - whatever a sample holds is its own trouble
            if len(block) > 1:
                for unit in block:
                    self._send(actor, [unit])
                return
            problem = DataError(
                f"The sample cannot be sent to an actor: {type(error).__name__}: {error!s:.200}."
            )
            self._settle(block[0], [score_of_error(problem)] * len(block[0].jobs))
            return
        number = next(self._numbers)
        actor.blocks[number] = block
        call = actor.handle.judge.remote(packed)
        self._once_over(call, lambda future: self._returned(actor, number, future))

    def _returned(self, actor: _Actor, number: int, future: Any) -> None:
        error = self._error(actor, future)
        if error is not None:
            self._lost(actor, error)
            return
        packed, letters, counts = future.result()
        self._members.count_in(actor.name, *counts)
        self._members.once_read(actor.name, letters, lambda: self._done(actor, number, packed))

    def _done(self, actor: _Actor, number: int, packed: bytes | None) -> None:
        block = actor.blocks.pop(number, None)
        if block is None:  # it was taken for gone, and others have its units
            return
        if packed is None:  # it cannot be rebuilt there: whose fault it is shows one by one
            if len(block) > 1:
                for unit in block:
                    self._send(actor, [unit])
                return
            problem = DataError("The sample cannot be rebuilt in an actor.")
            self._settle(block[0], [score_of_error(problem)] * len(block[0].jobs))
            return
        actor.done += len(block)
        for unit, (outcomes, asked) in zip(block, pickle.loads(packed), strict=True):
            if self._plan.asked is not None:
                for place, hashes in asked:
                    self._plan.asked(unit.jobs[place].of, hashes)
            self._settle(unit, outcomes)
        self._give(actor)

    def _settle(self, unit: Unit, outcomes: list[Score[Any]]) -> None:
        unit.outcomes, unit.remaining = outcomes, 0
        self._deaths.pop(unit.index, None)
        self._complete(unit)

    def _end(self, work: Work, error: BaseException) -> None:
        self._waiting.clear()
        self._suspects.clear()
        super()._end(work, error)
        self._close()

    async def _drain(self, grace: float) -> None:
        self._waiting.clear()
        self._suspects.clear()
        if self._work.control.why_stopped is not None:
            self._members.tell_stop()
        end = self._loop.time() + grace
        while any(actor.blocks for actor in self._actors) and self._loop.time() < end:
            await asyncio.sleep(0.02)
        self._close()
        self._flush()

    def _close(self) -> None:
        """Let the actors go: nobody waits for what they are at."""
        if self._over:
            return
        self._over = True
        actors, self._actors = self._actors, set()

        def end() -> None:
            for actor in actors:
                self._kill(actor)
            self._members.close(self._ray)

        library_loop.start_thread(end)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else "no reason given"


# -- in an actor -----------------------------------------------------------------------------------


class _MemberControl(RunControl):
    """The control of one actor: what stops it stops the run."""

    tell: Any = None

    def stop(self, reason: str, *, halt: bool = False, by: Cause = "caller") -> None:
        """Stop, and have the others stopped."""
        super().stop(reason, halt=halt, by=by)
        self.tell("stop", reason, halt, by)


class _AskedHere:
    """Stands in for the run folder, which the process that began the run keeps: it notes what
    judges are asked.
    """

    def __init__(self) -> None:
        self._of: dict[int, Questions] = {}

    def questions_of(self, data: Any) -> Questions:
        """Where it is noted what judges are asked about a sample."""
        return self._of.setdefault(id(data), Questions())

    def append(self, *_: Any) -> None:
        """Nothing: what is finished is kept where it is merged."""

    def taken(self, jobs: list[Any]) -> list[tuple[int, set[str]]]:
        """What was asked for a unit, by the place of a job of each sample in it."""
        noted = [
            (place, self._of.pop(id(job.of), None))
            for place, job in enumerate(jobs)
            if hasattr(job, "of")
        ]
        return [
            (place, questions.hashes)
            for place, questions in noted
            if questions is not None and questions.hashes
        ]


class _RepliesThere:
    """Replies are kept where the run was begun, beside its records."""

    def __init__(self, send: Callable[[tuple[Any, ...]], None]) -> None:
        self._send = send

    def get(self, key: str) -> bytes | None:
        """None: what is scored once more is scored where the records are."""
        return None

    def knows(self, key: str) -> bool:
        """False, for the same reason."""
        return False

    def put(self, key: str, reply: bytes | None) -> None:
        """Send a reply; it goes ahead of the scores that were made of it."""
        self._send(("tell", "reply", (key, reply)))


@dataclass(eq=False)
class _Fed:
    """Units that were fed together."""

    future: Future[list[Any]]
    results: list[Any]
    left: int


class Member:
    """The engine of one actor: it makes the same batch again and runs what it is fed, within the
    limits of the whole run.

    Args:
        setup: what `Members.setup` says.
        mailbox: the run's.
        name: the actor's.
        merging: whether units are merged here, else their outcomes are given as they are.

    Raises:
        ConfigError: the reward cannot judge here.
    """

    def __init__(self, setup: bytes, mailbox: Any, name: str, *, merging: bool) -> None:
        self._loop = library_loop.get_loop()
        self._post = _Post(mailbox, name, self._receive, self._cut_off)
        _log_through(lambda level, text: self._post.post(_DRIVER, ("tell", "log", (level, text))))
        self._budget: CoordinatedBudget | None = None
        self._served: set[tuple[str, str]] = set()
        self._sent = dict.fromkeys(_COUNTERS, 0)
        self._numbers = itertools.count()
        self._open: dict[int, tuple[_Fed, int]] = {}
        self._guard = threading.Lock()
        try:
            self._begin(setup, merging)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"An actor of Ray cannot judge here ({type(error).__name__}: {error!s:.300}). Its "
                f"node needs this library and what the reward imports, in the same versions."
            ) from error
        # as where a run is begun: what is judged holds no cycles
        gc.freeze()
        gc.set_threshold(*RELAXED_GC)
        self._loop.call_soon_threadsafe(self._beat)

    def _begin(self, setup: bytes, merging: bool) -> None:
        cls, keywords, options, settings = unpacked(setup)

        def say(message: tuple[Any, ...]) -> None:
            self._post.say(_DRIVER, message)

        coordinator.tell_driver = say
        if settings["budgeted"]:
            self._budget = CoordinatedBudget(say, settings["limited"])
        limit = settings["fail_fast"]
        control = _MemberControl(
            retry=settings["retry"],
            fail_fast=None if limit is None else FailFast(limit),
            replies=_RepliesThere(say) if settings["replies"] else None,
            max_outage=settings["max_outage"],
            rate_share=settings["rate_share"],
            quiet=True,
        )

        def tell(what: str, *args: Any) -> None:
            self._post.post(_DRIVER, ("tell", what, args))

        control.tell = tell
        if settings["trace"]:
            control.trace = lambda entry: tell("trace", entry)
        self._batch = batch = cls(**keywords, options=replace(options, control=control))
        self._asked = _AskedHere() if settings["asked"] else None
        _, execute, merge, options = batch._run_plan((), self._asked, batch.options)
        workers = options.max_workers
        self._used = None if settings["budgeted"] else Usage()
        control.begin(
            max_workers=workers,
            budget=self._budget,
            cache=settings["cache"],
            repeat=settings["repeat"],
        )
        control.probes = options.blame == "probe"
        self._work = Work(
            execute,
            merge if merging else self._unmerged,
            control,
            self._deliver,
            self._fail,
            options.deadline,
        )
        if batch._inline() is not None:  # what only computes gains nothing by taking turns
            workers = 1
        self._lane = LoopLane(workers) if batch.lane == "loop" else ThreadLane(workers, eager=False)

    def _unmerged(
        self, _: Any, jobs: list[Any], outcomes: list[Score[Any]]
    ) -> tuple[list[Score[Any]], list[tuple[int, set[str]]]]:
        """The outcomes of a unit, and by job what judges were asked: merged where the sample is."""
        return outcomes, [] if self._asked is None else self._asked.taken(jobs)

    def _receive(self, _: str, messages: list[Any]) -> None:
        for kind, *args in messages:
            if kind == "answer" and self._budget is not None:
                self._budget.answer(*args)
            elif kind == "stop":
                self._stop(*args)

    def _cut_off(self, _: Exception) -> None:
        """Without whoever keeps the limits nothing more may be asked."""
        self._work.end(RunStopped("The process that began the run is gone."))

    def _stop(self, reason: str, halt: bool, by: Cause) -> None:
        control = self._work.control
        RunControl.stop(control, reason, halt=halt, by=by)
        if halt and by == "endpoint":  # nobody waits for an endpoint that is given up
            for cut in list(control.waiting):
                cut()

    def judge(self, items: list[Any]) -> Future[list[Any]]:
        """Take items of the batch; the future has what is merged of each, in the same order."""
        return self.feed(list(self._batch._run_plan(items, None, self._batch.options)[0]))

    def feed(self, planned: list[tuple[Any, list[Any] | None]]) -> Future[list[Any]]:
        """Take units; the future has their results in the same order, or the error that ended the
        run.
        """
        fed = _Fed(Future(), [None] * len(planned), len(planned))
        if not planned:
            fed.future.set_result([])
            return fed.future
        units = []
        with self._guard:
            for place, (data, jobs) in enumerate(planned):
                number = next(self._numbers)
                self._open[number] = fed, place
                units.append(Unit(self._work, number, data, [] if jobs is None else jobs))
        self._lane.feed(units)
        if self._work.ended:  # it broke, perhaps before these were known
            self._fail(RunStopped("The run ended."))
        return fed.future

    async def account(self, *, by_letter: bool = False) -> tuple[int, Counts]:
        """How many letters were sent, once all that waits is sent, and what was counted
        since the last time, which a letter says if that is wanted; for any event loop.
        """

        async def account() -> tuple[int, Counts]:
            counts = self._counts()
            if by_letter:
                self._post.say(_DRIVER, ("beat", *counts))
            self._post.flush()
            return self._post.letters, counts

        return await asyncio.wrap_future(library_loop.submit(account()))

    def _deliver(self, results: list[tuple[int, Any]]) -> None:
        for number, result in results:
            with self._guard:
                fed, place = self._open.pop(number, (None, 0))
                if fed is None:
                    continue
                fed.results[place] = result
                fed.left -= 1
            if not fed.left:
                fed.future.set_result(fed.results)

    def _fail(self, error: BaseException) -> None:
        with self._guard:
            lost = {id(fed): fed for fed, _ in self._open.values()}
            self._open.clear()
        for fed in lost.values():
            fed.future.set_exception(error)
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # noqa: BLE001 - some errors do not travel
            error = ConfigError(
                f"An actor of Ray had to end: {type(error).__name__}: {error!s:.300}"
            )
        self._post.post(_DRIVER, ("error", error))

    def _counts(self) -> Counts:
        control = self._work.control
        now = {name: getattr(control, name) for name in _COUNTERS}
        more = {
            name: count - self._sent[name]
            for name, count in now.items()
            if count != self._sent[name]
        }
        self._sent = now
        for asked, answers in list(control.served.items()):
            for answered in answers:
                if (asked, answered) not in self._served:
                    self._served.add((asked, answered))
                    self._post.say(_DRIVER, ("tell", "served", (asked, answered)))
        used = None
        if self._used is not None:  # else the coordinator hears of each call
            used, self._used = control.usage.since(self._used), control.usage.copy()
        return more, control.in_flight, used

    def _beat(self) -> None:
        self._post.say(_DRIVER, ("beat", *self._counts()))
        self._loop.call_later(BEAT_SECONDS, self._beat)


class JudgeActor:
    """What Ray runs on a node for `engine="ray"`: an engine, and the blocks it is given."""

    async def begin(self, setup: bytes, mailbox: Any, name: str) -> None:
        """Make what judges."""
        self._member = await asyncio.to_thread(Member, setup, mailbox, name, merging=False)

    async def judge(self, block: bytes) -> tuple[bytes | None, int, Counts]:
        """The packed outcomes of packed units, None where these cannot be rebuilt; and the account
        until then.
        """
        try:
            units = [(None, jobs) for jobs in pickle.loads(block)]
        except Exception:  # noqa: BLE001 - whatever a sample holds is its own trouble
            return None, *await self._member.account()
        outcomes: list[Any] = await asyncio.wrap_future(self._member.feed(units))
        return _packed(outcomes), *await self._member.account()


def _packed(units: list[tuple[list[Score[Any]], Any]]) -> bytes:
    try:
        return pickle.dumps(units, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - a result that cannot travel is the rule's doing
        if len(units) == 1:
            problem = TypeError(
                f"a result cannot be sent from an actor ({type(error).__name__}: {error!s:.200})"
            )
            [(outcomes, asked)] = units
            return pickle.dumps([([score_of_error(problem)] * len(outcomes), asked)])
        return pickle.dumps([pickle.loads(_packed([unit]))[0] for unit in units])


def _log_through(send: Callable[[str, str], None]) -> None:
    def sink(message: Any) -> None:
        record = message.record
        # braces would be read as fields where it is logged again
        send(record["level"].name, record["message"].replace("{", "{{").replace("}", "}}"))

    _loguru.remove()
    _loguru.add(sink, format="{message}", level="INFO")
