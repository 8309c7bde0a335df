"""Endpoints that do not take a request as it is: only stream, know no system role, want turns to
alternate, fail inside a 200.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rm_gallery import OpenaiLLM, ProviderError, RewardRegistry, RunOptions
from rm_gallery.core.model.openai import to_response, whole_reply
from rm_gallery.integrations.trl import trl_reward
from tests.support.samples import make_sample

VERDICT = "<score>7</score>"
Reply = tuple[int, "bytes | dict[str, Any]"]
Bodies = list[dict[str, Any]]


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Reply]) -> Iterator[tuple[str, Bodies]]:
    """A server of chat completions that answers as it is told, with the bodies that reached it."""
    bodies: Bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append(body)
            status, reply = answer(body)
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header(
                "Content-Type",
                "text/event-stream" if isinstance(reply, bytes) else "application/json",
            )
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def plain(text: str) -> dict[str, Any]:
    return {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "model": "m",
    }


def refusal(message: str) -> Reply:
    return 400, {"error": {"message": message, "type": "invalid_request_error"}}


def streamed(text: str, end: str = "data: [DONE]\n\n") -> bytes:
    pieces = [text[i : i + 3] for i in range(0, len(text), 3)]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces
    ]
    chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}] if end else []
    chunks += (
        [{"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 5}, "model": "m"}]
        if end
        else []
    )
    return (
        ": keep-alive\r\n\r\n"
        + "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks)
        + end
    ).encode()


def scores(url: str, n: int = 40, channel: str = "auto") -> list[float | None]:
    llm = OpenaiLLM("m", base_url=url, api_key="none-needed")
    reward = RewardRegistry.create("base_helpfulness_pointwise", llm=llm, channel=channel)
    samples = [make_sample(f"answer {number}", unique_id=str(number)) for number in range(n)]
    # one first: the others of a batch wait for it half a second only, which a loaded machine may
    # take
    done = [
        reward.evaluate(samples[0]),
        *reward.evaluate_batch(samples[1:], options=RunOptions(progress=False, max_workers=16)),
    ]
    return [
        s.output[0].answer.reward.score if s.output[0].answer.reward.details else None for s in done
    ]


STREAM = [
    "This model only support stream mode, please enable the stream parameter to access the model.",
    "Stream must be set to true for this model",
    "parameter.enable_thinking must be set to false for non-streaming calls",
    "Non-streaming requests are not supported by this deployment.",
]
SYSTEM = [
    "System role not supported",
    "Developer instruction is not enabled for models/gemma-3-27b-it",
    "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
    "Conversation roles must alternate user/assistant/user/assistant/...",
]


@pytest.mark.parametrize("message", STREAM)
def test_a_model_that_only_streams_is_asked_so_after_one_refusal(message: str) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        return (200, streamed(VERDICT)) if body.get("stream") else refusal(message)

    with serving(answer) as (url, bodies):
        assert scores(url) == [7.0] * 40
    assert len(bodies) <= 42
    assert sum(not body.get("stream") for body in bodies) <= 2


@pytest.mark.parametrize("message", SYSTEM)
def test_a_model_without_a_system_role_is_told_in_the_users_turn(message: str) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        roles = [turn["role"] for turn in body["messages"]]
        wrong = "system" in roles or any(a == b for a, b in zip(roles, roles[1:], strict=False))
        return refusal(message) if wrong else (200, plain(VERDICT))

    with serving(answer) as (url, bodies):
        assert scores(url) == [7.0] * 40
    assert len(bodies) <= 42
    system, user = (turn["content"] for turn in bodies[0]["messages"])
    assert bodies[-1]["messages"][0]["content"].startswith(system.strip()[:40])
    assert len(bodies[-1]["messages"][0]["content"]) >= len(system) + len(user) - 80


def test_what_is_found_out_adds_up() -> None:
    def answer(body: dict[str, Any]) -> Reply:
        if body["messages"][0]["role"] == "system":
            return refusal("System role not supported")
        if not body.get("stream"):
            return refusal("Only supports streaming")
        if "stream_options" in body:
            return refusal("Unsupported parameter: 'stream_options' is not supported")
        return 200, streamed(VERDICT)

    with serving(answer) as (url, bodies):
        assert scores(url, n=8) == [7.0] * 8
    assert len(bodies) == 8 + 3


def test_an_error_inside_a_200_ends_by_its_code_after_one_call() -> None:
    with serving(
        lambda body: (200, {"error": {"message": "Insufficient balance", "code": 402}})
    ) as (url, bodies):
        llm = OpenaiLLM("m", base_url=url, api_key="none-needed")
        with pytest.raises(ProviderError, match="Insufficient balance"):
            llm.chat("Hello")
    assert len(bodies) == 1


@pytest.mark.parametrize("body", [
    streamed("half a reply", end=""),
    b"",
    b'data: {"a":' + b'{"a":' * 1000 + b"1" + b"}" * 1001 + b"\n\ndata: [DONE]\n\n",
    b'data: {"choices": [{"index": 0, "delta": {"content": "half',
    b'data: {"choices": [{"index": 0, "delta": {"content": "half"}}]}\n\n',
])  # fmt: skip
def test_a_stream_that_breaks_off_is_no_reply(body: bytes) -> None:
    with pytest.raises(ProviderError) as caught:
        whole_reply(body, "http://x")
    assert caught.value.kind == "transient"


def test_pieces_add_up_to_the_reply_that_is_not_streamed() -> None:
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "reasoning_content": "先"},
        {"reasoning_content": "想", "content": None},
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a"'}}]},
        {
            "tool_calls": [
                {"index": 0, "function": {"arguments": ": 1}"}},
                {"index": 1, "id": "c2", "function": {"name": "g"}},
            ]
        },
        {"content": "好"},
    ]
    chunks: list[dict[str, Any]] = [
        {"id": "r", "choices": [{"index": 0, "delta": delta}]} for delta in deltas
    ]
    chunks[-1]["choices"][0] |= {
        "finish_reason": "tool_calls",
        "logprobs": {"content": [{"token": "好"}]},
    }
    chunks.append({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    for sign in ("data: ", "data:"):
        raw = whole_reply(
            "".join(f"{sign}{json.dumps(c, ensure_ascii=False)}\n\n" for c in chunks).encode(),
            "http://x",
        )
        (choice,) = raw["choices"]
        assert (
            choice["message"]["content"] == "好"
            and choice["message"]["reasoning_content"] == "先想"
        )
        assert [call["function"] for call in choice["message"]["tool_calls"]] == [
            {"name": "f", "arguments": '{"a": 1}'}, {"name": "g", "arguments": ""},
        ]  # fmt: skip
        assert choice["finish_reason"] == "tool_calls" and choice["logprobs"] == {
            "content": [{"token": "好"}]
        }
        assert raw["usage"]["completion_tokens"] == 2 and raw["id"] == "r"


@pytest.mark.parametrize("value", [None, True, 0, 1e300, "x", [], [1], {}, {"a": 1}], ids=str)
def test_no_shape_of_a_chunk_is_a_bug_of_ours(value: Any) -> None:
    """Any value in any place of a chunk, before and after a usual one: a reply or an error."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    delta = {"content": "x", "reasoning_content": "y", "tool_calls": [call]}
    choice = {"index": 0, "delta": delta, "logprobs": {"content": [1]}, "finish_reason": "stop"}
    usual: dict[str, Any] = {"id": "r", "model": "m", "usage": {}, "choices": [choice]}
    odd: list[dict[str, Any]] = [{**usual, name: value} for name in usual]
    odd += [{"choices": value}, {"choices": [value]}]
    odd += [{"choices": [{**choice, name: value}]} for name in choice]
    odd += [{"choices": [{**choice, "delta": {**delta, name: value}}]} for name in delta]
    odd += [
        {"choices": [{"delta": {"tool_calls": [{**call, name: value}]}, "finish_reason": "stop"}]}
        for name in call
    ]
    for each in odd:
        for chunks in ([each, usual], [usual, each]):
            body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
            try:
                to_response(whole_reply(body.encode(), "http://x"), lambda: "http://x")
            except ProviderError as error:
                assert error.kind == "transient", each


