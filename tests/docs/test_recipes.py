"""CONTRIBUTING's recipes in a copy of the tree: the files they show are all that is needed, and the
contract tests pass.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.children import ROOT, child_environment, run_python

_SHOWN = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COPIED = (
    "rm_gallery",
    "tests",
    "tools",
    "gallery",
    "pyproject.toml",
    "CONTRIBUTING.md",
    "README.md",
    "docs",
    "data",
)
# by recipe: how many files it shows, and the contract tests that hold for what it adds, with words
# that choose among them
RECIPES: dict[str, tuple[int, str, str]] = {
    "Add a rule": (
        2,
        "gallery/test_registry_contract.py gallery/test_cards.py golden/test_rules.py",
        "question_back",
    ),
    "Add a judged scenario": (1, "gallery/judged/test_judged_names.py", "debugging"),
    "Add a benchmark": (3, "benchmarks/test_kinds.py", "test_kinds"),
    "Add a provider": (2, "packaging/test_layers.py", "test_imports_point_downwards"),
    "Add a trainer adapter": (2, "packaging/test_layers.py", "test_imports_point_downwards"),
    "Add a grader": (2, "graders/test_judged.py", "courtesy exactly_once high_low"),
}


def files_of(recipe: str) -> dict[str, str]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {recipe}\n")[2].partition("\n## ")[0]
    return dict(_SHOWN.findall(section))


@pytest.mark.long("recipes")
def test_the_recipes_are_all_that_is_needed(tmp_path: Path) -> None:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    tests, words = set(), set()
    for recipe, (count, contracts, chosen) in RECIPES.items():
        files = files_of(recipe)
        assert len(files) == count and not [path for path in files if (ROOT / path).exists()], (
            recipe
        )
        for path, text in files.items():
            (tmp_path / path).write_text(text, encoding="utf-8")
        own = {path for path in files if path.startswith("tests/") and path.endswith(".py")}
        tests |= own | {f"tests/{path}" for path in contracts.split()}
        words |= {Path(path).stem for path in own} | set(chosen.split())
    environment = {**child_environment(), "PYTHONPATH": str(tmp_path)}
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--assert=plain",
        "-k",
        " or ".join(sorted(words)),
    ]
    done = run_python(
        "-m", "pytest", *options, *sorted(tests), cwd=tmp_path, env=environment, timeout=280
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_every_recipe_with_files_is_tried() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0] for part in text.split("\n## ")[1:] if _SHOWN.search(part)}
    assert sections == set(RECIPES)
