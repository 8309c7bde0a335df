"""The child side of a run in several processes: it makes the same batch again, runs the jobs it is
sent, and leaves with its parent.
"""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import queue
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from loguru import logger as _loguru

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls import coordinator
from rm_gallery.core.engine.calls.cache import VARIABLE as CACHE_VARIABLE
from rm_gallery.core.engine.calls.cache import server
from rm_gallery.core.engine.calls.coordinator import BudgetElsewhere, Elsewhere
from rm_gallery.core.engine.calls.retry import FailFast
from rm_gallery.core.engine.context import CounterName, Questions, RunControl, RunStopped
from rm_gallery.core.engine.garbage import RELAXED_GC
from rm_gallery.core.engine.lanes import LoopLane, Unit, Work
from rm_gallery.core.engine.processes.main import claim_pipes
from rm_gallery.core.engine.processes.members import BEAT_SECONDS, known_here
from rm_gallery.core.engine.processes.places import MemberChannel
from rm_gallery.core.engine.thread_lane import ThreadLane
from rm_gallery.core.score import Score, score_of_error
from rm_gallery.core.utils.errors import Cause, ConfigError, DataError

_COUNTERS: tuple[CounterName, ...] = ("cached", "skipped_by_gate", "retries", "asked_again")
"""What is counted here; calls are where the budget is."""
Merge = Callable[[Any, list[Any], list[Score[Any]]], Any]
Done = tuple[bytes, list[tuple[int, set[str]]]]
"""The pickled outcomes of a unit, and by job what judges were asked."""


class _Control(RunControl):
    """The control of one member: what stops it stops the run."""

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
        found = [
            (place, self._of.pop(id(job.of), None))
            for place, job in enumerate(jobs)
            if hasattr(job, "of")
        ]
        return [
            (place, questions.hashes)
            for place, questions in found
            if questions is not None and questions.hashes
        ]


class _MemberHere:
    """What one process has: its batch, its lane, and the channel to where it came from."""

    def __init__(self, connection: socket.socket, leave: Callable[[], None]) -> None:
        self._loop = library_loop.get_loop()
        self._setups: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        connection.setblocking(False)
        self._socket, self._leave = connection, leave
        self._served: set[tuple[str, str]] = set()
        self._sent = dict.fromkeys(_COUNTERS, 0)
        self._asked: _AskedHere | None = None
        self._work: Work | None = None
        self.channel = library_loop.run(self._connected())

    async def _connected(self) -> MemberChannel:
        # without whoever began the run it has nothing more to do, whatever it is at
        channel = MemberChannel(self._loop, self._hear, self._leave)
        self._there = Elsewhere(channel.say, limited=False)
        await self._loop.create_connection(lambda: channel, sock=self._socket)
        return channel

    def serve(self) -> None:
        """Make the batch once it is known which, and run what comes."""
        setup, workers, limited = self._setups.get()
        try:
            self._begin(setup, workers, limited)
        except Exception as error:  # noqa: BLE001 - raised where the run was begun
            said = error if isinstance(error, ConfigError) else _untold(error)
            self.channel.post(("error", said))
        else:
            gc.freeze()
            # as where a run was begun: what is judged holds no cycles
            gc.set_threshold(*RELAXED_GC)
            self.channel.post(("ready",))
            self._loop.call_soon_threadsafe(self._beat)

    def _begin(self, setup: bytes, workers: int, limited: bool) -> None:
        cls, keywords, options, settings = pickle.loads(setup)
        self._there.limited = limited
        coordinator.elsewhere = self._there
        limit = settings["fail_fast"]
        control = _Control(
            retry=settings["retry"],
            fail_fast=None if limit is None else FailFast(limit),
            offline=settings["offline"],
            max_outage=settings["max_outage"],
            quiet=True,
        )
        control.tell = lambda what, *args: self.channel.post(("tell", what, args))
        if settings["trace"]:
            control.trace = lambda entry: self.channel.post(("tell", "trace", (entry,)))
        options = replace(options, max_workers=workers, control=control)
        batch = cls(**keywords, options=options)
        known_here.update(batch.known())
        self._asked = _AskedHere() if settings["asked"] else None
        self._batch = batch
        _, execute, merge, options = batch._run_plan((), self._asked, batch.options)
        there = BudgetElsewhere(self._there)
        workers = options.max_workers
        control.begin(
            max_workers=workers, budget=there, cache=settings["cache"], repeat=settings["repeat"]
        )
        self._work = work = Work(
            execute, self._merging(merge), control, self._deliver, self._fail, options.deadline
        )
        self._lane = (
            LoopLane(work, workers) if batch.lane == "loop" else ThreadLane(workers, eager=False)
        )

    def _merging(self, _: Merge) -> Merge:
        """What is done with the outcomes of a unit: they are merged where the sample is."""
        return self._merged

    def _hear(self, message: tuple[Any, ...]) -> None:
        kind, *args = message
        if kind == "unit":
            self._unit(*args)
        elif kind == "said":
            self._there.said(*args)
        elif kind == "setup":
            self._setups.put(tuple(args))
        elif kind == "stop":
            self._stop(*args)

    def _stop(self, reason: str, halt: bool, by: Cause) -> None:
        assert self._work is not None
        control = self._work.control
        RunControl.stop(control, reason, halt=halt, by=by)
        if halt and by == "endpoint":  # nobody waits for an endpoint that is given up
            for cut in list(control.waiting):
                cut()

    def _unit(self, number: int, pickled: bytes) -> None:
        assert self._work is not None
        try:
            jobs = pickle.loads(pickled)
        except Exception as error:  # noqa: BLE001 - becomes the outcome of this sample
            said = DataError(
                f"The sample cannot be rebuilt in a worker process: {type(error).__name__}: "
                f"{error!s:.200}."
            )
            self._deliver([(number, (pickle.dumps([score_of_error(said)]), []))])
            return
        self._lane.feed([Unit(self._work, number, None, jobs)])

    def _merged(self, _: Any, jobs: list[Any], outcomes: list[Score[Any]]) -> Done:
        asked = [] if self._asked is None else self._asked.taken(jobs)
        try:
            return pickle.dumps(outcomes, pickle.HIGHEST_PROTOCOL), asked
        except Exception as error:  # noqa: BLE001 - a result that cannot travel is the rule's doing
            said = TypeError(
                f"a result cannot be sent from a worker process ({type(error).__name__}: "
                f"{error!s:.200})"
            )
            return pickle.dumps([score_of_error(said)] * len(outcomes)), asked

    def _deliver(self, results: list[tuple[int, Any]]) -> None:
        self.channel.post(self._counted())
        self.channel.post(("done", results))

    def _counted(self) -> tuple[Any, ...]:
        assert self._work is not None
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
                    self.channel.post(("tell", "served", (asked, answered)))
        return "beat", more, control.in_flight

    def _beat(self) -> None:
        self.channel.say(self._counted())
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _fail(self, error: BaseException) -> None:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # noqa: BLE001 - some errors do not travel
            error = _untold(error)
        self.channel.post(("error", error))


