"""The process that listens: it takes as many connections as the system allows, and ends without
losing one.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rm_gallery.core.utils.errors import ConfigError, MissingExtra
from rm_gallery.serve.door import (
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
MAX_HEAD = 64 << 10
"""Bytes of a request's head, of its trailers, and of anything else that is neither body nor whole.
"""
MAX_PIPELINED = 256
"""Requests of one connection that wait for the reply to the one before."""


def run_server(
    app: Any,
    settings: ServeSettings,
    ready: Callable[[str, str], None],
    listening: socket.socket | None = None,
    beat: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is told the URL once requests are taken, and that of
    the status port or "". `listening` is a socket of the port, where there is one already; `beat`
    is called every second.

    At the first signal requests are still answered for `settings.linger` seconds, each with the
    word that its connection closes, and /health says so; then new ones are refused with 503 until
    all that came in are answered, and the function returns. A second signal ends it at once.

    Raises:
        ConfigError: nothing can listen there.
        MissingExtra: uvicorn is not installed.
    """
    try:
        import httptools  # noqa: F401 - uvicorn alone reads heads of any size
        import uvicorn
    except ImportError as error:
        raise MissingExtra("uvicorn[standard]", "serve", "The server") from error
    door: RequestPipeline = app.state.door
    ending = _Ending(door)

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready(url_of(self.servers[0].sockets[0], settings), status)

        def handle_exit(self, sig: int, frame: Any) -> None:
            if not ending.begin():
                self.should_exit = self.force_exit = True

        async def on_tick(self, counter: int) -> bool:
            door.turned = time.monotonic()
            if beat is not None and counter % TICKS == 0:
                beat()
            return await super().on_tick(counter) or ending.over(
                bool(self.server_state.connections)
            )

    config = uvicorn.Config(
        app,
        http=_protocol(settings.read_timeout),
        ws="none",
        host=settings.host,
        port=settings.port,
        log_level="critical",
        access_log=False,
        lifespan="on",
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        limit_concurrency=_most_connections(),
        timeout_keep_alive=max(1, round(settings.keep_alive)),
        timeout_graceful_shutdown=max(1, round(settings.deadline)),
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
    _relax_gc()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with status_served(app.state.status, settings) as status:
            Server(config).run(None if listening is None else [listening])
    except SystemExit as error:
        raise ConfigError(
            f"Nothing can listen on {settings.host}:{settings.port}; look at --host, or give "
            f"another --port."
        ) from error
    except OSError as error:
        raise ConfigError(
            f"The server cannot start: {error}; look at --host, --port and the certificate."
        ) from error


StatusSource = Callable[[], Awaitable[tuple[int, Any]]]
"""What gives a status and a value, as `RequestPipeline.show` takes it."""
TICKS = 10
"""Of uvicorn's loop in a second."""
STATUS_CONNECTIONS = 256
STATUS_SECONDS = 5
"""How long who asks for the status may take for a head, or be idle."""


def health_reply(closing: bool, problems: Sequence[str]) -> tuple[int, Any]:
    """The reply of /health."""
    status = "closing" if closing else "unhealthy" if problems else "ok"
    return 200 if status == "ok" else 503, {"status": status, "problems": list(problems)}


async def answer_status(
    door: RequestPipeline,
    health: StatusSource,
    metrics: StatusSource,
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
    import uvicorn

    if settings.status_port is None:
        yield ""
        return
    try:
        family = socket.getaddrinfo(settings.host, settings.status_port, type=socket.SOCK_STREAM)[
            0
        ][0]
        listening = socket.create_server((settings.host, settings.status_port), family=family)
    except OSError as error:
        what = (
            f"Nothing can listen on {settings.host}:{settings.status_port}; look at --host, or "
            f"give another --status-port."
        )
        raise ConfigError(what) from error
    config = uvicorn.Config(
        answer, interface="asgi3", http=_protocol(STATUS_SECONDS), limit_concurrency=STATUS_CONNECTIONS, lifespan="off",
        ws="none", log_level="critical", access_log=False, server_header=False, date_header=False,
        timeout_keep_alive=STATUS_SECONDS, timeout_graceful_shutdown=1, ssl_certfile=settings.certificate, ssl_keyfile=settings.key,
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


class _Bounded(asyncio.Protocol):
    """Uvicorn's HTTP, which comes behind it, with bounds on what a connection holds, and on how
    long a head takes or a reply waits to be read, before anybody's token is seen.
    """

    seconds: float
    loop: Any
    transport: Any
    pipeline: Any
    url: bytes
    headers: list[tuple[bytes, bytes]]
    _pending: int
    """Bytes since the last whole head or piece of a body."""
    _oversized = False
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head_done()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_done()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if _idle(self):
            self._await_head()
        self._pending += len(data)
        super().data_received(data)
        if self._pending > MAX_HEAD or len(self.pipeline) > MAX_PIPELINED:
            self._refuse()

    def pause_writing(self) -> None:
        """Who does not read a reply holds its room for as long as a body may take, and no longer."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def on_headers_complete(self) -> None:
        self._head_done()
        if (
            sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url)
            > MAX_HEAD
        ):
            self._oversized = True  # all of it came at once
            # what uvicorn makes of it is `send_400_response`
            raise ValueError("the head is too large")
        super().on_headers_complete()  # type: ignore[misc]

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)  # type: ignore[misc]

    def send_400_response(self, msg: str) -> None:
        if self._oversized:
            self._refuse()
        else:
            super().send_400_response(msg)  # type: ignore[misc]

    def _refuse(self) -> None:
        self.transport.writelines([TOO_LARGE] * _idle(self))
        self.transport.close()

    def _await_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.seconds, self.transport.close)

    def _head_done(self) -> None:
        self._pending = 0
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _protocol(seconds: float) -> Any:
    """The class of connections whose clients may take so many seconds for a head, and to read a
    reply.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    return type("Protocol", (_Bounded, HttpToolsProtocol), {"seconds": seconds})


def _idle(protocol: Any) -> bool:
    """Whether nothing is being answered, so that what comes is the next head."""
    return protocol.cycle is None or protocol.cycle.response_complete


TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: "
    b"close\r\n\r\n"
)


class _Ending:
    """From the first signal to the moment when nothing is lost by leaving."""

    def __init__(self, door: RequestPipeline) -> None:
        self._door = door
        self._began: float | None = None

    def begin(self) -> bool:
        """Begin to end; False when that was begun before."""
        if self._began is not None:
            return False
        self._began = time.monotonic()
        self._door.closing = True
        return True

    def over(self, connected: bool) -> bool:
        """Whether the server may leave; refuses requests once the time for latecomers is over."""
        if self._began is None:
            return False
        settings = self._door.settings
        passed = time.monotonic() - self._began
        if passed < settings.linger and connected:
            return False
        self._door.refusing = True
        if passed > settings.linger + settings.read_timeout + settings.deadline:
            return True
        return not self._door.metrics.in_flight and (
            passed > settings.linger + REFUSE_SECONDS or not connected
        )


def _most_connections() -> int | None:
    """Connections the system lets this process have, with its soft limit raised to the hard one;
    None where unknown.
    """
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (ValueError, OSError):  # not allowed: what there is must do
            pass
    return max(64, soft - OTHER_FILES)


def _relax_gc() -> None:
    """Look for garbage in cycles rarely: requests make none, and looking through all there is takes
    longer than scoring.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
