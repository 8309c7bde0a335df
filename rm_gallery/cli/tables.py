"""Anybody's table: `rm-gallery grade`, `score` and `winrate`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rm_gallery.cli import options as opt
from rm_gallery.cli.evaluate import conclude, missed_by, print_estimate, show_report
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name
from rm_gallery.core.utils.shown import one_line
from rm_gallery.gallery.benchmarks.figures import COUNTS
from rm_gallery.report.formats import gate_of
from rm_gallery.report.tables import exported
from rm_gallery.study.grading import grade as grade_rows
from rm_gallery.study.table import Scoring, TableTask
from rm_gallery.study.winrate import Comparison

PARTS = ("graders", "aggregators", "judge", "labels", "cluster")
GRADER = ("name", "grader", "params", "mapper", "repeat", "on_error")
KINDS = {
    "weighted_sum": "WeightedSumAggregator",
    "min": "MinAggregator",
    "max": "MaxAggregator",
    "geometric_mean": "GeometricMeanAggregator",
    "gated": "GatedAggregator",
}


@opt.judging("param", "on_bad_row")
def grade(
    config: Annotated[Path, typer.Argument(help="YAML file: graders, aggregators, judge, labels, cluster.")],
    data: Annotated[str, typer.Argument(help="Parquet, jsonl, json, csv or xlsx file with a row per item.")],
    *,
    run: opt.Running,
    limit: opt.Limit = None,
    max_failures: opt.MaxFailures = 0,
    max_unscored: opt.MaxUnscored = None,
    fail_under: opt.FailUnder = None,
    export: opt.Export = None,
) -> None:
    """Grade the rows of DATA by the graders of CONFIG and print their means, how they agree, and how they follow labels."""
    options = run.options()
    gate = gate_of(fail_under, None, max_failures, max_unscored, own_unit=True)
    known = read_config(config)
    runner = runner_of(known, judge_of(known, run.llm, run.base_url))
    if not Path(data).expanduser().exists():
        raise ConfigError(f"{data}: no such file; give a parquet, jsonl, json, csv or xlsx file.")
    beside: dict[str, Any] = {
        "labels": known.get("labels"),
        "cluster": known.get("cluster"),
        "limit": limit,
        "seed": run.seed,
    }
    with run.resumable(), exported(export, options.run_dir) as folder:
        report = grade_rows(runner, Path(data).expanduser(), options=replace(options, run_dir=folder), **beside)
    show_report(report, run.json)
    # every grader has to pass what one sample has to
    most = {name: max(getattr(part, name) for part in report.by_subset.values()) for name in COUNTS[2:]}
    sys.exit(conclude(report, missed_by(replace(report, **most), gate), run.out))


MOST = 100_000
"""Values of a config, those that aliases stand for counted each time."""


def _size(value: Any, known: dict[int, int]) -> int:
    """How many values there are when every alias is written out; beyond all measure where one holds itself."""
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
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; give a YAML file that names graders.") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())[:200]}") from error
    if _size(found, {}) > MOST:
        raise ConfigError(f"{path}: its aliases stand for more than {MOST:,} values; write out what is meant.")
    if not isinstance(found, dict) or not found.get("graders"):
        raise ConfigError(f"{path}: holds no 'graders'; write `graders: {{relevance: {{}}}}`.")
    for name in found:
        if name not in PARTS:
            raise ConfigError(f"{path}: {unknown_name('part', str(name), PARTS)}")
    return found


def judge_of(config: Mapping[str, Any], llm: str | None, base_url: str | None) -> Any:
    """The judge that the command line or the config names, None for none."""
    from rm_gallery.core.model.base import resolve_llm

    given = llm or config.get("judge")
    if given is None:
        return None
    return resolve_llm(given, **({"base_url": base_url} if base_url else {}))


def runner_of(config: Mapping[str, Any], judge: Any) -> Any:
    """The runner a config describes; ConfigError naming the grader and the field that does not fit."""
    from rm_gallery.core.runner.grading_runner import GradingRunner

    graders = config["graders"]
    if isinstance(graders, list):
        graders = {str(_of(item, "name", number)): item for number, item in enumerate(graders)}
    if not isinstance(graders, Mapping):
        raise ConfigError(f"graders: a mapping of name to settings is needed, found {graders!r:.60}.")
    made = {str(name): grader_of(str(name), settings or {}, judge) for name, settings in graders.items()}
    aggregators = [_aggregator(item, number) for number, item in enumerate(config.get("aggregators") or ())]
    return GradingRunner(made, aggregators or None)


def grader_of(name: str, settings: Any, judge: Any) -> Any:
    """One grader of a config: `grader` is a registered grader or reward, the entry's own name where it is left out."""
    from rm_gallery.core.graders.base import GraderRegistry
    from rm_gallery.core.graders.bridge import as_grader
    from rm_gallery.core.graders.llm import LLMGrader
    from rm_gallery.core.reward.registry import RewardRegistry
    from rm_gallery.core.runner.grading_runner import GraderConfig

    if not isinstance(settings, Mapping):
        settings = {"grader": settings}
    for key in settings:
        if key not in GRADER:
            raise ConfigError(f"graders.{name}: {unknown_name('field', str(key), GRADER)}")
    kind, params = str(settings.get("grader", name)), dict(settings.get("params") or {})
    reward = kind not in GraderRegistry.list() and kind in RewardRegistry.list()
    known: Any = LLMGrader if kind == "llm" else RewardRegistry.get(kind) if reward else GraderRegistry.get(kind)
    needs = known.needs | (getattr(getattr(known, "kind", None), "needs", None) or frozenset())
    if "llm" in needs and not {"llm", "model"} & set(params):
        if judge is None:
            raise ConfigError(f"graders.{name} is judged by a model and none is named; add `judge:` or --llm MODEL.")
        params["llm"] = judge
    try:
        grader = as_grader(kind, **params) if reward else known(**({} if reward else {"name": name}), **params)
    except TypeError as error:
        raise ConfigError(f"graders.{name}: {error}") from error
    rest = {key: settings[key] for key in ("mapper", "repeat", "on_error") if key in settings}
    return GraderConfig(grader, **rest)


