"""`rm-gallery winrate`: which column of answers in a table wins how often."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.cli.evaluate import conclude, print_estimate, show_report
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.runner.build import build_reward
from rm_gallery.gallery.benchmarks.figures import Report, one_line
from rm_gallery.report.export import exported
from rm_gallery.report.scores import Scoring
from rm_gallery.report.winrate import Comparison


@opt.judging()
def winrate(
    data: opt.Table,
    prompt: opt.Prompt,
    a: Annotated[str, typer.Option(help="Column with the answers whose win rate is asked for.")],
    b: Annotated[str, typer.Option(help="Column with the answers they are compared with.")],
    reward: opt.RewardName,
    other: Annotated[
        list[str] | None, typer.Option(help="A further column of answers, for a ranking; may be repeated.")
    ] = None,
    second: Annotated[
        str | None, typer.Option("--with", help="Another file that holds --b, joined by --id; the same questions.")
    ] = None,
    reference: opt.Reference = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Column of people's verdicts (a, b, tie, a number 0..1), or a file with them by id."),
    ] = None,
    label_column: opt.LabelColumn = None,
    label_probability: opt.LabelProbability = None,
    id: opt.Id = None,
    cluster: opt.Cluster = None,
    by: opt.By = None,
    length_controlled: Annotated[
        bool, typer.Option("--length-controlled", help="Add the win rate at equal length.")
    ] = False,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Stop as soon as the comparison is settled, valid at every look.")
    ] = False,
    numbers: opt.Numbers = False,
    encoding: opt.Encoding = None,
    separator: opt.Separator = None,
    sheet: opt.SheetName = None,
    header_row: opt.HeaderRow = None,
    export: opt.Export = None,
    dry_run: opt.DryRun = False,
    *,
    run: opt.Running,
    limit: opt.Limit = None,
    max_failures: opt.MaxFailures = 0,
    estimate: opt.EstimateFlag = False,
) -> None:
    """Judge the answers in the columns --a and --b of FILE and print how often a wins, with ties, flips and a 95 % interval."""
    built = build_reward(reward, run.params, run.llm, run.base_url, run.seed)
    comparison = Comparison.read(
        data,
        prompt,
        [a, b, *(other or ())],
        other=second,
        reference=reference,
        id=id,
        labels=labels,
        label_column=label_column,
        label_probability=label_probability,
        cluster=cluster,
        by=by or (),
        length_controlled=length_controlled,
        until_decided=until_decided,
        numbers=numbers,
        limit=limit,
        seed=run.seed,
        on_bad_row=run.on_bad_row,
        encoding=encoding,
        separator=separator,
        sheet=sheet,
        header_row=header_row,
    )

    judge_table(comparison, built, run, export, dry_run, estimate, max_failures)


def judge_table(
    task: Comparison | Scoring,
    reward: BaseReward,
    run: opt.Running,
    export: Path | None,
    dry_run: bool,
    estimate: bool,
    max_failures: int,
) -> None:
    """Say what was understood, judge, print the report, write the export; the exit code is that of `eval`."""
    options = run.options()
    for line in task.understood(reward):
        sys.stderr.write(f"{one_line(line)}\n")
    if dry_run:
        return None
    if estimate:
        return print_estimate(task.estimate(reward, seed=run.seed, options=options), run.json)
    with run.resumable(), exported(export, options.run_dir) as run_dir:
        options = replace(options, run_dir=run_dir, trace=options.trace or export is not None)
        report: Report = task.judge(reward, seed=run.seed, options=options)
    show_report(report, run.json)
    sys.exit(conclude(report, max_failures, run.out))
