"""One meaning for a name, and no circle of imports, type-only and lazy ones included."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import TopologicalSorter

import pytest

from tests.packaging.source import module_name, sources


@pytest.mark.long("reads the whole source")
def test_a_class_name_means_one_thing() -> None:
    found = defaultdict(list)
    for file, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{file}:{node.lineno}")
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


HOOKS = {"_evaluate", "_grade", "_repr_html_"}
"""Private names that a protocol fixes: of rewards, of graders, of notebooks."""


@pytest.mark.long("reads the whole source")
def test_a_private_helper_is_called_after_what_it_does() -> None:
    """One name in many modules, such as `_read` or `_check`, says nothing in any of them."""
    places = defaultdict(set)
    for file, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name.startswith("_") and not node.name.startswith("__"):
                    places[node.name].add(file)
    common = {name for name, files in places.items() if len(files) > 4}
    assert common - HOOKS == set()


@pytest.mark.long("reads the whole source")
def test_no_files_import_each_other_in_a_circle() -> None:
    """Neither when they are imported, nor later inside a function, nor for type checkers alone."""
    wanted = {module_name(file): set[str]() for file in sources()}
    for file, tree in sources().items():
        here = module_name(file)
        for node in ast.walk(tree):
            named: list[str] = []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                named = [module, *(f"{module}.{alias.name}" for alias in node.names)]
            wanted[here] |= {module for module in named if module in wanted and module != here}
    # raises CycleError, which names the circle
    order = list(TopologicalSorter(wanted).static_order())
    assert len(order) == len(wanted)
