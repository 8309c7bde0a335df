"""`rm-gallery score`: how good the answers in a table are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.cli.winrate import judge_table
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.report.scores import Scoring
from rm_gallery.report.task import build_reward


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
    llm: opt.Llm = None,
    base_url: opt.BaseUrl = None,
    max_workers: opt.MaxWorkers = 32,
    limit: opt.Limit = None,
    seed: opt.Seed = 0,
    param: opt.Param = None,
    json: opt.Json = False,
    out: opt.Out = None,
    force_new: opt.ForceNew = False,
    trace: opt.Trace = False,
    deadline: opt.Deadline = None,
    cache: opt.CacheFlag = None,
    max_calls: opt.MaxCalls = None,
    max_tokens: opt.MaxTokens = None,
    max_cost: opt.MaxCost = None,
    prices: opt.Prices = None,
    max_failures: opt.MaxFailures = 0,
    on_bad_row: opt.OnBadRow = "raise",
    estimate: opt.EstimateFlag = False,
    log_level: opt.LogLevel = "warning",
) -> None:
    """Score the answers in a column of FILE and print their mean with its spread and a 95 % interval."""
    opt.set_log_level(log_level)
    built = build_reward(reward, opt.parse_params(param or []), llm, base_url, seed)
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
        seed=seed,
        on_bad_row=on_bad_row,
        encoding=encoding,
        separator=separator,
        sheet=sheet,
        header_row=header_row,
    )

    def options(run_dir: str | None) -> RunOptions:
        return opt.run_options(
            max_workers=max_workers,
            deadline=deadline,
            cache=cache,
            max_calls=max_calls,
            max_tokens=max_tokens,
            max_cost=max_cost,
            prices=prices,
            out=Path(run_dir) if run_dir is not None else None,
            force_new=force_new,
            trace=trace or (export is not None and run_dir is not None),
        )

    judge_table(task, built, options, seed, out, export, dry_run, estimate, json, max_failures)
