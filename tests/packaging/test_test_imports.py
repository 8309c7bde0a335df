"""A test imports no package that the `dev` extra does not bring, unless it is skipped where the
package is absent.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from tests.packaging.source import imports_of
from tests.packaging.test_dependencies import core, extras, module_of
from tests.support.children import ROOT

GUARDS = ("importorskip(", "require_torch(", "NEEDS_TRL")
"""What skips a test; `require_torch` and `NEEDS_TRL` are of the module in ELSEWHERE."""
ELSEWHERE = ("tests/support/checkpoints.py", "tests/trainers/programs/")
"""What only skipped tests ask for, and what the Python of a trainer's own environment runs."""
OURS = frozenset(
    {"rm_gallery", "tests", "tools", "examples", "benchmarks", "data", "opentelemetry"}
)
"""Folders of the checkout, and the package of a distribution (`opentelemetry-sdk`) that is named
otherwise.
"""
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def unguarded(file: str, source: str, conftest: str = "") -> Iterator[str]:
    """Imports of packages that may be absent, in a function, class or file that nothing skips."""
    tree = ast.parse(source)
    brought = (
        {module_of(name) for name in core() | extras()["dev"]} | sys.stdlib_module_names | OURS
    )
    for each in imports_of(file, tree):
        if each.module.partition(".")[0] not in brought:
            before = [
                ast.unparse(node) for node in _run_before(tree, ast.parse(conftest), each.line)
            ]
            if not any(guard in text for text in before for guard in GUARDS):
                yield f"{file}:{each.line} {each.module}"


def _run_before(tree: ast.Module, conftest: ast.Module, line: int) -> Iterator[ast.AST]:
    """What runs before a line: statements above it in its blocks, marks, fixtures that are asked
    for or used anyway.
    """
    fixtures = {
        each.name: each
        for each in (*conftest.body, *tree.body)
        if isinstance(each, Function) and _is_fixture(each)
    }
    around = [node for node in ast.walk(tree) if isinstance(node, (*Function, ast.ClassDef))]
    around = [node for node in around if node.lineno <= line <= (node.end_lineno or 0)]
    for block in (tree, *around):
        yield from (
            node
            for node in block.body
            if node.lineno < line and isinstance(node, (ast.Assign, ast.Expr))
        )
        yield from (
            node for node in block.body if _is_fixture(node) and "autouse=True" in ast.unparse(node)
        )
    for node in around:
        yield from node.decorator_list
        if not isinstance(node, ast.ClassDef):
            yield from (fixtures[each.arg] for each in node.args.args if each.arg in fixtures)


def _is_fixture(node: ast.AST) -> bool:
    return isinstance(node, Function) and any(
        "fixture" in ast.unparse(each) for each in node.decorator_list
    )


@pytest.mark.long("reads the whole source")
def test_tests_import_nothing_that_dev_does_not_bring_without_skipping() -> None:
    wrong: list[str] = []
    files = sorted((ROOT / "tests").rglob("*.py"))
    for path in files:
        file, conftest = path.relative_to(ROOT).as_posix(), path.parent / "conftest.py"
        if not file.startswith(ELSEWHERE):
            fixtures = conftest.read_text(encoding="utf-8") if conftest.exists() else ""
            wrong += unguarded(file, path.read_text(encoding="utf-8"), fixtures)
    assert wrong == [] and len(files) > 100


SKIPPED = [
    "def test():\n    pytest.importorskip('torch')\n    import torch",
    "pytestmark = [NEEDS_TRL]\ndef test():\n    from trl import x",
    "@NEEDS_TRL\ndef test():\n    import trl",
    "class Test:\n    @pytest.fixture(autouse=True)\n    def _torch(self):\n        "
    "require_torch()\n    def test(self):\n        import torch",
    "@pytest.fixture\ndef it():\n    pytest.importorskip('ray')\ndef test(it):\n    import ray",
    "import numpy, statsmodels, json",
]
NOT_SKIPPED = [
    "import torch",
    "def test():\n    import torch\n    pytest.importorskip('torch')",
    "def one():\n    pytest.importorskip('torch')\ndef test():\n    from torch import nn",
    "@pytest.mark.system('torch')\ndef test():\n    import torch",
]


@pytest.mark.parametrize(
    ("source", "wrong"), [*((each, 0) for each in SKIPPED), *((each, 1) for each in NOT_SKIPPED)]
)
def test_only_what_runs_before_an_import_skips_it(source: str, wrong: int) -> None:
    assert len(list(unguarded("tests/test_it.py", source))) == wrong
