"""Templates of reports and drawings, filled with plain data."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from rm_gallery.core.utils.shown import cut, percent, visible
from rm_gallery.gallery.benchmarks.lead import count_of
from rm_gallery.report.run_figures import figure_cells, short_line, single_line

TEMPLATES = Path(__file__).parent / "templates"


def fill(template: str, **parts: Any) -> str:
    """A report with the parts in the places of its template; in HTML every text is escaped."""
    return str(_templates().get_template(template).render(parts))


def draw(template: str, **parts: Any) -> str:
    """A drawing, on one line."""
    return "".join(line.strip() for line in fill(f"{template}.svg.jinja2", **parts).split("\n"))


@cache
def _templates() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined,
        autoescape=lambda name: name == "page.jinja2" or ".svg" in str(name), trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "attribute": lambda text: escape(short_line(text), {'"': "&quot;"}),
        "xml": lambda text: escape(short_line(text)),
        "across": lambda value: f"{100 * min(max(value, 0.0), 1.0):.2f}%",
        "cells": figure_cells,
        "count": lambda entry: f"{count_of(entry, 'n'):,}",
        "cut": lambda text, limit: cut(str(text), limit),
        "line": lambda name: single_line(name)[:200],
        "markdown": _markdown_text,
        "percent": percent,
        "thousands": lambda number: f"{number:,}",
        "together": lambda text: text.replace(" %", "\u00a0%"),
        "visible": lambda value: visible(str(value)),
    }
    return environment


def _markdown_text(text: Any) -> str:
    """Text from outside as Markdown that is only text."""
    return "".join(
        f"\\{c}" if c in "\\`*_[]|~#!" else {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(c, c)
        for c in short_line(text)
    )
