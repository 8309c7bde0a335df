"""Every form of the report for every sort of run: whole, safe, and true to what the run says."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rm_gallery import DataError
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.significance import PairedDifference
from rm_gallery.core.utils.shown import visible
from rm_gallery.gallery.benchmarks.lead import ends_of
from rm_gallery.report.formats import FORMATS, render
from rm_gallery.report.gate import QualityGate
from rm_gallery.report.page import MAX_SAMPLES
from rm_gallery.study.compare import Difference
from rm_gallery.study.runs import OpenRun
from tests.report.runs import HOSTILE, judged_run, reply, report, row, write_run
from tests.support.command import command

# fmt: skip
NO_SCORE: dict[str, Any] = {
    "status": "unscored",
    "scores": [None, None],
    "credit": None,
    "issues": [["unscored", "parse", "x"]],
}
TEXT = '一個很長的答案 <&> with "quotes" and more words in it. ' * 120
STEPS = [
    [
        ["1 + 1 = 2", 0.9, {"correctness": True}],
        ["so 3", 0.2, {"correctness": False}],
        ["done", 0.5, {}],
    ],
    [],
]
LATE: dict[str, Any] = {"n_failed": 2, "reasons": {"failed: deadline": {"n": 2}}}
LISTED: dict[str, Any] = {"order": [2, 0, 1], "scores": [1.0, 0.0, 0.0]}

RUNS: dict[str, tuple[list[dict[str, Any]], dict[str, Any] | None]] = {
    "one sample": ([row(1)], report(1)),
    "no sample at all": ([], report(0, score=None, ci95=None)),
    "nothing written yet": ([], None),
    "unfinished": ([row(k, subset="ab"[k % 2]) for k in range(9)], None),
    "stopped early": ([row(1)], report(3, n_scored=1, n_stopped=2, stopped="the budget of 1 call is used up")),
    "no labels": ([row(k, labels=[None, None], credit=None) for k in range(9)], report(9, score=None, ci95=None)),
    "labels left out": ([row(k, labels=[]) for k in range(3)], report(3)),
    "nothing scored": ([row(k, **NO_SCORE) for k in range(9)], report(9, n_scored=0, n_unscored=9, score=None, ci95=None)),
    "steps": ([row(k, scores=[None, None], steps=STEPS) for k in range(4)], report(4)),
    "lists": ([row(k, "a", "b", "c", **LISTED) for k in range(30)], report(30)),
    "all scores equal": ([row(k, scores=[0.5, 0.5]) for k in range(9)], report(9)),
    "huge scores": ([row(k, scores=[1e300 * (k - 4), -1e308]) for k in range(9)], report(9)),
    "tiny scores": ([row(k, scores=[1e-300 * k, 5e-324]) for k in range(9)], report(9)),
    "one far score": ([row(k, scores=[k / 50, 1e12 if k == 3 else 0.0]) for k in range(50)], report(50)),
    "empty texts": ([row(k, "", "", prompt="") for k in range(4)], report(4)),
    "no answers": ([row(k, answers=[], labels=[], scores=[]) for k in range(4)], report(4)),
    "600 subsets": ([row(1)], report(600, by_subset={f"part {k}": report(1) for k in range(600)})),
    "odd report": ([row(1)], {"n": None, "score": 0.5, "by_subset": {"x": {"n": "many"}}, "extra": {"a": {"b": [1]}, "f": True}}),
    "odd rows": ([row(1, scores=[1.0]), row(2, reasons=["r"]), {"id": "x"}, {"id": "y", "status": "stopped"}], report(4)),
}  # fmt: skip


def checked(run: OpenRun) -> dict[str, str]:
    """All forms; each of them has to be well-formed and free of what no reader can make sense of."""
    found = {form: render(run, form) for form in FORMATS}
    found["html"] = found["html"].replace("\u00a0", " ")
    tags = tags_of(found["html"])
    assert (tags["script"], tags["style"], tags["meta"], tags["img"], tags["iframe"]) == (
        2,
        1,
        5,
        0,
        0,
    )
    figures = found["html"].split("<script")[0].split("</style>")[1]
    assert not re.search(r"\b(?:nan|infinity|None|undefined|Undefined)\b", figures)
    json.loads(found["json"])
    ElementTree.fromstring(found["junit"].encode())
    for text in found.values():
        text.encode("utf-8")
    return found


def tags_of(page: str) -> Counter[str]:
    found: Counter[str] = Counter()

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found[tag] += 1
            assert not any(name.startswith("on") or name == "style" for name, _ in attrs), (
                "no handlers, no inline style"
            )

    Parser().feed(page)
    return found


@pytest.mark.parametrize("name", RUNS)
def test_every_sort_of_run_has_every_form(name: str, tmp_path: Path) -> None:
    rows, saved = RUNS[name]
    checked(write_run(tmp_path, rows, saved))


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    found = checked(judged_run(tmp_path))
    figures, data = found["html"].split('<script type="application/json" id="data">')
    assert "<script>window" not in figures and "49" not in figures.split("{{ 7 * 7 }}")[0][-2:]
    raw = data.split("</script>")[0]
    assert not set("<>&") & set(raw), "nothing can end the element that holds the samples"
    shown = json.loads(raw)
    assert (
        shown[5]["prompt"]
        == "Question 5: ⟦U+202E⟧gnirts desrever⟦U+202C⟧ ⟦U+2066⟧⟦U+200B⟧⟦U+FEFF⟧ end"
    )
    assert "lone \ufffd surrogate, NUL ␀, bell ␇" in shown[6]["answers"][0]["text"]
    assert (
        shown[15]["replies"][0]["reply"]
        == "<think>第一行\n第二行\nthird 🙂 é</think><best>1</best>"
    )
    assert "<script" not in found["md"] and "<script" not in found["junit"]


@pytest.mark.long("many judgements")
@pytest.mark.parametrize(
    ("n", "answers", "longest"), [(700, ("{} " + TEXT, TEXT, TEXT), 5_000_000), (300, ("x" * 400,) * 60, 5_000_000), (1, ("start" + "x" * 2_000_000 + "end", "\x00" * 1_000_000), 200_000)],
    ids=["long answers", "many answers", "a megabyte"],
)  # fmt: skip
def test_a_page_stays_small_and_cuts_what_is_long(
    n: int, answers: tuple[str, ...], longest: int, tmp_path: Path
) -> None:
    rows = [
        row(k, *(answer.format(k) for answer in answers), prompt=TEXT[: 40 * (k % 90)])
        for k in range(n)
    ]
    page = render(write_run(tmp_path, rows, report(n), [reply(k, TEXT) for k in range(n)]))
    assert len(page.encode()) < longest
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert len(data) == n or f" of {n} finished samples" in page
    shown = data[-1]["answers"][0]
    assert shown["length"] == len(answers[0].format(n - 1)), (
        "the length shown is that of the whole answer"
    )
    assert "characters left out" in shown["text"]


def test_a_run_beyond_measure_shows_what_has_no_score_and_a_draw_of_the_rest(
    tmp_path: Path,
) -> None:
    rows = [row(k, **(NO_SCORE if k % 1000 == 5 else {})) for k in range(MAX_SAMPLES + 1500)]
    page = render(write_run(tmp_path, rows, report(len(rows))))
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert len(data) == MAX_SAMPLES and sum(found["outcome"] == "unscored" for found in data) == 4
    assert f"{MAX_SAMPLES:,} of {len(rows):,} finished samples" in page


@pytest.mark.parametrize("text", HOSTILE)
def test_visible_text_has_nothing_hidden_in_it(text: str) -> None:
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ud800-\udfff\u2028\r]",
        visible(text),
    )


LOST: dict[str, Any] = {"n_scored": 8, "n_unscored": 2, "missing": {"judge": 2}}
SIDES: dict[str, tuple[dict[str, Any], int]] = {
    "nothing is missing": (
        {"score": 0.7, "ci95": [0.6, 0.8], "bounds": [0.7, 0.7], "missing": {}},
        1,
    ),
    "chance may explain it": (
        {"score": 0.55, "ci95": [0.45, 0.65], "bounds": [0.55, 0.55], "missing": {}},
        0,
    ),
    "the interval touches it": (
        {"score": 0.6, "ci95": [0.5, 0.7], "bounds": [0.6, 0.6], "missing": {}},
        0,
    ),
    "it holds at worst": ({"score": 0.7, "ci95": [0.6, 0.8], "bounds": [0.56, 0.76], **LOST}, 1),
    "what is missing may explain it": (
        {"score": 0.62, "ci95": [0.52, 0.72], "bounds": [0.496, 0.696], **LOST},
        0,
    ),
    "at worst it touches it": (
        {"score": 0.625, "ci95": [0.52, 0.72], "bounds": [0.5, 0.7], **LOST},
        0,
    ),
    "both may explain it": (
        {"score": 0.55, "ci95": [0.45, 0.65], "bounds": [0.44, 0.64], **LOST},
        0,
    ),
    "nobody knows its ends": ({"score": 0.7, "ci95": [0.6, 0.8], "bounds": None, **LOST}, 0),
    "a report of an earlier version": (
        {"score": 0.7, "ci95": [0.6, 0.8], "n_scored": 8, "n_unscored": 2},
        0,
    ),
}
"""Figures, and on which side of 50 % they are shown to lie. Chance and what is missing may each
explain a difference alone.
"""


@pytest.mark.parametrize("name", SIDES)
def test_nothing_is_beaten_and_nobody_is_better_where_chance_or_what_is_missing_explains_it(
    name: str, tmp_path: Path
) -> None:
    figures, side = SIDES[name]
    turned = {**figures, "score": 1 - figures["score"]}
    turned |= {
        key: [1 - end for end in figures[key][::-1]]
        for key in ("ci95", "bounds")
        if figures.get(key)
    }
    for given, sign in ((figures, side), (turned, -side)):
        saved = report(10, **given, chance=0.5, baselines={})
        page = render(write_run(tmp_path / f"guessed {sign}", [row(1)], saved), "md")
        for said, shown in (("above", sign > 0), ("below", sign < 0)):
            surely = f", {said} guessing (50.0 %)"
            assert (surely in page and f"{surely}, but" not in page) is shown
        undecided = "cannot be told from guessing" in page or "could undo that" in page
        assert undecided == (sign == 0)
        ends = ends_of(saved)
        worst = dict(QualityGate(beats=("chance",), max_unscored=2).missed(saved))
        assert ("score" in worst) == (ends.low <= 0.5), (
            "a gate asks what the score exceeds at worst, and leaves its interval to --surely"
        )
        compared = report(10, **given, rule="win_rate", extra={"a": "new", "b": "old"})
        page = render(write_run(tmp_path / f"compared {sign}", [row(1)], compared), "md")
        for said, shown in ((", above 50 %", sign > 0), (", below 50 %", sign < 0)):
            assert (said in page and f"{said}, but" not in page) is shown
        assert ("cannot be told from 50 %" in page or "could undo" in page) == (sign == 0)
        interval, bounds = (Interval(low - 0.5, high - 0.5) for low, high in (given["ci95"], ends))
        paired = PairedDifference(given["score"] - 0.5, interval, 0.01, None, 10, 10, 0)
        assert (
            Difference("all", 0.5, given["score"], paired, None, bounds).better
            == {1: "second", 0: None, -1: "first"}[sign]
        )


# -- gates and the command -------------------------------------------------------------------------


def junit(run: OpenRun, gate: QualityGate) -> dict[str, str]:
    root = ElementTree.fromstring(render(run, "junit", gate).encode())
    return {
        case.attrib["name"]: child.tag
        for case in root.iter("testcase")
        for child in case
        if child.tag != "system-out"
    }


@pytest.mark.parametrize(("gate", "saved", "failures"), [
    (QualityGate(), report(4), {}),
    (QualityGate(0.75), report(4), {}),
    (QualityGate(0.76), report(4), {"score": "failure"}),
    (QualityGate(), report(4, score=None), {"score": "failure"}),
    (QualityGate(), report(4, **LATE), {"samples failed: deadline": "failure"}),
    (QualityGate(max_failures=2), report(4, **LATE), {}),
    (QualityGate(), report(4, n_failed=2), {"failed samples": "failure"}),
    (QualityGate(), report(4, stopped="the budget is used up"), {"finished": "failure"}),
    (QualityGate(), report(4, reasons={"unscored: parse": {"n": 1}}), {"samples unscored: parse": "skipped"}),
    (QualityGate(), report(4, by_subset={"a": report(2), "b": report(2, score=None, n_scored=0)}), {"subset b": "failure"}),
])  # fmt: skip
def test_junit_has_a_failure_for_every_gate_that_is_missed(
    gate: QualityGate, saved: dict[str, Any], failures: dict[str, str], tmp_path: Path
) -> None:
    assert junit(write_run(tmp_path, [row(1)], saved), gate) == failures


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("field", ["by_subset", "baselines", "reasons", "n", "ci95", "extra"])
def test_what_no_run_writes_is_named(field: str, form: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [row(0)], {**report(1), field: ["odd"]})
    try:
        render(run, form)
    except DataError as error:
        assert "run: its files hold what no run writes" in str(error)


def test_the_command_writes_where_it_is_told(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [row(1, "第一", "二")], report(1))
    done = command(
        "report", str(tmp_path / "run"), "--format", "md", "--out", str(tmp_path / "a" / "b.md")
    )
    assert (done.code, done.out) == (0, "") and (tmp_path / "a" / "b.md").read_text(
        encoding="utf-8"
    ).startswith("# a")
    page = command("report", str(tmp_path / "run"))
    assert (page.code, page.out.strip()) == (0, str(tmp_path / "run" / "report.html"))
    wrong = command("report", str(tmp_path / "run"), "--format", "pdf")
    assert (wrong.code, wrong.err) == (
        2,
        "rm-gallery: format is 'pdf'; formats are html, md, json, junit.\n",
    )


@pytest.mark.parametrize("form", ["md", "junit"])
def test_a_huge_name_does_not_fill_the_report(form: str, tmp_path: Path) -> None:
    name = "n" * 1_000_000
    saved = report(
        1,
        reward=name,
        benchmark=name,
        notes=[name],
        stopped=name,
        reasons={name: {"n": 1, "example": name}},
    )
    assert len(render(write_run(tmp_path / "run", [row(0)], saved), form)) < 100_000
