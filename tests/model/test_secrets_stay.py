"""Keys, headers and proxies with passwords are in no representation, description, error message or run folder, keys in no pickle."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from rm_gallery.core.model import transport
from rm_gallery.core.model.transport import Reply
from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.utils.errors import ConfigError, ProviderError
from tests.support.judge_server import JudgeServer
from tests.support.samples import make_sample

SECRET = "sk-hunter2"


def model(**settings: Any) -> OpenaiLLM:
    given: dict[str, Any] = {
        "api_key": SECRET,
        "default_headers": {"X-Gateway-Auth": SECRET, "x-tenant": f"Bearer {SECRET}"},
        "default_query": {"subscription-key": SECRET},
        "extra_body": {"api_key": SECRET},
        "proxy": f"http://user:{SECRET}@127.0.0.1:1",
    }
    return OpenaiLLM("judge-1", base_url="http://127.0.0.1:1/v1", **{**given, **settings})


VIEWS: list[tuple[str, Callable[[OpenaiLLM], object]]] = [
    ("repr", repr),
    ("str", str),
    ("describe", lambda llm: llm.describe()),
    ("the reward's repr", lambda llm: repr(RewardRegistry.create("safety_listwise_reward", llm=llm))),
    ("the reward's describe", lambda llm: RewardRegistry.create("safety_listwise_reward", llm=llm).describe()),
    ("model_dump_json", lambda llm: llm.model_dump_json()),
    (
        "the reward's model_dump_json",
        lambda llm: RewardRegistry.create("safety_listwise_reward", llm=llm).model_dump_json(),
    ),
    ("route", lambda llm: llm.route()),
    ("the endpoint's key", lambda llm: llm.endpoint_key()),
]


@pytest.mark.parametrize(("name", "view"), VIEWS, ids=[name for name, _ in VIEWS])
def test_views(name: str, view: Callable[[OpenaiLLM], object]) -> None:
    assert SECRET not in str(view(model()))


def test_a_copy_in_another_process_can_call_as_well() -> None:
    """A key given in code travels with the object: a worker process has no other way to it. It is no more shown there."""
    copy = pickle.loads(pickle.dumps(OpenaiLLM("judge-1", api_key=SECRET, temperature=0.5)))
    copy.check()
    assert (copy.model, copy.temperature) == ("judge-1", 0.5)
    assert SECRET not in repr(copy)


def test_a_wrong_setting_does_not_repeat_the_key() -> None:
    with pytest.raises(ConfigError) as caught:
        model(api_keys=SECRET, temperature=-1)
    assert SECRET not in str(caught.value)
    assert "temperature" in str(caught.value)


@pytest.mark.parametrize("always", [401, 500])
def test_an_error_of_the_endpoint_does_not_repeat_the_key(always: int) -> None:
    with JudgeServer(faults={"always": always}, in_process=True) as server:
        llm = OpenaiLLM("judge-1", base_url=server.base_url, api_key=SECRET, max_attempts=1)
        scored = RewardRegistry.create("safety_listwise_reward", llm=llm).evaluate(make_sample("a", "b"))
    messages = [issue.message for output in scored.output for issue in output.answer.reward.issues]
    assert len(messages) == 2
    assert SECRET not in str(messages)


def test_a_run_folder_holds_no_secret(tmp_path: Path) -> None:
    with JudgeServer("first", in_process=True) as server:
        headers = {"X-Gateway-Auth": SECRET}
        llm = OpenaiLLM("judge-1", base_url=server.base_url, api_key=SECRET, default_headers=headers)
        reward = RewardRegistry.create("safety_listwise_reward", llm=llm)
        reward.evaluate_batch([make_sample("a", "b")], run_dir=str(tmp_path / "run"))
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {"manifest.json", "results.jsonl"} <= {path.name for path in files}
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    "url",
    [
        f"http://h/v1?api_key={SECRET}",
        f"http://u:{SECRET}@h/v1",
        f"u:{SECRET}@h/v1",
        f"h/v1?key={SECRET}",
        f"http://h#{SECRET}",
    ],
)
@pytest.mark.parametrize("source", ["argument", "variable"])
def test_s6_a_url_that_holds_a_secret_is_refused_without_showing_it(
    url: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as caught:
        if source == "argument":
            OpenaiLLM("judge-1", base_url=url)
        else:
            monkeypatch.setenv("OPENAI_BASE_URL", url)
            OpenaiLLM("judge-1", api_key="k").check()
    assert SECRET not in str(caught.value)
    assert "default_query" in str(caught.value) or "api_key" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "token"),
    [
        ({"default_headers": {"Authorization": "Bearer tok-12345678"}}, "tok-12345678"),
        ({"default_headers": {"x-tenant": "Bearer tok-12345678"}}, "tok-12345678"),
        ({"default_headers": {"x-functions-key": "tok-12345678"}}, "tok-12345678"),
        ({"default_headers": {"X-AuthToken": "tok-12345678"}}, "tok-12345678"),
        ({"default_query": {"accessKey": "tok-12345678"}}, "tok-12345678"),
        ({"default_query": {"sig": "a/b+c=1234"}}, "a%2Fb%2Bc%3D1234"),
        ({"api_key": "sk-12345678"}, "sk-12345678"),
    ],
)
@pytest.mark.parametrize("status", [200, 400])
def test_s6_an_endpoint_that_repeats_a_credential_is_not_quoted(
    settings: dict[str, Any], token: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def echo(*_: object) -> Reply:
        said = {"choices": [{"message": {"content": f"you sent {token}"}}], "error": {"message": f"you sent {token}"}}
        return Reply(status, {}, orjson.dumps(said))

    monkeypatch.setattr(transport, "post", echo)
    llm = OpenaiLLM("judge-1", base_url="http://127.0.0.1:1/v1", max_attempts=1, **settings)
    try:
        text = llm.chat("hi").text
    except ProviderError as error:
        text = str(error)
    assert "you sent ***" in text
    assert token not in text


def test_a_placeholder_for_a_key_is_a_word_like_any_other() -> None:
    with JudgeServer("fixed:the secret is kept", in_process=True) as server:
        assert OpenaiLLM("judge-1", base_url=server.base_url, api_key="secret").chat("hi").text == "the secret is kept"
