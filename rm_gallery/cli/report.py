"""`rm-gallery report`: a run as a page to open, or as Markdown, JSON or JUnit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.core.utils.file import written_whole
from rm_gallery.report.formats import render
from rm_gallery.report.gates import Gate
from rm_gallery.report.opened import open_run
from rm_gallery.report.summary import summarize
from rm_gallery.report.words import OWN_UNIT, figures_of

PAGE = "report.html"


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run that was made with --out; it may be unfinished.")],
    form: Annotated[str, typer.Option("--format", help="html, md, json or junit.")] = "html",
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default RUN/report.html, and stdout for the other formats.")
    ] = None,
    fail_under: opt.FailUnder = None,
    max_failures: Annotated[
        int | None, typer.Option(min=0, help="Failed samples that pass; more make the exit code 1.")
    ] = None,
    max_unscored: opt.MaxUnscored = None,
) -> None:
    """Write what RUN found as one self-contained page, or in another format for a pull request, a program or CI.

    The exit code is 1 when a gate is missed: --fail-under, --max-failures, --max-unscored, and with --format junit also an unfinished run.
    """
    opened = open_run(run)
    own_unit = opened.report.get("rule") in OWN_UNIT
    gate = Gate(fail_under, max_failures or 0, max_unscored, own_unit=own_unit)
    text = render(opened, form, gate)
    if out is None and form != "html":
        encoding = sys.stdout.encoding or "utf-8"  # a terminal may lack characters of the data; a file has them all
        typer.echo(text.encode(encoding, "replace").decode(encoding), nl=False)
    else:
        with written_whole(out or opened.folder / PAGE) as file:
            file.write(text.encode("utf-8"))
        typer.echo(str(out or opened.folder / PAGE), err=form != "html")
    gates = {"score": fail_under is not None, "failed": max_failures is not None}
    gates["unscored"] = max_unscored is not None or fail_under is not None
    if form == "junit" or any(gates.values()):
        missed = gate.missed(figures_of(opened, summarize(opened)), finished=opened.finished)
        found = [why for part, why in missed if form == "junit" or gates.get(part)]
        for why in found:
            sys.stderr.write(f"rm-gallery: {why}.\n")
        sys.exit(1 if found else 0)
