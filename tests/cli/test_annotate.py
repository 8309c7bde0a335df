"""One's own sheet given back: every form keeps what stood in it, byte for byte, beside what was
said of each row.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl.chart import BarChart, Reference
from openpyxl.styles import PatternFill

from tests.support.command import Done, command

COLUMNS = ["Question", "New", "Old", "score"]
ROWS: list[list[Any]] = [
    ["q1", "a long full answer", "no", 1],
    ["q2", "no", "a longer answer", 2],
    ["q3", "x", None, 3],
    ["q4", "same", "same", 4],
]
SAID = {"q1": ("New", None), "q2": ("Old", None), "q3": (None, "data"), "q4": ("tie", None)}
LENGTH = ["--param", "min_length=10"]


def write(path: Path) -> Path:
    """The rows in the form of the extension, each with something that is easily lost."""
    form = path.name.removesuffix(".gz").rpartition(".")[2]
    dicts = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    if form in ("csv", "tsv"):
        mark = ";" if form == "csv" else "\t"
        lines = [
            mark.join(COLUMNS),
            *(mark.join("" if c is None else str(c) for c in row) for row in ROWS),
        ]
        lines[1:2] = ["", f'q1{mark}"a long\nfull answer"{mark}no{mark}"1"']
        text = "\r\n".join(lines).encode("cp1252")
        path.write_bytes(gzip.compress(text) if path.name.endswith(".gz") else text)
    elif form == "jsonl":
        path.write_text(
            "\n\n".join(json.dumps(one, indent=None, separators=(" , ", " : ")) for one in dicts)
        )
    elif form == "json":
        path.write_text(json.dumps({"about": [1], "rows": dicts}))
    elif form == "parquet":
        pq.write_table(pa.Table.from_pylist(dicts), path, row_group_size=3)
    else:
        workbook(path)
    return path


def workbook(path: Path) -> None:
    book = openpyxl.Workbook()
    other, sheet = book.active, book.create_sheet("Answers")
    assert other is not None
    other.append([1, "=A1*2"])
    chart = BarChart()
    chart.add_data(Reference(other, min_col=1, min_row=1, max_row=1))
    other.add_chart(chart, "D2")
    sheet["A1"] = "A title"
    for place, name in enumerate(COLUMNS, 1):
        sheet.cell(3, place, name).fill = PatternFill("solid", fgColor="FFFF00")
    sheet["A4"].fill = PatternFill("solid", fgColor="FF0000")
    for number, row in enumerate(ROWS, 5):
        for place, cell in enumerate(row, 1):
            sheet.cell(number, place, cell)

    sheet.auto_filter.ref = "A3:D8"
    book.save(path)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a copy that have a question, by column."""
    form = path.name.removesuffix(".gz").rpartition(".")[2]
    if form == "parquet":
        return [dict(row) for row in pq.read_table(path).to_pylist()]
    if form == "json":
        whole = json.loads(path.read_text())
        assert whole["about"] == [1]
        return list(whole["rows"])
    if form == "jsonl":
        return [json.loads(line) for line in path.read_text().splitlines() if line]
    if form in ("csv", "tsv"):
        from rm_gallery.core.data.load.sheets import CsvSource

        return [row for _, row in CsvSource(path).rows() if isinstance(row, dict)]
    rows = [
        list(row)
        for row in openpyxl.load_workbook(path)["Answers"].iter_rows(min_row=3, values_only=True)
    ]
    return [dict(zip(map(str, rows[0]), row, strict=True)) for row in rows[1:] if row[0]]


def judged(path: Path, target: Path, *options: str) -> Done:
    sheet = ["--sheet", "Answers", "--header-row", "3"] if path.suffix == ".xlsx" else []
    columns = ["--prompt", "Question", "--a", "New", "--b", "Old", *LENGTH, *sheet]
    return command(
        "winrate", "length_penalty", str(path), *columns, "--annotate", str(target), *options
    )


FORMS = ["csv", "tsv", "csv.gz", "jsonl", "json", "parquet", "xlsx"]


@pytest.mark.parametrize("form", FORMS)
def test_the_copy_of_every_form_says_who_won_and_what_is_missing(tmp_path: Path, form: str) -> None:
    path, target = write(tmp_path / f"answers.{form}"), tmp_path / f"back.{form}"
    before = path.read_bytes()
    done = judged(path, target)
    assert done.code in (0, 1) and path.read_bytes() == before, done.err
    rows = {row["Question"]: row for row in read(target)}
    assert {name: (row.get("winner"), row.get("cause")) for name, row in rows.items()} == SAID
    assert (
        "column 'Old' is blank" in rows["q3"]["message"] and "18 characters" in rows["q1"]["reason"]
    )
    assert float(rows["q1"]["score New"]) == 0.0 and float(rows["q2"]["score New"]) < 0
    assert [str(row["score"]) for row in rows.values()] == ["1", "2", "3", "4"], (
        "columns of the sheet stay"
    )
    if form in ("csv", "tsv"):
        assert b'full answer"' in target.read_bytes() and b'"1"' in target.read_bytes()
    if form == "xlsx":
        book = openpyxl.load_workbook(target)
        sheet = book["Answers"]
        assert sheet.auto_filter.ref == "A3:D8" and book.worksheets[0]["B1"].value == "=A1*2"
        assert "without charts as they look, shapes, the stored results of formulas" in done.err
        assert (
            sheet["E3"].fill.fgColor.rgb == sheet["D3"].fill.fgColor.rgb
            and sheet["E4"].value is None
        )


