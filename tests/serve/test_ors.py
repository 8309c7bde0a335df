"""Rewards as environments of the Open Reward Standard: what a client may learn, what an answer gets,
and what becomes of a missing score.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rm_gallery import ConfigError, DataError, RewardRegistry, environment_reward
from rm_gallery.serve import ors
from rm_gallery.serve.app import create_app
from rm_gallery.serve.door import ServeSettings
from rm_gallery.serve.handler import Handler
from rm_gallery.serve.ors import read_tasks
from rm_gallery.serve.tokens import TokenFile, create_token
from tests.serve.asking import Slow, asked, code_of, get
from tests.support.command import command
from tests.support.reward_server import RewardServer

BRIEF = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},
]
ROWS: list[dict[str, Any]] = [
    {"id": "a", "prompt": "6 * 7?", "answer": "42"},
    {"messages": BRIEF, "answer": "4", "split": "test"},
    {"prompt": "No truth?"},
]


class Shortest:
    """Gives the shortest completion of a group 1; one that fails takes the group with it."""

    def compute_group_reward(self, rollout_ids: Any, messages_list: Any, tasks: Any) -> Any:
        lengths = [len(messages[-1]["content"]) for messages in messages_list]
        if not all(lengths):
            raise ValueError("an empty one")
        return [{"shortest": float(n == min(lengths))} for n in lengths]


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tasks = read_tasks(written(tmp_path_factory.mktemp("tasks"), ROWS))
    rewards = {"exact": RewardRegistry.create("accuracy"), "short": environment_reward(Shortest())}
    with RewardServer(rewards, tasks=tasks, max_body=10_000) as server:
        yield server.url


class Client:
    """A session of one environment, as the SDK asks."""

    def __init__(self, url: str, env: str = "exact", **headers: str) -> None:
        self.url, self.env, self.headers = url, env, headers

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        given = {**self.headers, **headers}
        return httpx.request(
            method, f"{self.url}{path}", json=body, headers=given, trust_env=False, timeout=60
        )

    def begin(self, **task: Any) -> Client:
        sid = events(self.ask("POST", "/create_session", {}))[0][1]
        self.headers["X-Session-ID"] = sid
        assert self.ask("POST", "/create", {"env_name": self.env, **task}).json() == {"sid": sid}
        return self

    def call(self, answer: Any, name: str = "submit", **more: Any) -> list[tuple[str, str]]:
        body = {"name": name, "input": {"answer": answer}, **more}
        return events(self.ask("POST", f"/{self.env}/call", body))

    def output(self, answer: Any, **more: Any) -> dict[str, Any]:
        kind, data = self.call(answer, **more)[-1]
        assert kind == "end"
        return dict(json.loads(data))


def events(reply: httpx.Response) -> list[tuple[str, str]]:
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "text/event-stream"
    found = []
    for block in reply.text.split("\r\n\r\n"):
        lines = dict(
            line.split(": ", 1) for line in block.splitlines() if line[:1] not in ("", ":")
        )
        if lines:
            found.append((lines["event"], lines["data"]))
    return found


@pytest.mark.long("a server process")
def test_what_is_listed_finds_a_task_and_never_holds_its_reference(url: str) -> None:
    client = Client(url)
    listed = [
        client.ask("GET", "/list_environments"),
        client.ask("GET", "/exact/splits"),
        client.ask("POST", "/exact/tasks", {"split": "train"}),
        client.ask("POST", "/exact/num_tasks", {"split": "test"}),
        client.ask("POST", "/EXACT/task", {"split": "train", "index": 1}),
        client.ask("POST", "/exact/task_range", {"split": "train", "start": -1}),
        client.ask("GET", "/exact/tools"),
    ]
    names, splits, tasks, number, task, part, tools = [reply.json() for reply in listed]
    assert names == ["exact", "short"]
    assert splits == [{"name": name, "type": name} for name in ("train", "test")]
    specs = [{"split": "train", "index": 0, "id": "a"}, {"split": "train", "index": 1}]
    assert tasks == {"tasks": specs, "env_name": "exact"} and number == {"num_tasks": 1}
    assert task == {"task": specs[1], "env_name": "exact"} and part["tasks"] == specs[1:]
    assert [tool["name"] for tool in tools["tools"]] == ["submit"]
    assert tools["supports_score_group"] is False
    session = client.begin(task_spec={**specs[0], "answer": "made up"})
    shown = [session.ask("GET", path) for path in ("/exact/prompt", "/exact/messages")]
    assert shown[0].json() == [{"text": "6 * 7?", "detail": None, "type": "text"}]
    assert not any("42" in reply.text for reply in (*listed, *shown))
    assert session.output("made up")["output"]["reward"] == 0.0
    turns = Client(url).begin(split="test", index=0).ask("GET", "/exact/messages").json()
    assert [turn["role"] for turn in turns] == ["system", "user"]


@pytest.mark.parametrize("split, index, answer, reward", [
    ("train", 0, "42", 1.0), ("train", 0, "", 0.0), ("train", 1, "42", None), ("test", 0, "4", 1.0)
])  # fmt: skip
def test_an_answer_ends_the_episode_with_its_reward_or_null(
    url: str, split: str, index: int, answer: str, reward: float | None
) -> None:
    client = Client(url).begin(split=split, index=index)
    output = client.output(answer)["output"]
    assert output["reward"] == reward and output["finished"] is True
    assert set(output) == {"blocks", "metadata", "reward", "finished"}
    assert output["metadata"]["score"] == reward
    assert output["metadata"]["status"] == ("unscored" if reward is None else "scored")


def test_an_episode_takes_one_answer_and_gives_it_again(url: str) -> None:
    client = Client(url).begin(split="train", index=0)
    for name, given, reason in (("bash", "42", "not_found"), ("submit", 42, "input_validation")):
        wrong = client.output(given, name=name)
        assert (wrong["ok"], wrong["reason"]) == (False, reason)
    first = client.call("42")
    assert client.call("42") == client.call("42", task_id=first[0][1]) == first
    assert client.output("43")["reason"] == "episode_finished"
    assert client.call("42", task_id="other")[-1] == ("error", "unknown task_id")
    assert Client(url).begin(split="train", index=0).output("42", name="message")["ok"]


@pytest.mark.long("a server process")
def test_a_session_ends_and_what_does_not_fit_is_refused(url: str) -> None:
    client = Client(url).begin(split="train", index=0)
    assert client.ask("POST", "/ping").json() == {"status": "ok"}
    again = client.ask("POST", "/create", {"env_name": "exact", "split": "train", "index": 0})
    assert code_of(again) == (400, "session_exists")
    assert client.ask("POST", "/delete").status_code == 200
    assert client.ask("POST", "/delete_session").status_code == 200
    assert code_of(client.ask("POST", "/ping")) == (404, "unknown_session")
    fresh = {"X-Session-ID": "s1"}
    for body in (
        {}, {"split": "train"}, {"split": "train", "index": 9}, {"split": "train", "index": -1},
        {"split": "none", "index": 0}, {"task_spec": {"id": "a"}}, {"split": 3, "index": 0},
        {"task_spec": {"split": "train", "index": True}}, {"split": "train", "index": 0, "toolset_name": "codex"},
    ):  # fmt: skip
        refused = client.ask("POST", "/create", {"env_name": "exact", **body}, **fresh)
        assert code_of(refused) == (422, "invalid_request"), body
    task = {"split": "train", "index": 0}
    refused = client.ask("POST", "/create", {"env_name": "exakt", **task}, **fresh)
    assert code_of(refused) == (404, "unknown_reward") and "exact" in refused.text
    bare = Client(url)
    assert code_of(bare.ask("POST", "/create", task)) == (400, "invalid_header")
    assert code_of(bare.ask("POST", "/tasks", {"split": "x" * 10_000})) == (413, "too_large")
    assert code_of(bare.ask("GET", "/splits")) == (404, "no_target")
    assert bare.ask("GET", "/splits", **{"X-Deployment": "me/Short"}).status_code == 200


def test_a_group_is_compared_and_one_without_a_score_has_no_zeros(url: str) -> None:
    client = Client(url, "short").begin(split="train", index=0)
    assert client.ask("GET", "/short/task_tools").json()["supports_score_group"] is True
    alone = client.output("42")["output"]
    assert alone["reward"] is None and alone["metadata"]["reason"] == "single_output"

    def compared(*texts: str) -> list[tuple[str, str]]:
        said = [[{"role": "assistant", "blocks": [{"type": "text", "text": t}]}] for t in texts]
        body: dict[str, Any] = {"candidates": [{"messages": turns} for turns in said]}
        return events(client.ask("POST", "/short/score_group", body))

    kind, data = compared("I say 42.", "42")[-1]
    assert kind == "end" and [each["reward"] for each in json.loads(data)["scores"]] == [0.0, 1.0]
    for _ in range(2):
        kind, data = compared("42", "")[-1]
        assert kind == "error" and "1 of 2 candidates have no score" in data
    body: dict[str, Any] = {"candidates": [{"messages": []}]}
    other = Client(url).begin(split="train", index=0)
    assert code_of(other.ask("POST", "/exact/score_group", body)) == (404, "unsupported")
    assert code_of(client.ask("POST", "/short/score_group", body)) == (422, "invalid_request")


def test_a_slow_judge_gives_signs_of_life_and_a_busy_one_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ors, "BEAT_SECONDS", 0.05)
    handler = Handler({"slow": Slow()}, max_waiting=1)
    app = create_app(handler, tasks=read_tasks(written(tmp_path, ROWS)))
    task = json.dumps({"split": "train", "index": 0})
    call = json.dumps({"name": "submit", "input": {"answer": "0.3"}})
    sids = [{"X-Session-ID": str(number)} for number in range(2)]

    async def go() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for sid in sids:
                await client.post("/create", content=task, headers=sid)
            calls = [client.post("/call", content=call, headers=sid) for sid in sids]
            both = await asyncio.gather(*calls)
            return [*both, await client.post("/call", content=call, headers=sids[1])]

    first, busy, second = asyncio.run(go())
    assert code_of(busy) == (429, "busy") and "retry-after" in busy.headers
    for reply in (first, second):
        assert reply.text.count(": judging") >= 2
        assert json.loads(events(reply)[-1][1])["output"]["reward"] == 1.0


@pytest.mark.long("a server process")
def test_sessions_are_bounded_and_idle_ones_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Handler({"exact": RewardRegistry.create("accuracy")})
    settings = ServeSettings(max_sessions=2)
    app = create_app(handler, settings, tasks=read_tasks(written(tmp_path, ROWS)))
    task = json.dumps({"split": "train", "index": 0})

    def create(sid: str) -> httpx.Response:
        return asked(app, {"url": "/create", "content": task, "headers": {"X-Session-ID": sid}})[0]

    assert [create(sid).status_code for sid in "abc"] == [200, 200, 429]
    monkeypatch.setattr(ors, "IDLE_SECONDS", 0.0)
    assert create("c").status_code == 200
    (lost,) = asked(app, get("/prompt", headers={"X-Session-ID": "a"}))
    assert code_of(lost) == (404, "unknown_session")
    described = app.openapi()["paths"]
    assert "post" in described["/{env}/call"] and "post" in described["/call"]


def test_sessions_keep_no_answer_and_hold_their_share_of_the_room_until_they_end(
    tmp_path: Path,
) -> None:
    handler = Handler({"exact": RewardRegistry.create("accuracy")})
    settings = ServeSettings(max_bytes=200_000)
    app = create_app(handler, settings, tasks=read_tasks(written(tmp_path, ROWS)))
    task = json.dumps({"split": "train", "index": 0})
    call = json.dumps({"name": "submit", "input": {"answer": "x" * 90_000}})

    def ask(path: str, sid: str, body: str) -> httpx.Response:
        return asked(app, {"url": path, "content": body, "headers": {"X-Session-ID": sid}})[0]

    def held() -> int:
        return int(app.state.door.metrics.bytes)

    for sid in map(str, range(10)):
        assert ask("/create", sid, task).status_code == 200
        assert json.loads(events(ask("/call", sid, call))[-1][1])["output"]["reward"] == 0.0
    assert 0 < held() < 90_000, "ten answers of 90,000 characters are not kept"
    for sid in map(str, range(10, 100)):
        last = ask("/create", sid, task)
    assert code_of(last) == (429, "busy") and "max_bytes" in last.text and held() <= 200_000
    for sid in map(str, range(100)):
        ask("/delete", sid, "{}")
    assert held() == 0


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    token = create_token(tmp_path / "tokens.json", "t", ["evaluate"])
    handler = Handler({"exact": RewardRegistry.create("accuracy")})
    tasks = read_tasks(written(tmp_path, ROWS))
    app = create_app(handler, tokens=TokenFile(tmp_path / "tokens.json"), tasks=tasks)
    (refused,) = asked(app, get("/splits"))
    (let_in,) = asked(app, get("/splits", headers={"X-API-Key": token}))
    assert code_of(refused)[0] == 401 and let_in.status_code == 200


@pytest.mark.parametrize("row, said", [
    ({"answer": "4"}, "there is no prompt"),
    ({"prompt": 3}, "no text and no list of messages"),
    ({"prompt": [{"role": "tool", "content": "x"}]}, "none of the roles"),
    ({"prompt": [{"role": "user", "content": [{"type": "image_url"}]}]}, "tool calls or images"),
    ({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}, "tool calls"),
])  # fmt: skip
def test_a_row_that_cannot_be_asked_is_named(tmp_path: Path, row: Any, said: str) -> None:
    with pytest.raises(DataError, match=f"tasks.jsonl.*2.*{said}"):
        read_tasks(written(tmp_path, [ROWS[0], row]))


def test_a_server_that_has_nothing_to_offer_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text("[]")
    with pytest.raises(ConfigError, match="no task found"):
        read_tasks(tmp_path / "none.json")
    file = str(written(tmp_path, ROWS))
    with pytest.raises(ConfigError, match="need a reward"):
        create_app(Handler({}), tasks=read_tasks(file))
    done = command(
        "serve", "-r", "accuracy", "--tasks", file, "--processes", "2", "--no-evaluators"
    )
    assert done.code == 2 and "leave out --processes" in done.err
