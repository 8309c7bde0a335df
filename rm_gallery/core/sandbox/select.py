"""Chooses the runner for untrusted code, and reports what this machine offers for it."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from rm_gallery.core.sandbox import bwrap
from rm_gallery.core.sandbox.bwrap import BwrapRunner
from rm_gallery.core.sandbox.floor import executable, floor
from rm_gallery.core.sandbox.fusion import SandboxFusionRunner
from rm_gallery.core.sandbox.process import tree_usage
from rm_gallery.core.sandbox.runner import Runner, SubprocessRunner, version
from rm_gallery.core.utils.errors import ConfigError, SandboxUnavailable


@dataclass(frozen=True)
class Capability:
    """One line of what this machine can do."""

    name: str
    ok: bool
    detail: str
    """What was found."""
    fix: str = ""
    """What to do about it; empty when all is well."""


def get_runner(sandbox: str = "auto", *, packages: Sequence[str] = ()) -> Runner:
    """Return the runner named by `sandbox`: 'auto' or 'bwrap', 'subprocess', or 'fusion:URL'.

    'auto' is bubblewrap or an error, never silently less. `packages` are folders whose packages the
    code may import (not for 'fusion'). Raises SandboxUnavailable with what to install, ConfigError
    for an unknown name.
    """
    if sandbox in ("auto", "bwrap"):
        return BwrapRunner(packages)
    if sandbox == "subprocess":
        return SubprocessRunner(packages)
    if sandbox.startswith("fusion:"):
        return SandboxFusionRunner(sandbox[len("fusion:") :])
    raise ConfigError(
        f"unknown sandbox {shown_sandbox(sandbox)[:80]!r}; choose 'auto', 'bwrap', 'subprocess' or "
        f"'fusion:http://host:port'"
    )


def shown_sandbox(sandbox: str) -> str:
    """The name of a sandbox as it may be shown: an address without its user, password and query."""
    return re.sub(
        r"[?#].*", "?***", re.sub(r"[^/:]*(:[^/]*)?@", "***@", sandbox, count=1), flags=re.DOTALL
    )


def _process_floor() -> Capability:
    try:
        found = floor()
    except SandboxUnavailable as error:
        return Capability("process floor", False, "none for root", str(error))
    risk = 'with sandbox="subprocess" an answer can end your session'
    said = {
        "namespace": Capability("process floor", True, "a process namespace"),
        "user": Capability("process floor", True, f"another user id ({found.why_not})"),
        "none": Capability("process floor", False, f"none ({found.why_not})", risk),
    }
    return said[found.way]


def doctor() -> list[Capability]:
    """Return what this machine offers for running untrusted code."""
    program = shutil.which("bwrap")
    way, detail = (None, "not installed") if program is None else bwrap.probe(program)
    status = detail if program is None else f"{program}: {detail}"
    filtered, watched = bwrap.system_call_filter() is not None, tree_usage(os.getpid()) is not None
    installed = importlib.util.find_spec("aiohttp") is not None
    machine, python = f"processor {platform.machine()}", f"Python {version()}"
    memory = "reads /proc" if watched else "no /proc here: only the limit per process holds"
    instead = bwrap.INSTALL if program is None else 'or choose sandbox="subprocess"'
    return [
        Capability("bubblewrap", way is not None, status, "" if way else instead),
        _process_floor(),
        Capability(
            "system-call filter",
            filtered,
            machine,
            "" if filtered else "namespaces and limits still hold",
        ),
        Capability("memory watcher", watched, memory),
        Capability("sandboxed interpreter", os.access(executable(), os.X_OK), python),
        Capability(
            "SandboxFusion client",
            installed,
            "aiohttp" if installed else "no aiohttp",
            "" if installed else "pip install aiohttp",
        ),
    ]
