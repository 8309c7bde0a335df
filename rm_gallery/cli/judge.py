"""Scoring rewards and tables: `rm-gallery eval`, `bench`, `score`, `winrate` and `grade`."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from rm_gallery.cli import options as opt
from rm_gallery.core.utils.errors import ConfigError, Inapplicable
from rm_gallery.core.utils.file import read_yaml
from rm_gallery.core.utils.names import check_known, unknown_name
from rm_gallery.core.utils.shown import one_line

if TYPE_CHECKING:
    from rm_gallery.core.engine.options import RunOptions
    from rm_gallery.gallery.benchmarks.base import Benchmark
    from rm_gallery.gallery.benchmarks.figures import Report
    from rm_gallery.report.annotate import Annotation
    from rm_gallery.report.gate import QualityGate
    from rm_gallery.study.estimate import Forecast, PredictionInterval
    from rm_gallery.study.source import Shard
    from rm_gallery.study.table import Columns, TableTask

PARTS = ("graders", "aggregators", "judge", "labels", "cluster")
GRADER = ("name", "grader", "params", "mapper", "repeat", "on_error", "threshold")
KINDS = {
    "weighted_sum": "WeightedSumAggregator",
    "min": "MinAggregator",
    "max": "MaxAggregator",
    "geometric_mean": "GeometricMeanAggregator",
    "gated": "GatedAggregator",
}
STATUSES = ("scored", "unscored", "failed", "stopped")
FIGURES = ("calls", "input_tokens", "output_tokens", "cost", "seconds")


def _benchmark_names() -> Iterable[str]:
    from rm_gallery.gallery.benchmarks.base import benchmarks

    return benchmarks()


@opt.grouped("annotate")
def evaluate(
    reward: opt.Reward[str],
    data: opt.Data[list[str]],
    benchmark: opt.Benchmark = None,
    *,
    run: opt.Running,
    rows: opt.Reported,
) -> None:
    """Score DATA with REWARD and print accuracy by subset, with what could not be scored and 95 %
    intervals.

    Args:
        data: Parquet, jsonl, json or csv files, or folders of them.
    """
    _judge(reward, data, benchmark, run, rows)


@opt.grouped("annotate")
def bench(
    reward: opt.Reward[str | None] = None,
    name: Annotated[
        str | None,
        typer.Argument(metavar="BENCHMARK", autocompletion=opt.completing(_benchmark_names)),
    ] = None,
    data: list[str] | None = None,
    hub: bool = False,
    split: str | None = None,
    mode: str | None = None,
    repeats: opt.Count[int] = 1,
    scores: Path | None = None,
    replay: Path | None = None,
    step_rule: str | None = None,
    list_all: Annotated[bool, typer.Option("--list")] = False,
    *,
    run: opt.Running,
    rows: opt.Reported,
) -> None:
    """Score BENCHMARK with REWARD by its official rule, or apply the rule to --scores or --replay
    made elsewhere, which stand in REWARD's place.

    Args:
        name: A benchmark; --list names them.
        data: File or folder in the published layout; may be repeated.
        hub: Download the published data.
        split: Another split than the usual one; with --hub.
        mode: One of the benchmark's official protocols; --list names them.
        repeats: Judge everything so many times.
        scores: Apply the rule to the scores of this parquet, jsonl or csv file.
        replay: Re-judge the recorded judge texts of this file.
        step_rule: How step scores become labels: threshold:X or delta:X.
        list_all: Name the benchmarks and what each asks for.
    """
    from rm_gallery.gallery.benchmarks.base import get_benchmark

    if list_all:
        return _list(run.json)
    if name is None:  # one word alone: judgements made elsewhere need no reward
        reward, name = None, reward
    if name is None:
        raise ConfigError("bench needs a BENCHMARK; `rm-gallery bench --list` names them.")
    benchmark = get_benchmark(name, mode).under(
        **({} if step_rule is None else {"step_rule": step_rule})
    )
    if scores is not None or replay is not None:
        given = {"--scores": scores, "--replay": replay, "a REWARD": reward, "--llm": run.llm}
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise Inapplicable(
                f"{' and '.join(named)} exclude each other; recorded judgements need no reward and "
                f"no judge.",
                *(name.removeprefix("--") for name in reversed(named)),
            )
        if repeats > 1:
            raise Inapplicable(
                "--repeats asks a judge again; recorded judgements are what they are, so leave it "
                "out.",
                "repeats",
            )
        if rows.limit is not None:
            raise Inapplicable(
                "--limit draws rows to judge; recorded judgements are scored as they are, so "
                "leave it out.",
                "limit",
            )
        source = _source(benchmark, data, hub, split) if data or hub or split else None
        return _bench_recorded(benchmark, source, scores, replay, run, rows)
    if reward is None:
        raise ConfigError(
            f"bench needs a reward: rm-gallery bench REWARD {benchmark.name}, or scores made "
            f"elsewhere with --scores or --replay."
        )
    return _judge(reward, _source(benchmark, data, hub, split), benchmark, run, rows, repeats)


def _judge(
    reward: str,
    data: str | list[str],
    benchmark: str | Benchmark | None,
    run: opt.Running,
    rows: opt.Reported,
    repeats: int = 1,
) -> None:
    """Judge the data once or several times, print the report or what that would need, and leave
    with the exit code.
    """
    from rm_gallery.report.gate import check_fits
    from rm_gallery.study.benchmark import estimate as estimate_run
    from rm_gallery.study.benchmark import evaluate as evaluate_reward
    from rm_gallery.study.benchmark import evaluate_repeatedly
    from rm_gallery.study.source import Source

    gate, options, task = rows.gate(), run.options(), run.task(rows.limit)
    shard = rows.shard_of(run, repeats)
    opt.say_reading(*(data if isinstance(data, list) else [data]))
    data = opt.one_or_all(data)
    if rows.estimate:
        return print_estimate(
            estimate_run(reward, data, benchmark, repeats=repeats, options=options, **task),
            run.json,
        )
    if gate.reference is not None:
        check_fits(gate.reference, Source(data, benchmark, limit=rows.limit, seed=run.seed).open())

    judged: Callable[..., Report] = evaluate_reward
    if repeats > 1:  # the candidates of the first are exported
        judged = partial(evaluate_repeatedly, repeats=repeats)
    judged = partial(judged, reward, data, benchmark, shard=shard, **task)
    return _judge_and_conclude(judged, options, gate, run, rows)


def _judge_and_conclude(
    judged: Callable[..., Report],
    options: RunOptions,
    gate: QualityGate,
    run: opt.Running,
    rows: opt.Reported,
    copy: Annotation | None = None,
    held: Callable[[Report], Report] = lambda report: report,
) -> None:
    """Judge, write the files, print the report, and leave with the exit code of the gate, to which
    `held` of the report is held.
    """
    from rm_gallery.report.tables import exported, print_report
    from rm_gallery.study.source import Shard

    with (
        run.resumable(),
        gate.keeping(options.run_dir) as folder,
        exported(rows.export, folder, copy, rows.title) as run_dir,
    ):
        traced = options.trace or rows.export is not None
        report = judged(options=replace(options, run_dir=run_dir, trace=traced))
        missed = _missed_by(held(report), gate, run_dir)
    if rows.shard is not None and run.out is not None:
        return _conclude_shard(report, Shard.read(rows.shard), run.out, run.json)
    opt.print_json(report.to_dict()) if run.json else print_report(report)
    if run.out is not None:
        opt.say(
            f"rm-gallery report {one_line(shlex.quote(str(run.out)))} writes a page about this run."
        )
    sys.exit(_say_missed(report, missed))


def _missed_by(report: Report, gate: QualityGate, run_dir: str | None = None) -> list[str]:
    """Reasons why a report misses its gate; `run_dir` is needed to compare it with another run.

    A report without rows misses nothing.
    """
    from rm_gallery.study.runs import open_run

    if not report.n:
        return []
    run = None if gate.reference is None or run_dir is None else open_run(run_dir)
    missed = gate.missed(report.to_dict(), finished=not report.n_stopped, run=run, say=opt.say)
    # the reason why a run stopped covers the samples that failed before
    return [why for part, why in missed if part != "failed" or not report.n_stopped]


def _conclude_shard(report: Report, shard: Shard, out: Path, as_json: bool) -> None:
    """A shard of a run has no figure yet: print what became of its samples."""
    from rm_gallery.study.runs import open_run

    counts = open_run(shard.folder(out)).summary["samples"]
    done = {**counts, "scored": counts["scored"] + counts["reused"]}
    count_text = ", ".join(
        f"{done[name]:,} {name}" for name in STATUSES if done[name] or name == "scored"
    )
    shown = (
        f"shard {shard.number} of {shard.of}: {count_text}. Once all shards are done, the same "
        f"command without --shard reports."
    )
    opt.show(as_json, {"shard": shard.name, "samples": counts, "stopped": report.stopped}, [shown])
    opt.say_lost(report.reasons, report.stopped, "samples")
    sys.exit(1 if done["failed"] or done["stopped"] else 0)


def _say_missed(report: Report, missed: Sequence[str]) -> int:
    opt.say_lost(report.reasons, report.stopped, "samples")
    # why a run stopped is on stderr already
    opt.say_missed(why for why in missed if why != one_line(report.stopped or ""))
    return int(bool(missed))


def print_estimate(estimate: Forecast, as_json: bool) -> None:
    """Print an estimate, as JSON or as a table."""
    parts: dict[str, PredictionInterval | None] = {
        name: getattr(estimate, name) for name in FIGURES
    }
    if as_json:
        plain = {name: part and vars(part) for name, part in parts.items()}
        return typer.echo(orjson.dumps({"samples": estimate.samples, **plain}).decode())
    typer.echo(f"for the remaining {estimate.samples} samples (95 % interval):")
    for name, part in parts.items():
        shown = "unknown: give --config budget.prices=FILE"
        if part is not None:
            mean, low, high = (
                f"{value:,.{4 if part.mean < 10 else 0}f}" for value in vars(part).values()
            )
            shown = f"{mean}  [{low} – {high}]"
        typer.echo(f"  {name.replace('_', ' '):14} {shown}")
    return None


def _source(
    benchmark: Benchmark, data: list[str] | None, hub: bool, split: str | None
) -> str | list[str]:
    """The files that were named, or the hub name."""
    if split is not None and not hub:
        raise Inapplicable("--split names a split on the hub; give it with --hub.", "split")
    if data and hub:
        raise Inapplicable(
            "--data and --hub both say where the rows are; give one of them.", "hub", "data"
        )
    if data:
        return data
    if not hub:
        where = f" or --hub for {benchmark.hub}" if benchmark.hub else ""
        own = (
            f"; a checkout of the repository has {benchmark.checkout}" if benchmark.checkout else ""
        )
        raise ConfigError(f"{benchmark.name} needs its data: give --data PATH{where}{own}.")
    if not benchmark.hub:
        raise ConfigError(f"{benchmark.name} is on no hub; give its files with --data PATH.")
    return benchmark.hub if split is None else f"{benchmark.hub}[{split}]"


def _bench_recorded(
    benchmark: Benchmark,
    source: str | list[str] | None,
    scores: Path | None,
    replay: Path | None,
    run: opt.Running,
    rows: opt.Reported,
) -> None:
    """Print recorded judgements by group, and leave with 1 when a gate is missed or nothing could
    be scored.
    """
    from rm_gallery.report.tables import exported, print_report
    from rm_gallery.study.benchmark import recorded_json, score_recorded
    from rm_gallery.study.source import Source

    gate = rows.gate()
    known = Source(source, benchmark, seed=run.seed, on_bad_row=run.on_bad_row)
    data = known.open() if source else None
    with (
        gate.keeping(None if run.out is None else str(run.out)) as folder,
        exported(rows.export, folder, title=rows.title) as kept,
    ):
        reports = score_recorded(
            benchmark, scores=scores, replay=replay, data=data, seed=run.seed, run_dir=kept
        )
        for name in ("export", "fail_under", "fail_if_worse_than"):
            if getattr(rows, name) is not None and len(reports) > 1:
                raise Inapplicable(
                    f"{'--export' if name == 'export' else 'gates'} take one judge's candidates "
                    f"and the file holds {len(reports)}; keep one.",
                    name,
                )
        missed = [_missed_by(report, gate, kept) for _, report in reports]
    if len(reports) == 1 and not run.json:
        print_report(reports[0][1])
    else:
        lines = (_scored_line(group, report) for group, report in reports)
        opt.show(run.json, recorded_json(benchmark, reports), lines)
    sys.exit(
        max(_say_missed(report, why) for (_, report), why in zip(reports, missed, strict=True))
    )


def _scored_line(group: Mapping[str, Any], report: Report) -> str:
    what = " ".join(str(value) for value in group.values()) or report.benchmark
    return f"{what}: {report.worth()} ({report.rule})"


def _list(as_json: bool) -> None:
    """Every benchmark: what it measures, its hub name, kinds of rewards, modes."""
    from rm_gallery.gallery.benchmarks.base import benchmarks

    known = benchmarks()
    width, shown, lines = max(map(len, known)), [], []
    for name, one in known.items():
        facts = {"name": name, "measures": one.page().measures, "hub": one.hub}
        shown.append({**facts, "kinds": sorted(one.kinds), "modes": dict(one.modes)})
        modes = f" · modes: {', '.join(one.modes)}" if one.modes else ""
        own = f" · in a checkout: --data {one.checkout}" if one.checkout else ""
        lines.append(f"{name:<{width}}  {facts['measures'] or one.version}{modes}{own}")
    opt.show(as_json, shown, lines)


# -- anybody's table -------------------------------------------------------------------------------


@opt.grouped("fail_if_worse_than")
def score(
    reward: opt.Reward[str],
    data: opt.Table,
    prompt: opt.Prompt = None,
    answer: list[str] | None = None,
    *,
    table: opt.Tabled,
    run: opt.Running,
    rows: opt.Reported,
) -> None:
    """Score the answers in a column of DATA with REWARD and print their mean with its spread and a
    95 % interval.

    Args:
        answer: Column with the answers; may be repeated.
    """
    from rm_gallery.study.table import Scoring

    opt.say_reading(data)
    task = Scoring.read(data, prompt, answer or (), columns := table.columns(run, rows))
    _judge_table(task, reward, run, rows, table.dry_run, (data, None), columns)


@opt.grouped("fail_if_worse_than")
def winrate(
    reward: opt.Reward[str],
    data: opt.Table,
    prompt: opt.Prompt = None,
    a: str | None = None,
    b: list[str] | None = None,
    other: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
    second: Annotated[str | None, typer.Option("--with")] = None,
    length_controlled: bool = False,
    until_decided: bool = False,
    *,
    table: opt.Tabled,
    run: opt.Running,
    rows: opt.Reported,
) -> None:
    """Judge the answers in the columns --a and --b of DATA with REWARD and print how often a wins,
    with ties, flips and a 95 % interval.

    Args:
        a: Column with the answers whose win rate is asked for.
        b: Column with the answers to compare with; repeat it for a ranking.
        other: Further columns, as a repeated --b.
        second: Another file that holds --b, joined by --id; the same questions.
        length_controlled: Add the win rate at equal length.
        until_decided: Stop as soon as the comparison is settled, valid at every look.
    """
    from rm_gallery.study.winrate import WinRateTask

    columns = table.columns(run, rows)
    opt.say_reading(data, *([] if second is None else [second]))
    task = WinRateTask.read(
        data,
        prompt,
        [*([] if a is None else [a]), *(b or ()), *(other or ())],
        columns,
        other=second,
        length_controlled=length_controlled,
        until_decided=until_decided,
    )
    _judge_table(task, reward, run, rows, table.dry_run, (data, second), columns)


def _judge_table(
    task: TableTask,
    name: str,
    run: opt.Running,
    rows: opt.Reported,
    dry_run: bool,
    data: tuple[str, str | None],
    columns: Columns,
) -> None:
    """Say how the table is read, judge it, print the report, write the files; exit code as `eval`."""
    from rm_gallery.report.annotate import Annotation
    from rm_gallery.study.winrate import WinRateTask

    reward, options = run.build(name), run.options()
    gate, copy = rows.gate(own_unit=task.name == "scores"), None
    if rows.annotate is not None:
        names = ("encoding", "separator", "sheet", "header_row")
        copy = Annotation(
            rows.annotate,
            data[0],
            {name: getattr(columns, name) for name in names},
            task.samples.answers,
            reward,
            isinstance(task, WinRateTask),
            limit=rows.limit is not None,
            bad_rows=run.on_bad_row == "skip",
            other_files=(data[1], columns.labels, rows.export),
        )
    for line in task.understood(reward):
        opt.say(one_line(line))
    if dry_run:
        return None
    if rows.estimate:
        return print_estimate(task.estimate(reward, seed=run.seed, options=options), run.json)

    judged = partial(task.judge, reward, seed=run.seed)
    return _judge_and_conclude(judged, options, gate, run, rows, copy)


@opt.grouped("param", "on_bad_row", "estimate", "fail_if_worse_than")
def grade(
    config: opt.Config,
    data: opt.Data[str],
    *,
    run: opt.Running,
    rows: opt.Reported,
) -> None:
    """Grade the rows of DATA by the graders of CONFIG and print their means, how they agree, and
    how they follow labels.

    Args:
        config: YAML file: graders, aggregators, judge, labels, cluster.
        data: Parquet, jsonl, json, csv or xlsx file with a row per item.
    """
    from rm_gallery.gallery.benchmarks.figures import COUNTS
    from rm_gallery.report.annotate import Annotation
    from rm_gallery.study.grading import grade as grade_rows

    options, gate, known = run.options(), rows.gate(own_unit=True), read_config(config)
    runner, path = runner_of(known, run.llm, run.base_url), rows_file(data)
    opt.say_reading(path)
    how: dict[str, Any] = {"limit": rows.limit, "seed": run.seed, "shard": rows.shard_of(run)}
    how |= {name: known.get(name) for name in ("labels", "cluster")}
    copy = (
        None
        if rows.annotate is None
        else Annotation(rows.annotate, data, limit=rows.limit is not None, other_files=(config,))
    )

    def judged(options: RunOptions) -> Report:
        return grade_rows(runner, path, options=replace(options, trace=run.trace), **how)

    def held(report: Report) -> Report:
        """Every grader has to pass what one sample has to."""
        parts = report.by_subset.values()
        most = {name: max(getattr(part, name) for part in parts) for name in COUNTS[2:]}
        return replace(report, **most)

    _judge_and_conclude(judged, options, gate, run, rows, copy, held)


MOST = 100_000
"""Values of a config, those that aliases stand for counted each time."""


def _size(value: Any, known: dict[int, int]) -> int:
    """Number of values when every alias is written out; more than MOST where one holds itself."""
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in known:
        known[id(value)] = MOST + 1  # what is met again before it is counted holds itself
        inside = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_size(item, known) for item in inside)
    return known[id(value)]


def read_config(path: Path) -> dict[str, Any]:
    """The parts of a config file; ConfigError naming what does not fit."""
    import yaml

    try:
        config = read_yaml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror or error}; give a YAML file that names graders."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())[:200]}") from error
    if _size(config, {}) > MOST:
        raise ConfigError(
            f"{path}: its aliases stand for more than {MOST:,} values; write out what is meant."
        )
    if not isinstance(config, dict) or not config.get("graders"):
        raise ConfigError(f"{path}: holds no 'graders'; write `graders: {{relevance: {{}}}}`.")
    check_known("part", config, PARTS, f"{path}: ")
    return config


def rows_file(data: str) -> Path:
    """The file of rows to grade; ConfigError where there is none."""
    path = Path(data).expanduser()
    if not path.exists():
        raise ConfigError(f"{data}: no such file; give a parquet, jsonl, json, csv or xlsx file.")
    return path


def runner_of(
    config: Mapping[str, Any], llm: str | None = None, base_url: str | None = None
) -> Any:
    """The runner a config describes, with the judge of the command line before its own.

    Raises ConfigError naming the grader and the field that does not fit, and where a judge is named
    and no grader asks one.
    """
    from rm_gallery.core.reward.judges import named_judge
    from rm_gallery.core.runner.grading_runner import GradingRunner

    graders = config["graders"]
    if isinstance(graders, list):
        named = [
            (str(_required_value(item, "name", number)), item)
            for number, item in enumerate(graders)
        ]
    elif isinstance(graders, Mapping):
        named = [(str(name), item) for name, item in graders.items()]
    else:
        raise ConfigError(
            f"graders: a mapping of name to settings is needed, found {graders!r:.60}."
        )
    for name, times in Counter(name for name, _ in named).items():
        if times > 1:  # the last one would hide the others
            raise ConfigError(f"graders: '{name}' stands there {times} times; rename one.")
    judge = llm or config.get("judge")
    if judge is not None:
        judge = named_judge(judge, base_url)
    made = {name: grader_of(name, settings or {}, judge) for name, settings in named}
    asked = (getattr(each.grader, "llm", None) for each in made.values())
    if (llm or base_url) and not any(one is judge is not None for one in asked):
        raise Inapplicable(
            f"graders: {', '.join(made)}: none is judged by it; leave out --llm and --base-url.",
            "llm",
            "base_url",
        )
    aggregators = [
        _aggregator(item, number) for number, item in enumerate(config.get("aggregators") or ())
    ]
    return GradingRunner(made, aggregators or None)


def grader_of(name: str, settings: Any, judge: Any) -> Any:
    """One grader of a config: `grader` is a registered grader or reward, the entry's own name where
    it is left out.
    """
    from rm_gallery.core.graders.base import GraderRegistry, as_grader
    from rm_gallery.core.graders.llm import LLMGrader
    from rm_gallery.core.reward.registry import RewardRegistry
    from rm_gallery.core.runner.grading_runner import GraderConfig

    if not isinstance(settings, Mapping):
        settings = {"grader": settings}
    check_known("field", settings, GRADER, f"graders.{name}: ")
    kind = str(settings.get("grader", name)).removeprefix("grader:")
    params = settings.get("params") or {}
    if not isinstance(params, Mapping):
        raise ConfigError(f"graders.{name}: params is {params!r:.60}; it is a mapping of settings.")
    params = dict(params)
    reward = kind not in GraderRegistry.list() and (
        kind in RewardRegistry or ":" in RewardRegistry.spelled(kind)
    )
    registry: Any = RewardRegistry if reward else GraderRegistry
    known: Any = LLMGrader if kind == "llm" else registry.get(kind)
    needs = known.needs | (getattr(getattr(known, "kind", None), "needs", None) or frozenset())
    if "llm" in needs and params.keys().isdisjoint(("llm", "model")):
        if judge is None:
            raise ConfigError(
                f"graders.{name} is judged by a model and none is named; add `judge:` or --llm "
                f"MODEL."
            )
        params["llm"] = judge
    try:
        grader = as_grader(kind, **params) if reward else known(name=name, **params)
    except TypeError as error:
        raise ConfigError(f"graders.{name}: {error}") from error
    if (passes := settings.get("threshold")) is not None:
        if isinstance(passes, bool) or not isinstance(passes, (int, float)):
            raise ConfigError(
                f"graders.{name}: threshold is {passes!r:.40}; give the score from where on an "
                f"answer passes."
            )
        grader = grader.model_copy(update={"threshold": float(passes)})
    rest = {key: settings[key] for key in ("mapper", "repeat", "on_error") if key in settings}
    return GraderConfig(grader, **rest)


def _aggregator(item: Any, number: int) -> Any:
    from rm_gallery.core.runner import aggregator

    kind = str(_required_value(item, "kind", number, "aggregators"))
    if kind not in KINDS:
        raise ConfigError(f"aggregators[{number}]: {unknown_name('kind', kind, KINDS)}")
    settings = {str(key): value for key, value in item.items() if key != "kind"}
    if "secondary" in settings:  # of a gate
        behind = settings["secondary"]
        named = {"name": f"{kind} secondary", **behind} if isinstance(behind, Mapping) else behind
        settings["secondary"] = _aggregator(named, number)
    try:
        return getattr(aggregator, KINDS[kind])(**settings)
    except TypeError as error:
        raise ConfigError(f"aggregators[{number}]: {error}") from error


def _required_value(item: Any, key: str, number: int, what: str = "graders") -> Any:
    if not isinstance(item, Mapping) or key not in item:
        raise ConfigError(f"{what}[{number}] is {item!r:.60}; it needs '{key}'.")
    return item[key]
