"""Everything goes wrong at once: every sample ends scored or with a reason, and what is scored is what it always was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.material import SHARES, make_judge, make_samples, oracle_for, quick_retries, run, truth
from tests.support.judge_server import Faults, JudgeServer

RETRY_AFTER = {"retry_after": "ms", "retry_after_s": 0.05}
EVENTS = {
    "no event": {},
    "stall, then outage": {"stall_at_s": 0.1, "stall_s": 1.0, "outage_at_s": 1.5, "outage_s": 1.0},
}
N = 200
ATTEMPTS = 6


@pytest.fixture(scope="module")
def judge_process() -> Iterator[JudgeServer]:
    with JudgeServer("perfect", oracle=oracle_for(make_samples(N)), latency=0.02) as running:
        yield running


@pytest.mark.parametrize("event", EVENTS)
def test_a_run_through_everything(judge_process: JudgeServer, tmp_path: Path, event: str) -> None:
    server, samples = judge_process, make_samples(N)
    server.set(faults=Faults(**SHARES, **RETRY_AFTER, **EVENTS[event]))  # type: ignore[arg-type]  # fields of Faults
    server.reset()
    judge = make_judge(server.base_url, timeout=0.6)
    ran = run(judge, samples, retry=quick_retries(ATTEMPTS), max_workers=48, cache=False, run_dir=str(tmp_path / "run"))
    stats = server.stats()

    assert not ran.outcomes["lost", ""]
    assert sum(ran.outcomes.values()) == N
    assert {status for status, _ in ran.outcomes} <= {"scored", "unscored", "failed"}
    assert {reason for status, reason in ran.outcomes if status == "unscored"} <= {"parse", "empty"}
    assert ran.outcomes["scored", ""] >= 0.9 * N
    right = [(found, known) for found, known in zip(ran.scores, truth(samples), strict=True) if None not in found]
    assert all(found == known for found, known in right), "a verdict does not depend on what went wrong on the way"
    # while the endpoint is down or refuses everybody an attempt counts less than one
    assert max(stats["calls_by_body"].values()) <= 2 * ATTEMPTS
    assert stats["in_flight"] == 0
    assert set(SHARES) <= set(stats["by_fault"]), "the server did all of it"

    server.set(faults=Faults())
    server.reset()
    again = run(judge, samples, max_workers=48, cache=False, run_dir=str(tmp_path / "run"))
    failed = sum(count for (status, _), count in ran.outcomes.items() if status == "failed")
    assert server.stats()["requests"] == failed, "what failed is asked again, and nothing else"
    assert {status for status, _ in again.outcomes} <= {"scored", "unscored"}
    assert again.outcomes["scored", ""] == ran.outcomes["scored", ""] + failed
