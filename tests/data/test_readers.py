"""Files that no text can stand for: hostile workbooks and archives, stored formulas, logs as a zip,
also one packed with Zstandard.
"""

from __future__ import annotations

import datetime
import gzip
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rm_gallery import DataError
from rm_gallery.core.data.load import files
from rm_gallery.core.data.load.files import check_unpacked
from rm_gallery.core.data.load.readers import file_sources, rows_in


def workbook(path: Path, lines: list[list[Any]], change: Callable[[bytes], bytes] = bytes) -> Path:
    """A workbook of one sheet, whose file is changed as other programs would write it."""
    book = openpyxl.Workbook()
    assert book.active is not None
    for line in lines:
        book.active.append(line)
    book.save(path)
    parts = {name: part for part in [zipfile.ZipFile(path)] for name in part.namelist()}
    contents = {name: part.read(name) for name, part in parts.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in contents.items():
            made.writestr(name, change(content) if name == "xl/worksheets/sheet1.xml" else content)
    return path


@pytest.mark.parametrize(("old", "new"), [
    (b'<row r="2"', b'<row r="999999999999"'), (b"</sheetData>", b""), (b"<v>2</v>", b"<v>x</v>"),
    (b"</worksheet>", b"</worksheet>" + b" " * (3 << 20)), (b'<c r="B2"', b'<c r="B2" t="s"'),
])  # fmt: skip
def test_a_hostile_workbook_is_one_short_line(
    old: bytes, new: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them hangs or fills the memory."""
    monkeypatch.setattr(files, "ROOM", 1 << 20)
    path = workbook(
        tmp_path / "bad.xlsx", [["q", "a"], ["one", 2]], lambda sheet: sheet.replace(old, new)
    )
    with pytest.raises(DataError) as caught:
        list(rows_in(path))
    assert path.name in str(caught.value) and len(str(caught.value)) < 700


def test_a_parquet_file_that_unpacks_out_of_proportion_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROOM", 4_000_000)
    for name, text, count in (("bomb", "x" * 1000, 20_000), ("fine", "x" * 1000, 3_500)):
        pq.write_table(pa.table({"a": [text] * count}), tmp_path / f"{name}.parquet")
    seen = 0
    with pytest.raises(
        DataError,
        match=r"unpack to more than .*the bound is 4,000,000 bytes, or 1000 times the file",
    ):
        for _ in rows_in(tmp_path / "bomb.parquet"):
            seen += 1
    assert seen < 8_000
    assert sum(1 for _ in rows_in(tmp_path / "fine.parquet")) == 3_500


def test_a_line_beyond_the_bound_is_refused_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    line = b'{"a": "' + b"x" * 990 + b'"}\n'
    (tmp_path / "long.jsonl").write_bytes(line + line.replace(b"xx", b"xxx", 1))
    rows = rows_in(tmp_path / "long.jsonl")
    assert len(next(rows)["a"]) == 990
    with pytest.raises(DataError, match=r"long\.jsonl.*2.*longer than 1,000 bytes"):
        next(rows)


def test_what_unpacks_out_of_proportion_is_refused_and_names_are_not_told_by_the_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = tmp_path / "wide.csv"
    wide.write_text(",".join(f"c{n}" for n in range(100_000)) + "\n1,2\n")
    with pytest.raises(DataError) as caught:
        list(rows_in(wide))
    assert len(str(caught.value)) < 500 and "and 12 more" in str(caught.value)
    monkeypatch.setattr(files, "ROOM", 1 << 20)
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"a": "' + b" " * (3 << 20) + b'"}'))
    with pytest.raises(DataError, match="unpack to more than"):
        list(rows_in(packed))
    check_unpacked(packed, 20_000, 2_000_000)
    with pytest.raises(DataError, match="20,000 bytes unpack to more than 2,000,000"):
        check_unpacked(packed, 20_000, 2_000_001)
    check_unpacked(packed, 1, 1 << 20)


def test_a_workbook_gives_stored_values_dates_and_rows_beyond_the_size_it_claims(
    tmp_path: Path,
) -> None:
    def stored(sheet: bytes) -> bytes:
        for empty in (b"<f>1+1</f><v></v>", b"<f>1+1</f><v />", b"<f>1+1</f><v/>"):
            sheet = sheet.replace(empty, b"<f>1+1</f><v>2</v>")
        return sheet.replace(b'<dimension ref="A1:C4"', b'<dimension ref="A1:A1"')

    when = datetime.datetime.fromisoformat("2026-01-02")
    path = workbook(
        tmp_path / "a.xlsx", [["id", "n", "when"], ["a", "=1+1", when], ["b", 3], ["c"]], stored
    )
    blank = {"when": None}
    rows = [
        {"id": "a", "n": 2, "when": when},
        {"id": "b", "n": 3, **blank},
        {"id": "c", "n": None, **blank},
    ]
    assert list(rows_in(path)) == rows


def test_an_inspect_archive_is_read_sample_by_sample(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"eval": {}}))
        for name in ("s1", "s2"):
            archive.writestr(
                f"samples/{name}.json", json.dumps({"id": name, "input": "q", "target": "4"})
            )
        archive.writestr("samples/s3.json", "{torn")
        archive.writestr("samples/s4.txt", "other")
    (source,) = file_sources(path)
    found = [row for _, row in source.rows()]
    assert (source.count(), source.understood()) == (3, "Inspect log")
    assert [row["id"] for row in found if isinstance(row, dict)] == ["s1", "s2"]
    assert isinstance(found[2], DataError) and "item 3: samples/s3.json cannot be read" in str(
        found[2]
    )
    assert [where.number for where, _ in source.rows([1])] == [2]


def frame(text: bytes) -> bytes:
    """A Zstandard frame that holds a short text as it is."""
    head = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(text))
    return head + struct.pack("<I", 1 | len(text) << 3)[:3] + text


def log(path: Path, *members: tuple[bytes, bytes]) -> Path:
    """An Inspect log of (what a sample is, what stands in the file for it), marked as packed by
    method 93.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for number, (_, packed) in enumerate(members):
            archive.writestr(f"samples/{number}.json", packed)
    data = bytearray(path.read_bytes())
    for mark, method, sizes in ((b"PK\x03\x04", 8, 14), (b"PK\x01\x02", 10, 16)):
        at = -1
        for text, packed in members:
            at = data.index(mark, at + 1)
            data[at + method : at + method + 2] = struct.pack("<H", 93)
            data[at + sizes : at + sizes + 12] = struct.pack(
                "<III", zlib.crc32(text), len(packed), len(text)
            )
    path.write_bytes(data)
    return path


def read(path: Path) -> list[Any]:
    (source,) = file_sources(path)
    return [str(row) if isinstance(row, DataError) else row["id"] for _, row in source.rows()]


def test_a_log_packed_with_zstandard_is_read(tmp_path: Path) -> None:
    texts = [json.dumps({"id": name, "input": "q"}).encode() for name in ("one", "two", "three")]
    members = [(text, frame(text)) for text in texts]
    members += [
        (texts[0], b"no frame at all"),
        (b"{}" + texts[1], frame(texts[1])),
        (texts[1], frame(texts[1][:-1] + b"]")),
    ]
    found = read(log(tmp_path / "log.eval", *members))
    assert found[:3] == ["one", "two", "three"]
    assert [re.findall("cannot be read: .*(ZSTD|checksum)", text) for text in found[3:]] == [
        ["ZSTD"],
        ["ZSTD"],
        ["checksum"],
    ]


def test_a_log_packed_otherwise_names_the_command_that_converts_it(tmp_path: Path) -> None:
    path = log(tmp_path / "log.eval", (b"{}", b"{}"))
    path.write_bytes(path.read_bytes().replace(struct.pack("<H", 93), struct.pack("<H", 97)))
    with pytest.raises(DataError, match="inspect log convert --to json"):
        read(path)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    ("name", "before"), [("a.jsonl", '{"a": 1}\n{"é": '), ("b.json", '[{"a": 1},\n{"é": ')]
)
def test_pythons_numbers_that_are_no_json_are_named(
    tmp_path: Path, name: str, before: str, value: str
) -> None:
    """Python's json.dumps writes them, and nothing else reads them."""
    end = "}" if name.endswith("l") else "}]"
    (tmp_path / name).write_text(f"{before}{value}{end}", encoding="utf-8")
    with pytest.raises(
        DataError,
        match=rf"line 2.*: {value} is no JSON; write null|: {value} is no JSON; write null \(line 2",
    ):
        list(rows_in(tmp_path / name))
