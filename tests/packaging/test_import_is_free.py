"""Importing is quick, silent, writes nothing and loads nothing heavy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rm_gallery
from tests.packaging.source import module_name, sources
from tests.support.children import Finished, run_python

SECONDS = 0.15
HEAVY = "pandas sklearn sympy openai aiohttp torch transformers scipy matplotlib pyarrow math_verify datasets".split()
LOADED = f"import sys; loaded = [name for name in {HEAVY!r} if name in sys.modules]; assert not loaded, loaded"


def run(code: str, tmp_path: Path, *options: str) -> Finished:
    """Run code in an empty folder with an empty home; nothing may have been written to either."""
    work, home = tmp_path / "work", tmp_path / "home"
    for folder in (work, home):
        folder.mkdir(exist_ok=True)
    finished = run_python(*options, "-c", code, cwd=work, env={"HOME": str(home), "XDG_CACHE_HOME": str(home / "c")})
    assert [*work.iterdir(), *home.iterdir()] == []
    return finished


@pytest.mark.alone
def test_it_is_quick(tmp_path: Path) -> None:
    best = min(
        int(
            re.findall(
                r"\|\s*(\d+) \| rm_gallery$", run("import rm_gallery", tmp_path, "-X", "importtime").stderr, re.M
            )[0]
        )
        for _ in range(5)
    )
    assert best / 1e6 <= SECONDS


@pytest.mark.parametrize("name", ["", *rm_gallery.__all__])
def test_it_is_silent_and_light(name: str, tmp_path: Path) -> None:
    """Also each name of the front door, which is imported when it is asked for."""
    code = f"import rm_gallery; rm_gallery.{name}; {LOADED}" if name else f"import rm_gallery; {LOADED}"
    finished = run(code, tmp_path, "-W", "error")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_every_module_imports_silently_and_light(tmp_path: Path) -> None:
    inside = "rm_gallery/core/sandbox/inside/"
    names = [module_name(file) for file in sources() if not file.startswith(inside) and "__main__" not in file]
    assert len(names) > 50
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)\n{LOADED}"
    finished = run(code, tmp_path, "-W", "error")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_importing_starts_no_thread_and_touches_no_logging(tmp_path: Path) -> None:
    code = (
        "import logging, threading, signal, warnings\n"
        "before = (logging.root.handlers[:], logging.root.level, warnings.filters[:], signal.getsignal(signal.SIGINT))\n"
        "import rm_gallery.core.reward.run, rm_gallery.core.models, rm_gallery.cli.main\n"
        "after = (logging.root.handlers[:], logging.root.level, warnings.filters[:], signal.getsignal(signal.SIGINT))\n"
        "assert before == after, (before, after)\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
    )
    finished = run(code, tmp_path)
    assert (finished.returncode, finished.stderr) == (0, "")
