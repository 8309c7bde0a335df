"""What happens to every request before and after it is scored: id, body, limits, errors. One place for all formats."""

from __future__ import annotations

import asyncio
import math
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import orjson

from rm_gallery.core.utils.log import logger
from rm_gallery.serve.asking import Codec, Refused
from rm_gallery.serve.handler import Handler
from rm_gallery.serve.settings import ServeSettings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
"""Requests as ASGI has them."""

_ID = re.compile(rb"[\w.:-]{1,128}\Z", re.ASCII)
_JSON = (b"content-type", b"application/json")


class Door:
    """Answers requests through a handler."""

    def __init__(self, handler: Handler, settings: ServeSettings) -> None:
        self.handler = handler
        self.settings = settings

    async def answer(self, codec: Codec, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a request in a codec's format, score it and send the reply, or say why not."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = request_id_of(headers)
        try:
            body = parsed(await self._body(headers, receive), self.settings.max_depth)
            target, asks = codec.parse(body, parameters(scope))
            found = await self.handler.score(target, asks, self._deadline(headers))
            status, reply = codec.render(asks, found)
            await respond(send, status, dumped(reply), request_id)
        except Refused as refused:
            await refuse(send, refused, request_id)
        except Exception:  # noqa: BLE001 - whatever went wrong, the client is told nothing about this process
            logger.exception("request {} to {} failed", request_id.decode(), codec.path)
            await refuse(send, Refused(500, "internal", "The server failed; its log names the request id."), request_id)

    def _deadline(self, headers: dict[bytes, bytes]) -> float:
        given = headers.get(b"x-timeout-seconds")
        if given is None:
            return self.settings.deadline
        try:
            seconds = float(given)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise Refused(400, "invalid_header", "X-Timeout-Seconds is no positive number of seconds.")
        return min(seconds, self.settings.deadline)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most = self.settings.max_body
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await asyncio.wait_for(receive(), self.settings.read_timeout)
            if message["type"] == "http.disconnect":
                raise Refused(400, "incomplete", "The connection ended before the body was complete.")
            size += len(message.get("body", b""))
            if size > most:
                raise Refused(413, "too_large", f"The body is larger than {most} bytes, the most that is taken.")
            chunks.append(message.get("body", b""))
            if not message.get("more_body"):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def parameters(scope: Scope) -> dict[str, str]:
    """The parameters of query and path; those of the path win."""
    path: dict[str, str] = scope["path_params"]
    query: bytes = scope.get("query_string", b"")
    return {**dict(parse_qsl(query.decode("latin-1"))), **path} if query else path


def request_id_of(headers: dict[bytes, bytes]) -> bytes:
    """The id the client gave, where it is a plain one, else a new one."""
    given = headers.get(b"x-request-id")
    return given if given is not None and _ID.match(given) else secrets.token_hex(8).encode()


def parsed(body: bytes, max_depth: int) -> Any:
    """A JSON body; Refused (400) for what is no JSON, NaN and bad UTF-8 included, and for one nested too deep."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise Refused(400, "invalid_json", f"The body is not valid JSON at {where}.") from None
    if body.count(b"[") + body.count(b"{") > max_depth and deeper(value, max_depth):
        raise Refused(400, "too_deep", f"The body is nested deeper than {max_depth} levels.")
    return value


def deeper(value: Any, most: int) -> bool:
    """Whether a JSON value has more levels of objects and lists than `most`."""
    level = [value]
    for _ in range(most + 1):
        level = [
            child
            for each in level
            if type(each) in (dict, list)
            for child in (each.values() if type(each) is dict else each)
        ]
        if not level:
            return False
    return True


def dumped(value: Any) -> bytes:
    """A reply as JSON."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


async def respond(
    send: Send, status: int, body: bytes, request_id: bytes, more: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send one reply."""
    headers = [_JSON, (b"content-length", b"%d" % len(body)), (b"x-request-id", request_id), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, refused: Refused, request_id: bytes) -> None:
    """Say why a request is not answered."""
    more: tuple[tuple[bytes, bytes], ...] = ()
    if refused.retry_after is not None:
        more = ((b"retry-after", b"%d" % max(1, math.ceil(refused.retry_after))),)
    error = {"code": refused.code, "message": str(refused), "request_id": request_id.decode()}
    await respond(send, refused.status, dumped({"error": error}), request_id, more)
