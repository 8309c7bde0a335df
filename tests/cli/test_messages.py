"""What messages advise exists: every `--name` in a text of the package is an option of a command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import rm_gallery
from rm_gallery.cli.main import app

PACKAGE = Path(rm_gallery.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-]*[=*])")
OTHERS = {
    "core/sandbox": "of bubblewrap and of programs in the sandbox",
    "integrations/slime.py": "of slime",
    "serve/trainers.py": "of trainers",
    "report/pdf.py": "of the browser that prints",
    "report/pytest_plugin.py": "of pytest",
    "cli/settings.py": "names of earlier versions beside what they are called now",
}
"""Where options of other programs are written."""
FOREIGN = {
    "--to",
    "--output-dir",
    "--help",
    "--version",
    "--git",
    "--prompt-file",
    "--single",
    "--max",
}
"""Of Inspect's converter, git, agents and JudgeBench, which texts quote; what every program has; and
the beginning of a name that a text makes."""
TWICE = re.compile(r"--([a-z-]+) or ([a-z_]+)=")
"""An option beside the keyword that says the same."""


def options() -> set[str]:
    """Every option that some command takes."""

    def walk(here: Any) -> Iterator[str]:
        for parameter in here.params:
            yield from (*parameter.opts, *parameter.secondary_opts)
        for inner in getattr(here, "commands", {}).values():
            yield from walk(inner)

    return {name for name in walk(typer.main.get_command(app)) if name.startswith("--")}


KNOWN = options() | FOREIGN


def texts(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.long("reads the whole source")
@pytest.mark.parametrize("part", sorted(path.name for path in PACKAGE.iterdir() if path.is_dir()))
def test_every_option_that_a_text_names_is_one_of_a_command(part: str) -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in sorted((PACKAGE / part).rglob("*.py"))
        if not str(path.relative_to(PACKAGE)).startswith(tuple(OTHERS))
        for line, text in texts(path)
        for name in OPTION.findall(text)
        if " " in text and name not in KNOWN
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.long("reads the whole source")
def test_an_option_beside_its_keyword_has_its_name() -> None:
    pairs = [
        pair
        for path in PACKAGE.rglob("*.py")
        for _, text in texts(path)
        for pair in TWICE.findall(text)
    ]
    assert pairs and all(option.replace("-", "_") == keyword for option, keyword in pairs), pairs
