"""`rm-gallery check-reward`: a reward tried on completions of known worth, before a training run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.gallery.benchmarks.figures import one_line
from rm_gallery.report.check.run import CEILING, check_reward
from rm_gallery.report.tables import print_check


@opt.judging("out", "force_new", "trace", "on_bad_row", "seed")
def check(
    reward: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A file with a reward, FILE:NAME where it holds several, or a registered name. The file may hold a class "
            "with compute_reward, a @reward_function or a reward class.",
        ),
    ],
    cases: Annotated[
        Path | None,
        typer.Option(help="File of tasks: prompt, gold, completions with expect, and the data set's columns."),
    ] = None,
    reference: Annotated[str | None, typer.Option(help="Column of the cases with the reference answer.")] = None,
    full: Annotated[float | None, typer.Option(help="Score of a completion without fault; known by default.")] = None,
    ceiling: Annotated[
        float, typer.Option(help="Share of gold's score that a completion which deserves nothing may get.")
    ] = CEILING,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 on notes as well.")] = False,
    *,
    run: opt.Running,
) -> None:
    """Try a reward on gold, empty, off-format, stuffed, truncated and repeated completions and your own; exit 1 on a fault."""
    found = check_reward(
        reward,
        cases,
        reference=reference,
        full=full,
        ceiling=ceiling,
        params=run.params,
        llm=run.llm,
        base_url=run.base_url,
        options=run.options(),
    )
    if run.json:
        opt.print_json(found.to_dict())
    else:
        print_check(found)
    for finding in found.faults if run.json else ():
        sys.stderr.write(f"rm-gallery: {finding.name}: {one_line(finding.what)}\n")
    raise typer.Exit(int(bool(found.faults) or (strict and bool(found.findings))))
