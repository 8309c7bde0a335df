"""Benchmark files for tests of the command line, a few rows each."""

from __future__ import annotations

from pathlib import Path

from tests.data.loading import Row, write


def best_of_4(path: Path, count: int = 12) -> Path:
    """A RewardBench 2 file with two subsets; the right answer is the longest in every second row."""
    rows: list[Row] = [
        {
            "id": f"r{k}",
            "prompt": f"question {k}",
            "chosen": [f"right {k}" + " and long" * (k % 2)],
            "rejected": [f"wrong {k}, {n} but longish" for n in range(3)],
            "subset": "Math" if k < count // 2 else "Focus",
        }
        for k in range(count)
    ]
    for row in rows:
        if int(row["id"][1:]) % 2:
            row["rejected"] = [text[:7] for text in row["rejected"]]
    return write(path, rows)
