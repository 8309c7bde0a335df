"""`nemo-gym:URL` and `ors:URL`: the score of the reward behind the server to the digit, and a cause
for every score that is missing.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from openai.types.responses import Response

from rm_gallery import BaseReward, ConfigError, DataSample, RewardRegistry, Score, reward_function
from rm_gallery.core.data.conversation import sample_of_messages
from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.data.load.rollouts import RolloutConverter
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.reward.outputs import said_of
from rm_gallery.serve.ors import read_tasks
from rm_gallery.serve.tokens import TokenFile, create_token
from rm_gallery.study.canaries import check_canaries
from rm_gallery.study.rejudge import rejudge
from tests.serve.test_nemo_gym import rollout
from tests.support.command import command
from tests.support.reward_server import RewardServer

ASKED = {"role": "user", "content": "6 * 7?"}


@reward_function(score_range=(0, 1))
def odd(messages: Any, ground_truth: Any = None, **row: Any) -> float:
    """A number with all its digits, of everything the rollout holds."""
    if messages[-1].text == "raise":
        raise ValueError("broken")
    calls = sum(len(turn.tool_calls or ()) for turn in messages)
    text = "".join(turn.text for turn in messages)
    known = 0.1 * (ground_truth == "42") + 0.01 * (row.get("level") == 3)
    return float(1 / (3 + len(text)) + calls / 7 + known)


TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "6 * 7?"}]},
    {"role": "assistant", "content": None, "reasoning_content": "I multiply.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "mul", "arguments": '{"a":6}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "42"},
    {"role": "assistant", "content": "It is  42.\n"},
]  # fmt: skip
TOOL = {"type": "function", "function": {"name": "mul", "parameters": {"type": "object"}}}


def samples(*texts: str, **row: Any) -> list[DataSample]:
    said = [[ASKED, {"role": "assistant", "content": text}] for text in texts]
    return [sample_of_messages(talk, ground_truth="42", row=row) for talk in said]


def outcomes(reward: BaseReward, given: list[DataSample], **options: Any) -> list[Score[float]]:
    done = reward.evaluate_batch(given, **options)
    return [said_of(reward, sample.output[0]) for sample in done]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    rows = [{"id": "a", "prompt": "6 * 7?", "answer": "42", "level": 3}, {"prompt": "No truth?"}]
    rows.append({"prompt": "6 * 7?", "answer": "42", "split": "test", "id": "b"})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rewards = {"odd": odd.reward(), "exact": RewardRegistry.create("accuracy")}
    with RewardServer(rewards, tasks=read_tasks(file)) as server:
        yield server.url


class Environment:
    """A server that answers each path as it is told, and remembers what it was asked."""

    def __init__(self, answer: Callable[[str, Any], Any]) -> None:
        self.answer, self.asked, self.bodies = answer, list[str](), list[Any]()
        self._loop, self._ready = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answered)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read() or b"null")
        self.asked.append(request.path)
        self.bodies.append(body)
        found = self.answer(request.path, body)
        found = await found if asyncio.iscoroutine(found) else found
        if found is None and request.transport is not None:
            request.transport.abort()  # it dies
        if isinstance(found, web.Response):
            return found
        text = found if isinstance(found, str) else json.dumps(found)
        return web.Response(text=text, content_type="application/json")

    def __enter__(self) -> Environment:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


class TestNemoGym:
    """`nemo-gym:URL`."""

    def test_the_score_is_that_of_the_reward_behind_it(self, url: str) -> None:
        given = [
            sample_of_messages(TALK, ground_truth="42", row={"level": 3}, tools=[TOOL]),
            *samples("42", "", "我不知道 <think>x</think> 41", "  spaces\t\n", level=3),
        ]
        one = RewardRegistry.create(f"nemo-gym:{url}/v1/rewards/odd")
        assert outcomes(one, given) == outcomes(odd.reward(), given)
        assert None not in [each.value for each in outcomes(one, given)]

    def test_it_is_sent_what_nemo_gyms_client_sends(self) -> None:
        with Environment(lambda path, body: {**(body or {}), "reward": 0.25}) as there:
            reward = RewardRegistry.create(f"nemo-gym:{there.url}")
            recorded = {"recorded": {"reward": 1.0}, "mask_sample": True, "level": 3}
            [sample] = [sample_of_messages(TALK, ground_truth="42", row=recorded, tools=[TOOL])]
            assert [each.value for each in outcomes(reward, [sample])] == [0.25]
            assert there.asked == ["/reverify_mode", "/verify"]
            body = there.bodies[-1]
        assert set(body) == {"responses_create_params", "response", "level", "expected_answer"}
        assert [item["type"] for item in body["response"]["output"]] == [
            "reasoning", "function_call", "function_call_output", "message"
        ]  # fmt: skip
        final = {**body["response"], "output": [body["response"]["output"][-1]]}
        assert Response.model_validate(final).output_text == "It is  42.\n"
        assert body["responses_create_params"]["tools"][0]["name"] == "mul"
        again = RolloutConverter().convert(body, RowRef("file", 1))
        assert [turn.text for turn in again.input] == ["Be brief.", "6 * 7?"]
        assert again.output[0].answer.text == "It is  42.\n" and again.reference() == "42"

    @pytest.mark.parametrize("verdict, cause, code", [
        ({"reward": 0.0, "mask_sample": True, "failure_kind": "data"}, "data", "masked"),
        ({"reward": 0.0, "mask_sample": True, "failure_kind": "sandbox"}, "rule", "masked"),
        ({"reward": 0.0, "_ng_failure_class": "judge_failed"}, "judge", "masked"),
        ({"reward": float("nan")}, "judge", "invalid_score"),
        ({"reward": None}, "endpoint", "fatal"),
        ({"reward": "1.0"}, "endpoint", "fatal"),
        ([1.0], "endpoint", "fatal"),
        ("<html>no</html>", "endpoint", "transient"),
        (web.Response(status=422, text="no expected_answer"), "data", "invalid_request"),
        (web.Response(status=500, text="Traceback"), "endpoint", "transient"),
        (None, "endpoint", "transient"),
    ], ids=str)  # fmt: skip
    def test_what_is_no_reward_is_no_zero(self, verdict: Any, cause: str, code: str) -> None:
        def answer(path: str, body: Any) -> Any:
            return "unknown" if path == "/reverify_mode" else verdict

        with Environment(answer) as there:
            reward = RewardRegistry.create(f"nemo-gym:{there.url}", max_attempts=1)
            [found] = outcomes(reward, samples("42"), blame="off")
        assert (found.value, found.cause, found.code) == (None, cause, code)
        assert len(found.reason) < 800

    def test_components_are_metrics(self) -> None:
        parts = {"format": 1.0, "right": 0, "broken": None, "odd": float("inf")}
        with Environment(lambda *_: {"reward": 1, "reward_components": parts}) as there:
            reward = RewardRegistry.create(f"nemo-gym:{there.url}/verify")
            [sample] = reward.evaluate_batch(samples("42"))
        kept = sample.output[0].answer.reward.extra_data[reward.name]
        assert kept["metrics"] == {"format": 1.0, "right": 0.0}

    def test_a_server_that_needs_its_own_session_is_refused_and_one_that_is_down_asked_again(
        self,
    ) -> None:
        said = iter([web.Response(status=503), '"unsupported"'])
        with Environment(lambda path, body: next(said)) as there:
            reward = RewardRegistry.create(f"nemo-gym:{there.url}", max_attempts=2)
            with pytest.raises(ConfigError, match="reverify_mode"):
                reward.evaluate(samples("42")[0])
            assert there.asked == ["/reverify_mode"] * 2

    def test_a_slow_one_costs_its_own_time(self) -> None:
        async def slow() -> dict[str, Any]:
            await asyncio.sleep(5)
            return {"reward": 1.0}

        with Environment(lambda path, body: "unknown" if "mode" in path else slow()) as there:
            reward = RewardRegistry.create(f"nemo-gym:{there.url}", timeout=0.2, max_attempts=2)
            [found] = outcomes(reward, samples("42"), blame="off")
            assert (found.cause, found.code) == ("endpoint", "transient")
            assert there.asked.count("/verify") == 2
            late = RewardRegistry.create(f"nemo-gym:{there.url}")
            [found] = outcomes(late, samples("42"), deadline=0.3, blame="off")
            assert found.value is None and found.code == "deadline"


class TestOrs:
    """`ors:URL`."""

    def test_the_score_is_that_of_the_reward_behind_it(self, url: str) -> None:
        reward = RewardRegistry.create(f"ors:{url}/odd")
        texts = ("42", "41", "", "我不知道\u2028 " + "x" * 9_000)
        given = samples(*texts, split="train", index=0, level=3)
        assert outcomes(reward, given) == outcomes(odd.reward(), given)

    @pytest.mark.parametrize("row, value, cause, code", [
        ({"split": "test", "index": 0}, 1.0, None, ""),
        ({"split": "test", "index": 0.0}, 1.0, None, ""),
        ({"task_spec": {"split": "train", "index": 0}}, 1.0, None, ""),
        ({"id": "b"}, 1.0, None, ""),
        ({"split": "train", "index": 1}, None, "data", "no_reward"),
        ({"id": "z"}, None, "data", "no_task"),
        ({}, None, "data", "no_task"),
        ({"split": "train", "index": 7}, None, "data", "invalid_request"),
        ({"split": "dev", "index": 0}, None, "data", "invalid_request"),
    ], ids=str)  # fmt: skip
    def test_the_metadata_name_the_task(
        self, url: str, row: dict[str, Any], value: float | None, cause: str | None, code: str
    ) -> None:
        reward = RewardRegistry.create(f"ors:{url}/exact", max_attempts=1)
        [found] = outcomes(reward, samples("42", **row), blame="off")
        assert (found.value, found.cause, found.code) == (value, cause, code)

    def test_each_answer_has_a_session_that_is_closed(self) -> None:
        with Environment(ors_answer("end", {"ok": True, "output": {"reward": 0.5}})) as there:
            reward = RewardRegistry.create(f"ors:{there.url}", split="train")
            assert [s.value for s in outcomes(reward, samples("a", "b", index=3))] == [0.5, 0.5]
            assert there.asked.count("/delete") == there.asked.count("/create") == 2
            assert there.asked.count("/list_environments") == there.asked.count("/math/tools") == 1
            bodies = dict(zip(there.asked, there.bodies, strict=True))
        assert bodies["/create"] == {"env_name": "math", "split": "train", "index": 3}
        assert bodies["/math/call"]["name"] == "submit"
        assert set(bodies["/math/call"]["input"]) == {"answer"}

    @pytest.mark.parametrize("kind, output, cause, code", [
        ("error", "ValueError: broken", "rule", "error"),
        ("end", {"ok": False, "reason": "input_validation", "error": "no int"}, "rule", "refused"),
        ("end", {"ok": True, "output": {"reward": None}}, "rule", "no_reward"),
        ("end", {"ok": True, "output": {"reward": True}}, "endpoint", "fatal"),
        ("end", {"ok": True, "output": {"reward": float("nan")}}, "judge", "invalid_score"),
        ("end", {"ok": True}, "endpoint", "fatal"),
        ("end", "<html>", "endpoint", "transient"),
        ("chunk", {"ok": True, "output": {"reward": 1.0}}, "endpoint", "transient"),
        ("dies", None, "endpoint", "transient"),
    ], ids=str)  # fmt: skip
    def test_what_is_no_reward_is_no_zero(
        self, kind: str, output: Any, cause: str, code: str
    ) -> None:
        with Environment(ors_answer(kind, output)) as there:
            reward = RewardRegistry.create(f"ors:{there.url}/math", max_attempts=1)
            [found] = outcomes(reward, samples("42", split="s", index=0), blame="off")
            assert (found.value, found.cause, found.code) == (None, cause, code)
            assert there.asked[-2:] == ["/delete", "/delete_session"]

    def test_an_answer_too_long_for_one_event_is_put_together(self) -> None:
        whole = json.dumps({"ok": True, "output": {"blocks": " x " * 99, "reward": 0.1 + 0.2}})
        parts = [whole[at : at + 7] for at in range(0, len(whole), 7)]
        said = "".join(f"event: chunk\ndata: {part}\n\n" for part in parts[:-1])
        stream = f": beat\n\n{said}event: end\ndata: {parts[-1]}\n\n"
        with Environment(ors_answer("raw", stream)) as there:
            reward = RewardRegistry.create(f"ors:{there.url}/math")
            assert outcomes(reward, samples("4", split="s", index=0))[0].value == 0.1 + 0.2

    @pytest.mark.parametrize("settings, told", [
        ({}, "say with tool="), ({"tool": "sumbit"}, "submit"), ({"tool": "two"}, "argument=")
    ])  # fmt: skip
    def test_which_tool_takes_the_answer_is_never_guessed(
        self, settings: dict[str, Any], told: str
    ) -> None:
        one: dict[str, Any] = {"properties": {"a": {}}}
        two: dict[str, Any] = {"properties": {"a": {}, "b": {}}}
        tools = [{"name": "submit", "input_schema": one}, {"name": "two", "input_schema": two}]
        with Environment(lambda path, body: {"tools": tools}) as there:
            reward = RewardRegistry.create(f"ors:{there.url}/math", **settings)
            with pytest.raises(ConfigError, match=told):
                reward.evaluate(samples("42", split="s", index=0)[0])
            assert "/create" not in there.asked

    def test_the_key_goes_to_the_server_and_nowhere_else(self, tmp_path: Path) -> None:
        token = create_token(tmp_path / "tokens.json", "auditor", ["evaluate"])
        file = tmp_path / "tasks.jsonl"
        file.write_text(json.dumps({"prompt": "6 * 7?", "answer": "42"}))
        rewards = {"exact": RewardRegistry.create("accuracy")}
        tokens = TokenFile(tmp_path / "tokens.json")
        with RewardServer(rewards, tasks=read_tasks(file), tokens=tokens) as server:
            given = samples("42", index=0)
            reward = RewardRegistry.create(f"ors:{server.url}", api_key=token)
            assert outcomes(reward, given)[0].value == 1.0
            [found] = outcomes(RewardRegistry.create(f"ors:{server.url}/exact"), given, blame="off")
            assert (found.cause, found.code) == ("endpoint", "fatal")
        assert token not in json.dumps(reward.describe()) + repr(reward)


def ors_answer(kind: str, output: Any) -> Callable[[str, Any], Any]:
    """An ORS server whose one tool answers so."""
    schema = {"properties": {"answer": {"type": "string"}}}
    data = output if isinstance(output, str) else json.dumps(output)
    stream = (
        data if kind == "raw" else f"event: task_id\ndata: 1\n\nevent: {kind}\ndata: {data}\n\n"
    )
    known: dict[str, Any] = {
        "/list_environments": ["math"],
        "/math/tools": {"tools": [{"name": "submit", "input_schema": schema}]},
        "/create_session": "event: task_id\r\ndata: s-1\r\n\r\nevent: end\r\ndata: \r\n\r\n",
        "/math/call": None if kind == "dies" else stream,
    }
    return lambda path, body: known.get(path, {"sid": "s-1"})


@pytest.mark.parametrize("scheme", ["nemo-gym:", "ors:"])
def test_a_server_that_is_not_there_is_the_endpoints_fault(scheme: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        there = f"http://127.0.0.1:{held.getsockname()[1]}"
    reward = RewardRegistry.create(f"{scheme}{there}/math", max_attempts=1, max_outage=0)
    [found] = outcomes(reward, samples("42", split="s", index=0), blame="off")
    assert (found.value, found.cause, found.code) == (None, "endpoint", "unreachable")


@pytest.mark.parametrize("name, told", [
    ("nemo-gym:", "prefix|URL"), ("ors:", "prefix|URL"), ("nemo-gym:h:1", "http"),
    ("ors:http://u:p@h:1/math", "user name or password"),
])  # fmt: skip
def test_a_url_that_is_none_is_refused_at_once(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        RewardRegistry.create(name)


def test_every_door_takes_it(url: str, tmp_path: Path) -> None:
    names = {
        f"nemo-gym:{url}/v1/rewards/exact": {},
        f"ors:{url}/exact": {"split": "test", "index": 0},
    }
    for name, row in names.items():
        rows = [
            {"messages": [ASKED, {"role": "assistant", "content": text}], "canary": mark, **row}
            | {"reference": "42"}
            for text, mark in (("42", "gold"), ("41", "floor"), ("41 or 42", "hacked"))
        ]
        assert check_canaries(name, rows).of_level("fault") == []
        log = tmp_path / f"{name[:3]}.jsonl"
        log.write_text("".join(json.dumps({**each, "reward": 0.5}) + "\n" for each in rows))
        report = rejudge(name, log)
        assert [one.new for one in report.rollouts] == [1.0, 0.0, 0.0]
        group = samples("41", **row)[0]
        both = group.model_copy(update={"output": [*group.output, *samples("42")[0].output]})
        chosen = RewardRegistry.create(name).best_of_n(both)
        assert [each.answer.text for each in chosen.output] == ["42"]
        env = tmp_path / "canaries.jsonl"
        env.write_text("".join(json.dumps(each) + "\n" for each in rows))
        done = command("check-reward", name, "--env", str(env), "--json")
        assert done.code == 0, done.err


def test_calls_count_towards_the_budget(url: str) -> None:
    control = RunControl()
    reward = RewardRegistry.create(f"nemo-gym:{url}/v1/rewards/exact")
    reward.evaluate_batch(samples("42", "41"), control=control)
    assert control.usage.calls == 2


def test_rollouts_of_nemo_gym_go_back_as_they_came() -> None:
    row = rollout("42", expected_answer="42", _ng_task_index=0, level=3, mask_sample=True)
    sample = RolloutConverter().convert(row, RowRef("file", 1))
    sent = RewardRegistry.create("nemo-gym:http://h:1").item(sample)  # type: ignore[attr-defined]
    assert set(sent) == set(row) - {"mask_sample"}
    kinds = [item["type"] for item in row["response"]["output"]]
    assert [item["type"] for item in sent["response"]["output"]] == kinds
