"""Extras present and blocked: a score never depends on what is installed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rm_gallery import RewardRegistry
from tests.contracts.without_extras import scores
from tests.support.children import ROOT


@pytest.mark.long("much work")
def test_a_score_does_not_depend_on_what_is_installed() -> None:
    """What needs an optional package has no score without it, and names the package; all else
    scores as with it.
    """
    command = [sys.executable, "-m", "tests.contracts.without_extras"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    bare, full = json.loads(done.stdout), scores()
    assert bare.keys() == full.keys() == set(RewardRegistry.list())
    for name, given in full.items():
        if repr(bare[name]) != repr(given):
            assert all(isinstance(each, str) and "pip install" in each for each in bare[name]), (
                name,
                given,
                bare[name],
            )
