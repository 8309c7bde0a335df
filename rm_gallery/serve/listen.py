"""The processes that listen: each takes as many connections as the system allows, and ends without
losing one.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import multiprocessing
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from rm_gallery.core.engine.pool import describe_exit
from rm_gallery.core.utils.errors import ConfigError, MissingExtra
from rm_gallery.core.utils.file import most_open_files
from rm_gallery.core.utils.log import logger
from rm_gallery.serve.door import (
    Found,
    Read,
    Receive,
    RequestPipeline,
    Scope,
    ServeSettings,
    refuse,
    request_id_of,
)
from rm_gallery.serve.formats import Refused
from rm_gallery.serve.policy import Send, guarded

BACKLOG = 8192
"""Connections that wait to be accepted; the system may allow fewer."""
REFUSE_SECONDS = 0.3
"""How long requests are refused before nobody listens any more: who comes late reads why."""
SWITCH_SECONDS = 0.001
"""How long one thread may keep the others waiting: a request passes through three, and with 5 ms
each would feel it.
"""
OTHER_FILES = 256
"""Open files that are no connections."""
TICK_SECONDS = 0.1
HUNG_SECONDS = 15
"""A process that says nothing for so long, also while it starts, is replaced."""
STARTUP_FAILURE = 3
"""The exit code, uvicorn's, of a process that cannot start, and neither could another."""


