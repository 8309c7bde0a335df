"""Where key and URL come from: the arguments, then the environment; looked up at the call and never at construction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rm_gallery.core.model.base import BaseModelCall
from rm_gallery.core.model.embeddings import OpenaiEmbeddings
from rm_gallery.core.model.providers import provider
from rm_gallery.core.models import FakeLLM, OpenAIChatModel, OpenaiLLM, resolve_llm
from rm_gallery.core.utils.errors import ConfigError
from tests.support.judge_server import JudgeServer, key_hash

WRONG = "http://127.0.0.1:1/v1"


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer("fixed:hello", in_process=True) as running:
        yield running


URLS = [
    ("URL", {"OPENAI_BASE_URL": WRONG, "BASE_URL": WRONG}),
    (None, {"OPENAI_BASE_URL": "URL", "BASE_URL": WRONG}),
    (None, {"OPENAI_BASE_URL": "", "BASE_URL": "URL"}),
    (None, {"BASE_URL": "URL/"}),
    ("", {"BASE_URL": "URL"}),
]


@pytest.mark.parametrize("model", [OpenaiLLM, OpenAIChatModel])
@pytest.mark.parametrize(("argument", "environment"), URLS)
def test_url(
    server: JudgeServer,
    model: type[OpenaiLLM],
    argument: str | None,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llm = model(model="judge-1", base_url=argument and argument.replace("URL", server.base_url))
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("URL", server.base_url))
    assert llm.chat("hi").text == "hello"


KEYS = [("argument", "variable", "argument"), (None, "variable", "variable"), ("", "variable", "variable")]


@pytest.mark.parametrize(("argument", "variable", "used"), KEYS)
def test_key(
    server: JudgeServer, argument: str | None, variable: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = OpenaiLLM("judge-1", base_url=server.base_url, api_key=argument)
    monkeypatch.setenv("OPENAI_API_KEY", variable)
    server.reset()
    llm.chat("hi")
    assert server.stats()["auth"]["key_hashes"] == {key_hash(used): 1}


def test_the_older_names_of_arguments() -> None:
    llm = OpenaiLLM("gpt-4o", openai_api_key="k")
    assert (llm.model, llm.api_key.get_secret_value() if llm.api_key else None) == ("gpt-4o", "k")


@pytest.mark.parametrize("make", [OpenaiLLM, OpenaiEmbeddings, lambda: resolve_llm(""), lambda: resolve_llm({})])
def test_u2_no_model_is_chosen_silently(make: Callable[[], BaseModelCall], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"model=….*--llm NAME.*OPENAI_MODEL"):
        make()
    monkeypatch.setenv("OPENAI_MODEL", "from-the-environment")
    assert make().model == "from-the-environment"


@pytest.mark.parametrize(
    ("settings", "nearest"),
    [({"modl": "x"}, "model"), ({"temprature": 1}, "temperature"), ({"baseurl": "http://h"}, "base_url")],
)
def test_u4_a_misspelt_setting_names_the_nearest(settings: dict[str, Any], nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean .*{nearest}"):
        OpenaiLLM(**{"model": "m", **settings})


def test_u4_a_misspelt_setting_fails_the_type_check() -> None:
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


@pytest.mark.parametrize(
    ("spec", "model"),
    [
        ("openai:gpt-x", "gpt-x"),
        ("gpt-x", "gpt-x"),
        ("openai:llama3:8b", "llama3:8b"),
        ("qwen2.5:7b-instruct", "qwen2.5:7b-instruct"),
        ("mistral:latest", "mistral:latest"),
        ("ft:gpt-4o:org::id", "ft:gpt-4o:org::id"),
        ("org/model:free", "org/model:free"),
    ],
)
def test_h5_a_prefix_names_the_provider(spec: str, model: str) -> None:
    found = resolve_llm(spec)
    assert (type(found), found.model) == (OpenaiLLM, model)


def test_h5_an_unknown_provider_is_an_error_that_names_the_known() -> None:
    with pytest.raises(ConfigError, match=r"no provider 'anthropic'. Known: fake, openai.*'openai:anthropic:claude-x'"):
        resolve_llm("anthropic:claude-x")
    with pytest.raises(ConfigError, match="no provider of llm 'opnai'.*openai"):
        resolve_llm({"provider": "opnai", "model": "m"})


def test_h5_a_provider_is_one_class_with_a_prefix() -> None:
    @provider("shouting")
    class Shouting(FakeLLM):
        pass

    assert type(resolve_llm("shouting:HELLO")) is Shouting
    assert resolve_llm("shouting:HELLO").chat("x").text == "HELLO"


def test_nothing_is_looked_up_at_construction() -> None:
    llm = OpenaiLLM("m")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        llm.check()
    with pytest.raises(ConfigError, match="line break"):
        OpenaiLLM("m", api_key="key\n").check()


def test_a_model_from_a_name_a_dict_or_a_script() -> None:
    ready = FakeLLM(reply="x")
    assert resolve_llm(ready) is ready
    found = resolve_llm("gpt-4o", temperature=0.5)
    assert (type(found), found.model, found.temperature) == (OpenaiLLM, "gpt-4o", 0.5)
    assert resolve_llm({"model": "m", "base_url": WRONG}).model == "m"
    assert resolve_llm("fake:hello").chat("hi").text == "hello"
    with pytest.raises(ConfigError, match="llm is int"):
        resolve_llm(3)  # type: ignore[arg-type]
