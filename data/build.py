"""Writes ``data/train.parquet`` and ``data/test.parquet``: a split in the schema of RewardBench 2,
built from hand-written sources.

``python data/build.py`` writes both files; with ``--check`` it rebuilds them in memory and fails if
the files differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

if not __package__:
    # Started as a script, from anywhere, "data.builders" is found only with the folder above on the
    # path.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from data.builders import (
    balance,
    factuality,
    focus,
    math_problems,
    precise_if,
    report,
    safety,
    ties,
)
from data.builders.common import BEST_OF_4, SPLITS, Draft, Draw
from data.builders.report import Row

ROOT = Path(__file__).resolve().parent
_TEXTS = pa.list_(pa.field("element", pa.string()))
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("prompt", pa.string()),
        ("chosen", _TEXTS),
        ("rejected", _TEXTS),
        ("num_correct", pa.int64()),
        ("num_incorrect", pa.int64()),
        ("total_completions", pa.int64()),
        ("models", _TEXTS),
        ("subset", pa.string()),
        (
            "additional_metadata",
            pa.struct(
                [
                    ("category", pa.string()),
                    ("correct", pa.string()),
                    ("index", pa.float64()),
                    ("instruction_id_list", _TEXTS),
                    ("label", pa.string()),
                    ("method", pa.string()),
                    ("models", _TEXTS),
                    ("prompt_norm", pa.string()),
                    ("subcategory", pa.string()),
                    ("valid", pa.float64()),
                ]
            ),
        ),
    ]
)
BUILDERS = {
    "Factuality": factuality.drafts,
    "Precise IF": precise_if.drafts,
    "Math": math_problems.drafts,
    "Safety": safety.drafts,
    "Focus": focus.drafts,
    "Ties": ties.drafts,
}


def _row(draft: Draft, picked: balance.Picked, subset: str, split: str, index: int) -> Row:
    chosen, rejected = picked
    return {
        "id": draft.row_id or f"{subset.lower().replace(' ', '-')}-{split}-{index:03d}",
        "prompt": draft.prompt,
        "chosen": list(chosen),
        "rejected": list(rejected),
        "num_correct": len(chosen),
        "num_incorrect": len(rejected),
        "total_completions": len(chosen) + len(rejected),
        "models": [candidate.kind for candidate in (*draft.chosen, *draft.rejected)],
        "subset": subset,
        "additional_metadata": {
            "category": draft.category,
            "correct": draft.correct,
            "index": float(index),
            "instruction_id_list": list(draft.rules) or None,
            "label": draft.label,
            "method": draft.method,
            "models": None,
            "prompt_norm": None,
            "subcategory": draft.subcategory,
            "valid": None,
        },
    }


def build_rows() -> dict[str, list[Row]]:
    """Return the rows of both splits, by subset in the order of RewardBench 2; the same on every
    run and machine.
    """
    rows: dict[str, list[Row]] = {split: [] for split in SPLITS}
    for subset, build in BUILDERS.items():
        for split, made in build().items():
            draw = Draw("order", subset, split)
            # The builders make wrong answers kind by kind; the place in the list must not tell the
            # kind.
            drafts = [
                replace(draft, rejected=tuple(draw.shuffled(draft.rejected))) for draft in made
            ]
            if subset in BEST_OF_4:
                picked = balance.settle(drafts, Draw("settle", subset, split))
            else:
                picked = [balance.only_texts(draft) for draft in drafts]
            rows[split] += [
                _row(draft, texts, subset, split, index)
                for index, (draft, texts) in enumerate(zip(drafts, picked, strict=True))
            ]
    return rows


def build_tables() -> dict[str, pa.Table]:
    """Return the tables of both splits in the schema of RewardBench 2."""
    return {
        split: pa.Table.from_pylist(rows, schema=SCHEMA) for split, rows in build_rows().items()
    }


def differences(tables: dict[str, pa.Table], folder: Path = ROOT) -> list[str]:
    """Return a line for every file that is missing or whose schema or rows differ from the given
    tables.
    """
    found = []
    for split, table in tables.items():
        path = folder / f"{split}.parquet"
        if not path.exists():
            found.append(f"{path.name} is missing; run python data/build.py")
            continue
        stored = pq.read_table(path)
        if not stored.schema.equals(table.schema) or stored.to_pylist() != table.to_pylist():
            found.append(
                f"{path.name} differs from what data/build.py makes; run python data/build.py"
            )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the files and print the summary; returns 0, or 1 when a check finds a
    difference.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--check", action="store_true", help="rebuild in memory and fail if the files differ"
    )
    options = parser.parse_args(arguments)
    tables = build_tables()
    if options.check:
        found = differences(tables)
        print("\n".join(found) if found else "train.parquet and test.parquet are up to date")
        return 1 if found else 0
    for split, table in tables.items():
        pq.write_table(table, ROOT / f"{split}.parquet", compression="zstd")
        print(f"\n{split}.parquet: {table.num_rows} rows\n")
        print("\n".join(report.summary(table.to_pylist())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
