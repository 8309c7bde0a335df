"""One run in one process and on a local Ray cluster, beside what the machine gives several processes
that have nothing to do with one another.

    python -m benchmarks.ray_local [--actors 2] [--judged 50000] [--rule 10000]

The judge is a process of its own on the same machine, in C where a compiler is installed, and needs
its share of it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks._judge import light_judge
from benchmarks.rule_throughput import GSM_TEXT
from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.engine.ray import connected
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.model.openai_llm import OpenaiLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from tests.support.children import ROOT
from tests.support.judge_server import JudgeServer

IN_FLIGHT = 512
SAID = "fixed:<reason>so</reason><score>3</score>"


def spin(seconds: float) -> None:
    """Count for so much processor time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def machine(processes: int) -> float:
    """How much more than one process so many get done on this machine."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.map(spin, [0.1] * processes, chunksize=1)
        began = time.perf_counter()
        pool.map(spin, [2.0] * processes, chunksize=1)
        return 2.0 * processes / (time.perf_counter() - began)


def sample(number: int, times: int = 1) -> DataSample:
    """One sample with one answer of `times` GSM8K solutions."""
    texts = [GSM_TEXT.format(number % 7, turn, number) for turn in range(times)]
    answer = Step(content=" ".join(texts), label={"reference": " ".join(reversed(texts))})
    return DataSample(
        unique_id=str(number),
        input=[ChatMessage(content=f"q {number}")],
        output=[DataOutput(answer=answer)],
    )


def rate(reward: BaseReward, samples: list[DataSample], actors: int | None) -> float:
    """Samples a second, without what it takes to begin the actors."""
    options: dict[str, Any] = {} if actors is None else {"engine": "ray", "processes": actors}
    seconds = []
    few, many = samples[:IN_FLIGHT], samples[IN_FLIGHT:]
    for part in (few, many):
        began = time.perf_counter()
        scored = reward.evaluate_batch(part, max_workers=IN_FLIGHT, progress=False, **options)
        seconds.append(time.perf_counter() - began)
        assert all(each.output[0].answer.reward.score is not None for each in scored)
    return (len(many) - len(few)) / (seconds[1] - seconds[0])


def compare(
    title: str, make: Callable[[], BaseReward], samples: list[DataSample], actors: int
) -> None:
    """Print the rates of one process and of several actors, and their ratio."""
    one, several = (rate(make(), samples, n) for n in (None, actors))
    print(f"{title:28} {one:>10,.0f}/s {several:>10,.0f}/s {several / one:>8.2f} x")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--judged", type=int, default=50_000)
    parser.add_argument("--rule", type=int, default=10_000)
    options = parser.parse_args()
    os.environ["RM_GALLERY_CACHE"] = tempfile.mkdtemp()
    os.environ["PYTHONPATH"] = str(ROOT)
    actors = options.actors
    print(f"{'':28} {'1 process':>12} {f'{actors} actors':>12}")
    print(f"{'counting, side by side':28} {'':>12} {'':>12} {machine(actors):>8.2f} x")
    began = time.perf_counter()
    connected(None, "the benchmark")
    print(f"a cluster of this machine begins in {time.perf_counter() - began:.1f} s")
    rows = [sample(number, 20) for number in range(options.rule)]
    compare("bleu, 700 words a text", lambda: RewardRegistry.get("bleu")(), rows, actors)
    with (
        light_judge(SAID.removeprefix("fixed:"), 100) as url,
        JudgeServer(SAID, latency=0.1) as server,
    ):
        llm = OpenaiLLM("judge-1", base_url=url or server.base_url, cache=False)
        rows = [sample(number) for number in range(options.judged)]
        reward = RewardRegistry.create("chat_pointwise_reward", llm=llm)
        compare(f"judged, {IN_FLIGHT} in flight", lambda: reward, rows, actors)


if __name__ == "__main__":
    main()
