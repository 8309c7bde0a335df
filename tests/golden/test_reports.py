"""Every form of a report, the tables of the terminal and the exports of small fixed runs are the
texts below `reports`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pytest

from rm_gallery.report.formats import render
from rm_gallery.report.gate import QualityGate
from rm_gallery.report.tables import export
from rm_gallery.study.runs import OpenRun, open_run
from tests.golden.golden import HERE, WRITING
from tests.support.command import command

GIVEN = HERE / "given"
"""Folders of runs, and what the commands below read."""


def page(run: OpenRun) -> str:
    """What a page says: its body a tag a line, and the samples that its script shows."""
    text = render(run).replace("\u00a0", " ")
    body, _, rest = text.split("</style>")[1].partition('id="data">')
    samples = [
        json.dumps(sample, ensure_ascii=False) for sample in json.loads(rest.split("</script>")[0])
    ]
    return (
        re.sub(r"\s*\n\s*", "\n", re.sub(r"(?=<(?![/a]))", "\n", body)).strip()
        + "\n\n"
        + "\n".join(samples)
        + "\n"
    )


def cells(run: OpenRun) -> str:
    """The workbook's cells with their types, a row a line."""
    sheet = openpyxl.load_workbook(export(run, run.folder / "x.xlsx")).active
    assert sheet is not None
    lines = [[f"{cell.data_type}:{cell.value}" for cell in line] for line in sheet.iter_rows()]
    return (
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        + f"{sheet.freeze_panes}\n"
    )


FORMS: dict[str, Callable[[OpenRun], str]] = {
    "html": page,
    "md": lambda run: render(run, "md"),
    "json": lambda run: render(run, "json"),
    "junit": lambda run: render(run, "junit", QualityGate(0.7013, 0)),
    "cells": cells,
    "csv": lambda run: export(run, run.folder / "x.csv").read_text(encoding="utf-8"),
    "jsonl": lambda run: export(run, run.folder / "x.jsonl").read_text(encoding="utf-8"),
}
RUNS = {
    "pairs": tuple(FORMS),
    "steps": ("html", "md", "junit"),
    "compared": ("html", "md", "csv"),
    "unfinished": ("md", "json", "junit"),
    "many": ("html", "json"),
}
"""Pairs in both orders, lists of three, misses of both kinds and a trace; solutions judged step by
step, of a run that was stopped; two columns of a table, corrected by labels; a run without a
report, whose figures are those of the samples so far; scores of more values than bars and one far
off, lists of two and four seen at once, and answers of failed samples."""


def check(name: str, found: str) -> None:
    """Hold a text against its file, or write that anew."""
    path = HERE / "reports" / name.replace(" ", "-")
    found = re.sub(
        r"-?\d+\.\d{10,}(e-?\d+)?", lambda number: repr(float(f"{float(number[0]):.9g}")), found
    )
    if WRITING:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8", newline="\n")
    assert found.replace("\r\n", "\n") == path.read_text(encoding="utf-8").replace("\r\n", "\n"), (
        name
    )


@pytest.mark.parametrize(
    ("name", "form"), [(name, form) for name, forms in RUNS.items() for form in forms]
)
def test_a_run_in_every_form(name: str, form: str, tmp_path: Path) -> None:
    shutil.copytree(GIVEN / name, tmp_path / name)
    check(f"{name}.{form}", FORMS[form](open_run(tmp_path / name)))


TABLES = {
    "eval": "eval length_baseline pairs.jsonl --benchmark rewardbench2",
    "eval unscored": "eval accuracy pairs.jsonl",
    "bench repeats": "bench length_baseline preferences --data rows.jsonl --repeats 2",
    "winrate": (
        "winrate safety_pairwise_reward table.csv --prompt q --a x --b y --llm "
        "fake:<best>1</best> --labels people --by kind"
    ),
    "winrate of three": "winrate length_baseline table.csv --prompt q --a x --b y --b z --length-controlled",
    "winrate of sessions": "winrate length_baseline sessions.csv --prompt q --a x --b y",
    "winrate of own clusters": "winrate length_baseline sessions.csv --prompt q --a x --b y --config columns.cluster=thread-id",
    "score": (
        "score length_baseline table.csv --prompt q --answer x --answer y --labels stars --by kind"
    ),
    "grade": "grade graders.yaml graded.jsonl",
    "compare": "compare one two three --examples 1",
    "compare by default": "compare one two",
    "audit": "audit length_baseline --probe length --probe repeats --probe quality --limit 15",
    "conflicts": "conflicts safety_listwise_reward lists.jsonl --llm fake:<best>1</best>",
    "check": "check-reward own.py",
    "drift": "drift old.jsonl new.jsonl --old-again same.jsonl",
    "plan": "plan --precision 0.05 --judged 1000",
    "list": "list --task math --long",
    "explain": "explain traced s0",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands above read, and the runs that are compared."""
    place = shutil.copytree(GIVEN / "tables", tmp_path_factory.mktemp("tables"), dirs_exist_ok=True)
    (place / "own.py").write_text(
        "from rm_gallery import reward_function\n\n\n@reward_function(score_range=(0, 1))\n"
        "def own(messages, ground_truth='', **kwargs):\n    return float(str(ground_truth) in "
        "messages[-1].text)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for run, more in (("one", ""), ("two", "--param shortest=true"), ("three", "--limit 20")):
            assert (
                command(*f"eval length_baseline pairs.jsonl --out {run} {more}".split()).code == 0
            )
    return place


@pytest.mark.parametrize("name", TABLES)
def test_what_a_command_prints(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done = command(*TABLES[name].split())
    said = "\n".join(
        line for line in done.err.splitlines() if "/s" not in line and "done" not in line
    )
    text = f"$ rm-gallery {TABLES[name]}\nexit code {done.code}\n\n{done.out}\n{said}\n"
    check(f"{name}.txt", re.sub(r"\b\d+(\.\d+)? (ms|s)\b", "… s", text))


WHOLE = {
    **{name: call for name, call in TABLES.items() if name != "explain"},
    "winrate of the second": TABLES["winrate"].replace("<best>1", "<best>2"),
    "audit of pairs": "audit safety_pairwise_reward --llm fake:<best>1</best> --limit 12",
    "audit of everything": "audit length_baseline --limit 12",
    "audit without a verdict": "audit safety_pairwise_reward --llm fake:none --probe length --limit 3",
}


@pytest.mark.parametrize("name", WHOLE)
def test_all_that_a_command_tells(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done = command(*WHOLE[name].split(), "--json")
    found = {"exit code": done.code, "out": json.loads(done.out)}
    text = re.sub(
        r'"seconds": [\d.e-]+', '"seconds": 0', json.dumps(found, indent=1, ensure_ascii=False)
    )
    check(f"{name}.whole.json", f"{text}\n")
