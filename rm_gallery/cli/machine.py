"""This machine: `rm-gallery demo`, `doctor`, `cache` and `train`, none of which needs a key."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rm_gallery._version import __version__
from rm_gallery.cli import options as opt
from rm_gallery.core.utils.defaults import MAX_WORKERS
from rm_gallery.core.utils.errors import Inapplicable

if TYPE_CHECKING:
    from rm_gallery.core.model.storage import ReplyCache
    from rm_gallery.core.reward.reward import BaseReward

JUDGED = "safety_listwise_reward"


@opt.grouped()
def demo(
    llm: str | None = None,
    base_url: opt.BaseUrl = None,
    max_workers: opt.MaxWorkers = MAX_WORKERS,
) -> None:
    """Train the embedded model on the training split, score the test split with it and others,
    print one table.

    Args:
        llm: Also judge with this model.
    """
    from rm_gallery.core.reward.registry import RewardRegistry
    from rm_gallery.core.reward.resolve import resolve
    from rm_gallery.gallery.benchmarks.rewardbench2 import RewardBench2, split_folder
    from rm_gallery.report.tables import print_comparison
    from rm_gallery.study.benchmark import evaluate
    from rm_gallery.study.source import Source
    from rm_gallery.train.bradley_terry import train_bradley_terry

    _check_model(llm, base_url)
    folder, name = split_folder(), RewardBench2.name
    train = list(Source(folder / "train.parquet", name).open().rows())
    test = str(folder / "test.parquet")
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "bt"
        sys.stderr.write(f"training the embedded Bradley–Terry model on {len(train)} samples …\n")
        train_bradley_terry(train, out)
        create = RewardRegistry.create
        rewards: dict[str, BaseReward] = {
            "embedded Bradley–Terry": create(f"bt:{out}"),
            "length_baseline": create("length_baseline"),
            "length_baseline (shortest)": create("length_baseline", shortest=True),
            "length_penalty": create("length_penalty"),
        }
        if llm:
            rewards[JUDGED] = resolve(JUDGED, llm=llm, base_url=base_url)
        reports = {}
        for label, reward in rewards.items():
            sys.stderr.write(f"scoring the test split with {label} …\n")
            reports[label] = evaluate(
                reward, test, name, max_workers=max_workers, progress=None if llm else False
            )
    any_report, judge = reports["length_baseline"], "no judge"
    if llm:
        judge = f"judge {reports[JUDGED].judge} at {reports[JUDGED].endpoint}"
    notes = [
        f"benchmark: {name} ({any_report.version}) · data: {test} · n={any_report.n} · {judge}",
        "chance is 25 % on the best-of-4 subsets",
    ]
    print_comparison(reports, notes)


def _check_model(llm: str | None, base_url: str | None) -> None:
    """Raise where an endpoint is named and no model of it."""
    if base_url and not llm:
        raise Inapplicable("--base-url needs a model; name it with --llm MODEL.", "base_url")


EXTRAS = {
    "text": ("sacrebleu",),
    "zh": ("jieba",),
    "hub": ("datasets",),
    "toxicity": ("detoxify",),
    "serve": ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client"),
    "postgres": ("sqlalchemy", "psycopg"),
    "ray": ("ray",),
}


@opt.grouped()
def doctor(
    llm: str | None = None,
    base_url: opt.BaseUrl = None,
) -> None:
    """Show which sandboxes, keys, caches and optional packages are available, and what an endpoint
    can do.

    Args:
        llm: Ask this model how it can state a verdict, by a small call each.
    """
    from rm_gallery.core.model import storage
    from rm_gallery.core.sandbox.select import doctor as sandbox_checks

    _check_model(llm, base_url)
    typer.echo(
        f"rm-gallery {__version__}, Python {platform.python_version()}, {sys.platform}, "
        f"{os.cpu_count()} processors"
    )
    for check in sandbox_checks():
        _print_check(check.ok, f"{check.name}: {check.detail}")
    key = os.environ.get("OPENAI_API_KEY")
    _print_check(key, f"OPENAI_API_KEY is {'set' if key else 'not set'}")
    url = os.environ.get("OPENAI_BASE_URL") or os.environ.get("BASE_URL")
    _print_check(url, f"endpoint: {url or 'the default, https://api.openai.com/v1'}")
    cache = storage.shared()
    where = f"switched off ({storage.VARIABLE}=off)" if cache is None else cache.path
    _print_check(cache is not None and cache.writable, f"cache: {where}")
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        hint = f"pip install {' '.join(missing)}" if missing else "installed"
        _print_check(not missing, f"extra {extra}: {hint}")
    if llm:
        _channels(llm, base_url)


def _channels(name: str, base_url: str | None) -> None:
    """By which channels a judge can state its verdict; asked anew, whatever the cache holds."""
    from rm_gallery.core.engine import loop
    from rm_gallery.core.model.base import resolve_llm
    from rm_gallery.core.reward.asking import channels
    from rm_gallery.core.reward.channel import WORDS

    model = resolve_llm(name, cache=False, **({"base_url": base_url} if base_url else {}))
    for way, problem in loop.run(channels(model), "doctor", "channels(…)").items():
        why = f": {problem}" if problem else ""
        _print_check(not problem, f"{model.model} by {way} ({WORDS[way]}){why}")


def _print_check(ok: object, text: str) -> None:
    typer.echo(f"{'ok  ' if ok else '-   '} {text}")


def _cache() -> ReplyCache:
    from rm_gallery.core.model import storage

    cache = storage.shared()
    if cache is None:
        typer.echo(f"The cache is switched off ({storage.VARIABLE}=off).", err=True)
        raise typer.Exit(2)
    return cache


def stats() -> None:
    """Print where the cache is and what it holds."""
    held = _cache().stats()
    typer.echo(f"path       {held.path}")
    typer.echo(f"entries    {held.entries:,}")
    typer.echo(f"bytes      {held.bytes:,}")
    for name, moment in (("oldest", held.oldest), ("newest", held.newest)):
        shown = "-"
        if moment is not None:
            shown = f"{datetime.fromtimestamp(moment, timezone.utc):%Y-%m-%d %H:%M} UTC"
        typer.echo(f"{name:10} {shown}")


@opt.grouped()
def prune(
    max_bytes: opt.Count[int | None] = None,
    max_days: Annotated[float | None, typer.Option(min=0.0)] = None,
) -> None:
    """Remove old replies.

    Args:
        max_bytes: Keep at most this many bytes, the latest used.
        max_days: Remove replies older than this.
    """
    removed = _cache().prune(
        max_bytes=max_bytes, max_age=None if max_days is None else max_days * 86400
    )
    typer.echo(f"{removed} replies removed")


def clear() -> None:
    """Remove every reply."""
    typer.echo(f"{_cache().clear()} replies removed")


@opt.grouped()
def train_bt(
    data: Path,
    out: opt.Named[Path],
    benchmark: opt.Benchmark = None,
    seed: int = 0,
    test_share: Annotated[float, typer.Option(min=0.01, max=0.9)] = 0.2,
    json: opt.Json = False,
) -> None:
    """Fit a Bradley–Terry model and print its held-out accuracy beside both length baselines.

    Args:
        data: Preference data: a file or folder as for eval.
        out: Folder to write the model to; bt:DIR then names the reward.
        seed: Decides split and order.
        test_share: Share of prompts held out.
    """
    from rm_gallery.gallery.benchmarks.figures import hundredths, interval
    from rm_gallery.study.source import Source
    from rm_gallery.train.bradley_terry import train_bradley_terry

    samples = Source(str(data), benchmark).open().rows()
    report = train_bradley_terry(samples, out, seed=seed, test_share=test_share).to_dict()
    if json:
        opt.print_json(report)
        return
    for name, figure in report["held_out"].items():
        typer.echo(
            f"{name:12} {hundredths(figure['accuracy']):>6} %   [{interval(figure['ci95'])}]   "
            f"n={figure['n']}"
        )
    typer.echo(f"model written to {out}; use it as bt:{out}")
