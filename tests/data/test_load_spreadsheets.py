"""Spreadsheets as people save them: separators, encodings, line ends inside cells, and workbooks with their oddities."""

from __future__ import annotations

import datetime
import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from rm_gallery.core.data.load import readers
from rm_gallery.core.data.load.readers import Reading, RowSource, file_sources
from rm_gallery.core.utils.errors import ConfigError, DataError

GERMAN = "Größe über alles – „schön“, 3,5 €"
CHINESE = "法国的首都是哪里？请用一句话回答这个问题。"
JAPANESE = "フランスの首都はどこですか。短く答えてください。"
KOREAN = "프랑스의 수도는 어디입니까? 짧게 대답해 주십시오."


def only(path: Path, **reading: Any) -> RowSource:
    (source,) = file_sources(path, Reading(**reading))
    return source


def rows(path: Path, **reading: Any) -> list[dict[str, Any]]:
    found = []
    for _, row in only(path, **reading).rows():
        if isinstance(row, DataError):
            raise row
        found.append(row)
    return found


def test_hostile_tables_end_in_one_short_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them hangs, fills the memory, or answers with a list of a hundred thousand names."""
    wide = tmp_path / "wide.csv"
    wide.write_text(",".join(f"c{n}" for n in range(100_000)) + "\n1,2\n")
    ((_, fault),) = only(wide).rows()
    assert isinstance(fault, DataError) and len(str(fault)) < 500

    def workbook(name: str, old: bytes, new: bytes) -> Path:
        book = openpyxl.Workbook()
        for line in (["q", "a"], ["one", 2]):
            book.active.append(line)
        book.save(tmp_path / "good.xlsx")
        path = tmp_path / name
        with zipfile.ZipFile(tmp_path / "good.xlsx") as good, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
            for part in good.namelist():
                content = good.read(part)
                if part == "xl/worksheets/sheet1.xml":
                    assert old in content
                    content = content.replace(old, new)
                made.writestr(part, content)
        return path

    monkeypatch.setattr(readers, "ROOM", 1 << 20)
    hostile = [
        (b'<row r="2"', b'<row r="999999999999"'), (b"</sheetData>", b""), (b"<v>2</v>", b'<v>x</v>'),
        (b"</worksheet>", b"</worksheet>" + b" " * (3 << 20)), (b'<c r="B2"', b'<c r="B2" t="s"'),
    ]  # fmt: skip
    for number, (old, new) in enumerate(hostile):
        path = workbook(f"{number}.xlsx", old, new)
        with pytest.raises(DataError) as caught:
            rows(path)
        assert path.name in str(caught.value) and len(str(caught.value)) < 700

    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"a": "' + b" " * (3 << 20) + b'"}'))
    with pytest.raises(DataError, match="unpack to more than"):
        rows(packed)


@pytest.mark.parametrize("document", [
    {"eval": {}, "samples": [{"id": 1, "scores": 5}]},
    {"results": [{"vars": {}, "provider": "p", "success": True, "response": "text"}]},
    {"testCases": [{"input": "q", "metricsData": 5}]},
])  # fmt: skip
def test_what_only_looks_like_a_result_file_is_named(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    with pytest.raises(DataError, match="results.json"):
        rows(path)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    ("encoding", "text", "named"),
    [
        ("utf-8", GERMAN + CHINESE, "utf-8"),
        ("utf-8-sig", GERMAN, "utf-8-sig"),
        ("utf-16", CHINESE + GERMAN, "utf-16"),
        ("utf-16-le", "plain enough", "utf-16-le"),
        ("utf-16-be", "plain enough", "utf-16-be"),
        ("cp1252", GERMAN, "cp1252"),
        ("cp1252", "Café à la carte, señor? ¿Qué? Œuvre d’été…", "cp1252"),
        ("gb18030", CHINESE, "gb18030"),
        ("shift_jis", JAPANESE, "cp932"),
        ("euc_jp", JAPANESE, "euc_jp"),
        ("cp949", KOREAN, "cp949"),
    ],
)
def test_separators_and_encodings_are_found(
    tmp_path: Path, separator: str, encoding: str, text: str, named: str
) -> None:
    lines = [separator.join(["id", "prompt", "a", "b"])]
    lines += [separator.join([str(n), f'"{text}; {n}, ""so"""', '"one\r\ntwo"', "x"]) for n in range(3)]
    path = tmp_path / "a.csv"
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode(encoding))
    found = only(path)
    assert found.count() == 3
    assert f"encoding {named}" in found.understood()
    assert rows(path)[1] == {"id": "1", "prompt": f'{text}; 1, "so"', "a": "one\r\ntwo", "b": "x"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"sep=;\r\nid;p\r\n1;a,b\r\n", [{"id": "1", "p": "a,b"}]),
        (b"sep=;\r\na,b;c\r\n1,2;3\r\n", [{"a,b": "1,2", "c": "3"}]),
        (b"id;what, where, when\r\n1;x\r\n", [{"id": "1", "what, where, when": "x"}]),
        (b"id,p,a\r\n1,,x\r\n", [{"id": "1", "p": None, "a": "x"}]),
        (b"id;p;;\r\n1;q;;\r\n;;;\r\n2;r;;\r\n", [{"id": "1", "p": "q"}, {"id": "2", "p": "r"}]),
        (b"id;wert\r\n1;3,5\r\n2;4,25\r\n", [{"id": "1", "wert": "3,5"}, {"id": "2", "wert": "4,25"}]),
        (b"p\r\nhello, you\r\n", DataError("line 2: found 2 fields")),
        (b"\r\n\r\nid,p\r\n1,q\r\n", [{"id": "1", "p": "q"}]),
        (b"id,,p\r\n1,x,q\r\n", DataError("column 2 has a value and no name")),
    ],
)
def test_what_spreadsheets_add_is_no_row(tmp_path: Path, content: bytes, expected: Any) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    if isinstance(expected, DataError):
        with pytest.raises(DataError, match=str(expected)):
            rows(path)
    else:
        assert rows(path) == expected


