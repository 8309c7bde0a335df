"""I5: a benchmark is found by its own columns, and what cannot be told is an error, never another rule."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import rm_gallery.gallery.benchmarks as package
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.gallery.benchmarks import base
from rm_gallery.gallery.benchmarks.base import Benchmark, benchmarks, detect_benchmark, get_benchmark
from tests.benchmarks.excerpts import EXCERPTS, Row
from tests.support.command import command


def changed(name: str, without: tuple[str, ...] = (), **more: Any) -> Row:
    return {key: value for key, value in {**EXCERPTS[name][0], **more}.items() if key not in without}


RM_MODELS = ("chosen_model", "rejected_model")
THREE = ["a", "b", "c"]
FOUND: list[tuple[str, Row, str]] = [
    *((f"the layout of {name}", rows[0], name) for name, rows in EXCERPTS.items()),
    (
        "RM-Bench's safety files name no domain",
        changed("rm_bench", ("domain",), subset="xstest-should-refuse"),
        "rm_bench",
    ),
    ("RM-Bench's other files neither", changed("rm_bench", ("domain",), subset="math-prm"), "rm_bench"),
    ("RewardBench 1 by a subset of its own", changed("rewardbench", RM_MODELS), "rewardbench"),
    ("pairs with subsets of one's own", changed("rewardbench", RM_MODELS, subset="mine"), "preferences"),
    ("RewardBench 2 by a subset of its own", changed("rewardbench2", ("num_correct",)), "rewardbench2"),
    (
        "RewardBench 2 with three right and three wrong",
        changed("rewardbench2", chosen=THREE, rejected=THREE),
        "rewardbench2",
    ),
    ("lists with subsets of one's own", changed("rewardbench2", ("num_correct",), subset="mine"), "preferences"),
    ("three and three of one's own", {"prompt": "q", "chosen": THREE, "rejected": THREE}, "preferences"),
    ("pairs without ids", {"prompt": "q", "chosen": "a", "rejected": "b"}, "preferences"),
    ("transcripts of one's own under a prompt", {**EXCERPTS["hh_rlhf"][0], "prompt": "q"}, "preferences"),
]


@pytest.mark.parametrize(("row", "name"), [(row, name) for _, row, name in FOUND], ids=[why for why, _, _ in FOUND])
@pytest.mark.parametrize("as_text", [False, True])
def test_i5_found_by_its_own_columns(row: Row, name: str, as_text: bool) -> None:
    """Where a file knows only text (CSV), lists and objects are JSON in the cell."""
    cells = {k: json.dumps(v) if as_text and isinstance(v, (list, dict)) else v for k, v in row.items()}
    assert detect_benchmark(cells, untyped=as_text).name == name


NOT_FOUND: list[Row] = [
    {},
    {"input": "q", "output_1": "a", "output_2": "b", "label": 3},
    {"input": "q", "targets": ["a", "b"]},
    changed("auto_j", label="first"),
    {"prompt": "q", "response": "a", "reference": "b"},
    {"messages": [{"role": "user", "content": "q"}]},
    {"chosen": "a", "rejected": "b"},
    changed("judgebench", label="A=B"),
]


@pytest.mark.parametrize("row", NOT_FOUND, ids=lambda row: ",".join(row) or "nothing")
def test_i5_none_is_an_error_with_the_columns_found(row: Row) -> None:
    with pytest.raises(DataError) as caught:
        detect_benchmark(row, "my.parquet")
    assert f"my.parquet: no benchmark format fits the columns {sorted(row)}" in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "step"),
    [
        (["prompt", "chossen", "rejected"], "Rename 'chossen' to 'chosen'."),
        (["Prompt", "Chosen", "Rejected"], "Rename 'Chosen' to 'chosen', 'Rejected' to 'rejected'."),
        (["prompt;chosen;rejected"], "stand behind ';': save the file with commas"),
        (["prompt", "answer", "reference"], "reward.evaluate_batch(create_loader("),
        (["prompt", "model_a", "model_b"], "--format or benchmark=, one of '"),
    ],
)
def test_the_next_step_fits_the_columns_that_were_found(columns: list[str], step: str) -> None:
    with pytest.raises(DataError) as caught:
        detect_benchmark(dict.fromkeys(columns, "a"), "my.csv")
    assert step in str(caught.value)


def test_i5_two_that_fit_are_an_error_with_both_names() -> None:
    row = {**EXCERPTS["judgebench"][0], **EXCERPTS["rmbbenchmark_pairwise"][0]}
    with pytest.raises(DataError, match=r"fits judgebench and rmbbenchmark_pairwise; say which it is with --format"):
        detect_benchmark(row)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("allenai/reward-bench-2", "rewardbench2"),
        ("reward_bench", "rewardbench"),
        ("THU-KEG/RM-Bench", "rm_bench"),
        ("Anthropic/hh-rlhf", "hh_rlhf"),
        ("JudgeBench", "judgebench"),
        ("rmb_bon", "rmbbenchmark_bestofn"),
        ("*", "preferences"),
    ],
)
def test_names(name: str, found: str) -> None:
    assert get_benchmark(name).name == found


@pytest.mark.parametrize("name", ["rewardbnch2", "judgebenhc", "", "rewardbench3"])
def test_i5_an_unknown_name_is_an_error_with_the_nearest(name: str) -> None:
    with pytest.raises(ConfigError, match=f"There is no benchmark '{name}'"):
        get_benchmark(name)


def test_converted_rows_keep_styles_labels_and_categories() -> None:
    def first(name: str) -> Any:
        benchmark: Benchmark = get_benchmark(name)
        return benchmark.convert(EXCERPTS[name][0])

    rm_bench = first("rm_bench")
    assert (rm_bench.unique_id, rm_bench.metadata["subset"]) == ("chat:0", "chat")
    assert rm_bench.metadata["styles"] == ["concise", "detailed plain text", "detailed markdown"] * 2
    assert [o.answer.label["preference"] for o in rm_bench.output] == ["chosen"] * 3 + ["rejected"] * 3
    judgebench: Any = get_benchmark("judgebench").convert(EXCERPTS["judgebench"][1])
    assert [o.answer.label["preference"] for o in judgebench.output] == ["rejected", "chosen"]
    assert (judgebench.metadata["subset"], judgebench.metadata["category"]) == ("mmlu-pro", "mmlu-pro-math")
    listed = first("rmbbenchmark_bestofn")
    assert (len(listed.output), listed.metadata["subset"], listed.metadata["category"]) == (3, "Helpfulness", "Chat")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("rm_bench", {"chosen": ["a", "b"]}, "column 'chosen': expected three styles"),
        ("judgebench", {"label": "A=B"}, "column 'label': expected 'A>B' or 'B>A'"),
        ("rmbbenchmark_bestofn", {"loser_list": []}, "column 'loser_list': expected a list of one or more answers"),
        ("rmbbenchmark_bestofn", {"loser_list": [{"llm_name": "x"}]}, r"column 'loser_list\[1\]': expected an object"),
    ],
)
def test_a_row_that_does_not_fit_is_named(name: str, change: Row, message: str) -> None:
    with pytest.raises(DataError, match=message):
        get_benchmark(name).convert(changed(name, **change))


NEW = '''
"""Thumbs: answers with a thumb up or down."""

from collections.abc import Mapping
from typing import Any

from rm_gallery.core.data.load.fields import RowRef, preference_outputs, text
from rm_gallery.core.data.schema import DataSample
import rm_gallery.gallery.benchmarks as package
from rm_gallery.gallery.benchmarks import base
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark
from rm_gallery.gallery.benchmarks.rules import PooledScorer, Scorer, strict_pairs


class Thumbs(Benchmark):
    """Strict pairs."""

    name = "thumbs"
    source, licence, version = "here", "CC0", "1"

    def detect(self, columns: Mapping[str, Any]) -> bool:
        return {"asked", "thumb_up", "thumb_down"} <= columns.keys()

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        outputs = preference_outputs([text(row, "thumb_up", where)], [text(row, "thumb_down", where)])
        return DataSample.model_validate({"input": [{"content": text(row, "asked", where)}], "output": outputs})

    def scorer(self, seed: int = 0) -> Scorer:
        return PooledScorer(strict_pairs())
'''


def test_h2_a_new_benchmark_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found, converted, judged and reported without a list to edit, in Python and on the command line."""
    (tmp_path / "thumbs.py").write_text(NEW, encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    monkeypatch.setattr(base, "_known", dict(base._known))
    monkeypatch.delitem(sys.modules, f"{package.__name__}.thumbs", raising=False)
    base._found.cache_clear()
    row = {"asked": "q", "thumb_up": "a long answer", "thumb_down": "no"}
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps(row) + "\n", encoding="utf-8")
    try:
        done = command("eval", "length_baseline", str(data), "--json")
        assert "thumbs" in benchmarks()
    finally:
        base._found.cache_clear()
        sys.modules.pop(f"{package.__name__}.thumbs", None)
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert (result["benchmark"], result["rule"], result["score"]) == ("thumbs", "pair_strict", 1.0)
