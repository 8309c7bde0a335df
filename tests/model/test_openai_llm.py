"""What really goes over the wire, where key and URL come from, and that no secret goes anywhere
else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ChatMessage, ConfigError, FakeLLM, MessageRole, OpenaiLLM, RewardRegistry
from rm_gallery.core.model.embeddings import OpenaiEmbeddings
from rm_gallery.core.model.message import ToolCall, ToolFunction
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.models import OpenAIChatModel, resolve_llm
from rm_gallery.core.utils.errors import RequestError
from tests.support.judge_server import JudgeServer, judge_fixture, key_hash
from tests.support.samples import make_sample

WRONG = "http://127.0.0.1:1/v1"
SECRET = "sk-hunter2"


running = judge_fixture("fixed:hello", in_process=True)


@pytest.fixture
def server(running: JudgeServer) -> JudgeServer:
    running.set(behaviour="fixed:hello", faults={})
    running.reset()
    return running


def sent(server: JudgeServer) -> dict[str, Any]:
    """The one request."""
    (request,) = server.recent_requests()
    found: dict[str, Any] = request
    return found


def test_messages_go_as_they_are(server: JudgeServer) -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:,"}},
    ]
    call = ToolCall(id="1", function=ToolFunction(name="f", arguments="{}"))
    messages: list[ChatMessage | dict[str, Any]] = [
        ChatMessage(role=MessageRole.SYSTEM, content="be brief", name="rules"),
        ChatMessage(content=parts),
        ChatMessage(
            role=MessageRole.ASSISTANT, content="", tool_calls=[call], reasoning_content="not sent"
        ),
        ChatMessage(role=MessageRole.TOOL, content="42", tool_call_id="1"),
        {"role": "user", "content": "你好"},
    ]
    OpenaiLLM("judge-1", base_url=server.base_url).chat(messages)
    tool_call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert sent(server)["body"]["messages"] == [
        {"role": "system", "content": "be brief", "name": "rules"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "", "tool_calls": [tool_call]},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
        {"role": "user", "content": "你好"},
    ]
    with pytest.raises(RequestError, match="cannot be written as JSON"):
        OpenaiLLM("judge-1", base_url=server.base_url).chat("\ud83d")


def test_it_goes_over_the_wire_with_its_key_and_its_query(server: JudgeServer) -> None:
    settings: dict[str, Any] = {"api_key": "key-2", "default_query": {"api-version": "2024-06-01"}}
    url = f"{server.azure_url}/openai/deployments/judge"
    assert OpenAIChatModel(model="judge-1", base_url=url, **settings).chat("hi").text == "hello"
    request = sent(server)
    assert request["path"] == "/openai/deployments/judge/chat/completions"
    assert (request["query"], request["headers"]["api-key"]) == (
        settings["default_query"],
        key_hash("key-2"),
    )


@pytest.mark.parametrize("name", ["Authorization", "authorization", "AUTHORIZATION"])
def test_a_header_of_ones_own_takes_the_place_of_ours_in_any_case(
    server: JudgeServer, name: str
) -> None:
    headers = {name: "Bearer own-header", "content-type": "application/json; v=2"}
    key: dict[str, Any] = {"api_key": "sk-unused-1", "base_url": server.base_url}
    assert OpenaiLLM("judge-1", default_headers=headers, **key).chat("hi").text == "hello"
    told = sent(server)["headers"]
    assert told["content-type"] == headers["content-type"]
    assert told["authorization"] == key_hash("own-header")


@pytest.mark.parametrize(
    "make", [OpenaiLLM, OpenaiEmbeddings, lambda: resolve_llm(""), lambda: resolve_llm({})]
)
def test_no_model_is_chosen_silently(
    make: Callable[[], BaseModelCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"model=….*--llm NAME.*OPENAI_MODEL"):
        make()
    monkeypatch.setenv("OPENAI_MODEL", "from-the-environment")
    assert make().model == "from-the-environment"


def test_a_misspelt_setting_fails_the_type_check() -> None:
    """The type check of the suite is strict: an ignored error that is none would fail it."""
    OpenaiLLM("m", temperature=0.5, api_key="k", max_tokens=3)
    for wrong in (
        lambda: OpenaiLLM(modl="m"),  # type: ignore[call-arg]
        lambda: OpenaiLLM("m", temperature="hot"),  # type: ignore[arg-type]
        lambda: OpenaiEmbeddings("m", dimension=3),  # type: ignore[call-arg]
        lambda: FakeLLM(replay="x"),  # type: ignore[call-arg]
    ):
        with pytest.raises(ConfigError):
            wrong()


def test_nothing_is_looked_up_at_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    for llm in (OpenaiLLM("m"), OpenaiEmbeddings("m")):
        with pytest.raises(ConfigError, match="No API key for model 'm': set OPENAI_API_KEY"):
            llm.check()
    with pytest.raises(ConfigError, match="line break"):
        OpenaiLLM("m", api_key="key\n").check()
    for name in ("Authorization", "authorization"):
        OpenaiLLM("m", default_headers={name: "Bearer x"}).check()
    OpenaiLLM("m", base_url=WRONG).check()
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    OpenaiLLM("m").check()
    client = OpenaiLLM("m", base_url=WRONG, timeout=7.0, default_query={"a": "b"}).client
    assert (str(client.base_url), client.api_key, client.timeout, client.max_retries) == (
        f"{WRONG}/",
        "k",
        7.0,
        0,
    )


def test_a_reward_and_its_run_folder_hold_no_secret(tmp_path: Path) -> None:
    with JudgeServer("first", in_process=True) as server:
        more: dict[str, Any] = {
            "default_headers": {"X-Gateway-Auth": SECRET},
            "extra_body": {"api_key": SECRET},
        }
        llm = OpenaiLLM("judge-1", base_url=server.base_url, api_key=SECRET, **more)
        reward = RewardRegistry.create("safety_listwise_reward", llm=llm)
        reward.evaluate_batch([make_sample("a", "b")], run_dir=str(tmp_path / "run"), trace=True)
    assert SECRET not in repr(reward) + str(reward.describe()) + reward.model_dump_json()
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {"manifest.json", "results.jsonl", "trace.jsonl"} <= {path.name for path in files}
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("variable", ["BASE_URL", "OPENAI_BASE_URL"])
@pytest.mark.parametrize(
    "url", [f"http://h/v1?api_key={SECRET}", f"http://u:{SECRET}@h/v1", "nonsense"]
)
def test_a_url_out_of_the_environment_is_checked_too(
    url: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, url)
    with pytest.raises(ConfigError, match=f"^{variable} ") as caught:
        OpenaiLLM("judge-1", api_key="k").check()
    assert SECRET not in str(caught.value)
