"""CONTRIBUTING's recipes in a copy of the tree: the files they show are all that is needed, and the contract tests pass."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.children import ROOT, child_environment, run_python

_SHOWN = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COPIED = ("rm_gallery", "tests", "tools", "gallery", "pyproject.toml", "CONTRIBUTING.md", "README.md", "docs", "data")
# by recipe: the files it takes, and the contract tests that hold for what it adds
RECIPES = {
    "Add a reward": (
        2,
        "tests/gallery/test_registry_contract.py tests/gallery/test_cards.py",
        "question_back or stale",
    ),
    "Add a judged scenario": (
        1,
        "tests/gallery/test_registry_contract.py tests/gallery/test_cards.py tests/gallery/judged/test_judged_names.py",
        "debugging",
    ),
    "Add a benchmark": (2, "tests/benchmarks/test_kinds.py", ""),
    "Add a provider": (2, "tests/packaging/test_layers.py", ""),
    "Add a trainer adapter": (2, "tests/packaging/test_layers.py", ""),
    "Add a grader": (2, "tests/graders/test_judged.py", "courtesy or exactly_once or high_low"),
}


def files_of(recipe: str) -> dict[str, str]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {recipe}\n")[2].partition("\n## ")[0]
    return dict(_SHOWN.findall(section))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("tree")
    for name in COPIED:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, copy / name)
    return copy


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_all_that_is_needed(recipe: str, tree: Path) -> None:
    count, contracts, chosen = RECIPES[recipe]
    files = files_of(recipe)
    assert len(files) == count and not [path for path in files if (ROOT / path).exists()]
    for path, text in files.items():
        (tree / path).write_text(text, encoding="utf-8")
    environment = {**child_environment(), "PYTHONPATH": str(tree)}
    if recipe in ("Add a reward", "Add a judged scenario"):
        made = run_python("tools/cards.py", cwd=tree, env=environment)
        assert made.returncode == 0, made.stderr
    tests = [path for path in files if path.startswith("tests/")] + contracts.split()
    only = ["-k", chosen] if chosen else []
    options = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = run_python(*options, *tests, *only, cwd=tree, env=environment)
    assert done.returncode == 0, done.stdout[-3000:]


def test_every_recipe_with_files_is_tried() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0] for part in text.split("\n## ")[1:] if _SHOWN.search(part)}
    assert sections == set(RECIPES)
