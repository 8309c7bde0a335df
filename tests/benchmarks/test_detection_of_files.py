"""No file of one benchmark is ever scored by another's rule: every data file against every benchmark's detection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rm_gallery.core.utils.errors import DataError
from rm_gallery.gallery.benchmarks.base import benchmarks, detect_benchmark, get_benchmark, own_layouts
from rm_gallery.report.evaluate import evaluate
from rm_gallery.report.task import open_data
from tests.benchmarks.excerpts import EXCERPTS, Row
from tests.benchmarks.test_votes import VOTES, helpsteer2, ppe_correctness
from tests.support.shared_data import shared_file

FILES: dict[str, str | None] = {
    "autoj_pairwise": "auto_j",
    "hh_rlhf_harmless_test": "hh_rlhf",
    "hhh_alignment": "hhh",
    "judgebench_claude": "judgebench",
    "judgebench_gpt4o": "judgebench",
    **{
        f"llmbar_{name}": "llmbar"
        for name in (
            "adversarial_gptinst",
            "adversarial_gptout",
            "adversarial_manual",
            "adversarial_neighbor",
            "casestudy_base_10",
            "casestudy_base_9",
            "casestudy_constraint",
            "casestudy_negation",
            "casestudy_normal",
            "natural",
            "processed_faireval",
            "processed_llmeval2",
            "processed_mtbench",
        )
    },
    "prmbench": "prmbench",
    "rewardbench1_style": "rewardbench",
    "rewardbench2_style": "rewardbench2",
    "rm_bench_chat": "rm_bench",
    "rm_bench_code": "rm_bench",
    "rm_bench_safety_refuse": "rm_bench",
    "rm_bench_safety_response": "rm_bench",
    "rmb_bon": "rmbbenchmark_bestofn",
    "rmb_pairwise": "rmbbenchmark_pairwise",
    # recorded judgements, provenance and plain tasks are no benchmark's rows
    "autoj_pairwise_preds": None,
    "autoj_single_gpt4_ratings": None,
    "gsm8k_model_solutions": None,
    "gsm8k_test": None,
    "humaneval": None,
    "judgebench_judge_outputs": None,
    "judgebench_rm_scores": None,
    "llmbar_judge_outputs": None,
    "llmbar_published_statistics": None,
    "prmbench_skywork7b_step_scores": None,
    "prometheus_gpt4_absolute": None,
    "rewardbench1_style_provenance": None,
    "rewardbench2_style_provenance": None,
}
KNOWN = {name: found for name, found in FILES.items() if found is None or found in benchmarks()}


def rows(path: Path, n: int = 40) -> list[Row]:
    """The first rows of a file."""
    found: list[Row] = next(pq.ParquetFile(path).iter_batches(batch_size=n)).to_pylist()
    return found


def test_every_file_is_in_the_table() -> None:
    here = {path.stem for path in shared_file("MANIFEST.md").parent.glob("*.parquet")}
    assert here <= FILES.keys()


@pytest.mark.parametrize("name", KNOWN)
def test_a_file_is_found_by_one_benchmark_only(name: str) -> None:
    expected = KNOWN[name]
    for row in rows(shared_file(f"{name}.parquet")):
        assert [found.name for found in own_layouts(row)] == ([] if expected is None else [expected])
        if expected is None:
            with pytest.raises(DataError, match="no benchmark format fits"):
                detect_benchmark(row, name)
        else:
            assert detect_benchmark(row, name).name == expected


@pytest.mark.parametrize("name", KNOWN)
def test_no_other_benchmark_scores_it(name: str) -> None:
    """Named by hand, another benchmark refuses the file by its columns, or cannot read a row of it."""
    path, own = shared_file(f"{name}.parquet"), KNOWN[name]
    for other, found in benchmarks().items():
        related = own is not None and (issubclass(found, benchmarks()[own]) or issubclass(benchmarks()[own], found))
        if found.general or related:
            continue
        with pytest.raises(DataError):
            next(open_data(path, other).rows())


LAYOUTS: dict[str, Row] = {name: found[0] for name, found in EXCERPTS.items()} | {
    name: found[0] for name, found in VOTES
}
LAYOUTS |= {
    "helpsteer2": helpsteer2("q", "a", 1),
    "ppe_correctness": ppe_correctness("a", ["x", "y"], [True, False], [[0, 1]]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_layout_is_taken_for_another(name: str) -> None:
    own: dict[str, Any] = benchmarks()
    for other, found in own.items():
        related = issubclass(found, own[name]) or issubclass(own[name], found)
        if related or found.general:
            continue
        assert not found().detect(LAYOUTS[name]) or own[name].general
        if not own[name].general:
            with pytest.raises(DataError, match="has the columns of"):
                open_data([LAYOUTS[name]], other)


def test_a_rule_for_anybodys_rows_takes_them_when_it_is_asked_to() -> None:
    assert evaluate("length_baseline", EXCERPTS["rewardbench"], "pairs").rule == "pair_strict"
    assert evaluate("length_baseline", EXCERPTS["rewardbench2"], "lists").rule == "best_of_n_tie_credit"


def test_files_of_two_benchmarks_are_not_scored_together(tmp_path: Path) -> None:
    import json

    for name in ("rm_bench", "rewardbench2"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(EXCERPTS[name][0]) + "\n", encoding="utf-8")
    with pytest.raises(
        DataError, match="rm_bench.jsonl has the columns of rm_bench, and rewardbench2 has another rule"
    ):
        evaluate("length_baseline", [tmp_path / "rewardbench2.jsonl", tmp_path / "rm_bench.jsonl"])
    assert get_benchmark("rm_bench").detect(EXCERPTS["rm_bench"][0])
