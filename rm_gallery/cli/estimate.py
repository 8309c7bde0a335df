"""`rm-gallery eval --estimate`: what a run would need, from ten of its samples."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import typer

from rm_gallery.core.data.load.base import DataLoader, create_loader
from rm_gallery.core.engine.calls.estimate import Estimate, Interval
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import RunOptions, run_list
from rm_gallery.core.utils.errors import DataError

PROBE = 10


def probe(reward: BaseReward, loader: DataLoader, options: RunOptions) -> Estimate:
    """Judge a seeded sample of ten and extrapolate to the rest; the probe's replies stay in the cache for the run."""
    n = _count(loader)
    limited = create_loader(
        name=loader.name,
        load_strategy_type="local",
        data_source=loader.data_source,
        config={**loader.config, "limit": min(PROBE, n)},
    )
    usages, seconds = [], []
    for sample in limited.stream():
        control = RunControl()
        began = time.perf_counter()
        run_list(
            reward, [sample], replace(options, control=control, run_dir=None, progress=False, cache=options.cache), {}
        )
        seconds.append(time.perf_counter() - began)
        usages.append(control.usage)
    return Estimate.from_probe(usages, seconds, n, concurrency=options.max_workers)


def _count(loader: DataLoader) -> int:
    counts = [source.count() for source in loader.sources()]
    if any(count is None for count in counts):
        raise DataError("--estimate needs data whose rows can be counted.")
    total = sum(count for count in counts if count is not None)
    return min(total, loader.options.limit or total)


FIGURES = ("calls", "input_tokens", "output_tokens", "cost", "seconds")


def show(result: Estimate) -> None:
    """Print the estimate with its intervals."""
    typer.echo(f"for the remaining {result.samples} samples (95 % interval):")
    for name in FIGURES:
        typer.echo(f"  {name.replace('_', ' '):14} {_line(getattr(result, name))}")


def as_dict(result: Estimate) -> dict[str, Any]:
    """The estimate with JSON types only."""
    parts: dict[str, Interval | None] = {name: getattr(result, name) for name in FIGURES}
    return {"samples": result.samples, **{name: None if p is None else vars(p) for name, p in parts.items()}}


def _line(value: Interval | None) -> str:
    if value is None:
        return "unknown: give --prices"
    digits = 4 if value.mean < 10 else 0
    return f"{value.mean:,.{digits}f}  [{value.low:,.{digits}f} – {value.high:,.{digits}f}]"
