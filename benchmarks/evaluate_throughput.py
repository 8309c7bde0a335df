"""CPU of `evaluate` over pairs, a row, beside the rule alone on its two answers.

    python -m benchmarks.evaluate_throughput [--n 20000]

The floor calls `_evaluate` once an answer in a plain loop: reading rows, scoring by the official
rule and the statistics of the report are on top of it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ChatMessage, MessageRole
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.study.benchmark import evaluate


def pair(i: int) -> dict[str, Any]:
    """A row of preference data."""
    return {"prompt": f"2+{i}?", "chosen": f"It is {i + 2}, of course.", "rejected": str(i % 7)}


def single(text: str) -> DataSample:
    """A sample with this answer alone, as the rule sees it."""
    answer = Step(role=MessageRole.ASSISTANT, content=text)
    return DataSample(input=[ChatMessage(content="q")], output=[DataOutput(answer=answer)])


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of the best of three."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def main() -> None:
    """Print microseconds a row, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=20_000)
    options = parser.parse_args()
    os.environ["RM_GALLERY_CACHE"] = "off"
    rows = [pair(i) for i in range(options.n)]
    answers = [single(row[side]) for row in rows for side in ("chosen", "rejected")]
    name = "length_baseline"
    reward: Any = RewardRegistry.get(name)()
    floor = cpu(lambda: [reward._evaluate(answer) for answer in answers])
    whole = cpu(lambda: evaluate(name, rows, progress=False))
    micro = 1e6 / options.n
    print(
        f"{name}: evaluate {whole * micro:.1f} µs a row, the rule alone {floor * micro:.1f} µs: "
        f"{whole / floor:.1f} times"
    )


if __name__ == "__main__":
    main()
