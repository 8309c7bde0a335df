"""Published data: HumanEval's solutions pass, GSM8K's are scored as labelled, and the embedded
model is good on unseen prompts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rm_gallery import MessageRole, create_loader
from rm_gallery.core.engine.pool import WorkerPool
from rm_gallery.core.sandbox.code_test_spec import CodeTests, HumanEvalTests, SuiteTests
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.test_source import cases_in
from rm_gallery.core.text.maths import fast_verdict, verify_answer
from rm_gallery.train.bradley_terry import held_out_keys, prompt_key, train_bradley_terry
from tests.sandbox.scoring import score_all
from tests.support.shared_data import shared_file
from tests.support.system import require_bubblewrap


def as_file(row: dict[Any, Any], form: str) -> CodeTests:
    """The tests of a problem as a test file of pytest or unittest."""
    call = {"pytest": "def test_it():\n    check({})", "unittest": _UNITTEST}[form].format(
        row["entry_point"]
    )
    return SuiteTests(
        f"{row['test']}\n{call}\n", cases_in(call), "", row["prompt"], row["entry_point"]
    )


_UNITTEST = (
    "import unittest\nclass Case(unittest.TestCase):\n    def test_it(self):\n        check({})"
)


@pytest.mark.system("bubblewrap")
@pytest.mark.parametrize("form", ["check", "pytest", "unittest"])
def test_canonical_solutions_pass_and_an_empty_body_fails(form: str) -> None:
    runner, rows = (
        require_bubblewrap(),
        pd.read_parquet(shared_file("humaneval.parquet")).to_dict("records"),
    )
    tests: list[CodeTests] = [
        HumanEvalTests(row["test"], row["entry_point"], row["prompt"])
        if form == "check"
        else as_file(row, form)
        for row in rows
    ]
    answers = [(row["canonical_solution"], each) for row, each in zip(rows, tests, strict=True)]
    answers += [("    return None\n", each) for each in tests[::4]]
    found = [
        report.score
        for report in score_all(runner, answers, limits=SandboxLimits(wall_seconds=8.0))
    ]
    assert len(rows) == 164 and found == [1.0] * 164 + [0.0] * 41


def test_verdicts_agree_with_the_labels_and_both_ways_with_each_other() -> None:
    table = pd.read_parquet(shared_file("gsm8k_model_solutions.parquet")).iloc[::3]
    pairs = list(zip(table["solution"], table["ground_truth"], strict=True))
    with WorkerPool(2) as pool:
        asked = [pool.submit(verify_answer, *pair, deadline=20) for pair in pairs]
        scored = [verdict.result() for verdict in asked]
    same = [
        (v.status == "correct") == label
        for v, label in zip(scored, table["is_correct"], strict=True)
    ]
    assert sum(same) >= 0.999 * len(table)
    quick = [fast_verdict(*pair) for pair in pairs]
    assert [
        full for full, fast in zip(scored, quick, strict=True) if fast is not None and fast != full
    ] == []
    assert sum(fast is not None for fast in quick) > 0.99 * len(table)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "name", "subset", "least"),
    [
        ("hh_rlhf", "hh_rlhf_harmless_test", None, 0.63),
        ("rmbbenchmark_pairwise", "rmb_pairwise", "Helpfulness", 0.67),
    ],
)
def test_it_beats_length_on_unseen_prompts(
    source: str, name: str, subset: str | None, least: float, tmp_path: Path
) -> None:
    loader = create_loader(name, "local", source, {"path": str(shared_file(f"{name}.parquet"))})
    samples = [
        s for s in loader.stream() if subset is None or (s.metadata or {}).get("subset") == subset
    ]
    held = train_bradley_terry(samples, tmp_path).held_out
    assert (held["model"].accuracy or 0) >= least
    assert (held["model"].accuracy or 0) > max(
        held[rule].accuracy or 0 for rule in ("longest", "shortest")
    ) + 0.03
    spoken = [
        (prompt_key(s), next(m.text for m in s.input if m.role == MessageRole.USER))
        for s in samples
    ]
    unseen = held_out_keys([key for key, _ in spoken], 0.2, 0)
    sides = [
        {text.strip().lower() for key, text in spoken if (key in unseen) is side}
        for side in (True, False)
    ]
    assert all(sides) and not sides[0] & sides[1], "no opening is on both sides"
