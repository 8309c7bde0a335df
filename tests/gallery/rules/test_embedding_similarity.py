"""Cosine of answer and reference, by an endpoint or a fake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rm_gallery import BaseReward, ConfigError, RewardRegistry
from rm_gallery.core.model.embeddings import BaseEmbeddings, OpenaiEmbeddings
from rm_gallery.gallery.rm.general.overlap import cosine
from tests.golden import golden
from tests.support.judge_server import JudgeServer, judge_fixture
from tests.support.samples import issues, make_sample, scores

VECTORS: dict[str, list[float]] = {
    "north": [0, 1],
    "east": [1, 0],
    "south": [0, -1],
    "north-east": [2, 2],
    "nowhere": [0, 0],
}


class Compass(BaseEmbeddings):
    model: str = "compass"
    cache: bool | None = False

    def endpoint_key(self) -> str:
        return "compass"

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        return {
            "data": [{"index": i, "embedding": VECTORS[t]} for i, t in enumerate(payload["input"])]
        }


def reward(embeddings: Any) -> BaseReward:
    return RewardRegistry.create("embedding_similarity", embeddings=embeddings)


server = judge_fixture(in_process=True)


def scored(line: golden.Line) -> golden.Line:
    found = reward(Compass()).evaluate(make_sample(line["answer"], reference=line.get("reference")))
    if told := issues(found):
        return dict(zip(("status", "reason"), told[0], strict=True))
    return {"score": scores(found)[0]}


@pytest.mark.parametrize("path", golden.files("embeddings"))
def test_scores_statuses_and_reasons(path: Path) -> None:
    golden.check(path, scored, ("score", "status", "reason"))


def test_over_an_endpoint_a_shared_reference_is_paid_for_once(server: JudgeServer) -> None:
    server.reset()
    model = OpenaiEmbeddings(model="embed-1", base_url=server.base_url)
    sample = make_sample("the red house", "the red door", "a tree", reference="the red house")
    found = scores(reward(model).evaluate(sample))
    assert found == [pytest.approx(1.0), pytest.approx(2 / 3), pytest.approx(0.0, abs=0.5)]
    asked = sorted(body["body"]["input"][0] for body in server.recent_requests(10))
    assert asked == ["a tree", "the red door", "the red house"]


def test_a_failing_endpoint_is_a_failure(server: JudgeServer) -> None:
    server.set(faults={"always": 500})
    model = OpenaiEmbeddings(model="embed-1", base_url=server.base_url, max_attempts=1)
    scored = reward(model).evaluate(make_sample("a", "b", reference="c"))
    server.set(faults=None)
    assert issues(scored) == [("failed", "transient")] * 2


def test_without_a_model_nothing_runs() -> None:
    with pytest.raises(ConfigError, match="embeddings="):
        RewardRegistry.create("embedding_similarity").evaluate(make_sample("a", reference="b"))
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        reward("text-embedding-3-small").evaluate(make_sample("a", reference="b"))


def test_equal_vectors_are_never_above_one() -> None:
    vector = [0.1 * k for k in range(1, 200)]
    assert cosine(vector, vector) == pytest.approx(1.0) and (cosine(vector, vector) or 2) <= 1.0
