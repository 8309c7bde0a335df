"""Choosing a sandbox: never silently less than asked for; and limits alone, which leave nothing
behind.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from pathlib import Path

import pytest

from rm_gallery import ConfigError
from rm_gallery.core.sandbox.bwrap import BwrapRunner
from rm_gallery.core.sandbox.code_test_spec import AssertTests
from rm_gallery.core.sandbox.code_tests import run_code_tests
from rm_gallery.core.sandbox.fusion import SandboxFusionRunner
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.runner import SubprocessRunner
from rm_gallery.core.sandbox.select import doctor, get_runner
from rm_gallery.core.utils.errors import SandboxUnavailable
from tests.sandbox.outside import SECRET_NAME, Outside, alive, descendants, eventually
from tests.sandbox.scoring import reasons
from tests.support.system import require_bubblewrap


@pytest.mark.parametrize("sandbox", ["auto", "bwrap"])
def test_without_bubblewrap_the_message_says_what_to_do(
    sandbox: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable) as caught:
        get_runner(sandbox)
    assert "apt-get install bubblewrap" in str(caught.value)
    assert 'sandbox="subprocess"' in str(caught.value)
    (check,) = [check for check in doctor() if check.name == "bubblewrap"]
    assert not check.ok
    assert "apt-get install bubblewrap" in check.fix


@pytest.mark.parametrize(("script", "told"), [
    ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "user namespaces seem to be forbidden"),
    ("exit 0", "it did not answer"),
])  # fmt: skip
def test_where_it_may_not_run_it_says_why(
    script: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match=re.escape(told)):
        get_runner("auto")


@pytest.mark.system("bubblewrap")
def test_names(bubblewrap: BwrapRunner) -> None:
    assert isinstance(get_runner(), BwrapRunner)
    assert isinstance(get_runner("bwrap"), BwrapRunner)
    assert isinstance(get_runner("subprocess"), SubprocessRunner)
    assert isinstance(get_runner("fusion:http://127.0.0.1:1"), SandboxFusionRunner)


@pytest.mark.system("bubblewrap")
def test_doctor_names_every_part(bubblewrap: BwrapRunner) -> None:
    checks = {check.name: check for check in doctor()}
    assert set(checks) == {
        "bubblewrap", "process floor", "system-call filter", "memory watcher", "sandboxed interpreter", "SandboxFusion client",
    }  # fmt: skip
    assert checks["bubblewrap"].ok
    assert all(check.detail for check in checks.values())


@pytest.mark.parametrize(("field", "value"), [("memory_mb", 63), ("processes", 3)])
def test_limits_leave_room_for_the_interpreter(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match="interpreter itself"):
        SandboxLimits(**{field: value})
    assert SandboxLimits(**{field: value + 1})


# -- limits alone ----------------------------------------------------------------------------------


def left_behind() -> set[Path]:
    """The work folders of this process: what other processes of the tests have open at the same
    moment is theirs.
    """
    return set(Path(tempfile.gettempdir()).glob(f"rm-gallery-{os.getpid()}-*"))


BODIES = {
    "empty environment": (
        f"return 42 + len([key for key in os.environ if key == '{SECRET_NAME}' or 'VIRTUAL' in "
        f"key])"
    ),
    "child that stays": "subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n    return 42",
    "1,100 nested folders": (
        "for n in range(1100):\n        os.mkdir('d')\n        os.chdir('d')\n    os.chmod('.', "
        "0)\n    return 42"
    ),
    "forked twice and detached": "if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            os.setsid()\n"
    "            while True:\n                time.sleep(0.01)\n        os._exit(0)\n    return 42",
}


@pytest.mark.parametrize("name", BODIES)
def test_nothing_is_seen_and_nothing_left_behind(outside: Outside, name: str) -> None:
    before = left_behind()
    code = f"import os, subprocess, sys, time\ndef f():\n    {BODIES[name]}\n"
    assert reasons(SubprocessRunner(), code, "assert f() == 42") == ["passed"]
    outside.assert_unchanged()
    assert left_behind() <= before


@pytest.mark.smoke("processes that are killed")
@pytest.mark.parametrize(
    "name",
    [
        "subprocess",
        pytest.param("bwrap", marks=[pytest.mark.system("bubblewrap"), pytest.mark.long("kills")]),
    ],
)
def test_cancelling_ends_the_processes(name: str) -> None:
    runner = SubprocessRunner() if name == "subprocess" else require_bubblewrap()
    before = descendants()
    started: set[int] = set()

    async def cancel_while_running() -> None:
        call = run_code_tests("while True:\n    pass\n", AssertTests(["assert f()"]), runner=runner)
        task = asyncio.create_task(call)
        while len(started) < 2:
            await asyncio.sleep(0.01)
            started.update(descendants() - before)
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_while_running())
    assert eventually(lambda: descendants() <= before and not any(map(alive, started)))
