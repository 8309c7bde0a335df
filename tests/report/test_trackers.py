"""Reports in experiment trackers; the packages' own functions are stood in for, with the arguments
that theirs take.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery import FakeLLM, Report, evaluate
from rm_gallery.core.utils.errors import MissingExtra
from rm_gallery.report.trackers import log_to_mlflow, log_to_wandb, metrics_of


@pytest.fixture
def report() -> Report:
    rows = [
        {"prompt": f"q{k}", "chosen": "ab" * k, "rejected": "abc", "subset": f"a: {k % 2}"}
        for k in range(20)
    ]
    return evaluate("length_baseline", rows, progress=False)


def test_metrics_are_what_is_known(report: Report) -> None:
    found = metrics_of(report, "dev/")
    assert (
        found["dev/score"] == report.score
        and found["dev/n_scored"] == 20
        and "dev/spent/cost" not in found
    )
    assert (
        report.ci95 is not None and (found["dev/ci95_low"], found["dev/ci95_high"]) == report.ci95
    )
    assert found["dev/subset/a_ 1/score"] == report.by_subset["a: 1"].score
    rows = [{"prompt": "q", "chosen": "a", "rejected": "b"}]
    lost = metrics_of(
        evaluate("safety_listwise_reward", rows, llm=FakeLLM(reply="no"), progress=False)
    )
    assert (
        "score" not in lost
        and lost["missing/judge"] == 1
        and (lost["worst_case"], lost["best_case"]) == (0, 1)
    )


def test_mlflow(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    kept: dict[str, Any] = {}
    module = SimpleNamespace(
        log_metrics=lambda metrics, step=None: said.append((metrics, step)),
        log_params=lambda params: said.append(params),
        log_artifact=lambda path: kept.update(
            {Path(path).name: json.loads(Path(path).read_text())}
        ),
    )
    monkeypatch.setitem(sys.modules, "mlflow", module)
    log_to_mlflow(report)
    log_to_mlflow(report, prefix="dev/", step=7)
    assert (
        said[0] == (metrics_of(report), None)
        and said[1]["reward"] == "length_baseline"
        and "judge" not in said[1]
    )
    assert said[2:] == [(metrics_of(report, "dev/"), 7)]
    assert (
        kept.keys() == {"report.json", "dev-report-7.json"}
        and kept["report.json"]["score"] == report.score
    )
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtra, match="pip install mlflow"):
        log_to_mlflow(report)


def test_wandb(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    tables: list[list[Any]] = []

    class Rows:
        def __init__(self, columns: list[str]) -> None:
            tables.append([columns])

        def add_data(self, *cells: Any) -> None:
            assert len(cells) == len(tables[-1][0])
            tables[-1].append(cells)

    config = SimpleNamespace(
        update=lambda values, allow_val_change: said.append((values, allow_val_change))
    )
    run = SimpleNamespace(config=config, log=lambda values, step=None: said.append((values, step)))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Table=Rows, run=run, init=None))
    log_to_wandb(report, step=3)
    assert said[0][0]["benchmark"] == "preferences" and said[0][1] is True
    assert said[1][1] == 3 and metrics_of(report).items() <= said[1][0].items()
    assert [row[0] for row in tables[0][1:]] == ["a: 0", "a: 1", "all"]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match="pip install wandb"):
        log_to_wandb(report)
