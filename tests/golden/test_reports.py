"""Every form of a report, the tables of the terminal and the exports of small fixed runs are the texts below `reports`."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from rm_gallery.report.export import export
from rm_gallery.report.formats import Gate, render
from rm_gallery.report.opened import OpenRun
from tests.golden.golden import HERE, WRITING
from tests.report.runs import reply, report, row, write_run
from tests.support.command import command

STEPS = [[["1 + 1 = 2", 0.9, {"correctness": True}], ["so 3", 0.2, {"correctness": False}], ["done", 0.5, {}]], []]
LOST: dict[str, Any] = {"scores": [None, None], "credit": None, "verdicts": []}


def pairs(folder: Path) -> OpenRun:
    """Twelve pairs in two subsets, both orders, five lists of three, misses of both kinds, a trace, and a page's every part."""
    rows, trace = [], []
    for k in range(12):
        gap = (0.9, 0.2, -0.4, 0.6, 0.0, 1.5)[k % 6]
        fields: dict[str, Any] = {
            "subset": ("Math", "Chat & <more>")[k % 2],
            "cluster": str(k // 2),
            "scores": [1.0 + gap, 1.0],
            "reasons": ["is right", None],
            "verdicts": [[0, 1, 1 if k % 4 else -1], [1, 0, -1 if k % 3 else 1]],
            "credit": 1.0 if gap > 0 else 0.5 if gap == 0 else 0.0,
        }
        rows.append(row(k, f"right {'word ' * (k + 1)}", f"wrong {'word ' * (12 - k)}", **fields))
        trace.append(
            reply(k, f"<best>{1 + k % 2}</best>", seconds=0.25 * (k + 1), cached=k % 5 == 0, attempt=1 + (k == 3))
        )
    for k in range(12, 17):
        scores = [[0.9, 0.1, 0.3], [0.2, 0.8, 0.1], [0.5, 0.5, 0.1]][k % 3]
        rows.append(
            row(k, "right", "wrong", "not so", order=[2, 0, 1], scores=scores, subset="Math", credit=float(k % 3 == 0))
        )
    rows.append(row(17, **{**LOST, "status": "unscored", "issues": [["unscored", "parse", "no <best> in it"]]}))
    rows.append(row(18, **{**LOST, "status": "failed", "issues": [["failed", "deadline", "1 s passed"]]}))
    part = {"rule": "pair_strict", "n_unscored": 0, "n_failed": 0, "n_stopped": 0}
    saved = report(
        19, n_scored=17, n_unscored=1, n_failed=1, score=0.7012, ci95=[0.46, 0.88], calls=24, cached=3, duplicates=2, skipped=1,
        usage={"input_tokens": 1200, "output_tokens": 340, "cost": 0.0123}, judge="judge-1", endpoint="http://judge/v1",
        by_subset={
            "Math": {**part, "n": 11, "n_scored": 11, "score": 0.8, "ci95": [0.5, 0.95], "chance": 0.5, "baselines": {"longest": 0.4}},
            "Chat & <more>": {**part, "n": 6, "n_scored": 6, "score": 0.5, "ci95": [0.19, 0.81]},
            "empty": {**part, "n": 2, "n_scored": 0, "n_unscored": 2, "score": None, "ci95": None},
        },
        notes=["a note | of *one* line"], extra={"sections": {"n": 17, "score": 0.7}, "levels": [1, 2.5], "deep": {"share": 0.25}},
        reasons={"unscored: parse": {"n": 1, "example": "no <best> in it"}, "failed: deadline": {"n": 1, "example": "1 s passed"}},
    )  # fmt: skip
    return write_run(
        folder / "pairs", rows, saved, trace, {"reward": {"name": "a_reward"}, "versions": {"python": "3"}}
    )


def steps(folder: Path) -> OpenRun:
    """Solutions judged step by step, of a run that was stopped."""
    rows = [row(k, scores=[None, None], steps=STEPS, metadata={"k": k}) for k in range(3)]
    return write_run(
        folder / "steps", rows, report(5, n_scored=3, n_stopped=2, stopped="the budget of 3 calls is used up")
    )


def compared(folder: Path) -> OpenRun:
    """Two columns of a table, corrected by labels."""
    found = [
        row(k, labels=[None, None], credit=credit, metadata={"columns": [0, 1], "row": 3 - k})
        for k, credit in enumerate((1.0, 0.5, 0.0, None))
    ]
    extra = {
        "a": "new",
        "b": "old",
        "corrected": {"estimate": 0.61, "ci95": [0.5, 0.7], "n_labelled": 12},
        "repeats": {"n": 3},
    }
    saved = report(
        4, rule="win_rate", score=0.62, ci95=[0.55, 0.7], extra=extra, baselines={"longest": 0.65}, chance=0.5
    )
    return write_run(folder / "compared", found, saved, manifest={"sheet": "s", "columns": {"answers": ["new", "old"]}})


def unfinished(folder: Path) -> OpenRun:
    """A run without a report: its figures are those of the samples so far."""
    rows = [row(k, subset="ab"[k % 2], credit=float(k % 3 == 0)) for k in range(9)]
    rows.append(row(9, **{**LOST, "status": "unscored", "subset": "a", "issues": [["unscored", "parse", "x"]]}))
    return write_run(folder / "unfinished", rows)


def page(run: OpenRun) -> str:
    """What a page says: its body a tag a line, and the samples that its script shows."""
    text = render(run).replace("\u00a0", " ")
    body, _, rest = text.split("</style>")[1].partition('id="data">')
    samples = [json.dumps(sample, ensure_ascii=False) for sample in json.loads(rest.split("</script>")[0])]
    return re.sub(r"\s*\n\s*", "\n", re.sub(r"(?=<(?![/a]))", "\n", body)).strip() + "\n\n" + "\n".join(samples) + "\n"


def cells(run: OpenRun) -> str:
    """The workbook's cells with their types, a row a line."""
    sheet = openpyxl.load_workbook(export(run, run.folder / "x.xlsx")).active
    assert sheet is not None
    lines = [[f"{cell.data_type}:{cell.value}" for cell in line] for line in sheet.iter_rows()]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines) + f"{sheet.freeze_panes}\n"


