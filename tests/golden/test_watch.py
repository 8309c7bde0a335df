"""Pins what a look over a training run says: of made-up runs, of charts alone, and what is read of rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rm_gallery.core.utils.errors import RMGalleryError
from rm_gallery.train.phrases import spread_phrase
from rm_gallery.train.training_log import read_training_log
from rm_gallery.train.watch import watch
from tests.golden import golden
from tests.golden.test_train import decoded
from tests.train.runs import run


def looked_over(log: Any, **options: Any) -> dict[str, Any]:
    found = watch(log, **options)
    return {
        "findings": [
            [f.severity, f.kind, *f.components, f.text, [e["row"] for e in f.examples]] for f in found.findings
        ],
        "moved": {name: each and [each.early, each.late, *each.interval] for name, each in found.moved.items()},
        "by_length": {name: each and [each.correlation, *each.interval] for name, each in found.by_length.items()},
        "windows": [found.n_completions, found.n_groups, *found.steps, *found.early, *found.late],
        "notes": found.notes,
    }


def runs(of: dict[str, Any], turned: str = "", **options: Any) -> dict[str, Any]:
    """A made-up run; the component that is turned is a penalty: the same number below 0."""
    return looked_over(
        [{name: -value if name == turned else value for name, value in row.items()} for row in run(**of)], **options
    )


def charts(values: dict[str, Any], steps: int, **options: Any) -> dict[str, Any]:
    """Of each chart its first and last value, between which it goes straight, and how far it swings from step to step."""
    rows = [
        {"step": at, **{n: a + (b - a) * at / (steps - 1) + swing * (-1) ** at for n, (a, b, swing) in values.items()}}
        for at in range(steps)
    ]
    return looked_over(rows, **options)


def rows(rows: list[Any], **options: Any) -> dict[str, Any]:
    log = read_training_log(rows, **options)
    arrays = {"steps": log.steps, "lengths": log.lengths, "total": log.total}
    return {
        **{name: None if column is None else column.tolist() for name, column in arrays.items()},
        "components": {name: column.tolist() for name, column in log.components.items()},
        "about": [log.name, log.unit, log.has_steps, log.left_out],
        "prompts": log.prompts,
        "texts": log.texts,
        "charts": {name: [list(point) for point in points] for name, points in log.charts.items()},
    }


def phrases(early: list[str], late: list[str], times: int = 10, filling: Any = ("", 0)) -> Any:
    """The texts stand there over and over, so many times in all; "…" is the filling, so many times over."""
    word, many = filling
    texts = [[text.replace("…", word * many) for text in (side * times)[:times]] for side in (early, late)]
    is_late = np.repeat([False, True], times)
    found = spread_phrase([*texts[0], *texts[1]], ~is_late, is_late)
    return found and [*found[:3], found[3].astype(int).tolist()]


@pytest.mark.parametrize("path", golden.files("watch"))
def test_watch_golden(path: Path) -> None:
    looks: dict[str, Callable[..., Any]] = {"runs": runs, "charts": charts, "rows": rows, "phrases": phrases}
    look = looks[path.stem]

    def answer(line: golden.Line) -> golden.Line:
        try:
            found = look(**decoded(line))
        except RMGalleryError as error:
            return {"error": str(error)}
        return {"is": "none" if found is None else json.loads(json.dumps(golden._plain(found)))}

    golden.check(path, answer, ("is", "error"))
