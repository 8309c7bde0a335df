"""`rm-gallery audit`: the trust card of a reward."""

from __future__ import annotations

import sys
from typing import Annotated

import orjson
import typer

from rm_gallery.cli import options as opt
from rm_gallery.report.audit.card import Audit
from rm_gallery.report.audit.run import PROBES, prepare
from rm_gallery.report.tables import print_findings


def probe_names(incomplete: str) -> list[str]:
    """The probes whose names begin so, for the shell's completion."""
    return [name for name in PROBES if name.startswith(incomplete)]


@opt.judging()
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
    *,
    run: opt.Running,
    limit: Annotated[
        int | None, typer.Option(min=1, help="A seeded sample of this many prompts; 60 of data by default.")
    ] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what it would take, and ask nothing.")] = False,
) -> None:
    """Try to move REWARD by place, length, dress, praise and commands; print how far that went, with intervals and verdicts."""
    options = run.options()
    ready = prepare(
        reward,
        data[0] if data and len(data) == 1 else data or None,
        benchmark,
        probes=probe or None,
        params=run.params,
        llm=run.llm,
        base_url=run.base_url,
        limit=limit,
        seed=run.seed,
        on_bad_row=run.on_bad_row,
    )
    cost = ready.cost(options.budget.prices if options.budget is not None else None)
    if estimate:
        return typer.echo(orjson.dumps(vars(cost)).decode() if run.json else str(cost))
    sys.stderr.write(f"audit of {ready.reward.name}: {cost}\n")
    with run.resumable():
        card = ready.run(options)
    if run.json:
        opt.print_json(card.to_dict())
    else:
        kept = [f"card: {run.out / 'card.html'}"] if run.out is not None else []
        print_findings(card.findings, [*card.about(), *kept])
    sys.exit(_conclude(card, strict))


def _conclude(card: Audit, strict: bool) -> int:
    """Say on stderr why questions have no verdict, each reason once; the exit code."""
    opt.say_lost(card.reasons, card.stopped, "questions")
    if not card.scored:
        sys.stderr.write("rm-gallery: no question got a verdict, so nothing is known.\n")
        return 1
    return int(bool(card.stopped) or card.verdict == "fail" or (strict and card.verdict != "pass"))
