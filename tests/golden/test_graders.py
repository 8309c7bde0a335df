"""Rules as graders: what a row's fields come to, as the golden lines have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm_gallery.core.graders.bridge import RewardGrader
from rm_gallery.core.graders.registry import GraderRegistry
from rm_gallery.core.graders.result import GraderError, GraderScore
from rm_gallery.core.utils.errors import ConfigError
from tests.golden import golden


def answer(line: golden.Line) -> golden.Line:
    try:
        found = GraderRegistry.create(line["grader"], **line.get("params", {})).evaluate(line["fields"])
    except ConfigError as error:
        return {"refused": str(error)}
    if isinstance(found, GraderError):
        return {"status": found.status, "reason": found.error_type, "why": found.error}
    assert isinstance(found, GraderScore)
    return {"score": found.score, "why": found.reason or None, "metadata": found.metadata or None}


@pytest.mark.parametrize("path", golden.files("graders"))
def test_grader(path: Path) -> None:
    golden.check(path, answer, ("score", "status", "reason", "why", "metadata", "refused"))


def test_every_rule_that_is_no_reward_has_its_lines() -> None:
    """Rules among the rewards have their lines with the rewards; a few stand here for all, to see their names and doors."""
    kinds = {name: GraderRegistry.get(name) for name in GraderRegistry.list()}
    rules = {name for name, kind in kinds.items() if not kind.judged and not issubclass(kind, RewardGrader)}
    seen = {line["grader"] for path in golden.HERE.glob("graders/*.jsonl") for _, line in golden.lines(path)}
    assert rules - seen == set(), "a rule has no line in tests/golden/graders"
