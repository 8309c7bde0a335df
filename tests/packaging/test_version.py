"""The version is written down in one place."""

from __future__ import annotations

import re

from rm_gallery import __version__
from tests.support.children import ROOT
from tests.support.command import command


def test_the_version_is_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc|\.dev)\d+)?", __version__)


def test_the_build_reads_it_from_there() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in pyproject
    assert not re.search(r"^version\s*=", pyproject, re.MULTILINE)
    assert "version = attr: rm_gallery.__version__" in (ROOT / "setup.cfg").read_text(encoding="utf-8")


def test_no_other_module_assigns_a_version() -> None:
    pattern = re.compile(r"^(__version__|VERSION)\s*=", re.MULTILINE)
    files = [file for file in (ROOT / "rm_gallery").rglob("*.py") if pattern.search(file.read_text(encoding="utf-8"))]
    assert [file.name for file in files] == ["__init__.py"]


def test_the_command_tells_it() -> None:
    done = command("--version")
    assert (done.code, done.out, done.err) == (0, f"rm-gallery {__version__}\n", "")
