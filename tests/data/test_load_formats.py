"""The same rows come out of every format, as they went in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rm_gallery.core.utils.errors import DataError
from tests.data.loading import Row, answers, ids, load, load_rows, numbered, spoken, write

NAMES = [
    "a.parquet",
    "a.pq",
    "a.json",
    "a.jsonl",
    "a.ndjson",
    "a.csv",
    "a.tsv",
    "a.JSONL",
    "a.jsonl.gz",
    "a.csv.gz",
    "a.json.gz",
]
TRICKY: list[Row] = [
    {"id": "zh", "prompt": "法国的首都是哪里？", "response": "巴黎 🗼"},
    {"id": "lines", "prompt": 'say "hi",\nplease', "response": "hi\n\n"},
    {"id": "long", "prompt": "long?", "response": "x" * 200_000},
    {"id": "empty", "prompt": "nothing?", "response": ""},
]


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_every_format_are_equal(tmp_path: Path, name: str) -> None:
    found = load(write(tmp_path / name, TRICKY))
    assert ids(found) == ["zh", "lines", "long", "empty"]
    assert [spoken(sample) for sample in found] == [[("user", row["prompt"])] for row in TRICKY]
    assert [answers(sample) for sample in found][:3] == [[(row["response"], None)] for row in TRICKY[:3]]
    # a table of texts has no other way to say that there is none
    blank_is_missing = ".csv" in name or ".tsv" in name
    assert answers(found[3]) == ([] if blank_is_missing else [("", None)])


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_u_a_blank_cell_is_a_missing_answer(tmp_path: Path, name: str) -> None:
    """No answer is scored that nobody gave; an empty text in a file with types is one."""
    path = write(tmp_path / name, [{"prompt": "q", "chosen": "a", "rejected": "", "reference": "", "id": ""}])
    if name == "a.jsonl":
        assert answers(load(path)[0]) == [("a", "chosen"), ("", "rejected")]
        return
    with pytest.raises(DataError, match="line 2, column 'rejected': expected an answer, found null"):
        load(path)
    (found,) = load(path, columns={"chosen": None, "rejected": None, "response": "chosen"})
    assert (answers(found), found.metadata) == ([("a", None)], {"reference": None})


@pytest.mark.parametrize("rows", [TRICKY, tuple(TRICKY), pd.DataFrame(TRICKY)], ids=["list", "tuple", "frame"])
def test_rows_in_memory_are_equal(rows: Any) -> None:
    assert [answers(sample)[0][0] for sample in load_rows(rows)] == [row["response"] for row in TRICKY]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", '{"prompt": "q", "response": "a"}', ["a"]),
        ("a.json", '{"data": [{"prompt": "q", "response": "a"}, {"prompt": "q", "response": "b"}]}', ["a", "b"]),
        ("a.json", '{"prompt": "q", "response": "a"}\n{"prompt": "q", "response": "b"}\n', ["a", "b"]),
        ("a.json", '\ufeff[{"prompt": "q", "response": "a"}]', ["a"]),
        ("a.jsonl", '\ufeff{"prompt": "q", "response": "a"}\r\n\r\n{"prompt": "q", "response": "b"}\r\n', ["a", "b"]),
        ("a.jsonl", '{"prompt": "q", "response": "no line end"}', ["no line end"]),
        ("a.csv", "\ufeffprompt,response\r\nq,a\r\n\r\nq,b\r\n", ["a", "b"]),
        ("a.csv", 'prompt,response\r\nq,"one\r\ntwo"\r\n', ["one\r\ntwo"]),
    ],
)
def test_marks_line_ends_and_layouts_are_tolerated(
    tmp_path: Path, name: str, content: str, expected: list[str]
) -> None:
    (tmp_path / name).write_bytes(content.encode())
    assert [answers(sample)[0][0] for sample in load(tmp_path / name)] == expected


def test_records_key_names_the_list(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"version": 1, "cases": numbered(2)}))
    assert ids(load(path, records_key="cases")) == ["r0", "r1"]


@pytest.mark.parametrize("chosen", [["only"], np.array(["only"], dtype=object), np.array(["only"])])
def test_one_element_arrays_stay_lists(tmp_path: Path, chosen: Any) -> None:
    row = {"id": "x", "prompt": "q", "chosen": chosen, "rejected": ["bad"], "subset": "Math"}
    for found in (load_rows([row], "rewardbench2"), load_rows(pd.DataFrame([row]), "rewardbench2")):
        assert answers(found[0]) == [("only", "chosen"), ("bad", "rejected")]
    path = write(tmp_path / "a.parquet", [{**row, "chosen": list(chosen)}])
    assert answers(load(path, "rewardbench2")[0]) == [("only", "chosen"), ("bad", "rejected")]


def test_numpy_and_pandas_values_become_plain() -> None:
    row = {
        "id": np.int64(7),
        "prompt": np.str_("q"),
        "response": "a",
        "weight": np.float32(0.5),
        "good": np.bool_(True),
        "scores": np.array([1, 2]),
        "nested": {"list": [np.int8(3)]},
        "when": pd.Timestamp("2024-01-02"),
        "gone": pd.NA,
        "hole": float("nan"),
    }
    sample = load_rows(pd.DataFrame([row]))[0]
    assert sample.unique_id == "7"
    assert sample.metadata is not None
    when = sample.metadata.pop("when")
    assert (type(when).__name__, when.year) == ("datetime", 2024)
    assert sample.metadata == {
        "weight": 0.5,
        "good": True,
        "scores": [1, 2],
        "nested": {"list": [3]},
        "gone": None,
        "hole": None,
    }
    assert [type(value) for value in sample.metadata.values()] == [float, bool, list, dict, type(None), type(None)]


def test_parquet_of_many_row_groups_keeps_order(tmp_path: Path) -> None:
    path = tmp_path / "groups.parquet"
    pq.write_table(pa.Table.from_pylist(numbered(1_100)), path, row_group_size=70)
    assert ids(load(path)) == [f"r{n}" for n in range(1_100)]


def test_folder_is_read_recursively_in_sorted_order(tmp_path: Path) -> None:
    rows = numbered(6)
    write(tmp_path / "b" / "one.jsonl", rows[2:3])
    write(tmp_path / "a.parquet", rows[0:1])
    write(tmp_path / "b" / "deep" / "two.csv", rows[1:2])
    write(tmp_path / "c.json", rows[3:6])
    write(tmp_path / ".cache" / "hidden.jsonl", [{"prompt": "never"}])
    (tmp_path / "README.md").write_text("no data")
    (tmp_path / "_SUCCESS").touch()
    found = load(tmp_path)
    assert ids(found) == ["r0", "r1", "r2", "r3", "r4", "r5"]
    assert found.metadata["path"] == str(tmp_path)


def test_metadata_say_where_the_data_came_from(tmp_path: Path) -> None:
    from rm_gallery.core.data.load.base import create_loader

    path = write(tmp_path / "a.jsonl", numbered(3))
    found = create_loader("mine", config={"path": str(path)}, metadata={"owner": "me"}).run()
    assert found.name == "mine"
    assert found.metadata == {
        "data_source": "*",
        "load_strategy": "local",
        "path": str(path),
        "limit": None,
        "seed": 0,
        "rows": 3,
        "skipped": 0,
        "duplicates": 0,
        "id_collisions": 0,
        "owner": "me",
    }
    assert {sample.source for sample in found} == {"mine"}
