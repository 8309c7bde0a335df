"""The client, and a reward behind a server as a reward: the same outcomes as beside it, whatever
breaks on the way.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rm_gallery import (
    BasePointWiseReward,
    ChatMessage,
    ConfigError,
    DataOutput,
    DataSample,
    ProviderError,
    RewardDimensionWithScore,
    RewardRegistry,
    RewardResult,
    Step,
)
from rm_gallery.core.model.reward_servers import RewardServer as Endpoint
from rm_gallery.gallery.rm.trained.served import RemoteReward, item_of
from rm_gallery.integrations.causes import NoScore
from rm_gallery.integrations.scoring import RowScorer
from rm_gallery.integrations.trl import trl_reward
from rm_gallery.serve.client import RewardClient
from tests.reward.rewards import scored
from tests.serve.asking import Slow
from tests.support.reward_server import RewardServer


class Picky(BasePointWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if "boom" in sample.output[0].answer.text:
            raise ValueError("boom")
        score = len(sample.input) + 0.1 * len(sample.output[0].steps or [])
        details: list[Any] = [
            RewardDimensionWithScore(name="turns", score=score, reason="counted"),
            # fmt: skip
            RewardDimensionWithScore(name="k", score=float((sample.metadata or {}).get("k", 0))),
        ]
        return RewardResult(name=self.name, details=details)


class Turns(BasePointWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, float(len(sample.input)))


@pytest.fixture(scope="module")
def server() -> Iterator[RewardServer]:
    rewards = {
        "accuracy": RewardRegistry.create("accuracy"),
        "slow": Slow(),
        "picky": Picky(),
        "turns": Turns(),
    }
    with RewardServer(rewards, deadline=4.0) as running:
        yield running


@pytest.fixture
def client(server: RewardServer) -> RewardClient:
    return RewardClient(server.url, batch=4)


def items(n: int) -> list[dict[str, Any]]:
    return [
        {"prompt": f"{i} + 1?", "completion": str(i + 1 + i % 3), "reference": str(i + 1)}
        for i in range(n)
    ]


def test_scores_come_in_order_and_are_those_of_the_reward_itself(client: RewardClient) -> None:
    asked = items(10)
    found = client.score_batch("accuracy", asked)
    own = RowScorer("accuracy", reference="reference")
    here = own.score_rows([i["prompt"] for i in asked], [i["completion"] for i in asked], asked)
    assert found == [each.value for each in here]
    assert client.evaluate_batch("accuracy", asked) == [replace(each, extra={}) for each in here]
    assert client.score("accuracy", "2 + 2?", "4", reference="4") == 1.0
    assert client.evaluate_batch("accuracy", []) == []


def test_what_has_no_score_says_why_and_costs_no_other_one(client: RewardClient) -> None:
    asked = [
        *items(2),
        {"completion": "4"},
        {"completion": "\ud800", "reference": "1"},
        {"prompt": "no completion"},
    ]
    found = client.evaluate_batch("accuracy", asked)
    assert [(each.status, each.code) for each in found] == [
        ("scored", ""), ("scored", ""), ("unscored", "no_reference"), ("failed", "invalid_request"), ("failed", "invalid_item"),
    ]  # fmt: skip
    failed = client.evaluate("picky", "q", "boom")
    assert (failed.value, failed.status, failed.code) == (None, "failed", "error")


@pytest.mark.parametrize(("on_error", "value"), [("none", None), (-1, -1.0), (0.5, 0.5)])
def test_on_error_says_what_stands_for_a_missing_score(
    server: RewardServer, on_error: Any, value: Any
) -> None:
    assert RewardClient(server.url, on_error=on_error).score("accuracy", "q", "4") == value


def test_on_error_can_raise(server: RewardServer) -> None:
    with pytest.raises(NoScore, match="no_reference"):
        RewardClient(server.url, on_error="raise").score_batch("accuracy", [{"completion": "4"}])


def test_it_works_in_a_running_loop(client: RewardClient) -> None:
    async def go() -> Any:
        return await client.ascore("accuracy", "q", "4", reference="4"), client.score(
            "accuracy", "q", "4", reference="4"
        )

    assert asyncio.run(go()) == (1.0, 1.0)
    assert asyncio.run(go()) == (1.0, 1.0)


def test_it_is_pickled_and_shows_no_token(server: RewardServer) -> None:
    client = RewardClient(server.url, token="sk-secret-secret")
    assert "secret" not in repr(client)
    assert pickle.loads(pickle.dumps(client)).score("accuracy", "q", "4", reference="4") == 1.0
    reward = client.reward("accuracy")
    assert "secret" not in repr(reward) + json.dumps(reward.describe()) + reward.model_dump_json()
    assert pickle.loads(pickle.dumps(reward)).settings_hash == reward.settings_hash


def test_the_lists_and_the_health_of_a_server(client: RewardClient) -> None:
    assert {each["name"] for each in client.rewards()} == {"accuracy", "slow", "picky", "turns"}
    assert client.evaluations() == []
    assert client.healthy()
    assert not RewardClient("http://127.0.0.1:9").healthy()


@pytest.mark.parametrize(("make", "says"), [
    (lambda: RewardClient("127.0.0.1:8000"), "base_url"),
    (lambda: RewardClient("http://u:p@h"), "user name or password"),
    (lambda: RewardClient("http://h", on_error="zero"), "on_error"),  # type: ignore[arg-type]
    (lambda: RewardClient("http://h", on_error="worst"), 'give "none", "raise" or a finite number'),
    (lambda: RewardClient("http://h", batch=0), "batch"),
    (lambda: RewardClient("http://h", deadline=-1), "deadline"),
    (lambda: RewardClient("http://h").score("evaluator:", "q", "a"), "target"),
    (lambda: RewardClient("http://h").score("r", "q", "a", refrence="4"), "refrence"),
    (lambda: RemoteReward(), "remote:URL"),
    (lambda: RemoteReward("http://h:1"), "/v1/rewards/NAME"),
    (lambda: RemoteReward("http://h:1/v1/rewards/"), "/v1/rewards/NAME"),
    (lambda: RemoteReward("http://h:1/v1/models/x"), "/v1/rewards/NAME"),
    (lambda: RemoteReward("http://u:p@h:1/v1/rewards/x"), "user name or password"),
])  # fmt: skip
def test_misuse_is_named(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


def test_a_wrong_name_is_told_with_those_there_are(client: RewardClient) -> None:
    found = client.evaluate("acuracy", "q", "4", reference="4")
    assert (found.status, found.code) == ("failed", "fatal")
    assert "accuracy" in found.reason and "base URL" not in found.reason


# -- time and trouble ------------------------------------------------------------------------------


def test_the_deadline_holds_for_all_together_and_keeps_what_is_done(server: RewardServer) -> None:
    client = RewardClient(server.url, deadline=2.0, batch=1)
    found = client.evaluate_batch("slow", [{"completion": text} for text in ("0", "30", "0")])
    assert [(each.value, each.code) for each in found] == [
        (1.0, ""),
        (None, "deadline"),
        (1.0, ""),
    ]
    assert found[1].reason == f"{server.url} gave no answer within 2 s."


def test_slow_completions_wait_together(client: RewardClient) -> None:
    """One after the other four of them take longer than the server gives a request."""
    assert client.score_batch("slow", [{"completion": "1.2"}] * 8) == [1.0] * 8


class _Scripted(ThreadingHTTPServer):
    """Answers what a script says, request after request, and notes what came."""

    def __init__(self, *replies: Reply) -> None:
        self.replies, self.seen = list(replies), []  # type: ignore[var-annotated]
        super().__init__(("127.0.0.1", 0), _Answers)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, _Scripted)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.seen.append((self.path, body, dict(self.headers), time.monotonic()))
        status, reply, headers = (
            server.replies.pop(0) if len(server.replies) > 1 else server.replies[0]
        )
        reply = reply(body) if callable(reply) else reply
        sent = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(sent))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *args: Any) -> None: ...


Reply = tuple[int, Any, dict[str, str]]
OK: Reply = (
    200,
    {"id": None, "score": 0.5, "status": "scored", "reason": "", "message": "", "components": {}},
    {},
)


def test_a_busy_server_is_asked_again_when_it_said() -> None:
    with _Scripted(
        (429, {"error": {"code": "busy", "message": "later"}}, {"Retry-After": "1"}), OK
    ) as server:
        client = RewardClient(server.url, token="tok-123456")
        assert client.score("r", "q", "a") == 0.5
        (path, body, headers, first), (*_, second) = server.seen
        assert path == "/v1/rewards/r" and body == {"prompt": "q", "completion": "a"}
        assert headers["Authorization"] == "Bearer tok-123456"
        assert headers["X-Timeout-Seconds"] == "55"
        assert second - first >= 1.0
        server.shutdown()


def test_openais_key_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-1234")
    with _Scripted(OK) as server:
        RewardClient(server.url).score("evaluator:a b", "q", "a")
        monkeypatch.setenv("RM_GALLERY_TOKEN", "rmg-1234567")
        RewardClient(server.url).score("evaluator:a b", "q", "a")
        assert [seen[2].get("Authorization") for seen in server.seen] == [
            None,
            "Bearer rmg-1234567",
        ]
        assert server.seen[0][0] == "/v1/evaluations/a%20b/outcome"
        server.shutdown()


@pytest.mark.parametrize(("status", "reply", "reason"), [
    (401, {"error": {"code": "no_token", "message": "A token is missing."}}, "fatal"),
    (422, {"error": {"code": "invalid_request", "message": "x"}}, "invalid_item"),
    (504, OK[1], "deadline"),
    (200, b"not json", "transient"),
    (200, [], "fatal"),
    (200, {"score": None, "status": "scored", "reason": "", "message": "", "components": {}}, "fatal"),
    (200, {"score": "1", "status": "scored", "reason": "", "message": "", "components": {}}, "fatal"),
    (200, b'{"score": NaN, "status": "scored", "reason": "", "message": "", "components": {}}', "fatal"),
    (200, {"score": 1.0, "status": "fine", "reason": "", "message": "", "components": {}}, "fatal"),
])  # fmt: skip
def test_a_broken_reply_is_no_score(status: int, reply: Any, reason: str) -> None:
    with _Scripted((status, reply, {})) as server:
        attempts = 1 if reason == "transient" else 3
        found = RewardClient(server.url, max_attempts=attempts).evaluate("r", "q", "a")
        assert (found.value, found.status, found.code, len(server.seen)) == (
            None,
            "failed",
            reason,
            1,
        )
        server.shutdown()


def test_a_batch_that_is_too_large_is_halved() -> None:
    refused: Reply = (413, {"error": {"code": "too_large", "message": "too large"}}, {})
    two: Reply = (200, {"results": [OK[1], OK[1]]}, {})
    with _Scripted(refused, two, two) as server:
        assert RewardClient(server.url).score_batch("r", items(4)) == [0.5] * 4
        assert [len(seen[1]["items"]) for seen in server.seen] == [4, 2, 2]
        server.shutdown()


def test_completions_of_one_prompt_are_not_parted() -> None:
    with _Scripted(
        (
            200,
            lambda body: {"results": [OK[1]] * len(body["items"])} if "items" in body else OK[1],
            {},
        )
    ) as server:
        for prompts, sizes in (("aabbbcd", [2, 5]), ("abcdefg", [1, 3, 3]), ("aaaaaaa", [7])):
            server.seen.clear()
            asked = [{"prompt": prompt, "completion": str(n)} for n, prompt in enumerate(prompts)]
            assert RewardClient(server.url, batch=3).score_batch("r", asked) == [0.5] * 7
            assert sorted(len(seen[1].get("items", "1")) for seen in server.seen) == sizes
        server.seen.clear()
        turns = [
            {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": "x"}]}
            for q in "aab"
        ]
        assert RewardClient(server.url, batch=1).score_batch("r", turns) == [0.5] * 3
        assert sorted(len(seen[1].get("items", "1")) for seen in server.seen) == [1, 2]
        server.shutdown()


# -- as a reward -----------------------------------------------------------------------------------


def sample(text: str, **fields: Any) -> DataSample:
    answer = Step(role="assistant", content=text, label=fields.pop("label", None))
    asked = [ChatMessage(role="system", content="s"), ChatMessage(content="q")]
    return DataSample(
        input=asked, output=[DataOutput(answer=answer, steps=fields.pop("steps", None))], **fields
    )


def test_a_remote_reward_is_a_reward(server: RewardServer) -> None:
    reward = RewardRegistry.create(f"remote:{server.url}/v1/rewards/accuracy")
    here = RewardRegistry.create("accuracy")
    samples = [
        sample("4", label={"reference": "4"}),
        sample("5", metadata={"ground_truth": "4"}),
        sample("4"),
    ]
    found, beside = reward.evaluate_batch(samples), here.evaluate_batch(samples)
    for remote, local in zip(found, beside, strict=True):
        a, b = remote.output[0].answer.reward, local.output[0].answer.reward
        assert (a.score, [(i.status, i.reason) for i in a.issues]) == (
            b.score,
            [(i.status, i.reason) for i in b.issues],
        )
    many = DataSample(
        input=samples[0].input,
        output=[samples[0].output[0], *sample("5", label={"reference": "4"}).output],
    )
    assert [output.answer.reward.score for output in reward.evaluate(many).output] == [1.0, 0.0]


def test_steps_turns_and_columns_arrive_and_preferences_do_not(server: RewardServer) -> None:
    steps = [
        Step(role="assistant", content="thinking"),
        Step(role="tool", content="ok", tool_call_id="1"),
    ]
    given = sample(
        "done",
        steps=steps,
        metadata={"k": 7},
        label={"preference": "chosen", "tests": ["t"]},
        unique_id="x",
    )
    item = item_of(given)
    assert [turn["role"] for turn in item["completion"]] == ["assistant", "tool", "assistant"]
    assert (item["row"], item["id"]) == ({"k": 7, "tests": ["t"]}, "x")
    reward = RewardRegistry.create(f"remote:{server.url}/v1/rewards/picky")
    found = RowScorer(reward).score(
        "q", [{"role": "assistant", "content": text} for text in "ab"], {"k": 7}
    )
    assert found.components == {"turns": 1.1, "k": 7.0}
    assert "counted" in found.reason


@pytest.mark.parametrize(("endpoint", "score"), [("vllm/classify", 2.0), ("vllm/score", 1.0)])
def test_a_reward_is_a_reward_model_behind_a_server(
    server: RewardServer, endpoint: str, score: float
) -> None:
    reward = RewardRegistry.create(f"served:{server.url}", endpoint=endpoint, model="turns")
    # /classify takes the conversation, /score one text before the answer
    assert reward.evaluate(sample("done")).output[0].answer.reward.score == score


def test_a_trainer_gets_none_from_a_server_that_is_gone() -> None:
    with RewardServer({"accuracy": RewardRegistry.create("accuracy")}) as server:
        remote = RewardRegistry.create(
            f"remote:{server.url}/v1/rewards/accuracy", max_outage=0.0, max_attempts=2
        )
        reward = trl_reward(remote, reference="solution", worst=0.0)
        call = {"prompts": ["q"] * 3, "completions": ["4", "5", "4"], "solution": ["4", "4", "4"]}
        assert reward(**call) == [1.0, 0.0, 1.0]
    assert reward(**call) == [None, None, None]


def test_a_server_that_comes_back_is_waited_for() -> None:
    accuracy = RewardRegistry.create("accuracy")
    with RewardServer({"accuracy": accuracy}) as server:
        client = RewardClient(server.url)
        assert client.score("accuracy", "q", "4", reference="4") == 1.0
        port = server.port
    again: list[RewardServer] = []
    timer = threading.Timer(
        1.0, lambda: again.append(RewardServer({"accuracy": accuracy}, port=port))
    )
    timer.start()
    try:
        assert client.score_batch("accuracy", items(8)) == client.score_batch("accuracy", items(8))
        assert None not in client.score_batch("accuracy", items(8))
    finally:
        timer.join()
        again[0].close()


@pytest.mark.parametrize(
    "told", [{"score": 10**400}, {"components": {"a": 10**400}}, {"components": {"a": "nan"}}]
)
def test_a_server_whose_numbers_are_none_is_no_answer(told: dict[str, Any]) -> None:
    answer = {
        "score": 1.0,
        "status": "scored",
        "reason": "",
        "message": "",
        "components": {},
        **told,
    }
    server = Endpoint(model="reward:x", base_url="http://127.0.0.1:9")
    with pytest.raises(ProviderError, match="layout"):
        server.read({"results": [answer]}, {"items": [{}]})
