"""Uvicorn's connections with bounds on what each holds, before anybody's token is seen."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rm_gallery.serve.policy import QUIET

MAX_HEAD = 64 << 10
"""Bytes of a request's head, of its trailers, and of anything else that is neither body nor whole.
"""
MAX_PIPELINED = 256
"""Requests of one connection that wait for the reply to the one before."""
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: "
    b"close\r\n\r\n"
)


class BoundedConfig(uvicorn.Config):
    """Uvicorn's settings for bounded connections, which log nothing.

    Args:
        app: the application, or with `factory` what makes it.
        seconds: how long a client may take for a head, or to read a reply.
        given: settings of uvicorn.
    """

    def __init__(self, app: Any, seconds: float, **given: Any) -> None:
        super().__init__(app, http=_BoundedProtocol, date_header=False, **QUIET, **given)
        self.seconds = seconds


class _BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP, with bounds on what a connection holds, and on how long a head takes or a
    reply waits to be read.
    """

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
        if self._idle():
            self._await_head()
        self._pending += len(data)
        super().data_received(data)
        if self._pending > MAX_HEAD or len(self.pipeline) > MAX_PIPELINED:
            self._refuse()

    def pause_writing(self) -> None:
        """Who does not read a reply holds its room for as long as a body may take, and no longer."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self._seconds, self.transport.abort)

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
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        if self._oversized:
            self._refuse()
        else:
            super().send_400_response(msg)

    @property
    def _seconds(self) -> float:
        return self.config.seconds  # type: ignore[attr-defined,no-any-return]  # BoundedConfig

    def _idle(self) -> bool:
        """Whether nothing is being answered, so that what comes is the next head."""
        return self.cycle is None or self.cycle.response_complete

    def _refuse(self) -> None:
        self.transport.writelines([TOO_LARGE] * self._idle())
        self.transport.close()

    def _await_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self._seconds, self.transport.close)

    def _head_done(self) -> None:
        self._pending = 0
        if self._late is not None:
            self._late.cancel()
            self._late = None
