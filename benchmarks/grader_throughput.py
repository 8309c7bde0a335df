"""Graded rows per second against a local server, beside a bare aiohttp loop that sends the same
prompts; and rule graders.

python -m benchmarks.grader_throughput [--n 2000] [--in-flight 256] [--latency-ms 100]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

from benchmarks._floor import bare_aiohttp_loop
from rm_gallery.core.graders.base import FunctionGrader
from rm_gallery.core.graders.common import (
    CorrectnessGrader,
    HallucinationGrader,
    HarmfulnessGrader,
    InstructionFollowingGrader,
    RelevanceGrader,
)
from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.runner.grading_runner import GradingRunner
from tests.support.judge_server import JudgeServer

WORDS = "the answer says first why it holds and then what follows from it for the case at hand "
GRADERS = (
    RelevanceGrader,
    CorrectnessGrader,
    HallucinationGrader,
    HarmfulnessGrader,
    InstructionFollowingGrader,
)


def rows(n: int, offset: int) -> list[dict[str, str]]:
    """Rows with a response of about 400 characters; no two batches share a prompt."""
    return [
        {
            "query": f"Question {offset + i}: what follows?",
            "instruction": f"Say in one sentence what follows from {offset + i}.",
            "response": f"Answer to {offset + i}: {WORDS * 4}",
            "reference_response": f"What follows from {offset + i}.",
        }
        for i in range(n)
    ]


def judged(url: str, n: int, in_flight: int, graders: int, offset: int) -> None:
    """One line: `graders` judged graders over n rows, and the floor of as many calls."""
    llm = OpenaiLLM("judge", base_url=url)
    configs = {kind.rubric: kind(model=llm) for kind in GRADERS[:graders]}
    runner = GradingRunner(configs, max_concurrency=in_flight, show_progress=False)
    runner.run(rows(max(1, 2 * in_flight // graders), offset))
    data = rows(n, offset + 1_000_000)
    first = next(iter(configs.values()))
    bodies = [
        llm.payload(first.messages(**{k: v for k, v in row.items() if k in first.inputs}))
        for row in data[:512]
    ]
    floor = bare_aiohttp_loop(url, n * graders, in_flight, lambda i: bodies[i % len(bodies)])
    cpu, wall = time.process_time(), time.perf_counter()
    found = runner.run(data)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    calls = n * graders
    bad = sum(not result.ok for column in found.values() for result in column)
    share = calls / wall / floor.samples_per_s
    print(
        f"{graders} judged grader(s), {n} rows, {in_flight} in flight: {calls / wall:,.0f} "
        f"calls/s, floor {floor.samples_per_s:,.0f}/s, {share:.0%}; {1000 * cpu / calls:.3f} ms "
        f"CPU a call; {bad} without a score"
    )


def overlap(query: str, response: str) -> float:
    """A trivial rule."""
    return float(query[:8] in response)


def rules(n: int) -> None:
    """One line: a rule grader over n rows beside a plain loop."""
    data = rows(n, 0)
    runner = GradingRunner({"overlap": FunctionGrader(overlap)}, show_progress=False)
    runner.run(data[:2000])
    began = time.perf_counter()
    for row in data:
        overlap(row["query"], row["response"])
    floor = time.perf_counter() - began
    began = time.perf_counter()
    runner.run(data)
    took = time.perf_counter() - began
    print(
        f"1 rule grader, {n:,} rows: {n / took:,.0f} rows/s; a plain loop over the function "
        f"{n / floor:,.0f}/s"
    )


def main() -> None:
    """Print a line per setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=4000)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--latency-ms", type=float, default=100.0)
    options: Any = parser.parse_args()
    rules(40_000)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["RM_GALLERY_CACHE"] = cache
        with JudgeServer(
            "fixed:<reason>It does.</reason><score>4</score>", latency=options.latency_ms / 1000
        ) as server:
            for number, graders in enumerate((1, 5)):
                judged(
                    server.base_url,
                    options.n // graders,
                    options.in_flight,
                    graders,
                    10_000_000 * (number + 1),
                )


if __name__ == "__main__":
    main()
