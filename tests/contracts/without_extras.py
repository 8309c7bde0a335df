"""What every registered reward says of its example, also with every optional package blocked:
`python -m tests.contracts.without_extras`.

A JSON object on stdout: by reward the scores of its outputs, or the words of the error or issue
that stands in their place.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from rm_gallery import ConfigError, RewardRegistry
from rm_gallery.core.reward.outputs import said_of
from tests.gallery import registry_cases

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("dev", "docs", "mutants")
"""Extras that no reward asks for: what the project is built and tested with."""


def _project() -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return project


def _packages(requirements: Sequence[str]) -> set[str]:
    return {
        re.split(r"[^\w-]", each, maxsplit=1)[0].lower().replace("_", "-") for each in requirements
    }


def optional_modules() -> set[str]:
    """The top-level modules of the packages that extras name and the library itself does not."""
    project = _project()
    extras: Mapping[str, list[str]] = project["optional-dependencies"]
    wanted = {
        name for extra, each in extras.items() if extra not in TOOLS for name in _packages(each)
    }
    optional = wanted - _packages(project["dependencies"])
    modules = {name.replace("-", "_") for name in optional}
    for module, packages in metadata.packages_distributions().items():
        if {package.lower().replace("_", "-") for package in packages} <= optional:
            modules.add(module)
    return modules


class Blocked(MetaPathFinder):
    """Finds none of these modules, whatever is installed."""

    def __init__(self, modules: set[str]) -> None:
        self.modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self.modules:
            raise ModuleNotFoundError(f"No module named {fullname!r} (blocked)", name=fullname)
        return None


def scores() -> dict[str, list[Any]]:
    """By reward and output its score, or what is said instead."""
    found: dict[str, list[Any]] = {}
    for name in RewardRegistry.list():
        try:
            reward = registry_cases.create(name)
            (sample, *_) = registry_cases.fitting(name)
            outcomes = [said_of(reward, output) for output in reward.evaluate(sample).output]
            found[name] = [one.reason if one.value is None else one.value for one in outcomes]
        except ConfigError as error:
            found[name] = [str(error)]
    return found


if __name__ == "__main__":
    blocked = optional_modules()
    assert not blocked & sys.modules.keys(), (
        f"imported before it was blocked: {blocked & sys.modules.keys()}"
    )
    sys.meta_path.insert(0, Blocked(blocked))
    sys.stdout.write(json.dumps(scores()))