def _aggregator(item: Any, number: int) -> Any:
    from rm_gallery.core.runner import aggregator as found

    kind = str(_of(item, "kind", number, "aggregators"))
    if kind not in KINDS:
        raise ConfigError(f"aggregators[{number}]: {unknown_name('kind', kind, KINDS)}")
    settings = {str(key): value for key, value in item.items() if key != "kind"}
    try:
        return getattr(found, KINDS[kind])(**settings)
    except TypeError as error:
        raise ConfigError(f"aggregators[{number}]: {error}") from error


def _of(item: Any, key: str, number: int, what: str = "graders") -> Any:
    if not isinstance(item, Mapping) or key not in item:
        raise ConfigError(f"{what}[{number}] is {item!r:.60}; it needs '{key}'.")
    return item[key]


@opt.judging()
def winrate(
    data: opt.Table,
    prompt: opt.Prompt,
    a: Annotated[str, typer.Option(help="Column with the answers whose win rate is asked for.")],
    b: Annotated[str, typer.Option(help="Column with the answers they are compared with.")],
    reward: opt.RewardName,
    other: Annotated[
        list[str] | None, typer.Option(help="A further column of answers, for a ranking; may be repeated.")
    ] = None,
    second: Annotated[
        str | None, typer.Option("--with", help="Another file that holds --b, joined by --id; the same questions.")
    ] = None,
    length_controlled: Annotated[bool, typer.Option("--length-controlled", help="Add the win rate at equal length.")] = False,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Stop as soon as the comparison is settled, valid at every look.")
    ] = False,
    *,
    table: opt.Tabled,
    run: opt.Running,
) -> None:
    """Judge the answers in the columns --a and --b of FILE and print how often a wins, with ties, flips and a 95 % interval."""
    built = build_reward(reward, run.params, run.llm, run.base_url, run.seed)
    comparison = Comparison.read(
        data,
        prompt,
        [a, b, *(other or ())],
        table.columns(run),
        other=second,
        length_controlled=length_controlled,
        until_decided=until_decided,
    )
    judge_table(comparison, built, run, table)


def judge_table(task: TableTask, reward: BaseReward, run: opt.Running, table: opt.Tabled) -> None:
    """Say what was understood, judge, print the report, write the export; the exit code is that of `eval`."""
    options = run.options()
    own_unit = task.rule().name == "scores"
    gate = gate_of(table.fail_under, None, table.max_failures, table.max_unscored, own_unit=own_unit)
    for line in task.understood(reward):
        sys.stderr.write(f"{one_line(line)}\n")
    if table.dry_run:
        return None
    if table.estimate:
        return print_estimate(task.estimate(reward, seed=run.seed, options=options), run.json)
    with run.resumable(), exported(table.export, options.run_dir) as run_dir:
        options = replace(options, run_dir=run_dir, trace=options.trace or table.export is not None)
        report = task.judge(reward, seed=run.seed, options=options)
    show_report(report, run.json)
    sys.exit(conclude(report, missed_by(report, gate), run.out))


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
