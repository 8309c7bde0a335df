"""`rm-gallery preview`: metric folders on samples, before they are deployed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.gallery.benchmarks.figures import one_line

Folders = Annotated[
    list[str] | None,
    typer.Option("--metrics-folders", "-m", metavar="NAME=PATH", help="A folder with main.py: evaluate; may be repeated."),
]
MoreFolders = Annotated[list[str] | None, typer.Argument(metavar="[NAME=PATH]...", help="Further metric folders.")]


def preview(
    more: MoreFolders = None,
    metrics_folders: Folders = None,
    samples: Annotated[
        Path | None, typer.Option("--samples", "-s", help="File with a column messages; others are keywords.")
    ] = None,
    max_samples: Annotated[int, typer.Option(min=1, help="Take the first this many.")] = 5,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds one sample may take.")] = 10.0,
    memory: Annotated[int, typer.Option(min=64, help="Megabytes the code may use.")] = 512,
    sandbox: Annotated[
        str | None, typer.Option(help="bwrap, or subprocess for limits alone; default bwrap where there is one.")
    ] = None,
    max_failures: opt.MaxFailures = 0,
    json: opt.Json = False,
) -> None:
    """Run metric folders on samples as they would run when deployed, offline; exit 1 when one fails or none has a score."""
    from rm_gallery.evaluation.pool import LIMITS
    from rm_gallery.evaluation.preview import preview_evaluation

    found = preview_evaluation(
        metric_folders=[*(metrics_folders or []), *(more or [])],
        sample_file=samples,
        max_samples=max_samples,
        sandbox=sandbox,
        limits=replace(LIMITS, wall_seconds=timeout, cpu_seconds=max(timeout, LIMITS.cpu_seconds), memory_mb=memory),
    )
    say_skipped(found.skipped)
    for line in found.printed.splitlines():
        sys.stderr.write(f"printed: {one_line(line)}\n")
    if found.sandbox == "subprocess" and sandbox is None:
        sys.stderr.write("rm-gallery: there is no bubblewrap here; the code ran with limits alone, as your own code does\n")
    if json:
        opt.print_json(found.as_dict())
    else:
        for line in found.lines():
            indent = line[: len(line) - len(line.lstrip())]
            typer.echo(indent + one_line(line))
    if found.count("failed") > max_failures or not found.count("scored"):
        sys.exit(1)


def say_skipped(skipped: object) -> None:
    """Name on stderr the files that are not part of an evaluator."""
    for name in skipped if isinstance(skipped, (list, tuple)) else ():
        sys.stderr.write(f"rm-gallery: left out {one_line(str(name))}\n")
