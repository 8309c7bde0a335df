"""The package's source as the tests of this folder read it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import rm_gallery
from tests.support.children import ROOT

PACKAGE = ROOT / "rm_gallery"


@dataclass(frozen=True)
class Import:
    """One imported module, absolute, and whether importing the file imports it."""

    file: str
    line: int
    module: str
    eager: bool


@lru_cache(maxsize=1)
def sources() -> dict[str, ast.Module]:
    """Every module of the package, parsed, by its path from the checkout's root."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {
        file.relative_to(ROOT).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
        for file in files
    }


def module_name(file: str) -> str:
    """Dotted name of a module's file."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@lru_cache(maxsize=1)
def imports() -> tuple[Import, ...]:
    """Every import of the package; those for type checkers only are left out."""
    return tuple(found for file, tree in sources().items() for found in imports_of(file, tree))


def imports_of(file: str, tree: ast.Module) -> Iterator[Import]:
    """The imports of one file, and the modules of ours that a text in it names, such as
    `import_module` is given.
    """
    yield from _imports(file, tree.body, eager=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = re.fullmatch(r"(rm_gallery(?:\.\w+)+)(?::\w+)?", node.value)
            if named and _is_module(ROOT / named[1].replace(".", "/")):
                yield Import(file, node.lineno, named[1], False)


def third_party() -> Iterator[tuple[str, Import]]:
    """(top-level package, import) of what is neither the standard library's nor ours."""
    for found in imports():
        top = found.module.partition(".")[0]
        if top != "rm_gallery" and top not in sys.stdlib_module_names:
            yield top, found


def _imports(file: str, body: list[ast.stmt], *, eager: bool) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name, eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _imports_from(file, node, eager)
        elif (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            yield from _imports(file, node.orelse, eager=eager)
        else:
            inside = eager and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for part in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                for name in ("body", "orelse", "finalbody"):
                    yield from _imports(file, getattr(part, name, []), eager=inside)


def _imports_from(file: str, node: ast.ImportFrom, eager: bool) -> Iterator[Import]:
    module = node.module or ""
    if node.level:
        parts = module_name(file).split(".")
        cut = node.level - 1 if file.endswith("__init__.py") else node.level
        module = ".".join([*parts[: len(parts) - cut], *filter(None, [module])])
    for alias in node.names:
        inner = f"{module}.{alias.name}"
        if module == "rm_gallery" and alias.name in rm_gallery._WHERE:
            inner = f"rm_gallery.{rm_gallery._WHERE[alias.name]}"  # what the front door hands on
        is_module = _is_module(ROOT / inner.replace(".", "/"))
        yield Import(file, node.lineno, inner if is_module else module, eager)


def _is_module(path: Path) -> bool:
    return path.with_suffix(".py").is_file() or path.is_dir()
