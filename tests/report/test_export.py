"""A run as a table: a row per candidate in every form, nothing that a spreadsheet would run; and
what a notebook shows of results.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import openpyxl
import pyarrow.parquet as pq
import pytest

from rm_gallery import (
    ConfigError,
    DataSample,
    RewardDimensionWithRank,
    RewardDimensionWithScore,
    RewardResult,
    evaluate,
)
from rm_gallery.core.data.schema import BaseDataSet
from rm_gallery.report.tables import COLUMNS, candidates, export, exported, to_pandas
from rm_gallery.study.table import score_table
from rm_gallery.study.winrate import winrate
from tests.report.runs import reply, row, write_run
from tests.report.test_winrate import WON, Length, rows
from tests.support.samples import make_sample

FORMULAS = ["=1+1", "+49 30 123", "-cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "＝1", "\r=1"]
HARMLESS = ["-3,5", "+7", "12 %", "a=b", "'quoted"]
TEXTS = [
    *FORMULAS,
    *HARMLESS,
    "巴黎 🗼",
    "two\nlines; and, more",
    "bell \x07",
    "half \ud800",
    "long " * 20_000,
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    others = ["FAIL", *["no"] * (len(TEXTS) - 1)]
    pairs = enumerate(zip(TEXTS, others, strict=True))
    samples = [
        make_sample(*pair, query="q" * (k + 1), unique_id=f"s{k}", chosen=0) for k, pair in pairs
    ]
    evaluate(Length(), samples, run_dir=str(folder), progress=False)
    return folder


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))
    if path.suffix == ".xlsx":
        book = openpyxl.load_workbook(path)
        assert book.active is not None
        names, *rows = [list(row) for row in book.active.iter_rows()]
        assert all(cell.data_type != "f" for row in rows for cell in row)
        return [{str(n.value): c.value for n, c in zip(names, row, strict=True)} for row in rows]
    if path.suffix == ".parquet":
        found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return found
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("form", ["csv", "xlsx", "parquet", "jsonl"])
def test_every_form_has_a_row_per_candidate(run: Path, tmp_path: Path, form: str) -> None:
    rows = read(export(run, tmp_path / "deep" / f"results.{form}"))
    assert [list(row) for row in rows] == [list(COLUMNS)] * (2 * len(TEXTS))
    texts = {row["id"]: str(row["answer"]) for row in rows if row["candidate"] == "1"}
    for k, text in enumerate(TEXTS[:-3]):
        expected, found = f"'{text}" if form == "csv" and text in FORMULAS else text, texts[f"s{k}"]
        if form == "xlsx":
            expected, found = (
                expected.replace("\r", "\n"),
                found.replace("\r", "\n").replace("_x000D_", "\n"),
            )
        assert found == expected
    last = texts[f"s{len(TEXTS) - 1}"]
    cut = len(last) <= 32_767 and last.endswith("… [cut: 100,000 characters]")
    assert cut if form == "xlsx" else len(last) == 100_000
    failed = [row for row in rows if row["id"] == "s0"]
    assert [(row["status"], row["score"] in (None, "")) for row in failed] == [
        ("failed", False),
        ("failed", True),
    ]
    assert (
        "broken" in failed[0]["message"]
        and failed[0]["cause"]
        and {row["label"] for row in rows}
        == {
            "chosen",
            "rejected",
        }
    )
    assert to_pandas(run)["answer"].tolist() == [row["answer"] for row in candidates(run)]


def test_an_unknown_form_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="--export is 'a.doc' .*give one of .csv, .xlsx, .parquet, .jsonl, .html"
    ):
        with exported(tmp_path / "a.doc", None):
            raise AssertionError("judged before the mistake was said")


def test_tokens_of_a_whole_sample_are_those_of_each_candidate_and_tables_keep_their_order(
    tmp_path: Path,
) -> None:
    rows = [row(k, metadata={"row": 2 - k}) for k in range(3)]
    trace = [
        reply(0, "x", place=0),
        reply(0, "x", place=0),
        reply(1, "x", place=None),
        reply(2, "x"),
    ]
    opened = write_run(tmp_path / "run", rows, trace=trace, manifest={"sheet": "s"})
    found = [(one["id"], one["candidate"], one["input_tokens"]) for one in candidates(opened)]
    assert found == [
        ("s2", "1", 9), ("s2", "2", 9), ("s1", "1", 9), ("s1", "2", 9), ("s0", "1", 18), ("s0", "2", None)
    ]  # fmt: skip


ATTACK = "<script>alert(1)</script><img src=x onerror=alert(1)>"


def sample() -> DataSample:
    answers = [
        {"answer": {"role": "assistant", "content": text}} for text in (ATTACK, "FAIL", "x" * 5_000)
    ]
    given = {
        "unique_id": ATTACK,
        "input": [{"role": "user", "content": f"say\n{ATTACK} \ud800"}],
        "output": answers,
    }
    return DataSample.model_validate(given)


def scored() -> DataSample:
    return Length().evaluate(sample())


def result() -> RewardResult:
    rank = RewardDimensionWithRank(name=ATTACK, reason=ATTACK, rank=[1.0, 2.0])
    return RewardResult(
        name=ATTACK, details=[rank, RewardDimensionWithScore(name="s", score=0.12345)]
    )


SHOWN = [
    (sample, ["say<br/>", "5,000 characters"]),
    (scored, ["broken", "failed"]),
    (lambda: scored().output[0].answer.reward, ["score 53"]),
    (
        lambda: BaseDataSet(name=ATTACK, datasamples=[scored()] * 25),
        ["25 samples", "and 5 more", ">53</td>"],
    ),
    (lambda: BaseDataSet(name="bare", datasamples=[DataSample(unique_id="s")]), [">0</td>"]),
    (result, ["[1.0, 2.0]", "0.1235"]),
    (
        lambda: winrate(
            Length(), rows(*[WON] * 4, **{ATTACK: ["p"] * 4}), "q", ["x", "y"], by=[ATTACK]
        ),
        ["100.0"],
    ),
    (lambda: score_table(Length(), rows(*[WON] * 4), "q", "x"), ["<th>score</th>"]),
]


@pytest.mark.parametrize(("make", "expected"), SHOWN)
def test_everything_is_shown_and_nothing_runs(make: Any, expected: list[str]) -> None:
    text = make()._repr_html_()
    assert all(part in text for part in expected)
    assert "<script" not in text and "<img" not in text
    ElementTree.fromstring(f"<div>{text}</div>")  # well-formed
    text.encode("utf-8")


def test_an_export_says_who_caused_a_blank_row_and_why(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    table = [{"q": "q", "x": "answer"}, {"q": "r", "x": ""}]
    score_table(Length(), table, "q", "x", run_dir=folder)
    whole, blank = read(export(folder, tmp_path / "out.csv"))
    assert (whole["cause"], whole["message"]) == ("", "")
    assert (blank["status"], blank["cause"]) == ("unscored", "data")
    assert blank["message"].startswith("blank: ")
