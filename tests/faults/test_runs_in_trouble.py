"""What an endpoint may do to a run: each fault alone, all at once, an outage, a refusal of
everything; what is scored stays right.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rm_gallery.core.model import client, limits, transport
from tests.faults.material import (
    SHARES,
    Ran,
    make_judge,
    make_samples,
    oracle_for,
    quick_retries,
    run,
    truth,
)
from tests.faults.outages import go_through
from tests.support.judge_server import Faults, JudgeServer, judge_fixture

FEW = 6
ATTEMPTS = 3
SERVERS_FAULT = (
    "server_error unavailable drop_before_reply drop_mid_body non_json missing_choices hang "
    "slow_drip"
)
ASKED_AGAIN = [
    ("rate_limit", "rate_limit"),
    *((fault, "transient") for fault in SERVERS_FAULT.split()),
]
NO_VERDICT = [
    ("null_content", "empty"),
    ("finish_length", "truncated"),
    ("finish_content_filter", "content_filter"),
]


def judged(server: JudgeServer, faults: Faults, **options: object) -> Ran:
    server.set(faults=faults)
    judge = make_judge(server.base_url, timeout=0.3)
    return run(judge, make_samples(FEW), retry=quick_retries(ATTEMPTS), cache=True, **options)


def always(fault: str, **more: object) -> Faults:
    return Faults(**{fault: 1.0}, retry_after="ms", retry_after_s=0.02, **more)  # type: ignore[arg-type]  # names of shares


@pytest.mark.parametrize(("fault", "reason"), ASKED_AGAIN)
def test_a_failed_call_is_made_again_and_uses_its_attempts_and_no_more(
    server: JudgeServer, fault: str, reason: str
) -> None:
    ran = judged(server, always(fault))
    assert (ran.outcomes, ran.scores) == ({("failed", reason): FEW}, [[None] * 4] * FEW)
    assert set(server.stats()["calls_by_body"].values()) == {ATTEMPTS}
    assert all("gave up after 3 attempts" in message for message in ran.messages)
    server.reset()
    ran = judged(server, always(fault, first_attempts=1))
    assert (ran.scores, ran.control.retries) == (truth(ran.samples), FEW)
    assert set(server.stats()["calls_by_body"].values()) == {2}


@pytest.mark.parametrize(("fault", "reason"), NO_VERDICT)
def test_a_reply_without_a_verdict_is_an_outcome_of_its_own_and_not_kept(
    server: JudgeServer, fault: str, reason: str
) -> None:
    ran = judged(server, always(fault))
    assert ran.outcomes == {("unscored", reason): FEW} and ran.scores == [[None] * 4] * FEW
    assert max(server.stats()["calls_by_body"].values()) == (2 if reason == "empty" else 1)
    for asked, cached in ((FEW, 0), (0, FEW)):
        server.reset()
        again = judged(server, Faults())
        assert again.scores == truth(again.samples) and (
            server.stats()["requests"],
            again.control.cached,
        ) == (asked, cached)


RETRY_AFTER = {"retry_after": "ms", "retry_after_s": 0.05}
EVENTS = {
    "no event": {},
    "stall, then outage": {"stall_at_s": 0.1, "stall_s": 1.0, "outage_at_s": 1.5, "outage_s": 1.0},
}
N = 200
PATIENCE = 6


judge_process = judge_fixture("perfect", oracle=oracle_for(make_samples(N)), latency=0.02)


@pytest.mark.long("a run in trouble")
@pytest.mark.parametrize("event", EVENTS)
def test_a_run_through_everything(judge_process: JudgeServer, tmp_path: Path, event: str) -> None:
    server, samples = judge_process, make_samples(N)
    server.set(faults=Faults(**SHARES, **RETRY_AFTER, **EVENTS[event]))  # type: ignore[arg-type]  # fields of Faults
    server.reset()
    judge = make_judge(server.base_url, timeout=0.6)
    ran = run(
        judge,
        samples,
        retry=quick_retries(PATIENCE),
        max_workers=48,
        cache=False,
        run_dir=str(tmp_path / "run"),
    )
    stats = server.stats()

    assert not ran.outcomes["lost", ""] and sum(ran.outcomes.values()) == N
    assert {status for status, _ in ran.outcomes} <= {"scored", "unscored", "failed"}
    assert {reason for status, reason in ran.outcomes if status == "unscored"} <= {"parse", "empty"}
    assert ran.outcomes["scored", ""] >= 0.9 * N
    right = [
        (found, known)
        for found, known in zip(ran.scores, truth(samples), strict=True)
        if None not in found
    ]
    assert all(found == known for found, known in right), (
        "a verdict does not depend on what went wrong on the way"
    )
    # while the endpoint is down or refuses everybody an attempt counts less than one
    assert max(stats["calls_by_body"].values()) <= 2 * PATIENCE and stats["in_flight"] == 0
    assert set(SHARES) <= set(stats["by_fault"]), "the server did all of it"

    server.set(faults=Faults())
    server.reset()
    again = run(judge, samples, max_workers=48, cache=False, run_dir=str(tmp_path / "run"))
    owed = sum(
        count
        for (status, reason), count in ran.outcomes.items()
        if status == "failed" or reason == "empty"
    )
    assert server.stats()["requests"] == owed, (
        "what failed or came back empty is asked again, and nothing else"
    )
    assert {status for status, _ in again.outcomes} <= {"scored", "unscored"}
    assert again.outcomes["scored", ""] == ran.outcomes["scored", ""] + owed


IN_FLIGHT, LATENCY = 32, 0.1


@pytest.mark.long("a run in trouble")
@pytest.mark.parametrize(
    "trouble",
    ["refuses connections", "answers 503", "answers 404", "drops connections", "answers 429"],
)
def test_an_outage_costs_its_length_and_no_sample(trouble: str) -> None:
    found = go_through(trouble, 0.2, 0.7, samples=200, in_flight=IN_FLIGHT, latency=LATENCY)
    assert found.lost == 0 and found.ran.control.stopped is None
    assert found.calls <= 200 + 3 * IN_FLIGHT


def test_dead_for_good_stops_with_one_message_and_can_be_continued() -> None:
    found = go_through(
        "refuses connections", 0.3, 60.0, samples=320, in_flight=IN_FLIGHT, max_outage=1.5
    )
    assert "has been down for" in str(found.ran.control.stopped) and "max_outage=1.5" in str(
        found.ran.control.stopped
    )
    assert set(found.ran.outcomes) == {("scored", ""), ("failed", "stopped")}


def test_one_and_the_same_refusal_of_different_requests_stops_and_can_be_continued() -> None:
    found = go_through("answers 403", 0.3, 60.0, samples=320, in_flight=8)
    assert "the last 20 calls all failed" in str(found.ran.control.stopped)
    assert (
        found.ran.outcomes["failed", "fatal"] <= 20 + 8
        and found.ran.outcomes["failed", "stopped"] > 200
    )


@pytest.mark.long("a run in trouble")
def test_a_server_that_never_answered_stops_after_the_first_deadline() -> None:
    found = go_through("never answers", 0.0, 60.0, samples=320, in_flight=IN_FLIGHT, deadline=1.0)
    assert "No answer" in str(found.ran.control.stopped) and found.calls <= 2 * IN_FLIGHT


@pytest.mark.long("a run in trouble")
def test_a_long_retry_after_costs_no_more_than_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (limits, client):
        monkeypatch.setattr(module, "PAUSE_CAP", 2.0)  # 60 s
    found = go_through(
        "Retry-After 3600 once", 0.2, 0.0, samples=1200, in_flight=IN_FLIGHT, latency=0.01
    )
    assert found.lost == 0 and found.ran.seconds > 2.0, "an hour would be over this test's limit"


MANY = 400
LIMIT = 20


@pytest.mark.long("a run in trouble")
@pytest.mark.parametrize("max_workers", [4, 64])
@pytest.mark.parametrize(
    ("status", "hint"), [(401, "check the API key"), (404, "check the model name and the base URL")]
)
def test_twenty_refusals_end_a_run(
    server: JudgeServer, status: int, hint: str, max_workers: int
) -> None:
    server.set(faults=Faults(always=status))
    ran = run(make_judge(server.base_url), make_samples(MANY), max_workers=max_workers, cache=False)
    assert hint in str(ran.control.stopped) and f"the first {LIMIT} calls all failed" in str(
        ran.control.stopped
    )
    assert server.stats()["requests"] <= LIMIT + max_workers
    fatal, stopped = ran.outcomes["failed", "fatal"], ran.outcomes["failed", "stopped"]
    assert fatal + stopped == MANY and LIMIT <= fatal <= LIMIT + max_workers
    assert server.stats()["max_attempts"] == 1


def test_an_endpoint_that_is_not_there_fails() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        ran = run(make_judge(url), make_samples(MANY), max_workers=32, cache=False)
    assert set(ran.outcomes) == {("failed", "unreachable"), ("failed", "stopped")}
    assert f"Cannot connect to {url}" in str(ran.control.stopped)


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


def test_a_host_that_swallows_connections_counts_as_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "CONNECT_SECONDS", 0.2)
    with full_listener() as url:
        ran = run(make_judge(url), make_samples(2), retry=quick_retries(), cache=False)
    assert ran.outcomes == {("failed", "unreachable"): 2}
    assert all("does not take the connection" in message for message in ran.messages)
