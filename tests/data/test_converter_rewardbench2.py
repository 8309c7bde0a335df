"""RewardBench 2 rows become samples with all chosen answers first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rm_gallery.core.utils.errors import DataError
from rm_gallery.report.task import open_data
from tests.data.loading import Row, answers, convert, load, load_rows, spoken, write

DATA = Path(__file__).parents[2] / "data"

ROW: Row = {
    "id": "120",
    "prompt": "What is 2 + 2?",
    "chosen": ["4"],
    "rejected": ["5", "6", "7"],
    "num_correct": 1,
    "num_incorrect": 3,
    "total_completions": 4,
    "models": ["a", "b", "c", "d"],
    "subset": "Math",
    "additional_metadata": {"correct": "4", "method": "natural", "valid": None},
}


def test_published_layout() -> None:
    sample = convert("rewardbench2", ROW)
    assert (sample.unique_id, sample.source, sample.task_category) == ("120", "rewardbench2", "math")
    assert spoken(sample) == [("user", "What is 2 + 2?")]
    assert answers(sample) == [("4", "chosen"), ("5", "rejected"), ("6", "rejected"), ("7", "rejected")]
    assert sample.metadata == {
        "subset": "Math",
        "num_correct": 1,
        "num_incorrect": 3,
        "models": ["a", "b", "c", "d"],
        "total_completions": 4,
        "additional_metadata": {"correct": "4", "method": "natural", "valid": None},
        "reference": "4",
    }
    assert sample.reference() == "4"


def test_ties_rows_hold_several_right_answers() -> None:
    row = {**ROW, "id": "tied:3", "chosen": ["4", "four"], "rejected": ["5"], "subset": "Ties", "num_correct": 2}
    sample = convert("rewardbench2", row)
    assert (sample.unique_id, sample.task_category, sample.reference()) == ("tied:3", "ties", None)
    assert answers(sample) == [("4", "chosen"), ("four", "chosen"), ("5", "rejected")]


@pytest.mark.parametrize(("subset", "category"), [("Precise IF", "precise_if"), ("Focus", "focus"), (None, None)])
def test_task_category_is_the_subset(subset: str | None, category: str | None) -> None:
    assert convert("rewardbench2", {**ROW, "subset": subset}).task_category == category


@pytest.mark.parametrize(
    ("change", "key", "expected"),
    [
        ({"num_incorrect": None, "num_rejected": 9}, "num_incorrect", 9),
        ({"num_incorrect": None}, "num_incorrect", 3),
        ({"num_correct": None}, "num_correct", 1),
        ({"additional_metadata": None}, "additional_metadata", None),
        ({"additional_metadata": {"correct": None}}, "reference", None),
        ({"additional_metadata": {"correct": ""}}, "reference", None),
        ({"additional_metadata": '{"correct": "4"}'}, "reference", "4"),
        ({"models": None}, "models", None),
    ],
)
def test_optional_columns(change: Row, key: str, expected: Any) -> None:
    metadata = convert("rewardbench2", {**ROW, **change}).metadata
    assert metadata is not None
    assert metadata.get(key) == expected


def test_l1_lists_may_be_json_in_a_csv_cell_only() -> None:
    row = {**ROW, "chosen": '["4"]', "rejected": '["5", "6"]'}
    sample = convert("rewardbench2", row, untyped=True)
    assert answers(sample) == [("4", "chosen"), ("5", "rejected"), ("6", "rejected")]
    with pytest.raises(DataError, match="column 'chosen': expected a list of texts, found text"):
        convert("rewardbench2", row)


def test_only_the_needed_columns() -> None:
    sample = convert("rewardbench2", {"prompt": "q", "chosen": ["a"], "rejected": ["b"]})
    assert (sample.unique_id, sample.metadata) == ("", {"subset": None, "num_correct": 1, "num_incorrect": 1})


def test_l_a_csv_of_the_benchmark_gives_the_same_samples(tmp_path: Path) -> None:
    """Lists and objects stand as JSON in the cells of a table of texts."""
    rows = pq.read_table(DATA / "test.parquet").to_pylist()[:40]
    cells = [{k: v if v is None or isinstance(v, str | int) else json.dumps(v) for k, v in row.items()} for row in rows]
    path = write(tmp_path / "a.csv", cells)
    typed = load_rows(rows, "rewardbench2")
    assert load(path, "rewardbench2").datasamples == typed.datasamples
    assert open_data(path).benchmark.name == "rewardbench2"
