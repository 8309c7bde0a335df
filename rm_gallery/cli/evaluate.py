"""`rm-gallery eval`: score a benchmark with a reward and say how good the reward is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from rm_gallery.cli import options as opt
from rm_gallery.cli.gates import Gates
from rm_gallery.core.engine.calls.estimate import Estimate, Interval
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.gallery.benchmarks.figures import Report, one_line
from rm_gallery.report.evaluate import estimate as estimate_run
from rm_gallery.report.evaluate import evaluate as evaluate_reward
from rm_gallery.report.export import exported
from rm_gallery.report.repeats import evaluate_repeatedly
from rm_gallery.report.tables import print_report
from rm_gallery.report.task import open_data


def evaluate(
    reward: Annotated[
        str,
        typer.Argument(
            help="A registered reward, or a model: bt:DIR, hf:ID_OR_PATH or served:URL.",
            autocompletion=opt.reward_names,
        ),
    ],
    data: Annotated[list[str], typer.Argument(help="Parquet, jsonl, json or csv files, or folders of them.")],
    benchmark: Annotated[
        str | None,
        typer.Option("--benchmark", "--format", help="Name of the benchmark; found from its own columns by default."),
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
    fail_under: opt.FailUnder = None,
    fail_if_worse_than: opt.FailIfWorse = None,
    on_bad_row: opt.OnBadRow = "raise",
    estimate: opt.EstimateFlag = False,
    export: opt.Export = None,
    log_level: opt.LogLevel = "warning",
) -> None:
    """Score DATA with REWARD and print accuracy by subset, with what could not be scored and 95 % intervals."""
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
    task: dict[str, Any] = {"params": opt.parse_params(param or []), "llm": llm, "base_url": base_url, "limit": limit}
    task |= {"seed": seed, "on_bad_row": on_bad_row, "options": options}
    if estimate:
        return show_estimate(reward, data, benchmark, task, json)
    gates = Gates.of(fail_under, fail_if_worse_than)
    report = judged_report(reward, data, benchmark, task, export, gates=gates)
    if json:
        opt.print_json(report.to_dict())
    else:
        print_report(report)
    sys.exit(gates.conclude(conclude(report, max_failures, out)))


def judged_report(
    reward: str,
    data: str | list[str],
    benchmark: str | Benchmark | None,
    task: Mapping[str, Any],
    export: Path | None = None,
    repeats: int = 1,
    gates: Gates | None = None,
) -> Report:
    """The report of a run, or the mean of several, held against `gates`; the candidates of the first go to `export`.

    Ctrl-C ends the command with exit code 130 and says how to go on.
    """
    try:
        gates = gates or Gates()
        if gates.reference is not None:
            gates.fits(open_data(_one_or_all(data), benchmark, **{key: task[key] for key in ("limit", "seed")}))
        with gates.keeping(task["options"].run_dir) as folder, exported(export, folder) as run_dir:
            options = replace(task["options"], run_dir=run_dir, trace=task["options"].trace or export is not None)
            arguments = {**task, "options": options}
            if repeats > 1:
                report = evaluate_repeatedly(reward, _one_or_all(data), benchmark, repeats=repeats, **arguments)
            else:
                report = evaluate_reward(reward, _one_or_all(data), benchmark, **arguments)
            gates.check(report, run_dir)
            return report
    except KeyboardInterrupt:
        kept = task["options"].run_dir is not None
        again = "the same command continues it" if kept else "with --out RUN it could be continued"
        sys.stderr.write(f"rm-gallery: interrupted; {again}.\n")
        raise typer.Exit(130) from None


def _one_or_all(data: str | list[str]) -> str | list[str]:
    return data[0] if isinstance(data, list) and len(data) == 1 else data


def conclude(report: Report, max_failures: int, out: Path | None = None) -> int:
    """Say on stderr why samples have no score, each reason once, and how to open the run kept in `out`; the exit code."""
    if out is not None:
        sys.stderr.write(f"rm-gallery report {shlex.quote(str(out))} writes a page about this run.\n")
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


def show_estimate(
    reward: str, data: str | list[str], benchmark: str | Benchmark | None, task: Mapping[str, Any], as_json: bool
) -> None:
    """Print what a run would need."""
    print_estimate(estimate_run(reward, _one_or_all(data), benchmark, **task), as_json)


def print_estimate(found: Estimate, as_json: bool) -> None:
    """Print an estimate, as JSON or as a table."""
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
