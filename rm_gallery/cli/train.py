"""`rm-gallery train`: fit a reward model that runs without a key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.gallery.benchmarks.figures import interval, percent

train_app = typer.Typer(help="Train a reward model.", no_args_is_help=True)


@train_app.callback()
def _group() -> None:
    """Train a reward model."""


@train_app.command("bt")
def train_bt(
    data: Annotated[Path, typer.Argument(help="Preference data: a file or folder as for eval.")],
    out: Annotated[Path, typer.Option(help="Folder to write the model to; bt:DIR then names the reward.")],
    format: Annotated[str | None, typer.Option(help="Benchmark format; found from the columns by default.")] = None,
    seed: Annotated[int, typer.Option(help="Decides split and order.")] = 0,
    test_share: Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of prompts held out.")] = 0.2,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Fit a Bradley–Terry model and print its held-out accuracy beside both length baselines."""
    from rm_gallery.report.task import open_data
    from rm_gallery.train.bradley_terry.fit import train_bradley_terry

    samples = open_data(str(data), format).rows()
    report = train_bradley_terry(samples, out, seed=seed, test_share=test_share).to_dict()
    if json:
        opt.print_json(report)
        return
    for name, figure in report["held_out"].items():
        typer.echo(f"{name:12} {percent(figure['accuracy']):>6} %   [{interval(figure['ci95'])}]   n={figure['n']}")
    typer.echo(f"model written to {out}; use it as bt:{out}")
