"""Aggregators: one result out of a row's results, as the golden lines have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.graders.result import GraderError, GraderRank, GraderResult, GraderScore
from rm_gallery.core.runner import aggregator as aggregators
from rm_gallery.core.utils.errors import ConfigError
from tests.golden import golden

KINDS: dict[str, type[GraderResult]] = {"score": GraderScore, "rank": GraderRank, "error": GraderError}


def result(given: dict[str, Any]) -> GraderResult:
    return next(kind for key, kind in KINDS.items() if key in given)(**given)


def built(name: str, params: dict[str, Any]) -> aggregators.BaseAggregator:
    inner = params.get("secondary")
    if inner is not None:
        params = {**params, "secondary": built(inner["aggregator"], inner.get("params", {}))}
    made: aggregators.BaseAggregator = getattr(aggregators, name)(**params)
    return made


def answer(line: golden.Line) -> golden.Line:
    try:
        made = built(line["aggregator"], line.get("params", {}))
        made.check(list(line["results"]))
        found = made({name: result(given) for name, given in line["results"].items()})
    except ConfigError as error:
        return {"refused": str(error)}
    said = {"name": found.name, "reason": found.reason, "metadata": found.metadata}
    if isinstance(found, GraderError):
        return {**said, "status": found.status, "error_type": found.error_type}
    assert isinstance(found, GraderScore)
    return {**said, "score": found.score, "range": found.range, "higher_is_better": found.higher_is_better}


EXPECTED = ("name", "reason", "metadata", "status", "error_type", "score", "range", "higher_is_better", "refused")


@pytest.mark.parametrize("path", golden.files("aggregators"))
def test_aggregator(path: Path) -> None:
    golden.check(path, answer, EXPECTED)


def test_every_aggregator_has_its_lines() -> None:
    kinds = {name for name, kind in vars(aggregators).items() if isinstance(kind, type) and name.endswith("Aggregator")}
    seen = {line["aggregator"] for path in golden.HERE.glob("aggregators/*.jsonl") for _, line in golden.lines(path)}
    assert kinds - seen == {"BaseAggregator", "CallableAggregator"}, (
        "an aggregator has no line in tests/golden/aggregators"
    )
