"""`rm-gallery drift`: whether a new version of a judge scores the same anchors as the old one did."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.report.drifting import Anchors, compare_versions, drift_dict, drift_lines, read_anchors


def drift(
    old: Annotated[Path, typer.Argument(help="The old version's run folder or file of scores, a row per anchor.")],
    new: Annotated[Path, typer.Argument(help="The new version's, on the same anchors.")],
    old_again: Annotated[
        list[Path] | None, typer.Option(help="Another run of the old version, for its own noise; may be repeated.")
    ] = None,
    new_again: Annotated[list[Path] | None, typer.Option(help="Another run of the new version.")] = None,
    id: Annotated[str, typer.Option("--id", help="Column that names anchors.")] = "id",
    score: Annotated[str, typer.Option(help="Column of scores or verdicts.")] = "score",
    labels: Annotated[str | None, typer.Option(help="Column of people's labels, or a file with them by id.")] = None,
    label_column: opt.LabelColumn = None,
    cluster: Annotated[str | None, typer.Option(help="Column that says which anchors belong together.")] = None,
    bounds: Annotated[
        tuple[float, float] | None, typer.Option(help="Lowest and highest possible score; 0 1 where all lie within.")
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0.0, help="Scores this near count as unchanged.")] = 0.0,
    confidence: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    seed: opt.Seed = 0,
    json: opt.Json = False,
) -> None:
    """Compare two versions of a judge on the same anchors; exit 1 when more has changed than the judge's own noise explains."""
    joined = labels is not None and Path(labels).is_file()

    def read(path: Path, *, is_old: bool = False) -> Anchors:
        # a column may stand in one of the files only; a file of labels is joined to the old version's anchors
        return read_anchors(
            path,
            id=id,
            score=score,
            labels=labels if is_old or not joined else None,
            label_column=label_column,
            cluster=cluster,
            optional=not (is_old and joined),
        )

    versions = read(old, is_old=True), read(new)
    for name, column, told in (("--labels", labels, "labels"), ("--cluster", cluster, "clusters")):
        if column is not None and not any(getattr(version, told) for version in versions):
            raise ConfigError(f"{name} is '{column}': neither {old} nor {new} has such a column, and there is no such file")
    found = compare_versions(
        *versions,
        old_again=[read(path) for path in old_again or ()],
        new_again=[read(path) for path in new_again or ()],
        bounds=bounds,
        tolerance=tolerance,
        confidence=confidence,
        seed=seed,
    )
    if json:
        opt.print_json(drift_dict(found))
    else:
        for line in drift_lines(found, str(old), str(new)):
            typer.echo(line)
    if found.findings:
        sys.exit(1)
