"""Several processes on one store, and processes that are killed while they write to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.children import run_python


def run(url: str, what: str, folder: Path) -> Any:
    done = run_python("-m", "tests.evaluation.store_processes", url, what, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_a_deployment_killed_at_any_step_leaves_the_old_version(store_url: str, tmp_path: Path) -> None:
    steps = run(store_url, "interrupted", tmp_path)
    assert len(steps) > 8 and [step["code"] for step in steps] == [-9] * (len(steps) - 1) + [0]
    for step in steps:
        (version, digest, versions), after = step["before"], step["after"]
        new = [version + 1, after[1], [version + 1, *versions]]
        assert after in ([version, digest, versions], new), step
    kept = [step["after"] == step["before"] for step in steps]
    # all of them until the transaction is committed, none after it
    assert kept == sorted(kept, reverse=True) and kept.count(True) >= 8


def test_processes_that_deploy_at_once_lose_nothing(store_url: str, tmp_path: Path) -> None:
    found = run(store_url, "together", tmp_path)
    assert found == {"codes": [0] * 6, "versions": list(range(24, 0, -1)), "revision": 24}
