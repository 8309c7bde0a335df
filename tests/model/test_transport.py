"""What an endpoint sends is bounded and cleaned: bodies, packed bodies, error texts, and JSON of
any shape.
"""

from __future__ import annotations

import gzip
import json
import resource
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rm_gallery import ConfigError, OpenaiLLM, ProviderError, Unscored
from rm_gallery.core.model import transport
from rm_gallery.core.model.openai import MAX_TOKENS, to_response

GOOD: dict[str, Any] = {
    "choices": [{"message": {"content": "<score>3</score>"}, "finish_reason": "stop"}]
}
LIMIT = 1 << 16


class Raw(ThreadingHTTPServer):
    """Answers every POST with the same status, headers and chunks."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.headers, self.chunks, self.repeat = 200, dict[str, str](), [b""], 1
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is what is being tried."""


class _Handler(BaseHTTPRequestHandler):
    server: Raw

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for _ in range(self.server.repeat):
            for chunk in self.server.chunks:
                self.wfile.write(chunk)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def raw() -> Iterator[Raw]:
    server = Raw()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ask(server: Raw, **settings: Any) -> str:
    return (
        OpenaiLLM("m", base_url=server.url, **{"max_attempts": 1, "cache": False, **settings})
        .chat("hi")
        .text
    )


@pytest.mark.parametrize("how", ["endless", "announced", "gzip", "deflate"])
@pytest.mark.parametrize("status", [200, 500])
def test_a_body_is_read_up_to_its_limit(
    raw: Raw, how: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_REPLY_BYTES", 1 << 20)
    raw.status = status
    if how in ("endless", "announced"):
        raw.chunks, raw.repeat = [b"x" * 65536], 1 << 12
        raw.headers = {"Content-Length": str(1 << 28)} if how == "announced" else {}
    else:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31 if how == "gzip" else 15)
        raw.chunks = [packer.compress(bytes(1 << 20)) for _ in range(128)] + [packer.flush()]
        raw.headers = {"Content-Encoding": how}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ProviderError) as caught:
        ask(raw)
    assert ("more than 1,048,576 bytes" in str(caught.value)) == (status == 200)
    assert (
        caught.value.kind == ("fatal" if status == 200 else "transient")
        and len(str(caught.value)) < 600
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP", "deflate", "identity", None])
@pytest.mark.parametrize("over", [0, 1])
def test_packed_replies_are_read_up_to_the_last_byte(
    raw: Raw, coding: str | None, over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_REPLY_BYTES", LIMIT)
    body = json.dumps(GOOD).encode().ljust(LIMIT + over)
    pack = (
        zlib.compress
        if coding == "deflate"
        else gzip.compress
        if coding and "zip" in coding.lower()
        else bytes
    )
    raw.chunks, raw.headers = [pack(body)], {} if coding is None else {"Content-Encoding": coding}
    raw.headers["Content-Length"] = str(len(raw.chunks[0]))
    if over:
        with pytest.raises(ProviderError, match="more than 65,536 bytes"):
            ask(raw)
    else:
        assert ask(raw) == "<score>3</score>"


@pytest.mark.parametrize(
    ("coding", "said"), [("br", "packed in a way that nobody"), ("gzip", "cannot be unpacked")]
)
def test_what_cannot_be_unpacked_is_tried_again(raw: Raw, coding: str, said: str) -> None:
    raw.chunks, raw.headers = [b"no such packing"], {"Content-Encoding": coding}
    with pytest.raises(ProviderError, match=said) as caught:
        ask(raw)
    assert caught.value.kind == "transient"


@pytest.mark.parametrize("body", ["[1]", "null", "<html>"])
def test_a_body_that_is_no_object_is_tried_again(raw: Raw, body: str) -> None:
    raw.chunks = [body.encode()]
    with pytest.raises(ProviderError, match="not an object|not JSON") as caught:
        ask(raw)
    assert caught.value.kind == "transient"


def test_an_error_is_told_and_decides_whether_another_try_is_made(raw: Raw) -> None:
    raw.status, raw.chunks = (
        400,
        [b'{"error": {"message": "\\u001b[31mno", "code": "content_filter"}}'],
    )
    with pytest.raises(Unscored, match=r"refused the question: http.*/v1 answered 400: no \("):
        ask(raw)
    raw.status, raw.headers, raw.chunks = 429, {"Retry-After-Ms": "20"}, [b"{}"]
    with pytest.raises(ProviderError, match="gave up after 2 attempts") as caught:
        ask(raw, max_attempts=2)
    assert (caught.value.kind, caught.value.retry_after) == ("rate_limit", 0.02)


def test_where_no_connection_can_be_made_that_is_said() -> None:
    with pytest.raises(ProviderError, match="Cannot connect to http://127.0.0.1:1/v1: ") as caught:
        OpenaiLLM("m", base_url="http://127.0.0.1:1/v1", max_attempts=1).chat("hi")
    assert caught.value.kind == "unreachable"
    with pytest.raises(ConfigError, match=r"ca_bundle: no file at '/no/such\.pem'"):
        OpenaiLLM("m", base_url="https://127.0.0.1:1/v1", ca_bundle="/no/such.pem").chat("hi")


def test_a_reply_is_waited_for_as_long_as_the_timeout_says(raw: Raw) -> None:
    go_on = threading.Event()
    raw.finish_request = lambda *_: go_on.wait(20)  # type: ignore[method-assign,assignment]
    try:
        with pytest.raises(
            ProviderError, match=r"No answer from http.*/v1 within 0\.05 s"
        ) as caught:
            ask(raw, timeout=0.05)
        assert caught.value.kind == "transient"
    finally:
        go_on.set()


@pytest.mark.parametrize(
    "value", [None, True, 0, -1, 1e300, "text", [], [1], {}, {"a": 1}], ids=str
)
def test_no_shape_of_a_reply_is_a_bug_of_ours(value: Any) -> None:
    """Any value in any place gives a reply or a transient error."""
    places = ["content", "role", "tool_calls", "refusal", "reasoning_content", "function_call"]
    shapes: list[dict[str, Any]] = [
        {"choices": [{"message": {"content": "x", place: value}}]} for place in places
    ]
    shapes += [{**GOOD, place: value} for place in ("usage", "model", "id", "choices", "error")]
    shapes += [
        {"choices": [{**GOOD["choices"][0], place: value}]}
        for place in ("finish_reason", "logprobs", "index")
    ]
    shapes += [
        {**GOOD, "usage": {name: value}} for name in ("prompt_tokens", "completion_tokens_details")
    ]
    shapes += [{"choices": [value]}, {"choices": [GOOD["choices"][0], value]}]
    for shape in shapes:
        try:
            found = to_response(shape, lambda: "http://x/v1")
        except ProviderError as error:
            assert error.kind == "transient", shape
        else:
            assert 0 <= found.usage.input_tokens <= MAX_TOKENS
            found.model_dump_json()
