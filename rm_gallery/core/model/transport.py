"""HTTP at wire speed: one aiohttp session per endpoint on the library loop, kept warm between batches."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.utils.errors import ConfigError, ProviderError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import aiohttp

CONNECT_SECONDS = 10.0
"""An endpoint that does not take a connection within this time counts as not there."""
KEEPALIVE_SECONDS = 60.0
DNS_CACHE_SECONDS = 300
MAX_REPLY_BYTES = int(os.environ.get("RM_GALLERY_MAX_REPLY_BYTES", "") or 16 << 20)
"""Largest reply that is read, unpacked; the environment variable of this name sets another limit."""
MAX_ERROR_BYTES = 64 << 10
"""So much of an error's body is read."""


class Reply(NamedTuple):
    """A raw HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Endpoint:
    """Where calls go and how the connection is made; equal endpoints share one session."""

    url: str
    """Base URL without a trailing slash, such as http://127.0.0.1:8000/v1."""
    proxy: str | None = None
    ca_bundle: str | None = None
    """Path of a PEM file with the certificates to trust instead of the system's."""
    query: tuple[tuple[str, str], ...] = ()


def check_url(url: str, named: str) -> str:
    """The URL without its trailing slash; ConfigError when it is not an http(s) URL, naming where it came from.

    A query is refused as user names and passwords are: it may be a key, and requests are made to paths below the URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if "@" in parts.netloc or (not parts.netloc and "@" in url):
        raise ConfigError(f"{named} holds a user name or password; pass credentials as api_key or default_headers.")
    if parts.query or parts.fragment or "?" in url:
        raise ConfigError(f"{named} holds a query; pass it as default_query, and a key as api_key.")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"{named} is not a URL: found {url[:200]!r}; give one such as http://127.0.0.1:8000/v1.")
    return url.rstrip("/")


_sessions: dict[Endpoint, aiohttp.ClientSession] = {}
_inherited: list[object] = []


def _session(endpoint: Endpoint) -> aiohttp.ClientSession:
    session = _sessions.get(endpoint)
    if session is None or session.closed:
        import aiohttp

        context: ssl.SSLContext | bool = True
        if endpoint.ca_bundle:
            if not os.path.isfile(endpoint.ca_bundle):
                raise ConfigError(f"ca_bundle: no file at {endpoint.ca_bundle!r}; give the path of a PEM file.")
            context = ssl.create_default_context(cafile=endpoint.ca_bundle)
        # no connection limit here: the endpoint's limiter is the only one, so that no hidden ceiling of 100 applies
        connector = aiohttp.TCPConnector(
            limit=0, ttl_dns_cache=DNS_CACHE_SECONDS, keepalive_timeout=KEEPALIVE_SECONDS, ssl=context
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


async def post(endpoint: Endpoint, path: str, body: bytes, headers: Mapping[str, str], timeout: float | None) -> Reply:
    """Send one POST and read the whole answer; only to be awaited on the library loop.

    Raises:
        ProviderError: unreachable when no connection comes about, transient when one breaks or no answer comes in time.
    """
    return await _exchange("POST", endpoint, path, body, headers, timeout)


async def get(endpoint: Endpoint, path: str, headers: Mapping[str, str], timeout: float | None) -> Reply:
    """Send one GET; everything else as in `post`."""
    return await _exchange("GET", endpoint, path, None, headers, timeout)


async def _exchange(
    method: str, endpoint: Endpoint, path: str, body: bytes | None, headers: Mapping[str, str], timeout: float | None
) -> Reply:
    import aiohttp

    try:
        async with _session(endpoint).request(
            method,
            endpoint.url + path,
            data=body,
            headers=headers,
            params=endpoint.query or None,
            proxy=endpoint.proxy,
            timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_SECONDS, ceil_threshold=math.inf),
            allow_redirects=False,
        ) as response:
            limit = MAX_REPLY_BYTES if response.status == 200 else MAX_ERROR_BYTES
            content = await _bounded(response, limit)
            if content is None:
                response.close()
                raise ProviderError(
                    f"{endpoint.url} answered with more than {limit:,} bytes; its reply is not read.", kind="fatal"
                )
    except aiohttp.ConnectionTimeoutError as error:
        raise ProviderError(
            f"Cannot connect to {endpoint.url}: it does not take the connection.", kind="unreachable"
        ) from error
    except asyncio.TimeoutError as error:
        raise ProviderError(f"No answer from {endpoint.url} within {timeout or 0:.3g} s.", kind="transient") from error
    except aiohttp.ClientConnectorError as error:
        raise ProviderError(f"Cannot connect to {endpoint.url}: {error.strerror or error}.", kind="unreachable") from error
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"base_url is not a URL: {endpoint.url!r}.") from error
    except (aiohttp.ClientError, ConnectionError) as error:
        what = type(error).__name__
        raise ProviderError(f"The connection to {endpoint.url} broke ({what}).", kind="transient") from error
    return Reply(response.status, response.headers, content)


async def _bounded(response: aiohttp.ClientResponse, limit: int) -> bytes | None:
    """The body, decompressed; None when it is larger than `limit`. An error's body is cut there instead."""
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    length = response.content_length
    if not coding or coding == "identity":
        if length is not None and length <= limit:
            return await response.read()
        unpack = None
    elif coding in ("gzip", "x-gzip", "deflate"):
        unpack = zlib.decompressobj(47 if coding != "deflate" else 15)
    else:
        raise ProviderError(f"The reply is packed as {coding[:20]!r}, which nobody asked for.", kind="transient")
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


async def close_sessions() -> None:
    """Close every session; the next call opens new ones."""
    sessions = list(_sessions.values())
    _sessions.clear()
    for session in sessions:
        await session.close()


def _forget() -> None:
    # closing inherited sockets in a child would tear down the parent's TLS streams: keep the objects, never use them
    _inherited.append(dict(_sessions))
    for session in _sessions.values():
        connector = session.connector
        if connector is not None:
            session.detach()
            connector._closed = True  # silences "Unclosed connector" when the child collects it
    _sessions.clear()


library_loop.at_close(close_sessions)
library_loop.after_fork(_forget)
