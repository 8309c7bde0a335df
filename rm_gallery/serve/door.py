"""What happens to every request before and after it is scored: id, body, limits, errors, counters.
One place for all formats.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    MutableMapping,
)
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from time import monotonic, perf_counter
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import orjson
from pydantic import Field

from rm_gallery.core.model.transport import Json
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import deeper
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.models import Configured
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.core.utils.shown import redact
from rm_gallery.serve.formats import Codec, Refused, RequestHeaders, finite, invalid
from rm_gallery.serve.formats import Scope as Access
from rm_gallery.serve.handler import Handler
from rm_gallery.serve.metrics import Metrics
from rm_gallery.serve.policy import STYLED, Send
from rm_gallery.serve.tokens import Token, TokenFile, TokenRates


class ServeSettings(Configured):
    """Settings of a server; ConfigError names the field that does not fit."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """0 takes a free one."""
    open: bool = False
    """Whether other machines may ask without a token."""
    max_body: int = Field(default=8 << 20, ge=1)
    """Bytes of a request's body. What is larger, or has so many entries that they count as more, is
    refused with 413.
    """
    entry_bytes: int = Field(default=128, ge=0)
    """Bytes that each key of a mapping, and each mapping or list, counts beside its own text, the
    first thousand of a body apart: about what Python needs for it.
    """
    max_bytes: int = Field(default=512 << 20, ge=1)
    """Bytes of all bodies that have arrived and are being read or scored, and of what is kept for
    sessions; on top of that requests are refused with 429.
    """
    max_sessions: int = Field(default=65_536, ge=1)
    """Sessions of the Open Reward Standard that are open at once; on top of that 429."""
    max_depth: int = Field(default=64, ge=2)
    """Levels of nesting of a JSON body."""
    max_waiting: int = Field(default=8192, ge=1)
    """Completions that wait for one reward or evaluator; on top of that requests are refused with
    429.
    """
    max_workers: int | None = Field(default=None, ge=1)
    """Judgements of one reward in flight; None takes the reward's own."""
    deadline: float = Field(default=60.0, gt=0)
    """Seconds one request may take; a client may ask for less with the header X-Timeout-Seconds."""
    max_seconds: float = Field(default=30.0, gt=0)
    """Seconds of worker processes (patterns, expressions, programs, tests, queries) that a request
    may take for each of its completions, all together: limits in a row add up to no more.
    """
    read_timeout: float = Field(default=30.0, gt=0)
    """Seconds a client may take to send a body."""
    keep_alive: float = Field(default=30.0, gt=0)
    """Seconds an idle connection is kept."""
    linger: float = Field(default=1.0, ge=0)
    """Seconds after SIGTERM during which requests are still taken, with the word that the
    connection closes.
    """
    status_port: int | None = Field(default=None, ge=0, le=65535)
    """A port for /health and /metrics alone, which a thread of its own answers however busy the
    server is; None for none.
    """
    access_log: str | None = None
    """File that gets a JSON line a request, or - for stdout; None for no log."""
    certificate: str | None = None
    """File with the certificate, for TLS."""
    key: str | None = None
    """File with its key."""

    @property
    def local(self) -> bool:
        """Whether only this machine can connect."""
        return is_this_machine(self.host)

    def check_access(self, has_tokens: bool) -> None:
        """Raise ConfigError when other machines could ask and nobody said that they may."""
        if not (self.local or has_tokens or self.open):
            raise ConfigError(
                f"--host {self.host} lets other machines ask and there are no tokens; make one "
                f"with `rm-gallery serve-token "
                "create` and give --tokens FILE, or say --open."
            )


