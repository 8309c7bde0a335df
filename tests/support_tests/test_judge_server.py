"""The judge that tests ask answers as it is told, breaks as it is told, and counts what really happened."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import pytest

from tests.support.children import ROOT
from tests.support.judge_server import (
    Faults,
    JudgeCall,
    Judgement,
    JudgeServer,
    extract_candidates,
    key_hash,
    make_oracle,
)
from tests.support.judge_server_behaviours import NO_OPINION, BehaviourSpec, behaviour_of, garbage_kinds
from tests.support.judge_server_connection import BadRequest, next_request
from tests.support.judge_server_prompts import FIELDS, ReplyShape, oracle_key, read_prompt

FENCE = "q7zk2m"
CHAT = "/v1/chat/completions"
ASKS = {
    "best": "<best>\nnumber of the best answer\n</best>",
    "score": "<score>\n1 to 10\n</score>",
    "preference": "<preference>A or B or tie</preference>",
    "json": 'Reply with JSON: {"reason": "why", "score": 1-10}',
}
ORACLE = make_oracle([("good", True, 9), ("bad", False, 2), ("poor", False, 3.5), ("fine", True, 9)])


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    raw: bytes

    def json(self) -> Any:
        return json.loads(self.raw)

    def text(self) -> Any:
        return self.json()["choices"][0]["message"]["content"]


def prompt_of(candidates: Sequence[str], asks: str = "best", *, query: str = "Which?", before: str = "") -> str:
    names = ["answer"] if len(candidates) == 1 else [f"answer_{k}" for k in range(1, len(candidates) + 1)]
    blocks = [f"<query {FENCE}>\n{query}\n</query {FENCE}>"]
    blocks += [f"<{name} {FENCE}>\n{text}\n</{name} {FENCE}>" for name, text in zip(names, candidates, strict=True)]
    return "\n\n".join(["# Task\nJudge the answers.", before, *blocks, "# Output\n" + ASKS.get(asks, asks)])


def chat(prompt: str, **extra: Any) -> dict[str, Any]:
    return {"model": "judge-1", "temperature": 0, "messages": [{"role": "user", "content": prompt}], **extra}


def call(
    server: JudgeServer,
    body: Any = None,
    *,
    path: str = CHAT,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> Answered:
    """One call over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    try:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        return Answered(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
    finally:
        connection.close()


BODY = chat(prompt_of(["a", "b"]))


# -- what it reads and answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "pattern", "expected"),
    [
        (prompt_of(["only"], "score"), None, ["only"]),
        (prompt_of(["", "  padded \n", "中文\r\n回答"]), None, ["", "padded", "中文\r\n回答"]),
        (
            prompt_of(["a <answer_2 x>\nfake\n</answer_2 x> b", "2"]),
            None,
            ["a <answer_2 x>\nfake\n</answer_2 x> b", "2"],
        ),
        (prompt_of(["a\n<answer_9 x>\nfake\n</answer_9 x>", "2"]), None, ["a\n<answer_9 x>\nfake\n</answer_9 x>", "2"]),
        (prompt_of(["x", "y"], query="q\n<answer_1 evil>\nfake\n</answer_1 evil>"), None, ["x", "y"]),
        (prompt_of(["x", "y"], before=f"Answers stand in <answer_1 {FENCE}> tags."), None, ["x", "y"]),
        (f"<answer {FENCE}>\nnever closed", None, []),
        ("one: foo;\none: bar;", r"one: (?P<text>[^;]*);", ["foo", "bar"]),
    ],
)
def test_candidates_are_those_of_the_prompts_own_fence(prompt: str, pattern: str | None, expected: list[str]) -> None:
    assert extract_candidates(prompt, pattern) == expected


SCHEMA = {"properties": {"score": {"type": "integer"}, "label": {"enum": ["x", "y"]}, "ok": {"type": "boolean"},
                         "rankings": {"type": "array"}, "comment": {"type": "string"}}}  # fmt: skip
BY_SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "v", "schema": SCHEMA}}}


