"""HTTP at wire speed: one aiohttp session per endpoint on the library loop, kept warm between
batches.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import ssl
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

import orjson
from pydantic import ValidationError

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.message import ChatMessage, ChatResponse, MessageRole
from rm_gallery.core.utils.errors import ConfigError, ProviderError, ProviderErrorKind
from rm_gallery.core.utils.models import build
from rm_gallery.core.utils.shown import one_line

if TYPE_CHECKING:
    import aiohttp


CONNECT_SECONDS = 10.0
"""An endpoint that does not take a connection within this time counts as not there."""
KEEPALIVE_SECONDS = 60.0
DNS_CACHE_SECONDS = 300
MAX_REPLY_BYTES = int(os.environ.get("RM_GALLERY_MAX_REPLY_BYTES", "") or 16 << 20)
"""Largest reply that is read, unpacked; the environment variable of this name sets another limit.
"""
MAX_ERROR_BYTES = 64 << 10
"""So much of an error's body is read."""


class Reply(NamedTuple):
    """A raw HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class HttpEndpoint:
    """Where calls go and how the connection is made; equal endpoints share one session."""

    url: str
    """Base URL without a trailing slash, such as http://127.0.0.1:8000/v1."""
    proxy: str | None = None
    ca_bundle: str | None = None
    """Path of a PEM file with the certificates to trust instead of the system's."""
    query: tuple[tuple[str, str], ...] = ()


