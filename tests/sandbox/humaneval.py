"""A dozen problems in the form of HumanEval, written for this project, with solutions and faults."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rm_gallery.core.sandbox.code_tests import HumanEvalTests

PROBLEMS = Path(__file__).parents[1] / "golden" / "sandbox" / "problems.jsonl"


@dataclass(frozen=True)
class Problem:
    name: str
    solution: str
    tests: HumanEvalTests
    wrong: tuple[str, ...] = ()
    """Bodies that look right and are not, and such with one token changed."""
    right: tuple[str, ...] = ()
    """Bodies with one token changed that do the same."""


def own_problems() -> list[Problem]:
    """The problems; no file of public data is needed."""
    return [
        Problem(
            row["name"],
            row["solution"],
            HumanEvalTests(row["test"], row["entry_point"], row["prompt"]),
            (row["broken"], *row["faults"]),
            tuple(row["harmless"]),
        )
        for row in map(json.loads, PROBLEMS.read_text(encoding="utf-8").splitlines())
    ]
