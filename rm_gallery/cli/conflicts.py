"""`rm-gallery conflicts`: whether a judge's comparisons fit together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rm_gallery.cli import options as opt
from rm_gallery.cli.audit import resumable
from rm_gallery.gallery.benchmarks.figures import one_line
from rm_gallery.report.conflicts import Conflicts
from rm_gallery.report.conflicts import conflicts as find_conflicts
from rm_gallery.report.tables import print_findings


def conflicts(
    reward: Annotated[
        str, typer.Argument(help="A listwise or pairwise reward by its name.", autocompletion=opt.reward_names)
    ],
    data: Annotated[list[str], typer.Option(help="File or folder of samples with several answers; may be repeated.")],
    benchmark: Annotated[
        str | None,
        typer.Option("--benchmark", "--format", help="Layout of the data; found from its columns by default."),
    ] = None,
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
    log_level: opt.LogLevel = "warning",
) -> None:
    """Compare all pairs of each sample's answers in both orders; print contradictions, cycles, symmetry and transitivity."""
    opt.set_log_level(log_level)
    options = opt.run_options(
        max_workers=max_workers,
        deadline=deadline,
        cache=cache,
        max_calls=max_calls,
        max_tokens=max_tokens,
        max_cost=max_cost,
        prices=prices,
        out=out,
        force_new=force_new,
        trace=trace,
    )
    with resumable(out):
        found = find_conflicts(
            reward,
            data[0] if len(data) == 1 else data,
            benchmark,
            params=opt.parse_params(param or []),
            llm=llm,
            base_url=base_url,
            limit=limit,
            seed=seed,
            on_bad_row=on_bad_row,
            options=options,
        )
    if json:
        opt.print_json(found.to_dict())
    else:
        print_findings(list(found.figures.values()), found.about())
    sys.exit(_conclude(found, max_failures))


def _conclude(found: Conflicts, max_failures: int) -> int:
    """Say on stderr why samples were left out; 1 when nothing was judged, too much failed, or the run stopped."""
    for key, reason in found.reasons.items():
        sys.stderr.write(f"{reason['n']} questions {key}: {one_line(reason['example'])}\n")
    if found.stopped:
        sys.stderr.write(f"rm-gallery: {one_line(found.stopped)}\n")
    if not found.n_scored:
        sys.stderr.write("rm-gallery: no sample has all its verdicts, so nothing is known about conflicts.\n")
        return 1
    return 1 if found.lost.get("failed", 0) > max_failures or found.lost.get("stopped", 0) else 0
