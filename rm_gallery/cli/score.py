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
    *,
    table: opt.Tabled,
    run: opt.Running,
) -> None:
    """Score the answers in a column of FILE and print their mean with its spread and a 95 % interval."""
    built = build_reward(reward, run.params, run.llm, run.base_url, run.seed)
    judge_table(Scoring.read(data, prompt, answer, table.columns(run)), built, run, table)
