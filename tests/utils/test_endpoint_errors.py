"""Whose fault an exception of a reward's own code is: what did not answer over a network, or
anything else.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import socket
import ssl
import urllib.error
from email.message import Message
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery.core.score import score_of_error
from rm_gallery.core.utils.endpoint_errors import is_endpoint_error


def of_client(module: str, *names: str, **fields: Any) -> Exception:
    """An error of a client that need not be installed: the last class derives from the one before
    it.
    """
    kind: type[Exception] = Exception
    for name in names:
        kind = type(name, (kind,), {"__module__": module})
    error = kind("no answer")
    error.__dict__.update(fields)
    return error


def raised_from(cause: Exception, *, hidden: bool = False) -> Exception:
    """An error of the user's own that a client's stands behind."""
    try:
        try:
            raise cause
        except Exception as error:
            if hidden:
                raise RuntimeError("the judge gave nothing") from None
            raise RuntimeError("the judge gave nothing") from error
    except RuntimeError as error:
        return error


def http_error(status: int) -> Exception:
    return urllib.error.HTTPError("http://x", status, "no", Message(), None)


ENDPOINT: dict[str, Exception] = {
    "refused": ConnectionRefusedError("no"), "reset": ConnectionResetError("no"), "timeout": TimeoutError("late"),
    "asyncio": asyncio.TimeoutError(), "futures": concurrent.futures.TimeoutError(), "name": socket.gaierror(-2, "unknown"),
    "tls": ssl.SSLError("handshake"), "no route": OSError(errno.EHOSTUNREACH, "no route"),
    "files": OSError(errno.EMFILE, "too many open files"), "urllib": http_error(503), "urllib 429": http_error(429),
    "httpx": of_client("httpx", "TransportError", "ConnectError"), "httpcore": of_client("httpcore._exceptions", "NetworkError"),
    "aiohttp": of_client("aiohttp.client_exceptions", "ClientConnectionError", "ServerDisconnectedError"),
    "aiohttp 502": of_client("aiohttp.client_exceptions", "ClientResponseError", status=502),
    "requests": of_client("requests.exceptions", "Timeout", "ReadTimeout"),
    "requests 500": of_client("requests.exceptions", "HTTPError", response=SimpleNamespace(status_code=500)),
    "urllib3": of_client("urllib3.exceptions", "TimeoutError", "ReadTimeoutError"),
    "openai": of_client("openai", "APIConnectionError", "APITimeoutError"),
    "openai 429": of_client("openai", "APIStatusError", "RateLimitError", status_code=429),
    "anthropic": of_client("anthropic", "APIConnectionError"), "anthropic 529": of_client("anthropic", "APIStatusError", status_code=529),
    "grpc": of_client("grpc", "RpcError", code=lambda: SimpleNamespace(name="UNAVAILABLE")),
    "botocore": of_client("botocore.exceptions", "HTTPClientError", "ConnectTimeoutError"),
    "botocore 503": of_client("botocore.exceptions", "ClientError", response={"ResponseMetadata": {"HTTPStatusCode": 503}}),
    "redis": of_client("redis.exceptions", "ConnectionError", "BusyLoadingError"),
    "raised from one": raised_from(TimeoutError("late")), "hidden": raised_from(ConnectionError("gone"), hidden=True),
}  # fmt: skip
OWN: dict[str, Exception] = {
    "value": ValueError("no number"), "no file": FileNotFoundError(errno.ENOENT, "no such file", "../answer"),
    "not allowed": PermissionError(errno.EACCES, "no", "/etc"), "folder": IsADirectoryError(errno.EISDIR, "no", "/"),
    "long name": OSError(errno.ENAMETOOLONG, "no"), "no image": OSError("cannot identify image file"),
    "too large": http_error(413), "bad request": of_client("openai", "APIStatusError", "BadRequestError", status_code=400),
    "unprocessable": of_client("requests.exceptions", "HTTPError", response=SimpleNamespace(status_code=422)),
    "grpc": of_client("grpc", "RpcError", code=lambda: SimpleNamespace(name="INVALID_ARGUMENT")),
    "botocore": of_client("botocore.exceptions", "ClientError", response={"ResponseMetadata": {"HTTPStatusCode": 400}}),
    "a name alone": of_client("mine", "APIConnectionError"), "raised from one": raised_from(ValueError("no number")),
}  # fmt: skip


@pytest.mark.parametrize("error", ENDPOINT.values(), ids=ENDPOINT)
def test_what_did_not_answer_is_the_endpoints_fault(error: Exception) -> None:
    assert is_endpoint_error(error) and score_of_error(error).cause == "endpoint"


@pytest.mark.parametrize("error", OWN.values(), ids=OWN)
def test_what_the_content_may_have_caused_is_not(error: Exception) -> None:
    """An answer may name the file that a reward opens, and be too long for a server."""
    assert not is_endpoint_error(error) and score_of_error(error).cause == "rule"


def test_a_group_and_a_circle_of_errors_are_looked_through() -> None:
    group = RuntimeError("several")
    group.__dict__["exceptions"] = (ValueError("x"), ConnectionError("gone"))
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__context__, other.__context__ = other, one
    assert is_endpoint_error(group) and not is_endpoint_error(one)