def run_server(app: Any, settings: ServeSettings, ready: Callable[[str, str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is told the URL once requests are taken, and that of
    the status port or "".

    At the first signal requests are still answered for `settings.linger` seconds, each with the
    word that its connection closes, and /health says so; then new ones are refused with 503 until
    all that came in are answered, and the function returns. A second signal ends it at once.

    Raises:
        ConfigError: nothing can listen there.
        MissingExtra: uvicorn is not installed.
    """
    config = _config(app, settings)
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready(url_of(self.servers[0].sockets[0], settings), status)

    app.state.owns_process = threading.current_thread() is threading.main_thread()
    with _starting(settings), status_served(app.state.status, settings) as status:
        Server(config).run()


def run_processes(
    make_app: Callable[[], Any],
    settings: ServeSettings,
    processes: int,
    ready: Callable[[str, str], None],
) -> None:
    """Serve in several processes behind one port, as `run_server` does in one: uvicorn starts them
    and replaces one that dies. Every limit and counter is each process's own.

    Args:
        make_app: makes the application in each process; it is pickled.
        settings: of each process; without a `status_port`, which could answer for none of them.
        processes: how many.
        ready: as in `run_server`, once the first process takes requests.

    Raises:
        ConfigError: nothing can listen there, there is a `status_port`, or a process cannot start.
        MissingExtra: uvicorn is not installed.
    """
    if settings.status_port is not None:
        raise ConfigError(
            "--status-port is answered by one process, and there are several; leave out "
            "--status-port or --processes, and ask /health at the server's port."
        )
    config = _config(make_app, settings, factory=True, workers=processes)
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    class Supervisor(Multiprocess):
        announced = False

        def keep_subprocess_alive(self) -> None:
            if any(each.process.exitcode == STARTUP_FAILURE for each in self.processes):
                self.should_exit.set()
                return
            # one of them takes requests, and with it the socket that all share
            if not self.announced and listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                self.announced = True
                ready(url_of(listening, settings), "")
            before = list(self.processes)
            super().keep_subprocess_alive()
            for old, new in zip(before, self.processes, strict=True):
                if old is not new:
                    logger.warning(
                        "A server process died ({}); another one takes its place.",
                        describe_exit(old.process.exitcode or 0),
                    )

    with _starting(settings):
        if settings.certificate:  # which each process would fail to read, again and again
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                settings.certificate, settings.key
            )
        listening = config.bind_socket()
    given: list[Any] = [config, [listening]]
    if "target" in inspect.signature(Multiprocess).parameters:  # uvicorn up to 0.50
        given.insert(1, uvicorn.Server(config).run)
    with listening:
        supervisor = Supervisor(*given)
        supervisor.run()
    if any(each.process.exitcode == STARTUP_FAILURE for each in supervisor.processes):
        raise ConfigError("The server cannot start; its processes said why.")


def _config(app: Any, settings: ServeSettings, **more: Any) -> Any:
    """What uvicorn is given for the server's own port."""
    try:
        from rm_gallery.serve.connection import BoundedConfig
    except ImportError as error:  # httptools too: uvicorn alone reads heads of any size
        raise MissingExtra("uvicorn[standard]", "serve", "The server") from error
    config = BoundedConfig(
        app,
        settings.read_timeout,
        host=settings.host,
        port=settings.port,
        lifespan="on",
        backlog=BACKLOG,
        limit_concurrency=_most_connections(),
        timeout_keep_alive=max(1, round(settings.keep_alive)),
        timeout_graceful_shutdown=max(1, round(settings.deadline)),
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        **more,
    )
    config.timeout_worker_healthcheck = HUNG_SECONDS
    return config


@contextmanager
def _starting(settings: ServeSettings) -> Iterator[None]:
    """Say in one line why a server cannot start."""
    try:
        yield
    except SystemExit as error:
        raise ConfigError(
            f"Nothing can listen on {settings.host}:{settings.port}; look at --host, or give "
            f"another --port."
        ) from error
    except OSError as error:
        raise ConfigError(
            f"The server cannot start: {error}; look at --host, --port and the certificate."
        ) from error


@asynccontextmanager
async def process_owned(door: RequestPipeline) -> AsyncIterator[None]:
    """Around the life of an application in a process of its own that uvicorn serves: signals and
    the death of the process that began this one end the server as `run_server` says.
    """
    _relax_gc()
    sys.setswitchinterval(SWITCH_SECONDS)
    server: Any = signal.getsignal(signal.SIGTERM).__self__  # type: ignore[union-attr]  # uvicorn's
    parent = multiprocessing.parent_process()
    if parent is not None:
        door.metrics.labels = {"process": str(os.getpid())}

    def signalled(number: int, frame: Any) -> None:
        # Ctrl-C reaches every process of a terminal and systemd's SIGTERM every one of a service,
        # and then SIGTERM comes from the parent: that is no second wish
        if door.closing and (parent is None or number == signal.SIGINT):
            server.should_exit = server.force_exit = True
        door.closing = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signalled)
    turning = asyncio.create_task(_turn(door, server, parent))
    yield
    turning.cancel()


async def _turn(door: RequestPipeline, server: Any, parent: Any) -> None:
    """Say that the event loop turns, until the server is to end and nothing is lost by it."""
    settings, began = door.settings, 0.0
    while True:
        now = door.turned = time.monotonic()
        if parent is not None and not parent.is_alive():
            door.closing = True
        if door.closing:
            began = began or now
            passed, connected = now - began, bool(server.server_state.connections)
            door.refusing |= passed >= settings.linger or not connected
            idle = not door.metrics.in_flight and (
                passed > settings.linger + REFUSE_SECONDS or not connected
            )
            late = passed > settings.linger + settings.read_timeout + settings.deadline
            if late or (door.refusing and idle):
                server.should_exit = True
                return
        await asyncio.sleep(TICK_SECONDS)


STATUS_CONNECTIONS = 256
STATUS_SECONDS = 5
"""How long who asks for the status may take for a head, or be idle."""


def health_reply(closing: bool, problems: Sequence[str]) -> Found:
    """The reply of /health."""
    status = "closing" if closing else "unhealthy" if problems else "ok"
    return 200 if status == "ok" else 503, {"status": status, "problems": list(problems)}


async def answer_status(
    door: RequestPipeline,
    health: Read,
    metrics: Read,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """The application behind the port of /health and /metrics; who may see them is as at the
    server's own port.
    """
    send = guarded(send)
    if scope["path"] == "/health":
        await door.show(health, None, scope, receive, send)
    elif scope["path"] == "/metrics":
        await door.show(metrics, "read", scope, receive, send)
    else:
        refused = Refused(404, "not_found", "Here are /health and /metrics.")
        await refuse(send, refused, request_id_of(dict(scope["headers"])))


@contextmanager
def status_served(answer: Any, settings: ServeSettings) -> Iterator[str]:
    """Answer at `settings.status_port` inside the block, where one is wanted: on a thread with an
    event loop of its own. Gives the URL, empty where none is wanted.

    Raises ConfigError where nothing can listen there.
    """
    if settings.status_port is None:
        yield ""
        return
    try:
        family = socket.getaddrinfo(settings.host, settings.status_port, type=socket.SOCK_STREAM)[
            0
        ][0]
        listening = socket.create_server((settings.host, settings.status_port), family=family)
    except OSError as error:
        raise ConfigError(
            f"Nothing can listen on {settings.host}:{settings.status_port}; look at --host, or "
            f"give another --status-port."
        ) from error
    import uvicorn

    from rm_gallery.serve.connection import BoundedConfig

    config = BoundedConfig(
        answer, STATUS_SECONDS, interface="asgi3", limit_concurrency=STATUS_CONNECTIONS, lifespan="off",
        timeout_keep_alive=STATUS_SECONDS, timeout_graceful_shutdown=1,
        ssl_certfile=settings.certificate, ssl_keyfile=settings.key,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, args=([listening],), name="rm-gallery-status", daemon=True
    )
    thread.start()
    try:
        yield url_of(listening, settings)
    finally:
        server.should_exit = True
        thread.join(5.0)


def url_of(listening: Any, settings: ServeSettings) -> str:
    """The URL of a socket that listens."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if settings.certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _most_connections() -> int | None:
    """Connections the system lets this process have; None where unknown."""
    files = most_open_files()
    return None if files is None else max(64, files - OTHER_FILES)


def _relax_gc() -> None:
    """Look for garbage in cycles rarely: requests make none, and looking through all there is takes
    longer than scoring.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
