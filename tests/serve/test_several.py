"""Several server processes behind one port: one that dies is replaced, all end together and lose
nothing, and what each counts can be told apart.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from rm_gallery.serve.tokens import create_token
from tests.engine.processes import wait_until
from tests.support.children import child_environment
from tests.support.command import command
from tests.support.serving import Serving

pytestmark = pytest.mark.skipif(os.name != "posix", reason="looks for processes in /proc")

SLOW = """
import os, time
from rm_gallery import EvaluateResult, reward_function

@reward_function
def slow(messages, ground_truth=None, **kwargs):
    while not os.path.exists(messages[-1]["content"]):
        time.sleep(0.02)
    return EvaluateResult(score=1.0, reason="waited")
"""
TWO = ["--no-evaluators", "--reward", "length_baseline", "--processes", "2"]


def workers(server: Serving) -> set[int]:
    """The processes that serve for this one."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == server.process.pid and b"spawn_main" in words:
            found.add(int(folder.name))
    return found


def ask(server: Serving, text: str, reward: str = "length_baseline", **more: Any) -> httpx.Response:
    """One request on a connection of its own."""
    url = f"{server.url}/v1/rewards/{reward}"
    return httpx.post(url, json={"completion": text}, timeout=60, trust_env=False, **more)


def metrics(server: Serving) -> tuple[str, str]:
    """The counters of one of the processes, and which it is."""
    text = httpx.get(f"{server.url}/metrics", timeout=60, trust_env=False).text
    (process,) = set(re.findall(r'process="(\d+)"', text))
    return process, text


def both_answer(server: Serving) -> bool:
    """Whether of twenty requests some go to either process."""
    return {int(metrics(server)[0]) for _ in range(20)} == workers(server)


@pytest.mark.long("several servers")
def test_two_processes_answer_on_one_port_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    with Serving(*TWO, cwd=tmp_path) as server:
        assert server.said.count(b"serving") == 1
        assert b"2 processes: every limit, every rate, /metrics and /health are" in server.said
        assert wait_until(lambda: both_answer(server), 60)
        before = workers(server)
        assert len(before) == 2
        killed = before.pop()
        os.kill(killed, signal.SIGKILL)
        assert wait_until(lambda: len(workers(server) - {killed}) == 2, 60)
        assert {ask(server, "xyz").json()["score"] for _ in range(20)} == {3.0}
        assert wait_until(lambda: both_answer(server), 60), "also the new one"
        assert before < workers(server)
        server.terminate()
        assert server.ended() == 0 and not workers(server)
    assert b"A server process died (killed by signal 9" in server.said
    assert b"Traceback" not in server.said


@pytest.mark.long("several servers")
def test_no_counter_falls_whichever_process_is_asked(tmp_path: Path) -> None:
    with Serving(*TWO, cwd=tmp_path) as server:
        assert wait_until(lambda: both_answer(server), 60)
        highest: dict[str, float] = defaultdict(float)
        for number in range(40):
            assert ask(server, "a" * number).status_code == 200
            process, text = metrics(server)
            for line in text.splitlines():
                name, _, value = line.rpartition(" ")
                if "_total{" in name or "_bucket{" in name:
                    assert f'process="{process}"' in name
                    assert float(value) >= highest[name]
                    highest[name] = float(value)
        answered = re.compile(
            r'rm_gallery_requests_total\{process="\d+",route="/v1/rewards/\{name\}"'
        )
        assert sum(n for name, n in highest.items() if answered.match(name)) <= 40


@pytest.mark.long("several servers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "Ctrl-C"])
def test_a_signal_ends_all_and_loses_nothing(tmp_path: Path, number: int) -> None:
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    given = [*TWO, "--reward", "slow=func:slow.py:slow", "--max-workers", "64"]
    with Serving(*given, cwd=tmp_path) as server:
        assert wait_until(lambda: both_answer(server), 60)
        replies: list[httpx.Response] = []
        until = str(tmp_path / "go")
        threads = [
            threading.Thread(target=lambda: replies.append(ask(server, until, "slow")))
            for _ in range(30)
        ]
        for thread in threads:
            thread.start()

        def in_flight() -> float:
            seen = dict(metrics(server) for _ in range(20))
            found = [re.search(r"requests_in_flight\{.*\} (\S+)", each) for each in seen.values()]
            return sum(float(each[1]) for each in found if each)

        assert wait_until(lambda: in_flight() == 30, 60)
        # Ctrl-C in a terminal and the SIGTERM of a service reach every process, and the first one
        # passes it on
        for process in (*workers(server), server.process.pid):
            os.kill(process, number)
        time.sleep(1.5)
        (tmp_path / "go").touch()
        for thread in threads:
            thread.join(60)
        assert [(reply.status_code, reply.json()["score"]) for reply in replies] == [
            (200, 1.0)
        ] * 30
        assert server.ended() == 0 and not workers(server)
        assert b"Traceback" not in server.said


@pytest.mark.smoke("several servers")
def test_processes_leave_with_the_one_that_began_them(tmp_path: Path) -> None:
    with Serving(*TWO, cwd=tmp_path) as server:
        assert wait_until(lambda: both_answer(server), 60)
        begun = workers(server)
        server.process.kill()
        server.process.wait()
        assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in begun), 20)


@pytest.mark.long("several servers")
def test_the_rate_of_a_token_is_that_of_each_process_and_one_log_is_written_by_all(
    tmp_path: Path,
) -> None:
    token = create_token(tmp_path / "tokens.json", "few", ["evaluate"], 5)
    given = [*TWO, "--tokens", "tokens.json", "--access-log", "a.log"]
    with Serving(*given, cwd=tmp_path) as server:
        replies = [ask(server, "a", headers={"X-Api-Key": token}).status_code for _ in range(40)]
        assert ask(server, "a").status_code == 401
        assert set(replies) == {200, 429} and 5 <= replies.count(200) <= 10
        for process in (*workers(server), server.process.pid):
            assert token.encode() not in Path(f"/proc/{process}/cmdline").read_bytes()
        server.terminate()
        assert server.ended() == 0 and token.encode() not in server.said
    lines = [orjson.loads(line) for line in (tmp_path / "a.log").read_bytes().splitlines()]
    assert [line["status"] for line in lines].count(200) == replies.count(200)
    assert {line["token"] for line in lines if line["status"] == 200} == {"few"}
    assert token not in (tmp_path / "a.log").read_text()


def test_what_several_processes_cannot_do_is_refused() -> None:
    done = command("serve", *TWO, "--status-port", "0")
    assert done.code == 2 and "leave out --status-port or --processes" in done.err
    taken = command("serve", *TWO, "--certificate", "absent.pem", "--port", "0")
    assert taken.code == 2 and "the certificate" in taken.err


class Kept(logging.NullHandler):
    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


def test_a_server_leaves_the_log_handlers_of_its_process_alone() -> None:
    """One that closes its stream, as absl's does, closed standard error with it."""
    kept = Kept()
    assert command("serve", *TWO, "--certificate", "absent.pem", "--port", "0").code == 2
    assert not kept.closed


@pytest.mark.long("several servers")
def test_processes_that_cannot_start_end_the_server(tmp_path: Path) -> None:
    """What the first process finds right may not be so in another."""
    fails = "import multiprocessing\nassert multiprocessing.parent_process() is None\n"
    (tmp_path / "slow.py").write_text(SLOW + fails, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "rm_gallery", "serve", "--port", "0", *TWO, "--reward", "slow.py"],
        cwd=tmp_path, env=child_environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "slow.py" in done.stderr and "its processes said why" in done.stderr
