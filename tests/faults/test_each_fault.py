"""Each way in which an endpoint fails, alone: what the samples end as, how often they were asked, and what is kept."""

from __future__ import annotations

import pytest

from tests.faults.material import Ran, make_judge, make_samples, quick_retries, run, truth
from tests.support.judge_server import Faults, JudgeServer

N = 6
ATTEMPTS = 3


ASKED_AGAIN = [
    ("rate_limit", "rate_limit"),
    ("server_error", "transient"),
    ("unavailable", "transient"),
    ("drop_before_reply", "transient"),
    ("drop_mid_body", "transient"),
    ("non_json", "transient"),
    ("missing_choices", "transient"),
    ("hang", "transient"),
    ("slow_drip", "transient"),
]


NO_VERDICT = [("null_content", "empty"), ("finish_length", "truncated"), ("finish_content_filter", "content_filter")]


def judged(server: JudgeServer, faults: Faults, **options: object) -> Ran:
    server.set(faults=faults)
    judge = make_judge(server.base_url, timeout=0.3)
    return run(judge, make_samples(N), retry=quick_retries(ATTEMPTS), cache=True, **options)


def always(fault: str) -> Faults:
    return Faults(**{fault: 1.0}, retry_after="ms", retry_after_s=0.02)  # type: ignore[arg-type]  # names of shares


@pytest.mark.parametrize(("fault", "reason"), ASKED_AGAIN)
def test_a_call_that_always_fails_uses_its_attempts_and_no_more(server: JudgeServer, fault: str, reason: str) -> None:
    ran = judged(server, always(fault))
    assert ran.outcomes == {("failed", reason): N}
    assert ran.scores == [[None] * 4] * N
    assert set(server.stats()["calls_by_body"].values()) == {ATTEMPTS}
    assert all("gave up after 3 attempts" in message for message in ran.messages)


@pytest.mark.parametrize("fault", [fault for fault, _ in ASKED_AGAIN])
def test_a_call_that_fails_once_is_made_once_more(server: JudgeServer, fault: str) -> None:
    faults = Faults(**{fault: 1.0}, retry_after="ms", retry_after_s=0.02, first_attempts=1)  # type: ignore[arg-type]
    ran = judged(server, faults)
    assert ran.scores == truth(ran.samples)
    assert ran.control.retries == N
    assert set(server.stats()["calls_by_body"].values()) == {2}


@pytest.mark.parametrize(("fault", "reason"), NO_VERDICT)
def test_a_reply_without_a_verdict_is_an_outcome_of_its_own_and_not_kept(
    server: JudgeServer, fault: str, reason: str
) -> None:
    ran = judged(server, always(fault))
    assert ran.outcomes == {("unscored", reason): N}
    assert ran.scores == [[None] * 4] * N
    assert set(server.stats()["calls_by_body"].values()) == {1}
    for asked, cached in ((N, 0), (0, N)):
        server.reset()
        again = judged(server, Faults())
        assert again.scores == truth(again.samples)
        assert (server.stats()["requests"], again.control.cached) == (asked, cached)


def test_nonsense_is_asked_about_once_more_and_then_unscored(server: JudgeServer) -> None:
    server.set(behaviour="fixed:Both have something to be said for them.")
    ran = judged(server, Faults())
    assert ran.outcomes == {("unscored", "parse"): N}
    stats = server.stats()
    assert (stats["requests"], stats["max_attempts"]) == (2 * N, 1), "the repair is another question, asked once"


def test_nonsense_that_is_repaired_is_scored(server: JudgeServer) -> None:
    server.set(behaviour=["no verdict"] * 1 + ["<best>1</best>"])
    ran = run(make_judge(server.base_url), make_samples(1), cache=False)
    assert ran.outcomes == {("scored", ""): 1}
    assert server.recent_requests(1)[0]["body"]["messages"][-2]["content"] == "no verdict"
