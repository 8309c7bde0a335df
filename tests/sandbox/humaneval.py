"""HumanEval problems as code tests."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from rm_gallery.core.sandbox.code_tests import HumanEvalTests
from tests.support.shared_data import shared_file


@dataclass(frozen=True)
class Problem:
    name: str
    solution: str
    tests: HumanEvalTests


def problems() -> list[Problem]:
    """All 164 problems; skips the test where the file is absent."""
    table = pd.read_parquet(shared_file("humaneval.parquet"))
    return [
        Problem(
            row["task_id"], row["canonical_solution"], HumanEvalTests(row["test"], row["entry_point"], row["prompt"])
        )
        for row in table.to_dict("records")
    ]
