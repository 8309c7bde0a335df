"""How much of the engine's throughput a benchmark keeps: rule, baselines, run folder and
`samples.jsonl` beside the bare batch.

    python -m benchmarks.bench_throughput [--n 2000] [--in-flight 256] [--latency-ms 100] [--rounds
    3]

All judge the same kind of samples with the same reward through a local server, with the cache on:
`evaluate_batch` without a folder and with one (the engine), and `evaluate` with one (rule, both length
baselines, intervals, `samples.jsonl`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.run import RunOptions
from rm_gallery.study.benchmark import evaluate
from tests.support.judge_server import JudgeServer

WORDS = "the answer says first why it holds and then what follows from it for the case at hand "


def make_samples(n: int, offset: int) -> list[DataSample]:
    """Labelled samples with four answers of about 400 characters; no two rounds share a prompt."""

    def answer(sample: int, place: int) -> DataOutput:
        label = {"preference": "rejected" if place else "chosen"}
        return DataOutput(
            answer=Step(role="assistant", content=f"{place} to {sample}: {WORDS * 4}", label=label)
        )

    return [
        DataSample(
            unique_id=str(k),
            input=[ChatMessage(content=f"Question {k}: what follows from this?")],
            output=[answer(k, place) for place in range(4)],
            metadata={"subset": f"part {k % 6}"},
        )
        for k in range(offset, offset + n)
    ]


def main() -> None:
    """Print both figures of each round, and the share."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--latency-ms", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    found: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as temporary,
        JudgeServer("first", latency=chosen.latency_ms / 1000) as server,
    ):
        os.environ["RM_GALLERY_CACHE"] = str(Path(temporary) / "cache")
        reward = RewardRegistry.create(
            "safety_listwise_reward",
            llm=OpenaiLLM("judge", base_url=server.base_url),
            max_workers=chosen.in_flight,
        )
        reward.evaluate_batch(
            make_samples(2 * chosen.in_flight, 10**8),
            options=RunOptions(max_workers=chosen.in_flight),
        )
        print(
            f"{chosen.n} samples, {chosen.in_flight} in flight, {chosen.latency_ms:.0f} ms latency"
        )
        for number in range(3 * chosen.rounds):
            name = ("engine", "engine with a run folder", "bench")[number % 3]
            samples = make_samples(chosen.n, number * 10**6)
            folder = None if name == "engine" else str(Path(temporary) / f"run-{number}")
            cpu, begun = time.process_time(), time.perf_counter()
            if name == "bench":
                evaluate(
                    reward, samples, "preferences", run_dir=folder, max_workers=chosen.in_flight
                )
            else:
                reward.evaluate_batch(
                    samples, options=RunOptions(max_workers=chosen.in_flight, run_dir=folder)
                )
            pace, used = (
                chosen.n / (time.perf_counter() - begun),
                1000 * (time.process_time() - cpu) / chosen.n,
            )
            found.setdefault(name, []).append(pace)
            print(f"{name:26} {pace:>7,.0f}/s {used:>8.2f} ms CPU a sample")
    for name in ("engine", "engine with a run folder"):
        shares = [bench / engine for bench, engine in zip(found["bench"], found[name], strict=True)]
        print(
            f"bench keeps of {name}: {statistics.median(shares):.0%} (median of {len(shares)} "
            f"rounds)"
        )


if __name__ == "__main__":
    main()
