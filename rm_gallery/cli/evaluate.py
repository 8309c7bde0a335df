"""`rm-gallery eval`: score a benchmark with a reward and say how good the reward is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from rm_gallery.cli.options import make_budget, parse_params, reward_names, set_log_level
from rm_gallery.core.engine.calls.estimate import Estimate, Interval
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.figures import Report, one_line
from rm_gallery.report.evaluate import estimate as estimate_run
from rm_gallery.report.evaluate import evaluate as evaluate_reward
from rm_gallery.report.tables import print_report


def evaluate(
    reward: Annotated[
        str, typer.Argument(help="A registered reward, or bt:DIR for a trained model.", autocompletion=reward_names)
    ],
    data: Annotated[list[str], typer.Argument(help="Parquet, jsonl, json or csv files, or folders of them.")],
    benchmark: Annotated[
        str | None,
        typer.Option("--benchmark", "--format", help="Name of the benchmark; found from its own columns by default."),
    ] = None,
    llm: Annotated[str | None, typer.Option(help="The judge's model; a judged reward needs one.")] = None,
    base_url: Annotated[str | None, typer.Option(help="The judge's endpoint; OPENAI_BASE_URL by default.")] = None,
    max_workers: Annotated[int, typer.Option(min=1, help="Judgements in flight at once.")] = 32,
    limit: Annotated[int | None, typer.Option(min=1, help="Score a seeded sample of this many rows.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the sample and the candidate order.")] = 0,
    param: Annotated[list[str] | None, typer.Option(help="k=v sets a field of the reward; may be repeated.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
    out: Annotated[Path | None, typer.Option(help="Run folder; the same command continues an unfinished run.")] = None,
    force_new: Annotated[bool, typer.Option(help="Set a run with another manifest aside.")] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Keep every judgement's prompt and reply; needs --out.")
    ] = False,
    deadline: Annotated[float | None, typer.Option(min=0.001, help="Seconds one sample may take.")] = None,
    cache: Annotated[
        bool | None, typer.Option("--cache/--no-cache", help="Cache replies; default at temperature 0.")
    ] = None,
    max_calls: Annotated[int | None, typer.Option(min=1, help="Stop, resumably, after this many calls.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Stop, resumably, after this many tokens.")] = None,
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="Stop, resumably, at this cost; needs --prices.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="YAML file with prices per million tokens.")] = None,
    max_failures: Annotated[int, typer.Option(min=0, help="Failed samples that still count as success.")] = 0,
    on_bad_row: Annotated[str, typer.Option(help="raise, or skip and count.")] = "raise",
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Judge ten samples and say what the rest would need.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="error, warning, info, debug, or http to trace calls.")] = "warning",
) -> None:
    """Score DATA with REWARD and print accuracy by subset, with what could not be scored and 95 % intervals."""
    set_log_level(log_level)
    if trace and out is None:
        raise ConfigError("--trace keeps judgements in the run folder; name one with --out RUN.")
    options = RunOptions(
        max_workers=max_workers,
        deadline=deadline,
        progress=True,
        cache=cache,
        budget=make_budget(max_calls, max_tokens, max_cost, prices),
        run_dir=str(out) if out is not None else None,
        force_new=force_new,
        trace=trace,
    )
    task: dict[str, Any] = {"params": parse_params(param or []), "llm": llm, "base_url": base_url, "limit": limit}
    task |= {"seed": seed, "on_bad_row": on_bad_row, "options": options}
    given = data[0] if len(data) == 1 else data
    if estimate:
        return _show(estimate_run(reward, given, benchmark, **task), json)
    try:
        report = evaluate_reward(reward, given, benchmark, **task)
    except KeyboardInterrupt:
        again = "the same command continues it" if out is not None else "with --out RUN it could be continued"
        sys.stderr.write(f"rm-gallery: interrupted; {again}.\n")
        raise typer.Exit(130) from None
    if json:
        typer.echo(orjson.dumps(report.to_dict(), option=orjson.OPT_INDENT_2).decode())
    else:
        print_report(report)
    sys.exit(_conclude(report, max_failures))


def _conclude(report: Report, max_failures: int) -> int:
    """Say on stderr why samples have no score, each reason once; the exit code."""
    stopped = report.stopped or ""
    for key, found in report.reasons.items():
        if not (stopped and (key.startswith("stopped: ") or found["example"] in stopped)):
            sys.stderr.write(f"{found['n']} samples {key}: {one_line(found['example'])}\n")
    if stopped:
        sys.stderr.write(f"rm-gallery: {one_line(stopped)}\n")
    if report.n and not report.n_scored:
        sys.stderr.write("rm-gallery: no sample could be scored, so there is no score.\n")
        return 1
    return 1 if report.n_failed > max_failures or report.n_stopped else 0


FIGURES = ("calls", "input_tokens", "output_tokens", "cost", "seconds")


def _show(found: Estimate, as_json: bool) -> None:
    parts: dict[str, Interval | None] = {name: getattr(found, name) for name in FIGURES}
    if as_json:
        plain = {name: None if part is None else vars(part) for name, part in parts.items()}
        return typer.echo(orjson.dumps({"samples": found.samples, **plain}).decode())
    typer.echo(f"for the remaining {found.samples} samples (95 % interval):")
    for name, part in parts.items():
        typer.echo(f"  {name.replace('_', ' '):14} {_line(part)}")
    return None


def _line(value: Interval | None) -> str:
    if value is None:
        return "unknown: give --prices"
    digits = 4 if value.mean < 10 else 0
    return f"{value.mean:,.{digits}f}  [{value.low:,.{digits}f} – {value.high:,.{digits}f}]"
