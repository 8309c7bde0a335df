"""Asking a model: awaited or not, from anywhere, with a text or messages, once or for several
answers.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rm_gallery import (
    Budget,
    ChatMessage,
    ConfigError,
    FakeLLM,
    MessageRole,
    OpenaiLLM,
    ProviderError,
    RunOptions,
)
from rm_gallery.core.models import BaseLLM, resolve_llm
from tests.reward.rewards import PointJudge
from tests.support.judge_server import JudgeServer, judge_fixture
from tests.support.samples import issues, make_sample, scores

server = judge_fixture("echo", in_process=True)


@pytest.fixture(params=["openai", "fake"])
def llm(request: pytest.FixtureRequest, server: JudgeServer) -> BaseLLM:
    if request.param == "fake":
        return FakeLLM(reply=lambda question: question)
    return OpenaiLLM("judge-1", base_url=server.base_url)


def test_every_door_gives_the_reply(llm: BaseLLM) -> None:
    async def awaited() -> list[str]:
        inside = llm.chat("in a running loop").text
        replies = await asyncio.gather(*(llm.achat(f"question {k}") for k in range(20)))
        return [inside, *(reply.text for reply in replies)]

    reply = llm.chat("hi")
    assert (reply.text, reply.choices) == ("hi", [])
    assert reply.usage.input_tokens > 0 and reply.usage.output_tokens > 0
    assert asyncio.run(awaited()) == ["in a running loop", *(f"question {k}" for k in range(20))]
    assert llm.chat([ChatMessage(content="one")]).text == "one"
    assert (
        llm.chat([{"role": "user", "content": "two"}]).text == "two"
        and llm.chat("hi", n=3).choices == ["hi"] * 3
    )


def test_simple_chat_puts_system_history_and_question_in_order(server: JudgeServer) -> None:
    server.reset()
    history = [
        ChatMessage(content="before"),
        ChatMessage(role=MessageRole.ASSISTANT, content="yes"),
    ]
    llm = OpenaiLLM("judge-1", base_url=server.base_url)
    assert (
        llm.simple_chat("now", history=history, sys_prompt="be brief", max_tokens=7)
        == "be brief\nbefore\nnow"
    )
    (request,) = server.recent_requests()
    assert request["body"]["max_tokens"] == 7
    asked = [(message["role"], message["content"]) for message in request["body"]["messages"]]
    assert asked == [
        ("system", "be brief"),
        ("user", "before"),
        ("assistant", "yes"),
        ("user", "now"),
    ]
    assert FakeLLM(reply=lambda question: question).simple_chat("now") == "now"


def test_a_script_gives_the_same_answer_to_the_same_question() -> None:
    llm = FakeLLM(reply=["a", "b", "c"])
    asked = {question: llm.chat(question).text for question in map(str, range(20))}
    assert (
        set(asked.values()) == {"a", "b", "c"}
        and {question: llm.chat(question).text for question in asked} == asked
    )
    assert llm.chat("\x00", n=3).choices == ["a", "b", "c"]
    reply = FakeLLM(reply="x" * 40, finish_reason="length").chat("y" * 40)
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.ended) == (11, 11, "cut")
    with pytest.raises(ConfigError, match="empty list"):
        FakeLLM(reply=[]).chat("hi")


def test_a_model_that_is_ready_stays_and_a_named_one_takes_settings() -> None:
    ready = FakeLLM(reply="x")
    assert resolve_llm(ready) is ready and resolve_llm("gpt-4o", temperature=0.5).temperature == 0.5


class _Slow(FakeLLM):
    """Says when it was begun, waits to be told to go on, and fails the first of its attempts."""

    begun: Any = None
    go_on: Any = None
    failures: list[str] = []

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        self.begun.set()
        while not self.go_on.is_set():
            await asyncio.sleep(0.01)
        if self.failures:
            raise ProviderError(self.failures.pop(), kind="transient")
        return await super().attempt(payload, timeout)


def test_a_budget_is_that_of_ones_own_run_and_not_of_an_equal_call_in_flight() -> None:
    """Whoever joins a call is not stopped by the budget of who asked first."""
    begun, go_on = threading.Event(), threading.Event()
    llm = _Slow(
        reply="<score>3</score>", cache=True, begun=begun, go_on=go_on, failures=["try again"]
    )
    judge = PointJudge(llm=llm)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(
            judge.evaluate, make_sample("a"), options=RunOptions(budget=Budget(max_calls=1))
        )
        assert begun.wait(20)
        second = pool.submit(judge.evaluate, make_sample("a"))
        threading.Timer(0.3, go_on.set).start()
        assert scores(second.result(30)) == [3.0] and issues(first.result(30)) == [
            ("failed", "budget")
        ]
