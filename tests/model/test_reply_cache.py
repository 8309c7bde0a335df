"""Replies at temperature 0 are paid for once; what failed, was cut or filtered, or is asked for anew is asked again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rm_gallery.core.engine.calls.budget import Budget
from rm_gallery.core.models import FakeLLM, OpenaiLLM
from rm_gallery.core.reward.run import RunOptions
from rm_gallery.core.utils.errors import ProviderError
from tests.reward.rewards import PointJudge
from tests.support.judge_server import JudgeServer
from tests.support.samples import issues, make_sample, scores


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer("fixed:<score>3</score>", in_process=True) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(server: JudgeServer) -> None:
    server.set(faults={}, latency=0.0)
    server.reset()


def model(server: JudgeServer, **settings: Any) -> OpenaiLLM:
    return OpenaiLLM("judge-1", base_url=server.base_url, **settings)


@pytest.mark.parametrize(
    ("settings", "requests"),
    [({}, 1), ({"temperature": 0.5}, 2), ({"temperature": None}, 2), ({"cache": False}, 2)]
    + [({"temperature": 0.5, "cache": True}, 1)],
)
def test_when_a_reply_is_kept(server: JudgeServer, settings: dict[str, Any], requests: int) -> None:
    first, second = (model(server, **settings).chat("hi") for _ in range(2))
    assert first.text == second.text
    assert (first.cached, second.cached) == (False, requests == 1)
    assert server.stats()["requests"] == requests


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"max_tokens": 9}, {"model": "judge-2"}, {"extra_body": {"logprobs": True}}]
)
def test_another_request_is_another_reply(server: JudgeServer, other: dict[str, Any]) -> None:
    model(server).chat("hi")
    OpenaiLLM(**{"model": "judge-1", "base_url": server.base_url, **other}).chat("hi")
    assert server.stats()["requests"] == 2


def test_the_number_of_a_repeat_counts(server: JudgeServer) -> None:
    for repeat in (0, 1, 0, 1):
        model(server).chat("hi", repeat=repeat)
    assert server.stats()["requests"] == 2


def test_equal_questions_in_flight_share_one_request(server: JudgeServer) -> None:
    server.set(latency=0.1)

    async def ask() -> set[str]:
        llm = model(server)
        return {reply.text for reply in await asyncio.gather(*(llm.achat("hi") for _ in range(20)))}

    assert asyncio.run(ask()) == {"<score>3</score>"}
    assert server.stats()["requests"] == 1


@pytest.mark.parametrize("fault", ["finish_length", "finish_content_filter", "null_content", "server_error"])
def test_what_is_no_whole_reply_is_not_kept(server: JudgeServer, fault: str) -> None:
    server.set(faults={fault: 1.0})
    try:
        model(server, max_attempts=1).chat("hi")
    except ProviderError:
        assert fault == "server_error"
    server.set(faults={})
    assert model(server).chat("hi").text == "<score>3</score>"
    assert server.stats()["requests"] == 2


def test_the_environment_switches_it_off(server: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RM_GALLERY_CACHE", "off")
    for _ in range(2):
        model(server).chat("hi")
    assert server.stats()["requests"] == 2


@pytest.mark.parametrize(("cache", "requests"), [(None, 1), (True, 1), (False, 2)])
def test_a_batch_may_decide_it(server: JudgeServer, cache: bool | None, requests: int) -> None:
    reward = PointJudge(llm=model(server))
    for _ in range(2):
        found = reward.evaluate_batch([make_sample("a")], options=RunOptions(cache=cache))
        assert scores(found[0]) == [3.0]
    assert server.stats()["requests"] == requests


@pytest.mark.parametrize(
    ("first", "second", "requests"),
    [
        ({"default_headers": {"x-deployment": "a"}}, {"default_headers": {"x-deployment": "b"}}, 2),
        ({"default_query": {"api-version": "1"}}, {"default_query": {"api-version": "2"}}, 2),
        ({}, {"default_headers": {"x-deployment": "a"}}, 2),
        ({"default_headers": {"X-Deployment": "a"}}, {"default_headers": {"x-deployment": "a"}}, 1),
        ({"default_headers": {"a": "1", "b": "2"}}, {"default_headers": {"b": "2", "a": "1"}}, 1),
        ({"api_key": "sk-one-1"}, {"api_key": "sk-two-2"}, 1),
        ({"default_headers": {"Authorization": "Bearer a-1"}}, {"default_headers": {"Authorization": "Bearer b-2"}}, 1),
        ({"default_headers": {"x-api-key": "a-1"}}, {"default_headers": {"x-api-key": "b-2"}}, 1),
        ({"default_headers": {"x-tenant": "Bearer a-1"}}, {"default_headers": {"x-tenant": "Bearer b-2"}}, 1),
        ({"default_headers": {"x-routing-key": "a"}}, {"default_headers": {"x-routing-key": "b"}}, 2),
        ({"default_query": {"key": "a-1"}}, {"default_query": {"key": "b-2"}}, 1),
    ],
)
def test_i2_another_header_or_query_is_another_question_and_another_key_is_not(
    server: JudgeServer, first: dict[str, Any], second: dict[str, Any], requests: int
) -> None:
    for settings in (first, second, first):
        model(server, **settings).chat("hi")
    assert server.stats()["requests"] == requests


def test_t1_another_endpoint_is_another_question(server: JudgeServer) -> None:
    with JudgeServer("fixed:<score>5</score>", in_process=True) as other:
        assert model(server).chat("hi").text == "<score>3</score>"
        assert OpenaiLLM("judge-1", base_url=other.base_url).chat("hi").text == "<score>5</score>"


class _Counted(FakeLLM):
    """Reports these tokens of input, whatever it was asked."""

    prompt_tokens: int

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        usage = {"prompt_tokens": self.prompt_tokens, "completion_tokens": 1}
        return {**await super().attempt(payload, timeout), "usage": usage}


def _seconds_of_two(llm: FakeLLM, question: str) -> float:
    began = time.monotonic()
    for number in range(2):
        llm.chat(f"{number} {question}")
    return time.monotonic() - began


def test_f11_limits_belong_to_the_model_object_that_has_them() -> None:
    FakeLLM(model="limited", reply="x", requests_per_minute=30).chat("first")
    began = time.perf_counter()
    for question in ("a", "b", "c"):
        FakeLLM(model="limited", reply="x").chat(question)
    assert time.perf_counter() - began < 1.5


def test_t1_tokens_per_minute_are_taken_and_settled() -> None:
    """A call reserves what its question seems to hold, and what the reply reports replaces that."""
    long = "word " * 1200  # 1,500 tokens; a second's worth is given out at once
    assert _seconds_of_two(FakeLLM(reply="x", tokens_per_minute=60_000), long) > 0.4, "the reservation holds"
    told_less = _Counted(model="less", reply="x", prompt_tokens=2, tokens_per_minute=6_000)
    assert _seconds_of_two(told_less, long) < 8, "what was not used is given back: 14 s otherwise"
    told_more = _Counted(model="more", reply="x", prompt_tokens=1_500, tokens_per_minute=60_000)
    assert _seconds_of_two(told_more, "hi") > 0.4, "what was used beyond the reservation is owed"


def test_accounts_have_limits_of_their_own(server: JudgeServer) -> None:
    """Six calls a minute: the second one of an account would have to wait ten seconds."""
    began = time.monotonic()
    for key in ("sk-first-key", "sk-second-key", "sk-third-key"):
        model(server, api_key=key, requests_per_minute=6, cache=False).chat("hi")
    assert time.monotonic() - began < 9
    assert server.stats()["requests"] == 3


class _Slow(FakeLLM):
    """Takes its time, says when it was begun, and fails the first of its attempts."""

    begun: Any = None
    failures: list[str] = []

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        self.begun.set()
        await asyncio.sleep(0.6)
        if self.failures:
            raise ProviderError(self.failures.pop(), kind="transient")
        return await super().attempt(payload, timeout)


def test_a_budget_is_that_of_ones_own_run_and_not_of_an_equal_call_in_flight() -> None:
    """Whoever joins a call is not stopped by the budget of who asked first."""
    begun = threading.Event()
    judge = PointJudge(llm=_Slow(reply="<score>3</score>", cache=True, begun=begun, failures=["try again"]))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(judge.evaluate, make_sample("a"), options=RunOptions(budget=Budget(max_calls=1)))
        assert begun.wait(20)
        assert scores(judge.evaluate(make_sample("a"))) == [3.0]
        assert issues(asked.result()) == [("failed", "budget")]