class FedMember(_MemberHere):
    """A member that is fed where it is, plans and merges itself, and shares with the others what
    has to be true once.
    """

    def __init__(self, host: str, port: int, word: bytes) -> None:
        self._numbers = itertools.count()
        self._open: dict[int, tuple[_Fed, int]] = {}
        self._guard = threading.Lock()
        super().__init__(_knocked(host, port, word), self._cut_off)
        _log_through(self)
        try:
            self._begin(*self._setups.get(timeout=60.0))
        except Exception as error:
            self.channel.post(
                ("error", error if isinstance(error, ConfigError) else _untold(error))
            )
            raise
        self._loop.call_soon_threadsafe(self._beat)

    def feed(self, items: list[Any]) -> Future[list[Any]]:
        """Take items; the future has their results in the same order, or the error that ended the
        run.
        """
        assert self._work is not None
        fed = _Fed(Future(), [None] * len(items), len(items))
        if not items:
            fed.future.set_result([])
            return fed.future
        units = []
        for place, (data, jobs) in enumerate(
            self._batch._run_plan(items, None, self._batch.options)[0]
        ):
            number = next(self._numbers)
            self._open[number] = fed, place
            units.append(Unit(self._work, number, data, [] if jobs is None else jobs))
        self._lane.feed(units)
        if self._work.ended:  # it broke, perhaps before these were known
            self._fail(RunStopped("The run ended."))
        return fed.future

    def _merging(self, merge: Merge) -> Merge:
        return merge

    def _deliver(self, results: list[tuple[int, Any]]) -> None:
        self.channel.post(self._counted())
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

    def _cut_off(self) -> None:
        """Without whoever keeps the limits nothing more may be asked."""
        if self._work is not None:
            self._work.end(RunStopped("The process that coordinates the run is gone."))


@dataclass(eq=False)
class _Fed:
    """Items that were fed together."""

    future: Future[list[Any]]
    results: list[Any]
    left: int


def _untold(error: BaseException) -> ConfigError:
    return ConfigError(
        f"A worker process cannot judge here ({type(error).__name__}: {error!s:.300}). Functions "
        f"and classes have to stand at the "
        "top of a module that can be imported, not in the script that is run; or leave out "
        "processes=."
    )


def main(descriptor: int) -> None:
    """Serve the run on the other side of a socket until it is over."""
    parent, frames_out = claim_pipes()
    os.close(frames_out)

    def leave_with_parent() -> None:
        with suppress(OSError):
            while os.read(parent, 1):
                pass
        os._exit(0)

    threading.Thread(target=leave_with_parent, name="rm-gallery-parent", daemon=True).start()
    _serve(_MemberHere(socket.socket(fileno=descriptor), lambda: os._exit(0)))
    threading.Event().wait()


def join(host: str, port: int, word: bytes) -> None:
    """Serve the run of another machine until it is over; `word` tells it who comes. What is kept of
    replies is kept there.
    """
    over = threading.Event()
    _serve(_MemberHere(_knocked(host, port, word), over.set))
    over.wait()


def _knocked(host: str, port: int, word: bytes) -> socket.socket:
    if not server():
        os.environ[CACHE_VARIABLE] = "off"
    connection = socket.create_connection((host, port), 30.0)
    connection.sendall(word)
    return connection


def _serve(member: _MemberHere) -> None:
    _log_through(member)
    member.serve()


def _log_through(member: _MemberHere) -> None:
    _loguru.remove()
    _loguru.add(
        lambda said: member.channel.post(("tell", "log", _level_and_text(said))),
        format="{message}",
        level="INFO",
    )


def _level_and_text(said: Any) -> tuple[str, str]:
    record = said.record
    # braces would be read as fields where it is logged again
    return record["level"].name, record["message"].replace("{", "{{").replace("}", "}}")
