"""`rm-gallery watch`: whether a training run games its reward."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.train.watch import watch as look
from rm_gallery.train.words import watched_lines


def watch(
    log: Annotated[Path, typer.Argument(help="Folder of a TRL or verl run, or a jsonl, parquet, csv or trainer_state file.")],
    component: Annotated[
        list[str] | None,
        typer.Option(help="A column that is a reward; may be repeated. All columns of numbers by default."),
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option(help="NAME=W, the weight of a reward; negative for a penalty. May be repeated.")
    ] = None,
    window: Annotated[float, typer.Option(help="Share of the steps that is early, and that is late.")] = 0.3,
    examples: Annotated[int, typer.Option(min=0, help="Completions shown with a finding.")] = 3,
    confidence: Annotated[float, typer.Option(help="Of a finding, over all figures together.")] = 0.95,
    step: Annotated[str | None, typer.Option(help="Column of the step, where it has another name.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Column of the prompt.")] = None,
    completion: Annotated[str | None, typer.Option(help="Column of the completion.")] = None,
    total: Annotated[str | None, typer.Option(help="Column of the reward the components add up to.")] = None,
    length: Annotated[str | None, typer.Option(help="Column of the completion's length.")] = None,
    json: opt.Json = False,
) -> None:
    """Look over a training run for rewards that part ways, follow length, teach nothing or say nothing; exit 1 when some do."""
    found = look(
        log,
        components=component,
        weights=_weights(weight or []),
        window=window,
        examples=examples,
        confidence=confidence,
        step=step,
        prompt=prompt,
        completion=completion,
        total=total,
        length=length,
    )
    if json:
        opt.print_json(found.to_dict())
    else:
        for line in watched_lines(found):
            typer.echo(line)
    if found.warned:
        sys.exit(1)


def _weights(given: list[str]) -> dict[str, float]:
    found = {}
    for pair in given:
        name, _, value = pair.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            name = ""
        if not name:
            raise ConfigError(f"--weight is '{pair}'; write NAME=W, such as length=-0.1")
    return found
