"""Python children that a test starts, reads and kills, and waiting for what they do."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rm_gallery.core.engine.pool import WorkerPool
from tests.support.children import ROOT, child_environment


def start(script: str, *args: object, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Run a script in a child whose output can be read; in a folder of its own as the file
    `program.py` there.

    Warnings are errors, but for the one that newer Pythons give on any fork beside threads.
    """
    code = ["-c", textwrap.dedent(script)]
    if cwd is not None:
        (cwd / "program.py").write_text(textwrap.dedent(script), encoding="utf-8")
        code = [str(cwd / "program.py")]
    strict = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    command, pipe = [sys.executable, *strict, *code, *map(str, args)], subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=cwd or ROOT, env=child_environment()
    )


def finish(*children: subprocess.Popen[str], timeout: float = 120.0) -> str:
    """What the children printed, one after the other; fails with the error output of those that
    failed or complained.
    """
    ends = [(child.communicate(timeout=timeout), child.returncode) for child in children]
    errors = [err or f"exit code {code}" for (_, err), code in ends if code or err]
    assert not errors, errors[0]
    return "".join(out for (out, _), _ in ends)


def kill_after_lines(child: subprocess.Popen[str], count: int) -> list[str]:
    """Kill -9 once the child has printed so many lines; all whole lines it got out."""
    assert child.stdout is not None and child.stderr is not None
    lines = []
    for line in child.stdout:
        lines.append(line)
        if len(lines) == count:
            child.kill()
    child.wait()
    child.stdout.close()
    child.stderr.close()
    return [line.rstrip("\n") for line in lines if line.endswith("\n")]


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Poll until the condition holds; False when it never did."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie counts as gone."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        return (
            not status.parent.parent.exists()
            or status.read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except (FileNotFoundError, ProcessLookupError):  # it ended between the two looks
        return False


def read_pid(path: Path) -> int:
    """The process id that a job writes to a file, once it is there."""
    assert wait_until(lambda: path.exists() and path.read_text() != "")
    return int(path.read_text())


def worker_pids(pool: WorkerPool) -> list[int]:
    """Process ids of a pool's workers that are up."""
    return [up.pid for worker in pool._workers if (up := worker.process)]


def every(
    pool: WorkerPool,
    function: Callable[..., Any],
    items: Iterable[Any],
    deadline: float | None = None,
) -> list[Any]:
    """What a pool's calls of a function gave, item by item: the value, or the error."""
    futures = [pool.submit(function, item, deadline=deadline) for item in items]
    return [future.exception() or future.result() for future in futures]
