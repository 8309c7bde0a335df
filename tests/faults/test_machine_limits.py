"""A machine that has no more to give, or a clock that jumps: a run loses nothing by it."""

from __future__ import annotations

import errno
import itertools
import json
import os
import time
from pathlib import Path

import pytest

from tests.faults.material import make_judge, make_samples, records, run, truth, write_data
from tests.faults.processes import command
from tests.support.children import ROOT, run_python
from tests.support.judge_server import JudgeServer

N = 200
ON_POSIX = pytest.mark.skipif(os.name != "posix", reason="limits of POSIX")
FEW_FILES = """
import os, resource, sys
from rm_gallery import Budget
from tests.faults.material import make_judge, make_samples, run, truth
judge, samples = make_judge(sys.argv[1], max_workers=64), make_samples(int(sys.argv[2]))
run(judge, make_samples(1))
open_now = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 10, open_now + 10))
ran = run(judge, samples, max_workers=64, budget=Budget(max_calls=len(samples)))
print(ran.outcomes)
assert ran.scores == truth(samples), ran.messages
"""


@ON_POSIX
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_more_calls_than_descriptors_are_all_served(server: JudgeServer) -> None:
    server.set(latency=0.02)
    done = run_python("-c", FEW_FILES, server.base_url, str(N), cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_a_clock_that_jumps_costs_no_sample(
    server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = make_samples(N)
    jumps = itertools.cycle([0.0, 3600.0, -3600.0, 1e9, -1e9])
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: max(0.0, wall() + next(jumps)))
    ran = run(make_judge(server.base_url), samples, max_workers=16, run_dir=str(tmp_path / "run"))
    assert ran.scores == truth(samples)
    assert len({record["key"] for record in records(tmp_path / "run")}) == N


@ON_POSIX
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("what", [["--version"], ["list"], ["eval", "length_baseline", "DATA"]])
def test_an_output_that_cannot_be_written_is_one_line(what: list[str], tmp_path: Path) -> None:
    data = str(write_data(tmp_path / "data.jsonl", 3))
    arguments = [data if each == "DATA" else each for each in what]
    done = run_python("-c", INTO_FULL, *command(*arguments), cwd=tmp_path)
    code, told = json.loads(done.stdout)
    last = told.splitlines()[-1]
    assert (code, last) == (2, f"rm-gallery: the output cannot be written: {NO_ROOM}"), told
    assert "Traceback" not in told


NO_ROOM = os.strerror(errno.ENOSPC)
INTO_FULL = """
import json, subprocess, sys
with open("/dev/full", "w") as full:
    done = subprocess.run([sys.executable, *sys.argv[1:]], stdout=full, stderr=subprocess.PIPE, text=True)
print(json.dumps([done.returncode, done.stderr]))
"""
