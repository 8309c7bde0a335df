"""A spreadsheet from the desk: read as it was saved, judged over HTTP, and a workbook that other programs open."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from tests.support.command import Done, command
from tests.support.judge_server import Answer, JudgeCall, Judgement, JudgeServer

N = 30
COLUMNS = ["Nr", "Frage", "Modell A", "Modell B", "Urteil", "Thema", "Wert", "leer"]
NASTY = '=HYPERLINK("http://example.org";"Größe")'


def longer(call: JudgeCall) -> Answer:
    """Prefers the longer answer, in any order; scores by length."""
    lengths = [len(text) for text in call.reading.candidates]
    ranking = sorted(range(1, len(lengths) + 1), key=lambda k: -lengths[k - 1])
    return Judgement(tuple(ranking), tuple(float(min(10, length)) for length in lengths), tie=len(set(lengths)) < 2)


def table() -> list[list[Any]]:
    """Rows in which a is longer in 20 of 30, and people agree in all but two of the 12 they looked at."""
    rows = []
    for k in range(N):
        a_wins = k % 3 != 2
        a, b = ("Größe über alles", "klein") if a_wins else ("„kurz“", "eine viel längere; Antwort,\nmit 3,5 €")
        if k == 3:
            a = NASTY
        said = "" if k >= 12 else ("b" if a_wins else "a") if k in (4, 6) else "a" if a_wins else "Modell B"
        rows.append([k, f"Frage {k}: wie groß?", a, b, said, ("Mathe", "Chat")[k % 2], f"{k},5", ""])
    return rows


def german_csv(path: Path) -> Path:
    """As a German Excel saves "CSV": semicolons, cp1252, quotes where needed, Windows line ends."""
    with path.open("w", encoding="cp1252", newline="") as file:
        csv.writer(file, delimiter=";", lineterminator="\r\n").writerows([COLUMNS, *table()])
    return path


def workbook(path: Path) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(COLUMNS)
    for row in table():
        sheet.append([value if value != "" else None for value in row])
    sheet.cell(row=5, column=3).data_type = "s"  # typed in as text, not as the formula it looks like
    book.save(path)
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer(longer, in_process=True) as running:
        yield running


def judged(server: JudgeServer, name: str, path: Path, *options: str) -> Done:
    columns = (
        ["--prompt", "Frage", "--a", "Modell A", "--b", "Modell B"] if name == "winrate" else ["--prompt", "Frage"]
    )
    endpoint = ["--llm", "judge-1", "--base-url", server.base_url, "--no-cache"]
    return command(name, str(path), *columns, *endpoint, *options)


@pytest.mark.parametrize("make", [german_csv, workbook])
def test_a_table_gives_a_win_rate_and_a_workbook(server: JudgeServer, tmp_path: Path, make: Any) -> None:
    data = make(tmp_path / ("daten.csv" if make is german_csv else "daten.xlsx"))
    server.reset()
    options = ["--reward", "base_helpfulness_pairwise", "--labels", "Urteil", "--by", "Thema", "--length-controlled"]
    done = judged(server, "winrate", data, *options, "--json", "--export", str(tmp_path / "results.xlsx"))
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["n"], found["n_scored"], found["n_unscored"], found["n_failed"]) == (N, N, 0, 0)
    assert found["score"] == pytest.approx(20 / 30)
    assert found["ci95"][0] < 20 / 30 < found["ci95"][1]
    extra = found["extra"]
    assert (extra["wins"], extra["losses"], extra["ties"]) == (20, 10, 0)
    assert (extra["flips"]["n"], extra["flips"]["flips"]) == (N, 0)
    assert (extra["agreement"]["n"], extra["agreement"]["agreement"]) == (12, pytest.approx(10 / 12))
    assert extra["corrected"]["n_labelled"] == 12
    assert extra["corrected"]["estimate"] < found["score"]
    assert set(found["by_subset"]) == {"Thema = Chat", "Thema = Mathe"}
    assert found["baselines"]["longest"] == pytest.approx(20 / 30)
    assert server.stats()["requests"] == 2 * N
    how = "separator semicolon, encoding cp1252" if make is german_csv else "sheet 'Sheet'"
    assert f"30 rows ({'csv' if make is german_csv else 'xlsx'}, {how})" in done.err
    assert "60 judgements" in done.err

    sheet = openpyxl.load_workbook(tmp_path / "results.xlsx").active
    assert sheet is not None
    rows = [dict(zip((c.value for c in sheet[1]), (c.value for c in row), strict=True)) for row in sheet.iter_rows(2)]
    assert len(rows) == 2 * N
    assert (rows[0]["candidate"], rows[0]["verdict"], rows[0]["order"], rows[0]["status"]) == (
        "Modell A",
        "won",
        "both",
        "scored",
    )
    assert rows[6]["answer"] == NASTY
    assert sheet["F8"].data_type == "s", "text that looks like a formula stays text"
    assert rows[0]["input_tokens"] > 0


@pytest.mark.system("libreoffice")
def test_libreoffice_reads_the_workbook(server: JudgeServer, tmp_path: Path) -> None:
    program = shutil.which("soffice")
    if program is None:
        pytest.skip("libreoffice is not installed")
    judged(
        server,
        "winrate",
        german_csv(tmp_path / "daten.csv"),
        "--reward",
        "base_helpfulness_pairwise",
        "--export",
        str(tmp_path / "results.xlsx"),
    )
    subprocess.run(
        [
            program,
            "--headless",
            f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}",
            "--convert-to",
            "csv:Text - txt - csv (StarCalc):44,34,76",
            "--outdir",
            str(tmp_path / "converted"),
            str(tmp_path / "results.xlsx"),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    with (tmp_path / "converted" / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * N
    assert rows[6]["answer"] == NASTY
    assert rows[5]["answer"] == "eine viel längere; Antwort,\nmit 3,5 €"
    assert {row["verdict"] for row in rows} == {"won", "lost"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--prompt", "Fragen"], "--prompt is 'Fragen', and .* has no such column; did you mean 'Frage'"),
        (["--a", "leer"], "--a is 'leer', and that column is blank in all 30 rows"),
        (["--b", "Wert"], r"--b is 'Wert', and that column holds numbers only \(0,5, 1,5, 2,5\)"),
        (["--b", "Modell A"], "column 'Modell A' is named twice"),
        (["--labels", "Thema"], "daten.csv, line 2, column 'Thema': expected a, b, tie"),
        (["--labels", "people.csv"], "no such column, and there is no such file"),
        (["--by", "Themen"], "--by is 'Themen', and .*did you mean 'Thema'"),
        (["--cluster", "leer"], "--cluster is 'leer', and that column is blank"),
        (["--label-probability", "Wert"], "name the labels with --labels"),
        (["--until-decided", "--labels", "Urteil"], "--until-decided leaves rows unjudged"),
        (["--export", "results.doc"], "--export is 'results.doc'.*give one of .csv, .xlsx"),
        (["--encoding", "utf-9"], "encoding is 'utf-9'"),
    ],
)
def test_what_does_not_fit_gets_one_clear_line_before_any_call(
    server: JudgeServer, tmp_path: Path, change: list[str], message: str
) -> None:
    import re

    data = german_csv(tmp_path / "daten.csv")
    server.reset()
    done = judged(server, "winrate", data, "--reward", "base_helpfulness_pairwise", *change)
    assert (done.code, done.out) == (2, "")
    assert re.search(message, done.err.splitlines()[-1])
    assert server.stats()["requests"] == 0


def test_a_dry_run_says_what_it_understood_and_asks_nothing(server: JudgeServer, tmp_path: Path) -> None:
    server.reset()
    done = judged(
        server, "winrate", german_csv(tmp_path / "daten.csv"), "--reward", "base_helpfulness_listwise", "--dry-run"
    )
    assert (done.code, done.out, server.stats()["requests"]) == (0, "", 0)
    assert "30 rows to judge with base_helpfulness_listwise: 30 judgements, each a call" in done.err


def test_answers_are_scored_by_column_and_subgroup(server: JudgeServer, tmp_path: Path) -> None:
    data = german_csv(tmp_path / "daten.csv")
    options = [
        "--reward",
        "base_helpfulness_pointwise",
        "--answer",
        "Modell A",
        "--answer",
        "Modell B",
        "--labels",
        "Nr",
    ]
    done = judged(server, "score", data, *options, "--by", "Thema", "--export", str(tmp_path / "r.csv"), "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert list(found["by_subset"]) == ["Modell A", "Modell B", "Thema = Chat", "Thema = Mathe"]
    assert found["by_subset"]["Modell A"]["score"] == pytest.approx((20 * 10 + 10 * 6) / 30)
    assert found["rule"] == "mean_score"
    assert found["extra"]["agreement"]["n"] == N
    with (tmp_path / "r.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * N
    assert rows[6]["answer"] == f"'{NASTY}"
    assert rows[0]["score"] == "10.0"


@pytest.mark.parametrize("early", [[], ["--until-decided"]])
def test_an_unfinished_comparison_is_continued(server: JudgeServer, tmp_path: Path, early: list[str]) -> None:
    data = german_csv(tmp_path / "daten.csv")
    options = ["--reward", "base_helpfulness_pairwise", "--out", str(tmp_path / "run"), "--json", *early]
    server.reset()
    stopped = judged(server, "winrate", data, *options, "--max-calls", "20", "--max-workers", "2")
    assert stopped.code == 1
    assert json.loads(stopped.out)["n_stopped"] > 0
    finished = judged(server, "winrate", data, *options)
    found = json.loads(finished.out)
    assert (finished.code, found["n"], found["n_scored"], found["stopped"]) == (0, N, N, None)
    assert (server.stats()["requests"], server.stats()["max_attempts"]) == (2 * N, 1), "no call is repeated"
    refused = judged(server, "winrate", data, *options, "--b", "Thema")
    assert refused.code == 2 and "--force-new" in refused.err
