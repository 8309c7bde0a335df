"""A reply is checked before it is read: what is broken is tried again, what is cut, filtered or empty is no verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rm_gallery.core.model.reply import to_response
from rm_gallery.core.models import FakeLLM, OpenaiLLM
from rm_gallery.core.utils.errors import ProviderError
from tests.reward.rewards import PointJudge
from tests.support.judge_server import JudgeServer
from tests.support.samples import issues, make_sample, scores


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer("fixed:<score>3</score>", in_process=True) as running:
        yield running


FAULTS = [
    ("missing_choices", "failed", "transient", "no choices in the body"),
    ("non_json", "failed", "transient", "a body that is not JSON"),
    ("server_error", "failed", "transient", "answered 500"),
    ("unavailable", "failed", "transient", "answered 503"),
    ("drop_before_reply", "failed", "transient", "broke"),
    ("drop_mid_body", "failed", "transient", "broke"),
    ("rate_limit", "failed", "rate_limit", "answered 429"),
    ("null_content", "unscored", "empty", "reply is empty"),
    ("finish_length", "unscored", "truncated", "raise max_tokens"),
    ("finish_content_filter", "unscored", "content_filter", "content filter"),
    ("nonsense", "unscored", "", ""),
]


@pytest.mark.parametrize(("fault", "status", "reason", "message"), FAULTS, ids=[fault for fault, *_ in FAULTS])
def test_what_a_faulty_reply_becomes(server: JudgeServer, fault: str, status: str, reason: str, message: str) -> None:
    server.set(faults={fault: 1.0})
    server.reset()
    llm = OpenaiLLM("judge-1", base_url=server.base_url, max_attempts=1)
    scored = PointJudge(llm=llm).evaluate(make_sample("a"))
    assert scores(scored) == [None]
    (issue,) = scored.output[0].answer.reward.issues
    assert issue.status == status
    assert not reason or issue.reason == reason
    assert message in issue.message


TRANSIENT = ["missing_choices", "non_json", "server_error", "unavailable", "drop_before_reply", "drop_mid_body"]


def test_what_is_transient_is_tried_again(server: JudgeServer) -> None:
    shares = {name: 1 / len(TRANSIENT) for name in TRANSIENT}
    server.set(faults={**shares, "first_attempts": 1, "retry_after": "ms", "retry_after_s": 0.01})
    server.reset()
    samples = [make_sample(f"a{k}", unique_id=str(k)) for k in range(18)]
    scored = PointJudge(llm=OpenaiLLM("judge-2", base_url=server.base_url)).evaluate_batch(samples, max_workers=18)
    assert [scores(sample) for sample in scored] == [[3.0]] * 18
    assert server.stats()["max_attempts"] == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_is_fatal_is_not(server: JudgeServer, status: int) -> None:
    server.set(faults={"always": status})
    server.reset()
    scored = PointJudge(llm=OpenaiLLM("judge-1", base_url=server.base_url)).evaluate(make_sample("a"))
    assert issues(scored) == [("failed", "fatal")]
    assert f"answered {status}" in scored.output[0].answer.reward.issues[0].message
    assert server.stats()["requests"] == 1


SHAPES: list[tuple[dict[str, Any], str]] = [
    ({}, "no choices"),
    ({"choices": []}, "no choices"),
    ({"choices": None}, "no choices"),
    ({"error": {"message": "busy"}}, "an error object"),
    ({"choices": [{}]}, "no message"),
    ({"choices": [None]}, "no message"),
    ({"choices": [{"message": "text"}]}, "no message"),
]


@pytest.mark.parametrize(("raw", "message"), SHAPES)
def test_an_answer_without_a_message_is_transient(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ProviderError, match=message) as caught:
        to_response(raw, "http://x/v1")
    assert caught.value.kind == "transient"


def test_odd_but_usable_answers() -> None:
    message = {"content": None, "refusal": "no", "reasoning_content": "hm"}
    usage = {"prompt_tokens": 3.0, "completion_tokens": None, "prompt_tokens_details": None}
    found = to_response({"choices": [{"message": message, "finish_reason": None}], "usage": usage}, "x")
    assert (found.text, found.message.reasoning_content, found.finish_reason) == ("", "hm", None)
    assert (found.usage.input_tokens, found.usage.output_tokens) == (3, 0)
    parts = {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert to_response({"choices": [{"message": parts}]}, "x").text == "a\nb"


@pytest.mark.parametrize(
    ("reply", "finish", "reason"),
    [("", "stop", "empty"), (" \n", "stop", "empty"), ("<score>1</score>", "length", "truncated")],
)
def test_a_verdict_that_may_not_be_whole_is_not_read(reply: str, finish: str, reason: str) -> None:
    scored = PointJudge(llm=FakeLLM(reply=reply, finish_reason=finish)).evaluate(make_sample("a"))
    assert issues(scored) == [("unscored", reason)]


def test_an_unreadable_verdict_is_repaired_once() -> None:
    asked: list[str] = []

    def reply(question: str) -> str:
        asked.append(question)
        return "it is good" if len(asked) == 1 else "<score>4</score>"

    assert scores(PointJudge(llm=FakeLLM(reply=reply)).evaluate(make_sample("a"))) == [4.0]
    assert len(asked) == 2
    assert "could not be read" in asked[1] and "<score>" in asked[1]
