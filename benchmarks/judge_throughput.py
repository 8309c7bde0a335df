"""Judged samples per second against a local server, beside a bare aiohttp loop (floor) and the
openai SDK (peer).

    python -m benchmarks.judge_throughput [--n 4000] [--in-flight 1 8 32 256 1024] [--latency-ms
    100] [--rounds 5]

What a judged sample costs is told as a multiple of a bare call: of each round a bare run stands
before and after the judged one, since a machine gets slower and quicker within a minute.

All clients send the very prompts the reward sends, over connections that are open already. Ours
runs with the cache of replies and the run folder on, which the others do not have. The server is a
process of its own; its CPU share and lateness show whether it was the limit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._floor import (
    LoopFigures,
    ServerLoad,
    bare_aiohttp_loop,
    openai_sdk,
    server_load,
    server_stats,
)
from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import RunOptions
from tests.support.judge_server import JudgeServer

WORDS = "the answer says first why it holds and then what follows from it for the case at hand "


def make_samples(n: int, offset: int) -> list[DataSample]:
    """Samples with four answers of about 400 characters; no two batches share a prompt."""
    return [
        DataSample(
            unique_id=f"{offset + i}",
            input=[ChatMessage(content=f"Question {offset + i}: what follows from this?")],
            output=[
                DataOutput(
                    answer=Step(
                        role="assistant", content=f"Answer {k} to {offset + i}: {WORDS * 4}"
                    )
                )
                for k in range(4)
            ],
        )
        for i in range(n)
    ]


def ours(
    reward: BaseReward, samples: list[DataSample], in_flight: int, url: str, folder: Path, name: str
) -> LoopFigures:
    """One batch through the engine."""
    before = server_stats(url)
    control = RunControl()
    cpu, wall = time.process_time(), time.perf_counter()
    scored = reward.evaluate_batch(
        samples,
        options=RunOptions(max_workers=in_flight, run_dir=str(folder), control=control),
    )
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    failed = sum(sample.output[0].answer.reward.score is None for sample in scored)
    n = len(samples)
    load = server_load(before, server_stats(url))
    return LoopFigures(name, n, failed, in_flight, wall, (n - failed) / wall, 1000 * cpu / n, load)


def row(figures: LoopFigures, floor: LoopFigures, latency: float) -> str:
    """One line of the table."""
    share = figures.samples_per_s / floor.samples_per_s
    return (
        f"{figures.name:34} {figures.samples_per_s:>9,.0f}/s {share:>8.0%} "
        f"{figures.share_of_ceiling(latency):>9.0%} {figures.cpu_ms_per_call:>9.3f} "
        f"{figures.failed:>7} {_server(figures.server)}"
    )


def _server(load: ServerLoad | None) -> str:
    return (
        "-"
        if load is None
        else f"{load.cpu_share:.0%} busy{'' if load.keeps_up else ' (the limit!)'}"
    )


def measure(server: Any, n: int, in_flight: int, latency: float, offset: int, rounds: int) -> None:
    """All clients at one concurrency, in the same run."""
    url = server.base_url
    llm = OpenaiLLM("judge", base_url=url)
    reward = RewardRegistry.create("safety_listwise_reward", llm=llm)
    shown = make_samples(min(n, 512), offset)
    bodies = [llm.payload(reward.format(sample)) for sample in shown]  # type: ignore[attr-defined]
    n_peer = min(n, 1500)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        ours(
            reward,
            make_samples(min(n, 2 * in_flight), offset),
            in_flight,
            url,
            folder / "warm",
            "warm",
        )

        def bare() -> LoopFigures:
            return bare_aiohttp_loop(url, n, in_flight, lambda i: bodies[i % len(bodies)])

        floor, ratios = bare(), list[float]()
        before = floor.cpu_ms_per_call
        for number in range(1, rounds + 1):
            samples = make_samples(n, offset + 1_000_000 * number)
            out = folder / f"round-{number}"
            first = ours(reward, samples, in_flight, url, out, "rm-gallery, cache and run folder")
            after = bare().cpu_ms_per_call
            ratios.append(2 * first.cpu_ms_per_call / (before + after))
            before = after
        again = ours(
            reward, samples, in_flight, url, folder / "second", "rm-gallery, all replies cached"
        )
        sdk = openai_sdk(url, n_peer, in_flight, lambda i: bodies[i % len(bodies)])
        sdk_aiohttp = openai_sdk(
            url, n_peer, in_flight, lambda i: bodies[i % len(bodies)], aiohttp_transport=True
        )
    print(
        f"\n{in_flight} in flight, {latency * 1000:.0f} ms latency, {n} samples; at most "
        f"{in_flight / latency:,.0f}/s"
    )
    print(
        f"{'client':34} {'samples':>11} {'of floor':>8} {'of limit':>9} {'CPU ms':>9} "
        f"{'failed':>7} server"
    )
    for figures in (floor, first, again, sdk, sdk_aiohttp):
        print(row(figures, floor, latency))
    print(
        f"CPU of a judged sample by that of a bare call: {statistics.median(ratios):.2f} (median of "
        f"{rounds}, {min(ratios):.2f} to {max(ratios):.2f})"
    )


def main() -> None:
    """Print the table for each concurrency."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=4000)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 8, 32, 256, 1024])
    parser.add_argument("--latency-ms", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["RM_GALLERY_CACHE"] = cache
        with JudgeServer("first", latency=options.latency_ms / 1000) as server:
            for index, in_flight in enumerate(options.in_flight):
                n = min(options.n, 20 * in_flight)
                offset = 100_000_000 * (index + 1)
                measure(server, n, in_flight, options.latency_ms / 1000, offset, options.rounds)


if __name__ == "__main__":
    main()
