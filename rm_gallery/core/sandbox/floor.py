"""The floor under every program of an answer, in any sandbox: it cannot signal, trace or outlive what
started it.

Bubblewrap and SandboxFusion have it by themselves. Everything else that runs such a program is
started by `entry`, in a process namespace of its own (Linux user and process namespaces, by the
kernel directly), or as another user. Where neither can be had, root is refused: as root such a
program could end the machine. Any other user may go on, and can lose the session.
"""

from __future__ import annotations

import functools
import importlib.resources
import os
import random
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

from rm_gallery.core.sandbox.process import tasks_of_user
from rm_gallery.core.utils.errors import SandboxUnavailable

_PROBE_SECONDS = 20.0


@dataclass(frozen=True)
class Floor:
    """What this machine gives."""

    way: Literal["namespace", "user", "none"]
    why_not: str = ""
    """Why it is not the way before."""

    @property
    def helpers(self) -> int:
        """How many processes stand between the starter and the program."""
        return 2 if self.way == "namespace" else 0

    def tasks_before(self) -> int:
        """How many tasks the kernel's limit of processes counts before the program's own."""
        if self.way == "user":
            return 0
        if self.way == "namespace" and counts_per_namespace():
            return self.helpers
        return tasks_of_user()  # all of the user's, wherever they are

    def entry(self, then: str, *, user: int = 0) -> str:
        """The text of a Python program that reaches this floor and does `then`."""
        return f"{source_of('entry')}\nenter({self.way!r}, {user})\n{then}"


def executable() -> str:
    """Return the real interpreter behind this process, outside of any virtual environment."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    return os.path.realpath(base)


@functools.cache
def source_of(stem: str) -> str:
    """Return the source text of one inside module."""
    inside = importlib.resources.files("rm_gallery.core.sandbox.inside")
    return (inside / f"{stem}.py").read_text(encoding="utf-8")


def stranger() -> int:
    """A user id that nobody else on this machine has."""
    return random.SystemRandom().randrange(1 << 29, 1 << 30)


def floor(*, files: bool = False) -> Floor:
    """Return the best floor of this machine; `files` is for a program that needs the user's own.

    Raises SandboxUnavailable as root where there is none.
    """
    found = _floor_of(os.geteuid())
    if os.geteuid() == 0 and (found.way == "none" or (files and found.way == "user")):
        raise SandboxUnavailable(
            "as root nothing is run without walls here, for it could end every process of this "
            f"machine: neither a process namespace nor another user can be had ({found.why_not}). "
            "Run as another user, allow user namespaces (in a container: --security-opt "
            'seccomp=unconfined), or choose sandbox="fusion:URL"'
        )
    return found


@functools.cache
def _floor_of(user: int) -> Floor:
    reasons: list[str] = []
    ways = [Floor("namespace"), Floor("user")] if user == 0 else [Floor("namespace")]
    for floor in ways if sys.platform == "linux" else []:
        told = floor.entry("print(os.getpid(), os.geteuid())", user=stranger())
        try:
            tried = subprocess.run(
                [executable(), "-I", "-S", "-c", told],
                capture_output=True,
                text=True,
                timeout=_PROBE_SECONDS,
                cwd="/",
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            reasons.append(str(error))
            continue
        number, seen_as, *_ = [*map(int, tried.stdout.split()), 0, 0]
        if (floor.way == "namespace" and number == 2) or (
            floor.way == "user" and seen_as != 0 < number
        ):
            return Floor(floor.way, "; ".join(reasons))
        reasons.append((tried.stderr.strip().splitlines() or ["it did not answer"])[-1][:200])
    return Floor("none", "; ".join(reasons) or f"{sys.platform} has none")


def counts_per_namespace() -> bool:
    """Whether a limit of processes counts those of a user namespace alone, as from Linux 5.14 on."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (5, 14)
