"""A judge that cannot be called says why at the first call, in seconds, and names the key, the URL and where it came from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.models import OpenAIChatModel, OpenaiLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import ConfigError
from tests.support.samples import issues, make_sample

SECONDS = 20.0
SAMPLE = make_sample("a", "b")


def judged(llm: OpenaiLLM) -> BaseReward:
    return RewardRegistry.create("safety_listwise_reward", llm=llm)


DOORS: list[tuple[str, Callable[[BaseReward], object]]] = [
    ("evaluate", lambda reward: reward.evaluate(SAMPLE)),
    ("async_evaluate", lambda reward: asyncio.run(reward.async_evaluate(SAMPLE))),
    ("evaluate_batch", lambda reward: reward.evaluate_batch([SAMPLE] * 3)),
    ("evaluate_stream", lambda reward: list(reward.evaluate_stream([SAMPLE] * 3))),
]


@pytest.mark.parametrize("model", [OpenaiLLM, OpenAIChatModel])
@pytest.mark.parametrize(("door", "call"), DOORS, ids=[door for door, _ in DOORS])
def test_without_a_key_the_variable_is_named(
    door: str, call: Callable[[BaseReward], object], model: type[OpenaiLLM]
) -> None:
    reward = judged(model(model="gpt-4o-mini"))
    with pytest.raises(ConfigError, match="No API key for model 'gpt-4o-mini': set OPENAI_API_KEY"):
        call(reward)


def test_an_empty_variable_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        OpenaiLLM("m").chat("hello")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/v1", "http://no-such-host.invalid/v1"], ids=["nothing listens", "no such host"]
)
@pytest.mark.alone
def test_an_unreachable_url_fails_within_seconds_and_is_named(url: str) -> None:
    samples = [make_sample("a", "b", unique_id=str(k)) for k in range(12)]
    started = time.monotonic()
    scored = judged(OpenaiLLM("judge-1", base_url=url)).evaluate_batch(samples, max_workers=4)
    assert time.monotonic() - started < SECONDS
    assert [issues(sample) for sample in scored] == [[("failed", "unreachable")] * 2] * 12
    assert {url in message for message in messages(scored)} == {True}
    assert all(not output.answer.reward for sample in scored for output in sample.output)


def messages(scored: list[DataSample]) -> list[str]:
    return [issue.message for sample in scored for output in sample.output for issue in output.answer.reward.issues]


NO_URLS = ["nonsense", "127.0.0.1:8000/v1", "ftp://example.invalid/v1", "http://", "file:///etc/hosts"]


@pytest.mark.parametrize("url", NO_URLS)
def test_an_argument_that_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url is not a URL") as caught:
        OpenaiLLM("judge-1", base_url=url)
    assert url in str(caught.value)
    assert "http://127.0.0.1:8000/v1" in str(caught.value), "the message shows what a URL looks like"


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "BASE_URL"])
@pytest.mark.parametrize("url", NO_URLS)
def test_a_variable_that_is_no_url_is_named(variable: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, url)
    reward = judged(OpenaiLLM("judge-1"))
    with pytest.raises(ConfigError, match=f"{variable} is not a URL") as caught:
        reward.evaluate(SAMPLE)
    assert url in str(caught.value)


def test_credentials_in_a_url_are_refused_without_repeating_them() -> None:
    with pytest.raises(ConfigError, match="user name or password") as caught:
        OpenaiLLM("judge-1", base_url="http://user:hunter2@127.0.0.1:1/v1")
    assert "hunter2" not in str(caught.value)
