"""Which exceptions of a reward's own code say that something it called over a network did not
answer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import socket
import ssl
from collections.abc import Iterator

_BUILTIN = (
    ConnectionError,
    TimeoutError,
    asyncio.TimeoutError,  # a class of its own before Python 3.11, as is the next one
    concurrent.futures.TimeoutError,
    socket.gaierror,
    socket.herror,
    ssl.SSLError,
)
_ERRNOS = frozenset(
    number
    for name in (
        "ENETDOWN ENETUNREACH ENETRESET EHOSTDOWN EHOSTUNREACH EADDRNOTAVAIL ENOTCONN ENOBUFS "
        "EMFILE ENFILE EPROTO WSAENETDOWN WSAENETUNREACH WSAEHOSTDOWN WSAEHOSTUNREACH WSAENOBUFS "
        "WSAEMFILE"
    ).split()
    if (number := getattr(errno, name, None)) is not None
)
"""Numbers of plain OSErrors that say so. Those of files are not among them: an answer may name the
file that a reward opens.
"""
_OF_CLIENTS: dict[str, frozenset[str]] = {
    package: frozenset(names.split())
    for package, names in {
        "httpx": "TransportError",
        "httpcore": "TimeoutException NetworkError ProtocolError ProxyError ConnectionNotAvailable",
        "aiohttp": "ClientConnectionError ClientPayloadError ServerTimeoutError",
        "requests": "ConnectionError Timeout ChunkedEncodingError",
        "urllib3": (
            "TimeoutError ProtocolError ProxyError SSLError PoolError MaxRetryError "
            "NewConnectionError"
        ),
        "http": "IncompleteRead BadStatusLine",
        "openai": "APIConnectionError",
        "anthropic": "APIConnectionError",
        "botocore": "HTTPClientError ConnectionError EndpointConnectionError",
        "redis": "ConnectionError TimeoutError",
        "websockets": "ConnectionClosed",
    }.items()
}
"""By package, the bases of its connection and timeout errors; known by name, since importing a
client costs more than a reward.
"""
_STATUSES = frozenset({401, 403, 407, 408, 409, 425, 429})
"""HTTP statuses below 500 that say nothing about the request's content."""
_RPC_STATUSES = frozenset(
    "UNAVAILABLE DEADLINE_EXCEEDED RESOURCE_EXHAUSTED ABORTED CANCELLED INTERNAL UNAUTHENTICATED".split()
)
_DEEPEST = 32


def is_endpoint_error(error: BaseException) -> bool:
    """Whether an error, or one that it was raised from or while handling, says that an endpoint did
    not answer.

    True for connection errors and timeouts of Python and of the usual clients, and for HTTP
    statuses of an overloaded or broken server. False for errors of local files and for statuses
    such as 400 and 413, which the text that was sent may have caused.
    """
    return any(_says_so(one) for one in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes and contexts and the members of groups, each once; `raise … from None`
    hides nothing.
    """
    left, seen = [error], set[int]()
    while left and len(seen) < _DEEPEST:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        # of an ExceptionGroup, which Python 3.10 has not
        members = getattr(one, "exceptions", None)
        linked = [one.__context__, one.__cause__, *(members if isinstance(members, tuple) else ())]
        left += [each for each in linked if isinstance(each, BaseException)]


def _says_so(error: BaseException) -> bool:
    if isinstance(error, _BUILTIN) or (isinstance(error, OSError) and error.errno in _ERRNOS):
        return True
    if any(
        kind.__name__ in _OF_CLIENTS.get(kind.__module__.partition(".")[0], ())
        for kind in type(error).__mro__
    ):
        return True
    status = _status_of(error)
    return (
        status in _RPC_STATUSES if isinstance(status, str) else status in _STATUSES or status >= 500
    )


_STATUS_AT = {"httpx": "status_code", "requests": "status_code", "openai": "status_code", "anthropic": "status_code",
              "aiohttp": "status", "urllib": "code"}  # fmt: skip
"""By package, where its errors (or the responses that they hold) keep the HTTP status."""


def _status_of(error: BaseException) -> int | str:
    """The HTTP status, or the name of the gRPC status, of a known client's error; 0 where it has
    none.
    """
    for kind in type(error).__mro__:
        package = kind.__module__.partition(".")[0]
        if package == "grpc":
            code = getattr(error, "code", None)
            return str(getattr(code() if callable(code) else code, "name", "UNAVAILABLE"))
        if package == "botocore":
            response = getattr(error, "response", None)
            about = response.get("ResponseMetadata") if isinstance(response, dict) else None
            status = about.get("HTTPStatusCode") if isinstance(about, dict) else None
            return status if isinstance(status, int) else 0
        if package in _STATUS_AT:
            name = _STATUS_AT[package]
            status = getattr(error, name, None) or getattr(
                getattr(error, "response", None), name, None
            )
            return status if isinstance(status, int) else 0
    return 0
