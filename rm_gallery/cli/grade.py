"""`rm-gallery grade`: graders named in a file over the rows of a table."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from rm_gallery.cli import options as opt
from rm_gallery.cli.evaluate import conclude
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name
from rm_gallery.report.grading import grade as grade_rows
from rm_gallery.report.tables import print_report

PARTS = ("graders", "aggregators", "judge", "labels", "cluster")
GRADER = ("name", "grader", "params", "mapper", "repeat", "on_error")
KINDS = {
    "weighted_sum": "WeightedSumAggregator",
    "min": "MinAggregator",
    "max": "MaxAggregator",
    "geometric_mean": "GeometricMeanAggregator",
    "gated": "GatedAggregator",
}


def grade(
    config: Annotated[Path, typer.Argument(help="YAML file: graders, aggregators, judge, labels, cluster.")],
    data: Annotated[str, typer.Argument(help="Parquet, jsonl, json or csv file with a row per item.")],
    llm: opt.Llm = None,
    base_url: opt.BaseUrl = None,
    max_workers: opt.MaxWorkers = 32,
    limit: Annotated[int | None, typer.Option(min=1, help="Grade the first so many rows.")] = None,
    seed: opt.Seed = 0,
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
    log_level: opt.LogLevel = "warning",
) -> None:
    """Grade the rows of DATA by the graders of CONFIG and print their means, how they agree, and how they follow labels."""
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
    known = read_config(config)
    runner = runner_of(known, judge_of(known, llm, base_url))
    if not Path(data).expanduser().exists():
        raise ConfigError(f"{data}: no such file; give a parquet, jsonl, json or csv file.")
    beside: dict[str, Any] = {
        "labels": known.get("labels"),
        "cluster": known.get("cluster"),
        "limit": limit,
        "seed": seed,
    }
    try:
        report = grade_rows(runner, Path(data).expanduser(), options=options, **beside)
    except KeyboardInterrupt:
        again = "the same command continues it" if out is not None else "with --out RUN it could be continued"
        sys.stderr.write(f"rm-gallery: interrupted; {again}.\n")
        raise typer.Exit(130) from None
    if json:
        typer.echo(orjson.dumps(report.to_dict(), option=orjson.OPT_INDENT_2).decode())
    else:
        print_report(report)
    failed = max(part.n_failed for part in report.by_subset.values())
    stopped = max(part.n_stopped for part in report.by_subset.values())
    sys.exit(conclude(replace(report, n_failed=failed, n_stopped=stopped), max_failures, out))


def read_config(path: Path) -> dict[str, Any]:
    """The parts of a config file; ConfigError naming what does not fit."""
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; give a YAML file that names graders.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(found, dict) or not found.get("graders"):
        raise ConfigError(f"{path}: holds no 'graders'; write `graders: {{relevance: {{}}}}`.")
    for name in found:
        if name not in PARTS:
            raise ConfigError(f"{path}: {unknown_name('part', str(name), PARTS)}")
    return found


def judge_of(config: Mapping[str, Any], llm: str | None, base_url: str | None) -> Any:
    """The judge that the command line or the config names, None for none."""
    from rm_gallery.core.model.providers import resolve_llm

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
    from rm_gallery.core.graders.bridge import as_grader
    from rm_gallery.core.graders.llm import LLMGrader
    from rm_gallery.core.graders.registry import GraderRegistry
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
