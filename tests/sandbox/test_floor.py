"""No program of an answer can signal or outlive what started it, in any local sandbox.

Whatever signals everybody runs in namespaces of the test's own, so that a fault ends nothing but
those.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rm_gallery
from tests.support.system import require_bubblewrap, require_namespace

HOME = Path(rm_gallery.__file__).parents[1]
STARTER = """
import asyncio, os, sys, time
import rm_gallery
assert os.getpid() < 20, "outside of a namespace nobody may signal everybody"

def main():
    code = '''
import os, signal, subprocess, sys, time
def left(name, end):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            until = time.monotonic() + 20
            while time.monotonic() < until:
                time.sleep(0.01)
        os._exit(0)
    return end()
def everybody(signals):
    for number in signals:
        for whom in (-1, os.getppid(), 1, 0):
            if whom or number != signal.SIGKILL:
                try:
                    signal.signal(number, signal.SIG_IGN)
                except OSError:
                    pass
                try:
                    os.kill(whom, number)
                except OSError:
                    pass
    return 42
def f(what):
    if what == "kill":
        return everybody([signal.SIGKILL])
    if what == "stop":
        return everybody([signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
    if what == "leave":
        return left("child", lambda: 42)
    return left("child", lambda: os._exit(3))
'''
    reward = rm_gallery.RewardRegistry.create("code_execution", sandbox=sys.argv[1])
    tests = [f"assert f({what!r}) == 42" for what in ("kill", "stop", "leave", "end")]
    sample = rm_gallery.DataSample.model_validate({
        "input": [{"role": "user", "content": "Write f."}],
        "output": [{"answer": {"role": "assistant", "content": f"```python\\n{code}\\n```"}}],
        "metadata": {"tests": tests},
    })
    bystander = os.fork()
    if bystander == 0:
        time.sleep(60)
        os._exit(0)
    score = reward.evaluate(sample).output[0].answer.reward.score
    assert os.waitpid(bystander, os.WNOHANG) == (0, 0), "the answer ended a stranger"
    for _ in range(200):
        others = [line for line in cmdlines() if "marshal" in line and "rm_gallery" not in line]
        if not others:
            break
        time.sleep(0.01)
    print("alive", score, len(others))

def cmdlines():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline") as file:
                yield file.read()
        except OSError:
            pass

if __name__ == "__main__":
    main()
"""
REFUSED = """
import rm_gallery
with open("/proc/sys/user/max_user_namespaces", "w") as most:
    most.write("0")  # of the test's own namespace
try:
    rm_gallery.RewardRegistry.create("code_execution", sandbox="subprocess").check()
except Exception as error:
    print(type(error).__name__, error)
"""


def inside(tmp_path: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    outer = require_namespace()
    (tmp_path / "starter.py").write_text(program)
    return subprocess.run(
        [*outer, sys.executable, str(tmp_path / "starter.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(HOME)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.smoke("kills")
@pytest.mark.parametrize(
    "sandbox", ["subprocess", pytest.param("bwrap", marks=pytest.mark.system("bubblewrap"))]
)
def test_an_answer_that_signals_everybody_and_leaves_children_reaches_nobody(
    sandbox: str, tmp_path: Path
) -> None:
    if sandbox == "bwrap":
        require_bubblewrap()
    done = inside(tmp_path, STARTER, sandbox)
    if "bubblewrap" in done.stderr and "does not work here" in done.stderr:
        pytest.skip("bubblewrap: no process namespace within one")
    assert done.returncode == 0, done.stderr[-2000:]
    alive, score, others = done.stdout.split()
    assert (alive, others) == ("alive", "0"), done.stderr[-2000:]
    assert 0 <= float(score) < 1, done


def test_root_without_a_floor_is_refused_in_one_line(tmp_path: Path) -> None:
    done = inside(tmp_path, REFUSED)
    assert done.stdout.count("\n") == 1, done
    assert "as root" in done.stdout and 'sandbox="fusion:URL"' in done.stdout, done.stdout
