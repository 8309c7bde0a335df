"""`rm-gallery winrate`: which column of answers in a table wins how often."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from rm_gallery.cli import options as opt
from rm_gallery.cli.evaluate import conclude, print_estimate
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.gallery.benchmarks.figures import Report, one_line
from rm_gallery.report.export import exported
from rm_gallery.report.scores import Scoring
from rm_gallery.report.tables import print_report
from rm_gallery.report.task import build_reward
from rm_gallery.report.winrate import Comparison


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
    """Judge the answers in the columns --a and --b of FILE and print how often a wins, with ties, flips and a 95 % interval."""
    opt.set_log_level(log_level)
    built = build_reward(reward, opt.parse_params(param or []), llm, base_url, seed)
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

    judge_table(comparison, built, options, seed, out, export, dry_run, estimate, json, max_failures)


def judge_table(
    task: Comparison | Scoring,
    reward: BaseReward,
    options: Callable[[str | None], RunOptions],
    seed: int,
    out: Path | None,
    export: Path | None,
    dry_run: bool,
    estimate: bool,
    as_json: bool,
    max_failures: int,
) -> None:
    """Say what was understood, judge, print the report, write the export; the exit code is that of `eval`."""
    for line in task.understood(reward):
        sys.stderr.write(f"{one_line(line)}\n")
    if dry_run:
        return
    if estimate:
        print_estimate(task.estimate(reward, seed=seed, options=options(None)), as_json)
        return
    with exported(export, str(out) if out is not None else None) as run_dir:
        report: Report = _judged(task, reward, options(run_dir), seed, kept=out is not None)
    if as_json:
        opt.print_json(report.to_dict())
    else:
        print_report(report)
    sys.exit(conclude(report, max_failures, out))


def _judged(task: Comparison | Scoring, reward: BaseReward, options: RunOptions, seed: int, kept: bool) -> Any:
    try:
        return task.judge(reward, seed=seed, options=options)
    except KeyboardInterrupt:
        again = "the same command continues it" if kept else "with --out RUN it could be continued"
        sys.stderr.write(f"rm-gallery: interrupted; {again}.\n")
        raise typer.Exit(130) from None
