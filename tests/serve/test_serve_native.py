"""The server's own routes, through its application."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from rm_gallery import RewardRegistry
from rm_gallery.serve.app import create_app
from rm_gallery.serve.handler import Handler
from rm_gallery.serve.settings import ServeSettings


@pytest.fixture(scope="module")
def app() -> Any:
    return create_app(Handler({"accuracy": RewardRegistry.create("accuracy")}), ServeSettings(max_body=100_000))


def call(app: Any, method: str, path: str, **request: Any) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **request)

    return asyncio.run(go())


RIGHT = {"prompt": "What is 2 + 2?", "completion": "4", "reference": "4"}


def test_a_completion_is_scored(app: Any) -> None:
    reply = call(app, "POST", "/v1/rewards/accuracy", json={**RIGHT, "id": "a"}, headers={"X-Request-Id": "r-1"})
    assert reply.status_code == 200
    assert reply.headers["x-request-id"] == "r-1"
    assert reply.json() == {
        "id": "a",
        "score": 1.0,
        "status": "scored",
        "reason": "",
        "message": reply.json()["message"],
        "components": {},
    }


def test_messages_are_the_same_completion(app: Any) -> None:
    turns = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "5"}]
    assert call(app, "POST", "/v1/rewards/accuracy", json={"messages": turns, "reference": "4"}).json()["score"] == 0.0


def test_a_batch_has_an_outcome_per_item(app: Any) -> None:
    items = [RIGHT, {"prompt": "?"}, 7, {"prompt": "?", "completion": "4"}, {**RIGHT, "completion": "5", "id": "last"}]
    reply = call(app, "POST", "/v1/rewards/accuracy/batch", json={"items": items})
    assert reply.status_code == 200
    found = reply.json()["results"]
    assert [each["status"] for each in found] == ["scored", "failed", "failed", "unscored", "scored"]
    assert [each["score"] for each in found] == [1.0, None, None, None, 0.0]
    assert [each["reason"] for each in found[1:3]] == ["invalid_item"] * 2
    assert "items[1]" in found[1]["message"]
    assert found[4]["id"] == "last"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/rewards/accurcy", b'{"prompt": "?", "completion": "4"}', 404, "unknown_reward"),
        ("/v1/rewards/accuracy", b"{", 400, "invalid_json"),
        ("/v1/rewards/accuracy", b'{"completion": NaN}', 400, "invalid_json"),
        ("/v1/rewards/accuracy", b'{"completion": "\xff"}', 400, "invalid_json"),
        ("/v1/rewards/accuracy", b"[" * 80 + b"]" * 80, 400, "too_deep"),
        ("/v1/rewards/accuracy", b"[" * 20000 + b"]" * 20000, 400, "too_deep"),
        ("/v1/rewards/accuracy", b'"' + b"a" * 200_000 + b'"', 413, "too_large"),
        ("/v1/rewards/accuracy", b"[]", 422, "invalid_request"),
        ("/v1/rewards/accuracy", b'{"completion": "4", "refrence": "4"}', 422, "invalid_request"),
        ("/v1/rewards/accuracy/batch", b'{"items": []}', 422, "invalid_request"),
        ("/v1/nothing", b"{}", 404, "not_found"),
    ],
)
def test_what_does_not_fit_is_refused(app: Any, path: str, body: bytes, status: int, code: str) -> None:
    reply = call(app, "POST", path, content=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert reply.headers["x-request-id"] == reply.json()["error"]["request_id"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/rewards/accuracy/azure?refrence=gold", "'refrence'. Did you mean reference?"),
        ("/v1/rewards/accuracy/get_reward?on_eror=0", "'on_eror'. Did you mean on_error?"),
        ("/v1/rewards/accuracy?on_error=0", "'on_error'. This path takes none."),
    ],
)
def test_a_misspelt_query_parameter_is_refused(app: Any, path: str, says: str) -> None:
    body = {"item": {"answer": "4", "gold": "5"}, "sample": {"output_text": "4"}, "query": ["4"], "prompts": [""]}
    reply = call(app, "POST", path, json=body)
    assert reply.status_code == 422 and says in reply.json()["error"]["message"]


def test_another_method_is_refused(app: Any) -> None:
    assert call(app, "GET", "/v1/rewards/accuracy").status_code == 405


def test_lists_and_health(app: Any) -> None:
    assert call(app, "GET", "/health").json() == {"status": "ok", "problems": []}
    assert [each["name"] for each in call(app, "GET", "/v1/rewards").json()["rewards"]] == ["accuracy"]
    assert call(app, "GET", "/v1/evaluations").json() == {"evaluations": []}


def test_openapi_describes_every_format(app: Any) -> None:
    paths = call(app, "GET", "/openapi.json").json()["paths"]
    post = paths["/v1/rewards/{name}"]["post"]
    assert post["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("ScoreRequest")
    assert post["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("ScoreReply")
    assert post["responses"]["429"]["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorReply")
    assert "/v1/rewards/{name}/batch" in paths
