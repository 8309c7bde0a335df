"""The server as a process: it starts, is asked by many at once, bounds what a connection holds, and
ends without losing a request.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.serve_throughput import each_once, http, item, run
from rm_gallery.serve.connection import MAX_HEAD, MAX_PIPELINED
from rm_gallery.serve.tokens import create_token
from tests.support.command import command
from tests.support.serving import Serving

SLOW = """
import os, time
from rm_gallery import reward_function, EvaluateResult

@reward_function
def slow(messages, ground_truth=None, **kwargs):
    until = messages[-1]["content"]
    while until.startswith("/") and not os.path.exists(until):
        time.sleep(0.02)
    time.sleep(0 if until.startswith("/") else float(until))
    return EvaluateResult(score=1.0, reason="slept")
"""
MAX_BODY = 1 << 20
IT = {"completion": "4", "reference": "4"}


def serving(folder: Path, *arguments: str, **settings: Any) -> Serving:
    (folder / "slow.py").write_text(SLOW, encoding="utf-8")
    rewards = ["accuracy", "slow=func:slow.py:slow"]
    given = [part for reward in rewards for part in ("--reward", reward)]
    return Serving(*given, "--no-evaluators", *arguments, cwd=folder, **settings)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    limits = ["--max-body", str(MAX_BODY), "--max-waiting", "300", "--deadline", "20"]
    with serving(tmp_path_factory.mktemp("served"), *limits, read_timeout=2.0) as running:
        yield running


def post(server: Serving, name: str, body: Any, **more: Any) -> httpx.Response:
    return httpx.post(
        f"{server.url}/v1/rewards/{name}", json=body, timeout=60, trust_env=False, **more
    )


def get(server: Serving, path: str, **more: Any) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", timeout=60, trust_env=False, **more)


def wait(fits: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not fits():
        assert time.monotonic() < end, "what the test waits for did not come"
        time.sleep(0.02)


def in_flight(server: Serving) -> int:
    return int(
        float(
            get(server, "/metrics").text.partition("\nrm_gallery_requests_in_flight ")[2].split()[0]
        )
    )


# -- signals ---------------------------------------------------------------------------------------


@pytest.mark.long("a server process")
def test_sigterm_loses_no_request(tmp_path: Path) -> None:
    with serving(tmp_path, "--max-workers", "64") as running:
        found: list[httpx.Response] = []
        until = {"completion": str(tmp_path / "go")}
        threads = [
            threading.Thread(target=lambda: found.append(post(running, "slow", until)))
            for _ in range(40)
        ]
        for thread in threads:
            thread.start()
        wait(lambda: in_flight(running) == 40)
        running.terminate()
        wait(lambda: get(running, "/health").status_code == 503)
        late = post(running, "slow", {"completion": "0.01"})  # still taken, and told to close
        assert (late.status_code, late.headers["connection"]) == (200, "close")
        (tmp_path / "go").touch()
        for thread in threads:
            thread.join(60)
        assert [(reply.status_code, reply.json()["score"]) for reply in found] == [(200, 1.0)] * 40
        assert running.ended() == 0
        assert b"Traceback" not in running.said


@pytest.mark.long("a server process")
def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as running:

        def ask() -> None:
            with suppress(httpx.HTTPError):
                post(running, "slow", {"completion": "600"})

        threading.Thread(target=ask, daemon=True).start()
        wait(lambda: in_flight(running) == 1)
        running.terminate()
        wait(lambda: get(running, "/health").status_code == 503)
        assert running.process.poll() is None
        running.terminate()
        assert running.process.wait(30) is not None


# -- what a connection may hold --------------------------------------------------------------------

HEAD = (
    b"POST /v1/rewards/accuracy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)


def connected(server: Serving) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=60)


def sent(server: Serving, *chunks: bytes) -> bytes:
    """What the server answers to raw bytes, to the end of a head or of the connection."""
    reply = b""
    with closing(connected(server)) as connection, suppress(OSError):
        with suppress(OSError):  # it may have heard enough
            for chunk in chunks:
                connection.sendall(chunk)
        while b"\r\n\r\n" not in reply and (more := connection.recv(65536)):
            reply += more
    return reply


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1]) if reply else 0


@pytest.fixture
def unhurt(server: Serving) -> Iterator[None]:
    """The server answers afterwards."""
    yield
    assert post(server, "accuracy", IT).json()["score"] == 1.0


@pytest.mark.usefixtures("unhurt")
def test_a_body_of_100_mb_is_not_read_into_memory(server: Serving) -> None:
    announced = sent(
        server, HEAD + b"Content-Length: %d\r\n\r\n" % (100 << 20), *[b"x" * (1 << 20)] * 100
    )
    assert status_of(announced) in (0, 413)
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    assert status_of(
        sent(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 100, b"0\r\n\r\n")
    ) in (0, 413)
    # who sends a little more than is taken reads why
    reply = httpx.post(f"{server.url}/evaluate", content=b"[" * (2 * MAX_BODY))
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "too_large")
    waits = HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1)
    assert status_of(sent(server, waits)) == 413


@pytest.mark.usefixtures("unhurt")
def test_a_body_or_a_head_that_never_comes_is_given_up(server: Serving) -> None:
    assert status_of(sent(server, HEAD + b"Content-Length: 100\r\n\r\n{")) == 408
    for head in (b"", b"GET /health HTTP/1.1\r\nHost: localh"):
        assert sent(server, head) == b""


@pytest.mark.usefixtures("unhurt")
@pytest.mark.parametrize(("head", "more"), [
    (b"GET /health HTTP/1.1\r\nX-A: ", b"a"),
    (b"GET /health HTTP/1.1\r\n", b"a: b\r\n"),
    (b"GET /", b"a"),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"a: b\r\n"),
], ids=["header", "headers", "path", "trailers"])  # fmt: skip
def test_what_a_head_may_take_is_bounded_to_the_byte(
    server: Serving, head: bytes, more: bytes
) -> None:
    with closing(connected(server)) as connection:
        connection.sendall(head)
        with pytest.raises(OSError):
            for _ in range(64):
                connection.sendall(more * ((1 << 20) // len(more)))
    if b"chunked" not in head:
        whole = (head + more * MAX_HEAD)[:MAX_HEAD]
        assert status_of(sent(server, whole)) == 0  # waited for, and given up after its time
        assert status_of(sent(server, whole + b"a")) == 431


@pytest.mark.usefixtures("unhurt")
@pytest.mark.parametrize(("more", "answered"), [(0, MAX_PIPELINED + 1), (1, 0)])
def test_as_many_requests_wait_on_a_connection_as_may_and_not_one_more(
    server: Serving, more: int, answered: int
) -> None:
    slow = (
        HEAD.replace(b"accuracy", b"slow")
        + b"Content-Length: 21\r\n\r\n"
        + b'{"completion": "1.0"}'
    )
    with closing(connected(server)) as connection:
        connection.sendall(
            slow + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * (MAX_PIPELINED + more)
        )
        replies = b""
        with suppress(OSError):
            while replies.count(b"HTTP/1.1 200") < MAX_PIPELINED + 1 and (
                piece := connection.recv(65536)
            ):
                replies += piece
    assert replies.count(b"HTTP/1.1 200") == answered


@pytest.mark.usefixtures("unhurt")
def test_odd_requests_are_refused_or_hung_up_on(server: Serving) -> None:
    paths = [
        "/v1/rewards/..%2f..%2fetc%2fpasswd",
        "/v1/rewards/" + "x" * 5000,
        "/v1/rewards/%00",
        "/v1/rewards/%ff",
        # fmt: skip
        "/v1/rewards/accuracy/..",
        "//v1/rewards/accuracy",
        "/v1/evaluations/..",
        "/openapi.json/x",
        "/v1/rewards/a%0d%0aX-Evil:%201",
    ]
    for path in paths:
        reply = sent(
            server,
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}".encode(),
        )
        assert status_of(reply) in (400, 404, 405, 422) and b"x-evil" not in reply.lower(), path
    for name in (
        b"X-Request-Id",
        b"X-Timeout-Seconds",
        b"Content-Length",
        b"Authorization",
        b"Accept-Encoding",
    ):
        for value in (b"", b"\xff\xfe", b"nan", b"-1", b"1e400", b"x" * 5000, b"0", b"bytes=0-"):
            given = b"" if name == b"Content-Length" else b"Content-Length: 2\r\n"
            reply = sent(
                server, HEAD + given + name + b": " + value + b"\r\nConnection: close\r\n\r\n{}"
            )
            assert 400 <= status_of(reply) < 500, (name, value)
            assert value not in reply.split(b"\r\n\r\n")[0] or len(value) < 6
    assert status_of(sent(server, b"\x16\x03\x01\x02\x00" + b"\x00" * 512)) in (0, 400)
    assert status_of(sent(server, b"GET / HTTP/9.9\r\n\r\n")) in (0, 400, 404)


# -- requests --------------------------------------------------------------------------------------


@pytest.mark.long("a server process")
def test_a_burst_of_connections_is_answered_or_refused(tmp_path: Path) -> None:
    requests = [http("/v1/rewards/accuracy", item(i)) for i in range(1500)]
    # a client on a late machine may take seconds from its last connection to its first request
    with serving(tmp_path, "--max-waiting", "300", "--deadline", "20", read_timeout=60.0) as server:
        load = run(int(server.url.rpartition(":")[2]), 1500, each_once(requests))
        assert set(load.statuses) <= {"200", "429"} and sum(load.statuses.values()) == 1500
        assert post(server, "accuracy", IT).json()["score"] == 1.0


@pytest.mark.long("a server process")
def test_tokens_open_what_their_scopes_say(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    reader = command(
        "serve-token", "create", "reader", "--tokens", str(file), "--scope", "read"
    ).out.strip()
    asker = command(
        "serve-token", "create", "asker", "--tokens", str(file), "--per-minute", "3"
    ).out.strip()
    assert reader not in file.read_text(encoding="utf-8")
    with serving(tmp_path, "--tokens", str(file)) as running:

        def status(token: str) -> int:
            return post(
                running, "accuracy", IT, headers={"Authorization": f"bearer {token}"}
            ).status_code

        assert [status(token) for token in ("rmg_0_0", reader[:-1] + "x", reader)] == [
            401,
            401,
            403,
        ]
        assert get(running, "/v1/rewards").status_code == 401
        assert get(running, "/v1/rewards", headers={"X-Api-Key": reader}).status_code == 200
        assert [status(asker) for _ in range(4)] == [200, 200, 200, 429]
        assert command("serve-token", "revoke", "reader", "--tokens", str(file)).code == 0
        wait(lambda: status(reader) == 401)
        assert "asker" in command("serve-token", "list", "--tokens", str(file)).out


@pytest.mark.long("a server process")
def test_the_port_for_the_status_shows_it_and_nothing_else(tmp_path: Path) -> None:
    token = create_token(tmp_path / "tokens.json", "reader", ["read"])
    with serving(tmp_path, "--tokens", "tokens.json", "--status-port", "0") as running:
        url = running.status_url()
        assert httpx.get(f"{url}/health").json() == {"status": "ok", "problems": []}
        assert httpx.get(f"{url}/metrics").status_code == 401
        assert httpx.get(f"{url}/metrics", headers={"X-Api-Key": token}).status_code == 200
        assert httpx.get(f"{url}/v1/rewards").status_code == 404


# -- how it is started -----------------------------------------------------------------------------


@pytest.mark.long("a server process")
def test_a_port_in_use_is_a_usage_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = command(
            "serve",
            "--reward",
            "accuracy",
            "--no-evaluators",
            "--port",
            str(taken.getsockname()[1]),
        )
    assert done.code == 2 and "--port" in done.err


@pytest.mark.smoke("a server as a process")
def test_rewards_of_a_file(tmp_path: Path) -> None:
    rewards = {
        "exact": {"reward": "accuracy"},
        "overlap": {"reward": "f1_score", "params": {"max_workers": 2}},
    }
    (tmp_path / "serve.yaml").write_text(json.dumps({"rewards": rewards}), encoding="utf-8")
    with Serving("--config", "serve.yaml", "--no-evaluators", cwd=tmp_path) as running:
        assert [each["name"] for each in get(running, "/v1/rewards").json()["rewards"]] == [
            "exact",
            "overlap",
        ]
        assert (
            post(running, "overlap", {"completion": "a b", "reference": "a b"}).json()["score"]
            == 1.0
        )


@pytest.mark.long("a server process")
def test_all_packages_that_are_missing_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    gone = ("uvicorn", "prometheus_client")
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name in gone else there(name, *more)
    )
    done = command("serve", "--reward", "accuracy")
    assert done.code == 2 and done.err.endswith("pip install uvicorn prometheus-client\n")
