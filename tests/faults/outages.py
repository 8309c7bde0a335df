"""An endpoint that goes away in the middle of a run and comes back, for the outage table and its
tests.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from tests.faults.material import Ran, make_judge, make_samples, oracle_for, run
from tests.support.judge_server import Faults, JudgeServer

TROUBLES: dict[str, dict[str, Any]] = {
    "refuses connections": {}, "answers 503": {"always": 503, "retry_after": "none"}, "answers 500": {"always": 500},
    "answers 404": {"always": 404}, "answers 403": {"always": 403}, "drops connections": {"drop_before_reply": 1.0},
    "answers 429": {"rate_limit": 1.0, "retry_after": "none"},
    "answers 429, Retry-After 1": {"rate_limit": 1.0, "retry_after_s": 1.0},
    "Retry-After 3600 once": {"rate_limit": 1.0, "retry_after_s": 3600.0}, "never answers": {"hang": 1.0, "hang_s": 3600.0},
}  # fmt: skip


@dataclass(frozen=True)
class Outage:
    """A run through trouble beside its length: what it cost, what was lost, what was asked."""

    ran: Ran
    calls: int
    samples: int

    @property
    def lost(self) -> int:
        return self.samples - self.ran.outcomes["scored", ""]


def go_through(
    trouble: str,
    begin: float,
    length: float,
    *,
    samples: int,
    in_flight: int = 32,
    latency: float = 0.1,
    deadline: float | None = None,
    **llm: Any,
) -> Outage:
    """Judge samples while the endpoint is in trouble from `begin` for `length` seconds."""
    questions = make_samples(samples)
    with JudgeServer(latency=latency, oracle=oracle_for(questions)) as server:
        if trouble == "refuses connections":
            server.set(faults=Faults(outage_at_s=begin, outage_s=length))
            timers: list[threading.Timer] = []
        else:
            once = trouble.endswith("once")
            faults = Faults(**TROUBLES[trouble])
            timers = [
                threading.Timer(begin, lambda: server.set(faults=faults)),
                threading.Timer(
                    begin + (0.2 if once else length), lambda: server.set(faults=Faults())
                ),
            ]
        server.reset()
        for timer in timers:
            timer.daemon = True
            timer.start()
        judge = make_judge(server.base_url, **llm)
        try:
            ran = run(judge, questions, max_workers=in_flight, cache=False, deadline=deadline)
        finally:
            for timer in timers:
                timer.cancel()
        return Outage(ran, server.stats()["requests"], samples)
