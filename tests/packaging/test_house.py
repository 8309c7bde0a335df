"""One meaning for a class name, and no circle of imports."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import TopologicalSorter

from tests.packaging.source import imports, module_name, sources


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
    # raises CycleError, which names the circle
    order = list(TopologicalSorter(wanted).static_order())
    assert len(order) == len(wanted)
