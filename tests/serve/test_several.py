"""Several server processes behind one port are one server: one rate, one call for equal questions,
one set of counters.
"""

from __future__ import annotations

import concurrent.futures
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.serve.door import ServeSettings
from rm_gallery.serve.metrics import added
from rm_gallery.serve.several import _listening, share
from rm_gallery.serve.tokens import create_token
from tests.engine.processes import wait_until
from tests.support.judge_server import JudgeServer
from tests.support.serving import Serving

pytestmark = pytest.mark.skipif(os.name != "posix", reason="several server processes need POSIX")


def ask(url: str, reward: str, text: str, reference: str = "") -> Any:
    """One request on a connection of its own."""
    body = orjson.dumps({"prompt": "q", "completion": text, "reference": reference})
    request = urllib.request.Request(
        f"{url}/v1/rewards/{reward}", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        return orjson.loads(reply.read())


def parts(server: Serving) -> set[int]:
    """The processes that serve for this one."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == server.process.pid and fields[0] != "Z":
            found.add(int(stat.parent.name))
    return found


@pytest.fixture
def judge() -> Iterator[JudgeServer]:
    with JudgeServer("fixed:<score>3</score>", latency=0.2, in_process=True) as running:
        yield running


def test_two_processes_are_one_server(judge: JudgeServer, tmp_path: Path) -> None:
    options = [
        "--no-evaluators",
        "-r",
        "length_baseline",
        "-r",
        "judged=chat_pointwise_reward",
        "--llm",
        "judge-1",
    ]
    with Serving(
        *options,
        "--base-url",
        judge.base_url,
        "--processes",
        "2",
        cwd=tmp_path,
        env={"RM_GALLERY_CACHE": "off"},
    ) as server:
        assert len(parts(server)) == 2 and server.said.count(b"serving") == 1
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            said = list(pool.map(lambda _: ask(server.url, "judged", "the same"), range(40)))
        assert {each["score"] for each in said} == {3.0}
        assert judge.stats()["requests"] <= 4, (
            "one question, and what it takes to find out how to ask it"
        )
        for number in range(20):
            ask(server.url, "length_baseline", "a" * number)
        counted = urllib.request.urlopen(f"{server.url}/metrics").read().decode()
        total = sum(
            float(n)
            for n in re.findall(
                r'rm_gallery_requests_total\{route="/v1/rewards/\{name\}",status="200"\} (\S+)',
                counted,
            )
        )
        assert total == 60
        victim = parts(server).pop()
        os.kill(victim, signal.SIGKILL)
        assert wait_until(lambda: len(parts(server)) == 2 and victim not in parts(server), 20)
        assert {ask(server.url, "length_baseline", "xyz")["score"] for _ in range(20)} == {3.0}, (
            "also by the new one"
        )
        server.terminate()
        assert server.ended() == 0 and not parts(server)


def test_rates_and_the_port_for_the_status_are_those_of_all_processes(tmp_path: Path) -> None:
    token = create_token(tmp_path / "tokens.json", "few", ["evaluate", "read"], 30)
    options = [
        "--no-evaluators",
        "-r",
        "length_baseline",
        "--processes",
        "2",
        "--tokens",
        "tokens.json",
    ]
    with Serving(*options, "--status-port", "0", "--access-log", "a.log", cwd=tmp_path) as server:
        status, headers = server.status_url(), {"X-Api-Key": token}
        assert httpx.get(f"{status}/health").json() == {"status": "ok", "problems": []}
        assert (
            httpx.get(f"{status}/metrics").status_code == 401
            and httpx.get(f"{status}/v1/rewards").status_code == 404
        )
        url = f"{server.url}/v1/rewards/length_baseline/batch"
        three, many = ({"items": [{"completion": "a"}] * n} for n in (3, 31))
        # each on a connection of its own
        found = [httpx.post(url, json=three, headers=headers).status_code for _ in range(12)]
        assert found == [200] * 10 + [429] * 2
        refused = httpx.post(url, json=many, headers=headers)
        assert refused.status_code == 429 or refused.json()["error"]["code"] == "too_many"
        for part in parts(server):
            os.kill(part, signal.SIGSTOP)
        hung = ["2 of 2 server processes do not answer"]
        assert wait_until(
            lambda: httpx.get(f"{status}/health", timeout=30).json()["problems"] == hung, 20
        )
        for part in parts(server):
            os.kill(part, signal.SIGCONT)
        server.terminate()
        assert server.ended() == 0
    lines = [orjson.loads(line) for line in (tmp_path / "a.log").read_bytes().splitlines()]
    assert sum(line["completions"] or 0 for line in lines if line["status"] == 200) == 30
    assert token not in (tmp_path / "a.log").read_text() and {line["token"] for line in lines} == {
        "few"
    }


def test_parts_leave_with_who_began_them(tmp_path: Path) -> None:
    with Serving(
        "--no-evaluators", "-r", "length_baseline", "--processes", "2", cwd=tmp_path
    ) as server:
        begun = parts(server)
        assert len(begun) == 2
        server.process.kill()
        server.process.wait()
        assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in begun), 20)


def test_a_port_that_is_taken_is_refused_and_limits_are_shared(tmp_path: Path) -> None:
    first = _listening("127.0.0.1", 0, 2)
    port = first[0].getsockname()[1]
    try:
        assert [each.getsockname()[1] for each in first] == [port, port]
        with pytest.raises(ConfigError, match="another --port"):
            _listening("127.0.0.1", port, 2)
    finally:
        for each in first:
            each.close()
    settings = {
        "max_workers": 5,
        "max_waiting": 100,
        "host": "h",
        "deadline": 3.0,
        "status_port": 1,
    }
    assert share(settings, 2) == {"max_workers": 3, "max_waiting": 50, "host": "h", "deadline": 3.0}
    assert (
        share({"max_workers": None}, 2) == {"max_workers": None}
        and ServeSettings().max_workers is None
    )


def test_counters_of_all_are_added_up() -> None:
    one = (
        b'# HELP a_total A.\n# TYPE a_total counter\na_total{x="1"} 2.0\n# HELP b B.\n# TYPE b '
        b"gauge\nb 1.0\n"
    )
    other = (
        b'# HELP a_total A.\n# TYPE a_total counter\na_total{x="1"} 3.0\na_total{x="2"} 1.0\n# '
        b"HELP b B.\n# TYPE b gauge\nb 4.0\n"
    )
    assert added([one, other]).decode().splitlines() == [
        "# HELP a_total A.", "# TYPE a_total counter", 'a_total{x="1"} 5.0', 'a_total{x="2"} 1.0',
        "# HELP b B.", "# TYPE b gauge", "b 5.0",
    ]  # fmt: skip
