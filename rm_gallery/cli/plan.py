"""`rm-gallery plan`: how many rows, labels or pairs it takes to know something."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rm_gallery.cli import options as opt
from rm_gallery.core.stats.planning import Plan, plan_difference, plan_labels, plan_mean
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.report.pilot import Pilot, read_pilot


def plan(
    precision: Annotated[float | None, typer.Option(help="Half the width the 95 % interval may have, such as 0.03.")] = None,
    detect: Annotated[
        float | None,
        typer.Option(help="Difference that is to be found, such as 0.05 for 55 against 50 %; --rate is then the true share."),
    ] = None,
    judged: Annotated[
        int | None, typer.Option(min=2, help="Rows the judge scores; the plan is then for labels among them.")
    ] = None,
    discordance: Annotated[
        float | None, typer.Option(help="Share of rows on which one of two systems is right; plans pairs.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Expected share of passes or wins; 0.5 by default.")] = None,
    sd: Annotated[float | None, typer.Option(help="Standard deviation of graded scores, in place of --rate.")] = None,
    correlation: Annotated[float | None, typer.Option(help="Of judge score and label; with --sd.")] = None,
    sensitivity: Annotated[float | None, typer.Option(help="Share of true passes the judge passes; 0.9.")] = None,
    specificity: Annotated[float | None, typer.Option(help="Share of true fails the judge fails; 0.9.")] = None,
    pilot: Annotated[
        str | None, typer.Option(help="Table of a first run, from which spread, judge and clusters are taken.")
    ] = None,
    score: Annotated[str | None, typer.Option(help="The pilot's column of judge scores.")] = None,
    label: Annotated[str | None, typer.Option(help="The pilot's column of labels.")] = None,
    cluster: Annotated[str | None, typer.Option(help="The pilot's column that says which rows belong together.")] = None,
    rows_per_cluster: Annotated[float | None, typer.Option(help="Rows per prompt or conversation.")] = None,
    icc: Annotated[float | None, typer.Option(help="Correlation of two rows of one cluster, 0..1.")] = None,
    cost_label: Annotated[float | None, typer.Option(help="Price of a label; with --cost-judge.")] = None,
    cost_judge: Annotated[float | None, typer.Option(help="Price of a judged row; the cheapest mix is sought.")] = None,
    confidence: Annotated[float, typer.Option(help="Level of the interval or test.")] = 0.95,
    power: Annotated[float, typer.Option(help="Probability to find the difference of --detect.")] = 0.8,
    json: opt.Json = False,
) -> None:
    """Say how many rows, labels (with --judged) or pairs (with --discordance) a precision or a difference needs."""
    if (precision is None) == (detect is None):
        raise ConfigError("plan needs --precision (how near) or --detect (which difference to find), one of the two")
    if judged is not None and (detect is not None or discordance is not None):
        raise ConfigError("--judged plans labels for a --precision; leave out --detect and --discordance")
    if discordance is not None and detect is None:
        raise ConfigError("--discordance plans pairs that find a difference; name it with --detect")
    if judged is None:
        labels_only = {
            "--sensitivity": sensitivity, "--specificity": specificity, "--correlation": correlation,
            "--cost-label": cost_label, "--cost-judge": cost_judge,
        }  # fmt: skip
        idle = next((name for name, value in labels_only.items() if value is not None), None)
        if idle is not None:
            raise ConfigError(f"{idle} is for a plan of labels; say how many rows are judged with --judged")
    known = Pilot() if pilot is None else read_pilot(Path(pilot), score=score, label=label, cluster=cluster)
    if pilot is None and (score or label or cluster):
        raise ConfigError("--score, --label and --cluster name columns of a pilot; name its file with --pilot")
    given_spread = rate is not None or sd is not None
    clusters = {
        "rows_per_cluster": rows_per_cluster if rows_per_cluster is not None else known.rows_per_cluster,
        "icc": icc if icc is not None else known.icc,
    }
    common: dict[str, Any] = {"confidence": confidence, **clusters}
    spread: dict[str, Any] = {"rate": 0.5 if rate is None else rate, "sd": sd if given_spread else known.sd}
    if discordance is not None:
        found = plan_difference(effect=detect or 0.0, discordance=discordance, power=power, **common)
        what = f"pairs to find a difference of {detect:g}"
    elif judged is None:
        found = plan_mean(half_width=precision, effect=detect, power=power, **spread, **common)
        what = f"rows for ±{found.half_width:.4g}" if precision is not None else _of_sides(found, spread["rate"], detect)
    else:
        if sensitivity is not None or specificity is not None or (sd is None and known.correlation is None):
            judge: dict[str, Any] = {
                "rate": 0.5 if rate is None else rate,
                "sensitivity": 0.9 if sensitivity is None else sensitivity,
                "specificity": 0.9 if specificity is None else specificity,
            }
        else:
            judge = {"sd": spread["sd"], "correlation": known.correlation if correlation is None else correlation}
        found = plan_labels(
            half_width=precision or 0.0, n_rows=judged, cost_label=cost_label, cost_judge=cost_judge, **judge, **common
        )
        what = f"labels among {found.rows:,} judged rows for ±{found.half_width:.4g}"
    if json:
        plain = {name: value for name, value in asdict(found).items() if value is not None and value != ()}
        opt.print_json({**plain, "pilot": known.to_dict()})
        return
    typer.echo(f"{found.n:,} {what}{_rest(found)}")
    for line in known.lines():
        typer.echo(line)


def _of_sides(found: Plan, rate: float, detect: float | None) -> str:
    text = f"rows to find a difference of {detect:g}"
    if not found.sides:
        return text
    hard, *easy = found.sides
    text = f"{text}: {rate:g} against {hard.null:g}"
    return f"{text}, the harder side; against {easy[0].null:g} it takes {easy[0].n:,}" if easy else text


def _rest(found: Plan) -> str:
    text = f", in {found.clusters:,} clusters" if found.clusters is not None else ""
    text += f" (power {100 * found.power:.0f} %)" if found.power is not None else ""
    return text if found.alone is None else f"{text}; labels alone: {found.alone:,}"