FORMS: dict[str, Callable[[OpenRun], str]] = {
    "html": page,
    "md": lambda run: render(run, "md"),
    "json": lambda run: render(run, "json"),
    "junit": lambda run: render(run, "junit", Gate(0.7013, 0)),
    "cells": cells,
    "csv": lambda run: export(run, run.folder / "x.csv").read_text(encoding="utf-8"),
    "jsonl": lambda run: export(run, run.folder / "x.jsonl").read_text(encoding="utf-8"),
}
RUNS = {
    pairs: tuple(FORMS),
    steps: ("html", "md", "junit"),
    compared: ("html", "md", "csv"),
    unfinished: ("md", "json", "junit"),
}


def check(name: str, found: str) -> None:
    """Hold a text against its file, or write that anew."""
    path = HERE / "reports" / name.replace(" ", "-")
    found = re.sub(r"-?\d+\.\d{10,}(e-?\d+)?", lambda number: f"{float(number[0]):.9g}", found)
    if WRITING:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8", newline="\n")
    assert found.replace("\r\n", "\n") == path.read_text(encoding="utf-8").replace("\r\n", "\n"), name


@pytest.mark.parametrize(("make", "form"), [(make, form) for make, forms in RUNS.items() for form in forms])
def test_a_run_in_every_form(make: Callable[[Path], OpenRun], form: str, tmp_path: Path) -> None:
    check(f"{make.__name__}.{form}", FORMS[form](make(tmp_path)))


