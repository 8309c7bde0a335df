"""Imports that OpenJudge's documents show lead to the same classes here, or say what to use."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from rm_gallery.core.utils.compat import OPENJUDGE, PATHS
from tests.support.children import ROOT, run_python
from tests.support.choice import some

LINES = (Path(__file__).parent / "openjudge.txt").read_text(encoding="utf-8").splitlines()
"""The import lines of its documents and docstrings, with the package's name of their first edition."""
MIGRATION = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
CORE = "rm_gallery.core"


@pytest.mark.parametrize("line", LINES)
def test_an_import_of_its_documents_works_or_says_what_to_use(line: str) -> None:
    _, module, _, names = line.split(" ", 3)
    for name in names.split(", "):
        where = OPENJUDGE[name]
        if where.startswith("rm_gallery."):
            scope: dict[str, object] = {}
            exec(f"from {module} import {name}", scope)
            assert scope[name] is getattr(importlib.import_module(where), name)
        else:
            with pytest.raises(ImportError) as refused:
                exec(f"from {module} import {name}")
            assert str(refused.value) == f"{module} has no {name} here; use {where}."


@pytest.mark.parametrize("where", sorted(set(OPENJUDGE.values())))
def test_every_name_has_a_class_or_another_that_is_there_and_told(where: str) -> None:
    names = [name for name in OPENJUDGE if OPENJUDGE[name] == where]
    if where.startswith("rm_gallery."):
        home = importlib.import_module(where)
        assert all(isinstance(getattr(home, name), type) for name in names)
    else:
        assert [name for name in names if f"`{name}`" not in MIGRATION] == []
    for inside, module in re.findall(r"(\w+) of (rm_gallery[\w.]*\w)", where):
        assert hasattr(importlib.import_module(module), inside)


def test_a_path_hides_no_module_and_no_path_lacks_its_package() -> None:
    files = [ROOT / "rm_gallery" / "core" / path.replace(".", "/") for path in PATHS]
    assert [file for file in files if file.with_suffix(".py").exists()] == []
    assert [file for file in files if (file / "__init__.py").exists()] == []
    for path in PATHS:
        assert importlib.import_module(f"{CORE}.{path}".rpartition(".")[0])
        with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
            _ = importlib.import_module(f"{CORE}.{path}").Nothing


@pytest.mark.long("a process for each")
@pytest.mark.parametrize(
    "code",
    some(
        [
            "from rm_gallery.core.graders.agent.tool.tool_selection import ToolSelectionGrader",
            "import rm_gallery.core.graders.common.relevance as found; found.RelevanceGrader",
            "import rm_gallery.core.models.openai_chat_model; rm_gallery.core.models.openai_chat_model.OpenAIChatModel",
            "from rm_gallery.core.runner import GradingRunner, grading_runner",
            "import rm_gallery.core.graders.base; rm_gallery.core.graders.base.BaseGrader",
        ],
        2,
    ),
)
def test_it_is_the_first_import_of_a_program(code: str, tmp_path: Path) -> None:
    done = run_python("-W", "error", "-c", code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long("a process of its own")
def test_paths_import_nothing_until_a_name_is_asked_for(tmp_path: Path) -> None:
    code = (
        "import sys, rm_gallery.core.graders.agent as agent\n"
        "before = {name for name in sys.modules if name.startswith('rm_gallery.gallery')}\n"
        "assert not hasattr(agent, '__file__') and not before, before\n"
        "agent.ToolSelectionGrader\n"
        "assert 'rm_gallery.gallery.graders' in sys.modules\n"
    )
    done = run_python("-c", code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
