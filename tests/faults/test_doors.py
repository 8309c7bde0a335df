"""The same samples through every way of calling: the same results, no warning, nothing left open,
and a prompt end.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.faults.doors import WAYS, WORKERS, N
from tests.faults.material import make_samples, truth
from tests.support.children import run_python
from tests.support.choice import some
from tests.support.judge_server import JudgeServer

UNFINISHED = {"unfinished_thread", "unfinished_tasks", "run_folder_left_open"}
STRICT = ("-W", "error", "-W", "ignore:This process:DeprecationWarning")
"""From Python 3.12 on every fork of a process with threads is warned about, whatever the child
does.
"""
HELD = {"running_loop": N, "loops_in_threads": 4 * N, "unfinished_tasks": 64 + 16}
"""Most connections the process may hold, where that is not `WORKERS`; those that are just being
closed may count beside their successors, the more of them the later the machine is."""
ASKED = {"fork_during_a_run": 4}
"""How often the samples were paid for, where that is not once per result."""


@pytest.mark.parametrize("way", some((way.__name__ for way in WAYS), 1))
def test_same_results_and_nothing_left(server: JudgeServer, tmp_path: Path, way: str) -> None:
    if way.startswith("fork") and not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    finished = run_python(
        *STRICT, "-m", "tests.faults.doors", way, server.base_url, cwd=tmp_path, timeout=60
    )
    assert finished.stderr == "" and finished.returncode == 0
    found = json.loads(finished.stdout)
    assert [json.loads(text) for text in found["results"]] == [truth(make_samples(N))]
    assert 0 < found["connections"] <= HELD.get(way, WORKERS)
    stats = server.wait_until(lambda stats: stats["connections_open"] == 0)
    assert stats["in_flight"] == 0
    if way in UNFINISHED:
        assert stats["requests"] < 300, "the interpreter ends without what nobody waits for"
    else:
        assert (
            stats["requests"] == N * ASKED.get(way, found["times"]) and stats["client_closed"] == 0
        )
