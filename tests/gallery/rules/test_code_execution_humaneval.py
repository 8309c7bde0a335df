"""HumanEval problems through the reward: solutions pass, a wrong body does not, in any form an answer takes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd
import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.registry import RewardRegistry
from tests.sandbox.humaneval import own_problems
from tests.support.samples import make_sample, scores
from tests.support.shared_data import shared_file
from tests.support.system import require_bubblewrap

pytestmark = pytest.mark.system("bubblewrap")

PLACES = [0, 32, 38, 50, 79, 115, 163]
"""Among them problems whose prompt defines helpers that tests or solution use."""


def sample_of(row: dict[Hashable, Any], in_metadata: bool) -> DataSample:
    prompt, body = row["prompt"], row["canonical_solution"]
    answers = [body, f"```python\n{prompt}{body}```", "    return None\n", "```python\nfrom os import nothing\n```"]
    known = {"test": row["test"], "entry_point": row["entry_point"]}
    sample = make_sample(*answers, query=prompt, unique_id=row["task_id"])
    if in_metadata:
        sample.metadata = {**known, "prompt": prompt}
    for output in sample.output:
        output.answer.label = None if in_metadata else known
    return sample


def rows(own: bool) -> list[dict[Hashable, Any]]:
    if not own:
        return pd.read_parquet(shared_file("humaneval.parquet")).iloc[PLACES].to_dict("records")
    return [
        {
            "task_id": p.name,
            "prompt": p.tests.prompt,
            "canonical_solution": p.solution,
            "test": p.tests.test,
            "entry_point": p.tests.entry_point,
        }
        for p in own_problems()
    ]


@pytest.mark.parametrize("own", [True, False], ids=["written for the project", "HumanEval"])
@pytest.mark.parametrize("in_metadata", [True, False])
def test_solutions_pass_and_faults_fail(in_metadata: bool, own: bool) -> None:
    require_bubblewrap()
    samples = [sample_of(row, in_metadata) for row in rows(own)]
    scored = RewardRegistry.create("code_execution", timeout=5.0).evaluate_batch(samples)
    assert {sample.unique_id: scores(sample) for sample in scored} == {s.unique_id: [1, 1, 0, 0] for s in samples}
