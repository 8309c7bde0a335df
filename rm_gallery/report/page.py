"""A run as one HTML page that needs nothing else: figures, plots and a table of its samples, every
text escaped.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import orjson

from rm_gallery._version import __version__
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.core.utils.shown import cut, number, percent, visible
from rm_gallery.gallery.benchmarks.lead import (
    COMPARED,
    OWN_UNIT,
    corrected_figure,
    in_unit,
    lead_figure,
    worth,
)
from rm_gallery.report import plots
from rm_gallery.report.fill import TEMPLATES, fill
from rm_gallery.report.run_figures import (
    answers_of,
    duration,
    figures_of,
    findings,
    further,
    lost_of,
    rule_of,
    single_line,
    spent,
    title_of,
)
from rm_gallery.study.runs import OpenRun, SampleRow, without_empty
from rm_gallery.study.summary import Summary, gap_of, tokens_of

MAX_SAMPLES = 2_000
"""Samples in the table; of a larger run those without a score come first, then a seeded draw of the
others.
"""
MAX_LOST = 500
MAX_BYTES = 3_800_000
"""Of the table's data, so that the page stays below 5 MB."""
LONGEST_TEXT = 20_000
"""Bytes of one text; shorter where many texts share the room."""
SHORTEST_TEXT = 120