def test_what_is_said_wins_and_what_is_unknown_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("id;p,q\r\n1;Größe,x\r\n".encode("cp1252"))
    assert rows(path, separator=",", encoding="latin-1") == [{"id;p": "1;Größe", "q": "x"}]
    with pytest.raises(ConfigError, match="encoding is 'utf-9'"):
        rows(path, encoding="utf-9")
    with pytest.raises(ConfigError, match="separator is ';;'"):
        rows(path, separator=";;")
    with pytest.raises(DataError, match="line 2: not UTF-8 at byte 5; .* or name its encoding"):
        rows(path, encoding="utf-8")


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Привет как дела? Столица Франции"),
        ("cp1250", "zażółć gęślą jaźń proszę"),
        ("cp1253", "Ποια είναι η πρωτεύουσα της Γαλλίας"),
        ("big5", "法國的首都是哪裡？請用一句話回答這個問題。"),
    ],
)
def test_an_encoding_that_is_not_clear_is_asked_for(tmp_path: Path, encoding: str, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(f"id,p\n1,{text}\n2,{text}\n".encode(encoding))
    with pytest.raises(DataError, match="line 2: not UTF-8 .*or name its encoding"):
        rows(path)
    assert rows(path, encoding=encoding)[0]["p"].startswith(text)


def test_one_bad_byte_among_good_lines_costs_its_line_only(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,p\n" + "1,für\n2,groß\n".encode() + b"3,\xfcber\n")
    found = [row for _, row in only(path).rows()]
    assert found[:2] == [{"id": "1", "p": "für"}, {"id": "2", "p": "groß"}]
    assert isinstance(found[2], DataError)


def workbook(path: Path, sheets: dict[str, list[list[Any]]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name, lines in sheets.items():
        sheet = book.create_sheet(name)
        for line in lines:
            sheet.append(line)
    book.save(path)
    return path


WHEN = datetime.datetime.fromisoformat("2026-01-02")
TABLE: list[list[Any]] = [
    ["id", "prompt", "score"],
    [1, GERMAN, 3.5],
    [None, None, None],
    ["x", f"{CHINESE}\nzwei", 4.0],
]


def test_a_workbook_keeps_types_and_drops_blank_rows(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", {"Daten": TABLE, "leer": []})
    assert only(path).understood() == "xlsx, sheet 'Daten'"
    assert (only(path).count(), rows(path)) == (
        2,
        [{"id": 1, "prompt": GERMAN, "score": 3.5}, {"id": "x", "prompt": f"{CHINESE}\nzwei", "score": 4}],
    )


def test_of_several_sheets_one_is_named(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", {"A": TABLE, "B": [["p", "when"], ["q", WHEN]]})
    with pytest.raises(ConfigError, match="several sheets: 'A', 'B'; name one with sheet="):
        rows(path)
    with pytest.raises(ConfigError, match="no sheet 'C'"):
        rows(path, sheet="C")
    assert rows(path, sheet="B") == [{"p": "q", "when": WHEN}]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([["Auswertung", None, None], ["id", "p", "q"], [1, "x", "y"]], "row 1: names stand above 1 of 3 columns"),
        ([["id", None, "q"], [1, "x", "y"]], "none above B .*say where the names stand"),
        ([["id", "id"], [1, "x"]], "the header names a column twice: id"),
        ([["id", "p"], [1, "x", "note"]], "names stand above 2 of 3 columns"),
        ([["id", "p"], [1, "x"], [2, "#REF!"]], r"row 3: cell B3 holds the error #REF!"),
        ([["id", "p"], [1, "=A2+1"]], "cell B2 holds a formula without a stored value"),
    ],
)
def test_sheets_that_do_not_fit_say_where(tmp_path: Path, lines: list[list[Any]], expected: str) -> None:
    path = workbook(tmp_path / "a.xlsx", {"S": lines})
    with pytest.raises(DataError, match=expected):
        rows(path)


def test_a_title_above_the_names_is_passed_over(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", {"S": [["Auswertung"], [], ["id", "p"], [1, "x"]]})
    assert rows(path, header_row=3) == [{"id": 1, "p": "x"}]


def test_a_formula_gives_its_stored_value(tmp_path: Path) -> None:
    import zipfile

    plain, path = workbook(tmp_path / "p.xlsx", {"S": [["id", "n"], ["a", "=1+1"]]}), tmp_path / "a.xlsx"
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            part = source.read(name)
            # what a spreadsheet program stores beside the formula
            target.writestr(
                name,
                part.replace(b"<f>1+1</f><v></v>", b"<f>1+1</f><v>2</v>").replace(
                    b"<f>1+1</f><v />", b"<f>1+1</f><v>2</v>"
                ),
            )
    assert rows(path) == [{"id": "a", "n": 2}]


def test_rows_beyond_the_size_that_a_sheet_claims_are_read(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    for line in (["id", "p"], [1, "a"], [2, "b"]):
        book.active.append(line)
    book.save(tmp_path / "right.xlsx")
    with zipfile.ZipFile(tmp_path / "right.xlsx") as read, zipfile.ZipFile(tmp_path / "wrong.xlsx", "w") as made:
        for name in read.namelist():
            made.writestr(name, read.read(name).replace(b'<dimension ref="A1:B3"', b'<dimension ref="A1:A1"'))
    assert rows(tmp_path / "wrong.xlsx") == [{"id": 1, "p": "a"}, {"id": 2, "p": "b"}]
