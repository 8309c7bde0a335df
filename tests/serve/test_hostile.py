"""Bodies and connections that mean no good: each is refused with a 4xx, and the server goes on as if nothing had been."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from rm_gallery import RewardRegistry
from rm_gallery.evaluation import Store
from rm_gallery.serve.codecs import CODECS
from rm_gallery.serve.evaluators import ServedEvaluators
from tests.support.reward_server import RewardServer

MAX_BODY = 1 << 20
PATHS = ["/v1/rewards/it", "/v1/rewards/it/batch", *(codec.path for codec in CODECS if "{" not in codec.path)]
"""Every format once."""


@pytest.fixture(scope="module")
def server() -> Iterator[RewardServer]:
    settings: dict[str, Any] = {"max_body": MAX_BODY, "read_timeout": 1.0, "deadline": 10.0}
    with RewardServer({"it": RewardRegistry.create("accuracy")}, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RewardServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as opened:
        yield opened


@pytest.fixture(autouse=True)
def unhurt(client: httpx.Client) -> Iterator[None]:
    """The server answers afterwards, and at once."""
    yield
    began = time.monotonic()
    body = {"prompt": "2 + 2?", "completion": "4", "reference": "4"}
    assert client.post("/v1/rewards/it", json=body).json()["score"] == 1.0
    assert time.monotonic() - began < 2


def sent(server: RewardServer, *chunks: bytes, seconds: float = 30.0) -> bytes:
    """What the server answers to raw bytes, to the end of the connection or of `seconds`."""
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout=seconds)) as connection:
        try:
            for chunk in chunks:
                connection.sendall(chunk)
        except OSError:
            pass  # it has heard enough
        reply = b""
        try:
            while b"\r\n\r\n" not in reply and (more := connection.recv(65536)):
                reply += more
        except OSError:
            pass
        return reply


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1]) if reply else 0


HEAD = b"POST /v1/rewards/it HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HUGE = 100 << 20


def test_a_body_of_100_mb_is_not_read_into_memory(server: RewardServer) -> None:
    announced = sent(server, HEAD + b"Content-Length: %d\r\n\r\n" % HUGE, *[b"x" * (1 << 20)] * 100)
    assert status_of(announced) in (0, 413)
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    unannounced = sent(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 100, b"0\r\n\r\n")
    assert status_of(unannounced) in (0, 413)
    reply = httpx.post(f"{server.url}/evaluate", content=b"[" * (2 * MAX_BODY))
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "too_large")


def test_a_body_that_never_comes_is_given_up(server: RewardServer) -> None:
    began = time.monotonic()
    assert status_of(sent(server, HEAD + b"Content-Length: 100\r\n\r\n{")) == 408
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"nonsense", b"\xff\xfe\x00", b'{"messages": "\xff"}', b'"\\ud800"',
        b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b"[" * 70 + b"]" * 70,
        b'{"completion": NaN}', b'{"completion": Infinity}', b"[NaN]",
    ],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
def test_what_is_no_json_is_refused(client: httpx.Client, path: str, body: bytes) -> None:
    reply = client.post(path, content=body)
    assert 400 <= reply.status_code < 500
    assert len(reply.content) < 2000
    assert reply.json()["error"]["request_id"] == reply.headers["x-request-id"]


ODD: list[Any] = [
    None, 0, -1, 1e300, 10**40, True, "", "text", [], [None], [[]], {}, [{}], {"messages": None}, {"messages": [None]},
    {"messages": [{"role": None, "content": 1}]}, {"messages": [{"role": "user", "content": [{"type": 3}]}]},
    {"messages": [{"role": "assistant", "content": {"a": 1}}]}, {"messages": [{"role": "assistant", "tool_calls": [3]}]},
    {"messages": [{"role": "\x00", "content": "\x00"}]}, {"prompt": 1, "completion": 2, "response": 3},
    {"items": [None, 3, "x", {}]}, {"items": {}}, {"query": 1, "prompts": 2, "labels": 3}, {"text_1": {}, "text_2": []},
    {"input": 3}, {"example": 3, "response": 4}, {"sample": 3}, {"model_sample": 3}, {"grader": 3, "model_sample": "x"},
    [{"id": 3, "messages": 4}], [{"id": "x", "messages": [3]}], {"completion": "4", "reference": {"a": [1e308, -0.0, 10**18]}},
    {"completion": "4", "row": {"": None, "a" * 5000: [[]]}}, {"completion": "4\x00\u202e", "reference": "4"},
    {"completion": "4", "reference": 10**30}, {"completion": "4", "id": "x" * 10_000}, {"messages": [{"role": "user" * 9999}]},
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_values_of_wrong_types_are_no_fault_of_the_server(client: httpx.Client, path: str) -> None:
    for body in ODD:
        for query in ("", "?on_error=1", "?on_error=%ff", "?reference=x&prompt=%00&keys=2"):
            reply = client.post(path + query, content=json.dumps(body), headers={"Content-Type": "application/json"})
            assert reply.status_code < 500, (path, query, str(body)[:100], reply.text[:300])
            assert "Traceback" not in reply.text and '.py"' not in reply.text


@pytest.mark.parametrize(
    "path",
    ["/v1/rewards/..%2f..%2fetc%2fpasswd", "/v1/rewards/" + "x" * 5000, "/v1/rewards/%00", "/v1/rewards/%ff", "/v1/rewards/it/..",
     "//v1/rewards/it", "/v1/evaluations/..", "/openapi.json/x", "/v1/rewards/a%0d%0aX-Evil:%201"],
)  # fmt: skip
def test_odd_paths_are_not_found(server: RewardServer, path: str) -> None:
    reply = sent(
        server,
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode(),
    )
    assert status_of(reply) in (400, 404, 405, 422)
    assert b"x-evil" not in reply.lower()


@pytest.mark.parametrize(
    "name", ["X-Request-Id", "X-Timeout-Seconds", "Content-Length", "Authorization", "Accept-Encoding"]
)
@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"nan", b"-1", b"1e400", b"x" * 5000, b"0", b"bytes=0-"])
def test_odd_headers_are_refused_or_passed_over(server: RewardServer, name: str, value: bytes) -> None:
    given = b"" if name == "Content-Length" else b"Content-Length: 2\r\n"
    head = (
        b"POST /v1/rewards/it HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        + given
        + name.encode()
        + b": "
        + value
    )
    reply = sent(server, head + b"\r\n\r\n{}", seconds=5)
    assert 400 <= status_of(reply) < 500
    assert value not in reply.split(b"\r\n\r\n")[0] or len(value) < 6


def test_nothing_but_http_is_hung_up_on(server: RewardServer) -> None:
    assert status_of(sent(server, b"\x16\x03\x01\x02\x00" + b"\x00" * 512, seconds=5)) in (0, 400)
    assert status_of(sent(server, b"GET / HTTP/9.9\r\n\r\n", seconds=5)) in (0, 400, 404)


HEADS = """
from rm_gallery import RewardRegistry
from rm_gallery.serve.app import create_app
from rm_gallery.serve.handler import Handler
from rm_gallery.serve.server import run_server
from rm_gallery.serve.settings import ServeSettings

