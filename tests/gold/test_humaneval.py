"""HumanEval in the sandbox: every canonical solution passes, and a body that does nothing fails."""

from __future__ import annotations

import pandas as pd
import pytest

from rm_gallery.core.sandbox.code_tests import HumanEvalTests
from rm_gallery.core.sandbox.process import SandboxLimits
from tests.sandbox.scoring import score_all
from tests.support.shared_data import shared_file
from tests.support.system import require_bubblewrap


@pytest.mark.system("bubblewrap")
def test_canonical_solutions_pass_and_an_empty_body_fails() -> None:
    runner, rows = require_bubblewrap(), pd.read_parquet(shared_file("humaneval.parquet")).to_dict("records")
    tests = [HumanEvalTests(row["test"], row["entry_point"], row["prompt"]) for row in rows]
    answers = [(row["canonical_solution"], each) for row, each in zip(rows, tests, strict=True)]
    answers += [("    return None\n", each) for each in tests]
    found = [report.score for report in score_all(runner, answers, limits=SandboxLimits(wall_seconds=8.0))]
    assert len(rows) == 164 and found == [1.0] * 164 + [0.0] * 164
