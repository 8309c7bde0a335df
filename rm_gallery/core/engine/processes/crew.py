"""The processes that judge for one run: how they are begun and fed, what they send back, and what
happens when one dies.

This process plans, merges, keeps the run folder and coordinates; its members make the calls and do
the computing.
"""

from __future__ import annotations

import asyncio
import io
import pickle
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.lanes import LoopLane, Unit, Work
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.engine.processes.members import BEAT_SECONDS, Members, known
from rm_gallery.core.engine.processes.places import Body, Here, MemberChannel, MemberPlace
from rm_gallery.core.score import Score, failed, score_of_error, stopped
from rm_gallery.core.utils.errors import ConfigError, DataError, logger

SILENT_SECONDS = 60.0
"""A member that says nothing for so long after the deadline of what it has is taken for stuck."""
AHEAD_SECONDS = 0.05
"""What a member gets through in this time is sent ahead, so that it never waits for work."""
GONE_SECONDS = 30.0
"""A member on another machine that says nothing for so long is gone, and its machine perhaps with
it.
"""
_STARTS = 3
"""So many members may die before they are ready until that is taken for how it is."""


@dataclass(frozen=True)
class Crew:
    """What members are begun with."""

    batch: tuple[type, dict[str, Any]]
    """Class and keywords of the batch that each of them makes for itself."""
    options: RunOptions
    """How the run goes; its options are for all members together."""
    known: Mapping[str, Any] = field(default_factory=dict)
    """What jobs hold and members have already, by the name it goes by."""
    asked: Callable[[Any, set[str]], None] | None = None
    """Hears (what a unit's jobs are of, hashes of what judges were asked); None where nobody wants
    to know.
    """

    def place(self) -> MemberPlace:
        """Where its members are begun."""
        if self.options.engine == "ray":
            from rm_gallery.core.engine.ray import RayCluster

            return RayCluster(self.options.address, self.options.processes)
        return Here(self.options.processes or 1)


