"""One sample at a time, as trainers and servers call: 32 threads and 32 tasks beside the batch of
the same reward.

    python -m benchmarks.single_sample [--n 20000] [--latency 0.03]

Rules: samples per second in all. Judged: share of the batch's rate with as many judgements in
flight, the judge answering after `--latency` seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.rule_throughput import make_sample
from rm_gallery import DataSample, FakeLLM, RewardRegistry
from rm_gallery.core.reward.reward import BaseReward

CALLERS = 32


def rate(n: int, call: Callable[[], object]) -> float:
    """Samples per second, the best of three."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - began)
    return n / best


def tasks(reward: BaseReward, samples: list[DataSample]) -> None:
    """Score every sample with `async_evaluate` in 32 tasks of one event loop."""

    async def main() -> None:
        left = iter(samples)

        async def caller() -> None:
            for sample in left:
                await reward.async_evaluate(sample)

        await asyncio.gather(*(caller() for _ in range(CALLERS)))

    asyncio.run(main())


def measure(name: str, reward: BaseReward, samples: list[DataSample]) -> None:
    """Print one row."""
    n = len(samples)
    batch = rate(n, lambda: reward.evaluate_batch(samples, max_workers=CALLERS, progress=False))
    with ThreadPoolExecutor(CALLERS) as pool:
        threads = rate(n, lambda: list(pool.map(reward.evaluate, samples)))
    tasked = rate(n, lambda: tasks(reward, samples))
    print(
        f"{name:12} {batch:>10,.0f}/s {threads:>10,.0f}/s {threads / batch:>6.0%} "
        f"{tasked:>10,.0f}/s {tasked / batch:>6.0%}"
    )


def main() -> None:
    """Print both rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--latency", type=float, default=0.03)
    options = parser.parse_args()
    print(f"{'':12} {'batch':>12} {'32 threads':>12} {'share':>6} {'32 tasks':>12} {'share':>6}")
    measure("rule", RewardRegistry.get("accuracy")(), [make_sample(i) for i in range(options.n)])
    judge = FakeLLM(reply="<reason>x</reason><score>1</score>", latency=options.latency)
    judged = RewardRegistry.get("base_honesty_pointwise")(llm=judge)
    measure("judged", judged, [make_sample(i) for i in range(max(CALLERS, options.n // 20))])


if __name__ == "__main__":
    main()
