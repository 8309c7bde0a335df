"""Vectors from an endpoint: in order, in as few requests as are needed, and from words where there
is none.
"""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery import ProviderError, RMGalleryError
from rm_gallery.core.model.embeddings import FakeEmbeddings, OpenaiEmbeddings
from tests.support.judge_server import JudgeServer, judge_fixture
from tests.support.judge_server_replies import embedding

TEXTS = ["one two", "三 四", "", "one two", "five"]


server = judge_fixture(in_process=True)


@pytest.fixture
def embeddings(server: JudgeServer) -> OpenaiEmbeddings:
    server.set(faults=None)
    server.reset()
    return OpenaiEmbeddings(model="embed-1", base_url=server.base_url, max_attempts=1)


def near(text: str, size: int) -> Any:
    return pytest.approx(embedding(text, size), abs=1e-7)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 64])
def test_vectors_come_in_the_order_of_the_texts(
    embeddings: OpenaiEmbeddings, server: JudgeServer, batch: int
) -> None:
    model = embeddings.model_copy(update={"batch": batch})
    assert model.embed(TEXTS) == [near(text, 64) for text in TEXTS]
    # equal texts are sent once
    sizes = sorted(len(request["body"]["input"]) for request in server.recent_requests(100))
    assert (
        sizes == sorted([batch] * (4 // batch) + [4 % batch] * (4 % batch > 0))
        and model.embed([]) == []
    )


def test_what_is_sent(embeddings: OpenaiEmbeddings, server: JudgeServer) -> None:
    model = embeddings.model_copy(
        update={"dimensions": 8, "extra_body": {"user": "u", "encoding_format": "base64"}}
    )
    assert model.embed(["a"]) == [near("a", 8)]
    (request,) = server.recent_requests(9)
    more = {"dimensions": 8, "user": "u", "encoding_format": "base64"}
    assert (request["path"], request["body"]) == (
        "/v1/embeddings",
        {"model": "embed-1", "input": ["a"], **more},
    )
    server.set(faults={"always": 401})
    with pytest.raises(ProviderError, match="401"):
        embeddings.embed(["a"])
    with pytest.raises(RMGalleryError, match="surrogate"):
        embeddings.embed(["\ud83d"])
    assert not hasattr(model, "chat") and not hasattr(model, "temperature")


def test_the_fake_knows_shared_words() -> None:
    first, second, third = FakeEmbeddings().embed(["the red house", "The red, door", "一"])
    assert (
        sum(a * b for a, b in zip(first, second, strict=True)) == pytest.approx(2)
        and len(first) == len(third) == 256
    )
    assert FakeEmbeddings(dimensions=4).embed(["a b", "!"]) == FakeEmbeddings(dimensions=4).embed(
        ["a b", "!"]
    )
    assert [sum(map(abs, vector)) for vector in FakeEmbeddings().embed(["a", "a a", "!?"])] == [
        1,
        2,
        1,
    ]
