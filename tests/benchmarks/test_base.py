"""A benchmark is one class in one file: it is found by its name, its columns and without a list; what is unknown is an error."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import rm_gallery.gallery.benchmarks as package
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.gallery.benchmarks import base
from rm_gallery.gallery.benchmarks.base import Benchmark, benchmarks, detect_benchmark, find_benchmark, get_benchmark
from rm_gallery.report.evaluate import evaluate
from tests.benchmarks.excerpts import EXCERPTS
from tests.data.loading import write
from tests.support.command import command


@pytest.mark.parametrize(
    ("columns", "step"),
    [
        (["prompt", "chossen", "rejected"], "Rename 'chossen' to 'chosen'."),
        (["Prompt", "Chosen", "Rejected"], "Rename 'Chosen' to 'chosen', 'Rejected' to 'rejected'."),
        (["prompt;chosen;rejected"], "stand behind ';': save the file with commas"),
        (["prompt", "answer", "reference"], "reward.evaluate_batch(create_loader("),
        (["prompt", "responses"], "Answers without preferences have no benchmark"),
        (["prompt", "model_a", "model_b"], "--format or benchmark=, one of '"),
    ],
)
def test_the_next_step_fits_the_columns_that_were_found(columns: list[str], step: str) -> None:
    with pytest.raises(DataError) as caught:
        detect_benchmark(dict.fromkeys(columns, "a"), "my.csv")
    assert str(caught.value).startswith(f"my.csv: no benchmark format fits the columns {sorted(columns)}")
    assert step in str(caught.value)


def test_two_that_fit_are_an_error_with_both_names() -> None:
    row = {**EXCERPTS["judgebench"][0], **EXCERPTS["rmbbenchmark_pairwise"][0]}
    with pytest.raises(
        DataError, match=r"the data fits judgebench and rmbbenchmark_pairwise; say which it is with --format"
    ):
        detect_benchmark(row)


@pytest.mark.parametrize("name", ["allenai/reward-bench-2", "REWARD_BENCH 2", "rewardbench2", "Reward-Bench-2"])
def test_case_owner_and_separators_of_a_name_do_not_matter(name: str) -> None:
    assert get_benchmark(name).name == "rewardbench2"
    assert get_benchmark(get_benchmark(name)).name == "rewardbench2"


@pytest.mark.parametrize("name", ["rewardbnch2", "judgebenhc", "", "rewardbench3"])
def test_an_unknown_name_is_an_error_with_the_nearest(name: str) -> None:
    assert find_benchmark(name) is None
    with pytest.raises(ConfigError, match=f"There is no benchmark '{name}'"):
        get_benchmark(name)


THUMBS = '''
"""Thumbs: answers with a thumb up or down."""

from collections.abc import Mapping
from typing import Any

from rm_gallery.core.data.load.fields import RowRef, preference_outputs, text
from rm_gallery.core.data.schema import DataSample
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


def test_a_new_benchmark_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found, converted, judged and reported without a list to edit, in Python and on the command line."""
    (tmp_path / "thumbs.py").write_text(THUMBS, encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    monkeypatch.setattr(base, "_known", dict(base._known))
    monkeypatch.delitem(sys.modules, f"{package.__name__}.thumbs", raising=False)
    base._found.cache_clear()
    row = {"asked": "q", "thumb_up": "a long answer", "thumb_down": "no"}
    try:
        done = command("eval", "length_baseline", str(write(tmp_path / "data.jsonl", [row])), "--json")
        assert "thumbs" in benchmarks()
        with pytest.raises(ConfigError, match="The benchmark name 'thumbs' is taken by"):
            type("Other", (Benchmark,), {"name": "thumbs"})
        with pytest.raises(DataError, match="hh_rlhf and thumbs"):
            evaluate("length_baseline", [{**row, **EXCERPTS["hh_rlhf"][0]}])
    finally:
        base._found.cache_clear()
        sys.modules.pop(f"{package.__name__}.thumbs", None)
    result = json.loads(done.out)
    assert (result["benchmark"], result["rule"], result["score"]) == ("thumbs", "pair_strict", 1.0), done.err


def test_files_of_two_benchmarks_are_not_scored_together_unless_one_rule_is_asked_for(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.jsonl", EXCERPTS[name][:1]) for name in ("rewardbench2", "rm_bench")]
    with pytest.raises(
        DataError, match="rm_bench.jsonl has the columns of rm_bench, and rewardbench2 has another rule"
    ):
        evaluate("length_baseline", paths)
    assert evaluate("length_baseline", EXCERPTS["rewardbench"], "pairs").rule == "pair_strict"
    assert evaluate("length_baseline", EXCERPTS["rewardbench2"], "lists").rule == "best_of_n_tie_credit"


def test_prior_sets_are_told_by_their_files_and_weigh_half_a_section(tmp_path: Path) -> None:
    """Two of three are right in helpful, one of two in hhh, none in harmless, which does not enter."""
    long, short = "at some length", "short"

    def prior(*chosen: str) -> list[dict[str, object]]:
        asked = [{"role": "user", "content": "q"}]
        return [
            {"prompt": asked, "chosen": one, "rejected": short if one == long else long, "subset": "own"}
            for one in chosen
        ]

    sets = tmp_path / "sets"
    write(sets / "anthropic_helpful-00000-of-00001.jsonl", prior(long, long, short))
    write(sets / "anthropic_hhh.jsonl", prior(long, short))
    write(sets / "anthropic_harmless" / "0000.jsonl", prior(short))
    main = write(tmp_path / "filtered.jsonl", EXCERPTS["rewardbench"][:1])
    alone = evaluate("length_baseline", sets, "rewardbench_prior_sets")
    assert alone.score == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert alone.extra["prior_sets_absent"] == ["shp", "summarize"]
    sections = evaluate("length_baseline", [main, sets], "rewardbench")
    leaderboard = evaluate("length_baseline", [main, sets], get_benchmark("rewardbench", "leaderboard"))
    assert sections.score == 1.0
    assert leaderboard.score == pytest.approx((2 * 1.0 + (2 / 3 + 1 / 2) / 2) / 3)
