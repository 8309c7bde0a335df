"""The command as a process of its own that can be interrupted, killed and looked at afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engine.processes import wait_until
from tests.support.children import child_environment
from tests.support.judge_server import JudgeServer


@contextmanager
def started(*arguments: str, cwd: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Python with these arguments in a process group of its own, which is killed at the end of the
    block.

    It hears Ctrl-C even where this process was started to ignore it (nohup, a background job): that
    would be inherited.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env=child_environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield process
    finally:
        if group_is_alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def command(*arguments: str) -> list[str]:
    return ["-m", "rm_gallery", *arguments]


def reached(
    server: JudgeServer,
    process: subprocess.Popen[str],
    condition: Callable[[dict[str, Any]], bool],
    timeout: float = 30.0,
) -> None:
    """Wait until the server's statistics fulfil the condition; a process that ends before fails at
    once, with its words.
    """

    def or_over(stats: dict[str, Any]) -> bool:
        return condition(stats) or process.poll() is not None

    found = server.wait_until(or_over, timeout)
    if not condition(found):
        out, err = process.communicate()
        raise AssertionError(
            f"the process ended with {process.returncode} before its time: {out}{err}"
        )


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def group_ended(group: int, timeout: float = 5.0) -> bool:
    return wait_until(lambda: not group_is_alive(group), timeout)
