"""`rm-gallery eval` and `rm-gallery bench`: how good a reward is, on data of yours or on a benchmark by its name."""

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
from rm_gallery.core.engine.calls.budget import Estimate, PredictionInterval
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.shown import one_line
from rm_gallery.gallery.benchmarks.base import Benchmark, benchmarks, get_benchmark
from rm_gallery.gallery.benchmarks.figures import Report, hundredths, interval
from rm_gallery.report.formats import Gate, gate_of
from rm_gallery.report.tables import exported, print_report
from rm_gallery.study.benchmark import Recorded, recorded_json, score_recorded
from rm_gallery.study.benchmark import estimate as estimate_run
from rm_gallery.study.benchmark import evaluate as evaluate_reward
from rm_gallery.study.opened import open_run
from rm_gallery.study.repeats import evaluate_repeatedly
from rm_gallery.study.task import open_data


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
    parts: dict[str, PredictionInterval | None] = {name: getattr(found, name) for name in FIGURES}
    if as_json:
        plain = {name: None if part is None else vars(part) for name, part in parts.items()}
        return typer.echo(orjson.dumps({"samples": found.samples, **plain}).decode())
    typer.echo(f"for the remaining {found.samples} samples (95 % interval):")
    for name, part in parts.items():
        typer.echo(f"  {name.replace('_', ' '):14} {_line(part)}")
    return None


def _line(value: PredictionInterval | None) -> str:
    if value is None:
        return "unknown: give --prices"
    digits = 4 if value.mean < 10 else 0
    return f"{value.mean:,.{digits}f}  [{value.low:,.{digits}f} – {value.high:,.{digits}f}]"


def bench_names(incomplete: str) -> list[str]:
    """The benchmarks whose names begin so, for the shell's completion."""
    return [name for name in benchmarks() if name.startswith(incomplete)]


@opt.judging()
def bench(
    name: Annotated[str | None, typer.Argument(help="A benchmark; --list names them.", autocompletion=bench_names)] = None,
    reward: Annotated[
        str | None,
        typer.Option("--reward", "-r", help="A registered reward, or bt:DIR.", autocompletion=opt.reward_names),
    ] = None,
    data: Annotated[list[str] | None, typer.Option(help="File or folder in the published layout; may be repeated.")] = None,
    hub: Annotated[bool, typer.Option("--hub", help="Download the published data.")] = False,
    split: Annotated[str | None, typer.Option(help="Another split than the usual one; with --hub.")] = None,
    mode: Annotated[str | None, typer.Option(help="One of the benchmark's official protocols; --list names them.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Judge everything so many times.")] = 1,
    scores: Annotated[
        Path | None, typer.Option(help="Apply the rule to the scores of this parquet, jsonl or csv file.")
    ] = None,
    replay: Annotated[Path | None, typer.Option(help="Re-judge the recorded judge texts of this file.")] = None,
    step_rule: Annotated[str | None, typer.Option(help="How step scores become labels: threshold:X or delta:X.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Name the benchmarks and what each asks for.")] = False,
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
    """Score benchmark NAME with --reward by its official rule, or apply the rule to --scores or --replay made elsewhere."""
    if list_all:
        return _list(run.json)
    if name is None:
        raise ConfigError("bench needs the NAME of a benchmark; `rm-gallery bench --list` names them.")
    benchmark = get_benchmark(name, mode).under(**({} if step_rule is None else {"step_rule": step_rule}))
    gate = gate_of(fail_under, fail_if_worse_than, max_failures, max_unscored)
    if scores is not None or replay is not None:
        _only_recorded(reward, scores, replay, run.llm)
        if repeats > 1:
            raise ConfigError("--repeats asks a judge again; recorded judgements are what they are, so leave it out.")
        if limit is not None:
            raise ConfigError("--limit draws rows to judge; recorded judgements are scored as they are, so leave it out.")
        given = _source(benchmark, data, hub, split) if data or hub or split else None
        rows = given and open_data(given, benchmark, limit=limit, seed=run.seed, on_bad_row=run.on_bad_row)
        with gate.keeping(None if run.out is None else str(run.out)) as folder, exported(export, folder) as kept:
            found = score_recorded(benchmark, scores=scores, replay=replay, data=rows or None, seed=run.seed, run_dir=kept)
            for option, wanted in (("--export", export), ("gates", gate.fail_under), ("gates", gate.reference)):
                if wanted is not None and len(found) > 1:
                    raise ConfigError(f"{option} take one judge's candidates and the file holds {len(found)}; keep one.")
            held = [missed_by(report, gate, kept) for _, report in found]
        return _show_recorded(benchmark, found, run.json, held)
    if reward is None:
        raise ConfigError("bench needs a reward: --reward NAME, or scores made elsewhere with --scores or --replay.")
    task = task_of(run, limit)
    source = _source(benchmark, data, hub, split)
    if estimate:
        return show_estimate(reward, source, benchmark, task, run.json, repeats)
    with run.resumable():
        report, missed = judged_report(reward, source, benchmark, task, export, repeats, gate)
    show_report(report, run.json)
    sys.exit(conclude(report, missed, run.out))


def _source(benchmark: Benchmark, data: list[str] | None, hub: bool, split: str | None) -> str | list[str]:
    """The files that were named, or the hub name."""
    if split is not None and not hub:
        raise ConfigError("--split names a split on the hub; give it with --hub.")
    if data and hub:
        raise ConfigError("--data and --hub both say where the rows are; give one of them.")
    if data:
        return data
    if not hub:
        where = f" or --hub for {benchmark.hub}" if benchmark.hub else ""
        raise ConfigError(f"{benchmark.name} needs its data: give --data PATH{where}.")
    if not benchmark.hub:
        raise ConfigError(f"{benchmark.name} is on no hub; give its files with --data PATH.")
    return benchmark.hub if split is None else f"{benchmark.hub}[{split}]"


def _only_recorded(reward: str | None, scores: Path | None, replay: Path | None, llm: str | None) -> None:
    given = [("--scores", scores), ("--replay", replay), ("--reward", reward), ("--llm", llm)]
    found = [name for name, value in given if value is not None]
    if len(found) > 1:
        raise ConfigError(f"{' and '.join(found)} exclude each other; recorded judgements need no reward and no judge.")


def _show_recorded(benchmark: Benchmark, found: Recorded, as_json: bool, missed: Sequence[list[str]]) -> None:
    """Print recorded judgements by group, and leave with 1 when nothing could be scored."""
    if as_json:
        opt.print_json(recorded_json(benchmark, found))
    elif len(found) == 1:
        print_report(found[0][1])
    else:
        for group, report in found:
            typer.echo(_scored_line(group, report))
    sys.exit(max(conclude(report, why) for (_, report), why in zip(found, missed, strict=True)))


def _scored_line(group: Mapping[str, Any], report: Report) -> str:
    what = " ".join(str(value) for value in group.values()) or report.benchmark
    return f"{what}: {hundredths(report.score)} [{interval(report.ci95)}] n={report.n} ({report.rule})"


def _list(as_json: bool) -> None:
    """Every benchmark: what it measures, its hub name, kinds of rewards, modes."""
    known = benchmarks()
    if as_json:
        shown = [
            {"name": n, "measures": b.measures, "hub": b.hub, "kinds": sorted(b.kinds), "modes": dict(b.modes)}
            for n, b in known.items()
        ]
        return opt.print_json(shown)
    width = max(map(len, known))
    for n, found in known.items():
        modes = f" · modes: {', '.join(found.modes)}" if found.modes else ""
        typer.echo(f"{n:<{width}}  {found.measures or found.version}{modes}")
    return None
