"""Choosing where untrusted code runs, limits alone as the last choice, and telling what is available here."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from rm_gallery.core.sandbox import boot, bwrap
from rm_gallery.core.sandbox.boot import BOOT, Setting, boot_message
from rm_gallery.core.sandbox.process import SandboxLimits, SandboxProcess, end_orphans, tasks_of_user, tree_usage
from rm_gallery.core.sandbox.runner import Check, LocalRunner, Role, Runner
from rm_gallery.core.utils.errors import ConfigError, SandboxUnavailable


class SubprocessRunner(LocalRunner):
    """Starts each process with limits for CPU, memory, processes and file size, an empty environment and a temp folder.

    There are no walls. The code can read and change every file that this user can, use the network, and reach other
    processes of this user: through /proc also the one that runs the tests, so a hostile answer can forge its result. What a
    test process leaves behind is ended and its temp folder removed, on Linux also where it has detached itself; files
    elsewhere stay. Use it for code that is trusted not to be hostile. Raises SandboxUnavailable on Windows.
    """

    name = "subprocess"
    walls = False

    def __init__(self, packages: Sequence[str] = ()) -> None:
        if os.name != "posix":
            raise SandboxUnavailable('sandbox="subprocess" needs resource limits, which only POSIX systems have')
        self._packages = list(packages)

    def start(self, role: Role, limits: SandboxLimits) -> tuple[SandboxProcess, bytes]:
        """Start one interpreter in a temp folder of its own; see LocalRunner."""
        folder = tempfile.mkdtemp(prefix="rm-gallery-")
        environment = {**boot.environment(), "PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder}
        command = [boot.executable(), "-S", "-s", "-c", BOOT]
        try:
            process = _ProcessInFolder(command, limits=limits, environment=environment, folder=folder)
        except OSError as error:
            remove_folder(folder)
            raise SandboxUnavailable(f"no child process could be started: {error}") from error
        settings: dict[str, Setting] = {
            "paths": self._packages,
            # the kernel counts all processes of the user here, so the limit starts from those that are there
            "processes": int(limits.processes) + tasks_of_user(),
        }
        return process, boot_message(role, limits, settings)


class _ProcessInFolder(SandboxProcess):
    alive: ClassVar[set[int]] = set()

    def __init__(
        self, command: Sequence[str], *, limits: SandboxLimits, environment: Mapping[str, str], folder: str
    ) -> None:
        super().__init__(command, limits=limits, environment=environment, folder=folder)
        self._folder = folder
        self.alive.add(self.pid)

    def _after_wait(self) -> None:
        self.alive.discard(self.pid)
        end_orphans(self.alive)
        remove_folder(self._folder)


def remove_folder(folder: str) -> None:
    """Remove a folder and all in it, however deep it is nested; what may not be removed stays.

    Each folder's entries move up to the top before it goes, so that neither the length of a path nor the number of open
    folders grows with the depth. Links are removed, never followed.
    """
    with contextlib.suppress(OSError):
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            number = itertools.count()
            stuck: set[str] = set()
            while names := [name for name in os.listdir(top) if name not in stuck]:
                stuck.update(name for name in names if not _removed(name, top, number))
        finally:
            os.close(top)
        os.rmdir(folder)


def _removed(name: str, top: int, number: Iterator[int]) -> bool:
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
            os.unlink(name, dir_fd=top)
            return True
        os.chmod(name, 0o700, dir_fd=top)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
        try:
            for entry in os.listdir(inner):
                if stat.S_ISDIR(os.lstat(entry, dir_fd=inner).st_mode):
                    os.chmod(entry, 0o700, dir_fd=inner)  # a closed folder cannot be moved
                os.rename(entry, f".rm-gallery-{next(number)}", src_dir_fd=inner, dst_dir_fd=top)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=top)
    except OSError:
        return False
    return True


def get_runner(sandbox: str = "auto", *, packages: Sequence[str] = ()) -> Runner:
    """Return the runner named by `sandbox`: 'auto' or 'bwrap', 'subprocess', or 'fusion:URL'.

    'auto' is bubblewrap or an error, never silently less. `packages` are folders whose packages the code may import (not for
    'fusion'). Raises SandboxUnavailable with what to install, ConfigError for an unknown name.
    """
    if sandbox in ("auto", "bwrap"):
        return bwrap.BwrapRunner(packages)
    if sandbox == "subprocess":
        return SubprocessRunner(packages)
    if sandbox.startswith("fusion:"):
        from rm_gallery.core.sandbox.fusion import SandboxFusionRunner

        return SandboxFusionRunner(sandbox[len("fusion:") :])
    raise ConfigError(f"unknown sandbox {sandbox!r}; choose 'auto', 'bwrap', 'subprocess' or 'fusion:http://host:port'")


def doctor() -> list[Check]:
    """Return what this machine offers for running untrusted code."""
    return [_bubblewrap(), _filter(), _watcher(), _interpreter(), _fusion()]


def _bubblewrap() -> Check:
    program = shutil.which("bwrap")
    if program is None:
        return Check("bubblewrap", False, "not installed", bwrap.INSTALL)
    way, detail = bwrap.probe(program)
    return Check("bubblewrap", way is not None, f"{program}: {detail}", "" if way else 'or choose sandbox="subprocess"')


def _filter() -> Check:
    machine = platform.machine()
    known = bwrap.system_call_filter() is not None
    return Check(
        "system-call filter", known, f"processor {machine}", "" if known else "namespaces and limits still hold"
    )


def _watcher() -> Check:
    seen = tree_usage(os.getpid()) is not None
    return Check("memory watcher", seen, "reads /proc" if seen else "no /proc here: only the limit per process holds")


def _interpreter() -> Check:
    path = boot.executable()
    return Check("sandboxed interpreter", os.access(path, os.X_OK), f"Python {boot.version()}")


def _fusion() -> Check:
    found = importlib.util.find_spec("aiohttp") is not None
    return Check(
        "SandboxFusion client", found, "aiohttp" if found else "no aiohttp", "" if found else "pip install aiohttp"
    )