LISTS = "conflicts safety_listwise_reward --data lists.jsonl --llm fake:<best>1</best>"
TABLES = {
    "eval": "eval length_baseline pairs.jsonl --format rewardbench2",
    "eval unscored": "eval accuracy pairs.jsonl",
    "bench repeats": "bench preferences -r length_baseline --data rows.jsonl --repeats 2",
    "winrate": "winrate table.csv --prompt q --a x --b y -r safety_pairwise_reward --llm fake:<best>1</best> --labels people --by kind",
    "winrate of three": "winrate table.csv --prompt q --a x --b y --other z -r length_baseline --length-controlled",
    "score": "score table.csv --prompt q --answer x --answer y -r length_baseline --labels stars --by kind",
    "grade": "grade graders.yaml graded.jsonl",
    "compare": "compare one two three --examples 1",
    "compare by default": "compare one two",
    "audit": "audit length_baseline --probe length --probe repeats --probe quality --limit 15",
    "conflicts": LISTS,
    "check": "check-reward own.py",
    "drift": "drift old.jsonl new.jsonl --old-again same.jsonl",
    "plan": "plan --precision 0.05 --judged 1000",
    "list": "list --task math --long",
    "trace": "trace traced s0",
    "trace of all": "trace traced",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands above read."""
    place = tmp_path_factory.mktemp("tables")

    def lines(name: str, rows: list[dict[str, Any]]) -> None:
        (place / name).write_text("".join(json.dumps(line) + "\n" for line in rows), encoding="utf-8")

    words = ["long " * (1 + k % 5) for k in range(24)]
    lists = [
        {
            "id": str(k),
            "prompt": f"q{k // 2}",
            "chosen": [text],
            "rejected": ["two words", "x", "yy"],
            "subset": ("Math", "Focus")[k % 2],
        }
        for k, text in enumerate(words)
    ]
    lines("pairs.jsonl", lists)
    lines("lists.jsonl", lists[:6])
    lines(
        "rows.jsonl",
        [
            {"id": str(k), "prompt": f"q{k // 2}", "chosen": text, "rejected": "two words"}
            for k, text in enumerate(words)
        ],
    )
    with (place / "table.csv").open("w", encoding="utf-8", newline="") as file:
        table = [
            [
                f"q{k}",
                text,
                "two words",
                "three " * (k % 3),
                ("a", "b", "tie")[k % 3] if k < 9 else "",
                k % 4,
                "pr"[k % 2],
            ]
            for k, text in enumerate(words)
        ]
        csv.writer(file).writerows([["q", "x", "y", "z", "people", "stars", "kind"], *table])
    (place / "graders.yaml").write_text(
        "graders: {exact: {grader: string_match, mapper: {reference_response: truth}}}\nlabels: {exact: good}\n"
    )
    lines(
        "graded.jsonl", [{"query": "q", "response": "ab"[k % 2], "truth": "a", "good": k % 4 == 0} for k in range(12)]
    )
    (place / "own.py").write_text(
        "from rm_gallery import reward_function\n\n\n@reward_function(score_range=(0, 1))\n"
        "def own(messages, ground_truth='', **kwargs):\n    return float(str(ground_truth) in messages[-1].text)\n"
    )
    scores = [float(k % 3 != 0) for k in range(60)]
    for name, values in (
        ("old", scores),
        ("same", [*scores[:-1], 0.0]),
        ("new", [0.0 if k % 2 else score for k, score in enumerate(scores)]),
    ):
        lines(f"{name}.jsonl", [{"id": f"a{k}", "prompt": f"q{k}", "score": score} for k, score in enumerate(values)])
    prompt = [{"role": "user", "content": "Which?\x1b[2J"}]
    about: dict[str, Any] = {"reward": "r", "prompt": prompt, "tokens": {"input": 9, "output": 4}}
    trace = [
        reply(0, "?", **about, problem="no verdict", status="unscored"),
        reply(0, "<best>1</best>", **about, cached=True),
    ]
    write_run(place / "traced", [row(0), row(1)], report(2), [*trace, reply(1, "x")])
    return place


@pytest.mark.parametrize("name", TABLES)
def test_what_a_command_prints(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    if name.startswith("compare"):
        for run, more in (("one", ""), ("two", "--param shortest=true"), ("three", "--limit 20")):
            assert command(*f"eval length_baseline pairs.jsonl --out {run} {more}".split()).code == 0
    done = command(*TABLES[name].split())
    said = "\n".join(line for line in done.err.splitlines() if "/s" not in line and "done" not in line)
    text = f"$ rm-gallery {TABLES[name]}\nexit code {done.code}\n\n{done.out}\n{said}\n"
    check(f"{name}.txt", re.sub(r"\b\d+(\.\d+)? (ms|s)\b", "… s", text))
