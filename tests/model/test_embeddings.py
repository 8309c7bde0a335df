"""Vectors from an endpoint: in order, kept, retried, and never made up."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from rm_gallery.core.model.embeddings import BaseEmbeddings, FakeEmbeddings, OpenaiEmbeddings
from rm_gallery.core.model.providers import resolve_embeddings
from rm_gallery.core.utils.errors import ConfigError, ProviderError, RMGalleryError
from tests.support.judge_server import JudgeServer
from tests.support.judge_server_replies import embedding

TEXTS = ["one two", "三 四", "", "one two", "five"]


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer(in_process=True) as running:
        yield running


@pytest.fixture
def embeddings(server: JudgeServer) -> OpenaiEmbeddings:
    server.set(faults=None)
    server.reset()
    return OpenaiEmbeddings(model="embed-1", base_url=server.base_url, max_attempts=2)


def calls(server: JudgeServer) -> list[dict[str, Any]]:
    return [request["body"] for request in server.recent_requests(100)]


def near(text: str, size: int) -> Any:
    return pytest.approx(embedding(text, size), abs=1e-7)


@pytest.mark.parametrize("batch", [1, 2, 3, 64])
def test_vectors_come_in_the_order_of_the_texts(embeddings: OpenaiEmbeddings, server: JudgeServer, batch: int) -> None:
    model = embeddings.model_copy(update={"batch": batch})
    assert model.embed(TEXTS) == [near(text, 64) for text in TEXTS]
    # equal texts are sent once
    assert sorted(len(body["input"]) for body in calls(server)) == sorted(
        [batch] * (4 // batch) + [4 % batch] * (4 % batch > 0)
    )
    assert model.embed([]) == []


def test_what_is_sent(embeddings: OpenaiEmbeddings, server: JudgeServer) -> None:
    model = embeddings.model_copy(update={"dimensions": 8, "extra_body": {"user": "u"}})
    assert model.embed(["a"]) == [near("a", 8)]
    assert calls(server) == [{"model": "embed-1", "input": ["a"], "dimensions": 8, "user": "u"}]
    assert server.recent_requests(1)[0]["path"] == "/v1/embeddings"


def test_base64_answers_are_read(embeddings: OpenaiEmbeddings) -> None:
    model = embeddings.model_copy(update={"extra_body": {"encoding_format": "base64"}})
    assert model.embed(["a b", "c"]) == [near("a b", 64), near("c", 64)]


def test_a_text_is_paid_for_once(embeddings: OpenaiEmbeddings, server: JudgeServer) -> None:
    first = embeddings.embed(["a"])
    assert embeddings.embed(["a"]) == first
    assert len(calls(server)) == 1
    embeddings.model_copy(update={"cache": False}).embed(["a"])
    embeddings.model_copy(update={"dimensions": 8}).embed(["a"])
    assert len(calls(server)) == 3


def test_from_a_loop_of_ones_own(embeddings: OpenaiEmbeddings, server: JudgeServer) -> None:
    async def many() -> list[list[list[float]]]:
        return list(await asyncio.gather(*(embeddings.aembed(["same"]) for _ in range(20))))

    assert asyncio.run(many()) == [[near("same", 64)]] * 20
    # equal requests in flight share one
    assert len(calls(server)) == 1


@pytest.mark.parametrize(("status", "attempts"), [(500, 2), (401, 1), (400, 1)])
def test_an_error_status(embeddings: OpenaiEmbeddings, server: JudgeServer, status: int, attempts: int) -> None:
    server.set(faults={"always": status})
    with pytest.raises(ProviderError, match=str(status)):
        embeddings.embed(["a"])
    assert len(calls(server)) == attempts


class Scripted(BaseEmbeddings):
    """Answers with a given body."""

    model: str = "scripted"
    cache: bool | None = False
    max_attempts: int = 1
    body: dict[str, Any]

    def endpoint_key(self) -> str:
        return "scripted"

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        return self.body


def entry(index: int | None, vector: Any) -> dict[str, Any]:
    return {"embedding": vector} if index is None else {"index": index, "embedding": vector}


PACKED = base64.b64encode(struct.pack("<2f", 3.0, 4.0)).decode()


@pytest.mark.parametrize(
    "data",
    [
        [entry(0, [1, 2]), entry(1, [3.0, 4.0])],
        [entry(1, [3, 4]), entry(0, [1.0, 2.0])],
        [entry(None, [1, 2]), entry(None, [3, 4])],
        [entry(0, [1, 2]), entry(1, PACKED)],
    ],
)
def test_answers_that_are_read(data: list[dict[str, Any]]) -> None:
    assert Scripted(body={"data": data}).embed(["a", "b"]) == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"data": None},
        {"data": "x"},
        {"data": [[1.0]]},
        {"error": {"message": "overloaded"}},
        {"data": [entry(0, [1, 2])]},
        {"data": [entry(0, [1, 2]), entry(0, [1, 2])]},
        {"data": [entry(0, [1, 2]), entry(2, [1, 2])]},
        {"data": [entry(0, [1, 2]), entry(1, [1, 2, 3])]},
        {"data": [entry(0, []), entry(1, [])]},
        {"data": [entry(0, [1, 2]), entry(1, None)]},
        {"data": [entry(0, [1, 2]), entry(1, ["a", "b"])]},
        {"data": [entry(0, [1, 2]), entry(1, [1, float("nan")])]},
        {"data": [entry(0, [1, 2]), entry(1, [1, 1e300])]},
        {"data": [entry(0, [1, 2]), entry(1, "no base64!")]},
        {"data": [entry(0, [1, 2]), entry(1, PACKED[:-4])]},
    ],
)
def test_answers_that_are_no_vectors(body: dict[str, Any]) -> None:
    with pytest.raises(ProviderError, match="scripted answered"):
        Scripted(body=body).embed(["a", "b"])


def test_the_fake_knows_shared_words() -> None:
    first, second, third = FakeEmbeddings().embed(["the red house", "the red door", "一"])
    assert sum(a * b for a, b in zip(first, second, strict=True)) == pytest.approx(2)
    assert len(first) == len(third) == 256
    assert FakeEmbeddings(dimensions=4).embed(["a"]) == FakeEmbeddings(dimensions=4).embed(["a"])


@pytest.mark.parametrize(
    ("spec", "kind", "model"),
    [
        ("bge-m3", OpenaiEmbeddings, "bge-m3"),
        ({"model": "m", "dimensions": 3}, OpenaiEmbeddings, "m"),
        ("fake:", FakeEmbeddings, "fake"),
        (FakeEmbeddings(model="mine"), FakeEmbeddings, "mine"),
    ],
)
def test_specs(spec: Any, kind: type[BaseEmbeddings], model: str) -> None:
    found = resolve_embeddings(spec)
    assert type(found) is kind
    assert found.model == model


@pytest.mark.parametrize(
    ("spec", "message"), [("", "No model"), (7, "embeddings is int"), (None, "embeddings is None")]
)
def test_specs_that_are_none(spec: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_embeddings(spec)


def test_h5_it_does_not_chat_and_shows_no_secret() -> None:
    model = OpenaiEmbeddings(model="m", api_key="sk-QsecretQ", default_headers={"x": "QsecretQ"})
    assert not hasattr(model, "chat") and not hasattr(model, "temperature")
    assert "QsecretQ" not in repr(model) + str(model.describe())


def test_without_a_key_the_message_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        OpenaiEmbeddings("m").check()


def test_text_that_is_no_unicode_fails_with_a_reason(embeddings: OpenaiEmbeddings) -> None:
    with pytest.raises(RMGalleryError, match="surrogate"):
        embeddings.embed(["\ud83d"])
