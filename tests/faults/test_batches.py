"""Judging by a provider's batch API gives the table of online judging, at half the price, over
losses and restarts.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import Budget, ConfigError, ProviderError, RewardRegistry, RunOptions
from rm_gallery.core.engine import loop
from rm_gallery.core.model import batches, transport
from rm_gallery.core.model.base import resolve_llm
from rm_gallery.core.model.batches import (
    AnthropicBatches,
    OpenaiBatches,
    to_chat,
    to_messages,
    with_batches,
)
from rm_gallery.core.model.budget import Price, PriceTable
from rm_gallery.core.model.openai import to_response
from tests.engine.processes import wait_until
from tests.faults.material import make_judge, make_samples, records, run, truth, write_data
from tests.faults.processes import command, started
from tests.support.batch_server import batch_server
from tests.support.command import command as here
from tests.support.judge_server import JudgeServer

N = 60
PRICES = PriceTable({"judge-1": Price(1.0, 2.0, 1.0)})


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(batches, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(batches, "FIRST_LOOK", 0.05)
    yield

    async def hang_up() -> None:
        await transport.close_sessions()

    loop.run(hang_up())  # the providers of these tests keep connections that nobody uses again


@pytest.mark.long("a run in trouble")
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_batch_gives_what_online_judging_gives_for_half(
    server: JudgeServer, tmp_path: Path, provider: str
) -> None:
    samples = make_samples(N)
    found = {}
    with batch_server(server, lose={"expired": 0.1, "errored": 0.1, "missing": 0.1}) as there:
        for batch in (None, provider):
            reward = make_judge(there.url, channel="text", api_key="sk-1")
            folder = tmp_path / str(batch)
            ran = run(
                reward,
                samples,
                batch=batch,
                run_dir=str(folder),
                cache=False,
                budget=Budget(prices=PRICES),
            )
            assert truth(ran.samples) == truth(samples)
            kept = {record["id"]: record for record in records(folder)}
            found[batch] = kept, ran.control.usage
    (online, paid), (later, half) = found[None], found[provider]
    assert online == later and there.online == N
    assert (
        half.cost is not None
        and 2 * half.cost == pytest.approx(paid.cost)
        and half.calls == N
        and half.input_tokens == paid.input_tokens
    )
    first, *rest = there.requests
    assert first == N and 0 < rest[0] < N / 2 and sum(rest) == rest[0], (
        "what was lost is asked again, together"
    )


def test_rounds_follow_one_another_and_split_at_the_limits(
    server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches.OpenaiBatches, "most_requests", 25)
    server.set(behaviour=["no verdict at all"] + ["<score>4</score>"] * 500)
    samples = make_samples(N)
    for sample in samples:
        del sample.output[1:]
    with batch_server(server) as there:
        reward = RewardRegistry.create(
            "chat_pointwise_reward",
            llm=make_judge(there.url).llm,  # type: ignore[attr-defined]
            channel="text",
        )
        ran = run(
            reward,
            samples,
            batch="openai",
            run_dir=str(tmp_path / "run"),
            cache=False,
            budget=Budget(max_calls=500),
        )
    assert {sample.output[0].answer.reward.score for sample in ran.samples} == {4.0}
    assert sorted(there.requests) == [1, 10, 25, 25], "the unreadable one is asked again"


def test_equal_questions_and_repeats_each_have_their_answer(
    server: JudgeServer, tmp_path: Path
) -> None:
    samples = make_samples(1) * 5
    with batch_server(server) as there:
        reward = make_judge(there.url, channel="text", temperature=1.0)
        run(reward, samples, batch="openai", run_dir=str(tmp_path / "a"))
        assert there.requests == [5]
        run(
            make_judge(there.url, channel="text"),
            samples,
            batch="openai",
            run_dir=str(tmp_path / "b"),
        )
        assert there.requests == [5, 1], "at temperature 0 they are one question"


def arguments(data: Path, url: str, folder: Path, *more: str) -> list[str]:
    judge = ["--llm", "judge-1", "--base-url", url, "--param", "channel=text", "--no-cache"]
    return [
        "eval",
        "safety_listwise_reward",
        str(data),
        *judge,
        "--out",
        str(folder),
        "--batch",
        "openai",
        "--json",
        *more,
    ]


@pytest.mark.long("a run in trouble")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_killed_while_it_waits_pays_once(
    server: JudgeServer, tmp_path: Path, how: signal.Signals
) -> None:
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    prices = tmp_path / "prices.yaml"
    prices.write_text("judge-1: {input: 1, output: 2}\n")
    with batch_server(server) as there:
        there.ready.clear()
        words = arguments(data, there.url, folder, "--prices", str(prices))
        with started(*command(*words), cwd=tmp_path) as process:
            assert wait_until(lambda: "batch-0" in _noted(folder), 30)
            os.kill(process.pid, how)
            process.communicate(timeout=30)
        there.ready.set()
        finished = here(*words)
        assert finished.code == 0, finished.err
    assert json.loads(finished.out)["n_scored"] == N and there.requests == [N] and there.online == 0
    assert Counter(record["id"] for record in records(folder)) == Counter(
        f"sum-{k}" for k in range(N)
    )
    spent = json.loads((folder / "summary.json").read_text())["spent"]
    assert spent["calls"] == N
    assert spent["cost"] == pytest.approx(
        (spent["input_tokens"] + 2 * spent["output_tokens"]) / 2e6
    )


def _noted(folder: Path) -> str:
    path = folder / batches.FILE_NAME
    return path.read_text() if path.exists() else ""


def test_one_killed_between_sending_and_noting_is_found_again(
    server: JudgeServer, tmp_path: Path
) -> None:
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    with batch_server(server) as there:
        sent = here(*arguments(data, there.url, folder, "--submit"))
        assert sent.code != 0 and "without run.submit" in sent.err and there.requests == [N]
        assert records(folder) == []
        first, _ = _noted(folder).splitlines()
        (folder / batches.FILE_NAME).write_text(first + "\n")
        finished = here(*arguments(data, there.url, folder))
        assert finished.code == 0, finished.err
        assert there.requests == [N] and json.loads(finished.out)["n_scored"] == N


# every status in the reference of each API:
# https://platform.openai.com/docs/api-reference/batch/object,
# https://docs.anthropic.com/en/api/retrieving-message-batches
PROVIDERS = {"openai": OpenaiBatches, "anthropic": AnthropicBatches}
OVER = {"openai": ("completed", "expired", "cancelled"), "anthropic": ("ended",)}
GOING_ON = {
    "openai": ("validating", "in_progress", "finalizing", "cancelling"),
    "anthropic": ("in_progress", "canceling"),
}


@pytest.mark.parametrize("provider", OVER)
def test_a_batch_is_over_in_each_way_that_it_may_end_and_in_no_other(
    server: JudgeServer, provider: str
) -> None:
    with batch_server(server) as there:
        llm = with_batches(
            resolve_llm("openai:judge-1", base_url=there.url, api_key="sk-1"), provider
        )
        body = {"model": "judge-1", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}]}
        there.batches["batch-0"] = {
            "lines": [{"custom_id": "a", "body": body, "params": body}],
            "metadata": None,
        }

        def looked(status: str) -> Any:
            there.status = status
            return loop.run(PROVIDERS[provider]().look(llm, "batch-0"))

        for status in OVER[provider]:
            assert (found := looked(status)) is not None and set(found) == {"a"}, status
        for status in GOING_ON[provider]:
            assert looked(status) is None, status
        if provider == "openai":
            with pytest.raises(ProviderError, match="refused: line 7 is no request") as refused:
                looked("failed")
            assert refused.value.kind == "fatal"


def test_what_does_not_fit_is_refused_before_anything_is_sent(
    server: JudgeServer, tmp_path: Path
) -> None:
    folder = str(tmp_path / "run")
    wrong: list[dict[str, Any]] = [
        {"batch": "azure", "run_dir": folder}, {"batch": "openai"}, {"submit": True},
        {"batch": "openai", "run_dir": folder, "deadline": 5.0}, {"batch": "openai", "run_dir": folder, "processes": 2},
    ]  # fmt: skip
    for settings in wrong:
        with pytest.raises(ConfigError):
            RunOptions(**settings)
    with pytest.raises(ConfigError, match="has no batches"):
        reward = RewardRegistry.create(
            "safety_listwise_reward", llm="fake:<answer>1</answer>", channel="text"
        )
        reward.evaluate_batch(make_samples(2), batch="openai", run_dir=folder, cache=False)


def test_requests_and_answers_in_anthropics_layout() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    asked = to_messages({
        "model": "m", "temperature": 0, "stop": "x", "max_tokens": 9,
        "messages": [
            {"role": "system", "content": "a"}, {"role": "system", "content": "b"},
            {"role": "user", "content": [{"type": "text", "text": "see"}, picture]},
        ],
        "tools": [{"type": "function", "function": {"name": "say", "parameters": {"type": "object"}}}],
    })  # fmt: skip
    assert asked == {
        "model": "m", "temperature": 0, "stop_sequences": ["x"], "max_tokens": 9, "system": "a\n\nb",
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        ]}],
        "tools": [{"name": "say", "description": "", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "say"},
    }  # fmt: skip
    with pytest.raises(ProviderError, match="response_format"):
        to_messages({"model": "m", "messages": [], "response_format": {}})
    block = {"type": "tool_use", "id": "1", "name": "say", "input": {"score": 2}}
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 2,
        "output_tokens": 7,
    }
    told = to_chat({"content": [block], "stop_reason": "max_tokens", "usage": usage})
    assert (
        to_response(told, lambda: "there").ended == "cut" and told["usage"]["prompt_tokens"] == 10
    )
    assert json.loads(told["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]) == {
        "score": 2
    }
