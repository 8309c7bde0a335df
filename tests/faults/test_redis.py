"""Processes that know one Redis server share replies, equal questions and rates; without it a run
goes on by itself.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.engine import loop
from rm_gallery.core.engine.calls import coordinator
from rm_gallery.core.engine.calls.redis import RedisShare, share
from rm_gallery.core.utils.errors import ConfigError
from tests.faults.material import eval_arguments, make_judge, make_samples, run, truth, write_data
from tests.faults.processes import command, reached, started
from tests.support.command import command as here
from tests.support.judge_server import JudgeServer

N = 150
PASSWORD = "hush-hush"


@contextmanager
def redis_server(folder: Path, port: int = 0) -> Iterator[tuple[str, int]]:
    """A server of its own with a password; skips the test with the reason where there is none."""
    pytest.importorskip("redis", reason="redis-py is not installed")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis is not installed: there is no redis-server")
    if not port:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    options = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(folder),
        "--requirepass",
        PASSWORD,
    ]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    try:
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.01)
        yield f"redis://:{PASSWORD}@127.0.0.1:{port}/0", port
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with redis_server(tmp_path) as (url, _):
        monkeypatch.setenv("RM_GALLERY_CACHE", url)
        yield url
        loop.shutdown()


def test_two_commands_at_once_ask_each_question_once(
    redis: str, server: JudgeServer, tmp_path: Path
) -> None:
    server.set(latency=0.05)
    data = write_data(tmp_path / "data.jsonl", N)
    first, second = (
        eval_arguments(data, server, tmp_path / name, "--max-workers", "16") for name in ("a", "b")
    )
    with started(*command(*first), cwd=tmp_path, RM_GALLERY_CACHE=redis) as one:
        with started(*command(*second), cwd=tmp_path, RM_GALLERY_CACHE=redis) as other:
            said = [process.communicate(timeout=60) for process in (one, other)]
    assert [json.loads(out)["score"] for out, _ in said] == [1.0, 1.0], said
    assert server.stats()["requests"] == N
    again = here(*eval_arguments(data, server, tmp_path / "c"))
    assert json.loads(again.out)["score"] == 1.0 and server.stats()["requests"] == N
    assert json.loads((tmp_path / "c" / "summary.json").read_text())["spent"]["cached"] == N
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in kept + again.err.encode()
    told = here("doctor")
    assert (
        "ok   cache: the Redis server of RM_GALLERY_CACHE" in told.out and PASSWORD not in told.out
    )
    assert here("cache", "stats").code == 2


def test_several_processes_share_it_too(redis: str, server: JudgeServer) -> None:
    samples = make_samples(N)
    for calls in (N, 0):
        ran = run(make_judge(server.base_url), samples, processes=2, cache=True)
        assert truth(ran.samples) == truth(samples) and ran.control.calls == calls


def test_a_server_that_goes_and_comes_back(server: JudgeServer, tmp_path: Path) -> None:
    server.set(latency=0.1)
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--max-workers", "6", "--log-level", "warning")
    with redis_server(tmp_path) as (url, port):
        going = started(*command(*arguments), cwd=tmp_path, RM_GALLERY_CACHE=url)
        process = going.__enter__()
        reached(server, process, lambda stats: stats["requests"] >= 20)
    reached(server, process, lambda stats: stats["requests"] >= 50)
    with redis_server(tmp_path, port):
        out, err = process.communicate(timeout=60)
    going.__exit__(None, None, None)
    assert json.loads(out)["n_scored"] == N and server.stats()["requests"] <= N + 6
    assert err.count("does not answer") == err.count("answers again") == 1 and PASSWORD not in err


def on_loop(question: Callable[[], Any]) -> Any:
    return loop.run(question())


def test_who_asked_and_died_is_followed(redis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rm_gallery.core.engine.calls.redis.LEAD_SECONDS", 0.3)

    async def story() -> list[Any]:
        dead, second, third = RedisShare(redis), RedisShare(redis), share(redis)
        assert await dead.lead("k") is None
        await dead.close()  # and says nothing more
        waiting = asyncio.gather(second.lead("k"), third.lead("k"), second.lead("other"))
        await asyncio.sleep(1.5)
        leader, follower = (second, third) if "k" in second._leading else (third, second)
        assert not waiting.done() and "k" not in follower._leading
        await leader.landed("k", b"reply")
        found = await waiting
        await second.landed("other", None)  # failed: the next one asks
        assert await third.lead("other") is None
        kept = await third.lead("k")
        await second.close()
        return [*found, kept]

    found = on_loop(story)
    assert sorted(map(str, found[:2])) == ["(b'reply', False)", "None"] and found[2:] == [
        None,
        (b"reply", True),
    ]


def test_one_rate_for_all(redis: str) -> None:
    async def story() -> tuple[float, list[str]]:
        shares = [RedisShare(redis), RedisShare(redis)]
        limits = [each.rate("endpoint") for each in shares]
        began = time.monotonic()
        for limit in limits:
            limit.set(requests_per_minute=1200)
        await asyncio.gather(*(limit.acquire(1) for limit in limits for _ in range(25)))
        requests = time.monotonic() - began
        order: list[str] = []

        async def again(name: str, tokens: Any) -> None:
            await tokens.acquire(60)
            order.append(name)

        settled, kept = shares[0].rate("settled"), shares[0].rate("kept")
        for limit in (settled, kept):
            limit.set(tokens_per_minute=6000)
            await limit.acquire(100)
        settled.settle(100, 10)  # 90 of a second's 100 come back
        await asyncio.sleep(0.05)
        await asyncio.gather(again("kept", kept), again("settled", settled))
        for each in shares:
            await each.close()
        return requests, order

    requests, order = on_loop(story)
    assert 1.4 <= requests, "20 at once, and 30 more at 20 a second"
    assert order == ["settled", "kept"], "without the 0.6 s that 60 tokens take"


def test_urls_that_cannot_be_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("redis", reason="redis-py is not installed")
    monkeypatch.setenv("RM_GALLERY_CACHE", "redis://:secret@localhost:many/x")
    with pytest.raises(ConfigError, match="no Redis URL") as caught:
        coordinator.shared()
    assert "secret" not in str(caught.value)
