"""Sockets of the judge: HTTP/1.1 requests in, timed and possibly broken replies out, and a port
that can vanish for a while.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from http.client import responses
from typing import Any
from urllib.parse import parse_qsl, unquote

import orjson

from tests.support.judge_server_app import JudgeApp, Reply
from tests.support.judge_server_stats import Counts, Request

_BACKLOG = 4096
_DRIP_PIECES = 10
_LINGER_ZERO = struct.pack("ii", 1, 0)


def next_request(buffer: bytearray) -> Request | None:
    """The next whole request and its bytes off the buffer, or None while some of it is missing."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, *lines = buffer[:end].decode("latin-1").lstrip("\r\n").split("\r\n")
    parts = first.split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    assert parts[2] == "HTTP/1.1" and "transfer-encoding" not in headers, (
        "no request that this server reads"
    )
    used = end + 4 + int(headers.get("content-length", "0"))
    if len(buffer) < used:
        return None
    body = bytes(buffer[end + 4 : used])
    del buffer[:used]
    path, _, query = parts[1].partition("?")
    pairs = dict(parse_qsl(query, keep_blank_values=True)) if query else {}
    return Request(parts[0], unquote(path), pairs, headers, body)


def reply_head(reply: Reply, *, close: bool) -> bytes:
    """The bytes before a reply's body; Content-Type is JSON unless the headers say otherwise."""
    headers = {
        "Content-Type": "application/json",
        **reply.headers,
        "Content-Length": len(reply.body),
    }
    if close:
        headers["Connection"] = "close"
    lines = [f"HTTP/1.1 {reply.status} {responses.get(reply.status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class JudgeConnection(asyncio.Protocol):
    """One client connection; answers one request at a time, timed by `call_later` without a task."""

    transport: asyncio.Transport

    def __init__(self, app: JudgeApp, listener: Listener, *, control_only: bool) -> None:
        self._app = app
        self._listener = listener
        self._control_only = control_only
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._close = False
        self._counts: Counts | None = None
        self._number = 0
        self._reply: Reply | None = None
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ending = "client_closed"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._listener.connections.add(self)
        if not self._control_only:
            self._app.stats.connections_open += 1
            self._app.stats.counts.connections_opened += 1
        if self._listener.away:  # accepted a moment before the port vanished
            self.reset_by_peer(self._listener.away)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._ended(self._ending)
        if not self._control_only:
            self._app.stats.connections_open -= 1

    def _ended(self, outcome: str) -> None:
        if self._counts is not None:
            self._app.stats.in_flight -= 1
            self._counts.by_outcome[outcome] += 1
            self._counts = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._advance()

    def _advance(self) -> None:
        if self._reply is not None or self.transport.is_closing():
            return
        request = next_request(self._buffer)
        if request is None:
            return
        self._close = request.headers.get("connection", "").lower() == "close"
        if request.path.startswith("/_"):
            self._send(self._control(request))
        else:
            self._serve(request)

    def _control(self, request: Request) -> Reply:
        try:
            arguments: dict[str, Any] = {
                **request.query,
                **(orjson.loads(request.body) if request.body else {}),
            }
            answer = self._app.control(request.path[2:], arguments)
        except (ValueError, TypeError, KeyError, OSError) as error:
            return Reply(
                400, orjson.dumps({"error": {"message": f"{type(error).__name__}: {error}"}})
            )
        return Reply(200, orjson.dumps(answer, option=orjson.OPT_NON_STR_KEYS))

    def _serve(self, request: Request) -> None:
        self._due = self._loop.time()
        self._counts = self._app.stats.arrived(request)
        self._number = self._counts.requests
        self._reply = self._app.respond(request, self._number)
        self._due += self._reply.delay
        if self._reply.delay > 0:
            self._timer = self._loop.call_at(self._due, self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        reply, now = self._reply, self._loop.time()
        assert reply is not None
        if now < self._app.stalled_until:
            self._due = self._app.stalled_until
            self._timer = self._loop.call_at(self._due, self._deliver)
            return
        self._app.stats.late(now - self._due)
        if reply.delivery == "whole":
            self._send(reply)
        elif reply.delivery == "drip":
            self.transport.write(reply_head(reply, close=False))
            self._drip(reply, 0)
        elif reply.delivery == "drop_mid":
            self._ending = "dropped_mid_body"
            self.transport.write(
                reply_head(reply, close=False) + reply.body[: len(reply.body) // 2]
            )
            self.transport.close()
        elif self._number % 2:
            self.reset_by_peer("dropped")
        else:
            self._ending = "dropped"
            self.transport.close()

    def _drip(self, reply: Reply, piece: int) -> None:
        size = -(-len(reply.body) // _DRIP_PIECES)
        self.transport.write(reply.body[piece * size : (piece + 1) * size])
        if (piece + 1) * size >= len(reply.body):
            self._finish(reply.status)
            return
        pause = self._app.config.faults.drip_s / _DRIP_PIECES
        self._timer = self._loop.call_later(pause, self._drip, reply, piece + 1)

    def reset_by_peer(self, ending: str) -> None:
        """End the connection with RST, so that the client sees a reset and not an orderly end."""
        self._ending = ending
        sock = self.transport.get_extra_info("socket")
        if sock is not None and not self.transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        self.transport.abort()

    def _send(self, reply: Reply) -> None:
        self.transport.write(reply_head(reply, close=self._close) + reply.body)
        self._finish(reply.status)

    def _finish(self, status: int) -> None:
        self._ended(str(status))
        self._reply = self._timer = None
        if self._close:
            self.transport.close()
        elif self._buffer:
            self._loop.call_soon(self._advance)


class Listener:
    """The listening socket, which can vanish for a while and come back on the same port."""

    def __init__(self, app: JudgeApp, port: int, *, control_only: bool = False) -> None:
        self._app = app
        self._control_only = control_only
        self.connections: set[JudgeConnection] = set()
        self.away = ""
        self._listening: socket.socket | None = None
        self._accepting: set[asyncio.Task[Any]] = set()
        self._return: asyncio.Task[None] | None = None
        self._first = _bound(port)
        self.port: int = self._first.getsockname()[1]
        # a second socket bound but never listening keeps the port from being given to somebody else
        # meanwhile
        self._guard = _bound(self.port) if sys.platform.startswith("linux") else None

    def start(self, sock: socket.socket | None = None) -> None:
        self.away = ""
        self._listening = sock or self._first
        self._listening.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(self._listening, self._accept, self._listening)

    def _accept(self, listening: socket.socket) -> None:
        """Take who waits. A `asyncio.Server` that closes leaves behind, open, what it accepted a
        moment before.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            sock.setblocking(False)
            task = loop.create_task(loop.connect_accepted_socket(self._connection, sock))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    def _connection(self) -> JudgeConnection:
        return JudgeConnection(self._app, self, control_only=self._control_only)

    def go_away(self, seconds: float) -> None:
        if self._return is None or self._return.done():
            self._hang_up("outage")
            self._return = asyncio.get_running_loop().create_task(self._come_back(seconds))

    async def _come_back(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        while True:
            try:
                sock = _bound(self.port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            self.start(sock)
            return

    def _hang_up(self, ending: str) -> None:
        self.away = ending
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for connection in list(self.connections):
            connection.reset_by_peer(ending)

    async def close(self) -> None:
        if self._return is not None:
            self._return.cancel()
            await asyncio.gather(self._return, return_exceptions=True)
        self._hang_up("server_stopped")
        self._first.close()
        if self._guard is not None:
            self._guard.close()
        await asyncio.gather(*self._accepting)
        while self.connections:
            await asyncio.sleep(0)


def _bound(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock
