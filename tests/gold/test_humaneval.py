"""HumanEval problems through the reward: solutions pass, a wrong body does not, in any form an answer takes."""

from __future__ import annotations

import pandas as pd
import pytest

from rm_gallery.core.reward.registry import RewardRegistry
from tests.support.samples import make_sample, scores
from tests.support.shared_data import shared_file
from tests.support.system import require_bubblewrap

PLACES = [0, 32, 38, 50, 79, 115, 163]
"""Among them problems whose prompt defines helpers that tests or solution use."""


@pytest.mark.system("bubblewrap")
@pytest.mark.parametrize("in_metadata", [True, False])
def test_solutions_pass_and_faults_fail(in_metadata: bool) -> None:
    require_bubblewrap()
    samples = []
    for row in pd.read_parquet(shared_file("humaneval.parquet")).iloc[PLACES].to_dict("records"):
        prompt, body = row["prompt"], row["canonical_solution"]
        answers = [body, f"```python\n{prompt}{body}```", "    return None\n", "```python\nfrom os import nothing\n```"]
        known = {"test": row["test"], "entry_point": row["entry_point"]}
        sample = make_sample(*answers, query=prompt, metadata={**known, "prompt": prompt} if in_metadata else None)
        for output in sample.output:
            output.answer.label = None if in_metadata else known
        samples.append(sample)
    scored = RewardRegistry.create("code_execution", timeout=5.0).evaluate_batch(samples)
    assert [scores(sample) for sample in scored] == [[1, 1, 0, 0]] * len(PLACES)
