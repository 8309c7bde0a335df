"""A report in an experiment tracker: its figures as metrics, what it is about as parameters, the
whole of it as an artifact.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rm_gallery.core.utils.errors import MissingExtra
from rm_gallery.gallery.benchmarks.figures import COUNTS, Figure, Report

_UNFIT = re.compile(r"[^\w\-. /]+")
"""What names of metrics may not hold in any of them."""


def metrics_of(report: Report, prefix: str = "") -> dict[str, float]:
    """The figures of a report by names such as `score`, `ci95_low`, `missing/judge` and
    `subset/Math/score`.

    What is not known is absent, and no 0: a chart has a gap there.
    """
    metrics = _figures(report)
    metrics |= {f"missing/{cause}": float(n) for cause, n in report.missing.items()}
    for name, part in report.by_subset.items():
        metrics |= {f"subset/{name}/{key}": value for key, value in _figures(part).items()}
    spent: Mapping[str, Any] = {
        "calls": report.calls,
        "cached": report.cached,
        "seconds": report.seconds,
        **report.usage,
    }
    metrics |= {
        f"spent/{name}": float(value)
        for name, value in spent.items()
        if isinstance(value, (int, float))
    }
    return {prefix + _UNFIT.sub("_", name): value for name, value in metrics.items()}


def _figures(figure: Figure) -> dict[str, float]:
    low, high = figure.ci95 or (None, None)
    worst, best = figure.bounds or (None, None)
    known = {
        "score": figure.score,
        "ci95_low": low,
        "ci95_high": high,
        "worst_case": worst,
        "best_case": best,
    }
    return {
        name: float(value)
        for name, value in {**known, **{n: getattr(figure, n) for n in COUNTS}}.items()
        if value is not None
    }


def _about(report: Report) -> dict[str, str]:
    names = ("reward", "judge", "benchmark", "version", "rule", "data", "stopped")
    return {name: str(value) for name in names if (value := getattr(report, name))}


def log_to_mlflow(report: Report, *, prefix: str = "", step: int | None = None) -> None:
    """Log a report to MLflow's active run, or to a new one: metrics, parameters and `report.json`.

    Args:
        report: what `evaluate` and its kin return.
        prefix: stands before every name, so that one run holds several reports.
        step: of the metrics, such as that of a checkpoint; parameters are logged without one.

    Raises:
        MissingExtra: mlflow is not installed.
    """
    try:
        import mlflow
    except ImportError:
        raise MissingExtra("mlflow", "trackers", "log_to_mlflow") from None
    mlflow.log_metrics(metrics_of(report, prefix), step=step)
    if step is None:  # a parameter has one value in a run
        mlflow.log_params({prefix + name: value for name, value in _about(report).items()})
    with tempfile.TemporaryDirectory() as folder:
        parts = [
            *_UNFIT.sub("_", prefix).split("/"),
            "report",
            *([] if step is None else [str(step)]),
        ]
        mlflow.log_artifact(
            str(report.save(Path(folder) / f"{'-'.join(filter(None, parts))}.json"))
        )


def log_to_wandb(
    report: Report, run: Any = None, *, prefix: str = "", step: int | None = None
) -> None:
    """Log a report to a run of Weights & Biases: metrics, a table of the subsets, and what it is
    about in the run's config.

    Args:
        report: what `evaluate` and its kin return.
        run: of `wandb.init`; None for the current one, or a new one.
        prefix: stands before every name.
        step: as in `run.log`.

    Raises:
        MissingExtra: wandb is not installed.
    """
    try:
        import wandb
    except ImportError:
        raise MissingExtra("wandb", "trackers", "log_to_wandb") from None
    run = run or wandb.run or wandb.init()
    table = wandb.Table(columns=["subset", "score", "low", "high", "n"])
    for name, part in [*report.by_subset.items(), ("all", report)]:
        table.add_data(name, part.score, *(part.ci95 or (None, None)), part.n)
    run.config.update(
        {prefix + name: value for name, value in _about(report).items()}, allow_val_change=True
    )
    run.log({**metrics_of(report, prefix), f"{prefix}figures": table}, step=step)
