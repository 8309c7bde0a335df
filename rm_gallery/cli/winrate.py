"""`rm-gallery winrate`: which column of answers in a table wins how often."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.cli.evaluate import conclude, missed_by, print_estimate, show_report
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.runner.build import build_reward
from rm_gallery.gallery.benchmarks.figures import one_line
from rm_gallery.report.export import exported
from rm_gallery.report.gates import gate_of
from rm_gallery.report.table_task import TableTask
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
    length_controlled: Annotated[bool, typer.Option("--length-controlled", help="Add the win rate at equal length.")] = False,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Stop as soon as the comparison is settled, valid at every look.")
    ] = False,
    *,
    table: opt.Tabled,
    run: opt.Running,
) -> None:
    """Judge the answers in the columns --a and --b of FILE and print how often a wins, with ties, flips and a 95 % interval."""
    built = build_reward(reward, run.params, run.llm, run.base_url, run.seed)
    comparison = Comparison.read(
        data,
        prompt,
        [a, b, *(other or ())],
        table.columns(run),
        other=second,
        length_controlled=length_controlled,
        until_decided=until_decided,
    )
    judge_table(comparison, built, run, table)


def judge_table(task: TableTask, reward: BaseReward, run: opt.Running, table: opt.Tabled) -> None:
    """Say what was understood, judge, print the report, write the export; the exit code is that of `eval`."""
    options = run.options()
    own_unit = task.rule().name == "scores"
    gate = gate_of(table.fail_under, None, table.max_failures, table.max_unscored, own_unit=own_unit)
    for line in task.understood(reward):
        sys.stderr.write(f"{one_line(line)}\n")
    if table.dry_run:
        return None
    if table.estimate:
        return print_estimate(task.estimate(reward, seed=run.seed, options=options), run.json)
    with run.resumable(), exported(table.export, options.run_dir) as run_dir:
        options = replace(options, run_dir=run_dir, trace=options.trace or table.export is not None)
        report = task.judge(reward, seed=run.seed, options=options)
    show_report(report, run.json)
    sys.exit(conclude(report, missed_by(report, gate), run.out))