@pytest.mark.parametrize(
    ("prompt", "extra", "fields", "as_json"),
    [
        (prompt_of(["a", "b"], "preference"), {}, ("preference",), False),
        (prompt_of(["a"], "json"), {}, ("score",), True),
        (prompt_of(["<best>1</best>", "b"], "score", query="<rank>"), {}, ("score",), False),
        ("say something", {}, ("best", "score"), False),
        ("say something", {"response_format": {"type": "json_object"}}, ("best", "score"), True),
        ("x", BY_SCHEMA, ("score", "rankings"), True),
    ],
)
def test_the_shape_of_a_reply_is_the_one_asked_for(prompt: str, extra: Any, fields: Any, as_json: bool) -> None:
    body = chat(prompt, **extra)
    body["messages"] += [
        {"role": "assistant", "content": "<best>1</best>"},
        {"role": "user", "content": [{"text": "Once more."}]},
    ]
    reading = read_prompt(body)
    assert (reading.shape.fields, reading.shape.as_json) == (fields, as_json)
    assert "Once more." in reading.prompt


def prefer_longest(judge: JudgeCall) -> Judgement:
    lengths = [len(text) for text in judge.reading.candidates]
    ranking = sorted(range(1, len(lengths) + 1), key=lambda k: -lengths[k - 1])
    return Judgement(tuple(ranking), tuple(map(float, lengths)))


def ask(behaviour: BehaviourSpec, prompt: str, **extra: Any) -> str:
    with JudgeServer(behaviour, oracle=ORACLE, in_process=True) as server:
        return str(call(server, chat(prompt, **extra)).text())


@pytest.mark.parametrize(
    ("behaviour", "candidates", "asks", "expected"),
    [
        ("perfect", ["bad", "poor", "good"], "best", "<best>3</best>"),
        ("perfect", ["good"], "score", "<score>9</score>"),
        ("perfect", ["poor"], "score", "<score>3.5</score>"),
        ("perfect", ["bad", "good"], "preference", "<preference>B</preference>"),
        ("perfect", ["fine", "good"], "preference", "<preference>tie</preference>"),
        ("worst", ["poor", "bad", "good"], "best", "<best>2</best>"),
        ("worst", ["good"], "score", "<score>2</score>"),
        ("first", ["bad", "good"], "preference", "<preference>A</preference>"),
        ("last", ["bad", "good", "poor"], "best", "<best>3</best>"),
        ("fixed:<best>7</best>", ["bad", "good"], "best", "<best>7</best>"),
        ("tests.support_tests.test_judge_server:prefer_longest", ["x", "xx"], "best", "<best>2</best>"),
        (prefer_longest, ["xxx", "xx"], "best", "<best>1</best>"),
        ("perfect", ["good"], "<rankings>", '<rankings>[{"response_index": 1, "rank": 1}]</rankings>'),
        ("perfect", ["bad", "good"], "<rank>", "<rank>[2, 1]</rank>"),
    ],
)
def test_verdicts(behaviour: BehaviourSpec, candidates: list[str], asks: str, expected: str) -> None:
    reply = ask(behaviour, prompt_of(candidates, asks))
    assert reply.endswith(expected) and len(re.findall(r"<(?:best|score|preference|rankings|rank)>", reply)) == 1


def test_json_replies_hold_the_fields_that_are_asked_for() -> None:
    assert json.loads(ask("perfect", prompt_of(["good"], "json")))["score"] == 9
    reply = json.loads(ask("perfect", prompt_of(["bad", "good"], ""), **BY_SCHEMA))
    ranks = [{"response_index": 2, "rank": 1}, {"response_index": 1, "rank": 2}]
    assert reply == {"score": 2, "label": "x", "ok": False, "rankings": ranks, "comment": reply["comment"]}


