"""A run that cannot succeed stops after its first twenty calls, with one message that says what to do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rm_gallery.core.model import transport
from rm_gallery.core.model.fake import FakeLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.utils.errors import ProviderError
from tests.faults.material import REWARD, make_judge, make_samples, quick_retries, run
from tests.support.judge_server import Faults, JudgeServer

N = 400
LIMIT = 20


@pytest.mark.parametrize("max_workers", [4, 64])
@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "check the API key"),
        (404, "check the model name and the base URL"),
    ],
)
def test_twenty_refusals_end_a_run(server: JudgeServer, status: int, hint: str, max_workers: int) -> None:
    server.set(faults=Faults(always=status))
    ran = run(make_judge(server.base_url), make_samples(N), max_workers=max_workers, cache=False)
    assert ran.control.stopped is not None
    assert hint in ran.control.stopped
    assert f"the first {LIMIT} calls all failed" in ran.control.stopped
    assert server.stats()["requests"] <= LIMIT + max_workers
    fatal, stopped = ran.outcomes["failed", "fatal"], ran.outcomes["failed", "stopped"]
    assert fatal + stopped == N
    assert LIMIT <= fatal <= LIMIT + max_workers
    assert server.stats()["max_attempts"] == 1


def test_a_run_that_had_one_good_reply_goes_on() -> None:
    def mostly_refused(question: str) -> str:
        if "plus 5" in question and " 21 plus" in question:
            return "<best>1</best>"
        raise ProviderError("not for you", kind="fatal", status=403)

    judge = RewardRegistry.create(REWARD, llm=FakeLLM(reply=mostly_refused))
    ran = run(judge, make_samples(60), max_workers=1)
    assert ran.control.stopped is None
    assert ran.outcomes == {("scored", ""): 1, ("failed", "fatal"): 59}


def test_an_endpoint_that_is_not_there_fails() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        ran = run(make_judge(url), make_samples(N), max_workers=32, cache=False)
    assert set(ran.outcomes) == {("failed", "unreachable"), ("failed", "stopped")}
    assert ran.control.stopped is not None
    assert f"Cannot connect to {url}" in ran.control.stopped


@contextmanager
def full_listener() -> Iterator[str]:
    """A port whose queue of connections is full: the system answers no further attempt to connect."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(8):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        for filler in fillers:
            filler.close()


def test_a_host_that_swallows_connections_counts_as_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CONNECT_SECONDS", 0.2)
    with full_listener() as url:
        ran = run(make_judge(url), make_samples(2), retry=quick_retries(), cache=False)
    assert ran.outcomes == {("failed", "unreachable"): 2}
    assert all("does not take the connection" in message for message in ran.messages)
