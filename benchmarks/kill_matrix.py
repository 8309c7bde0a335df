"""`kill -9` at random moments of a run, the same command again each time, and what that cost.

    python -m benchmarks.kill_matrix [--n 2000] [--kills 50] [--in-flight 32] [--latency-ms 50]
    [--seed 0]

Four of five kills come while calls are in flight, the fifth at any moment since the start of the
process. Exits with 1 when a sample is missing or double, or when more was paid than the samples and
what was in flight at the kills.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.material import eval_arguments, make_samples, oracle_for, records, write_data
from tests.faults.processes import command, group_ended, started
from tests.support.children import run_command
from tests.support.judge_server import JudgeServer

START_SECONDS = 0.9


def kill_at(
    arguments: list[str], server: JudgeServer, cwd: Path, moment: random.Random, requests: int
) -> bool:
    """Start the command and kill it at a random moment; False when it was quicker."""
    seen = server.stats(detail=False)["requests"]
    with started(
        *command(*arguments), cwd=cwd, RM_GALLERY_CACHE=os.environ["RM_GALLERY_CACHE"]
    ) as process:
        if moment.random() < 0.2:
            time.sleep(moment.uniform(0.0, START_SECONDS))
        else:
            wanted = seen + moment.randint(1, requests)
            while process.poll() is None and server.stats(detail=False)["requests"] < wanted:
                time.sleep(0.002)
        if process.poll() is not None:
            return False
        process.send_signal(signal.SIGKILL)
        process.wait()
        group_ended(process.pid)
    server.wait_until(lambda stats: stats["in_flight"] == 0 and stats["connections_open"] == 0)
    return True


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    moment = random.Random(options.seed)
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as temporary,
        JudgeServer(
            "perfect", oracle=oracle_for(make_samples(options.n)), latency=options.latency_ms / 1000
        ) as server,
    ):
        cwd = Path(temporary)
        os.environ["RM_GALLERY_CACHE"] = str(cwd / "cache")
        data, folder = write_data(cwd / "data.jsonl", options.n), cwd / "run"
        results = folder / "results.jsonl"
        arguments = eval_arguments(data, server, folder, "--max-workers", str(options.in_flight))
        kills = 0
        for left in range(options.kills, 0, -1):
            done = results.read_bytes().count(b"\n") if results.exists() else 0
            # spread over the whole run with some samples left at the end; what is in flight is
            # asked again each time
            per_kill = options.in_flight + 2 * (options.n - done) // (left + 10)
            kills += kill_at(arguments, server, cwd, moment, per_kill)
        killed = time.perf_counter() - began
        finished = run_command(*arguments, cwd=cwd)
        result = json.loads(finished.stdout) if finished.returncode == 0 else {}
        lines = Counter(record["id"] for record in records(folder))
        stats = server.stats()
    bound = options.n + kills * options.in_flight
    whole = len(lines) == options.n == result.get("n_scored") and result.get("score") == 1.0
    once = set(lines.values()) == {1}
    print(
        f"samples                     {options.n:>7}   scored {result.get('n_scored')}, score "
        f"{result.get('score')}"
    )
    print(
        f"kills                       {kills:>7}   in {killed:.0f} s; "
        f"{time.perf_counter() - began:.0f} s in all"
    )
    print(f"lines in results            {sum(lines.values()):>7}   {len(lines)} different ids")
    print(
        f"requests at the server      {stats['requests']:>7}   bound {bound} (samples + "
        f"{options.in_flight} per kill)"
    )
    extra = stats["requests"] - options.n
    print(f"requests beyond the samples {extra:>7}   most per sample: {stats['max_attempts']}")
    print(f"  unanswered at a kill      {stats['client_closed']:>7}")
    print(
        f"  answered and not kept     {extra - stats['client_closed']:>7}   "
        f"{(extra - stats['client_closed']) / max(1, kills):.2f} per kill"
    )
    return 0 if whole and once and stats["requests"] <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