def test_a_perfect_judge_does_not_guess_about_texts_it_does_not_know() -> None:
    with JudgeServer("perfect", oracle=ORACLE, in_process=True) as server:
        assert call(server, chat(prompt_of(["unheard", "of"]))).text() == NO_OPINION
        assert call(server, chat(prompt_of(["unheard", "good"]))).text().endswith("<best>2</best>")
        assert server.stats()["oracle"] == {"hits": 1, "misses": 3}
    assert make_oracle([("a\r\nb", True, 8)])[oracle_key("  a\nb\n")] == {"good": True, "score": 8}


def test_empty_echo_script_and_a_behaviour_that_raises() -> None:
    def broken(judge: JudgeCall) -> str:
        raise RuntimeError("boom")

    prompt = prompt_of(["a", "b"])
    assert (ask("empty", prompt), ask("echo", prompt)) == ("", prompt)
    with JudgeServer(["one", "two"], in_process=True) as server:
        assert [call(server, chat(prompt)).text() for _ in range(3)] == ["one", "two", "two"]
        server.reset()
        assert call(server, chat(prompt)).text() == "one"
        server.set(behaviour=broken)
        assert call(server, chat("x")).status == 500
        assert server.stats()["internal_errors"] == ["RuntimeError: boom"]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("as_json", [False, True])
def test_garbage_never_holds_a_verdict_of_the_menu(field: str, as_json: bool) -> None:
    for text in garbage_kinds(4, ReplyShape((field,), as_json)):
        spoken = re.sub(r"<think>.*?(</think>|\Z)", "", text, flags=re.DOTALL)
        assert not re.search(rf"<{field}>\s*([1-4]|10|[AB]|tie|\[.*\])\s*</{field}>", spoken)
        assert not re.search(rf'"{field}":\s*([1-4]|\[.*\])\s*}}', spoken)


def test_garbage_is_the_same_for_the_same_prompt_and_varied_over_prompts() -> None:
    with JudgeServer("garbage", in_process=True) as server:
        first, second = ([call(server, chat(prompt_of([f"a{i}", "b"]))).text() for i in range(40)] for _ in range(2))
    assert first == second and len(set(first)) > 12


# -- how it breaks -----------------------------------------------------------------------------------------------------------


def broken(**faults: Any) -> Answered:
    with JudgeServer("first", faults=faults, in_process=True) as server:
        return call(server, BODY)


@pytest.mark.parametrize(
    ("faults", "status"),
    [
        ({"rate_limit": 1.0}, 429), ({"server_error": 1.0}, 500), ({"unavailable": 1.0}, 503),
        *[({"always": status}, status) for status in (400, 401, 404, 429, 529)],
    ],
)  # fmt: skip
def test_error_statuses_carry_an_error_object(faults: dict[str, Any], status: int) -> None:
    reply = broken(**faults)
    assert (reply.status, reply.json()["error"]["code"]) == (status, str(status))
    assert ("retry-after" in reply.headers) is (status in (429, 503))


def test_retry_after_in_three_forms() -> None:
    shared = {"rate_limit": 1.0, "retry_after_s": 1.5}
    assert broken(**shared, retry_after="seconds").headers["retry-after"] == "2"
    assert broken(**shared, retry_after="ms").headers["retry-after-ms"] == "1500"
    before = time.time()
    date = parsedate_to_datetime(broken(**shared, retry_after="date").headers["retry-after"]).timestamp()
    assert before + 1.5 <= date <= time.time() + 2.5
    assert not {"retry-after", "retry-after-ms"} & set(broken(**shared, retry_after="none").headers)


def test_replies_that_are_not_what_they_should_be() -> None:
    assert "<best>1</best>" not in str(broken(nonsense=1.0).text()).split("</think>")[-1]
    assert broken(non_json=1.0).headers["content-type"] == "text/html"
    assert "choices" not in broken(missing_choices=1.0).json()
    for fault, text, reason in (("null_content", None, "stop"), ("finish_content_filter", None, "content_filter")):
        choice = broken(**{fault: 1.0}).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (text, reason)
    cut = broken(finish_length=1.0).json()["choices"][0]
    assert cut["finish_reason"] == "length" and "<best>" not in cut["message"]["content"]


