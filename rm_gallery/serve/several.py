"""Several server processes behind one port: who begins them keeps the limits, adds up the counters,
and replaces one that dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rm_gallery.core.engine.processes.places import MemberChannel

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls import coordinator
from rm_gallery.core.engine.calls.coordinator import Desk, Elsewhere
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.processes.worker_process import describe_exit
from rm_gallery.core.utils.errors import ConfigError, logger
from rm_gallery.serve.door import RequestPipeline, ServeSettings
from rm_gallery.serve.handler import Handler
from rm_gallery.serve.listen import answer_status, health_reply, status_served
from rm_gallery.serve.metrics import added
from rm_gallery.serve.tokens import TokenFile, TokenRates

VARIABLE = "_RM_GALLERY_SERVE_PART"
"""How a part knows itself: the descriptors of its two sockets, and how many parts there are."""
BACKLOG = 8192
EXPOSE_SECONDS = 2.0
"""So long the counters of one part are waited for."""
SILENT_SECONDS = 3.0
"""So long a part may say nothing before it counts as one that does not answer."""
AGAIN_SECONDS = 1.0
"""After so long a part that died is replaced."""
SHARED = ("max_workers", "max_waiting", "max_bytes")
"""Settings that are for all parts together."""


def share(settings: Mapping[str, Any], parts: int) -> dict[str, Any]:
    """The settings of one of so many parts."""
    shared = {
        name: -(-value // parts) if name in SHARED and value else value
        for name, value in settings.items()
    }
    # which is that of who begins them
    return {name: value for name, value in shared.items() if name != "status_port"}


class Part:
    """One server process of several: it has a socket of the port, and asks the one that began it
    for what is true for all.
    """

    def __init__(self, listening: int, channel: int, parts: int) -> None:
        self.parts = parts
        self.socket = socket.socket(fileno=listening)
        self._channel_socket = socket.socket(fileno=channel)
        self._channel_socket.setblocking(False)
        self._loop = library_loop.get_loop()
        self.expose: Callable[[], bytes] = bytes
        """The counters of this process, in Prometheus' text format."""
        self.leave: Callable[[], None] = lambda: os.kill(os.getpid(), 15)
        """Ends this server, when the one that began it is gone."""
        self._channel: MemberChannel = library_loop.run(self._connected())
        coordinator.elsewhere = self._there

    async def _connected(self) -> MemberChannel:
        channel = MemberChannel(self._loop, self._hear, lambda: self.leave())
        self._there = Elsewhere(channel.say, limited=False)
        await self._loop.create_connection(lambda: channel, sock=self._channel_socket)
        return channel

    def _hear(self, message: tuple[Any, ...]) -> None:
        kind, *args = message
        if kind == "said":
            self._there.said(*args)
        elif kind == "expose":
            self._channel.say(("exposed", *args, self.expose()))

    def ready(self, url: str, _: str = "") -> None:
        """Say that requests are taken."""
        self._channel.post(("ready", url))

    def well(self, problems: list[str]) -> None:
        """Say that requests are being answered, and what does not work."""
        self._channel.post(("well", problems))

    async def metrics(self) -> bytes:
        """The counters of all parts together; from any event loop."""
        text: bytes = await library_loop.bridge(self._there.ask(lambda _: None, "metrics"))
        return text

    async def spend(self, id: str, per_minute: int, n: int, had: int) -> float:
        """As `TokenRates.spend`, where the rates of all parts are kept; from any event loop."""
        wait: float = await library_loop.bridge(
            self._there.ask(lambda _: None, "spend", id, per_minute, n, had)
        )
        return wait


def part() -> Part | None:
    """What this process is a part of; None where it is a server of its own."""
    given = os.environ.pop(VARIABLE, "")
    return Part(*map(int, given.split(":"))) if given else None


@dataclass(eq=False)
class _Running:
    """One part as the process that began it sees it."""

    place: int
    process: subprocess.Popen[bytes]
    channel: MemberChannel = field(init=False)
    exposing: dict[str, asyncio.Future[bytes]] = field(default_factory=dict)
    ready: bool = False
    last_heard: float = 0.0
    """When it last said that it is well, and what of it is not."""
    problems: list[str] = field(default_factory=list)


