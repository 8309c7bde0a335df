"""Cancelled, abandoned or orphaned: no process stays, from any thread and any event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from rm_gallery.core.sandbox.bwrap import BwrapRunner
from rm_gallery.core.sandbox.code_tests import AssertTests, CodeTestReport, HumanEvalTests, run_code_tests
from rm_gallery.core.sandbox.process import SandboxLimits
from tests.sandbox.outside import alive, descendants, eventually
from tests.sandbox.scoring import score

pytestmark = pytest.mark.system("bubblewrap")

ENDLESS = "def f():\n    while True:\n        pass\n"
GOOD = "def f():\n    return 1\n"
TESTS = AssertTests(["assert f() == 1"])


def test_cancelling_kills_the_processes(bubblewrap: BwrapRunner) -> None:
    before = descendants()

    async def cancel_while_running() -> None:
        task = asyncio.create_task(run_code_tests(ENDLESS, TESTS, runner=bubblewrap))
        while not descendants() - before:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_while_running())
    assert eventually(lambda: descendants() <= before)


def test_loops_in_many_threads_at_once(bubblewrap: BwrapRunner) -> None:
    reports: list[CodeTestReport] = []
    threads = [
        threading.Thread(target=lambda n=n: reports.append(score(bubblewrap, f"def f():\n    return {n}\n", TESTS)))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(report.score for report in reports) == [0.0] * 5 + [1.0]


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


def test_a_killed_parent_takes_the_sandbox_along(bubblewrap: BwrapRunner) -> None:
    script = (
        "import asyncio\nfrom rm_gallery.core.sandbox.code_tests import run_code_tests\n"
        "from rm_gallery.core.sandbox.code_tests import AssertTests\nfrom rm_gallery.core.sandbox.select import get_runner\n"
        f"asyncio.run(run_code_tests({ENDLESS!r}, AssertTests(['f()']), runner=get_runner()))\n"
    )
    before = descendants()
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        # parent, two sandboxes of three processes each
        assert eventually(lambda: len(descendants() - before) >= 7, 20.0)
        sandboxed = descendants() - before - {parent.pid}
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert eventually(lambda: not any(alive(pid) for pid in sandboxed))


def test_an_interpreter_that_ends_does_not_wait_for_a_stranger(bubblewrap: BwrapRunner) -> None:
    script = (
        "import asyncio\nfrom rm_gallery.core.sandbox.code_tests import run_code_tests\n"
        "from rm_gallery.core.sandbox.code_tests import AssertTests\nfrom rm_gallery.core.sandbox.select import get_runner\n"
        "async def main():\n"
        f"    call = run_code_tests({ENDLESS!r}, AssertTests(['f()']), runner=get_runner())\n"
        "    try:\n        await asyncio.wait_for(call, 0.5)\n    except asyncio.TimeoutError:\n        print('stopped')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("stopped\n", "")


def test_many_answers_at_once_share_the_slots(bubblewrap: BwrapRunner) -> None:
    check = HumanEvalTests("def check(c):\n    assert c() == 1\n", "f")

    async def all_of_them() -> list[CodeTestReport]:
        limits = SandboxLimits()
        return list(
            await asyncio.gather(*(run_code_tests(GOOD, check, runner=bubblewrap, limits=limits) for _ in range(60)))
        )

    assert [report.score for report in asyncio.run(all_of_them())] == [1.0] * 60


def test_no_remains_are_left_to_the_process_that_adopts_orphans(bubblewrap: BwrapRunner) -> None:
    script = (
        "import asyncio, ctypes, os\nfrom rm_gallery.core.sandbox.code_tests import run_code_tests\n"
        "from rm_gallery.core.sandbox.code_tests import AssertTests\nfrom rm_gallery.core.sandbox.process import SandboxLimits\n"
        "from rm_gallery.core.sandbox.select import get_runner\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # adopt orphans, as process 1 does\n"
        f"for code in ({GOOD!r}, {ENDLESS!r}, 'import os; os._exit(0)', 'import os; os.fork()'):\n"
        "    limits = SandboxLimits(wall_seconds=0.5)\n"
        "    asyncio.run(run_code_tests(code, AssertTests(['f()']), runner=get_runner(), limits=limits))\n"
        "from rm_gallery.core.engine.workers.pool import get_pool\nget_pool('sandbox').shutdown()\n"
        "try:\n    print(os.waitpid(-1, os.WNOHANG))\nexcept ChildProcessError:\n    print('none')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "none\n"
