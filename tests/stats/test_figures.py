"""Figures of every function of the statistics, and what each refuses: one line per case below
tests/golden/statistics.

Where a figure has a reference (scipy, statsmodels, scikit-learn, krippendorff, evalica,
enumeration, a published example), the tests beside this one hold the function against it; the lines
pin each branch, and those of our own intervals, whose coverage `benchmarks/statistics_coverage.py`
measures. Columns may be short: "~110-h*3" is 1, 1, 0, None, 0.5, three times over, "=ab*3" the
names a, b three times, "#80/4" the numbers 0 to 19, four times each.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rm_gallery import ConfigError
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.significance import ConfidenceSequence, SequentialTest
from rm_gallery.core.stats.uncertainty import Estimate
from tests.golden import golden

MARKS = {"1": 1.0, "0": 0.0, "h": 0.5, "-": None}


def given(value: Any) -> Any:
    """Arguments as Python has them."""
    if isinstance(value, str) and value.startswith("~"):
        marks, _, times = value[1:].partition("*")
        return [MARKS[mark] for mark in marks] * int(times or 1)
    if isinstance(value, str) and value.startswith("="):
        names, _, times = value[1:].partition("*")
        return list(names) * int(times or 1)
    if isinstance(value, str) and value.startswith("#"):
        n, _, each = value[1:].partition("/")
        return [place // int(each) for place in range(int(n))]
    if isinstance(value, dict):
        return {key: given(each) for key, each in value.items()}
    return [given(each) for each in value] if isinstance(value, list) else value


def told(value: Any) -> Any:
    """A result as JSON has it, to nine digits."""
    if isinstance(value, Estimate):
        names = ("estimate", "variance", "df", "n", "n_clusters", "effective_clusters")
        return {name: told(getattr(value, name)) for name in names}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            one.name: told(getattr(value, one.name))
            for one in fields(value)
            if one.repr and not one.name.startswith("_")
        }
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return (
            [told(each) for each in value] if isinstance(value, Interval) else told(value._asdict())
        )
    if isinstance(value, dict):
        return {str(key): told(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [told(each) for each in value]
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return float(f"{number:.9g}") if math.isfinite(number) else str(number)
    return value.item() if isinstance(value, np.generic) else value


def looked_at(values: list[float], null: float | None = None, **options: Any) -> Any:
    """Interval, or p-value against `null`, after each observation; and whether the interval leaves
    out the `null`.
    """
    if null is None:
        made = ConfidenceSequence(**options)
        found: list[Any] = []
        for value in values:
            made.add(value)
            found.append(made.interval)
        return [*found, made.mean, made.n]
    test = SequentialTest(null, **options)
    return [test.add(value) for value in values]


def answer(line: golden.Line) -> golden.Line:
    module, name = line["call"].split(".")
    call = (
        looked_at
        if name == "looked_at"
        else getattr(importlib.import_module(f"rm_gallery.core.stats.{module}"), name)
    )
    try:
        found = call(*given(line.get("args", [])), **given(line.get("with", {})))
        result = told(found)
        for ask, arguments in line.get("ask", {}).items() if found is not None else ():
            one = getattr(found, ask)
            result = {
                **result,
                ask: [told(one(argument)) for argument in arguments]
                if callable(one)
                else told(one),
            }
    except ConfigError as error:
        return {"error": str(error)}
    return {"result": "None" if result is None else result}


@pytest.mark.parametrize("path", golden.files("statistics"))
def test_figures(path: Path) -> None:
    golden.check(path, answer, ("result", "error"))