def check_url(url: str, named: str) -> str:
    """The URL without its trailing slash; ConfigError when it is not an http(s) URL, naming where
    it came from.

    A query is refused as user names and passwords are: it may be a key, and requests are made to
    paths below the URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if "@" in parts.netloc or (not parts.netloc and "@" in url):
        raise ConfigError(
            f"{named} holds a user name or password; pass credentials as api_key or "
            f"default_headers."
        )
    if parts.query or parts.fragment or "?" in url:
        raise ConfigError(f"{named} holds a query; pass it as default_query, and a key as api_key.")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(
            f"{named} is not a URL: found {url[:200]!r}; give one such as http://127.0.0.1:8000/v1."
        )
    return url.rstrip("/")


_sessions: dict[HttpEndpoint, aiohttp.ClientSession] = {}
_inherited: list[object] = []


def _session(endpoint: HttpEndpoint) -> aiohttp.ClientSession:
    session = _sessions.get(endpoint)
    if session is None or session.closed:
        import aiohttp

        context: ssl.SSLContext | bool = True
        if endpoint.ca_bundle:
            if not os.path.isfile(endpoint.ca_bundle):
                raise ConfigError(
                    f"ca_bundle: no file at {endpoint.ca_bundle!r}; give the path of a PEM file."
                )
            context = ssl.create_default_context(cafile=endpoint.ca_bundle)
        # no connection limit here: the endpoint's limiter is the only one, so that no hidden
        # ceiling of 100 applies
        connector = aiohttp.TCPConnector(
            limit=0,
            ttl_dns_cache=DNS_CACHE_SECONDS,
            keepalive_timeout=KEEPALIVE_SECONDS,
            ssl=context,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            trust_env=endpoint.proxy is None and bool(getproxies()),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "gzip, deflate"},
            auto_decompress=False,  # done here, so that what comes out is bounded as well
        )
        _sessions[endpoint] = session
    return session


async def exchange(
    endpoint: HttpEndpoint,
    path: str,
    body: bytes | None,
    headers: Mapping[str, str],
    timeout: float | None,
    most: int | None = None,
) -> Reply:
    """Send one POST, or a GET where there is no body, and read the whole answer, of at most `most`
    bytes; only to be awaited on the library loop.

    Raises ProviderError: unreachable when no connection comes about, transient when one breaks or
    no answer comes in time.
    """
    import aiohttp

    try:
        async with _session(endpoint).request(
            "GET" if body is None else "POST",
            endpoint.url + path,
            data=body,
            headers=headers,
            params=endpoint.query or None,
            proxy=endpoint.proxy,
            timeout=aiohttp.ClientTimeout(
                total=timeout, sock_connect=CONNECT_SECONDS, ceil_threshold=math.inf
            ),
            allow_redirects=False,
        ) as response:
            limit = (most or MAX_REPLY_BYTES) if response.status == 200 else MAX_ERROR_BYTES
            content = await _bounded(response, limit)
            if content is None:
                response.close()
                raise ProviderError(
                    f"{endpoint.url} answered with more than {limit:,} bytes; its reply is not "
                    f"read.",
                    kind="fatal",
                )
    except aiohttp.ConnectionTimeoutError as error:
        raise ProviderError(
            f"Cannot connect to {endpoint.url}: it does not take the connection.",
            kind="unreachable",
        ) from error
    except asyncio.TimeoutError as error:
        raise ProviderError(
            f"No answer from {endpoint.url} within {timeout or 0:.3g} s.", kind="transient"
        ) from error
    except aiohttp.ClientConnectorError as error:
        raise ProviderError(
            f"Cannot connect to {endpoint.url}: {error.strerror or error}.", kind="unreachable"
        ) from error
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"base_url is not a URL: {endpoint.url!r}.") from error
    except (aiohttp.ClientError, ConnectionError) as error:
        what = type(error).__name__
        raise ProviderError(
            f"The connection to {endpoint.url} broke ({what}).", kind="transient"
        ) from error
    return Reply(response.status, response.headers, content)


async def _bounded(response: aiohttp.ClientResponse, limit: int) -> bytes | None:
    """The body, decompressed; None when it is larger than `limit`. An error's body is cut there
    instead.
    """
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    length = response.content_length
    if not coding or coding == "identity":
        if length is not None and length <= limit:
            return await response.read()
        unpack = None
    elif coding in ("gzip", "x-gzip", "deflate"):
        unpack = zlib.decompressobj(47 if coding != "deflate" else 15)
    else:
        raise ProviderError(
            f"The reply is packed as {coding[:20]!r}, which nobody asked for.", kind="transient"
        )
    cut = response.status != 200
    body = bytearray()
    async for chunk in response.content.iter_any():
        room = limit + 1 - len(body)
        try:
            body += chunk[:room] if unpack is None else unpack.decompress(chunk, room)
        except zlib.error as error:
            raise ProviderError("The reply cannot be unpacked.", kind="transient") from error
        if len(body) > limit:
            if cut:
                response.close()
            return bytes(body[:limit]) if cut else None
    return bytes(body)


@library_loop.at_close
async def close_sessions() -> None:
    """Close every session; the next call opens new ones."""
    sessions = list(_sessions.values())
    _sessions.clear()
    for session in sessions:
        await session.close()


@library_loop.after_fork
def _drop_sessions() -> None:
    # closing inherited sockets in a child would tear down the parent's TLS streams: keep the
    # objects, never use them
    _inherited.append(dict(_sessions))
    for session in _sessions.values():
        connector = session.connector
        if connector is not None:
            session.detach()
            connector._closed = True  # silences "Unclosed connector" when the child collects it
    _sessions.clear()


MAX_TOKENS = 100_000_000
"""A token count above this is no count."""
_MAX_DETAIL = 300
"""So many characters of what an endpoint says go into a message."""


def to_response(raw: dict[str, Any], endpoint: str, cached: bool = False) -> ChatResponse:
    """The reply in a raw OpenAI-style answer; `cached` marks one that was not paid for now.

    Raises ProviderError: transient, when there is no choice, or a choice without a message; for an
    error in the body, by its code.
    """
    choices = raw.get("choices")
    first_choice = choices[0] if isinstance(choices, list) and choices else None
    inside = first_choice if isinstance(first_choice, dict) else {}
    # routers and proxies report what failed behind them inside a 200, some beside a text that looks
    # like a reply
    if (error := raw.get("error") or inside.get("error")) or inside.get("finish_reason") == "error":
        raise _error_inside(endpoint, error)
    if not isinstance(choices, list) or not choices:
        raise ProviderError(
            f"{endpoint} answered 200 with no choices in the body.", kind="transient"
        )
    messages = [choice.get("message") if isinstance(choice, dict) else None for choice in choices]
    if not isinstance(messages[0], dict):
        raise ProviderError(
            f"{endpoint} answered with a choice that holds no message.", kind="transient"
        )
    first: dict[str, Any] = messages[0]
    content, refusal, tool_calls = (
        first.get("content"),
        first.get("refusal"),
        first.get("tool_calls"),
    )
    reasoning = first.get("reasoning_content") or first.get("reasoning")
    finish_reason, model = choices[0].get("finish_reason"), raw.get("model")
    message: dict[str, Any] = {
        "role": MessageRole.ASSISTANT,
        "name": None,
        "content": content if isinstance(content, str) else "",
        "reasoning_content": reasoning if isinstance(reasoning, str) else "",
        "tool_calls": None,
        "tool_call_id": None,
        "additional_kwargs": {"refusal": str(refusal)} if refusal else {},
    }
    try:
        if tool_calls or isinstance(content, list):
            built = ChatMessage(
                **{**message, "tool_calls": tool_calls or None, "content": content or ""}
            )
        # the usual reply is checked by hand above: validating three models again would cost more
        # than reading it
        else:
            built = build(ChatMessage, message)
    except ValidationError as error:
        first_fault = error.errors(include_input=False)[0]
        fault = f"{'.'.join(map(str, first_fault['loc']))}: {first_fault['msg']}"
        raise ProviderError(
            f"{endpoint} answered 200 with a message of an unknown layout ({fault}).",
            kind="transient",
        ) from None
    fields = {
        "message": built,
        "finish_reason": finish_reason if isinstance(finish_reason, str) else None,
        "usage": _usage(raw.get("usage")),
        "model": model if isinstance(model, str) else "",
        "choices": [_message_text(m) for m in messages] if len(messages) > 1 else [],
        "logprobs": choices[0].get("logprobs"),
        "decisions": None,
        "cached": cached,
    }
    return build(ChatResponse, fields)


def _error_inside(endpoint: str, error: Any) -> ProviderError:
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 600:
        return provider_error(
            f"{endpoint} answered 200 for a server behind it that",
            Reply(code, {}, orjson.dumps({"error": error})),
        )
    detail = _detail(orjson.dumps({"error": error}, default=str))[0] if error else ""
    return ProviderError(
        f"{endpoint} answered 200 with an error in the body{f': {detail}' if detail else ''}.",
        kind="transient",
    )


def is_complete(response: ChatResponse) -> bool:
    """Whether the reply ended by itself and says something: only such replies are worth keeping in
    the cache.
    """
    return response.ended == "done" and bool(response.text.strip() or response.message.tool_calls)


def booked(response: ChatResponse, expected_input: int) -> Usage:
    """The reply's token counts as the engine books them: one call. What the endpoint did not say is
    estimated.
    """
    usage = response.usage
    written = usage.output_tokens or sum(map(len, response.choices or [response.text])) // 4 + 1
    return replace(
        usage, input_tokens=usage.input_tokens or expected_input, output_tokens=written, calls=1
    )


def _message_text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else ""


def _usage(raw: Any) -> Usage:
    if not isinstance(raw, dict):
        return Usage()
    given, generated = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
    return Usage(
        input_tokens=token_count(raw.get("prompt_tokens")),
        output_tokens=token_count(raw.get("completion_tokens")),
        cached_tokens=token_count(given.get("cached_tokens")) if isinstance(given, dict) else 0,
        reasoning_tokens=token_count(generated.get("reasoning_tokens"))
        if isinstance(generated, dict)
        else 0,
    )


def token_count(value: Any) -> int:
    """A token count; 0 for what is none (missing, a text, negative, beyond all measure, not
    finite).
    """
    usable = (
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    )
    return int(value) if usable else 0


def decoded(body: bytes) -> Any:
    """The JSON value of a body, lone surrogates and broken UTF-8 replaced; ValueError when it is no
    JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            return _replace_surrogates(json.loads(body.decode("utf-8", "replace")))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return [_replace_surrogates(item) for item in value] if isinstance(value, list) else value


