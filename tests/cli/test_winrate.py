"""A spreadsheet from the desk: read as it was saved, judged over HTTP, and a workbook that other
programs open.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from tests.support.command import Done, command
from tests.support.judge_server import Answer, JudgeCall, Judgement, JudgeServer, judge_fixture

N = 30
COLUMNS = ["Nr", "Frage", "Modell A", "Modell B", "Urteil", "Thema"]
NASTY = '=HYPERLINK("http://example.org";"Größe")'
LONG = "eine viel längere; Antwort,\nmit 3,5 €"


def longer(call: JudgeCall) -> Answer:
    """Prefers the longer answer, in any order; scores by length."""
    lengths = [len(text) for text in call.reading.candidates]
    ranking = sorted(range(1, len(lengths) + 1), key=lambda k: -lengths[k - 1])
    return Judgement(
        tuple(ranking),
        tuple(float(min(10, length)) for length in lengths),
        tie=len(set(lengths)) < 2,
    )


def table() -> list[list[Any]]:
    """Rows in which a is longer in 20 of 30, and people agree in all but two of the 12 they looked
    at.
    """
    rows = []
    for k in range(N):
        a_wins = k % 3 != 2
        a, b = (NASTY if k == 3 else "Größe über alles", "klein") if a_wins else ("„kurz“", LONG)
        said = (
            ""
            if k >= 12
            else ("b" if a_wins else "a")
            if k in (4, 6)
            else "a"
            if a_wins
            else "Modell B"
        )
        rows.append([k, f"Frage {k}: wie groß?", a, b, said, ("Mathe", "Chat")[k % 2]])
    return rows


def german_csv(path: Path) -> Path:
    """As a German Excel saves "CSV": semicolons, cp1252, quotes where needed, Windows line ends."""
    with path.open("w", encoding="cp1252", newline="") as file:
        csv.writer(file, delimiter=";", lineterminator="\r\n").writerows([COLUMNS, *table()])
    return path


server = judge_fixture(longer, in_process=True)


def judged(server: JudgeServer, path: Path, *options: str) -> Done:
    server.reset()
    columns = [
        "--prompt",
        "Frage",
        "--a",
        "Modell A",
        "--b",
        "Modell B",
    ]
    return command(
        "winrate",
        "base_helpfulness_pairwise",
        str(path),
        *columns,
        "--llm",
        "judge-1",
        "--base-url",
        server.base_url,
        "--no-cache",
        *options,
    )


def test_a_table_gives_a_win_rate_and_a_workbook(server: JudgeServer, tmp_path: Path) -> None:
    data = german_csv(tmp_path / "daten.csv")
    done = judged(
        server,
        data,
        "--labels",
        "Urteil",
        "--by",
        "Thema",
        "--json",
        "--export",
        str(tmp_path / "results.xlsx"),
    )
    assert done.code == 0, done.err
    found = json.loads(done.out)
    extra = found["extra"]
    assert (found["n"], found["n_scored"], found["score"]) == (N, N, pytest.approx(20 / 30))
    assert [extra[name] for name in ("wins", "losses", "ties")] == [20, 10, 0]
    assert (extra["flips"]["n"], extra["flips"]["flips"]) == (N, 0)
    assert (extra["agreement"]["n"], extra["agreement"]["agreement"]) == (
        12,
        pytest.approx(10 / 12),
    )
    assert extra["corrected"]["estimate"] < found["score"]
    assert (
        set(found["by_subset"]) == {"Thema = Chat", "Thema = Mathe"}
        and server.stats()["requests"] == 2 * N
    )
    assert (
        "30 rows (csv, separator semicolon, encoding cp1252)" in done.err
        and "60 judgements" in done.err
    )

    sheet = openpyxl.load_workbook(tmp_path / "results.xlsx").active
    assert sheet is not None
    rows = [
        dict(zip((c.value for c in sheet[1]), (c.value for c in row), strict=True))
        for row in sheet.iter_rows(2)
    ]
    assert len(rows) == 2 * N and rows[0]["input_tokens"] > 0
    shown = [rows[0][name] for name in ("candidate", "verdict", "order", "status")]
    assert shown == ["Modell A", "won", "both", "scored"]
    assert rows[6]["answer"] == NASTY and sheet["F8"].data_type == "s", (
        "text that looks like a formula stays text"
    )


@pytest.mark.long("several commands")
@pytest.mark.system("libreoffice")
def test_libreoffice_reads_the_workbook(server: JudgeServer, tmp_path: Path) -> None:
    program = shutil.which("soffice")
    if program is None:
        pytest.skip("libreoffice is not installed")
    judged(server, german_csv(tmp_path / "daten.csv"), "--export", str(tmp_path / "results.xlsx"))
    profile = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
    form = [
        "--convert-to",
        "csv:Text - txt - csv (StarCalc):44,34,76",
        "--outdir",
        str(tmp_path / "converted"),
    ]
    call = [program, "--headless", profile, *form, str(tmp_path / "results.xlsx")]
    subprocess.run(call, check=True, capture_output=True, timeout=120)
    with (tmp_path / "converted" / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert (len(rows), rows[6]["answer"], rows[5]["answer"]) == (2 * N, NASTY, LONG)
    assert {row["verdict"] for row in rows} == {"won", "lost"}


@pytest.mark.parametrize("early", [[], ["--until-decided"]])
def test_an_unfinished_comparison_is_continued(
    server: JudgeServer, tmp_path: Path, early: list[str]
) -> None:
    data = german_csv(tmp_path / "daten.csv")
    options = ["--out", str(tmp_path / "run"), "--json", *early]
    stopped = judged(server, data, *options, "--max-calls", "20", "--max-workers", "2")
    assert stopped.code == 1 and json.loads(stopped.out)["n_stopped"] > 0
    asked = server.stats()["requests"]
    finished = judged(server, data, *options)
    found = json.loads(finished.out)
    assert (finished.code, found["n"], found["n_scored"], found["stopped"]) == (0, N, N, None)
    assert asked + server.stats()["requests"] == 2 * N, "no call is repeated"
    refused = judged(server, data, *options, "--b", "Thema")
    assert refused.code == 2 and "run.force_new=true" in refused.err
