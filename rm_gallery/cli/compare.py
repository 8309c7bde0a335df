"""`rm-gallery compare`: what differs between runs on the same samples, and whether chance explains it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.report.compare import compare as compare_runs
from rm_gallery.report.tables import print_difference


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN_A RUN_B …", help="Run folders; all are held against the first.")
    ],
    examples: Annotated[int, typer.Option(min=0, help="Samples to show on which the runs disagree, each way.")] = 3,
    fail_if_worse: Annotated[
        bool, typer.Option("--fail-if-worse", help="Exit with 1 when a run is shown to be worse than the first.")
    ] = False,
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
    worse = [one for one in found if one.whole.paired.interval is not None and one.whole.paired.interval.high < 0.0]
    if fail_if_worse and worse:
        sys.stderr.write(f"rm-gallery: worse than {found[0].first}: {', '.join(one.second for one in worse)}.\n")
        sys.exit(1)