TRANSIENT_STATUS = frozenset({408, 409, 425, 500, 502, 503, 504, 520, 522, 524, 529})
HINTS = {
    401: "check the API key",
    403: "the key has no access to this model",
    404: "check the model name and the base URL (it usually ends in /v1)",
    400: "the endpoint rejects the request",
    422: "the endpoint rejects the request",
}


def provider_error(url: str, reply: Reply, hints: Mapping[int, str] = HINTS) -> ProviderError:
    """The error for an answer whose status is not 200.

    429 is a rate limit, unless it says the quota is used up (fatal: waiting does not help), or that
    this request alone is above the limit of a minute (OpenAI's words; fatal for it and for no other
    call, so its status is 413); 5xx and the like are transient; every other status is fatal.
    """
    detail, code = _detail(reply.body)
    kind: ProviderErrorKind = "fatal"
    status = (
        413
        if reply.status == 429 and detail.casefold().startswith("request too large")
        else reply.status
    )
    if status == 429:
        kind = "fatal" if code == "insufficient_quota" else "rate_limit"
    elif reply.status in TRANSIENT_STATUS or reply.status >= 500:
        kind = "transient"
    hint = hints.get(reply.status, "")
    message = (
        f"{url} answered {reply.status}"
        + (f": {detail}" if detail else "")
        + (f" ({hint})" if hint else "")
    )
    error = ProviderError(
        message, kind=kind, status=status, retry_after=parse_retry_after(reply.headers, time.time())
    )
    error.filtered = code in (
        "content_filter",
        "content_policy_violation",
        "data_inspection_failed",
    )
    if (
        status == 413
        or code in _TOO_LONG
        or any(words in detail.casefold() for words in _SAID_TOO_LONG)
    ):
        # what is too long is this request and no other: control answers tell whether the answer
        # made it so
        error.cause = "judge"
    error.routed = reply.status == 404 and any(word in detail.lower() for word in _ROUTED)
    return error


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds the server asks to wait: `retry-after-ms`, else `retry-after` as number or HTTP-date.

    `now` is wall-clock time in seconds since the epoch. A date in the past is 0; anything
    unreadable, negative or not finite is None. Source: RFC 9110 section 10.2.3; the milliseconds
    form is Azure's and OpenAI's.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            if 0.0 <= (value := float(lowered[name])) < math.inf:
                return value / unit
    with suppress(KeyError, ValueError, TypeError, IndexError, OverflowError):
        date = parsedate_to_datetime(lowered["retry-after"])
        date = date if date.tzinfo is not None else date.replace(tzinfo=timezone.utc)
        return max(0.0, date.timestamp() - now)
    return None


_TOO_LONG = (
    "context_length_exceeded",
    "string_above_max_length",
    "request_too_large",
    "context_window_exceeded",
)
_SAID_TOO_LONG = (
    "maximum context length",
    "context length exceeded",
    "context window",
    "prompt is too long",
    "input is too long",
)
"""Codes and words of OpenAI, Anthropic, vLLM, SGLang, Bedrock and others for a request that holds
too much.
"""
_ROUTED = ("support", "parameter")
"""Words of a 404 by which a router says that it knows no model that takes a part of the request,
such as a schema or tools.
"""


def _detail(body: bytes) -> tuple[str, str]:
    try:
        content = decoded(body)
    except ValueError:
        return one_line(body[:4000].decode("utf-8", "replace"), 200), ""
    error = content.get("error", content) if isinstance(content, dict) else content
    if not isinstance(error, dict):
        return one_line(str(error)[:4000], _MAX_DETAIL), ""
    code = error.get("code") or error.get("type")
    return one_line(str(error.get("message", error))[:4000], _MAX_DETAIL), one_line(
        code, 60
    ) if isinstance(code, str) else ""