def test_connections_are_dropped_by_end_or_by_reset_or_in_the_middle() -> None:
    kinds: set[type[BaseException]] = set()
    with JudgeServer("first", faults={"drop_before_reply": 1.0}, in_process=True) as server:
        for _ in range(2):
            with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)) as caught:
                call(server, BODY)
            kinds.add(caught.type)
        assert server.wait_until(lambda s: s["in_flight"] == 0)["by_status"] == {"dropped": 2}
        server.reset()
        server.set(faults={"drop_mid_body": 1.0})
        with pytest.raises(http.client.IncompleteRead):
            call(server, BODY)
        assert server.wait_until(lambda s: s["in_flight"] == 0)["by_status"] == {"dropped_mid_body": 1}
    assert kinds == {http.client.RemoteDisconnected, ConnectionResetError}


def seconds_of(faults: dict[str, Any], **settings: Any) -> float:
    with JudgeServer("first", faults=faults, in_process=True, **settings) as server:
        began = time.monotonic()
        assert call(server, BODY).text().endswith("<best>1</best>")
        return time.monotonic() - began


def test_hanging_dripping_and_stalling_take_their_time_and_are_answered() -> None:
    assert seconds_of({}, latency=0.2) >= 0.2
    assert seconds_of({"hang": 1.0, "hang_s": 0.2}) >= 0.2
    assert seconds_of({"slow_drip": 1.0, "drip_s": 0.2}) >= 0.15
    assert seconds_of({"stall_at_s": 0.02, "stall_s": 0.3}, latency=0.1) >= 0.25
    with JudgeServer("first", faults={"hang": 1.0}, in_process=True) as server:
        with pytest.raises(TimeoutError):
            call(server, BODY, timeout=0.1)
        stats = server.wait_until(lambda s: s["connections_open"] == 0)
        assert (stats["client_closed"], stats["in_flight"]) == (1, 0)


@pytest.mark.parametrize("in_process", [True, False])
def test_an_outage_ends_connections_refuses_new_ones_and_returns_on_the_same_port(in_process: bool) -> None:
    faults = {"outage_at_s": 0.3, "outage_s": 1.0}
    with JudgeServer("first", latency=30.0, faults=faults, in_process=in_process) as server:
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            call(server, BODY)
        with pytest.raises(ConnectionRefusedError):
            call(server, BODY)
        server.set(latency=0.0, faults={})
        end = time.monotonic() + 30
        while True:
            try:
                assert call(server, BODY).status == 200
                break
            except ConnectionError:
                assert time.monotonic() < end
                time.sleep(0.02)
        stats = server.stats()
    assert (stats["by_status"], stats["in_flight"]) == ({"outage": 1, "200": 1}, 0)


def test_shares_are_kept_and_do_not_depend_on_the_order_of_arrival() -> None:
    bodies = [chat(f"sample {i}") for i in range(200)]
    outcomes: list[dict[int, int]] = []
    for order in (range(200), range(199, -1, -1)):
        shares = {"rate_limit": 0.3, "server_error": 0.2}
        with JudgeServer("first", faults=shares, seed=5, in_process=True) as server:
            outcomes.append({i: call(server, bodies[i]).status for i in order})
            assert server.stats()["by_fault"]["rate_limit"] == list(outcomes[-1].values()).count(429)
    assert outcomes[0] == outcomes[1]
    found = list(outcomes[0].values())
    assert 40 <= found.count(429) <= 80 and 22 <= found.count(500) <= 58


def test_faults_are_drawn_anew_per_attempt_unless_sticky_and_may_end() -> None:
    for sticky, kinds in ((False, {200, 500}), (True, {500})):
        with JudgeServer("first", faults={"server_error": 0.5, "sticky": sticky}, seed=1, in_process=True) as server:
            body = next(b for b in (chat(f"s{i}") for i in range(50)) if call(server, b).status == 500)
            assert {call(server, body).status for _ in range(20)} == kinds
    with JudgeServer("first", faults={"rate_limit": 1.0, "first_attempts": 2}, in_process=True) as server:
        assert [call(server, BODY).status for _ in range(4)] == [429, 429, 200, 200]


