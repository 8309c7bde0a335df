"""The door every request goes through: who may enter, what it takes at most, what it counts and what it never tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from loguru import logger

from rm_gallery import DataSample, RewardRegistry
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult
from rm_gallery.core.utils.file import deeper
from rm_gallery.serve.app import create_app
from rm_gallery.serve.asking import Ask, Codec, Refused, Scored
from rm_gallery.serve.handler import Handler
from rm_gallery.serve.settings import ServeSettings
from rm_gallery.serve.tokens import Tokens, create_token

SECRET = "sk-secret-0123456789abcdef0123456789abcdef"
BODY = {"completion": "4", "reference": "4"}


class Slow(BasePointWiseReward):
    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        await asyncio.sleep(float(sample.output[0].answer.text))
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name=self.name, score=1.0)])


def broken(body: Any, path: Any) -> tuple[str, list[Ask]]:
    raise RuntimeError(f"the key {SECRET} of /home/somebody")


FAULTY = Codec("faulty", "/faulty", broken, lambda asks, found: (200, None))


def app_of(tokens: Tokens | None = None, codecs: Any = None, **settings: Any) -> Any:
    handler = Handler({"it": RewardRegistry.create("accuracy"), "slow": Slow()})
    return create_app(handler, ServeSettings(**settings), codecs, tokens)


def asked(app: Any, *requests: dict[str, Any]) -> list[httpx.Response]:
    """The replies to requests that come at once: `path`, and what `httpx` takes."""

    async def go() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            given = [{"method": "POST", "url": "/v1/rewards/it", "json": BODY, **request} for request in requests]
            for one in given:
                if "content" in one or one["method"] == "GET":
                    del one["json"]
            return list(await asyncio.gather(*(client.request(**one) for one in given)))

    return asyncio.run(go())


def get(path: str, **more: Any) -> dict[str, Any]:
    return {"method": "GET", "url": path, **more}


def code_of(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


# -- who may enter -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "open_", "status"),
    [
        ("http://localhost:3000", False, 200), ("http://127.0.0.1", False, 200), ("http://[::1]:1", False, 200),
        ("https://evil.example", False, 403), ("http://localhost.evil.example", False, 403), ("null", False, 403),
        ("http://127.0.0.1.evil.example", False, 403), ("https://evil.example", True, 200),
    ],
)  # fmt: skip
def test_pages_of_other_sites_may_not_ask_a_server_without_tokens(origin: str, open_: bool, status: int) -> None:
    scored, listed = asked(
        app_of(open=open_), {"headers": {"Origin": origin}}, get("/v1/rewards", headers={"Origin": origin})
    )
    assert (scored.status_code, listed.status_code) == (status, status)


def test_every_path_asks_for_its_scope_and_health_for_none(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    headers = {
        scope: {"Authorization": f"Bearer {create_token(file, scope, [scope])}", "Origin": "https://elsewhere.example"}
        for scope in ("read", "evaluate", "deploy")
    }
    app = app_of(Tokens(file))
    paths = [
        get("/v1/rewards"),
        get("/v1/evaluations"),
        get("/metrics"),
        {},
        {"url": "/v1/rewards/it/batch", "json": {"items": [BODY]}},
    ]
    for scope, given in headers.items():
        found = asked(app, *({**path, "headers": given} for path in paths))
        expected = {"read": [200] * 3 + [403] * 2, "evaluate": [403] * 3 + [200] * 2, "deploy": [403] * 5}[scope]
        assert [reply.status_code for reply in found] == expected, scope
    nobody = asked(app, *paths, get("/health"))
    assert [reply.status_code for reply in nobody] == [401] * 5 + [200]
    assert nobody[3].headers["www-authenticate"] == "Bearer"


def test_a_server_that_ends_says_so_and_then_refuses() -> None:
    app = app_of()
    door = app.state.door
    door.closing = True
    scored, health = asked(app, {}, get("/health"))
    assert (scored.status_code, scored.headers["connection"], scored.json()["score"]) == (200, "close", 1.0)
    assert (health.status_code, health.json()["status"]) == (503, "closing")
    door.closed = True
    refused, listed = asked(app, {}, get("/v1/rewards"))
    assert code_of(refused) == code_of(listed) == (503, "closing")
    assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")


# -- what it takes at most ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [("0.05", 504), ("1000", 504), ("0", 400), ("-1", 400), ("nan", 400), ("inf", 400), ("soon", 400), ("1e400", 400)],
)
def test_a_client_may_ask_for_less_time_and_never_for_more(seconds: str, expected: int) -> None:
    app = app_of(deadline=0.2)
    (reply,) = asked(
        app, {"url": "/v1/rewards/slow", "json": {"completion": "8"}, "headers": {"X-Timeout-Seconds": seconds}}
    )
    assert reply.status_code == expected, reply.text
    assert reply.json().get("reason", reply.json().get("error")) is not None


def test_the_bodies_of_all_requests_together_are_bounded_and_their_room_is_given_back() -> None:
    app = app_of(max_bytes=1000)
    metrics = app.state.door.metrics
    body = b'{"completion": "0.2"' + b" " * 500 + b"}"
    slow = {"url": "/v1/rewards/slow", "content": body}
    first, second = asked(app, slow, slow)
    assert sorted([first.status_code, second.status_code]) == [200, 429]
    refused = first if first.status_code == 429 else second
    assert code_of(refused) == (429, "busy") and refused.headers["retry-after"] == "1"
    assert (metrics.bytes, metrics.in_flight) == (0, 0)
    assert [reply.status_code for reply in asked(app, slow)] == [200]
    asked(app, {"content": b"{"}, {"url": "/v1/rewards/no"})
    assert (metrics.bytes, metrics.in_flight) == (0, 0)


@pytest.mark.parametrize(("pieces", "status"), [((400, 400), 200), ((600, 600), 413), ((2000,), 413)])
def test_a_body_of_unsaid_length_is_bounded_as_a_whole(pieces: tuple[int, ...], status: int) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b'{"completion": "4"'
        for size in pieces:
            yield b" " * size
        yield b"}"

    (reply,) = asked(app_of(max_body=1000), {"content": body()})
    assert reply.status_code == status, reply.text


def test_nesting_is_allowed_up_to_the_limit_and_not_one_level_more() -> None:
    app = app_of(max_depth=5)

    def nested(levels: int) -> dict[str, Any]:
        value: Any = 1
        for level in range(levels - 1):
            value = [value] if level % 2 else {"a": value}
        return {"json": {"completion": "4", "reference": value}}

    fits, too_deep = asked(app, nested(5), nested(6))
    assert fits.status_code == 200 and code_of(too_deep) == (400, "too_deep")
    values: tuple[Any, ...] = (1, [], [1], [[1]], [[]], {"a": {"b": 1}})
    assert [deeper(value, 1) for value in values] == [False, False, False, True, True, True]


@pytest.mark.parametrize(
    ("given", "kept"), [("a.B:c-1_2", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("ä", False)]
)
def test_a_plain_request_id_is_given_back(given: str, kept: bool) -> None:
    (reply,) = asked(app_of(), {"headers": {"X-Request-Id": given.encode("latin-1")}})
    assert (reply.headers["x-request-id"] == given) is kept
    assert reply.headers["x-request-id"].isascii()


# -- what it counts and tells ------------------------------------------------------------------------------------------------


@pytest.fixture
def logged() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lines.append, level="ERROR", format="{message}")
    logger.enable("rm_gallery")
    yield lines
    logger.remove(sink)


def test_a_fault_is_told_to_the_log_without_secrets_and_to_nobody_else(logged: list[str]) -> None:
    app = app_of(codecs=[FAULTY])
    (reply,) = asked(app, {"url": "/faulty", "headers": {"X-Request-Id": "r-7"}})
    assert code_of(reply) == (500, "internal")
    assert "somebody" not in reply.text and "RuntimeError" not in reply.text
    assert len(logged) == 1 and "r-7" in logged[0] and "RuntimeError" in logged[0] and SECRET not in logged[0]
    assert (app.state.door.metrics.in_flight, app.state.door.metrics.bytes) == (0, 0)
    assert dict(app.state.door.metrics.requests) == {("/faulty", 500): 1}


@pytest.mark.parametrize(("seconds", "told"), [(6.2, "7"), (0.01, "1"), (30.0, "30")])
def test_who_is_told_to_come_again_is_never_told_too_early(seconds: float, told: str) -> None:
    def full(body: Any, path: Any) -> tuple[str, list[Ask]]:
        raise Refused(429, "busy", "Too many.", retry_after=seconds)

    (reply,) = asked(app_of(codecs=[Codec("full", "/full", full, _odd)]), {"url": "/full"})
    assert code_of(reply) == (429, "busy") and reply.headers["retry-after"] == told


def test_a_query_does_not_change_what_the_path_names() -> None:
    app = app_of()
    (reply,) = asked(app, {"url": "/v1/rewards/it?name=slow"})
    assert code_of(reply) == (422, "invalid_request") and "'name'" in reply.json()["error"]["message"]
    assert not app.state.door.metrics.outcomes


def test_metrics_count_statuses_and_seconds_once() -> None:
    app = app_of()
    slow = {"url": "/v1/rewards/slow", "json": {"completion": "0.06"}}
    asked(app, {}, slow, {"url": "/v1/rewards/none"}, {"content": b"{"})
    lines = asked(app, get("/metrics"))[0].text.splitlines()
    route = 'route="/v1/rewards/{name}"'
    counts = [f'rm_gallery_requests_total{{{route},status="{status}"}}' for status in (200, 400, 404)]
    assert {
        line.rpartition(" ")[0]: float(line.split()[-1]) for line in lines if line.startswith(tuple(counts))
    } == dict(zip(counts, [2, 1, 1], strict=True))
    buckets = [float(line.split()[-1]) for line in lines if line.startswith("rm_gallery_request_seconds_bucket")]
    assert buckets == sorted(buckets) and buckets[-1] == 4
    at_50_ms = next(line for line in lines if 'le="0.05"' in line)
    assert float(at_50_ms.split()[-1]) <= 3  # the slow one took longer
    assert 'rm_gallery_completions_total{outcome="scored",target="reward:slow"} 1.0' in lines


def test_scores_of_an_ask_that_is_no_valid_unicode_are_sent() -> None:
    odd = Codec("odd", "/odd", lambda body, path: ("reward:it", [Ask(completion="4", reference="4")]), _odd)
    (reply,) = asked(app_of(codecs=[odd]), {"url": "/odd"})
    assert (reply.status_code, reply.json()) == (200, {"text": "?", "number": 2**80})


def _odd(asks: Any, found: Sequence[Scored]) -> tuple[int, Any]:
    return 200, {"text": "\ud800", "number": 2**80}