settings = ServeSettings(port=0, read_timeout=1.0)
app = create_app(Handler({"it": RewardRegistry.create("accuracy")}), settings)
run_server(app, settings, lambda url: print(url.rpartition(":")[2], flush=True))
"""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server as the command runs it, which gives a head one second."""
    with subprocess.Popen([sys.executable, "-c", HEADS], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"GET /health HTTP/1.1\r\nX-A: ", b"a"),
        (b"GET /health HTTP/1.1\r\n", b"a: b\r\n"),
        (b"GET /", b"a"),
        (b"POST /v1/rewards/it HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"a: b\r\n"),
        (b"", b"POST /v1/rewards/it HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"),
    ],
    ids=["header", "headers", "path", "trailers", "pipelined"],
)  # fmt: skip
def test_a_connection_that_sends_no_end_of_a_head_is_closed(port: int, head: bytes, more: bytes) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as connection:
        connection.sendall(head)
        with pytest.raises(OSError):
            for _ in range(64):
                connection.sendall(more * ((1 << 20) // len(more)))


@pytest.mark.parametrize("head", [b"", b"GET /health HTTP/1.1\r\nHost: localh"])
def test_a_head_that_never_comes_is_given_up(port: int, head: bytes) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as connection:
        connection.sendall(head)
        began = time.monotonic()
        assert connection.recv(100) == b""
        assert time.monotonic() - began < 10
    assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example:8000"}, {"Origin": "http://[evil"}, {"Origin": "null"}, {"Origin": "http://localhost.evil.example"}],
)  # fmt: skip
def test_a_page_of_another_site_reads_nothing(client: httpx.Client, headers: dict[str, str]) -> None:
    for reply in (client.get("/v1/rewards", headers=headers), client.post("/v1/rewards/it", json={}, headers=headers)):
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden")
    port = client.base_url.port
    for origin in (f"http://localhost:{port}", f"http://127.0.0.1:{port}", f"http://[::1]:{port}"):
        assert client.get("/v1/rewards", headers={"Origin": origin, "Host": origin[7:]}).status_code == 200


def test_the_documentation_loads_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.status_code == 200 and "/v1/rewards/{name}" in page.text
    assert "://" not in page.text and "<script" not in page.text
    assert client.get("/redoc").status_code == 404


def test_who_asks_for_an_evaluator_that_is_not_there_is_told_nothing_of_the_store(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "secret-place.db")
    with RewardServer({}, ServedEvaluators(store, sandbox="subprocess")) as server:
        for path in ("none", "none/batch", "none/outcome/batch", "%00", "a%0Ab/batch"):
            body = {"items": [{}]} if "outcome" in path else [{}] if "batch" in path else {"messages": []}
            reply = httpx.post(f"{server.url}/v1/evaluations/{path}", json=body)
            assert reply.status_code == 404, (path, reply.text)
            assert "secret-place" not in reply.text
        assert "evaluator:" not in httpx.get(f"{server.url}/metrics").text
