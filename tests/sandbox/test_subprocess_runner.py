"""Limits alone: same verdicts, no secrets in the environment, no folder left behind."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from rm_gallery.core.sandbox.code_tests import AssertTests, run_code_tests
from rm_gallery.core.sandbox.select import SubprocessRunner
from tests.sandbox.outside import SECRET_NAME, Outside, alive, descendants, eventually
from tests.sandbox.scoring import program_reasons, reasons, score

ANSWERS = [
    ("def f():\n    return 42", "passed"),
    ("def f():\n    return 41", "wrong answer"),
    ("def f():\n    while True:\n        pass", "deadline"),
    ("def f():\n    return len(bytearray(10 << 30))", "memory"),
    ("def f():\n    print('x' * 10**7, flush=True)\n    return 42", "output limit"),
    ("import os\ndef f():\n    os._exit(0)", "crashed exit code 0"),
    ("def f():\n    with open('big', 'wb') as out:\n        out.truncate(1 << 30)\n    return 42", "error: OSError"),
    ("class A:\n    def __eq__(self, other):\n        return True\ndef f():\n    return A()", "wrong answer"),
]


@pytest.mark.parametrize(("code", "reason"), ANSWERS, ids=range(len(ANSWERS)))
def test_verdicts(code: str, reason: str) -> None:
    before = set(Path(tempfile.gettempdir()).glob("rm-gallery-*"))
    assert reasons(SubprocessRunner(), code, "assert f() == 42") == [reason]
    assert set(Path(tempfile.gettempdir()).glob("rm-gallery-*")) <= before


def test_programs() -> None:
    code = "n = int(input())\nwhile n == 2: pass\nprint(n * n)"
    assert program_reasons(SubprocessRunner(), code, ("1", "1"), ("2", "4"), ("3", "9")) == [
        "passed",
        "deadline",
        "passed",
    ]


def test_environment_is_empty_and_nothing_survives(outside: Outside) -> None:
    code = (
        "import os, subprocess, sys\ndef f():\n"
        "    subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
        f"    return [key for key in os.environ if key == '{SECRET_NAME}' or 'VIRTUAL' in key]\n"
    )
    assert score(SubprocessRunner(), code, AssertTests(["assert f() == []"])).score == 1.0
    outside.assert_unchanged()


NESTED = "for n in range(1100):\n        os.mkdir('d')\n        os.chdir('d')\n    os.chmod('.', 0)"
DETACHED = (
    "if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            os.setsid()\n"
    "            while True:\n                time.sleep(0.01)\n        os._exit(0)"
)


@pytest.mark.parametrize("body", [NESTED, DETACHED], ids=["1,100 nested folders", "forked twice and detached"])
def test_s5_nothing_is_left_behind(outside: Outside, body: str) -> None:
    before = set(Path(tempfile.gettempdir()).glob("rm-gallery-*"))
    code = f"import os, time\ndef f():\n    {body}\n    return 42\n"
    assert reasons(SubprocessRunner(), code, "assert f() == 42") == ["passed"]
    outside.assert_unchanged()
    assert set(Path(tempfile.gettempdir()).glob("rm-gallery-*")) <= before


def test_s5_an_answer_that_kills_its_watcher_scores_zero() -> None:
    code = "import os\ndef f():\n    os.kill(os.getppid(), 9)\n    return 42\n"
    assert reasons(SubprocessRunner(), code, "assert f() == 42", "assert f() == 42") == ["tampering"] * 2


def test_cancelling_ends_the_processes() -> None:
    before = descendants()
    started: set[int] = set()

    async def cancel_while_running() -> None:
        call = run_code_tests("while True:\n    pass\n", AssertTests(["assert f()"]), runner=SubprocessRunner())
        task = asyncio.create_task(call)
        while len(started) < 2:
            await asyncio.sleep(0.01)
            started.update(descendants() - before)
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_while_running())
    assert eventually(lambda: not any(map(alive, started)))
