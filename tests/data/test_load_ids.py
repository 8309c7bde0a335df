"""Rows are never left out for being equal or for sharing an id; what they share is counted and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.loading import Row, answers, ids, load, load_rows, loader, numbered, write

ROW: Row = {"prompt": "q", "response": "a"}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.json"])
def test_i4_equal_rows_are_all_kept_and_counted(tmp_path: Path, name: str) -> None:
    rows = [{"prompt": f"q{n % 5}", "response": "a", "reference": str(n % 5)} for n in range(20)]
    source = loader(write(tmp_path / name, rows))
    found = source.run()
    assert len(found) == 20
    assert (found.metadata["duplicates"], found.metadata["id_collisions"]) == (15, 0)
    assert source.report.notes() == ["15 of 20 samples are equal to an earlier one; all are kept"]


@pytest.mark.parametrize(
    ("row", "duplicates", "collisions"),
    [
        ({"id": "r1", "prompt": "question 1", "response": "answer 1"}, 1, 0),
        ({"response": "answer 1", "prompt": "question 1", "id": "r1"}, 1, 0),
        ({"id": "r1", "prompt": "question 1", "response": "answer 1", "reference": "other"}, 0, 1),
        ({"id": "r1", "prompt": "other"}, 0, 1),
        ({"id": "r9", "prompt": "question 1", "response": "answer 1"}, 0, 0),
        ({"prompt": "question 1", "response": "answer 1"}, 0, 0),
    ],
    ids=["equal", "another order", "another label", "another text", "another id", "no id"],
)
def test_i4_shared_ids_are_counted(row: Row, duplicates: int, collisions: int) -> None:
    found = load_rows([*numbered(3), row])
    assert len(found) == 4
    assert (found.metadata["duplicates"], found.metadata["id_collisions"]) == (duplicates, collisions)


def test_i4_ids_that_collide_across_files_are_told(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", numbered(2))
    write(tmp_path / "b.jsonl", [{"id": "r0", "prompt": "other"}])
    source = loader(tmp_path)
    assert ids(source.run()) == ["r0", "r1", "r0"]
    assert source.report.notes() == ["1 of 3 samples have the id of a different one; all are kept"]


@pytest.mark.parametrize("empty", [{}, {"id": None}, {"id": ""}])
def test_without_id_the_hash_of_the_texts_is_the_id(empty: Row) -> None:
    rows = [{**ROW, **empty, "label": 1}, {**ROW, "prompt": "p"}, {**ROW, "label": 2}]
    found = load_rows(rows)
    assert ids(found) == [sample.content_hash() for sample in found] == ids(load_rows(rows))
    assert len({sample.sample_key for sample in found}) == 3


@pytest.mark.parametrize(("given", "expected"), [(7, "7"), (7.0, "7"), ("a/7", "a/7"), (-1, "-1")])
def test_ids_become_text(given: object, expected: str) -> None:
    assert ids(load_rows([{"id": given, **ROW}])) == [expected]


LIST = '["red", "green"]'


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_l1_an_answer_that_is_a_json_list_is_one_answer(tmp_path: Path, name: str) -> None:
    rows = [{"prompt": "Two colours as JSON?", "chosen": LIST, "rejected": "red"}]
    assert answers(load(write(tmp_path / name, rows))[0]) == [(LIST, "chosen"), ("red", "rejected")]
    single = [{"prompt": "Two colours as JSON?", "response": LIST}]
    assert answers(load(write(tmp_path / f"b{name}", single))[0]) == [(LIST, None)]


def test_l1_only_a_table_of_texts_has_lists_in_cells(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "responses": LIST}]
    assert answers(load(write(tmp_path / "a.csv", rows))[0]) == [("red", None), ("green", None)]
    assert answers(load(write(tmp_path / "a.jsonl", rows))[0]) == []
    (typed,) = load(write(tmp_path / "a.parquet", [{"prompt": "q", "responses": ["red", LIST]}]))
    assert answers(typed) == [("red", None), (LIST, None)]
