"""Every bad input ends in an error that names file, row, column and what was found, or in a counted skip."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from loguru import logger

from rm_gallery.core.utils.errors import DataError
from tests.data.loading import Row, ids, load, load_rows, numbered, write

GOOD: Row = {"id": "g", "prompt": "q", "chosen": ["a"], "rejected": ["b"], "subset": "Math"}
HEAD = '{"id": "g", "prompt": "q", "response": "a"}\n'


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", b"", "a.jsonl: the file is empty"),
        ("a.parquet", b"", "a.parquet: the file is empty"),
        ("a.json", b"", "a.json: the file is empty"),
        ("a.csv", b"", "a.csv: the file is empty"),
        ("a.jsonl", b"\n \n", "no rows in .*a.jsonl"),
        ("a.json", b"[]", "no rows in .*a.json"),
        ("a.csv", b"prompt,response\n", "no rows in .*a.csv"),
        ("a.parquet", b"PAR1 not really", "not a readable parquet file"),
        ("a.json", b'[{"prompt": "q"},', "a.json: not valid JSON: .*column"),
        ("a.json", b'"text"', "a.json: expected a list of objects or an object, found text 'text'"),
        ("a.json", b"[1]", "a.json, item 1: expected an object with named columns, found int 1"),
        ("a.json", b'[{"prompt": "\xff"}]', "a.json: not valid JSON: not UTF-8 at byte 14"),
        ("a.jsonl", HEAD.encode() + b"\n{oops}\n", "a.jsonl, line 3: not valid JSON: .*column 2"),
        ("a.jsonl", HEAD.encode() + b'{"prompt": "\xff"}\n', "a.jsonl, line 2: not valid JSON: not UTF-8 at byte 13"),
        ("a.jsonl", HEAD.encode() + b'{"prompt": "\\ud800"}\n', "a.jsonl, line 2: not valid JSON: .*surrogate"),
        ("a.jsonl", HEAD.encode() + b"[1, 2]\n", "a.jsonl, line 2: expected an object .*found a list of 2"),
        ("a.jsonl", HEAD.encode() + b'{"prompt": "q", "score": NaN}\n', "a.jsonl, line 2: not valid JSON"),
        (
            "a.csv",
            b"prompt,response\nq,a\nq,b,c\n",
            "a.csv, line 3: found 3 fields, the header has 2: prompt, response",
        ),
        ("a.csv", b'prompt,response\n"two\nlines",a\nq\n', "a.csv, line 4: found 1 fields"),
        (
            "a.csv",
            b"prompt,response\nq,a\nq,\xff\n",
            "a.csv, line 3: not UTF-8 at byte 3 of the line|not UTF-8 at byte 3",
        ),
        ("a.csv", b"prompt,prompt\nq,a\n", "a.csv, line 1: the header names a column twice: prompt"),
        ("a.csv", b"pro\xffmpt\nq\n", "a.csv, line 1: not UTF-8"),
        ("a.jsonl.gz", b"no gzip", "a.jsonl.gz: cannot be read"),
        ("a.jsonl.gz", gzip.compress(HEAD.encode() * 500, mtime=0)[:40], "a.jsonl.gz: cannot be read"),
        ("a.xls", b"PK", "unknown extension '.xls'; known: .parquet"),
        ("a.xlsx", b"PK", "a.xlsx: not a readable Excel workbook"),
        ("a.eval", b"PK", "a.eval: not a readable Inspect log"),
        ("a.parquet.gz", b"PK", "unknown extension '.gz'"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=expected):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"prompt": ...}, "data, row 2: column 'prompt' is missing; the row has: id, chosen, rejected, subset"),
        ({"chosen": ...}, "data, row 2: column 'chosen' is missing"),
        ({"chosen": []}, "data, row 2, column 'chosen': expected at least one text, found an empty list"),
        ({"chosen": None}, "data, row 2, column 'chosen': expected a list of texts, found null"),
        ({"chosen": "text"}, "data, row 2, column 'chosen': expected a list of texts, found text 'text'"),
        ({"rejected": ["b", 3]}, r"data, row 2, column 'rejected\[2\]': expected text, found int 3"),
        ({"rejected": []}, "data, row 2, column 'rejected': expected at least one text"),
        ({"prompt": 5}, "data, row 2, column 'prompt': expected text or a list of messages, found int 5"),
        ({"prompt": None}, "data, row 2, column 'prompt': expected text or a list of messages, found null"),
        ({"prompt": []}, "column 'prompt': expected text or a list of messages, found an empty list"),
        ({"prompt": ["hi"]}, r"column 'prompt\[1\]': expected a message with role and content, found text 'hi'"),
        ({"prompt": [{"role": "usr", "content": "x"}]}, "unknown role text 'usr'; did you mean 'user'"),
        ({"prompt": [{"role": "user", "content": None}]}, "expected content of text or content parts, found null"),
        ({"id": True}, "column 'id': expected an id .*found bool True"),
        ({"id": [1]}, "column 'id': expected an id .*found a list of 1"),
        ({"subset": 4}, "column 'subset': expected text, found int 4"),
        ({"prompt": "half \ud800"}, "data, row 2"),
        ({"models": ["half \udc00"]}, "data, row 2: holds half a surrogate pair"),
    ],
)
def test_rows_that_do_not_fit(change: Row, expected: str) -> None:
    bad = {key: value for key, value in {**GOOD, "id": "bad", **change}.items() if value is not ...}
    with pytest.raises(DataError, match=expected):
        load_rows([GOOD, bad], "rewardbench2")
    skipping = load_rows([GOOD, bad], "rewardbench2", on_bad_row="skip")
    assert (ids(skipping), skipping.metadata["skipped"]) == (["g"], 1)


def test_message_never_holds_a_whole_prompt() -> None:
    secret = "x" * 500
    with pytest.raises(DataError, match=r"\(500 characters\)") as caught:
        load_rows([{**GOOD, "chosen": secret}], "rewardbench2")
    assert len(str(caught.value)) < 200


def test_missing_file_and_folder_without_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone.jsonl: no such file or folder"):
        load(tmp_path / "gone.jsonl")
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(DataError, match="the folder holds no data file"):
        load(tmp_path)


def test_row_that_is_no_dict() -> None:
    with pytest.raises(DataError, match="data, row 1: expected a dict with named columns, found int 3"):
        load_rows([3])


def test_parquet_text_that_is_no_utf8_costs_only_its_row(tmp_path: Path) -> None:
    broken = pa.array([b"fine", b"\xff\xfe", b"good"]).view(pa.string())
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": ["1", "2", "3"], "prompt": broken}), path)
    with pytest.raises(DataError, match="a.parquet, row 2: cannot be read: 'utf-8'"):
        load(path)
    assert ids(load(path, on_bad_row="skip")) == ["1", "3"]


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message)), level="WARNING", format="{message}")
    yield lines
    logger.remove(sink)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_skipped_rows_are_counted_shown_and_warned_about_once(tmp_path: Path, name: str, warnings: list[str]) -> None:
    path = write(tmp_path / name, numbered(20))
    content = path.read_bytes().splitlines(keepends=True)
    for line in (3, 4, 5, 9, 10, 11, 12):
        content[line] = b"\xff" + content[line]
    path.write_bytes(b"".join(content))
    found = load(path, on_bad_row="skip")
    assert (len(found), found.metadata["rows"], found.metadata["skipped"]) == (13, 20, 7)
    assert len(found.metadata["skipped_rows"]) == 5
    assert "a." in found.metadata["skipped_rows"][0] and ", line 4: " in found.metadata["skipped_rows"][0]
    assert len(warnings) == 1 and "skipped 7 of 20 rows" in warnings[0]


def test_nothing_usable_is_an_error_even_when_skipping() -> None:
    with pytest.raises(DataError, match="no usable row among 2; first: data, row 1: column"):
        load_rows([{"x": 1}, {"y": 2}], on_bad_row="skip")


@pytest.mark.parametrize("cut", [b"<best>1</best>", b"```\n</answer>\n[[A]]", b"<think>"])
def test_tags_and_fences_in_answers_are_only_text(tmp_path: Path, cut: bytes) -> None:
    rows: list[dict[str, Any]] = [{"id": "t", "prompt": cut.decode(), "response": cut.decode()}]
    sample = load(write(tmp_path / "a.jsonl", rows))[0]
    assert (sample.query_text(), sample.output[0].answer.text) == (cut.decode(), cut.decode())
