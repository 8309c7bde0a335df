"""The server as a process of its own: start, settings over the control port, and no orphans."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.judge_server import JudgeCall, JudgeServer, make_oracle
from tests.support.judge_server_client import call, chat, prompt_of
from tests.support.judge_server_hosts import ROOT

MODULE = [sys.executable, "-m", "tests.support.judge_server"]


def shout(judge: JudgeCall) -> str:
    """A behaviour a server process can import."""
    return "LOUD " + str(judge.body["model"])


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _gone(port: int) -> bool:
    end = time.monotonic() + 5
    while _listening(port):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_process_and_thread_do_the_same() -> None:
    oracle = make_oracle([("good", True), ("bad", False)])
    shown = []
    for in_process in (False, True):
        with JudgeServer("perfect", oracle=oracle, seed=3, in_process=in_process) as server:
            text = call(server, chat(prompt_of(["bad", "good"]))).text()
            server.set(behaviour="worst", latency=0.001)
            shown.append((text, call(server, chat(prompt_of(["bad", "good"]))).text(), server.stats()["by_status"]))
            server.reset()
            assert server.stats()["requests"] == 0
    assert shown[0] == shown[1]
    assert shown[0][0].endswith("<best>2</best>")
    assert shown[0][1].endswith("<best>1</best>")


def test_stopping_frees_the_port_and_may_be_repeated() -> None:
    server = JudgeServer("first")
    assert server.pid != os.getpid()
    server.stop()
    server.stop()
    assert not _listening(server.port)


def test_a_function_of_a_module_goes_by_its_name_and_a_local_one_is_refused() -> None:
    with JudgeServer(shout) as server:
        assert call(server, chat("x")).text() == "LOUD judge-1"
    with pytest.raises(ValueError, match="function of a module"):
        JudgeServer(lambda judge: "x")
    with pytest.raises(ValueError, match="unknown behaviour"):
        JudgeServer("perfekt")
    with pytest.raises(RuntimeError, match="did not start"):
        JudgeServer("tests.support.no_such_module:function")


def test_the_control_port_answers_on_the_api_port_too_and_counts_for_nothing() -> None:
    with JudgeServer("first") as server:
        reply = call(server, None, method="GET", path="/_stats?detail=0")
        assert reply.json()["requests"] == 0
        assert "attempts_by_sample" not in reply.json()
        assert call(server, {}, path="/_nonsense").status == 400


def test_command_line_ready_line_and_end_with_stdin(tmp_path: Path) -> None:
    oracle = tmp_path / "oracle.json"
    oracle.write_text(json.dumps(make_oracle([("good", True, 9), ("bad", False, 1)])), encoding="utf-8")
    options = ["--latency-ms", "1", "--behaviour", "worst", "--oracle", str(oracle), "--faults", '{"rate_limit": 0.0}']
    process = subprocess.Popen(
        [*MODULE, "--port", "0", *options], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["pid"] == process.pid
    connection = http.client.HTTPConnection("127.0.0.1", ready["port"], timeout=5)
    connection.request("POST", "/v1/chat/completions", json.dumps(chat(prompt_of(["good", "bad"]))))
    assert json.loads(connection.getresponse().read())["choices"][0]["message"]["content"].endswith("<best>2</best>")
    process.stdin.close()
    assert process.wait(5) == 0
    process.stdout.close()
    connection.close()


PARENT = """
import os, sys, time
from tests.support.judge_server import JudgeServer
server = JudgeServer("first")
if "fork" in sys.argv and os.fork() == 0:
    time.sleep(8)
    os._exit(0)
sys.stdout.write(str(server.port) + "\\n")
sys.stdout.flush()
time.sleep(30)
"""


@pytest.mark.parametrize("how", ["plain", "fork"])
@pytest.mark.skipif(os.name != "posix", reason="kills a process by signal")
def test_the_server_ends_when_its_parent_is_killed(how: str) -> None:
    """Also while a fork of the parent still holds the server's stdin open."""
    command = [sys.executable, "-W", "ignore", "-c", PARENT, how]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        assert _listening(port)
        os.kill(parent.pid, signal.SIGKILL)
        gone = _gone(port)
        if how == "fork":
            os.killpg(parent.pid, signal.SIGKILL)
    assert gone


def test_many_connections_at_once() -> None:
    with JudgeServer("first") as server:
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(300)]
        server.wait_until(lambda s: s["connections_open"] == 300)
        for sock in sockets:
            sock.close()
        assert server.wait_until(lambda s: s["connections_open"] == 0)["max_connections_open"] == 300
