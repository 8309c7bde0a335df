"""`math_verify_reward` agrees with the recorded labels of model solutions, in a batch and past an answer that explodes."""

from __future__ import annotations

import pyarrow.parquet as pq

from rm_gallery.core.reward.registry import RewardRegistry
from tests.support.samples import issues, make_sample, scores
from tests.support.shared_data import shared_file


def test_recorded_labels_are_reproduced_whatever_stands_between_them() -> None:
    rows = pq.read_table(shared_file("gsm8k_model_solutions.parquet")).to_pylist()
    samples = [
        make_sample(r["solution"], query=r["question"], unique_id=str(i), reference=r["ground_truth"])
        for i, r in enumerate(rows)
    ]
    samples.append(make_sample(r"\boxed{9^{9^{9^{9}}}}", unique_id="exploding", reference="18"))
    *scored, exploded = RewardRegistry.create("math_verify_reward", timeout=2.5).evaluate_batch(samples, max_workers=32)
    assert (scores(exploded), issues(exploded)) == ([0.0], [])
    found = [scores(sample) == [float(row["is_correct"])] for sample, row in zip(scored, rows, strict=True)]
    assert len(found) >= 2638 and sum(found) / len(found) >= 0.999