T = TypeVar("T")
Found: TypeAlias = tuple[int, Any]
"""The status of a reply, and what it says."""
Read = Callable[[], Found | Awaitable[Found]]
"""What gives it, at once or once it is there."""
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""Requests as ASGI has them."""
Headers = tuple[tuple[bytes, bytes], ...]

_ID = re.compile(rb"[\w.:-]{1,128}\Z", re.ASCII)
_HERE = re.compile(
    rb"(?:https?://)?(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?\Z", re.IGNORECASE
)
"""A host or origin that is this machine whatever a name server says."""


def is_this_machine(host: str) -> bool:
    """Whether only this machine reaches an address, also by the spelling of sockets that take IPv4
    and IPv6.
    """
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


_JSON = (b"content-type", b"application/json")
_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_PAGE = (b"content-type", b"text/html; charset=utf-8")
_EVENTS = (b"content-type", b"text/event-stream")
CLOSE: Headers = ((b"connection", b"close"),)
FREE_ENTRIES = 1000
"""Entries of a body that count no bytes beside their own."""
STUCK_SECONDS = 3.0
"""Without a turn of the event loop."""
GONE = 499
"""The status of a request whose client hung up."""
FAULT = Refused(500, "internal", "The server failed; its log names the request id.")


class RequestPipeline:
    """Lets requests in and answers them through a handler."""

    def __init__(
        self,
        handler: Handler,
        settings: ServeSettings,
        tokens: TokenFile | None = None,
    ) -> None:
        self.handler = handler
        self.settings = settings
        self.tokens = tokens
        self._rates = TokenRates()
        self.metrics = Metrics()
        self.closing = False
        """Whether connections are told to close: the server is about to end."""
        self.turned: float | None = None
        """When the server's event loop last turned, by time.monotonic(); None where nobody says."""
        self.refusing = False
        """Whether requests are refused."""

    def problems(self) -> list[str]:
        """What does not work now; from any thread."""
        still = 0.0 if self.turned is None else monotonic() - self.turned
        stuck = (
            [f"the server has answered nothing for {still:.0f} s"] if still > STUCK_SECONDS else []
        )
        return [*self.handler.problems(), *stuck]

    async def answer(self, codec: Codec, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a request in a codec's format, score it and send the reply, or say why not."""
        began = perf_counter()
        metrics = self.metrics
        metrics.in_flight += 1
        room = self.room()

        async def found(headers: RequestHeaders) -> Found:
            token = self.admit(headers, "evaluate", scope)
            self._spend(token, 1)
            body = await self._body(headers, receive, room)
            target, asks = codec.parse(
                parsed(body, self.settings.max_depth), parameters(scope, codec.query)
            )
            log_notes(scope)["completions"] = len(asks)
            self._spend(token, len(asks) - 1, had=1)
            scoring = self.handler.score(target, asks, self.deadline(headers))
            outcomes = await _while_there(receive, scoring)
            metrics.scored(target, outcomes)
            shown = self.handler.shares(target, outcomes) if codec.scaled else outcomes
            return codec.render(asks, shown)

        try:
            status = await self._reply(found, codec.path, scope, receive, send)
        finally:
            metrics.in_flight -= 1
            room.give_back()
        metrics.answered(codec.path, status, perf_counter() - began)

    async def show(
        self,
        read: Read,
        access: Access | None,
        scope: Scope,
        receive: Receive,
        send: Send,
        page: bool = False,
    ) -> None:
        """Answer a request with what `read` gives: a status and JSON, or bytes of plain text (of a
        `page`, HTML), or events of a stream.
        """

        async def shown(headers: RequestHeaders) -> Found:
            if access is not None:
                self._spend(self.admit(headers, access, scope), 1)
            found = read()
            return await found if isinstance(found, Awaitable) else found

        await self._reply(shown, scope["path"], scope, receive, send, page)

    async def _reply(
        self,
        found: Callable[[RequestHeaders], Awaitable[Found]],
        path: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        page: bool = False,
    ) -> int:
        """Send what is found, or why nothing is; the status that was sent."""
        headers: RequestHeaders = dict(scope["headers"])
        request_id = request_id_of(headers)
        more = CLOSE if self.closing else ()
        try:
            status, value = await found(headers)
            if isinstance(value, AsyncIterator):
                await stream(send, value, request_id, more)
            elif not isinstance(value, bytes):
                await respond(send, status, dumped(value), request_id, more)
            elif page:
                more = (*more, (b"content-security-policy", STYLED.encode()))
                await respond(send, status, value, request_id, more, _PAGE)
            else:
                await respond(send, status, value, request_id, more, _TEXT)
            return status
        except _Gone:
            return GONE
        except Refused as refused:
            if refused.code == "too_large":
                await self._discard(headers, receive)
            failure = refused
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the client is told nothing about this process
            message = redact(f"{type(error).__name__}: {error}")
            logger.opt(exception=error).debug("request {}", request_id.decode())
            logger.error("request {} to {!r:.200} failed: {}", request_id.decode(), path, message)
            failure = FAULT
        await refuse(send, failure, request_id, more)
        return failure.status

    def admit(self, headers: RequestHeaders, access: Access, scope: Scope) -> Token | None:
        """Let a request in, with the token it came with; Refused when it may not do that, or not
        now.
        """
        if self.refusing:
            raise Refused(503, "closing", "The server is about to end.", retry_after=1.0)
        if self.tokens is not None:
            token = self.tokens.authorize(headers, access)
            log_notes(scope)["token"] = token.name
            return token
        if not self.settings.open:
            if not _HERE.match(headers.get(b"origin", b"localhost")):
                raise Refused(
                    403,
                    "forbidden",
                    "Pages of other sites may not ask a server that needs no token.",
                )
            # a page of another site whose name was made to point at this machine sends no origin
            # with what it reads
            server = scope.get("server")
            if (
                server
                and is_this_machine(server[0])
                and not _HERE.match(headers.get(b"host", b"localhost"))
            ):
                raise Refused(
                    403,
                    "forbidden",
                    "A server that needs no token is asked as localhost or 127.0.0.1; another name "
                    "takes --tokens or --open.",
                )
        return None

    def _spend(self, token: Token | None, n: int, had: int = 0) -> None:
        """Count n completions against a token's rate, beside `had` of the same request: what is no
        completion counts as one.

        Refused (429) where its rate is used up, (413) where it will never suffice.
        """
        if token is None or token.per_minute is None or n <= 0:
            return
        if n + had > token.per_minute:
            raise Refused(
                413,
                "too_many",
                f"{n + had} completions are asked for at once; the token's rate is "
                f"{token.per_minute} a minute.",
            )
        wait = self._rates.spend(token.id, token.per_minute, n, had)
        if wait:
            raise Refused(
                429,
                "rate_limited",
                f"The token's rate of {token.per_minute} completions a minute is used up.",
                retry_after=wait,
            )

    def deadline(self, headers: RequestHeaders) -> float:
        """The seconds a request may take; Refused (400) for a header that does not fit."""
        given = headers.get(b"x-timeout-seconds")
        if given is None:
            return self.settings.deadline
        seconds = finite(given)
        if seconds is None or seconds <= 0:
            raise Refused(
                400, "invalid_header", "X-Timeout-Seconds is no positive number of seconds."
            )
        return min(seconds, self.settings.deadline)

    def room(self) -> Room:
        """Room for one request or session, of which nothing is taken yet."""
        return Room(self.metrics, self.settings.max_bytes)

    def _too_large(self) -> Refused:
        return Refused(
            413,
            "too_large",
            f"The body is larger than {self.settings.max_body} bytes, the most that is taken.",
        )

    async def body(self, scope: Scope, receive: Receive) -> Any:
        """The JSON body of a request; Refused where it is none, or beyond a limit."""
        room = self.room()
        try:
            body = await self._body(dict(scope["headers"]), receive, room)
            return parsed(body, self.settings.max_depth)
        finally:
            room.give_back()

    async def _body(self, headers: RequestHeaders, receive: Receive, room: Room) -> bytes:
        """The body: the one place where a request's data are taken, and where they count.

        It takes up room as its bytes arrive, and what it only says it has takes none from others.
        Then its entries take theirs, before anything is made of them: 200,000 empty files are 3 MB.
        """
        declared = headers.get(b"content-length", b"")
        if declared.isdigit():
            if int(declared) > self.settings.max_body:
                raise self._too_large()
            room.check(int(declared))
        body = await self._in_time(self._arrived(receive, room))
        size = len(body)
        entries = _entries(body, self.settings.max_body - size, self.settings.entry_bytes)
        price = self.settings.entry_bytes * max(0, entries - FREE_ENTRIES)
        if size + price > self.settings.max_body:
            raise Refused(
                413,
                "too_many",
                f"The body has {entries} keys, mappings and lists, which count "
                f"{self.settings.entry_bytes} bytes each: {size + price} bytes together, and "
                f"{self.settings.max_body} are the most that is taken. Send less at once.",
            )
        room.take(price)
        return body

    async def _arrived(self, receive: Receive, room: Room) -> bytes:
        """All bytes of a body."""
        chunks: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(
                    400, "incomplete", "The connection ended before the body was complete."
                )
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self.settings.max_body:
                raise self._too_large()
            room.take(len(chunks[-1]))
            more = message.get("more_body", False)
        return b"".join(chunks)

    async def _in_time(self, reading: Awaitable[T]) -> T:
        """What is read; Refused (408) where it takes too long."""
        seconds = self.settings.read_timeout
        late = Refused(408, "slow", f"The body did not arrive within {seconds:g} s.")
        with _cut_short() as cut:
            timer = asyncio.get_running_loop().call_later(seconds, cut, late)
            try:
                return await reading
            finally:
                timer.cancel()

    async def _discard(self, headers: RequestHeaders, receive: Receive) -> None:
        """Read what is left of a body that is too large, for a while: who is cut off in the middle
        never reads the reply.
        """
        if b"expect" in headers:  # it was not asked to send the body yet
            return

        async def all_of_it() -> None:
            left, more = 32 * self.settings.max_body, True
            while more and left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                more = message.get("more_body", False)

        with suppress(Refused):
            await self._in_time(all_of_it())


class Room:
    """What a request or a session takes up of the room for all of them."""

    __slots__ = ("_metrics", "_most", "_taken")

    def __init__(self, metrics: Metrics, most: int) -> None:
        self._metrics, self._most, self._taken = metrics, most, 0

    def check(self, size: int) -> None:
        """Raise Refused (429) where there is no room for so many bytes now."""
        if self._metrics.bytes + size > self._most:
            raise Refused(
                429,
                "busy",
                "Other requests and sessions take up all room there is (max_bytes).",
                retry_after=1.0,
            )

    def take(self, size: int) -> None:
        """Take room for what has arrived."""
        self.check(size)
        self._metrics.bytes += size
        self._taken += size

    def give_back(self) -> None:
        """Give all of it back."""
        self._metrics.bytes -= self._taken
        self._taken = 0

    def shrink(self, size: int) -> None:
        """Take so many bytes instead of what was taken; less is always there, and what is told
        already is kept.
        """
        self._metrics.bytes += size - self._taken
        self._taken = size


class _Gone(Exception):
    """The client hung up."""


@contextmanager
def _cut_short() -> Iterator[Callable[[Exception], None]]:
    """A block that is ended from outside by who calls what it gives, with the error that says why."""
    task, whys = asyncio.current_task(), list[Exception]()
    assert task is not None

    def cut(why: Exception) -> None:
        whys.append(why)
        task.cancel()

    try:
        yield cut
    except asyncio.CancelledError:
        if not whys:
            raise
        if sys.version_info >= (3, 11):
            task.uncancel()
        raise whys[0] from None


async def _while_there(receive: Receive, work: Awaitable[T]) -> T:
    """What the work gives; _Gone where the client hangs up: nobody reads the answer, so nothing
    more is paid for it.
    """
    heard = asyncio.ensure_future(receive())
    with _cut_short() as cut:

        def listen(message: asyncio.Future[MutableMapping[str, Any]]) -> None:
            said = not message.cancelled() and message.exception() is None
            if said and message.result()["type"] == "http.disconnect":
                cut(_Gone())

        heard.add_done_callback(listen)
        try:
            return await work
        finally:
            heard.remove_done_callback(listen)
            heard.cancel()


def log_notes(scope: Scope) -> Json:
    """What is known of a request beside what its client says: its token's name and its completions,
    for the access log.
    """
    notes: Json = scope.setdefault("rm_gallery", {})
    return notes


def parameters(scope: Scope, known: Collection[str]) -> dict[str, str]:
    """The parameters of query and path; those of the path win. Refused (422) for one of the query
    that is not known.
    """
    path: dict[str, str] = scope["path_params"]
    query: bytes = scope.get("query_string", b"")
    if not query:
        return path
    given = dict(parse_qsl(query.decode("latin-1")))
    for name in given:
        if name not in known:  # one that is misspelt would choose another column for the truth
            raise invalid(
                unknown_name("query parameter", name[:80], known)
                + ("" if known else " This path takes none.")
            )
    return {**given, **path}


def request_id_of(headers: RequestHeaders) -> bytes:
    """The id the client gave, where it is a plain one, else a new one."""
    given = headers.get(b"x-request-id")
    return given if given is not None and _ID.match(given) else secrets.token_hex(8).encode()


def parsed(body: bytes, max_depth: int) -> Any:
    """A JSON body; Refused (400) for what is no JSON, NaN and bad UTF-8 included, and for one
    nested too deep.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if "depth limit" in error.msg or "ecursion" in error.msg:  # in the words of its versions
            raise too_deep(max_depth) from None
        where = f"line {error.lineno} column {error.colno}"
        raise Refused(400, "invalid_json", f"The body is not valid JSON at {where}.") from None
    if body.count(b"[") + body.count(b"{") > max_depth and deeper(value, max_depth):
        raise too_deep(max_depth)
    return value


def _entries(body: bytes, left: int, price: int) -> int:
    """How many keys, mappings and lists a JSON body has; where even what looks like one counts no
    more than is `left`, so many.
    """
    marks = b":", b"{", b"["
    most = sum(map(body.count, marks))
    if price * (most - FREE_ENTRIES) <= min(left, price * FREE_ENTRIES):
        return most
    # outside of texts, whose quotes may be escaped
    plain = b"".join(re.sub(rb"\\.", b"", body, flags=re.DOTALL).split(b'"')[::2])
    return sum(map(plain.count, marks))


def too_deep(max_depth: int) -> Refused:
    """The refusal of a body with too many levels."""
    return Refused(400, "too_deep", f"The body is nested deeper than {max_depth} levels.")


def dumped(value: Any) -> bytes:
    """A reply as JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:  # numpy's numbers, integers beyond 64 bits, lone surrogates
        text = json.dumps(value, ensure_ascii=False, default=_numpy_number)
        return text.encode("utf-8", "replace")


def _numpy_number(value: Any) -> Any:
    """What a number of a package says of itself; TypeError for anything else."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a {type(value).__name__} is nothing JSON has")


async def respond(
    send: Send,
    status: int,
    body: bytes,
    request_id: bytes,
    more: Headers = (),
    kind: tuple[bytes, bytes] = _JSON,
) -> None:
    """Send one reply."""
    headers = [kind, (b"content-length", b"%d" % len(body)), (b"x-request-id", request_id), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def stream(
    send: Send, events: AsyncIterator[bytes], request_id: bytes, more: Headers = ()
) -> None:
    """Send server-sent events as they come."""
    headers = [_EVENTS, (b"x-request-id", request_id), (b"x-accel-buffering", b"no"), *more]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for event in events:
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def refuse(send: Send, refused: Refused, request_id: bytes, more: Headers = ()) -> None:
    """Say why a request is not answered."""
    if refused.retry_after is not None:
        more = (*more, (b"retry-after", b"%d" % max(1, math.ceil(refused.retry_after))))
    if refused.status == 401:
        more = (*more, (b"www-authenticate", b"Bearer"))
    if refused.status in (408, 413, 503) and not more[:1] == CLOSE:
        more = (*more, *CLOSE)
    error = {"code": refused.code, "message": str(refused), "request_id": request_id.decode()}
    await respond(send, refused.status, dumped({"error": error}), request_id, more)
