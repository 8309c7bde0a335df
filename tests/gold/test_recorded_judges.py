"""Recorded texts and scores of real judges through `bench --replay` and `--scores`: the published
figures come out.

Own texts of equal branches stand in `tests/golden/protocols`.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from rm_gallery.gallery.benchmarks.auto_j import GROUPS, auto_j_rating
from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.counts import CELLS
from rm_gallery.gallery.benchmarks.judgebench import CATEGORIES, judgebench_reader
from rm_gallery.gallery.benchmarks.judgements import Verdict
from rm_gallery.gallery.benchmarks.prmbench import CLASSES, CORRECT, PRMBench, f_scores
from rm_gallery.gallery.benchmarks.steps import StepRule
from rm_gallery.study.source import Source
from tests.support.command import command
from tests.support.shared_data import shared_file

SIGNS: dict[str | None, Verdict] = {"A>B": 1, "B>A": -1, "A=B": 0, None: None}
LOGS = "prmbench_skywork7b_step_scores"


def rows_of(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(shared_file(f"{name}.parquet")).to_pylist()
    return rows


def recorded(benchmark: str, option: str, name: str, *more: str) -> Any:
    """What `bench BENCHMARK --replay|--scores FILE --json` prints."""
    done = command("bench", benchmark, option, str(shared_file(f"{name}.parquet")), "--json", *more)
    assert done.code == 0, done.err
    return json.loads(done.out)


def percent(share: float) -> float:
    return round(100 * share, 2)


def test_llmbar_every_published_statistic_and_every_winner() -> None:
    lines = recorded("llmbar", "--replay", "llmbar_judge_outputs")
    found = {(line["subset"], line["evaluator"], line["method"]): line for line in lines}
    figures = ["correct_False", "correct_True", "correct_average", "correct_both", "equal"]
    published = rows_of("llmbar_published_statistics")
    assert len(published) == len(found) > 100
    for row in published:
        mine = found[row["subset"], row["evaluator"], row["method"]]
        # they stand as "28 / 54 = 51.85185185185185%"
        wanted = {
            name: float(row[name].rsplit("=", 1)[-1].strip().rstrip("%")) / 100 for name in figures
        }
        assert mine["n"] == row["n"] and {name: mine[name] for name in figures} == pytest.approx(
            wanted, abs=1e-12
        )
    rows, winners = rows_of("llmbar_judge_outputs"), {"1": 1, "2": -1, None: None}
    expected = {
        (r["subset"], r["evaluator"], r["method"], str(r["index"]), r["swap"]): winners[r["winner"]]
        for r in rows
        if r["is_final"] and not r["kind"].startswith("rating_output")
    }
    read: dict[tuple[Any, ...], Verdict] = {}
    for group, judged in get_benchmark("llmbar").replayed(rows):
        key, swapped = (*group.values(), judged.sample_id.rpartition(":")[2]), judged.verdict(1, 0)
        read |= {
            (*key, False): judged.verdict(0, 1),
            (*key, True): None if swapped is None else -swapped,
        }
    assert read == expected


@pytest.mark.parametrize(("option", "name", "model", "figures"), [
    ("--scores", "judgebench_rm_scores", "Skywork/Skywork-Reward-Llama-3.1-8B", (62.29, 59.09, 64.29, 76.79, 50.0)),
    ("--scores", "judgebench_rm_scores", "Ray2333/GRM-Gemma-2B-rewardmodel-ft", (59.43, 62.99, 53.06, 64.29, 54.76)),
    ("--replay", "judgebench_judge_outputs", "claude-3-haiku-20240307", (32.22, 37.66, 29.41, 32.35, 9.68)),
])  # fmt: skip
def test_judgebench(option: str, name: str, model: str, figures: tuple[float, ...]) -> None:
    line = next(
        line for line in recorded("judgebench", option, name) if line["judge_model"] == model
    )
    assert (
        tuple(map(percent, [line["score"], *(line["by_category"][part] for part in CATEGORIES)]))
        == figures
    )


def test_judgebench_reads_every_text_and_score_as_recorded() -> None:
    for row in rows_of("judgebench_judge_outputs"):
        decision = row["decision"].replace(">>", ">") if row["decision"] else None
        assert judgebench_reader(row["judge_name"])(row["raw_text"]) == SIGNS[decision]
    rows = rows_of("judgebench_rm_scores")
    for row, (_, judged) in zip(
        rows, get_benchmark("judgebench").recorded_scores(rows), strict=True
    ):
        assert (judged.verdict(0, 1), judged.verdict(1, 0)) == (
            SIGNS[row["decision_1"]],
            SIGNS[row["decision_2_raw"]],
        )


AUTO_J = {
    "Summarization": (45.83, 73.61), "Exam Questions": (38.89, 69.44), "Code": (47.5, 75.83), "Rewriting": (49.17, 74.17),
    "Creative Writing": (59.72, 87.04), "Functional Writing": (61.67, 81.67), "General Communication": (55.21, 92.36),
    "NLP Tasks": (57.58, 86.36),
}  # fmt: skip


def test_auto_j_agreement_consistency_groups_and_ratings() -> None:
    found, rows = (
        recorded("auto_j", "--replay", "autoj_pairwise_preds"),
        rows_of("autoj_pairwise_preds"),
    )
    assert [percent(found[name]) for name in ("agreement", "consistency", "single")] == [
        54.96,
        83.41,
        59.99,
    ]
    groups = {
        name: (percent(g["agreement"]), percent(g["consistency"]))
        for name, g in found["by_group"].items()
    }
    assert groups == AUTO_J
    assert {group: {r["scenario"] for r in rows if r["group"] == group} for group in GROUPS} == {
        group: set(scenarios) for group, scenarios in GROUPS.items()
    }
    ratings = rows_of("autoj_single_gpt4_ratings")
    assert [auto_j_rating(row["target_output"]) for row in ratings] == [
        row["pred_score"] for row in ratings
    ]


def test_prmbench_every_label_count_and_published_score() -> None:
    rule, rows = StepRule.parse("delta:-0.05"), rows_of(LOGS)
    assert [rule.right(row["scores"]) for row in rows] == [row["labels"] for row in rows]
    found = recorded("prmbench", "--scores", LOGS, "--step-rule", "delta:-0.05")
    usual = recorded("prmbench", "--scores", LOGS)
    assert found["PRMScore"] - usual["PRMScore"] > 0.2, (
        "the usual threshold is far below the rule that is published"
    )

    def total(kinds: set[str]) -> list[int]:
        return [sum(row[cell] for row in rows if row["classification"] in kinds) for cell in CELLS]

    assert [found[cell] for cell in CELLS] == total(
        {row["classification"] for row in rows} - {CORRECT}
    )
    for kind, figures in found["by_class"].items():
        assert [figures[cell] for cell in CELLS] == total({kind})
    about = pq.read_schema(shared_file(f"{LOGS}.parquet")).metadata
    by_type, totals = (
        json.loads(about[b"published_by_type"]),
        json.loads(about[b"published_totals"]),
    )
    scores = [
        round(50 * (by_type["f1"][kind] + by_type["negative_f1"][kind]), 1) for kind in CLASSES[:-1]
    ]
    assert scores == [56.4, 62.8, 69.4, 67.1, 67.7, 69.9, 60.9, 65.8]
    assert round(50 * (totals["f1"] + totals["negative_f1"]), 1) == 65.1


def test_prmbench_rows_steps_and_errors_are_as_many_as_published() -> None:
    samples = list(Source(shared_file("prmbench.parquet")).open().rows())
    steps = [len(sample.output[0].steps or []) for sample in samples]
    errors = [(sample.output[0].answer.label or {})["error_steps"] for sample in samples]
    assert (len(samples), sum(steps), len({sample.unique_id for sample in samples})) == (
        6216,
        83456,
        6211,
    )
    assert {
        kind: sum((s.metadata or {})["subset"] == kind for s in samples) for kind in CLASSES
    } == PRMBench.page().sizes
    wrong = sum(
        sum(number <= n for number in found) for n, found in zip(steps, errors, strict=True)
    )
    right = sum(steps) - wrong
    constant = [sum(f_scores(*cells)) / 2 for cells in ((right, wrong, 0, 0), (0, 0, wrong, right))]
    assert constant == pytest.approx([0.46, 0.13], abs=0.01), (
        "what the page says of constant labels"
    )
