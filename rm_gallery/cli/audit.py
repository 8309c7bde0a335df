"""`rm-gallery audit`: the trust card of a reward."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import orjson
import typer

from rm_gallery.cli import options as opt
from rm_gallery.gallery.benchmarks.figures import one_line
from rm_gallery.report.audit.card import Audit
from rm_gallery.report.audit.run import PROBES, prepare
from rm_gallery.report.tables import print_findings


def probe_names(incomplete: str) -> list[str]:
    """The probes whose names begin so, for the shell's completion."""
    return [name for name in PROBES if name.startswith(incomplete)]


def audit(
    reward: Annotated[
        str, typer.Argument(help="A registered reward, or bt:DIR for a trained model.", autocompletion=opt.reward_names)
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(help="File or folder with preferences; may be repeated. Forty built-in questions by default."),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option("--benchmark", "--format", help="Layout of the data; found from its columns by default."),
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this probe; may be repeated: {', '.join(PROBES)}.", autocompletion=probe_names),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 unless every figure with a limit passes, not only on a fail.")
    ] = False,
    llm: opt.Llm = None,
    base_url: opt.BaseUrl = None,
    max_workers: opt.MaxWorkers = 32,
    limit: Annotated[
        int | None, typer.Option(min=1, help="A seeded sample of this many prompts; 60 of data by default.")
    ] = None,
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
    on_bad_row: opt.OnBadRow = "raise",
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what it would take, and ask nothing.")] = False,
    log_level: opt.LogLevel = "warning",
) -> None:
    """Try to move REWARD by place, length, dress, praise and commands; print how far that went, with intervals and verdicts."""
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
    ready = prepare(
        reward,
        data[0] if data and len(data) == 1 else data or None,
        benchmark,
        probes=probe or None,
        params=opt.parse_params(param or []),
        llm=llm,
        base_url=base_url,
        limit=limit,
        seed=seed,
        on_bad_row=on_bad_row,
    )
    cost = ready.cost(options.budget.prices if options.budget is not None else None)
    if estimate:
        return typer.echo(orjson.dumps(vars(cost)).decode() if json else str(cost))
    sys.stderr.write(f"audit of {ready.reward.name}: {cost}\n")
    with resumable(out):
        card = ready.run(options)
    if json:
        opt.print_json(card.to_dict())
    else:
        kept = [f"card: {out / 'card.html'}"] if out is not None else []
        print_findings(card.findings, [*card.about(), *kept])
    sys.exit(_conclude(card, strict))


@contextmanager
def resumable(out: Path | None) -> Iterator[None]:
    """Ctrl-C ends the command with exit code 130 and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        again = "the same command continues it" if out is not None else "with --out RUN it could be continued"
        sys.stderr.write(f"rm-gallery: interrupted; {again}.\n")
        raise typer.Exit(130) from None


def _conclude(card: Audit, strict: bool) -> int:
    """Say on stderr why questions have no verdict, each reason once; the exit code."""
    stopped = card.stopped or ""
    for key, found in card.reasons.items():
        if not (stopped and (key.startswith("stopped: ") or found["example"] in stopped)):
            sys.stderr.write(f"{found['n']} questions {key}: {one_line(found['example'])}\n")
    if stopped:
        sys.stderr.write(f"rm-gallery: {one_line(stopped)}\n")
    if not card.scored:
        sys.stderr.write("rm-gallery: no question got a verdict, so nothing is known.\n")
        return 1
    return int(bool(stopped) or card.verdict == "fail" or (strict and card.verdict != "pass"))
