"""Files that no text can stand for: hostile workbooks and archives, stored formulas, logs as a zip."""

from __future__ import annotations

import datetime
import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from rm_gallery.core.data.load import readers
from rm_gallery.core.data.load.readers import check_unpacked, file_sources, rows_in
from rm_gallery.core.utils.errors import DataError


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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'<row r="2"', b'<row r="999999999999"'),
        (b"</sheetData>", b""),
        (b"<v>2</v>", b"<v>x</v>"),
        (b"</worksheet>", b"</worksheet>" + b" " * (3 << 20)),
        (b'<c r="B2"', b'<c r="B2" t="s"'),
    ],
)
def test_a_hostile_workbook_ends_in_one_short_line(
    old: bytes, new: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them hangs or fills the memory."""
    monkeypatch.setattr(readers, "ROOM", 1 << 20)
    path = workbook(tmp_path / "bad.xlsx", [["q", "a"], ["one", 2]], lambda sheet: sheet.replace(old, new))
    with pytest.raises(DataError) as caught:
        list(rows_in(path))
    assert path.name in str(caught.value) and len(str(caught.value)) < 700


def test_what_unpacks_out_of_proportion_is_refused_and_names_are_not_told_by_the_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = tmp_path / "wide.csv"
    wide.write_text(",".join(f"c{n}" for n in range(100_000)) + "\n1,2\n")
    with pytest.raises(DataError) as caught:
        list(rows_in(wide))
    assert len(str(caught.value)) < 500 and "and 12 more" in str(caught.value)
    monkeypatch.setattr(readers, "ROOM", 1 << 20)
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"a": "' + b" " * (3 << 20) + b'"}'))
    with pytest.raises(DataError, match="unpack to more than"):
        list(rows_in(packed))
    check_unpacked(packed, 20_000, 2_000_000)
    with pytest.raises(DataError, match="20,000 bytes unpack to more than 2,000,000"):
        check_unpacked(packed, 20_000, 2_000_001)
    check_unpacked(packed, 1, 1 << 20)


def test_a_workbook_gives_stored_values_dates_and_rows_beyond_the_size_it_claims(tmp_path: Path) -> None:
    def stored(sheet: bytes) -> bytes:
        for empty in (b"<f>1+1</f><v></v>", b"<f>1+1</f><v />", b"<f>1+1</f><v/>"):
            sheet = sheet.replace(empty, b"<f>1+1</f><v>2</v>")
        return sheet.replace(b'<dimension ref="A1:C4"', b'<dimension ref="A1:A1"')

    when = datetime.datetime.fromisoformat("2026-01-02")
    path = workbook(tmp_path / "a.xlsx", [["id", "n", "when"], ["a", "=1+1", when], ["b", 3], ["c"]], stored)
    blank = {"when": None}
    rows = [{"id": "a", "n": 2, "when": when}, {"id": "b", "n": 3, **blank}, {"id": "c", "n": None, **blank}]
    assert list(rows_in(path)) == rows


def test_an_inspect_archive_is_read_sample_by_sample(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"eval": {}}))
        for name in ("s1", "s2"):
            archive.writestr(f"samples/{name}.json", json.dumps({"id": name, "input": "q", "target": "4"}))
        archive.writestr("samples/s3.json", "{torn")
        archive.writestr("samples/s4.txt", "other")
    (source,) = file_sources(path)
    found = [row for _, row in source.rows()]
    assert (source.count(), source.understood()) == (3, "Inspect log")
    assert [row["id"] for row in found if isinstance(row, dict)] == ["s1", "s2"]
    assert isinstance(found[2], DataError) and "item 3: samples/s3.json cannot be read" in str(found[2])
    assert [where.number for where, _ in source.rows([1])] == [2]
