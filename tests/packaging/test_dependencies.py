"""A plain installation is light, whatever the package imports is declared, and the version stands
in one place.
"""

from __future__ import annotations

import re
import sys
from configparser import ConfigParser
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

import pytest

import rm_gallery
from rm_gallery.core.utils.errors import MissingExtra
from tests.packaging.source import third_party
from tests.support.children import ROOT
from tests.support.command import command

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FORBIDDEN = frozenset(
    "torch transformers tensorflow jax datasets accelerate trl vllm ray "
    "fastapi uvicorn starlette flask django sanic tornado sqlalchemy psycopg redis".split()
)
IMPORTED_AS = {"scikit-learn": "sklearn", "pyyaml": "yaml", "antlr4-python3-runtime": "antlr4"}
NOT_IMPORTED = frozenset({"antlr4-python3-runtime", "httptools", "psycopg", "trl"})
"""Needed by what we import (math-verify reads LaTeX with antlr, SQLAlchemy speaks to PostgreSQL by
psycopg, uvicorn bounds heads by httptools), or what imports us.
"""


HOSTS = frozenset({"pytest"})
"""What loads a file of ours as its plugin, and is there when that file is imported."""
TRAINERS = frozenset({"areal", "nemo_rl", "openenv", "ray", "skyrl_gym", "verifiers", "verl"})
"""What calls an adapter of ours, and is there when the adapter makes one of its objects."""
PARTS = frozenset({"pydantic_core"})
"""Halves of a package that is declared."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return found


def name_of(requirement: str) -> str:
    return normal(re.split(r"[\s<>=!~;\[(]", requirement, maxsplit=1)[0])


def module_of(distribution: str) -> str:
    return IMPORTED_AS.get(distribution, distribution.replace("-", "_"))


def core() -> set[str]:
    return {name_of(requirement) for requirement in project()["dependencies"]}


def extras() -> dict[str, set[str]]:
    return {
        extra: {name_of(r) for r in listed}
        for extra, listed in project()["optional-dependencies"].items()
    }


def test_nothing_heavy_comes_along() -> None:
    """Follows the installed packages' own requirements, extras aside."""
    seen: set[str] = set()
    waiting = sorted(core())
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            needed = requires(name) or []
        except PackageNotFoundError:
            continue
        waiting += [name_of(requirement) for requirement in needed if "extra ==" not in requirement]
    assert len(seen) > len(core())
    assert seen & FORBIDDEN == set()


@pytest.mark.long("reads the whole source")
def test_whatever_is_imported_is_declared() -> None:
    declared = {
        module_of(name)
        for name in core().union(*(names for extra, names in extras().items() if extra != "dev"))
    } | (HOSTS | TRAINERS | PARTS)
    undeclared = {
        f"{top} ({found.file}:{found.line})" for top, found in third_party() if top not in declared
    }
    assert undeclared == set()


OF_AN_EXTRA = {"rm_gallery/serve/connection.py"}
"""Modules of classes that derive from an extra's, imported where that is needed."""


@pytest.mark.long("reads the whole source")
def test_what_is_imported_at_once_is_no_extra() -> None:
    always = {module_of(name) for name in core()} | HOSTS | PARTS
    optional = {
        f"{found.file}:{found.line} {top}"
        for top, found in third_party()
        if found.eager and top not in always and found.file not in OF_AN_EXTRA
    }
    assert optional == set()


def test_whatever_is_declared_is_imported() -> None:
    used = {top for top, _ in third_party()}
    plain = {
        extra: names
        for extra, names in {"": core(), **extras()}.items()
        if extra not in ("dev", "mutants", "docs")
    }
    idle = {
        name
        for names in plain.values()
        for name in names - NOT_IMPORTED
        if module_of(name) not in used
    }
    assert idle == set(), "a dependency or an extra is declared when its code comes"


def test_the_distribution_is_not_somebody_elses_and_no_message_installs_that_one() -> None:
    assert project()["name"] == "rm-gallery-rewards"
    assert project()["scripts"] == {"rm-gallery": "rm_gallery.cli.main:main"}
    texts = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("gallery/**/*.md"),
        *ROOT.glob("rm_gallery/**/*.py"),
    ]
    wrong = re.compile(r"pip install[^\n]*rm[-_]gallery")
    assert [str(path) for path in texts if wrong.search(path.read_text(encoding="utf-8"))] == []
    assert str(MissingExtra("sacrebleu", "text", "The reward 'bleu'")) == (
        "The reward 'bleu' needs the package 'sacrebleu' (of the extra 'text'). Install it with: "
        "pip install sacrebleu"
    )


def test_the_lowest_versions_that_are_tried_are_the_bounds() -> None:
    lines = (ROOT / "tests" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    tried: dict[str, list[str]] = {}
    for line in lines:
        if line and not line.startswith("#"):
            tried.setdefault(name_of(line), []).append(line)
    bounds = [
        re.split("[,;]", requirement)[0].replace(">=", "==")
        for requirement in project()["dependencies"]
    ]
    assert [pins[0].partition(" ;")[0] for pins in tried.values()] == bounds
    assert all(
        " ; python_version" in pin for pins in tried.values() if len(pins) > 1 for pin in pins
    )


def test_bounds_are_loose() -> None:
    for requirement in project()["dependencies"]:
        assert ">=" in requirement, "every dependency has a lower bound"
        if re.search(r"==|<", requirement.partition(";")[0]):
            assert name_of(requirement) == "antlr4-python3-runtime", (
                "its generated parsers fit some versions only"
            )


def test_the_version_is_written_down_in_one_place() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc|\.dev)\d+)?", rm_gallery.__version__)
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in pyproject and not re.search(
        r"^version\s*=", pyproject, re.MULTILINE
    )
    assert "version = attr: rm_gallery._version.__version__" in (ROOT / "setup.cfg").read_text(
        encoding="utf-8"
    )
    pattern = re.compile(r"^(__version__|VERSION)\s*=", re.MULTILINE)
    files = [
        file
        for file in (ROOT / "rm_gallery").rglob("*.py")
        if pattern.search(file.read_text(encoding="utf-8"))
    ]
    assert [file.name for file in files] == ["_version.py"]
    assert command("--version") == (0, f"rm-gallery {rm_gallery.__version__}\n", "")


def test_every_file_that_is_no_code_is_in_the_wheel() -> None:
    """Texts beside modules (pages of benchmarks, rubrics, templates) are read where it is installed."""
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = parser["options.package_data"].values()
    patterns = [pattern.strip() for line in lines for pattern in line.split(",")]
    files = [path for path in (ROOT / "rm_gallery").rglob("*") if path.is_file()]
    assert [
        path.relative_to(ROOT)
        for path in files
        if path.suffix not in (".py", ".pyc")
        and "_data" not in path.parts
        and not any(fnmatch(path.name, pattern) for pattern in patterns)
    ] == []
