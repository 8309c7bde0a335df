"""What a run makes of an endpoint that fails in every way, alone and together.

    python -m benchmarks.fault_matrix [--n 2000] [--in-flight 128] [--latency-ms 50] [--only NAME …]

Every row judges the same samples with the library's own patience and compares them with the
fault-free run. `equal` counts the scored samples whose scores are those of that run, `most` is the
largest number of attempts any request needed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

from rm_gallery.core.reward.reward import BaseReward
from tests.faults.material import SHARES, Ran, make_judge, make_samples, oracle_for, run
from tests.support.judge_server import Faults, JudgeServer

ATTEMPT_SECONDS = 5.0
STALL: dict[str, Any] = {"stall_at_s": 3.0, "stall_s": 8.0}
OUTAGE: dict[str, Any] = {"outage_at_s": 15.0, "outage_s": 10.0}
ROWS: dict[str, dict[str, Any]] = {
    "20 % 429 with Retry-After": {"rate_limit": 0.20},
    "10 % 500": {"server_error": 0.10},
    "5 % dropped connections": {"drop_before_reply": 0.03, "drop_mid_body": 0.02},
    "5 % nonsense": {"nonsense": 0.05},
    "2 % hang for a minute": {"hang": 0.02},
    "a stall of 8 s": {"stall_at_s": 0.5, "stall_s": 8.0},
    "an outage of 10 s": {"outage_at_s": 0.5, "outage_s": 10.0},
    "5 % bodies without JSON": {"non_json": 0.05},
    "5 % without choices": {"missing_choices": 0.05},
    "5 % empty": {"null_content": 0.05},
    "5 % cut at the token limit": {"finish_length": 0.05},
    "5 % filtered": {"finish_content_filter": 0.05},
    "everything at once": {**SHARES, **STALL, **OUTAGE},
}
HEADING = (
    f"{'faults':28} {'wall s':>8} {'scored':>7} {'unscored':>9} {'failed':>7} {'equal':>7} "
    f"{'requests':>9} {'most':>5}"
)


def row(name: str, ran: Ran, clean: Ran, stats: dict[str, Any]) -> str:
    """One line of the table."""
    by_status = {
        status: sum(count for (found, _), count in ran.outcomes.items() if found == status)
        for status in ("scored", "unscored", "failed")
    }
    if sum(by_status.values()) != len(clean.samples):
        raise SystemExit(
            f"{name}: {len(clean.samples) - sum(by_status.values())} samples have neither score "
            f"nor reason"
        )
    equal = sum(a == b for a, b in zip(ran.scores, clean.scores, strict=True) if None not in a)
    counts = " ".join(
        f"{by_status[status]:>{width}}"
        for status, width in (("scored", 7), ("unscored", 9), ("failed", 7))
    )
    most = max(stats["calls_by_body"].values())
    return f"{name:28} {ran.seconds:>8.1f} {counts} {equal:>7} {stats['requests']:>9} {most:>5}"


def judged(
    server: JudgeServer, judge: BaseReward, samples: list[Any], faults: Faults, in_flight: int
) -> Ran:
    """One run against these faults."""
    server.set(faults=faults)
    server.reset()
    return run(judge, samples, max_workers=in_flight, cache=False)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=128)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS))
    options = parser.parse_args()
    samples = make_samples(options.n)
    oracle = oracle_for(samples)
    print(
        f"{options.n} samples, {options.in_flight} in flight, {ATTEMPT_SECONDS:g} s per "
        f"attempt\n{HEADING}"
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RM_GALLERY_CACHE"] = folder
        clean: Ran | None = None
        for name in ["no faults", *options.only]:
            # a server of its own per row: what was learned about one endpoint must not help or
            # hinder at the next
            with JudgeServer("perfect", oracle=oracle, latency=options.latency_ms / 1000) as server:
                judge = make_judge(server.base_url, timeout=ATTEMPT_SECONDS)
                ran = judged(
                    server, judge, samples, Faults(**ROWS.get(name, {})), options.in_flight
                )
                clean = clean or ran
                print(row(name, ran, clean, server.stats()), flush=True)


if __name__ == "__main__":
    main()