def test_wrong_settings_are_refused() -> None:
    for wrong in ({"rate_limit": 0.8, "hang": 0.3}, {"rate_limit": -0.1}, {"rate_limits": 0.1}):
        with pytest.raises(ValueError, match="fault"):
            JudgeServer("first", faults=wrong, in_process=True)
    unknown: list[BehaviourSpec] = ["perfekt", "fixed", "no.such.module", []]
    for spec in unknown:
        with pytest.raises(ValueError, match="behaviour"):
            behaviour_of(spec)
    with JudgeServer("first", faults=Faults(server_error=1.0), in_process=True) as server:
        with pytest.raises(ValueError, match="unknown server setting"):
            server.set(speed=3)


# -- what it counts ----------------------------------------------------------------------------------------------------------


def test_calls_keys_and_tokens_are_counted_and_keys_never_shown() -> None:
    secret = "sk-very-secret-123"
    with JudgeServer("fixed:" + "y" * 40, require_key=secret, in_process=True) as server:
        for body in (chat("x" * 400, n=2), chat("x" * 400, n=2), {**chat("x" * 400), "temperature": 1}, chat("z")):
            assert call(server, body, headers={"Authorization": f"Bearer {secret}"}).status == 200
        assert call(server, BODY, headers={"api-key": secret}).status == 200
        refusals = (call(server, BODY), call(server, BODY, headers={"Authorization": "Bearer no"}))
        assert [refusal.status for refusal in refusals] == [401, 401]
        stats, seen = server.stats(), server.recent_requests(4)
    assert (stats["requests"], stats["by_status"]) == (7, {"200": 5, "401": 2})
    assert (stats["distinct_samples"], stats["max_attempts"], stats["connections_opened"]) == (3, 3, 7)
    assert sorted(stats["calls_by_body"].values()) == [1, 1, 1, 2]
    assert stats["auth"] == {"sent": 6, "missing": 1, "key_hashes": {key_hash(secret): 5, key_hash("no"): 1}}
    tokens = len(prompt_of(["a", "b"])) // 4
    assert stats["usage"] == {"prompt_tokens": 300 + 1 + tokens, "completion_tokens": 10 * 7}
    assert [each["number"] for each in seen] == [4, 5, 6, 7] and seen[0]["headers"]["authorization"] == key_hash(secret)
    assert (seen[0]["body"], seen[0]["outcome"], seen[2]["outcome"]) == (chat("z"), "200", "401")
    assert secret not in json.dumps([stats, seen])


def test_what_is_in_flight_and_what_a_reset_forgets() -> None:
    with JudgeServer("fixed:ok", latency=1.0, in_process=True) as server:
        threads = [threading.Thread(target=call, args=(server, chat(f"{i}"))) for i in range(5)]
        for thread in threads:
            thread.start()
        assert server.wait_until(lambda s: s["in_flight"] == 5)["max_in_flight"] == 5
        server.reset()
        stats = server.stats()
        assert (stats["requests"], stats["in_flight"], stats["max_in_flight"]) == (0, 5, 5)
        for thread in threads:
            thread.join()
        stats = server.wait_until(lambda s: s["connections_open"] == 0)
    assert (stats["by_status"], stats["in_flight"]) == ({}, 0)


# -- requests and the process ------------------------------------------------------------------------------------------------


