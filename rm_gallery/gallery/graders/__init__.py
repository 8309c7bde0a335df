"""Ready-made graders: a rubric file in `rubrics/FAMILY/` for each one a model judges, a module for each one that is a rule.

`from rm_gallery.gallery.graders import ToolSelectionGrader` works for each of them.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.graders.llm import grader_of_file

RUBRICS = Path(__file__).parent / "rubrics"


@cache
def graders() -> dict[str, type[BaseGrader]]:
    """Every ready-made grader by its registered name, sorted."""
    found: dict[str, type[BaseGrader]] = {}
    for path in sorted(RUBRICS.rglob("*.yaml")):
        found[path.stem] = grader_of_file(path, __name__)
    for module in pkgutil.iter_modules(__path__):
        for kind in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if (
                isinstance(kind, type)
                and issubclass(kind, BaseGrader)
                and kind.__module__ == f"{__name__}.{module.name}"
            ):
                if not kind.__name__.startswith("_"):
                    found[kind.registered_name()] = kind
    return dict(sorted(found.items()))


def __getattr__(name: str) -> Any:
    if name.endswith("Grader"):
        for kind in graders().values():
            if kind.__name__ == name:
                globals()[name] = kind
                return kind
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