def test_an_error_in_the_middle_of_a_stream_is_an_error() -> None:
    body = streamed("half", end="") + b'data: {"error": {"message": "overloaded", "code": 503}}\n\n'

    def answer(_: dict[str, Any]) -> Reply:
        return (200, body) if _.get("stream") else refusal("Only supports streaming")

    with serving(answer) as (url, _bodies):
        llm = OpenaiLLM("m", base_url=url, api_key="none-needed", max_attempts=1)
        with pytest.raises(ProviderError, match="overloaded"):
            llm.chat("Hello")


@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "message": "Too much."},
        {"message": "This model's maximum context length is 8"},
    ],
)
def test_a_request_that_is_too_long_is_the_answers_doing_and_costs_no_neighbour(
    error: dict[str, Any],
) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        text = json.dumps(body["messages"])
        verdict = (
            "<best>1</best>"
            if "candidate" in text.lower() or "answer_2" in text
            else "<score>7</score>"
        )
        return (
            (400, {"error": error})
            if "BREAK" in text
            else (200, plain(f"{verdict}<score>7</score>" if "best" in text else verdict))
        )

    with serving(answer) as (url, _):
        llm = OpenaiLLM("m", base_url=url, api_key="none-needed")
        alone = trl_reward("base_helpfulness_pointwise", llm=llm, channel="text")
        assert alone(prompts=["q?"] * 2, completions=["fine", "BREAK"]) == [7.0, 1.0]
        group = trl_reward("base_helpfulness_listwise", llm=llm, channel="text")
        given = group(prompts=["q?"] * 3, completions=["this", "that", "BREAK"])
    assert (
        sorted(score for score in given[:2] if score is not None) == [0.0, 1.0] and given[2] == 0.0
    )
