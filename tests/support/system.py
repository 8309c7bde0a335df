"""Skipping tests that need a system component this machine lacks, and which skips no installation
mends.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from rm_gallery.core.sandbox import bwrap
from rm_gallery.core.sandbox.bwrap import BwrapRunner

MAY_SKIP = {
    r"the package 'detoxify'": "its model's weights are fetched from a hub",
    r"needs Python >= ": "a trainer's package is for other Pythons than this one",
    r"SQLite limits can be set from Python 3\.11 on": "another Python",
    r"benchmark (data folder|file \S+) is absent|labelled cases \S+ are absent": "published data, which is not distributed",
    r"no process namespace": "the kernel or the container forbids it",
    r"needs POSIX|on POSIX only|as POSIX has them|written for bash|no fork": "another operating system",
    r"it takes no reward that compares": "a pair of a kind and a door that does not exist",
    r"reads /proc|are Linux's|on Windows|no such files there|need rights there": "another operating system",
}
"""Reasons of skips that remain where everything is installed, as patterns, and why none of it can
be installed.
"""


def may_skip(reason: str) -> bool:
    """Whether a skip with this reason is no want of an installation."""
    return any(re.search(pattern, reason) for pattern in MAY_SKIP)


def require_bubblewrap() -> BwrapRunner:
    """Return a bubblewrap runner; skips the test with the reason where it is absent or may not run."""
    program = shutil.which("bwrap")
    if program is None:
        pytest.skip("bubblewrap is not installed")
    way, reason = bwrap.probe(program)
    if way is None:
        pytest.skip(f"bubblewrap: {reason}")
    return BwrapRunner()


def require_namespace() -> list[str]:
    """Return the command that runs another in process and user namespaces of its own, whose end takes
    all along; skips the test where this machine gives none.
    """
    outer = ["unshare", "-U", "-r", "-p", "-f", "--mount-proc", "--kill-child", "--"]
    if shutil.which("unshare") is None:
        pytest.skip("no process namespace: the program unshare reads /proc and is Linux's")
    tried = subprocess.run(
        [*outer, "sh", "-c", "echo $$"], capture_output=True, text=True, timeout=20, check=False
    )
    if tried.stdout.strip() != "1":
        pytest.skip(f"no process namespace may be opened here: {tried.stderr.strip()[:200]}")
    return outer
