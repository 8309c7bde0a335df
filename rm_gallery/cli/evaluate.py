"""`rm-gallery eval`: score a benchmark file with a reward and say how good the reward is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from rm_gallery.cli.estimate import as_dict, probe, show
from rm_gallery.cli.formats import detect_format
from rm_gallery.cli.logging import set_log_level
from rm_gallery.cli.options import fingerprint, make_budget, parse_params
from rm_gallery.cli.report import print_report
from rm_gallery.core.data.load.base import create_loader
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.model.resolve import resolve_llm
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import RunOptions, run_stream
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import write_whole
from rm_gallery.gallery.evaluation.protocol import Report, SampleScores, score_benchmark
from rm_gallery.gallery.evaluation.samples import sample_scores


def evaluate(
    reward: Annotated[str, typer.Argument(help="A registered reward, or bt:DIR for a trained model.")],
    data: Annotated[Path, typer.Argument(help="A parquet, jsonl, json or csv file, or a folder of them.")],
    format: Annotated[str | None, typer.Option(help="Benchmark format; found from the columns by default.")] = None,
    llm: Annotated[str | None, typer.Option(help="The judge's model name.")] = None,
    base_url: Annotated[str | None, typer.Option(help="The judge's endpoint; OPENAI_BASE_URL by default.")] = None,
    max_workers: Annotated[int, typer.Option(min=1, help="Judgements in flight at once.")] = 32,
    limit: Annotated[int | None, typer.Option(min=1, help="Score a seeded sample of this many rows.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the sample and the candidate order.")] = 0,
    param: Annotated[list[str] | None, typer.Option(help="k=v sets a field of the reward; may be repeated.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
    out: Annotated[Path | None, typer.Option(help="Run folder; the same command continues an unfinished run.")] = None,
    force_new: Annotated[bool, typer.Option(help="Set a run with another manifest aside.")] = False,
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
    source = format or detect_format(data)
    built = _build(reward, llm, base_url, seed, parse_params(param or []))
    config = {"path": str(data), "limit": limit, "seed": seed, "on_bad_row": on_bad_row}
    loader = create_loader(name=source, load_strategy_type="local", data_source=source, config=config)
    control = RunControl()
    options = RunOptions(
        max_workers=max_workers,
        deadline=deadline,
        progress=True,
        cache=cache,
        budget=make_budget(max_calls, max_tokens, max_cost, prices, getattr(built, "llm", None)),
        run_dir=str(out) if out is not None else None,
        manifest={"data": fingerprint(data) if out else None, "format": source, "limit": limit, "data_seed": seed},
        force_new=force_new,
        control=control,
        total=limit,
    )
    if estimate:
        found = probe(built, loader, options)
        return typer.echo(orjson.dumps(as_dict(found)).decode()) if json else show(found)
    started = time.monotonic()
    reasons: dict[str, tuple[int, str]] = {}
    scored = run_stream(built, loader.stream(), options, {})
    try:
        report = score_benchmark(source, _scores(built, scored, reasons))
    except KeyboardInterrupt:
        again = "the same command continues it" if out is not None else "with --out RUN it could be continued"
        sys.stderr.write(f"rm-gallery: interrupted; {again}.\n")
        raise typer.Exit(130) from None
    result = as_json(reward, data, report, control, time.monotonic() - started)
    if out is not None:
        write_whole(out / "report.json", orjson.dumps(result, option=orjson.OPT_INDENT_2) + b"\n")
    if json:
        typer.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())
    else:
        print_report(result)
    sys.exit(_conclude(report, reasons, control, max_failures))


def _build(name: str, llm: str | None, base_url: str | None, seed: int, params: dict[str, Any]) -> BaseReward:
    reward_class = RewardRegistry.get(name)
    fields = getattr(reward_class, "func", reward_class).model_fields
    if "llm" in params and (llm or base_url):
        raise ConfigError("--param llm=… names the judge already; leave out --llm and --base-url.")
    if "llm" in fields and "llm" not in params:
        params["llm"] = resolve_llm(llm or "", **({"base_url": base_url} if base_url else {}))
    elif llm or base_url:
        raise ConfigError(f"{name} calls no model; leave out --llm and --base-url.")
    if "seed" in fields:
        params.setdefault("seed", seed)
    return RewardRegistry.create(name, **params)


def _scores(
    reward: BaseReward, samples: Iterable[DataSample], reasons: dict[str, tuple[int, str]]
) -> Iterator[SampleScores]:
    for sample in samples:
        yield sample_scores(reward, sample)
        for issue in {
            i.reason: i for o in sample.output for i in o.answer.reward.issues if i.name == reward.name
        }.values():
            key = f"{issue.status}: {issue.reason}"
            count, message = reasons.get(key, (0, issue.message))
            reasons[key] = (count + 1, message)


def as_json(reward: str, data: Path, report: Report, control: RunControl, seconds: float) -> dict[str, Any]:
    """The result as the documented JSON object."""
    body = report.to_dict()
    keys = ("rule", "n", "n_scored", "n_unscored", "n_failed", "score", "ci95", "by_subset")
    head = {"reward": reward, "data": str(data)}
    return {**head, **{k: body[k] for k in keys}, "calls": control.calls, "seconds": round(seconds, 3)}


def _conclude(report: Report, reasons: dict[str, tuple[int, str]], control: RunControl, max_failures: int) -> int:
    for key, (count, message) in sorted(reasons.items(), key=lambda item: -item[1][0]):
        sys.stderr.write(f"{count} samples {key}: {message}\n")
    if unfit := report.extra.get("n_unfit_labels"):
        sys.stderr.write(
            f"{unfit} samples unscored: labels: no chosen and rejected answers that {report.rule} compares.\n"
        )
    if control.stopped:
        sys.stderr.write(f"rm-gallery: {control.stopped}\n")
    if report.n and not report.n_scored:
        sys.stderr.write("rm-gallery: no sample could be scored, so there is no score.\n")
        return 1
    return 1 if report.n_failed > max_failures else 0
