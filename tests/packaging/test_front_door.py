"""What `from rm_gallery import …` offers, that types help at it, and that importing is quick,
silent, writes nothing and loads nothing heavy.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import rm_gallery
from rm_gallery import MessageRole
from rm_gallery.core.model.message import RoleName
from tests.packaging.source import module_name, sources
from tests.support.children import ROOT, Finished, run_python
from tests.support.choice import some

WANTED = (
    "BaseLLMReward BaseListWiseReward BasePairWiseReward BasePointWiseReward BaseStepWiseReward "
    "Budget ChatMessage DataOutput DataSample FakeLLM OpenaiLLM RewardDimensionWithRank "
    "RewardDimensionWithScore RewardRegistry RewardResult RunOptions Step create_loader evaluate"
).split()
TYPED: dict[str, str] = json.loads(
    (Path(__file__).parent / "typed.json").read_text(encoding="utf-8")
)
"""What is said of a line of somebody's code, empty where there is nothing to say."""


def test_the_front_door_is_complete_and_shows_nothing_else() -> None:
    assert set(WANTED) <= set(rm_gallery.__all__) == set(dir(rm_gallery))
    assert rm_gallery.__all__ == sorted(rm_gallery.__all__)
    assert all(getattr(rm_gallery, name) is not None for name in rm_gallery.__all__)
    assert set(get_args(RoleName)) == {role.value for role in MessageRole}
    with pytest.raises(AttributeError, match="'rm_gallery' has no attribute 'Nothing'"):
        _ = rm_gallery.Nothing


@pytest.mark.long("a process of its own")
def test_types_complete_and_check(tmp_path: Path) -> None:
    head = (
        "from typing import reveal_type\n"
        "from rm_gallery import DataSample, FakeLLM, MessageRole, OpenaiLLM, RewardRegistry, "
        "RunOptions, Step\nfrom rm_gallery.gallery.rm.math import MathVerifyReward\n"
        "from rm_gallery.gallery.rm.group import GroupWinRateReward\n"
    )
    (tmp_path / "user.py").write_text(head + "\n".join(TYPED) + "\n", encoding="utf-8")
    # the project's own settings, strict too, so that what `make check` read of the package is not
    # read again
    options = [
        "--no-error-summary",
        "--hide-error-context",
        "--no-pretty",
        str(tmp_path / "user.py"),
    ]
    command = [sys.executable, "-m", "mypy", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    found: dict[int, str] = {}
    for line in done.stdout.splitlines():
        if "user.py:" in line:
            place, message = line.split("user.py:")[1].split(":", 1)
            found[int(place)] = found.get(int(place), "") + message
    for number, (code, part) in enumerate(TYPED.items(), start=head.count("\n") + 1):
        assert part in found.get(number, ""), (code, done.stdout)
        assert bool(part) == bool(found.get(number)), (code, done.stdout)


@pytest.mark.parametrize(
    "arguments", some([["--version"], ["show", "accuracy"], ["--help"], ["doctor"]], 1)
)
def test_python_m_works_without_a_terminal(arguments: list[str], tmp_path: Path) -> None:
    done = run_python("-W", "error", "-m", "rm_gallery", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


HEAVY = "pandas sklearn sympy openai aiohttp torch transformers scipy matplotlib pyarrow math_verify datasets".split()
LOADED = (
    f"import sys; loaded = [name for name in {HEAVY!r} if name in sys.modules]; assert not loaded, "
    f"loaded"
)


def run(code: str, tmp_path: Path, *options: str) -> Finished:
    """Run code in an empty folder with an empty home; nothing may have been written to either."""
    work, home = tmp_path / "work", tmp_path / "home"
    for folder in (work, home):
        folder.mkdir(exist_ok=True)
    finished = run_python(
        *options, "-c", code, cwd=work, env={"HOME": str(home), "XDG_CACHE_HOME": str(home / "c")}
    )
    assert [*work.iterdir(), *home.iterdir()] == []
    return finished


@pytest.mark.long("a process of its own")
def test_it_is_quick(tmp_path: Path) -> None:
    """It takes a fraction of the CPU time of asyncio, which a program that scores needs anyway."""
    code = "import time; began = time.process_time(); import {}; print(time.process_time() - began)"
    ours, floor = (
        min(float(run(code.format(name), tmp_path).stdout) for _ in range(5))
        for name in ("rm_gallery", "asyncio")
    )
    assert ours < 0.5 * floor


@pytest.mark.smoke("the front door")
def test_it_is_silent_and_light(tmp_path: Path) -> None:
    """Also each name of the front door, which is imported when it is asked for."""
    names = ", ".join(rm_gallery.__all__)
    finished = run(
        f"import rm_gallery; {LOADED}; from rm_gallery import {names}; {LOADED}",
        tmp_path,
        "-W",
        "error",
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


@pytest.mark.long("a process of its own")
def test_every_module_imports_silently_and_light(tmp_path: Path) -> None:
    inside = "rm_gallery/core/sandbox/inside/"
    names = [
        module_name(file)
        for file in sources()
        if not file.startswith(inside) and "__main__" not in file
    ]
    assert len(names) > 50
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)\n{LOADED}"
    finished = run(code, tmp_path, "-W", "error")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


@pytest.mark.long("a process of its own")
def test_importing_graders_reads_no_texts(tmp_path: Path) -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        "sys.addaudithook(lambda event, given: print(given[0]) if event == 'open' "
        "and str(given[0]).endswith('.yaml') else None)\n"
        "import rm_gallery.gallery.graders as graders\n"
        "for one in pkgutil.iter_modules(graders.__path__, graders.__name__ + '.'):\n"
        "    importlib.import_module(one.name)\n"
    )
    finished = run(code, tmp_path)
    assert (finished.returncode, finished.stdout) == (0, "")


@pytest.mark.long("a process of its own")
def test_importing_starts_no_thread_and_touches_no_logging(tmp_path: Path) -> None:
    code = (
        "import logging, threading, signal, warnings\n"
        "before = (logging.root.handlers[:], logging.root.level, warnings.filters[:], "
        "signal.getsignal(signal.SIGINT))\nimport rm_gallery.core.reward.run, "
        "rm_gallery.core.models, rm_gallery.cli.main\nafter = (logging.root.handlers[:], "
        "logging.root.level, warnings.filters[:], signal.getsignal(signal.SIGINT))\nassert before "
        "== after, (before, after)\nassert threading.active_count() == 1, threading.enumerate()\n"
    )
    finished = run(code, tmp_path)
    assert (finished.returncode, finished.stderr) == (0, "")
