"""PRMBench's rows and recorded step scores against the published counts, labels and figures."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.prmbench import ASPECTS, CELLS, CORRECT, SIZES, f_scores
from rm_gallery.gallery.benchmarks.steps import StepRule
from rm_gallery.report.task import open_data
from tests.support.command import command
from tests.support.shared_data import shared_file

LOGS = "prmbench_skywork7b_step_scores.parquet"


def logs() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(shared_file(LOGS)).to_pylist()
    return rows


def test_rows_steps_and_errors_are_as_many_as_published() -> None:
    samples = list(open_data(shared_file("prmbench.parquet")).rows())
    steps = [len(sample.output[0].steps or []) for sample in samples]
    errors = [(sample.output[0].answer.label or {})["error_steps"] for sample in samples]
    assert (len(samples), sum(steps)) == (6216, 83456)
    assert {kind: sum(s.metadata["subset"] == kind for s in samples if s.metadata) for kind in SIZES} == SIZES
    assert round(sum(steps) / len(samples), 1) == 13.4
    assert round(sum(map(len, errors)) / len(samples), 1) == 2.1
    assert len(samples) - len({sample.unique_id for sample in samples}) == 5
    # what the benchmark's page says of constant labels
    wrong = sum(sum(number <= n for number in found) for n, found in zip(steps, errors, strict=True))
    right = sum(steps) - wrong
    constant = [sum(f_scores(*cells)) / 2 for cells in ((right, wrong, 0, 0), (0, 0, wrong, right))]
    assert constant == pytest.approx([0.46, 0.13], abs=0.01)


def test_every_recorded_label_and_confusion_matrix() -> None:
    rule = StepRule.parse("delta:-0.05")
    for row in logs():
        right = rule.right(row["scores"])
        assert right == row["labels"], row["idx"]
        cells = [0, 0, 0, 0]
        for number, said in enumerate(right, 1):
            cells[(1 if said else 2) if number in row["error_steps"] else (0 if said else 3)] += 1
        assert cells == [row[cell] for cell in CELLS], row["idx"]


def test_the_command_gives_the_recorded_counts_by_class_and_in_all() -> None:
    done = command("bench", "prmbench", "--scores", str(shared_file(LOGS)), "--step-rule", "delta:-0.05", "--json")
    assert done.code == 0, done.err
    found, rows = json.loads(done.out), logs()

    def total(wanted: list[dict[str, Any]]) -> dict[str, int]:
        return {cell: sum(row[cell] for row in wanted) for cell in CELLS}

    counted = [row for row in rows if row["classification"] != CORRECT]
    assert {cell: found[cell] for cell in CELLS} == total(counted)
    assert found["n"] == len(counted)
    for kind, figures in found["by_class"].items():
        own = [row for row in rows if row["classification"] == kind]
        assert ({cell: figures[cell] for cell in CELLS}, figures["n"]) == (total(own), len(own))
    f1, negative = f_scores(*total(counted).values())
    assert (found["F1"], found["F1neg"], found["PRMScore"]) == (f1, negative, (f1 + negative) / 2)
    assert found["ci95"][0] < found["PRMScore"] < found["ci95"][1]


def test_the_step_rule_decides() -> None:
    """The usual threshold on the same scores is far below the rule that is published."""
    scores = {}
    for rule in ("delta:-0.05", "threshold:0.5"):
        done = command("bench", "prmbench", "--scores", str(shared_file(LOGS)), "--step-rule", rule, "--json")
        scores[rule] = json.loads(done.out)["PRMScore"]
    assert scores["delta:-0.05"] - scores["threshold:0.5"] > 0.2


PUBLISHED = {
    "redundency": 56.4,
    "circular": 62.8,
    "counterfactual": 69.4,
    "step_contradiction": 67.1,
    "domain_inconsistency": 67.7,
    "confidence": 69.9,
    "missing_condition": 60.9,
    "deception": 65.8,
}


def test_prmscore_of_the_published_f1s_is_the_published_one() -> None:
    about = pq.read_schema(shared_file(LOGS)).metadata
    by_type, totals = json.loads(about[b"published_by_type"]), json.loads(about[b"published_totals"])
    scores = {kind: round(50 * (by_type["f1"][kind] + by_type["negative_f1"][kind]), 1) for kind in PUBLISHED}
    assert scores == PUBLISHED
    assert round(100 * by_type["f1"]["multi_solutions"], 1) == 93.2
    assert round(50 * (totals["f1"] + totals["negative_f1"]), 1) == 65.1
    assert {kind for kinds in ASPECTS.values() for kind in kinds} == set(SIZES)


def test_a_file_without_texts_is_of_no_benchmark_s_layout() -> None:
    """Recorded judgements are no data to judge."""
    columns = {name: None for name in pq.read_schema(shared_file(LOGS)).names}
    assert not get_benchmark("prmbench").detect(columns)
