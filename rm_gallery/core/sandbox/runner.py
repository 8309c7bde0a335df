"""What every way of running untrusted code offers."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Literal

from rm_gallery.core.sandbox.process import SandboxLimits, SandboxProcess

Role = Literal["functions", "programs", "testing", "service", "probe"]


class Runner(abc.ABC):
    """A place where untrusted code runs; instances hold no per-call state and may be shared by threads."""

    name: str


class LocalRunner(Runner):
    """Starts processes on this machine and talks to them through pipes."""

    walls = True
    """Whether the code is kept away from every other process."""

    @abc.abstractmethod
    def start(self, role: Role, limits: SandboxLimits) -> tuple[SandboxProcess, bytes]:
        """Start one process; return it with the bytes it has to read first.

        Raises SandboxUnavailable when it cannot be started.
        """


@dataclass(frozen=True)
class RemoteResult:
    """How one program ended on a remote runner."""

    status: Literal["finished", "error", "deadline", "output limit"]
    stdout: str
    stderr: str
    exit_code: int | None


class RemoteRunner(Runner):
    """Runs a whole program elsewhere and returns what it printed."""

    @abc.abstractmethod
    async def run(self, code: str, stdin: str, limits: SandboxLimits) -> RemoteResult:
        """Run one Python program.

        Raises ProviderError when the service gives no usable answer.
        """


@dataclass(frozen=True)
class Check:
    """One line of what this machine can do."""

    name: str
    ok: bool
    detail: str
    """What was found."""
    fix: str = ""
    """What to do about it; empty when all is well."""
