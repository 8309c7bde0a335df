"""A line for every request: who asked for what, what was answered and how long it took; never a
body, a query or a token.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from time import perf_counter
from typing import Any

import orjson

from rm_gallery.core.model.transport import Json
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.log import logger
from rm_gallery.serve.door import GONE, Receive, Scope, log_notes
from rm_gallery.serve.policy import Send

LONGEST_PATH = 500
MOST_LINES = 100_000
CLOSE_SECONDS = 2.0


class AccessLog:
    """Appends lines to a file from a thread of its own; a file that was moved away is begun anew
    with the next line.

    Several processes may write to the same file. Raises ConfigError where it cannot be written.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._at, self._well = sys.stdout.fileno() if file == "-" else -1, True
        try:
            self._reopen()
        except OSError as error:
            raise ConfigError(
                f"--access-log {file} cannot be written: {error.strerror}."
            ) from error
        self._thread = threading.Thread(
            target=self._write_lines, name="rm-gallery-access-log", daemon=True
        )
        self._thread.start()

    def add(self, line: Json) -> None:
        """Take a line; returns at once. Where nothing can be written for long, lines are lost and
        not kept.
        """
        if self._lines.qsize() < MOST_LINES:
            self._lines.put(orjson.dumps(line) + b"\n")

    def close(self) -> None:
        """Write what is there."""
        self._lines.put(b"")
        self._thread.join(CLOSE_SECONDS)

    def _reopen(self) -> None:
        """The file of that name, also where another one had it before."""
        if self._file == "-":
            return
        if self._at >= 0:
            try:
                if os.path.samestat(os.stat(self._file), os.fstat(self._at)):
                    return
            except FileNotFoundError:
                pass
            os.close(self._at)
            self._at = -1
        self._at = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)

    def _write_lines(self) -> None:
        lines = [b"\n"]
        while lines[-1]:
            lines = [self._lines.get()]
            while not self._lines.empty():
                lines.append(self._lines.get())
            try:
                self._reopen()
                # at once: the lines of several processes do not mix
                os.write(self._at, b"".join(lines))
                self._well = True
            except OSError as error:
                if self._well:
                    logger.error(
                        "The access log {} cannot be written: {}.", self._file, error.strerror
                    )
                self._well = False


class Logged:
    """An application whose requests are logged once they are answered."""

    def __init__(
        self, app: Callable[[Scope, Receive, Send], Awaitable[None]], log: AccessLog
    ) -> None:
        self._app, self._log = app, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and log."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, at = perf_counter(), datetime.now(timezone.utc)
        read = written = 0
        status, request_id = GONE, ""

        async def received() -> Any:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            return message

        async def sent(message: Any) -> None:
            nonlocal status, request_id, written
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
                request_id = dict(message["headers"]).get(b"x-request-id", b"").decode()
            written += len(message.get("body", b""))

        try:
            await self._app(scope, received, sent)
        except Exception:
            status = 500
            raise
        finally:
            client, notes = scope.get("client"), log_notes(scope)
            self._log.add(
                {
                    "time": at.isoformat(timespec="milliseconds"),
                    "client": client[0] if client else None,
                    "token": notes.get("token"),
                    "method": scope["method"],
                    "path": scope["path"].encode("utf-8", "replace").decode()[:LONGEST_PATH],
                    "status": status,
                    "ms": round((perf_counter() - began) * 1000, 3),
                    "completions": notes.get("completions"),
                    "read": read,
                    "written": written,
                    "request_id": request_id,
                }
            )
