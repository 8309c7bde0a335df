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
    code, taken = "import rm_gallery", r"\|\s*(\d+) \| rm_gallery$"
    tries = [re.findall(taken, run(code, tmp_path, "-X", "importtime").stderr, re.MULTILINE) for _ in range(5)]
    assert min(int(found[0]) for found in tries) / 1e6 <= SECONDS


def test_it_is_silent_and_light(tmp_path: Path) -> None:
    """Also each name of the front door, which is imported when it is asked for."""
    names = ", ".join(rm_gallery.__all__)
    finished = run(f"import rm_gallery; {LOADED}; from rm_gallery import {names}; {LOADED}", tmp_path, "-W", "error")
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
