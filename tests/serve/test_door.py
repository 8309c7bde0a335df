"""The door every request goes through: what it takes at most in all, what it counts and what it
never tells.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any, ClassVar

import pytest
from loguru import logger

from rm_gallery import BasePointWiseReward, DataSample, RewardRegistry, RewardResult
from rm_gallery.serve.app import create_app
from rm_gallery.serve.door import ServeSettings
from rm_gallery.serve.formats import Ask, Codec, Refused
from rm_gallery.serve.handler import Handler
from rm_gallery.serve.metrics import BUCKETS, Metrics
from tests.reward.rewards import scored
from tests.serve.asking import Slow, asked, code_of, get

SECRET = "sk-secret-0123456789abcdef0123456789abcdef"
IT = {"url": "/v1/rewards/it", "json": {"completion": "4", "reference": "4"}}


def app_of(codecs: Any = None, **settings: Any) -> Any:
    handler = Handler({"it": RewardRegistry.create("accuracy"), "slow": Slow()})
    return create_app(handler, ServeSettings(**settings), codecs)


kept = cache(app_of)


def fails(error: Exception) -> Any:
    """An application whose only format fails so."""

    def asks(posted: Any) -> list[Ask]:
        raise error

    return app_of([Codec("faulty", "/faulty", asks, lambda said: None)], read_timeout=0.1)


@pytest.mark.parametrize(("headers", "status"), [
    *[({"Origin": origin}, 200) for origin in ("http://localhost:3000", "https://127.0.0.1", "HTTP://[::1]:1")],
    *[({"Origin": origin}, 403) for origin in (
        "https://evil.example", "http://localhost.evil.example", "null", "http://127.0.0.1.evil.example", "http://[evil",
        "http://1127.0.0.1", "http://127.0.0.1:80:80", "http://127.0.0.1/", "ftp://localhost", "",
    )],
    *[({"Host": host}, 200) for host in ("localhost", "localhost:8000", "127.1.2.3:1", "[::1]:80")],
    *[({"Host": host}, 403) for host in ("evil.example:8000", "localhost.evil.example", "0.0.0.0", "")],
])  # fmt: skip
def test_pages_of_other_sites_may_not_ask_a_server_without_tokens(
    headers: dict[str, str], status: int
) -> None:
    one = {
        **IT,
        "url": "http://127.0.0.1/v1/rewards/it",
        "headers": {"Host": "localhost", **headers},
    }
    assert [
        reply.status_code for app in (kept(), kept(open=True)) for reply in asked(app, one)
    ] == [status, 200]


@pytest.mark.parametrize(
    "here", ["localhost", "127.0.0.1", "127.8.9.10", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"]
)
@pytest.mark.parametrize(
    ("host", "status"), [("evil.example", 403), ("::1.evil.example", 403), ("localhost:1", 200)]
)
def test_a_name_that_was_made_to_point_here_is_refused_by_whatever_address_it_comes(
    here: str, host: str, status: int
) -> None:
    """A socket that takes IPv4 and IPv6 calls 127.0.0.1 ::ffff:127.0.0.1."""
    url = f"http://{f'[{here}]' if ':' in here else here}/v1/rewards/it"
    (reply,) = asked(kept(), {**IT, "url": url, "headers": {"Host": host}})
    assert reply.status_code == status
    assert ServeSettings(host=here).local


def test_another_name_is_taken_where_other_machines_connect() -> None:
    """Whoever listens on another address than this machine's own is asked by whatever name it has
    there.
    """
    (reply,) = asked(
        app_of(),
        {**IT, "url": "http://10.0.0.7/v1/rewards/it", "headers": {"Host": "rewards.example"}},
    )
    assert reply.status_code == 200


@pytest.mark.parametrize("over", [0, 1])
def test_the_bodies_of_all_requests_together_are_bounded_and_their_room_is_given_back(
    over: int,
) -> None:
    body = b'{"completion": "0.3"' + b" " * 500 + b"}"
    app = app_of(max_bytes=2 * len(body) - over)
    metrics = app.state.door.metrics
    slow = {"url": "/v1/rewards/slow", "content": body}
    replies = sorted(asked(app, slow, slow), key=lambda reply: reply.status_code)
    assert [reply.status_code for reply in replies] == [200, 429 if over else 200]
    if over:
        assert code_of(replies[1]) == (429, "busy") and replies[1].headers["retry-after"] == "1"
    assert (metrics.bytes, metrics.in_flight) == (0, 0)
    assert [
        reply.status_code for reply in asked(app, {**slow, "content": body.replace(b"0.3", b"0.0")})
    ] == [200]
    asked(app, {"url": "/v1/rewards/it", "content": b"{"}, {**IT, "url": "/v1/rewards/no"})
    assert (metrics.bytes, metrics.in_flight) == (0, 0)


@pytest.mark.parametrize("filler, entries", [
    ({f"f{i}": "" for i in range(3000)}, True), ([{}] * 3000, True), ([[]] * 3000, True),
    ("{[: " * 3000, False), ('\\"{":' * 3000, False), (list(range(9000)), False),
])  # fmt: skip
def test_entries_of_a_body_count_as_bytes_and_marks_in_texts_do_not(
    filler: Any, entries: bool
) -> None:
    app = app_of(max_body=200_000)
    body = json.dumps({"completion": "4", "reference": "4", "row": {"filler": filler}})
    (reply,) = asked(app, {"url": "/v1/rewards/it", "content": body})
    assert len(body) < 200_000
    if entries:
        assert code_of(reply) == (413, "too_many")
        assert "count 128 bytes each" in reply.text and "200000" in reply.text
    else:
        assert reply.json()["score"] == 1.0
    assert app.state.door.metrics.bytes == 0


def test_bodies_that_are_declared_and_never_come_take_no_room_from_others() -> None:
    app = app_of(max_bytes=1000, max_body=900, read_timeout=1.0)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30.0)

    idle = {"url": "/v1/rewards/it", "headers": {"Content-Length": "900"}}
    *idlers, good = asked(app, *({**idle, "content": never()} for _ in range(20)), IT)
    assert good.status_code == 200
    assert {code_of(reply) for reply in idlers} == {(408, "slow")}
    assert (app.state.door.metrics.bytes, app.state.door.metrics.in_flight) == (0, 0)
    assert code_of(asked(app, {**idle, "content": b" " * 901, "headers": {}})[0]) == (
        413,
        "too_large",
    )


def test_a_server_whose_event_loop_no_longer_turns_is_not_well() -> None:
    door = app_of().state.door
    door.turned = time.monotonic()
    assert door.problems() == []
    door.turned -= 10.0
    assert door.problems() == ["the server has answered nothing for 10 s"]


class Counting(BasePointWiseReward):
    """Takes 0.3 s, and counts what was begun and what was finished."""

    begun: ClassVar[list[str]] = []
    finished: ClassVar[list[str]] = []

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        self.begun.append(text)
        await asyncio.sleep(0.3)
        self.finished.append(text)
        return scored(self.name, 1.0)


def test_who_hangs_up_is_judged_no_further() -> None:
    Counting.begun.clear()
    Counting.finished.clear()
    handler = Handler({"counting": Counting()}, max_workers=1)
    app = create_app(handler, ServeSettings())
    body = json.dumps({"items": [{"completion": str(place)} for place in range(6)]}).encode()
    sent: list[Any] = []

    async def main() -> float:
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if parts:
                return parts.pop()
            await asyncio.sleep(0.1)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        path = "/v1/rewards/counting/batch"
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
        }  # fmt: skip
        await app(
            scope
            | {"raw_path": path.encode(), "query_string": b"", "headers": [], "root_path": ""},
            receive,
            send,
        )
        lane = handler.lanes["counting"]
        waiting = lane.waiting
        await asyncio.sleep(2.0)
        assert await handler.score("reward:counting", [Ask(prompt="q", completion="next")], 10.0)
        await handler.close()
        return waiting

    assert asyncio.run(main()) == 0
    assert sent == [] and app.state.door.metrics.in_flight == 0
    assert Counting.begun == ["0", "next"] and Counting.finished[-1] == "next"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a.B:c-1_2", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("a b", False),
        ("ä", False),
        ("", False),
        ("a\n", False),
    ],
)
def test_a_plain_request_id_is_given_back(given: str, kept: bool) -> None:
    (reply,) = asked(app_of(), {**IT, "headers": {"X-Request-Id": given.encode("latin-1")}})
    assert (reply.headers["x-request-id"] == given) is kept
    assert reply.headers["x-request-id"].isascii() and len(reply.headers["x-request-id"]) >= 9


@pytest.fixture
def logged() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lines.append, level="ERROR", format="{message}")
    logger.enable("rm_gallery")
    yield lines
    logger.remove(sink)


def test_a_fault_is_told_to_the_log_without_secrets_and_to_nobody_else(logged: list[str]) -> None:
    app = fails(RuntimeError(f"the key {SECRET} of /home/somebody"))
    (reply,) = asked(app, {"url": "/faulty", "json": 1, "headers": {"X-Request-Id": "r-7"}})
    assert code_of(reply) == (500, "internal")
    assert "somebody" not in reply.text and "RuntimeError" not in reply.text
    assert (
        len(logged) == 1
        and "r-7" in logged[0]
        and "RuntimeError" in logged[0]
        and SECRET not in logged[0]
    )
    assert dict(app.state.door.metrics.requests) == {("/faulty", 500): 1}
    app.state.door.metrics.exposed = lambda handler: 1 / 0
    (listed,) = asked(app, get("/metrics"))
    assert (
        code_of(listed) == (500, "internal") and len(logged) == 2 and "division" not in listed.text
    )


@pytest.mark.parametrize(("seconds", "told"), [(6.2, "7"), (0.01, "1"), (30.0, "30"), (None, None)])
def test_who_is_told_to_come_again_is_never_told_too_early(
    seconds: float | None, told: str | None
) -> None:
    (reply,) = asked(
        fails(Refused(429, "busy", "Too many.", retry_after=seconds)), {"url": "/faulty", "json": 1}
    )
    assert code_of(reply) == (429, "busy") and reply.headers.get("retry-after") == told


@pytest.mark.parametrize(
    ("status", "closes"),
    [(400, False), (408, True), (413, True), (422, False), (429, False), (503, True)],
)
def test_who_may_still_send_or_had_better_ask_elsewhere_is_told_to_close(
    status: int, closes: bool
) -> None:
    (reply,) = asked(fails(Refused(status, "why", "Because.")), {"url": "/faulty", "json": 1})
    assert (
        code_of(reply) == (status, "why") and (reply.headers.get("connection") == "close") is closes
    )


def test_metrics_count_statuses_outcomes_and_what_waits() -> None:
    app = app_of()
    waiting = 'rm_gallery_waiting{reward="slow"}'
    slow = {"url": "/v1/rewards/slow", "json": {"completion": "0.4"}}
    batch = {"items": [{"completion": "4", "reference": "4"}, {"completion": "4"}, 7]}
    asked(
        app,
        IT,
        {"url": "/v1/rewards/none", "json": {"completion": "4"}},
        {"url": "/v1/rewards/it", "content": b"{"},
    )
    during = asked(app, {"url": "/v1/rewards/it/batch", "json": batch}, slow, get("/metrics"))[
        -1
    ].text
    text = asked(app, get("/metrics"))[0].text
    route = 'route="/v1/rewards/{name}"'
    for line in (
        *[f'rm_gallery_requests_total{{{route},status="{status}"}} {n}.0' for status, n in ((200, 2), (400, 1), (404, 1))],
        *[f'rm_gallery_completions_total{{outcome="{each}",target="reward:it"}} {n}.0'
          for each, n in (("scored", 2), ("unscored", 1), ("failed", 1))],
        f'rm_gallery_request_seconds_bucket{{le="+Inf",{route}}} 4.0', f"rm_gallery_request_seconds_count{{{route}}} 4.0",
        "rm_gallery_requests_in_flight 0.0", "rm_gallery_body_bytes 0.0", f"{waiting} 0.0",
    ):  # fmt: skip
        assert line in text.splitlines(), line
    assert f"{waiting} 1.0" in during and "rm_gallery_requests_in_flight 2.0" in during


def test_seconds_are_counted_up_to_the_bound_of_their_bucket() -> None:
    metrics = Metrics()
    for seconds in (0.05, 0.0500001, 61.0):
        metrics.answered("/x", 200, seconds)
    assert [BUCKETS[place] if place < len(BUCKETS) else None for place, n in enumerate(metrics.seconds["/x"]) if n] == [
        0.05, 0.1, None,
    ]  # fmt: skip
    assert metrics.total_seconds["/x"] == pytest.approx(61.1000001)
    text = metrics.exposed(Handler({})).decode()
    counts = {
        le: n
        for line in text.splitlines()
        if "_bucket" in line
        for le, n in [(line.split('"')[1], line.split()[-1])]
    }
    assert (counts["0.025"], counts["0.05"], counts["0.1"], counts["60.0"], counts["+Inf"]) == (
        "0.0", "1.0", "2.0", "2.0", "3.0",
    )  # fmt: skip


def test_scores_of_an_ask_that_is_no_valid_unicode_are_sent() -> None:
    ask, odd = Ask(completion="4", reference="4"), {"text": "\ud800", "number": 2**80}
    codec = Codec("odd", "/odd", lambda posted: [ask], lambda said: odd, target="reward:it")
    (reply,) = asked(app_of([codec]), {"url": "/odd", "json": 1})
    assert (reply.status_code, reply.json()) == (200, {"text": "?", "number": 2**80})
