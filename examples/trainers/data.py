"""The rows of questions.jsonl in the layout of a trainer.

python data.py TRAINER OUT
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
Layout = Callable[[dict[str, Any], int], dict[str, Any]]
QUESTIONS: Rows = [
    json.loads(line)
    for line in Path(__file__).with_name("questions.jsonl").read_text(encoding="utf-8").splitlines()
]


def rows_for(trainer: str) -> Rows:
    """The rows as a trainer reads them; KeyError for a trainer that has no layout here."""
    layout = _LAYOUTS[trainer]
    return [layout(row, place) for place, row in enumerate(QUESTIONS)]


def _chat(row: dict[str, Any]) -> list[dict[str, str]]:
    return [{"role": "user", "content": row["question"]}]


def _verl(row: dict[str, Any], place: int) -> dict[str, Any]:
    about = {"split": "train", "index": place, "question": row["question"]}
    truth = {"style": "rule", "ground_truth": row["answer"]}
    return {"data_source": "sums", "prompt": _chat(row), "ability": "math", "reward_model": truth, "extra_info": about}  # fmt: skip


def _skyrl(row: dict[str, Any], place: int) -> dict[str, Any]:
    spec = {"method": "rule", "ground_truth": row["answer"]}
    return {"data_source": "sums", "prompt": _chat(row), "env_class": "maths", "reward_spec": spec, "extra_info": {"index": place}}  # fmt: skip


_LAYOUTS: dict[str, Layout] = {
    "verl": _verl,
    "skyrl": _skyrl,
    "openrlhf": lambda row, _: {"prompt": _chat(row), "label": row["answer"]},
    "slime": lambda row, _: {"prompt": _chat(row), "label": row["answer"]},
    "nemo_rl": lambda row, _: {"input": row["question"], "output": row["answer"]},
    "areal": lambda row, _: {"messages": _chat(row), "answer": row["answer"]},
    "verifiers": lambda row, _: {"prompt": row["question"], "answer": row["answer"]},
}
PARQUET = ("verl", "skyrl")


def write(trainer: str, out: Path) -> Path:
    """Write the rows: a parquet file for verl and SkyRL, json lines for the others."""
    rows = rows_for(trainer)
    if trainer in PARQUET:
        import pandas as pd

        pd.DataFrame(rows).to_parquet(out, index=False)
    else:
        lines = [json.dumps(row) + "\n" for row in rows]
        out.write_text("".join(lines), encoding="utf-8")
    return out


if __name__ == "__main__":
    print(write(sys.argv[1], Path(sys.argv[2])))
