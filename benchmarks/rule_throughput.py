"""Rule rewards per second, and the memory of a stream of a million rows.

    python -m benchmarks.rule_throughput [--n 100000] [--rows 1000000] [--gsm8k FILE]

The floor calls `_evaluate` in a plain loop: what is lost to it is the engine's cost. `--gsm8k`
takes a parquet file with the columns solution, ground_truth and is_correct.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ChatMessage, MessageRole
from rm_gallery.core.reward.registry import RewardRegistry

GSM_TEXT = (
    "Natalia sold 48/2 = 24 clips in May. Altogether she sold 48+24 = 72 clips in April and May, "
    "which is {} more than the {} that her friend sold in the same two months.\n#### {}"
)


def make_sample(i: int) -> DataSample:
    """One sample with one short answer and a reference."""
    answer = Step(role=MessageRole.ASSISTANT, content=str(i % 7), label={"reference": "3"})
    return DataSample(
        unique_id=str(i), input=[ChatMessage(content="q")], output=[DataOutput(answer=answer)]
    )


def make_text_sample(i: int) -> DataSample:
    """One sample whose answer and reference have the size of a GSM8K solution."""
    label = {"reference": GSM_TEXT.format(i % 13, i % 11, i % 17)}
    answer = Step(
        role=MessageRole.ASSISTANT, content=GSM_TEXT.format(i % 7, i % 5, i % 3), label=label
    )
    return DataSample(
        unique_id=str(i), input=[ChatMessage(content="q")], output=[DataOutput(answer=answer)]
    )


def throughput(name: str, samples: list[DataSample], max_workers: int = 8) -> None:
    """Print the reward's rate through `evaluate_batch` and a plain loop, each the best of three, and
    what share of the loop's rate per CPU second is left.
    """
    reward: Any = RewardRegistry.get(name)()
    best, cpu = float("inf"), float("inf")
    for _ in range(3):
        began, began_cpu = time.perf_counter(), time.process_time()
        scored = reward.evaluate_batch(samples, max_workers=max_workers, progress=False)
        best = min(best, time.perf_counter() - began)
        cpu = min(cpu, time.process_time() - began_cpu)
    assert all(sample.output[0].answer.reward.score is not None for sample in scored)
    floor = float("inf")
    for _ in range(3):
        began_cpu = time.process_time()
        for sample in samples:
            reward._evaluate(sample)
        floor = min(floor, time.process_time() - began_cpu)
    n = len(samples)
    rates = f"{n / best:>12,.0f}/s {n / cpu:>14,.0f}/s {n / floor:>12,.0f}/s"
    print(f"{name:20} {rates} {floor / cpu:>7.0%}")


def rows(n: int, marks: list[tuple[int, float]]) -> Iterator[DataSample]:
    """A generated stream that notes the peak memory as it goes."""
    for i in range(n):
        if i % max(1, n // 10) == 0:
            marks.append((i, peak_mb()))
        yield make_sample(i)


def peak_mb() -> float:
    """Peak resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def stream_memory(n: int) -> None:
    """Print rate and peak memory of a generated stream."""
    marks: list[tuple[int, float]] = []
    began = time.perf_counter()
    count = sum(1 for _ in RewardRegistry.get("accuracy")().evaluate_stream(rows(n, marks)))
    seconds = time.perf_counter() - began
    half = next(peak for at, peak in marks if at >= n // 2)
    print(
        f"\nstream of {count:,} rows: {count / seconds:,.0f}/s, peak {peak_mb():.0f} MB, ", end=""
    )
    print(f"second half grew by {peak_mb() - half:.1f} MB")


def gsm8k(path: Path) -> None:
    """Print rate and agreement of `math_verify_reward` on recorded solutions, with and without the
    direct comparison.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(path).to_pylist()
    samples = [
        DataSample(
            unique_id=str(i),
            input=[ChatMessage(content=row["question"])],
            output=[
                DataOutput(
                    answer=Step(
                        role=MessageRole.ASSISTANT,
                        content=row["solution"],
                        label={"reference": row["ground_truth"]},
                    )
                )
            ],
        )
        for i, row in enumerate(table)
    ]
    for in_process in (False, True):
        reward = RewardRegistry.get("math_verify_reward")(in_process=in_process)
        began = time.perf_counter()
        scored = reward.evaluate_batch(samples, max_workers=64, progress=False)
        rate = len(samples) / (time.perf_counter() - began)
        right = sum(
            (s.output[0].answer.reward.score == 1.0) == r["is_correct"]
            for s, r in zip(scored, table, strict=True)
        )
        way = "plain numbers directly" if in_process else "all in worker processes"
        print(
            f"math_verify_reward, {way}: {rate:,.0f}/s, agrees on {right / len(table):.2%} of "
            f"{len(table)}"
        )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--gsm8k", type=Path)
    options = parser.parse_args()
    if options.rows:  # first, so that the other figures' memory does not hide this one's
        stream_memory(options.rows)
    print(
        f"\n{'reward':20} {'per second':>14} {'per CPU second':>16} {'plain loop':>14} {'share':>7}"
    )
    samples = [make_sample(i) for i in range(options.n)]
    for name in ("accuracy", "length_baseline"):
        throughput(name, samples)
    texts = [make_text_sample(i) for i in range(options.n // 4)]
    for name in ("f1_score", "rouge"):
        if name in RewardRegistry.list():
            throughput(name, texts)
    if options.gsm8k is not None:
        gsm8k(options.gsm8k)


if __name__ == "__main__":
    main()
