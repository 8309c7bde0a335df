"""Skipping tests that need a system component this machine lacks."""

from __future__ import annotations

import shutil

import pytest

from rm_gallery.core.sandbox import bwrap
from rm_gallery.core.sandbox.bwrap import BwrapRunner


def require_bubblewrap() -> BwrapRunner:
    """Return a bubblewrap runner; skips the test with the reason where it is absent or may not run."""
    program = shutil.which("bwrap")
    if program is None:
        pytest.skip("bubblewrap is not installed")
    way, reason = bwrap.probe(program)
    if way is None:
        pytest.skip(f"bubblewrap: {reason}")
    return BwrapRunner()
