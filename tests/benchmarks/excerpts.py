"""A few rows in the layout of every benchmark, written for the project: those of the golden files,
and makers of more.
"""

from __future__ import annotations

from typing import Any

from tests.golden.golden import HERE, lines

Row = dict[str, Any]
SHORT, MIDDLE, LONG = "No.", "No, it is not.", "No, it is not, and here is at length why."


def rewardbench(number: int, subset: str, chosen: str, rejected: str) -> Row:
    """A row of RewardBench 1."""
    models = {"chosen_model": "a", "rejected_model": "b"}
    return {
        "id": number,
        "prompt": f"q{number}",
        "chosen": chosen,
        "rejected": rejected,
        "subset": subset,
        **models,
    }


def rewardbench2(name: str, subset: str, chosen: list[str], rejected: list[str]) -> Row:
    """A row of RewardBench 2."""
    counts = {"num_correct": len(chosen), "num_incorrect": len(rejected), "total_completions": 4}
    return {
        "id": name,
        "prompt": f"q {name}",
        "chosen": chosen,
        "rejected": rejected,
        "subset": subset,
        **counts,
    }


def rows_of(name: str, excerpt: bool = False) -> list[Row]:
    """The plain rows of a benchmark's golden file, those without a `case`; or its excerpt, a few
    with figures done by hand.
    """
    found = [line for _, line in lines(HERE / "converters" / f"{name}.jsonl")]
    return [
        line["row"] for line in found if (line.get("excerpt") if excerpt else "case" not in line)
    ]


EXCERPTS: dict[str, list[Row]] = {
    path.stem: rows
    for path in sorted((HERE / "converters").glob("*.jsonl"))
    if (rows := rows_of(path.stem, excerpt=True))
}
"""By benchmark; the id of an RM-Bench row is counted from 0 in each of its files."""
