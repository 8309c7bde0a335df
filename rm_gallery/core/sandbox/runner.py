"""Where untrusted code runs: what a sandboxed interpreter is started with, limits alone as the last
choice, and which runner there is.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import glob
import marshal
import math
import os
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal, Union

from rm_gallery.core.sandbox.floor import executable, floor, source_of, stranger
from rm_gallery.core.sandbox.process import SandboxLimits, SandboxProcess, end_orphans
from rm_gallery.core.utils.compat import earlier
from rm_gallery.core.utils.errors import SandboxUnavailable

PREFIX = "/py"
"""Neutral place of the interpreter inside: the outside path may hold a user's name."""


def version() -> str:
    """Return 'major.minor'."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def is_package(folder: str) -> bool:
    """Whether a folder is itself a package and no folder of packages."""
    return os.path.isfile(os.path.join(folder, "__init__.py"))


def environment() -> dict[str, str]:
    """Return the whole environment of a sandboxed process: nothing of this process's own reaches
    it.
    """
    return {
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PATH": f"{PREFIX}/bin",
        "PYTHONUTF8": "1",
        # equal answers must behave equally: the order of a set of strings is part of that
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
    }


Setting = Union[int, bool, str, list[str]]
_INSIDE = "rm_gallery.core.sandbox.inside"

# what each role needs, in loading order; the last one holds `serve_ROLE`
_MODULES_OF = {
    "functions": "codec base answer",
    "programs": "codec base answer",
    "testing": "codec base remote suite testing",
    "same_process": "codec base suite same_process",
    "service": "codec base",
    "probe": "codec base",
    "command": "codec base command",
}

# the whole command line of a sandboxed process; marshal is safe here because the bytes come from
# this very process
BOOT = """
import marshal, os, sys
def read(size):
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            os._exit(97)
        data += part
    return data
modules, settings = marshal.loads(read(int.from_bytes(read(8), "big")))
sys.argv[:] = [""]
for name, code in modules:
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
getattr(module, settings["main"])(settings)
"""


@functools.cache
def _modules(role: str) -> tuple[tuple[str, CodeType], ...]:
    return tuple(
        (
            f"{_INSIDE}.{stem}",
            compile(source_of(stem), f"<sandbox {stem}>", "exec", dont_inherit=True, optimize=0),
        )
        for stem in _MODULES_OF[role].split()
    )


def boot_message(role: str, limits: SandboxLimits, settings: Mapping[str, Setting]) -> bytes:
    """Return the bytes a booting process reads first: its modules and its settings."""
    full: dict[str, Setting] = {
        "cpu_seconds": math.ceil(limits.cpu_seconds),
        "memory_bytes": limits.memory_bytes,
        "file_bytes": limits.file_bytes,
        "processes": int(limits.processes),
        "paths": [],
        "main": f"serve_{role}",
        **settings,
    }
    body = marshal.dumps((_modules(role), full))
    return len(body).to_bytes(8, "big") + body


class Runner(abc.ABC):
    """A place where untrusted code runs; instances hold no per-call state and may be shared by
    threads.
    """

    name: str


class LocalRunner(Runner):
    """Starts processes on this machine and talks to them through pipes."""

    walls = True
    """Whether the code is kept away from every other process."""

    @abc.abstractmethod
    def start(self, role: str, limits: SandboxLimits) -> tuple[SandboxProcess, bytes]:
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


_PREFIX = "rm-gallery-"
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


class SubprocessRunner(LocalRunner):
    """Starts each process with limits for CPU, memory, processes and file size, an empty
    environment and a temp folder, on the best floor of this machine (see `floor`).

    There are no walls around files and network: the code can read and change what this user can, so
    a hostile answer can forge its result. With a process namespace it reaches no other process, and
    all it has started ends with it. Where this machine gives none (macOS, many containers) it can
    also end your session and whatever else runs as this user; what it leaves behind is ended, on
    Linux also where it has detached itself. Root's code then runs as another user, or not at all.
    Files elsewhere stay. Use it for code that is trusted not to be hostile. Raises
    SandboxUnavailable on Windows, and as root without a floor.
    """

    name = "subprocess"
    walls = False

    def __init__(self, packages: Sequence[str] = ()) -> None:
        if os.name != "posix":
            raise SandboxUnavailable(
                'sandbox="subprocess" needs resource limits, which only POSIX systems have'
            )
        self._floor = floor()
        self._packages = [
            os.path.dirname(os.path.abspath(p)) if is_package(p) else p for p in packages
        ]

    def start(self, role: str, limits: SandboxLimits) -> tuple[SandboxProcess, bytes]:
        """Start one interpreter in a temp folder of its own; see LocalRunner."""
        _sweep()
        folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
        user = stranger()
        if self._floor.way == "user":
            os.chown(folder, user, user)
        surroundings = {**environment(), "PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder}
        command = [executable(), "-S", "-s", "-c", self._floor.entry(BOOT, user=user)]

        def clean() -> None:
            _WITH_FOLDER.discard(process.pid)
            end_orphans(_WITH_FOLDER)
            remove_folder(folder)

        try:
            process = SandboxProcess(
                command,
                limits=limits,
                environment=surroundings,
                helpers=self._floor.helpers,
                folder=folder,
                after_wait=clean,
            )
        except OSError as error:
            remove_folder(folder)
            raise SandboxUnavailable(f"no child process could be started: {error}") from error
        _WITH_FOLDER.add(process.pid)
        settings: dict[str, Setting] = {
            "paths": self._packages,
            "processes": int(limits.processes) + self._floor.tasks_before(),
        }
        return process, boot_message(role, limits, settings)


_WITH_FOLDER: set[int] = set()
"""Processes that have a folder of their own and are alive."""


def remove_folder(folder: str) -> None:
    """Remove a folder and all in it, however deep it is nested; what may not be removed stays.
    Links are never followed.

    One folder is open at a time and reached from its neighbour, so that depth costs neither
    descriptors nor path length.
    """
    with contextlib.suppress(OSError):
        here = os.open(folder, _FOLDER)
        way = [(folder, _without_files(here))]
        while way:
            name, inner = way[-1]
            if inner:
                with contextlib.suppress(OSError):
                    os.chmod(inner[-1], 0o700, dir_fd=here)
                    below = os.open(inner[-1], _FOLDER, dir_fd=here)
                    os.close(here)
                    here = below
                    way.append((inner.pop(), _without_files(here)))
                    continue
                inner.pop()
                continue
            way.pop()
            if way:
                above = os.open("..", _FOLDER, dir_fd=here)
                os.close(here)
                here = above
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=here)
        os.close(here)
        os.rmdir(folder)


def _without_files(folder: int) -> list[str]:
    """Remove what is no folder; return the names of those that are."""
    inner = []
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                inner.append(name)
            else:
                os.unlink(name, dir_fd=folder)
    return inner


@functools.cache
def _sweep() -> None:
    """Once per process: remove the folders of processes that were killed before they could."""
    for path in glob.glob(os.path.join(tempfile.gettempdir(), f"{_PREFIX}*-*")):
        with contextlib.suppress(ValueError, OSError):
            owner = int(os.path.basename(path).removeprefix(_PREFIX).split("-")[0])
            if owner != os.getpid() and not _alive(owner) and os.lstat(path).st_uid == os.getuid():
                remove_folder(path)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def __getattr__(name: str) -> Any:
    return earlier(__name__, name)
