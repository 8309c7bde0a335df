"""The server as a process: it starts, is asked by many at once, ends without losing a request, and says what it is told to."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.serve_throughput import each_once, http, item, run
from tests.support.command import command

SLOW = """
import time
from rm_gallery import reward_function, EvaluateResult

@reward_function
def slow(messages, ground_truth=None, **kwargs):
    time.sleep(float(messages[-1]["content"]))
    return EvaluateResult(score=1.0, reason="slept")

@reward_function
def broken(messages, **kwargs):
    raise RuntimeError("sk-secret-0123456789abcdef0123456789abcdef at /home/somebody")
"""


class Running:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url
        self.port = int(url.rsplit(":", 1)[1])
        self.said: list[str] = []
        self.client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return self.client.post(path, json=body, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.client.get(path, **more)

    def wait(self, fits: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not fits():
            assert time.monotonic() < end, "what the test waits for did not come"
            time.sleep(0.02)

    def in_flight(self) -> int:
        return int(float(self.get("/metrics").text.partition("\nrm_gallery_requests_in_flight ")[2].split()[0]))


@contextmanager
def server(*arguments: str) -> Iterator[Running]:
    command = [sys.executable, "-m", "rm_gallery", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stderr is not None
    running: Running | None = None
    try:
        for line in process.stderr:
            if "http://" in line:
                running = Running(process, line.split()[-1])
                break
        assert running is not None, "the server did not start"
        lines = process.stderr
        reader = threading.Thread(target=lambda: running.said.extend(lines), daemon=True)
        reader.start()
        yield running
        process.kill()
        reader.join(10)
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()
        if running is not None:
            running.client.close()


def rule(tmp_path: Path, name: str = "slow") -> str:
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    return f"{name}=func:{tmp_path / 'slow.py'}:{name}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("served")
    rewards = ["accuracy", "counted=accuracy", rule(path), rule(path, "broken")]
    arguments = [argument for reward in rewards for argument in ("--reward", reward)]
    with server(*arguments, "--no-evaluators", "--max-waiting", "300", "--deadline", "5") as running:
        yield running


def test_sigterm_loses_no_request(tmp_path: Path) -> None:
    with server("--reward", rule(tmp_path), "--no-evaluators", "--max-workers", "64") as running:
        found: list[Any] = []

        def ask() -> None:
            found.append(running.post("/v1/rewards/slow", {"completion": "1.5"}))

        threads = [threading.Thread(target=ask) for _ in range(40)]
        for thread in threads:
            thread.start()
        running.wait(lambda: running.in_flight() == 40)
        running.process.send_signal(signal.SIGTERM)
        running.wait(lambda: running.get("/health").status_code == 503)
        late = running.post("/v1/rewards/slow", {"completion": "0.01"})  # still taken, and told to close
        assert (late.status_code, late.headers["connection"]) == (200, "close")
        for thread in threads:
            thread.join(30)
        assert [(reply.status_code, reply.json()["score"]) for reply in found] == [(200, 1.0)] * 40
        assert running.process.wait(15) == 0


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with server("--reward", rule(tmp_path), "--no-evaluators") as running:

        def ask() -> None:
            with suppress(httpx.HTTPError):
                running.post("/v1/rewards/slow", {"completion": "30"})

        threading.Thread(target=ask, daemon=True).start()
        running.wait(lambda: running.in_flight() == 1)
        running.process.send_signal(signal.SIGTERM)
        running.wait(lambda: running.get("/health").status_code == 503)
        assert running.process.poll() is None
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(10) is not None


def test_a_burst_of_connections_is_answered_or_refused(shared: Running) -> None:
    requests = [http("/v1/rewards/accuracy", item(i)) for i in range(1500)]
    load = run(shared.port, 1500, each_once(requests))
    assert set(load.statuses) <= {"200", "429"}
    assert sum(load.statuses.values()) == 1500
    assert shared.post("/v1/rewards/accuracy", {"completion": "4", "reference": "4"}).json()["score"] == 1.0


def test_a_request_out_of_time_costs_only_itself(shared: Running) -> None:
    began = time.monotonic()
    late = shared.post("/v1/rewards/slow", {"completion": "20"}, headers={"X-Timeout-Seconds": "0.5"})
    assert (late.status_code, late.json()["reason"]) == (504, "deadline")
    assert time.monotonic() - began < 3
    items = [{"completion": "0"}, {"completion": "20"}, {"completion": "0"}]
    found = shared.post("/v1/rewards/slow/batch", {"items": items}, headers={"X-Timeout-Seconds": "0.7"})
    assert [each["status"] for each in found.json()["results"]] == ["scored", "failed", "scored"]


def test_nothing_of_the_process_is_told(shared: Running) -> None:
    reply = shared.post("/v1/rewards/broken", {"completion": "4"})
    assert (reply.status_code, reply.json()["status"]) == (200, "failed")
    assert "sk-secret" not in reply.text
    assert "Traceback" not in reply.text


def test_tokens_open_what_their_scopes_say(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    reader = command("serve-token", "create", "reader", "--tokens", str(file), "--scope", "read").out.strip()
    asker = command("serve-token", "create", "asker", "--tokens", str(file), "--per-minute", "3").out.strip()
    assert reader not in file.read_text(encoding="utf-8")
    if os.name != "nt":
        assert file.stat().st_mode & 0o077 == 0
    with server("--reward", "accuracy", "--no-evaluators", "--tokens", str(file)) as running:
        body = {"completion": "4", "reference": "4"}

        def status(token: str | None, name: str = "Authorization") -> int:
            value = f"Bearer {token}" if name == "Authorization" else str(token)
            return running.post("/v1/rewards/accuracy", body, headers={name: value} if token else {}).status_code

        assert [status(None), status("rmg_0_0"), status(reader[:-1] + "x"), status(reader)] == [401, 401, 401, 403]
        assert running.get("/v1/rewards").status_code == 401
        listed = running.get("/v1/rewards", headers={"X-Api-Key": reader})
        assert listed.status_code == 200
        assert [status(asker), status(asker, "X-Api-Key"), status(asker)] == [200, 200, 200]
        used_up = running.post("/v1/rewards/accuracy", body, headers={"Authorization": f"bearer {asker}"})
        assert (used_up.status_code, used_up.json()["error"]["code"]) == (429, "rate_limited")
        assert int(used_up.headers["retry-after"]) >= 1
        assert running.get("/health").status_code == 200
        assert command("serve-token", "revoke", "reader", "--tokens", str(file)).code == 0
        time.sleep(1.2)
        assert status(reader) == 401
        assert "asker" in command("serve-token", "list", "--tokens", str(file)).out


def test_metrics_count_what_happened(shared: Running) -> None:
    items = [{"completion": "4", "reference": "4"}, {"completion": "4"}, 7]
    shared.post("/v1/rewards/counted/batch", {"items": items})
    shared.post("/v1/rewards/accuracy", {})
    text = shared.get("/metrics").text
    for line in (
        'rm_gallery_requests_total{route="/v1/rewards/{name}/batch",status="200"} ',
        'rm_gallery_requests_total{route="/v1/rewards/{name}",status="422"} 1.0',
        'rm_gallery_completions_total{outcome="scored",target="reward:counted"} 1.0',
        'rm_gallery_completions_total{outcome="unscored",target="reward:counted"} 1.0',
        'rm_gallery_completions_total{outcome="failed",target="reward:counted"} 1.0',
        'rm_gallery_request_seconds_bucket{le="+Inf",route="/v1/rewards/{name}"}',
        'rm_gallery_waiting{reward="counted"} 0.0',
    ):
        assert line in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0", "--reward", "accuracy"), "--open"),
        (("--reward", "accurcy"), "accuracy"),
        (("--reward", "a=accuracy", "--reward", "a=f1_score"), "NAME="),
        (("--reward", "./a/b"), "NAME"),
        (("--no-evaluators",), "--reward"),
        (("--reward", "accuracy", "--tokens", "absent.json"), "serve-token"),
        (("--reward", "accuracy", "--llm", "m", "--sandbox", "none"), "--sandbox"),
        (("--reward", "math_pointwise_reward",), "--llm"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_a_usage_error(arguments: tuple[str, ...], said: str) -> None:
    done = command("serve", "--port", "0", *arguments)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_a_port_in_use_is_a_usage_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = command("serve", "--reward", "accuracy", "--no-evaluators", "--port", str(taken.getsockname()[1]))
    assert done.code == 2
    assert "--port" in done.err


def test_rewards_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    rewards = {"exact": {"reward": "accuracy"}, "overlap": {"reward": "f1_score", "params": {"max_workers": 2}}}
    file.write_text(json.dumps({"rewards": rewards}), encoding="utf-8")
    with server("--config", str(file), "--no-evaluators") as running:
        found = running.get("/v1/rewards").json()["rewards"]
        assert [each["name"] for each in found] == ["exact", "overlap"]
        body = {"completion": "a b", "reference": "a b"}
        assert running.post("/v1/rewards/overlap", body).json()["score"] == 1.0


def test_all_packages_that_are_missing_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    gone = ("uvicorn", "prometheus_client")
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name in gone else there(name, *more))
    done = command("serve", "--reward", "accuracy")
    assert done.code == 2 and done.err.endswith("pip install uvicorn prometheus-client\n")
