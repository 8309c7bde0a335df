"""Running Python, or the command line, in a child process that sees this checkout and nothing of
the user's settings.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

Finished = subprocess.CompletedProcess[str]


def child_environment(**changes: str) -> dict[str, str]:
    """This process's environment with the checkout importable, UTF-8 output and no bytecode beside
    the sources, plus `changes`.

    A test run inside is one of its own: it does not wait for its turn behind the test that started
    it.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    bytecode = "" if sys.pycache_prefix else "1"
    fixed = {
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": bytecode,
        "PYTHONIOENCODING": "utf-8",
        "NO_COLOR": "1",
    }
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    return {**inherited, **fixed, **changes}


def run_python(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout: float = 120.0,
) -> Finished:
    """Run this interpreter with these arguments to its end; output is text."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=child_environment(**(env or {})),
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )


def run_command(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 120.0
) -> Finished:
    return run_python("-m", "rm_gallery", *arguments, cwd=cwd, env=env, timeout=timeout)
