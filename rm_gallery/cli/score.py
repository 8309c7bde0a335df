"""`rm-gallery score`: how good the answers in a table are."""

from __future__ import annotations

from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.cli.winrate import judge_table
from rm_gallery.core.runner.build import build_reward
from rm_gallery.report.scores import Scoring


@opt.judging()
def score(
    data: opt.Table,
    prompt: opt.Prompt,
    answer: Annotated[list[str], typer.Option(help="Column with the answers; may be repeated.")],
    reward: opt.RewardName,
    reference: opt.Reference = None,
    labels: Annotated[str | None, typer.Option(help="Column of people's scores, or a file with them by id.")] = None,
    label_column: opt.LabelColumn = None,
    label_probability: opt.LabelProbability = None,
    id: opt.Id = None,
    cluster: opt.Cluster = None,
    by: opt.By = None,
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
    """Score the answers in a column of FILE and print their mean with its spread and a 95 % interval."""
    built = build_reward(reward, run.params, run.llm, run.base_url, run.seed)
    task = Scoring.read(
        data,
        prompt,
        answer,
        reference=reference,
        id=id,
        labels=labels,
        label_column=label_column,
        label_probability=label_probability,
        cluster=cluster,
        by=by or (),
        numbers=numbers,
        limit=limit,
        seed=run.seed,
        on_bad_row=run.on_bad_row,
        encoding=encoding,
        separator=separator,
        sheet=sheet,
        header_row=header_row,
    )

    judge_table(task, built, run, export, dry_run, estimate, max_failures)
