"""Bubblewrap: what starts and what does not, and that cancelled, abandoned or orphaned no process
stays.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rm_gallery.core.sandbox.bwrap import BwrapRunner, system_call_filter
from rm_gallery.core.sandbox.code_test_spec import AssertTests, CodeTests, InputOutputTests
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.utils.errors import DeadlineExceeded, SandboxUnavailable
from tests.sandbox.outside import alive, descendants, eventually
from tests.sandbox.scoring import reasons, score, score_all

pytestmark = pytest.mark.system("bubblewrap")

ENDLESS = "def f():\n    while True:\n        pass\n"
GOOD = "def f():\n    return 1\n"
TESTS = AssertTests(["assert f() == 1"])


@pytest.mark.parametrize(
    "tests", [TESTS, InputOutputTests(["1"], ["1"])], ids=["asserts", "programs"]
)
def test_a_sandbox_that_does_not_start_is_an_error_not_a_score(
    bubblewrap: BwrapRunner, monkeypatch: pytest.MonkeyPatch, tests: CodeTests, tmp_path: Path
) -> None:
    with pytest.raises(DeadlineExceeded, match="start"):
        score(bubblewrap, GOOD, tests, deadline=0.001)
    there = bubblewrap.__dict__["_program"]
    (tmp_path / "bwrap").write_text(
        f'#!/bin/sh\n[ "$1" = --help ] && exec {there} --help\n[ -e {tmp_path}/broken ] && exit '
        f'1\nexec {there} "$@"\n'
    )
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    runner = BwrapRunner()
    assert score(runner, GOOD, TESTS).score == 1.0
    (tmp_path / "broken").touch()
    with pytest.raises(SandboxUnavailable, match="start"):
        score(runner, GOOD, tests)
    (tmp_path / "bwrap").unlink()
    with pytest.raises(SandboxUnavailable, match="start"):
        score(runner, GOOD, tests)


def test_extra_packages_are_importable_and_read_only(
    bubblewrap: BwrapRunner, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "wanted.py").write_text("VALUE = 7\n")
    runner = BwrapRunner(packages=[str(tmp_path)])
    assert reasons(
        runner, "import wanted\ndef f():\n    return wanted.VALUE\n", "assert f() == 7"
    ) == ["passed"]
    (reason,) = reasons(
        runner, "import wanted\ndef f():\n    open(wanted.__file__, 'a')\n", "assert f()"
    )
    assert reason in ("error: OSError", "error: PermissionError")


NUMPY = "import numpy as np\ndef f(x):\n    return "
EMPTY_TESTS = [
    "import numpy as np; assert (f(3) == np.array([9, 1])).all()",
    "import numpy as np; assert np.allclose(f(2), [4.0, 5.0])",
    "import numpy as np; assert np.allclose(4.0, f(2))",
    "assert (f(2) == 0).all()",
    "assert abs(f(10) - 100).max(initial=0) < 1e-6",
]


def test_an_empty_array_is_equal_to_nothing_that_is_not_empty(bubblewrap: BwrapRunner) -> None:
    numpy = pytest.importorskip("numpy")
    runner = BwrapRunner(packages=[str(Path(numpy.__file__).parents[1])])
    limits = SandboxLimits(wall_seconds=20.0, memory_mb=1024)
    found = reasons(runner, f"{NUMPY}np.empty((0, 1))\n", *EMPTY_TESTS, limits=limits)
    assert found == ["error: ValueError"] * len(EMPTY_TESTS)
    honest = [
        "np.allclose(f(2), [])",
        "np.allclose([], f(2))",
        "(f(1) == np.array([])).all()",
        "f(f(1)).sum() == 0",
    ]
    wanted = [f"import numpy as np; assert {test}" for test in honest]
    assert reasons(runner, f"{NUMPY}np.array([])\n", *wanted, limits=limits) == ["passed"] * len(
        wanted
    )


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filters_jumps_stay_inside_the_program(machine: str) -> None:
    program = system_call_filter(machine)
    assert program is not None and system_call_filter("riscv64") is None
    instructions = list(struct.iter_unpack("=HBBI", program))
    for at, (code, if_true, if_false, _) in enumerate(instructions):
        if code & 7 == 5:  # a jump
            assert at + 1 + max(if_true, if_false) < len(instructions)
    assert instructions[-1][0] == 6  # ends with a return


def test_loops_in_many_threads_share_the_slots(bubblewrap: BwrapRunner) -> None:
    found: list[float] = []
    jobs = [[(f"def f():\n    return {n}\n", TESTS)] * 10 for n in range(6)]
    with ThreadPoolExecutor(len(jobs)) as threads:
        for reports in threads.map(lambda job: score_all(bubblewrap, job), jobs):
            found += [report.score for report in reports]
    assert sorted(found) == [0.0] * 50 + [1.0] * 10


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_forked_process_gets_slots_of_its_own(bubblewrap: BwrapRunner) -> None:
    assert score(bubblewrap, GOOD, TESTS).score == 1.0
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if score(bubblewrap, GOOD, TESTS).score == 1.0 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


PROGRAM = f"""
import asyncio, ctypes, os, sys
from rm_gallery.core.engine.pool import get_pool
from rm_gallery.core.sandbox.code_test_spec import AssertTests
from rm_gallery.core.sandbox.code_tests import run_code_tests
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.select import get_runner

def call(code, **limits):
    return run_code_tests(code, AssertTests(["assert f() == 0"]), runner=get_runner(), limits=SandboxLimits(**limits))

async def endless():
    await call({ENDLESS!r})

async def stopped():
    try:
        await asyncio.wait_for(endless(), 0.5)
    except asyncio.TimeoutError:
        print("stopped")

async def adopting():
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # adopt orphans, as process 1 does
    for code in ({GOOD!r}, {ENDLESS!r}, "import os; os._exit(0)", "import os; os.fork()"):
        await call(code, wall_seconds=0.5)
    get_pool("sandbox").shutdown()
    try:
        print(os.waitpid(-1, os.WNOHANG))
    except ChildProcessError:
        print("none")

asyncio.run({{"endless": endless, "stopped": stopped, "adopting": adopting}}[sys.argv[1]]())
"""


def test_a_killed_parent_takes_the_sandbox_along(bubblewrap: BwrapRunner) -> None:
    before = descendants()
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM, "endless"])
    try:
        # parent, two sandboxes of three processes each
        assert eventually(lambda: len(descendants() - before) >= 7, 60.0)
        sandboxed = descendants() - before - {parent.pid}
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert eventually(lambda: not any(alive(pid) for pid in sandboxed))


@pytest.mark.long("programs that resist")
@pytest.mark.parametrize(("how", "says"), [("stopped", "stopped\n"), ("adopting", "none\n")])
def test_an_interpreter_that_ends_waits_for_no_stranger_and_inherits_no_remains(
    bubblewrap: BwrapRunner, how: str, says: str
) -> None:
    command = [sys.executable, "-c", PROGRAM, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert (done.stdout, done.stderr) == (says, "")
