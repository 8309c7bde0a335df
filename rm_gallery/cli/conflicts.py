"""`rm-gallery conflicts`: whether a judge's comparisons fit together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.report.conflicts import Conflicts
from rm_gallery.report.conflicts import conflicts as find_conflicts
from rm_gallery.report.tables import print_findings


@opt.judging()
def conflicts(
    reward: Annotated[str, typer.Argument(help="A listwise or pairwise reward by its name.", autocompletion=opt.reward_names)],
    data: Annotated[list[str], typer.Option(help="File or folder of samples with several answers; may be repeated.")],
    benchmark: Annotated[
        str | None,
        typer.Option("--benchmark", "--format", help="Layout of the data; found from its columns by default."),
    ] = None,
    *,
    run: opt.Running,
    limit: opt.Limit = None,
    max_failures: opt.MaxFailures = 0,
) -> None:
    """Compare all pairs of each sample's answers in both orders; print contradictions, cycles, symmetry and transitivity."""
    options = run.options()
    with run.resumable():
        found = find_conflicts(
            reward,
            data[0] if len(data) == 1 else data,
            benchmark,
            params=run.params,
            llm=run.llm,
            base_url=run.base_url,
            limit=limit,
            seed=run.seed,
            on_bad_row=run.on_bad_row,
            options=options,
        )
    if run.json:
        opt.print_json(found.to_dict())
    else:
        print_findings(list(found.figures.values()), found.about())
    sys.exit(_conclude(found, max_failures))


def _conclude(found: Conflicts, max_failures: int) -> int:
    """Say on stderr why samples were left out; 1 when nothing was judged, too much failed, or the run stopped."""
    opt.say_lost(found.reasons, found.stopped, "questions")
    if not found.n_scored:
        sys.stderr.write("rm-gallery: no sample has all its verdicts, so nothing is known about conflicts.\n")
        return 1
    return 1 if found.lost.get("failed", 0) > max_failures or found.lost.get("stopped", 0) else 0
