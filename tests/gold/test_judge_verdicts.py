"""Recorded replies of real judges, who were asked in other forms: what they wrote is prose, and never a verdict."""

from __future__ import annotations

from collections import Counter

import pyarrow.parquet as pq
import pytest

from tests.golden.test_readers import verdict
from tests.support.shared_data import shared_file

RECORDED = {
    "as it is": ("{}", None, 0.0),
    "reason first": ("<reason>{}</reason>\n<best>2</best>", 2, 0.0),
    "verdict first": ("<best>2</best>\n<reason>{}</reason>", 2, 0.0),
    "prose first": ("{}\n\n<best>2</best>", 2, 0.005),
    "prose after": ("<best>2</best>\n\n{}", 2, 0.005),
    "after reasoning": ("<think>{}</think>\n<best>2</best>", 2, 0.0),
    "after reasoning the template opened": ("{}\n</think>\n\n<best>2</best>", 2, 0.005),
    "reasoning that never ends": ("<think>{} <best>2</best>", None, 0.0),
}


@pytest.mark.parametrize("form", RECORDED)
def test_nothing_is_invented_and_hardly_anything_lost(form: str) -> None:
    layout, expected, lost = RECORDED[form]
    texts = {
        text
        for name in ("judgebench_judge_outputs", "llmbar_judge_outputs")
        for text in pq.read_table(shared_file(f"{name}.parquet"), columns=["raw_text"]).column(0).to_pylist()
        if text
    }
    readings = Counter(verdict("best of 4", layout.replace("{}", text)) for text in sorted(texts)[::3])
    assert set(readings) <= {expected, None}
    assert (readings[None] if expected else 0) <= lost * readings.total()
