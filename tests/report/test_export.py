"""A run as a table: a row per candidate in every form, and nothing in it that a spreadsheet would run."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pyarrow.parquet as pq
import pytest

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.report.evaluate import evaluate
from rm_gallery.report.export import COLUMNS, candidates, export, exported, to_pandas
from rm_gallery.report.opened import open_run
from tests.cli.rows import best_of_4
from tests.report.runs import reply, row, write_run
from tests.report.test_winrate import Length, Longer
from tests.support.command import command
from tests.support.judge_server import JudgeServer

FORMULAS = ["=1+1", "+49 30 123", "-cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "＝1", "\r=1"]
HARMLESS = ["-3,5", "+7", "12 %", "a=b", "'quoted"]
TEXTS = [*FORMULAS, *HARMLESS, "巴黎 🗼", "two\nlines; and, more", "bell \x07", "half \ud800", "long " * 20_000]


def run_of(folder: Path) -> Path:
    data = [
        {"prompt": "q" * (k + 1), "chosen": text, "rejected": "FAIL" if k == 0 else "no"}
        for k, text in enumerate(TEXTS)
    ]
    from rm_gallery.core.data.load.fields import preference_outputs
    from rm_gallery.core.data.schema import DataSample

    samples = [
        DataSample.model_validate(
            {
                "unique_id": f"s{k}",
                "input": [{"role": "user", "content": row["prompt"]}],
                "output": preference_outputs([row["chosen"]], [row["rejected"]]),
            }
        )
        for k, row in enumerate(data)
    ]
    evaluate(Length(), samples, run_dir=str(folder), progress=False)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("run") / "run")


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
        expected = {"csv": f"'{text}" if text in FORMULAS else text}.get(form, text)
        if form == "xlsx":
            expected = expected.replace("\r", "\n")
            assert texts[f"s{k}"].replace("\r", "\n").replace("_x000D_", "\n") == expected
        else:
            assert texts[f"s{k}"] == expected
    last = texts[f"s{len(TEXTS) - 1}"]
    assert (
        (len(last) <= 32_767 and last.endswith("… [cut: 100,000 characters]"))
        if form == "xlsx"
        else len(last) == 100_000
    )
    failed = [row for row in rows if row["id"] == "s0"]
    assert [row["status"] for row in failed] == ["failed", "failed"]
    assert [row["score"] in (None, "") for row in failed] == [False, True]
    assert "broken" in failed[0]["problem"]
    assert {row["label"] for row in rows} == {"chosen", "rejected"}


def test_a_frame_is_the_same_table(run: Path) -> None:
    frame = to_pandas(run)
    assert list(frame.columns) == list(COLUMNS)
    assert frame["answer"].tolist() == [row["answer"] for row in candidates(run)]
    assert frame[frame.status == "scored"]["score"].notna().all()


def test_the_page_is_an_export_too(run: Path, tmp_path: Path) -> None:
    text = export(run, tmp_path / "results.html").read_text(encoding="utf-8")
    assert text.lstrip().lower().startswith("<!doctype html>")


def test_an_unknown_form_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--export is 'a.doc' .*give one of .csv, .xlsx, .parquet, .jsonl, .html"):
        with exported(tmp_path / "a.doc", None):
            raise AssertionError("judged before the mistake was said")


def test_comparisons_say_who_won_and_where_it_stood(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{k}", "chosen": "longer", "rejected": "short"} for k in range(3)]
    evaluate(Longer(), rows, run_dir=str(tmp_path / "run"), progress=False)
    found = to_pandas(open_run(tmp_path / "run"))
    assert set(zip(found.candidate, found.verdict, found.order, strict=True)) == {
        ("1", "won", "both"),
        ("2", "lost", "both"),
    }


@pytest.mark.parametrize("name", ["eval", "bench"])
def test_every_command_exports(tmp_path: Path, name: str) -> None:
    data = best_of_4(tmp_path / "data.jsonl", count=3)
    with JudgeServer("first", in_process=True) as server:
        judge = ["--llm", "judge-1", "--base-url", server.base_url, "--json"]
        reward = "safety_pointwise_reward"
        task = (
            ["eval", reward, str(data)]
            if name == "eval"
            else ["bench", "rewardbench2", "--reward", reward, "--data", str(data)]
        )
        done = command(*task, *judge, "--export", str(tmp_path / "r.parquet"))
    assert done.code == 0, done.err
    found = pd.read_parquet(tmp_path / "r.parquet")
    assert len(found) == 12
    assert (found.input_tokens > 0).all() and (found.output_tokens > 0).all()
    assert found.reason.notna().all()


def test_tokens_of_a_whole_sample_are_those_of_each_candidate_and_tables_keep_their_order(tmp_path: Path) -> None:
    rows = [row(k, metadata={"row": 2 - k}) for k in range(3)]
    trace = [reply(0, "x", place=0), reply(0, "x", place=0), reply(1, "x", place=None), reply(2, "x")]
    opened = write_run(tmp_path / "run", rows, trace=trace, manifest={"sheet": "s"})
    found = [(one["id"], one["candidate"], one["input_tokens"]) for one in candidates(opened)]
    assert found == [
        ("s2", "1", 9), ("s2", "2", 9), ("s1", "1", 9), ("s1", "2", 9), ("s0", "1", 18), ("s0", "2", None)
    ]  # fmt: skip