def table_data(run: OpenRun, summary: Summary, compared: bool = False) -> tuple[str, int, int]:
    """The samples as JSON that is safe inside a page, the longest text in bytes, and how many
    samples it holds.

    With `compared` a credit is a win of the first answer, not a right verdict.
    """
    rows = _chosen_rows(run, summary)
    replies: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    keys = {row.key for row in rows}
    for entry in run.trace():
        if (key := entry.get("sample_key")) in keys:
            replies[str(key)].append(_reply_record(entry))
    limit = LONGEST_TEXT
    while True:
        data = _safe(
            [_sample_record(row, replies.get(row.key, []), limit, compared) for row in rows]
        )
        if len(data) <= MAX_BYTES or not rows:
            return data.decode(), limit, len(rows)
        if limit <= SHORTEST_TEXT:  # so many answers or steps that even cut short they are too much
            rows = rows[: int(0.9 * len(rows) * MAX_BYTES / len(data))]
            continue
        limit = max(SHORTEST_TEXT, min(limit // 2, int(limit * 1.2 * MAX_BYTES / len(data))))


def _safe(data: Any) -> bytes:
    """JSON in which nothing ends a script element or opens a comment."""
    raw = orjson.dumps(data)
    return raw.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def _chosen_rows(run: OpenRun, summary: Summary) -> list[SampleRow]:
    rows: list[SampleRow] = []
    kept = None
    if summary.n > MAX_SAMPLES:
        lost = min(MAX_LOST, summary.n - summary.statuses["scored"])
        kept = set(seeded_positions(summary.statuses["scored"], MAX_SAMPLES - lost, 0))
    asked = run.manifest.get("columns")
    columns = asked.get("answers") if isinstance(asked, dict) else None
    met: Counter[bool] = Counter()
    for row in run.samples():
        place = met[scored := row.status == "scored"]
        met[scored] += 1
        if kept is None or (place in kept if scored else place < MAX_LOST):
            rows.append(_shortened(row, columns))
    return rows


def names_of(row: SampleRow, columns: Any) -> list[str]:
    """What the answers are called where they are columns of a table; empty elsewhere."""
    places = (row.metadata or {}).get("columns")
    if not isinstance(columns, list) or not isinstance(places, list):
        return []
    fits = all(isinstance(place, int) and 0 <= place < len(columns) for place in places)
    named = fits and len(places) == len(row.answers)
    return [str(columns[place]) for place in places] if named else []


def _shortened(row: SampleRow, columns: Any) -> SampleRow:
    """The row with texts as the page may show them at most, so that a huge one is not kept in
    memory.
    """
    return replace(
        row,
        prompt=_visible_text(row.prompt, LONGEST_TEXT),
        answers=tuple(_visible_text(text, LONGEST_TEXT) for text in row.answers),
        reasons=tuple(
            None if text is None else _visible_text(text, LONGEST_TEXT) for text in row.reasons
        ),
        metadata={"lengths": [len(text) for text in row.answers], "names": names_of(row, columns)},
    )


def _visible_text(text: Any, limit: int) -> str:
    """A text made visible and cut; what is far too long is cut before it is looked at."""
    text = str(text)
    return cut(visible(cut(text, 2 * limit) if len(text) > 4 * limit else text), limit)


def _reply_record(entry: Mapping[str, Any]) -> dict[str, Any]:
    tokens = tokens_of(entry)
    return {
        "place": _shown_place(entry.get("place")),
        "attempt": int(number(entry.get("attempt"), 1)),
        "status": str(entry.get("status")),
        "problem": _visible_text(entry.get("problem") or "", 400),
        "seconds": round(number(entry.get("seconds")), 3),
        "cached": bool(entry.get("cached")),
        "tokens": [tokens["input"], tokens["output"]],
        "reply": None
        if entry.get("reply") is None
        else _visible_text(entry["reply"], LONGEST_TEXT),
    }


def _shown_place(place: Any) -> int | list[int] | None:
    if isinstance(place, list) and all(type(one) is int for one in place):
        return place[:40]
    return place if type(place) is int else None


def _sample_record(
    row: SampleRow, replies: Sequence[dict[str, Any]], limit: int, compared: bool
) -> dict[str, Any]:
    about = row.metadata or {}
    answers = [
        {
            "text": cut(text, limit),
            "length": length,
            **without_empty(
                {
                    "label": label,
                    "score": _number_or_none(score),
                    "reason": reason and cut(reason, limit),
                }
            ),
        }
        for length, (text, label, score, reason) in zip(
            about.get("lengths", ()), answers_of(row), strict=False
        )
    ]
    record: dict[str, Any] = {
        "id": _visible_text(row.id, 200),
        "subset": _visible_text(row.subset, 200),
        "status": _visible_text(row.status, 40),
        "outcome": outcome_of(row, compared),
        "gap": _number_or_none(gap_of(row)),
        "prompt": _visible_text(row.prompt, limit),
        "answers": answers,
        "names": [_visible_text(name, 100) for name in about.get("names", ())],
        "verdicts": [list(verdict) for verdict in row.verdicts],
        "steps": [
            [
                [cut(visible(str(text)), limit // 4), _number_or_none(score), _label(label)]
                for text, score, label in steps[:60]
            ]
            for steps in row.steps
        ],
        "issues": [
            [i.status, visible(i.reason), _visible_text(i.message, 600)] for i in row.issues
        ],
        "replies": [
            {**reply, "reply": None if reply["reply"] is None else cut(reply["reply"], limit)}
            for reply in replies[:24]
        ],
    }
    return without_empty(record)


def _label(label: Any) -> str:
    return (
        _visible_text(", ".join(f"{k}: {v}" for k, v in label.items()), 120)
        if isinstance(label, Mapping)
        else ""
    )


def _number_or_none(value: Any) -> float | None:
    parsed = number(value, math.nan)
    return None if math.isnan(parsed) else parsed


def outcome_of(row: SampleRow, compared: bool = False) -> str:
    """What became of a sample in one word: right, partly, wrong, scored (it earned nothing
    countable), or its status.

    With `compared` the first answer wins, ties or loses.
    """
    if row.status != "scored":
        return row.status if row.status in ("unscored", "failed", "stopped") else "unscored"
    if row.credit is None:
        return "scored"
    if compared:
        return "wins" if row.credit > 0.5 else "loses" if row.credit < 0.5 else "tie"
    return "right" if row.credit > 1 - 1e-9 else "wrong" if row.credit < 1e-9 else "partly"


MAX_SUBSETS = 400
MAX_REASONS = 40


def render_page(
    run: OpenRun, summary: Summary, title: str | None = None, most: int | None = None
) -> str:
    """The page of a run; it needs no network, no other file, and runs no script but its own.

    With `most` it is a summary to print: the head, and at most so many findings, subsets and
    reasons; no samples.
    """
    brief, report = most is not None, run_report(run, summary, title)
    figures = report["figures"]
    style, script = _own_files()
    data, limit, shown = (
        ("", 0, 0) if brief else table_data(run, summary, figures.get("rule") == COMPARED)
    )
    first, listed = lead_figure(figures), MAX_SUBSETS if most is None else most
    return fill(
        "page.jinja2",
        **{
            **report,
            "title": single_line(report["title"])[:200],
            "reasons": report["reasons"][: MAX_REASONS if most is None else min(most, MAX_REASONS)],
        },
        brief=brief,
        style=style,
        script=script,
        policy=page_policy(),
        data=data,
        score=in_unit(first, first.get("score")),
        share=figures.get("rule") not in OWN_UNIT,
        lost=lost_of(figures),
        lead=first,
        gauge=_gauge,
        marks=_marks,
        beside=_beside,
        own_units=OWN_UNIT,
        has_baselines=any(
            part.get("baselines") or part.get("chance") is not None for _, part in report["subsets"]
        ),
        made_with=run.manifest.get("versions"),
        further=list(further(figures.get("extra") or {}))[:MAX_SUBSETS],
        listed=listed,
        most=len(report["findings"]) if most is None else most,
        latency=_latency(summary),
        n=summary.n,
        shown=shown,
        limit=limit,
        traced=run.traced,
        folder=run.folder.name,
        version=__version__,
    )


def run_report(run: OpenRun, summary: Summary, title: str | None = None) -> dict[str, Any]:
    """What page and Markdown show of a run, as plain data."""
    figures = figures_of(run, summary)
    return {
        "figures": figures,
        "title": title or title_of(figures, run.folder.name),
        "worth": worth(figures),
        "corrected": corrected_figure(figures) is not None,
        "rule": rule_of(figures),
        "findings": list(findings(run, figures, summary)),
        "says": [str(line) for line in figures.get("says") or ()][:MAX_SUBSETS],
        "subsets": list((figures.get("by_subset") or {}).items()),
        "plots": list(filter(None, plots.all_plots(summary))),
        "reasons": [
            (key, entry if isinstance(entry, Mapping) else {})
            for key, entry in (figures.get("reasons") or {}).items()
        ],
        "spent": spent(run, figures, summary),
    }


@cache
def _own_files() -> tuple[str, str]:
    """The page's style sheet and its script."""
    return (TEMPLATES / "page.css").read_text("utf-8"), (TEMPLATES / "page.js").read_text("utf-8")


@cache
def page_policy() -> str:
    """What the page may load and run: its own style sheet and its own script, known by their
    hashes.
    """
    css, js = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in _own_files()
    )
    return (
        f"default-src 'none'; style-src 'sha256-{css}'; script-src 'sha256-{js}'; img-src data:; "
        f"base-uri 'none'; "
        "form-action 'none'"
    )


# -- figures ---------------------------------------------------------------------------------------


def _gauge(figures: Mapping[str, Any]) -> str:
    marks = [(name, value) for name, value, _ in _marks(figures)]
    return plots.gauge(figures.get("score"), figures.get("ci95"), marks)


def _marks(figures: Mapping[str, Any]) -> list[tuple[str, float, str]]:
    """What the score is held against: name of its mark, value, and the words for it."""
    guessing = "an even match" if figures.get("rule") == COMPARED else "guessing"
    words = {"chance": guessing, "longest": "longest answer", "shortest": "shortest answer"}
    values = {**(figures.get("baselines") or {}), "chance": figures.get("chance")}
    return [
        (name, value, f"{word} {percent(value)}")
        for name, word in words.items()
        if isinstance(value := values.get(name), (int, float))
    ]


def _beside(figures: Mapping[str, Any]) -> str:
    """What guessing, the longest and the shortest answer would reach, without percent signs."""
    marks = {name: value for name, value, _ in _marks(figures)}
    shown = [percent(marks.get(name)) for name in ("chance", "longest", "shortest") if marks]
    return " · ".join(share.removesuffix(" %") for share in shown)


def _latency(summary: Summary) -> str:
    seconds = sorted(summary.calls.seconds)
    n = len(seconds)
    if not n:
        return ""
    half, most, nearly_all = (
        duration(seconds[min(n - 1, int(share * n))]) for share in (0.5, 0.95, 0.99)
    )
    return (
        f"half of the replies within {half}, 95 % within {most}, 99 % within {nearly_all} (n = "
        f"{n:,})"
    )
