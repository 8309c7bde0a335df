"""The lines that start a trainer in examples/trainers: options that the package has, and rows that
fill a batch.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks_of, commands_of
from tests.support.children import ROOT
from tests.trainers.environments import run

RECIPES = ROOT / "examples" / "trainers"
KNOWN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "launch.json").read_text(encoding="utf-8")
)
"""By trainer: the options of its launcher that recipes use, where they were read, and which of them
says how many prompts a step takes.
"""
ALONE = ("trl", "turns")
"""Recipes that run here; tests/trainers/test_trainer_recipes.py runs them."""


def launched(trainer: str) -> dict[str, str]:
    """The options of a recipe's launch line with their values, empty where there is none."""
    page = (RECIPES / trainer / "README.md").read_text(encoding="utf-8")
    console = next(block for block in blocks_of(page) if block.language == "console")
    program = KNOWN[trainer]["program"]
    (words,) = [words for words in commands_of(console) if program in words]
    found: dict[str, str] = {}
    last = ""
    for word in words[words.index(program) + 1 :]:
        name, equals, value = word.partition("=")
        if equals or word.startswith("--"):
            found[name], last = value, name
        elif last:
            found[last], last = word, ""
    return found


def test_every_recipe_with_a_launch_line_is_known() -> None:
    folders = {path.parent.name for path in RECIPES.glob("*/README.md")}
    assert folders == {*KNOWN, *ALONE} and all(each["source"] for each in KNOWN.values())


@pytest.mark.parametrize("trainer", KNOWN)
def test_a_launch_line_has_options_of_the_trainer_and_a_full_batch(trainer: str) -> None:
    """verl and SkyRL leave out a batch that is not full: of four rows, all."""
    known, found = KNOWN[trainer], launched(trainer)
    assert set(found) == set(known["options"]), known["source"]
    rows = runpy.run_path(str(RECIPES / "data.py"))["rows_for"](trainer)
    if known["prompts"] is not None:
        assert 1 <= int(found[known["prompts"]]) <= len(rows)


@pytest.mark.trainers
@pytest.mark.parametrize(
    "trainer",
    [
        pytest.param(name, marks=pytest.mark.system(name))
        for name in ("verl", "openrlhf", "areal", "verifiers")
    ],
)
def test_the_trainers_own_package_has_the_options(trainer: str) -> None:
    program = [KNOWN[trainer]["program"]] if trainer == "verifiers" else []
    asked = {"trainer": trainer, "options": [*program, *KNOWN[trainer]["options"]]}
    assert run(trainer, "launch_options.py", asked) == []
