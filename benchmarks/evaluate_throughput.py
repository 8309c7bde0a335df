"""CPU of `evaluate` per row beside that of the rule itself.

    python -m benchmarks.evaluate_throughput [--n 20000] [--reward length_baseline]

The floor calls the rule once for each of a row's two answers; what `evaluate` adds is reading the
rows, the official rule of the benchmark, its baselines and the statistics.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from rm_gallery import evaluate
from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.registry import RewardRegistry


def row(i: int) -> dict[str, Any]:
    """A prompt with two answers of a few sentences."""
    words = "It follows from what was said before, which is easy to see."
    return {
        "id": str(i),
        "prompt": f"Question {i}: what is {i} + {i % 7}?",
        "chosen": f"It is {i + i % 7}. {words}",
        "rejected": f"{words} So it is {i}.",
    }


def main() -> None:
    """Print both rates per CPU second and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--reward", default="length_baseline")
    options = parser.parse_args()
    rows = [row(i) for i in range(options.n)]
    evaluate(options.reward, rows[:100], progress=False)
    costs = []
    for _ in range(3):
        began = time.process_time()
        evaluate(options.reward, rows, progress=False)
        costs.append(time.process_time() - began)
    reward: Any = RewardRegistry.create(options.reward)
    samples = [
        DataSample(
            unique_id=line["id"],
            input=[ChatMessage(content=line["prompt"])],
            output=[DataOutput(answer=Step(role="assistant", content=line[side]))],
        )
        for line in rows
        for side in ("chosen", "rejected")
    ]
    floors = []
    for _ in range(3):
        began = time.process_time()
        for sample in samples:
            reward._evaluate(sample)
        floors.append(time.process_time() - began)
    cost, floor = (1e6 * min(each) / options.n for each in (costs, floors))
    print(f"{options.reward}: evaluate {cost:.1f} µs of CPU a row, the rule alone {floor:.1f} µs")
    print(f"ratio {cost / floor:.1f}")


if __name__ == "__main__":
    main()