class ServerParts:
    """The parts of one server.

    Raises ConfigError: nothing can listen there, or this is no POSIX system.
    """

    def __init__(self, settings: ServeSettings, parts: int, ready: Callable[[str], None]) -> None:
        if os.name != "posix" or not hasattr(socket, "SO_REUSEPORT"):
            raise ConfigError(
                "--processes needs a POSIX system with SO_REUSEPORT; leave it out: one process "
                "serves then."
            )
        self._loop = library_loop.get_loop()
        self._ready = ready
        self._announced = False
        self._ending = threading.Event()
        self._sockets = _listening(settings.host, settings.port, parts)
        self._coordinator = Desk(
            RunControl(fail_fast=None),
            lambda running, *answer: running.channel.say(("said", *answer)),
        )
        self._running: dict[int, _Running] = {}
        self.rates = TokenRates()
        self.over = threading.Event()
        """Set when no part is left."""
        for place in range(parts):
            self._start_part(place)

    def _start_part(self, place: int) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        listening = self._sockets[place]
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "rm_gallery", *sys.argv[1:]],
                stdin=subprocess.DEVNULL,
                pass_fds=[listening.fileno(), theirs.fileno()],
                env={
                    **os.environ,
                    VARIABLE: f"{listening.fileno()}:{theirs.fileno()}:{len(self._sockets)}",
                },
                # Ctrl-C in a terminal is for the one that began it to pass on
                start_new_session=True,
            )
        running = _Running(place, process)
        self._running[place] = running
        running.channel = MemberChannel(
            self._loop, lambda message: self._hear(running, message), lambda: self._lost(running)
        )

        def connect() -> None:
            task = self._loop.create_task(
                self._loop.create_connection(lambda: running.channel, sock=ours)
            )
            task.add_done_callback(running.channel.failed)

        library_loop.post(self._loop, connect)

    def _hear(self, running: _Running, message: tuple[Any, ...]) -> None:
        kind, *args = message
        if kind == "ready":
            running.ready = True
            if not self._announced and all(each.ready for each in self._running.values()):
                self._announced = True
                self._ready(*args)
        elif kind == "ask" and args[1] == "metrics":
            self._adding = self._loop.create_task(self._metrics(running, args[0]))
        elif kind == "ask" and args[1] == "spend":
            running.channel.say(("said", args[0], None, self.rates.spend(*args[2])))
        elif kind == "ask":
            self._coordinator.asked(running, *args)
        elif kind == "tell":
            self._coordinator.told(running, *args)
        elif kind == "well":
            running.last_heard, (running.problems,) = time.monotonic(), args
        elif kind == "exposed":
            token, text = args
            waiting = running.exposing.pop(token, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(text)

    async def _metrics(self, asking: _Running, number: int) -> None:
        asking.channel.say(("said", number, None, await self.exposed()))

    async def exposed(self) -> bytes:
        """The counters of all parts as one; on the library's loop."""
        token, waited = secrets.token_hex(8), []
        for running in self._running.values():
            running.exposing[token] = future = self._loop.create_future()
            running.channel.say(("expose", token))
            waited.append(future)
        if waited:
            await asyncio.wait(waited, timeout=EXPOSE_SECONDS)
        return added(
            future.result() for future in waited if future.done() and not future.cancelled()
        )

    def problems(self) -> list[str]:
        """What does not work, as the parts last said, and how many of them say nothing; from any
        thread.
        """
        since = time.monotonic() - SILENT_SECONDS
        well = [running for running in list(self._running.values()) if running.last_heard > since]
        problems = sorted({problem for running in well for problem in running.problems})
        n = len(self._sockets)
        return (
            problems
            if len(well) == n
            else [*problems, f"{n - len(well)} of {n} server processes do not answer"]
        )

    @property
    def ending(self) -> bool:
        """Whether all are told to leave."""
        return self._ending.is_set()

    def _lost(self, running: _Running) -> None:
        """A part is gone: its socket is kept here, with the connections that wait on it, for the
        next.
        """
        if self._running.get(running.place) is not running:
            return
        del self._running[running.place]
        self._coordinator.gone(running)
        library_loop.start_thread(lambda: self._replace(running))

    def _replace(self, running: _Running) -> None:
        code = running.process.wait()
        if not self._ending.is_set() and not running.ready:
            self._ending.set()  # it cannot begin, and said why: neither can another
            self.end()
        if self._ending.is_set():
            if not self._running:
                self.over.set()
            return
        logger.warning(
            "A server process died ({}); another one takes its place.", describe_exit(code)
        )
        if self._ending.wait(AGAIN_SECONDS):
            if not self._running:
                self.over.set()
        else:
            self._start_part(running.place)

    def end(self) -> None:
        """Have every part answer what it has, and leave."""
        self._ending.set()
        for running in list(self._running.values()):
            with contextlib.suppress(ProcessLookupError):
                running.process.terminate()
        if not self._running:
            self.over.set()

    def kill(self) -> None:
        """Leave at once."""
        for running in list(self._running.values()):
            running.process.kill()

    def close(self) -> None:
        """Let the port go."""
        for each in self._sockets:
            each.close()


def _listening(host: str, port: int, parts: int) -> list[socket.socket]:
    """As many sockets of one port: the system spreads connections over them."""
    sockets: list[socket.socket] = []
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        for _ in range(parts):
            made = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if not sockets[
                1:
            ]:  # nobody else listens there already, which the next option would hide
                made.bind((host, port))
                port = made.getsockname()[1]
                made.close()
                sockets[0] = made = socket.socket(family, socket.SOCK_STREAM)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            made.bind((host, port))
            made.listen(BACKLOG)
    except OSError as error:
        for each in sockets:
            each.close()
        raise ConfigError(
            f"Nothing can listen on {host}:{port}; look at --host, or give another --port."
        ) from error
    return sockets


def supervise(
    settings: ServeSettings,
    parts: int,
    ready: Callable[[str, str], None],
    tokens: TokenFile | None = None,
) -> None:
    """Serve in several processes until SIGTERM or Ctrl-C; a second one ends it at once. `ready` is
    as in `run_server`.
    """
    status = ""
    running = ServerParts(settings, parts, lambda url: ready(url, status))

    async def spend(*given: Any) -> float:
        return running.rates.spend(*given)

    async def health() -> tuple[int, Any]:
        return health_reply(running.ending, running.problems())

    async def metrics() -> tuple[int, Any]:
        return 200, await library_loop.bridge(running.exposed())

    answer = partial(
        answer_status, RequestPipeline(Handler({}), settings, tokens, spend), health, metrics
    )
    try:
        with status_served(answer, settings) as status:
            try:
                while not running.over.wait(0.5):
                    pass
            except KeyboardInterrupt:
                running.end()
                while not running.over.wait(0.5):
                    pass
    except (ConfigError, KeyboardInterrupt) as error:
        running.kill()
        if isinstance(error, ConfigError):
            raise
    finally:
        running.close()
