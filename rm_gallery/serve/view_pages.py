"""What the viewer's pages say: a run's figures, its rows, one row with everything about it, and two
runs side by side. The templates turn it into words.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import jinja2
from rapidfuzz.distance import Indel

from rm_gallery.core.engine.folder import read_trace
from rm_gallery.core.model.transport import Json
from rm_gallery.core.stats import Integers, np
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.shown import cut, ended, show, visible
from rm_gallery.gallery.benchmarks.figures import UNNAMED
from rm_gallery.gallery.benchmarks.lead import (
    OWN_UNIT,
    between,
    count_of,
    in_unit,
    lead_figure,
    worth,
)
from rm_gallery.report import plots
from rm_gallery.report.page import names_of
from rm_gallery.report.run_figures import figures_of, lost_of, rule_of, single_line, spent, title_of
from rm_gallery.serve.view_index import SORTS, RowFilter, RunIndex
from rm_gallery.study.compare import compare
from rm_gallery.study.runs import OpenRun, SampleRow
from rm_gallery.study.summary import Summary

PAGE = 50
"""Rows of a page."""
LONGEST_TEXT = 60_000
"""Bytes of one text on a page; the whole of it is one link away."""
MOST_WORDS = 6_000
"""Words of a text that differences are looked for in: the work grows with the product of both."""
MAX_SUBSETS = 400
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


class TextPiece(NamedTuple):
    """A piece of a text, and whether the other text lacks it."""

    text: str
    differs: bool


def differences(first: str, second: str) -> tuple[list[TextPiece], list[TextPiece]]:
    """Two texts in pieces, word by word, as they are to be shown; very long ones are not compared."""
    one, two = (_WORD.findall(text_of(text)) for text in (first, second))
    if max(len(one), len(two)) > MOST_WORDS:
        return [TextPiece("".join(one), False)], [TextPiece("".join(two), False)]
    left, right = list[TextPiece](), list[TextPiece]()
    for step in Indel.opcodes(one, two):
        differs = step.tag != "equal"
        left.append(TextPiece("".join(one[step.src_start : step.src_end]), differs))
        right.append(TextPiece("".join(two[step.dest_start : step.dest_end]), differs))
    return [piece for piece in left if piece.text], [piece for piece in right if piece.text]


def text_of(text: str) -> str:
    """A text from outside as a page may show it."""
    return visible(cut(text, LONGEST_TEXT))


def number_of(value: float | None) -> str:
    """A score for people."""
    return "–" if value is None or math.isnan(value) else show(value)


# a text of a run may hide what turns its direction: whatever a page shows is made visible here
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True,
    undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    finalize=lambda value: value if hasattr(value, "__html__") else visible(str(value)),
)  # fmt: skip
_TEMPLATES.filters |= {
    "line": single_line,
    "short": ended,
    "long": text_of,
    "number": number_of,
    "between": between,
    "lost": lost_of,
}
_TEMPLATES.globals["in_unit"] = in_unit
_TEMPLATES.filters["json"] = partial(json.dumps, ensure_ascii=False, indent=2)
_TEMPLATES.tests["long"] = lambda text: len(text) > LONGEST_TEXT // 4


def page_text(template: str, **about: Any) -> str:
    """A page, with every text in it escaped and made visible; `| e` leaves one as it is, for fields
    that are sent again.
    """
    return _TEMPLATES.get_template(f"{template}.jinja2").render(about)


# -- a run -----------------------------------------------------------------------------------------


def wanted_of(asked: Mapping[str, str]) -> tuple[RowFilter, int]:
    """The rows and the page that a query asks for; ConfigError names the field that does not fit."""

    def limit(name: str) -> float | None:
        try:
            return float(asked[name]) if asked.get(name, "").strip() else None
        except ValueError:
            raise ConfigError(
                f"{name} is {asked[name]!r:.40}; give a number, or leave it empty."
            ) from None

    texts = {name: asked.get(name, "") for name in ("text", "status", "cause", "subset")}
    return RowFilter(
        **texts, low=limit("low"), high=limit("high"), sort=asked.get("sort") or "place"
    ), page_of(asked)


def page_of(asked: Mapping[str, str]) -> int:
    """The page that a query asks for, from 1; ConfigError for what is no number."""
    page = asked.get("page", "1")
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", page):
        raise ConfigError(f"page is {page!r:.40}; give a number from 1.")
    return int(page)


def _paged(places: Integers, page: int) -> tuple[list[int], int, int]:
    """The places of a page, its number, and how many pages there are; the last one for any behind
    it.
    """
    pages = max(1, math.ceil(len(places) / PAGE))
    page = min(page, pages)
    return places[(page - 1) * PAGE : page * PAGE].tolist(), page, pages


def so_far(run: OpenRun, index: RunIndex) -> Summary:
    """As much of a summary as the columns hold: what figures of an unfinished run are made of."""
    summary = Summary(run.kept_figure)
    summary.statuses.update(index.counted("status"))
    for name in index.names["subset"]:
        own = index.named("subset", name)
        known = own & ~np.isnan(index.values)
        part = summary.subsets[name or UNNAMED]
        part.values.extend(index.values[known])
        part.clusters.extend(index.clusters[known])
        part.statuses.update(index.counted("status", own))
        part.missing.update(index.counted("lost", own))
    return summary


def about_run(run: OpenRun, index: RunIndex) -> Json:
    """The figures of a run: what they are worth, interval, missing by cause, subsets, what was spent."""
    summary = Summary() if run.report else so_far(run, index)
    figures = figures_of(run, summary)
    first = lead_figure(figures)
    own_unit = figures.get("rule") in OWN_UNIT
    subsets = list((figures.get("by_subset") or {}).items())
    marks = [("chance", figures.get("chance"))]
    return {
        "title": single_line(title_of(figures, run.folder.name))[:200],
        "finished": run.finished,
        "stopped": run.report.get("stopped") or "",
        "score": in_unit(first, first.get("score")),
        "interval": between(first),
        "worth": worth(figures),
        "rule": rule_of(figures),
        "gauge": "" if own_unit else plots.gauge(first.get("score"), first.get("ci95"), marks),
        "lost": lost_of(figures),
        "causes": figures.get("missing") or index.counted("cause"),
        "statuses": index.counted("status"),
        "subsets": subsets[:MAX_SUBSETS],
        "spent": spent(run, figures, summary),
        "n": count_of(figures, "n"),
    }


def rows_of(index: RunIndex, asked: Mapping[str, str]) -> Json:
    """A page of rows that fit what is asked for."""
    wanted, page = wanted_of(asked)
    places = index.chosen(wanted)
    shown, page, pages = _paged(places, page)

    def link(**changed: Any) -> str:
        kept = {
            name: value for name, value in {**asked, **changed}.items() if value not in ("", None)
        }
        return "?" + urlencode(kept) + "#rows"

    return {
        "wanted": wanted,
        "found": len(places),
        "of": len(index),
        "page": page,
        "pages": pages,
        "before": link(page=page - 1) if page > 1 else "",
        "after": link(page=page + 1) if page < pages else "",
        "sorts": {
            name: link(sort=f"-{name}" if wanted.sort == name else name, page=1) for name in SORTS
        },
        "subsets": [*index.counted("subset")],
        "rows": [(place, row) for place in shown if (row := index.row(place)) is not None],
    }


# -- one row ---------------------------------------------------------------------------------------


def about_row(run: OpenRun, row: SampleRow) -> Json:
    """The whole chain of a row: prompt, answers, what the judge was asked and replied, what was
    read, score and credit.
    """
    asked = run.manifest.get("columns")
    parts = [[TextPiece(text_of(text), False)] for text in row.answers]
    if len(row.answers) == 2:
        parts = list(differences(*row.answers))
    return {
        "row": row,
        "names": names_of(row, asked.get("answers") if isinstance(asked, dict) else None),
        "parts": parts,
        "traced": run.traced,
        "asked": list(read_trace(run.folder, row.key or row.id, root=run.root))
        if run.traced
        else [],
    }


# -- two runs --------------------------------------------------------------------------------------


def about_two(first: tuple[OpenRun, RunIndex], second: tuple[OpenRun, RunIndex], page: int) -> Json:
    """The difference of two runs, and the rows of both, those first whose credit (else score)
    differs most.
    """
    (one, own), (two, other) = first, second
    _, here, there = np.intersect1d(own.same, other.same, return_indices=True)
    gap = other.credits[there] - own.credits[here]
    gap = np.where(np.isnan(gap), other.scores[there] - own.scores[here], gap)
    order = np.argsort(-np.abs(gap), kind="stable")
    shown, page, pages = _paged(order, page)
    rows = []
    for k in shown:
        a, b = own.row(int(here[k])), other.row(int(there[k]))
        if a is not None and b is not None:
            rows.append((int(here[k]), a, b, float(gap[k])))
    comparison, problem = None, ""
    try:
        comparison = compare(one, two, examples=0)[0]
    except (ConfigError, DataError) as error:
        problem = str(error)
    return {
        "comparison": comparison,
        "problem": problem,
        "rows": rows,
        "n": len(here),
        "page": page,
        "pages": pages,
    }
