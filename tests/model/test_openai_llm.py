"""What really goes over the wire, where key and URL come from, and that no secret goes anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from rm_gallery.core.model import transport
from rm_gallery.core.model.base import BaseModelCall
from rm_gallery.core.model.embeddings import OpenaiEmbeddings
from rm_gallery.core.model.message import ChatMessage, MessageRole, ToolCall, ToolFunction
from rm_gallery.core.model.transport import Reply
from rm_gallery.core.models import FakeLLM, OpenAIChatModel, OpenaiLLM, resolve_llm
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.utils.errors import ConfigError, ProviderError, RequestError
from tests.support.judge_server import JudgeServer, key_hash
from tests.support.samples import make_sample

WRONG = "http://127.0.0.1:1/v1"
SECRET = "sk-hunter2"


@pytest.fixture(scope="module")
def running() -> Iterator[JudgeServer]:
    with JudgeServer("fixed:hello", in_process=True) as server:
        yield server


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


ALL = {"top_p": 0.9, "max_tokens": 50, "stop": ["x"], "seed": 3, "n": 2}
BODIES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"temperature": 0.0}),
    ({"temperature": 0}, {"temperature": 0.0}),
    ({"temperature": 0.7}, {"temperature": 0.7}),
    ({"temperature": None}, {}),
    (ALL, {"temperature": 0.0, **ALL}),
    ({"n": 1, "max_tokens": 1}, {"temperature": 0.0, "max_tokens": 1}),
    ({"model": "qwen3-32b"}, {"temperature": 0.0, "enable_thinking": False}),
    ({"model": "Qwen3-235B-A22B", "enable_thinking": True}, {"temperature": 0.0, "enable_thinking": True}),
    ({"model": "gpt-4o", "enable_thinking": True}, {"temperature": 0.0}),
    ({"model": "qwen3-8b", "extra_body": {"enable_thinking": True}}, {"temperature": 0.0, "enable_thinking": True}),
    ({"extra_body": {"logprobs": True, "temperature": 0.5}}, {"logprobs": True, "temperature": 0.5}),
]


@pytest.mark.parametrize(("settings", "body"), BODIES)
def test_the_body_holds_what_was_set_and_nothing_else(
    server: JudgeServer, settings: dict[str, Any], body: dict[str, Any]
) -> None:
    settings = {"model": "judge-1", **settings}
    OpenaiLLM(base_url=server.base_url, **settings).chat("hi")
    messages = [{"role": "user", "content": "hi"}]
    assert sent(server)["body"] == {"model": settings["model"], "messages": messages, **body}


def test_overrides_of_one_call_win_and_none_removes_a_field(server: JudgeServer) -> None:
    llm = OpenaiLLM("judge-1", base_url=server.base_url, max_tokens=50, extra_body={"temperature": 0.2})
    llm.chat("hi", temperature=1.0, max_tokens=None, response_format={"type": "json_object"})
    body = sent(server)["body"]
    assert (body["temperature"], body["response_format"]) == (1.0, {"type": "json_object"})
    assert "max_tokens" not in body
    assert llm.temperature == 0.0


def test_messages_go_as_they_are(server: JudgeServer) -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:,"}},
    ]
    call = ToolCall(id="1", function=ToolFunction(name="f", arguments="{}"))
    messages: list[ChatMessage | dict[str, Any]] = [
        ChatMessage(role=MessageRole.SYSTEM, content="be brief", name="rules"),
        ChatMessage(content=parts),
        ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call], reasoning_content="not sent"),
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


AZURE = {"default_query": {"api-version": "2024-06-01"}}
HEADERS: list[tuple[dict[str, Any], dict[str, str], set[str]]] = [
    ({"api_key": "key-1", "default_headers": {"X-Team": "red"}}, {"authorization": "key-1"}, {"api-key"}),
    ({}, {}, {"authorization", "api-key"}),
    ({"default_headers": {"Authorization": "Bearer mine"}}, {"authorization": "mine"}, set()),
    ({"api_key": "other", "default_headers": {"Authorization": "Bearer mine"}}, {"authorization": "mine"}, set()),
    ({**AZURE, "api_key": "key-2"}, {"api-key": "key-2"}, {"authorization"}),
]


@pytest.mark.parametrize(("settings", "present", "absent"), HEADERS)
def test_a_key_goes_in_the_header_that_the_endpoint_wants(
    server: JudgeServer, settings: dict[str, Any], present: dict[str, str], absent: set[str]
) -> None:
    azure = "default_query" in settings
    url = f"{server.azure_url}/openai/deployments/judge" if azure else f"{server.base_url}/"
    assert OpenaiLLM("judge-1", base_url=url, **settings).chat("hi").text == "hello"
    request = sent(server)
    assert request["path"] == f"{'/openai/deployments/judge' if azure else '/v1'}/chat/completions"
    assert request["query"] == settings.get("default_query", {})
    headers = request["headers"]
    assert {name: headers.get(name) for name in present} == {name: key_hash(key) for name, key in present.items()}
    assert headers["content-type"] == "application/json" and not absent & headers.keys()
    if "X-Team" in settings.get("default_headers", {}):
        assert headers["x-team"] == "red"


@pytest.mark.parametrize(
    ("argument", "environment"),
    [
        ("URL", {"OPENAI_BASE_URL": WRONG, "BASE_URL": WRONG}),
        (None, {"OPENAI_BASE_URL": "URL", "BASE_URL": WRONG}),
        (None, {"OPENAI_BASE_URL": "", "BASE_URL": "URL/"}),
        ("", {"BASE_URL": "URL"}),
    ],
)
def test_where_the_url_comes_from(
    server: JudgeServer, argument: str | None, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = OpenAIChatModel(model="judge-1", base_url=argument and argument.replace("URL", server.base_url))
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("URL", server.base_url))
    assert llm.chat("hi").text == "hello"


@pytest.mark.parametrize(("argument", "used"), [("argument", "argument"), (None, "variable"), ("", "variable")])
def test_where_the_key_comes_from(
    server: JudgeServer, argument: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = OpenaiLLM("judge-1", base_url=server.base_url, openai_api_key=argument)
    monkeypatch.setenv("OPENAI_API_KEY", "variable")
    llm.chat("hi")
    assert server.stats()["auth"]["key_hashes"] == {key_hash(used): 1}


@pytest.mark.parametrize("make", [OpenaiLLM, OpenaiEmbeddings, lambda: resolve_llm(""), lambda: resolve_llm({})])
def test_no_model_is_chosen_silently(make: Callable[[], BaseModelCall], monkeypatch: pytest.MonkeyPatch) -> None:
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
    OpenaiLLM("m", default_headers={"Authorization": "Bearer x"}).check()
    OpenaiLLM("m", base_url=WRONG).check()
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    OpenaiLLM("m").check()
    client = OpenaiLLM("m", base_url=WRONG, timeout=7.0, default_query={"a": "b"}).client
    assert (str(client.base_url), client.api_key, client.timeout, client.max_retries) == (f"{WRONG}/", "k", 7.0, 0)


# -- secrets ----------------------------------------------------------------------------------------------------------------


def test_a_reward_and_its_run_folder_hold_no_secret(tmp_path: Path) -> None:
    with JudgeServer("first", in_process=True) as server:
        more: dict[str, Any] = {"default_headers": {"X-Gateway-Auth": SECRET}, "extra_body": {"api_key": SECRET}}
        llm = OpenaiLLM("judge-1", base_url=server.base_url, api_key=SECRET, **more)
        reward = RewardRegistry.create("safety_listwise_reward", llm=llm)
        reward.evaluate_batch([make_sample("a", "b")], run_dir=str(tmp_path / "run"), trace=True)
    assert SECRET not in repr(reward) + str(reward.describe()) + reward.model_dump_json()
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {"manifest.json", "results.jsonl", "trace.jsonl"} <= {path.name for path in files}
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    "url", ["http://h/v1?api_key={}", "http://u:{}@h/v1", "u:{}@h/v1", "h/v1?key={}", "http://h#{}"]
)
@pytest.mark.parametrize("source", ["argument", "variable"])
def test_a_url_that_holds_a_secret_is_refused_without_showing_it(
    url: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as caught:
        if source == "argument":
            OpenaiLLM("judge-1", base_url=url.format(SECRET))
        else:
            monkeypatch.setenv("OPENAI_BASE_URL", url.format(SECRET))
            OpenaiLLM("judge-1", api_key="k").check()
    assert SECRET not in str(caught.value)
    assert ("base_url" if source == "argument" else "OPENAI_BASE_URL") in str(caught.value)


CREDENTIALS: list[tuple[dict[str, Any], str, bool]] = [
    ({"default_headers": {"Authorization": "Bearer tok-12345678"}}, "tok-12345678", True),
    ({"default_headers": {"x-tenant": "Bearer tok-12345678"}}, "tok-12345678", True),
    ({"default_query": {"accessKey": "tok-12345678"}}, "tok-12345678", True),
    ({"default_query": {"sig": "a/b+c=1234"}}, "a%2Fb%2Bc%3D1234", True),
    ({"proxy": "http://u:pass-12345@127.0.0.1:1"}, "pass-12345", True),
    ({"api_key": "sk-12345678"}, "sk-12345678", True),
    ({"api_key": "sk-123"}, "sk-123", True),
    ({"api_key": "short"}, "short", False),
    ({"default_headers": {"x-team": "reds-of-1999"}}, "reds-of-1999", False),
    ({"default_headers": {"Authorization": "Bearer bearer"}}, "bearer", False),
]


@pytest.mark.parametrize(("settings", "token", "hidden"), CREDENTIALS)
@pytest.mark.parametrize("status", [200, 400])
def test_an_endpoint_that_repeats_a_credential_is_not_quoted(
    settings: dict[str, Any], token: str, hidden: bool, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def echo(*_: object) -> Reply:
        said = {"choices": [{"message": {"content": f"you sent {token}"}}], "error": {"message": f"you sent {token}"}}
        return Reply(status, {}, orjson.dumps(said))

    monkeypatch.setattr(transport, "post", echo)
    llm = OpenaiLLM("judge-1", base_url=WRONG, max_attempts=1, **settings)
    try:
        text = llm.chat("hi").text
    except ProviderError as error:
        text = str(error)
    assert f"you sent {'***' if hidden else token}" in text
    assert hidden == (token not in text)


@pytest.mark.parametrize(("key", "shown"), [("secret", True), ("abcdefghijk", True), ("abcdefghijkl", False)])
def test_a_placeholder_for_a_key_is_a_word_like_any_other(server: JudgeServer, key: str, shown: bool) -> None:
    server.set(behaviour=f"fixed:the {key} is kept")
    text = OpenaiLLM("judge-1", base_url=server.base_url, api_key=key).chat("hi").text
    assert text == f"the {key if shown else '***'} is kept"
