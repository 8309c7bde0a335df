"""What an endpoint sends is bounded and cleaned: bodies, packed bodies, error texts, and JSON of any shape."""

from __future__ import annotations

import gzip
import json
import resource
import threading
import time
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rm_gallery.core.model import transport
from rm_gallery.core.model.reply import MAX_TOKENS, one_line, to_response
from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.utils.errors import ProviderError, Unscored

GOOD: dict[str, Any] = {"choices": [{"message": {"content": "<score>3</score>"}, "finish_reason": "stop"}]}


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
    return OpenaiLLM("m", base_url=server.url, max_attempts=1, cache=False, **settings).chat("hi").text


def bomb(megabytes: int, packer: Any) -> bytes:
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(megabytes)) + bytes(packer.flush())


@pytest.mark.parametrize("how", ["endless", "announced", "gzip", "deflate"])
@pytest.mark.parametrize("status", [200, 500])
def test_e6_a_body_is_read_up_to_its_limit(raw: Raw, how: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_REPLY_BYTES", 1 << 20)
    raw.status = status
    if how == "endless":
        raw.chunks, raw.repeat = [b"x" * 65536], 1 << 14
    elif how == "announced":
        raw.chunks, raw.repeat, raw.headers = [b"x" * 65536], 1 << 14, {"Content-Length": str(1 << 30)}
    else:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31 if how == "gzip" else 15)
        raw.chunks, raw.headers = [bomb(256, packer)], {"Content-Encoding": how}
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(ProviderError) as caught:
        ask(raw)
    assert ("more than 1,048,576 bytes" in str(caught.value)) == (status == 200)
    assert caught.value.kind == ("fatal" if status == 200 else "transient")
    assert len(str(caught.value)) < 600
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, None])
def test_packed_replies_are_read(raw: Raw, pack: Any) -> None:
    body = json.dumps(GOOD).encode()
    raw.chunks = [body if pack is None else pack(body)]
    raw.headers = {} if pack is None else {"Content-Encoding": "gzip" if pack is gzip.compress else "deflate"}
    assert ask(raw) == "<score>3</score>"


BODIES = [
    (b'{"choices":[{"message":{"content":"\\ud800 <score>3</score>"}}]}', "<score>3</score>"),
    (b'{"choices":[{"message":{"content":"\xff <score>3</score>"}}]}', "<score>3</score>"),
    (b'{"choices":[{"message":{"content":"<score>3</score>"},"logprobs":{"x":NaN}}]}', "<score>3</score>"),
    (b"[" * 100_000, None),
    (b'{"choices":' + b"[" * 2000 + b"]" * 2000 + b"}", None),
    (b"null", None),
    (b"<html>busy</html>", None),
]


@pytest.mark.parametrize(("body", "text"), BODIES, ids=[str(number) for number in range(len(BODIES))])
def test_e_minor_odd_bodies_are_read_or_tried_again(raw: Raw, body: bytes, text: str | None) -> None:
    raw.chunks = [body]
    if text is None:
        with pytest.raises(ProviderError) as caught:
            ask(raw)
        assert caught.value.kind == "transient"
    else:
        reply = ask(raw)
        assert text in reply
        reply.encode()


VALUES: list[Any] = [None, True, 0, -1, 1e300, "text", [], [1], {}, {"a": 1}]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_e_minor_no_shape_of_a_reply_is_a_bug_of_ours(value: Any) -> None:
    """Any value in any place gives a reply or a transient error."""
    places = ["content", "role", "tool_calls", "refusal", "reasoning_content", "function_call"]
    shapes: list[dict[str, Any]] = [{"choices": [{"message": {"content": "x", place: value}}]} for place in places]
    shapes += [{**GOOD, place: value} for place in ("usage", "model", "id", "choices", "error")]
    shapes += [{"choices": [{**GOOD["choices"][0], place: value}]} for place in ("finish_reason", "logprobs", "index")]
    shapes += [{**GOOD, "usage": {name: value}} for name in ("prompt_tokens", "completion_tokens_details")]
    shapes += [{"choices": [value]}, {"choices": [GOOD["choices"][0], value]}]
    for shape in shapes:
        try:
            found = to_response(shape, "http://x/v1")
        except ProviderError as error:
            assert error.kind == "transient", shape
        else:
            assert 0 <= found.usage.input_tokens <= MAX_TOKENS
            found.model_dump_json()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07done\x1b]8;;http://x\x1b\\link", "donelink"),
        ("a\x00b\r\nc\x9b2Jd", "a b c 2Jd"),
        ("\u202eright to left\u2069", "right to left"),
        ("评分\t错误", "评分 错误"),
        ("x" * 1000, "x" * 299 + "…"),
    ],
)
def test_e_minor_error_texts_are_one_clean_line(raw: Raw, text: str, shown: str) -> None:
    assert one_line(text) == shown
    raw.status, raw.chunks = 400, [json.dumps({"error": {"message": text}}).encode()]
    with pytest.raises(ProviderError) as caught:
        ask(raw)
    assert f"answered 400: {shown} (" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "error", "kind", "filtered"),
    [
        (429, {"message": "slow down", "type": "rate_limit_error"}, "rate_limit", False),
        (429, {"message": "Request too large for m on tokens per min: Limit 9, Requested 12."}, "fatal", False),
        (429, {"message": "nothing left", "code": "insufficient_quota"}, "fatal", False),
        (429, {"message": "nothing left", "type": "insufficient_quota"}, "fatal", False),
        (400, {"message": "no", "code": "content_filter"}, "fatal", True),
        (400, {"message": "no", "code": "data_inspection_failed"}, "fatal", True),
        (400, {"message": "no", "code": "bad_request"}, "fatal", False),
        (599, {"message": "who knows"}, "transient", False),
    ],
)
def test_what_an_error_says_decides_whether_another_try_is_made(
    raw: Raw, status: int, error: dict[str, str], kind: str, filtered: bool
) -> None:
    raw.status, raw.chunks = status, [json.dumps({"error": error}).encode()]
    with pytest.raises(Unscored if filtered else ProviderError, match=error["message"]) as caught:
        ask(raw)
    assert getattr(caught.value.__cause__ if filtered else caught.value, "kind", None) == kind