def test_columns_of_the_sheet_are_not_overwritten_and_rows_not_judged_say_why(
    tmp_path: Path,
) -> None:
    path, target = write(tmp_path / "answers.csv"), tmp_path / "back.csv"
    with path.open("ab") as file:
        file.write(b"\r\nq5;one;two;5;six\r\n=q6;\xff\xfe;y;6")
    options = [
        "--prompt",
        "Question",
        "--answer",
        "New",
        *LENGTH,
        "--encoding",
        "utf-8",
        "--on-bad-row",
        "skip",
    ]
    done = command(
        "score",
        "length_penalty",
        str(path),
        *options,
        "--limit",
        "4",
        "--out",
        str(tmp_path / "run"),
        "--annotate",
        str(target),
    )
    again = tmp_path / "again.csv"
    command(
        "score",
        "length_penalty",
        str(path),
        *options,
        "--limit",
        "4",
        "--out",
        str(tmp_path / "run"),
        "--annotate",
        str(again),
    )
    text = target.read_bytes()
    assert again.read_bytes() == text and done.out, "a run that goes on gives the same copy"
    header, *lines = text.split(b"\r\n")
    assert header == b"Question;New;Old;score;;score (2);reason;cause;message"
    known = {line.split(b";")[0]: line for line in lines if line}
    assert known[b"q5"].startswith(b"q5;one;two;5;six;;;data;") and known[b"=q6"].startswith(
        b"=q6;\xff\xfe;y;6;;;;data;"
    )
    assert sum(b"caller;not drawn by --limit" in line for line in lines) == 1, (
        "the other one cannot be read"
    )


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("answers.csv", "the table itself"),
        ("back.xlsx", "the extension .csv"),
        ("labels.csv", "reads as well"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_judged(
    tmp_path: Path, target: str, said: str
) -> None:
    path = write(tmp_path / "answers.csv")
    (tmp_path / "labels.csv").write_text("Question,label\nq1,a\n")
    before = path.read_bytes()
    labels = ["--labels", str(tmp_path / "labels.csv"), "--id", "Question"]
    done = judged(path, tmp_path / target, *labels)
    assert (
        done.code == 2
        and said in done.err
        and "judgements" not in done.err
        and path.read_bytes() == before
    )


def test_flips_of_a_judge_that_prefers_a_place_and_verdicts_of_graders(tmp_path: Path) -> None:
    path, target = write(tmp_path / "answers.xlsx"), tmp_path / "back.xlsx"
    options = [
        "--prompt",
        "Question",
        "--a",
        "New",
        "--b",
        "Old",
        "--sheet",
        "Answers",
        "--header-row",
        "3",
    ]
    judge = ["--llm", "fake:<reason>The first.</reason><best>1</best>"]
    done = command(
        "winrate",
        "base_helpfulness_pairwise",
        str(path),
        *options,
        *judge,
        "--annotate",
        str(target),
    )
    rows = {row["Question"]: row for row in read(target)}
    assert [rows[name]["flip"] for name in ("q1", "q3")] == ["yes", None], done.err
    assert rows["q1"]["winner"] == "tie" and "The first." in rows["q1"]["reason"]
    config, table, back = (
        tmp_path / "graders.yaml",
        tmp_path / "rows.csv",
        tmp_path / "rows-back.csv",
    )
    config.write_text(
        "graders:\n  exact: {grader: string_match, mapper: {reference_response: truth}}\n"
    )
    table.write_text("query,response,truth\nq1,4,4\nq2,5,4\n")
    done = command("grade", str(config), str(table), "--annotate", str(back))
    assert done.code == 0, done.err
    header, *lines = back.read_text().splitlines()
    assert header.startswith("query,response,truth,score exact,") and [
        line.split(",")[3] for line in lines
    ] == ["1.0", "0.0"]


@pytest.mark.parametrize(
    ("form", "called"),
    [("csv", "line 6"), ("jsonl", "line 5"), ("parquet", "row 3"), ("xlsx", "row 7")],
)
def test_a_row_is_called_by_its_number_in_the_file(tmp_path: Path, form: str, called: str) -> None:
    path, out = write(tmp_path / f"answers.{form}"), tmp_path / "out.jsonl"
    sheet = ["--sheet", "Answers", "--header-row", "3"] if form == "xlsx" else []
    columns = ["--prompt", "Question", "--a", "New", "--b", "Old", *LENGTH, *sheet]
    done = command("winrate", "length_penalty", str(path), *columns, "--export", str(out))
    ids = {
        row["prompt"]: row["id"]
        for row in map(json.loads, out.read_text().splitlines())
        if row.get("prompt")
    }
    lost = [
        row for row in map(json.loads, out.read_text().splitlines()) if row["status"] == "unscored"
    ]
    assert (
        {row["id"] for row in lost} == {called}
        and f", {called}: column 'Old'" in done.err
        and called not in ids.values()
    )
