"""Bytes to an address and back, at wire speed: one aiohttp session per endpoint on the library
loop, kept warm between batches.
"""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import ssl
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies

import orjson

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.utils.errors import ConfigError, ProviderError, ProviderErrorKind

if TYPE_CHECKING:
    import aiohttp

Json: TypeAlias = dict[str, Any]
Headers: TypeAlias = Mapping[str, str]
Seconds: TypeAlias = float | None
CONNECT_SECONDS = 10.0
"""An endpoint that does not take a connection within this time counts as not there."""
KEEPALIVE_SECONDS = 60.0
DNS_CACHE_SECONDS = 300
MAX_REPLY_BYTES = int(os.environ.get("RM_GALLERY_MAX_REPLY_BYTES", "") or 16 << 20)
"""Largest reply that is read, unpacked; the environment variable of this name sets another limit.
"""
MAX_ERROR_BYTES = 64 << 10
"""So much of an error's body is read."""
_PACKINGS = {"": 0, "identity": 0, "gzip": 47, "x-gzip": 47, "deflate": 15}
"""By Content-Encoding, the window that zlib unpacks it with; 0 for none."""


class HttpAnswer(NamedTuple):
    """A raw HTTP answer."""

    status: int
    headers: Headers
    body: bytes


class HttpEndpoint(NamedTuple):
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
    scheme = host = fragment = ""
    with suppress(ValueError):
        scheme, host, _, _, fragment = urlsplit(url)
    if "@" in (host or url):
        raise ConfigError(
            f"{named} holds a user name or password; pass credentials as api_key or "
            f"default_headers."
        )
    if fragment or "?" in url:
        raise ConfigError(f"{named} holds a query; pass it as default_query, and a key as api_key.")
    if scheme not in ("http", "https") or not host:
        raise ConfigError(
            f"{named} is not a URL: found {url[:200]!r}; give one such as http://127.0.0.1:8000/v1."
        )
    return url.rstrip("/")


_sessions: dict[HttpEndpoint, aiohttp.ClientSession] = {}
_inherited: list[object] = []


def _session(endpoint: HttpEndpoint) -> aiohttp.ClientSession:
    import aiohttp

    session = _sessions.get(endpoint)
    if session is None or session.closed:
        bundle = endpoint.ca_bundle
        if bundle and not os.path.isfile(bundle):
            raise ConfigError(f"ca_bundle: no file at {bundle!r}; give the path of a PEM file.")
        # no connection limit here: the endpoint's limiter is the only one, so that no hidden
        # ceiling of 100 applies
        connector = aiohttp.TCPConnector(
            limit=0,
            ttl_dns_cache=DNS_CACHE_SECONDS,
            keepalive_timeout=KEEPALIVE_SECONDS,
            ssl=ssl.create_default_context(cafile=bundle) if bundle else True,
        )
        session = _sessions[endpoint] = aiohttp.ClientSession(
            connector=connector,
            trust_env=endpoint.proxy is None and bool(getproxies()),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "gzip, deflate"},
            auto_decompress=False,  # done here, so that what comes out is bounded as well
        )
    return session


async def exchange(
    endpoint: HttpEndpoint,
    path: str,
    body: bytes | None,
    headers: Headers,
    timeout: Seconds,
    most: int | None = None,
) -> HttpAnswer:
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
            content = await _content(response, most or MAX_REPLY_BYTES, endpoint.url)
            return HttpAnswer(response.status, response.headers, content)
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"base_url is not a URL: {endpoint.url!r}.") from error
    except (aiohttp.ClientError, ConnectionError, asyncio.TimeoutError) as error:
        kind: ProviderErrorKind = "transient"
        fault = f"The connection to {endpoint.url} broke ({type(error).__name__})."
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
            # nobody's fault but that too many are open: fewer at once, as after a refusal
            raise ProviderError(
                f"No file descriptor is left for a connection to {endpoint.url}; fewer calls are in "
                f"flight from now on. Raise the limit (ulimit -n), or lower max_workers.",
                kind="rate_limit",
            ) from error
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            kind, why = "unreachable", "it does not take the connection"
            if isinstance(error, aiohttp.ClientConnectorError):
                why = error.strerror or str(error)
            fault = f"Cannot connect to {endpoint.url}: {why}."
        elif isinstance(error, asyncio.TimeoutError):
            fault = f"No answer from {endpoint.url} within {timeout or 0:.3g} s."
        raise ProviderError(fault, kind=kind) from error


async def _content(response: aiohttp.ClientResponse, limit: int, url: str) -> bytes:
    """The body, unpacked. One that is larger than `limit` is refused; an error's is cut."""
    if response.status != 200:
        limit = MAX_ERROR_BYTES
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    if coding not in _PACKINGS:
        raise ProviderError("The reply is packed in a way that nobody asked for.", kind="transient")
    window = _PACKINGS[coding]
    if not window and (response.content_length or math.inf) <= limit:
        return await response.read()
    unpack = zlib.decompressobj(window).decompress if window else None
    body = bytearray()
    async for chunk in response.content.iter_any():
        room = limit + 1 - len(body)
        try:
            body += unpack(chunk, room) if unpack else chunk[:room]
        except zlib.error as error:
            raise ProviderError("The reply cannot be unpacked.", kind="transient") from error
        if len(body) > limit:
            response.close()
            if response.status == 200:
                raise ProviderError(
                    f"{url} answered with more than {limit:,} bytes; its reply is not read.",
                    kind="fatal",
                )
            break
    return bytes(body[:limit])


@library_loop.at_close
async def close_sessions() -> None:
    """Close every session; the next call opens new ones."""
    sessions = [*_sessions.values()]
    _sessions.clear()
    for session in sessions:
        await session.close()


@library_loop.after_fork
def _drop_sessions() -> None:
    # closing inherited sockets in a child would tear down the parent's TLS streams: keep the
    # objects, never use them
    for session in _sessions.values():
        if (connector := session.connector) is not None:
            session.detach()
            connector._closed = True  # silences "Unclosed connector" when the child collects it
            _inherited.append(connector)
    _sessions.clear()


def decoded(body: bytes) -> Any:
    """The JSON value of a body, lone surrogates and broken UTF-8 replaced; ValueError when it is no
    JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            text = json.dumps(json.loads(body.decode("utf-8", "replace")), ensure_ascii=False)
            return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def parse_retry_after(headers: Headers, now: float) -> float | None:
    """Seconds the server asks to wait: `retry-after-ms`, else `retry-after` as number or HTTP-date.

    `now` is wall-clock time in seconds since the epoch. A date in the past is 0; anything
    unreadable, negative or not finite is None. Source: RFC 9110 section 10.2.3; the milliseconds
    form is Azure's and OpenAI's.
    """
    lowered, said = {name.lower(): value for name, value in headers.items()}, ""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        said = lowered.get(name, "")
        with suppress(ValueError):
            if 0.0 <= (seconds := float(said) / unit) < math.inf:
                return seconds
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        date = parsedate_to_datetime(said)
        return max(0.0, date.replace(tzinfo=date.tzinfo or timezone.utc).timestamp() - now)
    return None
