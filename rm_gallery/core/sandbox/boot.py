"""What a sandboxed interpreter needs to start: its files and environment, and the inside modules sent to it as bytes."""

from __future__ import annotations

import abc
import functools
import importlib.resources
import marshal
import math
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Literal, Union

from rm_gallery.core.sandbox.process import SandboxLimits, SandboxProcess

PREFIX = "/py"
"""Neutral place of the interpreter inside: the outside path may hold a user's name."""

_SYSTEM_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/lib32", "/lib", "/lib64", "/lib32")


def executable() -> str:
    """Return the real interpreter behind this process, outside of any virtual environment."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    return os.path.realpath(base)


def inside_executable() -> str:
    """Return the interpreter's path inside the sandbox."""
    return f"{PREFIX}/bin/python{version()}"


def version() -> str:
    """Return 'major.minor'."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


@functools.cache
def mounts() -> tuple[str, ...]:
    """Return the bubblewrap options that make the interpreter and the system's libraries visible, read-only.

    Folders of installed packages are covered by empty ones: what is installed beside the interpreter is nobody's business
    inside, and it may hold the project itself.
    """
    options: list[str] = []
    if executable().startswith("/nix/"):
        options += ["--dir", "/nix", "--ro-bind", "/nix/store", "/nix/store"]
    for path in _SYSTEM_LIBRARIES:
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            options += ["--ro-bind", path, path]
    options += ["--ro-bind", executable(), inside_executable()]
    libraries = Path(sys.base_prefix) / "lib"
    standard = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    inside_standard = f"{PREFIX}/{sys.platlibdir}/python{version()}"
    if sys.base_prefix == "/usr" or not standard.is_relative_to(libraries):
        options += ["--ro-bind", str(standard), inside_standard]
        hidden = ["/usr/lib/python3/dist-packages", f"/usr/lib/python{version()}/dist-packages"]
        hidden += [f"{inside_standard}/{name}" for name in ("site-packages", "dist-packages") if (standard / name).is_dir()]
    else:
        options += ["--ro-bind", str(libraries), f"{PREFIX}/lib"]
        hidden = [f"{PREFIX}/lib/{path.parent.name}/{path.name}" for path in libraries.glob("python3*/*-packages")]
    for path in hidden:
        if path.startswith(PREFIX) or os.path.isdir(path):
            options += ["--tmpfs", path, "--remount-ro", path]
    return tuple(options)


def package_mounts(folders: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options that make extra package folders visible, and their paths inside.

    A folder that is itself a package (it holds `__init__.py`) is visible alone, without what lies beside it.
    """
    options: list[str] = []
    inside: list[str] = []
    for number, folder in enumerate(folders):
        inside.append(f"/packages/{number}")
        target = inside[-1]
        if is_package(folder):
            options += ["--dir", target]
            target += f"/{os.path.basename(os.path.abspath(folder))}"
        options += ["--ro-bind", os.path.realpath(folder), target]
    return options, inside


def is_package(folder: str) -> bool:
    """Whether a folder is itself a package and no folder of packages."""
    return os.path.isfile(os.path.join(folder, "__init__.py"))


def environment() -> dict[str, str]:
    """Return the whole environment of a sandboxed process: nothing of this process's own reaches it."""
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
_MODULES_OF: dict[str, tuple[str, ...]] = {
    "functions": ("codec", "base", "answer"),
    "programs": ("codec", "base", "answer"),
    "testing": ("codec", "base", "remote", "testing"),
    "service": ("codec", "base", "service"),
    "probe": ("codec", "base"),
}

# the whole command line of a sandboxed process; marshal is safe here because the bytes come from this very process
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
    found = []
    for stem in _MODULES_OF[role]:
        name = f"{_INSIDE}.{stem}"
        found.append((name, compile(source_of(stem), f"<sandbox {stem}>", "exec", dont_inherit=True, optimize=0)))
    return tuple(found)


def source_of(stem: str) -> str:
    """Return the source text of one inside module."""
    return (importlib.resources.files(_INSIDE) / f"{stem}.py").read_text(encoding="utf-8")


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