def test_paths_methods_and_bodies() -> None:
    azure = "/openai/deployments/my-judge/chat/completions"
    messages = {"messages": chat("x")["messages"]}
    with JudgeServer("first", in_process=True) as server:
        for method, path, body, status in (
            ("POST", "/openai/v1/chat/completions", chat("多"), 200), ("POST", f"{azure}?api-version=1", messages, 200),
            ("POST", azure, chat("x"), 404), ("POST", "/chat/completions", chat("x"), 404), ("GET", CHAT, None, 405),
            ("POST", CHAT, b"{", 400), ("POST", CHAT, [1], 400), ("POST", CHAT, {"model": "m", "messages": []}, 400),
            ("POST", CHAT, messages, 400), ("POST", "/v1/embeddings", {"model": "m"}, 400), ("POST", CHAT, chat("y" * 300_000), 200),
        ):  # fmt: skip
            assert call(server, body, method=method, path=path).status == status, (method, path, status)
        assert server.recent_requests(10)[0]["query"] == {"api-version": "1"}
        scored = call(server, chat(prompt_of(["a"], "score"), n=3, logprobs=True, top_logprobs=4)).json()["choices"]
        assert [choice["index"] for choice in scored] == [0, 1, 2]
        tokens = scored[0]["logprobs"]["content"]
        assert "".join(entry["token"] for entry in tokens) == scored[0]["message"]["content"]
        assert len(next(entry for entry in tokens if entry["token"].isdigit())["top_logprobs"]) == 4
        texts = {"model": "e", "input": ["red apple pie", "red apple tart", "tax law", "red apple pie"]}
        a, b, c, d = (row["embedding"] for row in call(server, texts, path="/v1/embeddings").json()["data"])
        assert a == d and sum(x * y for x, y in zip(a, b, strict=True)) > sum(x * y for x, y in zip(a, c, strict=True))


def test_requests_are_read_whole_in_turn_or_not_at_all() -> None:
    data = b"POST /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
    buffer = bytearray()
    for byte in data + data:
        buffer.append(byte)
        request = next_request(buffer)
        assert (request is None) == bool(buffer)
    assert request is not None and (request.path, request.query, request.body) == ("/a b", {"x": "1"}, b"hello")
    for junk in (b"hello\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", b"x" * 70_000):
        with pytest.raises(BadRequest):
            next_request(bytearray(junk))


def shout(judge: JudgeCall) -> str:
    """A behaviour a server process can import."""
    return "LOUD " + str(judge.body["model"])


def test_process_and_thread_do_the_same() -> None:
    shown = []
    for in_process in (False, True):
        with JudgeServer("perfect", oracle=ORACLE, seed=3, in_process=in_process) as server:
            body = chat(prompt_of(["bad", "good"]))
            text = call(server, body).text()
            server.set(behaviour=shout, latency=0.001)
            shown.append((text, call(server, body).text(), server.stats()["by_status"]))
            load = server.stats()["process"]
            assert load["replies"] == 2 and 0 < load["cpu_seconds"] < load["wall_seconds"]
            reply = call(server, None, method="GET", path="/_stats?detail=0").json()
            assert reply["requests"] == 2 and "calls_by_body" not in reply
    assert shown[0] == shown[1] and shown[0][0].endswith("<best>2</best>") and shown[0][1] == "LOUD judge-1"
    server.stop()
    with pytest.raises(ValueError, match="function of a module"):
        JudgeServer(lambda judge: "x")
    with pytest.raises(RuntimeError, match="did not start"):
        JudgeServer("tests.support.no_such_module:function")


PARENT = """
import os, sys, time
from tests.support.judge_server import JudgeServer
server = JudgeServer("first")
if "fork" in sys.argv and os.fork() == 0:
    time.sleep(60)
    os._exit(0)
sys.stdout.write(str(server.port) + "\\n")
sys.stdout.flush()
time.sleep(60)
"""


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("how", ["plain", "fork"])
@pytest.mark.skipif(os.name != "posix", reason="kills a process by signal")
def test_the_server_ends_when_its_parent_is_killed(how: str) -> None:
    """Also while a fork of the parent still holds the server's stdin open."""
    command = [sys.executable, "-W", "ignore", "-c", PARENT, how]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        assert listening(port)
        os.kill(parent.pid, signal.SIGKILL)
        end = time.monotonic() + 30
        while listening(port) and time.monotonic() < end:
            time.sleep(0.02)
        gone = not listening(port)
        if how == "fork":
            os.killpg(parent.pid, signal.SIGKILL)
    assert gone