class _Pickler(pickle.Pickler):
    """Writes a name for what every member knows."""

    def __init__(self, file: io.BytesIO, names: Mapping[int, str]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = names

    def reducer_override(self, obj: Any) -> Any:
        name = self._names.get(id(obj))
        return NotImplemented if name is None else (known, (name,))


@dataclass(eq=False)
class _Member:
    """One process, and what it has."""

    channel: MemberChannel = field(init=False)
    body: Body = field(init=False)
    open: dict[int, Unit] = field(default_factory=dict)
    ready: bool = False
    closing: bool = False
    silent: int = 0
    """Beats of this process since anything was heard."""
    done: int = 0
    """Units since the last beat."""
    pace: float = 0.0
    """Units a second, as seen lately."""
    alone: bool = False
    """Whether what it has may have killed another member, and nothing goes beside it."""


class ProcessLane(LoopLane):
    """Runs units in processes of their own: each gets what it is through with soon, and what a dead
    one had goes to the others.

    A unit whose member died is tried again, and the second time by itself; where that one dies,
    too, it has killed it.
    """

    def __init__(self, work: Work, max_workers: int, crew: Crew) -> None:
        super().__init__(work, max_workers)
        self._crew = crew
        self._place = crew.place()
        self._heard = Members(
            work.control, self._place.far, lambda member, *said: member.channel.say(("said", *said))
        )
        cls, keywords = crew.batch
        self._setup = self._heard.setup(
            cls, keywords, crew.options, self._place.packed, asked=crew.asked is not None
        )
        self._names = {id(value): name for name, value in crew.known.items()}
        self._each = -(-max_workers // self._place.processes)
        """Jobs that one member has in flight at most."""
        self._waiting: deque[Unit] = deque()
        self._suspects: deque[Unit] = deque()
        """Units that two members died with: each is tried by itself."""
        self._deaths: Counter[int] = Counter()
        self._starts = 0
        self._members: set[_Member] = set()
        self._over = False
        self._stopped = False
        self._beaten = time.monotonic()
        for _ in range(self._place.processes):
            self._start()
        work.control.hold("crew", lambda: lambda: library_loop.post(self._loop, self._close))
        library_loop.post(self._loop, self._beat)

    # -- members -----------------------------------------------------------------------------------

    def _start(self) -> None:
        member = _Member()
        member.channel = MemberChannel(
            self._loop, lambda message: self._hear(member, message), lambda: self._lost(member)
        )
        member.channel.post(("setup", self._setup, self._each, self._heard.limited))
        self._members.add(member)
        member.body = self._place.begin(member.channel)

    def _hear(self, member: _Member, message: tuple[Any, ...]) -> None:
        member.silent = 0
        kind, *args = message
        if kind == "done":
            self._done(member, *args)
        elif kind == "ready":
            member.ready = True
            self._give(member)
        elif kind == "error":
            self._end_run(args[0])
        elif self._heard.hear(member, kind, args):
            self._pass_on_stop()

    def _lost(self, member: _Member) -> None:
        """A member is gone: others get what it had."""
        if member not in self._members:
            return
        self._members.discard(member)
        self._heard.gone(member)
        member.body.kill()
        if member.closing or self._over:
            return
        why = member.body.why()
        if not member.ready:
            self._starts += 1
            if self._starts >= _STARTS:
                self._end_run(
                    ConfigError(
                        f"Worker processes do not start: {why}. What they said stands above."
                    )
                )
                return
        for number, unit in reversed(member.open.items()):
            self._deaths[number] += 1
            if member.alone:
                message = (
                    f"The process that judged this sample died ({why}), and so did two before it."
                )
                self._settle(unit, [failed("crashed", message, "rule")] * len(unit.jobs))
            else:
                (self._waiting if self._deaths[number] == 1 else self._suspects).appendleft(unit)
        if not self._stopped:
            logger.warning("A worker process died ({}); another one takes its place.", why)
            self._start()
        self._give_all()

    def _beat(self) -> None:
        if self._over:
            return
        now = time.monotonic()
        seconds, self._beaten = max(now - self._beaten, 1e-3), now
        for member in list(self._members):
            member.pace, member.done = 0.5 * (member.pace + member.done / seconds), 0
            member.silent += 1
            deadline = self._crew.options.deadline
            if (
                member.open
                and deadline is not None
                and member.silent * BEAT_SECONDS > deadline + SILENT_SECONDS
            ):
                member.body.kill()
            if self._place.far and member.ready and member.silent * BEAT_SECONDS > GONE_SECONDS:
                self._lost(member)
        pace = sum(member.pace for member in self._members)
        if pace:
            self._work.cost.learn(1.0 / pace)
        self._pass_on_stop()
        self._give_all()
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _pass_on_stop(self) -> None:
        control = self._work.control
        if control.why_stopped is None or self._stopped:
            return
        self._stopped = True
        for member in self._members:
            member.channel.say(self._heard.stop())
        self._give_all()

    # -- units -------------------------------------------------------------------------------------

    def _add_units(self, units: list[Unit]) -> None:
        if not library_loop.is_current(self._loop):
            self._loop_closed()
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
        if self._stopped:
            while self._waiting or self._suspects:
                unit = (self._waiting or self._suspects).popleft()
                self._settle(
                    unit,
                    [stopped(control.why_stopped or "", control.who_stopped)] * len(unit.jobs),
                )
            return
        for member in sorted(self._members, key=lambda member: len(member.open)):
            self._give(member)

    def _give(self, member: _Member) -> None:
        """Send a member what it will be through with soon."""
        if not member.ready or member.closing:
            return
        if not member.open:
            member.alone = False
            if self._suspects:
                member.alone = True
                self._send(member, self._suspects.popleft())
        least = self._each + self._each // 2 + 1
        share = -(-len(self._waiting) // max(1, sum(each.ready for each in self._members)))
        wanted = min(max(least, int(AHEAD_SECONDS * member.pace)), len(member.open) + max(share, 1))
        while self._waiting and not member.alone and len(member.open) < wanted:
            self._send(member, self._waiting.popleft())

    def _send(self, member: _Member, unit: Unit) -> None:
        try:
            jobs = self._pickled(unit.jobs)
        except Exception as error:  # noqa: BLE001 - whatever a sample holds is its own trouble
            said = DataError(
                f"The sample cannot be sent to a worker process: {type(error).__name__}: "
                f"{error!s:.200}."
            )
            self._settle(unit, [score_of_error(said)] * len(unit.jobs))
            return
        member.open[unit.index] = unit
        member.channel.say(("unit", unit.index, jobs))

    def _pickled(self, jobs: list[Any]) -> bytes:
        if not self._names:
            return pickle.dumps(jobs, pickle.HIGHEST_PROTOCOL)
        file = io.BytesIO()
        _Pickler(file, self._names).dump(jobs)
        return file.getvalue()

    def _done(
        self, member: _Member, results: list[tuple[int, tuple[bytes, list[tuple[int, set[str]]]]]]
    ) -> None:
        for number, (pickled, asked) in results:
            unit = member.open.pop(number, None)
            if unit is None:
                continue
            member.done += 1
            if self._crew.asked is not None:
                for place, hashes in asked:
                    self._crew.asked(unit.jobs[place].of, hashes)
            self._settle(unit, pickle.loads(pickled))
        self._give(member)

    def _settle(self, unit: Unit, outcomes: list[Score[Any]]) -> None:
        unit.outcomes, unit.remaining = outcomes, 0
        self._deaths.pop(unit.index, None)
        self._complete(unit)

    def _end_run(self, error: BaseException) -> None:
        self._waiting.clear()
        self._suspects.clear()
        super()._end_run(error)
        self._close()

    async def _drain(self, grace: float) -> None:
        self._waiting.clear()
        self._suspects.clear()
        self._pass_on_stop()
        end = self._loop.time() + grace
        while any(member.open for member in self._members) and self._loop.time() < end:
            await asyncio.sleep(0.02)
        self._close()
        self._flush()

    def _close(self) -> None:
        """Let the members go: nobody waits for what they are at."""
        if self._over:
            return
        self._over = True
        for member in list(self._members):
            member.closing = True
            self._heard.gone(member)
            member.channel.close()
            member.body.kill()
        gone, self._members = self._members, set()

        def reap() -> None:
            for member in gone:
                member.body.why()
            self._place.close()

        library_loop.start_thread(reap)
