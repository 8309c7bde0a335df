"""The processes that judge for one run: how they are begun and fed, what they send back, and what happens when one dies.

This process plans, merges, keeps the run folder and coordinates; its members make the calls and do the computing.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pickle
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls.coordinator import Desk
from rm_gallery.core.engine.lanes import LoopLane, Unit, Work
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.engine.processes.driver import KILL, ONE_THREAD_EACH, describe_exit
from rm_gallery.core.engine.processes.main import REQUEST
from rm_gallery.core.outcome import Outcome, failed, outcome_of_error, stopped_outcome
from rm_gallery.core.utils.errors import ConfigError, DataError, logger
from rm_gallery.core.utils.models import with_keys

_BOOT = (
    "import sys; fd = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    "import rm_gallery.core.engine.processes.member as member; member.main(fd)"
)
BEAT_SECONDS = 0.25
"""How often this process looks whether the run was stopped, and a member says that it is there."""
SILENT_SECONDS = 60.0
"""A member that says nothing for so long after the deadline of what it has is taken for stuck."""
AHEAD_SECONDS = 0.05
"""What a member gets through in this time is sent ahead, so that it never waits for work."""
_STARTS = 3
"""So many members may die before they are ready until that is taken for how it is."""


class MemberChannel(asyncio.Protocol):
    """Messages between two processes of this library over a socket they share: a frame is the pickle of a list of them.

    Args:
        loop: where it lives.
        take: is handed each message.
        lost: is called once, when the other side is gone.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[Any], None], lost: Callable[[], None]) -> None:
        self._loop, self._take, self._lost = loop, take, lost
        self._transport: asyncio.Transport | None = None
        self._out: list[Any] = []
        self._due = False
        self._in = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to send."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the other side is gone."""
        self._transport = None
        self._lost()

    def data_received(self, data: bytes) -> None:
        """Hand on the messages that are whole."""
        self._in += data
        while len(self._in) >= REQUEST.size:
            end = REQUEST.size + REQUEST.unpack_from(self._in)[0]
            if len(self._in) < end:
                return
            frame = bytes(memoryview(self._in)[REQUEST.size : end])
            del self._in[:end]
            for message in pickle.loads(frame):
                self._take(message)

    def say(self, message: Any) -> None:
        """Send a message with all others of this turn of the loop; on the loop."""
        self._out.append(message)
        if not self._due:
            self._due = True
            self._loop.call_soon(self._flush)

    def post(self, message: Any) -> None:
        """`say` from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever would hear of it
            self._loop.call_soon_threadsafe(self.say, message)

    def _flush(self) -> None:
        self._due = False
        if self._transport is not None and self._out:
            out, self._out = self._out, []
            body = pickle.dumps(out, pickle.HIGHEST_PROTOCOL)
            self._transport.writelines([REQUEST.pack(len(body)), body])

    def close(self) -> None:
        """Send what is pending and hang up."""
        self._flush()
        if self._transport is not None:
            self._transport.close()


@dataclass(frozen=True)
class Crew:
    """What members are begun with."""

    processes: int
    batch: tuple[type, dict[str, Any]]
    """Class and keywords of the batch that each of them makes for itself."""
    options: RunOptions
    """How the run goes; its options are for all members together."""
    known: Mapping[str, Any] = field(default_factory=dict)
    """What jobs hold and members have already, by the name it goes by."""
    asked: Callable[[Any, set[str]], None] | None = None
    """Hears (what a unit's jobs are of, hashes of what judges were asked); None where nobody wants to know."""


known_here: dict[str, Any] = {}
"""In a member, what jobs hold and it has already, by name."""


def known(name: str) -> Any:
    """What is known by this name; what a pickled job holds instead of it."""
    return known_here[name]


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

    process: subprocess.Popen[bytes]
    socket: socket.socket
    channel: MemberChannel = field(init=False)
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
    in_flight: int = 0

    def kill(self) -> None:
        """End it and whatever it began in its group."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, KILL)
        assert self.process.stdin is not None
        self.process.stdin.close()


class ProcessLane(LoopLane):
    """Runs units in processes of their own: each gets what it is through with soon, and what a dead one had goes to the others.

    A unit whose member died is tried again, and the second time by itself; where that one dies, too, it has killed it.
    """

    def __init__(self, work: Work, max_workers: int, crew: Crew) -> None:
        if not hasattr(socket, "AF_UNIX") or os.name != "posix":
            raise ConfigError("processes= needs a POSIX system; leave it out here: one process judges then.")
        if not sys.executable:
            raise ConfigError("processes= needs the path of the Python interpreter, but sys.executable is empty.")
        super().__init__(work, max_workers)
        self._crew = crew
        self._setup = _packed(crew, work)
        self._names = {id(value): name for name, value in crew.known.items()}
        self._each = -(-max_workers // crew.processes)
        """Jobs that one member has in flight at most."""
        self._waiting: deque[Unit] = deque()
        self._suspects: deque[Unit] = deque()
        """Units that two members died with: each is tried by itself."""
        self._deaths: Counter[int] = Counter()
        self._starts = 0
        self._members: set[_Member] = set()
        self._said: set[tuple[str, str]] = set()
        self._over = False
        self._stopped = False
        self._desk = Desk(work.control, lambda member, *said: member.channel.say(("said", *said)))
        self._beaten = time.monotonic()
        limits = [(b.max_calls, b.max_tokens, b.max_cost) for _, b in self._desk.budgets()]
        self._limited = any(limit is not None for each in limits for limit in each)
        for _ in range(crew.processes):
            self._start()
        work.control.hold("crew", lambda: lambda: library_loop.post(self._loop, self._close))
        library_loop.post(self._loop, self._beat)

    # -- members -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, str(theirs.fileno()), *(entry for entry in sys.path if isinstance(entry, str))],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=ONE_THREAD_EACH | os.environ,
                # A group of its own: Ctrl-C in a terminal is the parent's to handle, and killing takes grandchildren along.
                start_new_session=True,
            )
        ours.setblocking(False)
        member = _Member(process, ours)
        self._members.add(member)
        library_loop.post(self._loop, lambda: self._connect(member))

    def _connect(self, member: _Member) -> None:
        member.channel = MemberChannel(self._loop, lambda message: self._hear(member, message), lambda: self._lost(member))
        member.channel.say(("setup", self._setup, self._each, self._limited))
        task = self._loop.create_task(self._loop.create_connection(lambda: member.channel, sock=member.socket))

        def connected(task: asyncio.Task[Any]) -> None:
            if task.cancelled() or task.exception() is not None:
                self._lost(member)

        task.add_done_callback(connected)

    def _hear(self, member: _Member, message: tuple[Any, ...]) -> None:
        member.silent = 0
        kind, *args = message
        if kind == "done":
            self._done(member, *args)
        elif kind == "ask":
            self._desk.asked(member, *args)
        elif kind == "tell":
            self._told(member, *args)
        elif kind == "ready":
            member.ready = True
            self._give(member)
        elif kind == "beat":
            self._counted(member, *args)
        elif kind == "error":
            self._end(args[0])

    def _told(self, member: _Member, what: str, args: tuple[Any, ...]) -> None:
        control = self._work.control
        if what == "stop":
            reason, halt, by = args
            control.stop(reason, halt=halt, by=by)
            self._pass_on_stop()
        elif what == "trace":
            if control.trace is not None:
                control.trace(*args)
        elif what == "served":
            control.note_served(*args)
        elif what == "log":  # each member says it, and one is enough
            if args not in self._said:
                self._said.add(args)
                logger.log(*args)
        else:
            self._desk.told(member, what, args)

    def _counted(self, member: _Member, counts: Mapping[Any, int], in_flight: int) -> None:
        control = self._work.control
        for name, more in counts.items():
            control.count(name, more)
        control.in_flight += in_flight - member.in_flight
        member.in_flight = in_flight

    def _lost(self, member: _Member) -> None:
        """A member is gone: others get what it had."""
        if member not in self._members:
            return
        self._members.discard(member)
        self._counted(member, {}, 0)
        self._desk.gone(member)
        member.kill()
        if member.closing or self._over:
            return
        code = member.process.wait()
        if not member.ready:
            self._starts += 1
            if self._starts >= _STARTS:
                self._end(ConfigError(f"Worker processes do not start: {describe_exit(code)}. What they said stands above."))
                return
        for number, unit in reversed(member.open.items()):
            self._deaths[number] += 1
            if member.alone:
                message = f"The process that judged this sample died ({describe_exit(code)}), and so did two before it."
                self._settle(unit, [failed("crashed", message, "rule")] * len(unit.jobs))
            else:
                (self._waiting if self._deaths[number] == 1 else self._suspects).appendleft(unit)
        if not self._stopped:
            logger.warning("A worker process died ({}); another one takes its place.", describe_exit(code))
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
            if member.open and deadline is not None and member.silent * BEAT_SECONDS > deadline + SILENT_SECONDS:
                member.kill()
        pace = sum(member.pace for member in self._members)
        if pace:
            self._work.cost.learn(1.0 / pace)
        self._pass_on_stop()
        self._give_all()
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _pass_on_stop(self) -> None:
        control = self._work.control
        why = control.why_stopped
        if why is None or self._stopped:
            return
        self._stopped = True
        for member in self._members:
            member.channel.say(("stop", why, control.halted, control.who_stopped))
        self._give_all()

    # -- units -------------------------------------------------------------------------------------------------------

    def _add(self, units: list[Unit]) -> None:
        if not library_loop.is_current(self._loop):
            self._closed()
            return
        self._open_units += len(units)
        for unit in units:
            if unit.plan():
                self._waiting.append(unit)
            else:
                self._complete(unit)
        self._give_all()

    def _give_all(self) -> None:
        control = self._work.control
        if self._stopped:
            while self._waiting or self._suspects:
                unit = (self._waiting or self._suspects).popleft()
                self._settle(unit, [stopped_outcome(control.why_stopped or "", control.who_stopped)] * len(unit.jobs))
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
            said = DataError(f"The sample cannot be sent to a worker process: {type(error).__name__}: {error!s:.200}.")
            self._settle(unit, [outcome_of_error(said)] * len(unit.jobs))
            return
        member.open[unit.index] = unit
        member.channel.say(("unit", unit.index, jobs))

    def _pickled(self, jobs: list[Any]) -> bytes:
        if not self._names:
            return pickle.dumps(jobs, pickle.HIGHEST_PROTOCOL)
        file = io.BytesIO()
        _Pickler(file, self._names).dump(jobs)
        return file.getvalue()

    def _done(self, member: _Member, results: list[tuple[int, tuple[bytes, list[tuple[int, set[str]]]]]]) -> None:
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

    def _settle(self, unit: Unit, outcomes: list[Outcome[Any]]) -> None:
        unit.outcomes, unit.remaining = outcomes, 0
        self._deaths.pop(unit.index, None)
        self._complete(unit)

    def _end(self, error: BaseException) -> None:
        self._waiting.clear()
        self._suspects.clear()
        super()._end(error)
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
            self._counted(member, {}, 0)
            self._desk.gone(member)
            if hasattr(member, "channel"):
                member.channel.close()
            member.kill()
        gone, self._members = self._members, set()

        def reap() -> None:
            for member in gone:
                member.process.wait()

        library_loop.start_thread(reap)


def _packed(crew: Crew, work: Work) -> bytes:
    """What a member begins with; ConfigError for what no other process can be told."""
    control, options = work.control, crew.options
    cls, keywords = crew.batch
    told = replace(options, control=None, budget=None, run_dir=None, trace=False, manifest=None, progress=False, processes=None)
    settings = {
        "repeat": control.repeat,
        "cache": control.use_cache,
        "retry": control.retry,
        "offline": control.offline,
        "max_outage": control.max_outage,
        "fail_fast": None if control.fail_fast is None else control.fail_fast.limit,
        "trace": control.trace is not None,
        "asked": crew.asked is not None,
    }
    try:
        with with_keys():
            return pickle.dumps((cls, keywords, told, settings), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ConfigError(
            f"What is to judge cannot be sent to a worker process ({type(error).__name__}: {error!s:.300}). Functions and classes "
            "have to stand at the top of a module; or leave out processes=."
        ) from error
