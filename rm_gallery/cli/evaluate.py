"""`rm-gallery eval`: score a benchmark with a reward and say how good the reward is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from rm_gallery.cli import options as opt
from rm_gallery.core.engine.calls.estimate import Estimate, Interval
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.gallery.benchmarks.figures import Report, one_line
from rm_gallery.report.evaluate import estimate as estimate_run
from rm_gallery.report.evaluate import evaluate as evaluate_reward
from rm_gallery.report.export import exported
from rm_gallery.report.gates import Gate, gate_of
from rm_gallery.report.opened import open_run
from rm_gallery.report.repeats import evaluate_repeatedly
from rm_gallery.report.tables import print_report
from rm_gallery.report.task import open_data


@opt.judging()
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
    *,
    run: opt.Running,
    limit: opt.Limit = None,
    max_failures: opt.MaxFailures = 0,
    max_unscored: opt.MaxUnscored = None,
    fail_under: opt.FailUnder = None,
    fail_if_worse_than: opt.FailIfWorse = None,
    estimate: opt.EstimateFlag = False,
    export: opt.Export = None,
) -> None:
    """Score DATA with REWARD and print accuracy by subset, with what could not be scored and 95 % intervals."""
    task = task_of(run, limit)
    if estimate:
        return show_estimate(reward, data, benchmark, task, run.json)
    gate = gate_of(fail_under, fail_if_worse_than, max_failures, max_unscored)
    with run.resumable():
        report, missed = judged_report(reward, data, benchmark, task, export, gate=gate)
    show_report(report, run.json)
    sys.exit(conclude(report, missed, run.out))


def task_of(run: opt.Running, limit: int | None) -> dict[str, Any]:
    """Which part of the data is judged, by what and how: keywords of `evaluate`."""
    judge = {"params": run.params, "llm": run.llm, "base_url": run.base_url}
    return {**judge, "limit": limit, "seed": run.seed, "on_bad_row": run.on_bad_row, "options": run.options()}


def show_report(report: Report, as_json: bool) -> None:
    """Print a report, as JSON or as a table."""
    opt.print_json(report.to_dict()) if as_json else print_report(report)


def judged_report(
    reward: str,
    data: str | list[str],
    benchmark: str | Benchmark | None,
    task: Mapping[str, Any],
    export: Path | None = None,
    repeats: int = 1,
    gate: Gate | None = None,
) -> tuple[Report, list[str]]:
    """The report of a run, or the mean of several, and what of `gate` it misses; the candidates of the first go to `export`."""
    gate = gate or Gate()
    if gate.reference is not None:
        gate.fits(open_data(_one_or_all(data), benchmark, **{key: task[key] for key in ("limit", "seed")}))
    with gate.keeping(task["options"].run_dir) as folder, exported(export, folder) as run_dir:
        options = replace(task["options"], run_dir=run_dir, trace=task["options"].trace or export is not None)
        arguments = {**task, "options": options}
        if repeats > 1:
            report = evaluate_repeatedly(reward, _one_or_all(data), benchmark, repeats=repeats, **arguments)
        else:
            report = evaluate_reward(reward, _one_or_all(data), benchmark, **arguments)
        return report, missed_by(report, gate, run_dir)


def _one_or_all(data: str | list[str]) -> str | list[str]:
    return data[0] if isinstance(data, list) and len(data) == 1 else data


def missed_by(report: Report, gate: Gate, run_dir: str | None = None) -> list[str]:
    """What of a gate a report misses, with the folder of its run where that is held against another; nothing without rows."""
    if not report.n:
        return []
    run = None if gate.reference is None or run_dir is None else open_run(run_dir)
    missed = gate.missed(report.to_dict(), finished=not report.n_stopped, run=run, say=_say)
    # of a run that stopped, why it did is said, and what failed until then is a part of that
    return [why for part, why in missed if part != "failed" or not report.n_stopped]


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def conclude(report: Report, missed: Sequence[str], out: Path | None = None) -> int:
    """Say on stderr why samples have no score, each reason once, how to open the run kept in `out`, and what is missed; the exit code."""
    if out is not None:
        sys.stderr.write(f"rm-gallery report {one_line(shlex.quote(str(out)))} writes a page about this run.\n")
    opt.say_lost(report.reasons, report.stopped, "samples")
    for why in missed:
        if why != one_line(report.stopped or ""):  # which was said already
            sys.stderr.write(f"rm-gallery: {why}.\n")
    return 1 if missed else 0


FIGURES = ("calls", "input_tokens", "output_tokens", "cost", "seconds")


def show_estimate(
    reward: str,
    data: str | list[str],
    benchmark: str | Benchmark | None,
    task: Mapping[str, Any],
    as_json: bool,
    repeats: int = 1,
) -> None:
    """Print what a run, or several, would need."""
    print_estimate(estimate_run(reward, _one_or_all(data), benchmark, repeats=repeats, **task), as_json)


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
