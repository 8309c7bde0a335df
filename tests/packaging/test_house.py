"""The house stays one that a person can hold in mind: few rooms, none too large, one meaning for a name, no circle."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import TopologicalSorter

from tests.packaging.source import imports, module_name, sources
from tests.support.children import ROOT

MODULES, LINES = 270, 500


def test_there_are_few_modules_and_none_is_too_large_for_one_look() -> None:
    lines = {file: len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in sources()}
    assert len(lines) <= MODULES
    assert {file: n for file, n in lines.items() if n > LINES} == {}


def test_a_class_name_means_one_thing() -> None:
    found = defaultdict(list)
    for file, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{file}:{node.lineno}")
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_no_files_import_each_other_in_a_circle() -> None:
    wanted = {module_name(file): set[str]() for file in sources()}
    for each in imports():
        here = module_name(each.file)
        if each.eager and each.module in wanted and each.module != here:
            wanted[here].add(each.module)
    order = list(TopologicalSorter(wanted).static_order())  # raises CycleError, which names the circle
    assert len(order) == len(wanted)
