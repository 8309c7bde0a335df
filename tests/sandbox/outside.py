"""What an attack must not change or reach, and the proof that it did not."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rm_gallery.core.engine.pool import get_pool, processors
from tests.engine.processes import worker_pids

SECRET_NAME, SECRET = "RM_TEST_SECRET_KEY", "the-key-nobody-may-see"


@dataclass
class Outside:
    """A file, a listening socket, a secret in the environment, and the processes of this test run."""

    file: Path
    listener: socket.socket
    children_before: set[int]

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def assert_unchanged(self) -> None:
        assert self.file.read_text() == "precious"
        assert sorted(p.name for p in self.file.parent.iterdir()) == [self.file.name]
        self.listener.setblocking(False)
        try:
            self.listener.accept()
        except BlockingIOError:
            pass
        else:
            raise AssertionError("the attack reached a socket outside")
        assert descendants() <= self.children_before
        assert os.environ[SECRET_NAME] == SECRET


def descendants() -> set[int]:
    """Ids of all living processes below this one that are no worker of the sandbox's pool; a zombie
    is none.
    """
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX":
                parents[int(name)] = int(fields[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return found - {os.getpid(), *worker_pids(get_pool("sandbox", max_workers=processors() + 1))}


def eventually(holds: Callable[[], bool], seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.02)
    return holds()


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
