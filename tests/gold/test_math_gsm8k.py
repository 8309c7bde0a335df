"""On recorded GSM8K solutions: verdicts agree with the recorded labels, and the direct comparison with Math-Verify's."""

from __future__ import annotations

import pandas as pd

from rm_gallery.core.engine.workers.pool import WorkerPool
from rm_gallery.core.text.maths import MathVerdict, fast_verdict, verify_answer
from tests.support.shared_data import shared_file


def test_verdicts_agree_with_the_labels_and_both_ways_with_each_other() -> None:
    table = pd.read_parquet(shared_file("gsm8k_model_solutions.parquet"))
    pairs = list(zip(table["solution"], table["ground_truth"], strict=True))
    with WorkerPool(2) as pool:
        verdicts = pool.starmap(verify_answer, pairs, deadline=20)
    scored = [verdict for verdict in verdicts if isinstance(verdict, MathVerdict)]
    assert len(scored) == len(table)
    same = [(v.status == "correct") == label for v, label in zip(scored, table["is_correct"], strict=True)]
    assert sum(same) >= 0.999 * len(table)
    quick = [fast_verdict(*pair) for pair in pairs]
    assert [full for full, fast in zip(scored, quick, strict=True) if fast is not None and fast != full] == []
    assert sum(fast is not None for fast in quick) > 0.99 * len(table)
