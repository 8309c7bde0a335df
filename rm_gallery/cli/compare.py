"""`rm-gallery compare`: what differs between runs on the same samples, and whether chance explains it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.report.compare import compare as compare_runs
from rm_gallery.report.gates import Gate
from rm_gallery.report.opened import open_run
from rm_gallery.report.tables import print_difference
from rm_gallery.report.words import OWN_UNIT


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN_A RUN_B …", help="Run folders; all are held against the first.")],
    examples: Annotated[int, typer.Option(min=0, help="Samples to show on which the runs disagree, each way.")] = 3,
    fail_if_worse: Annotated[
        bool,
        typer.Option(
            "--fail-if-worse",
            help="Exit with 1 when a run is worse than the first beyond chance, what is missing counted at its worst.",
        ),
    ] = False,
    fail_under: opt.FailUnder = None,
    max_failures: Annotated[
        int | None, typer.Option(min=0, help="Failed samples that pass, in every run but the first; 0 with a gate.")
    ] = None,
    max_unscored: opt.MaxUnscored = None,
    json: opt.Json = False,
) -> None:
    """Compare runs of one benchmark sample by sample: differences by subset with 95 % intervals and p-values."""
    try:
        found = compare_runs(*runs, examples=examples)
    except DataError as error:  # a folder that is no run is wrong use
        raise ConfigError(str(error)) from None
    if json:
        opt.print_json([one.to_dict() for one in found])
    else:
        for number, one in enumerate(found):
            if number:
                sys.stdout.write("\n")
            print_difference(one)
    if not fail_if_worse and fail_under is None and max_failures is None and max_unscored is None:
        return
    reference, missed = open_run(runs[0]), False
    for folder in runs[1:]:
        figures = (run := open_run(folder)).report
        own_unit = figures.get("rule") in OWN_UNIT
        held = reference if fail_if_worse else None
        gate = Gate(fail_under, max_failures or 0, max_unscored, held, own_unit=own_unit)
        for _, why in gate.missed(figures, run=run, say=lambda line: sys.stderr.write(f"{line}\n")):
            sys.stderr.write(f"rm-gallery: {folder.name}: {why}.\n")
            missed = True
    sys.exit(1 if missed else 0)
