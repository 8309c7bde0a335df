"""Untrusted code inside bubblewrap: own namespaces, no network, a read-only view of the interpreter
and nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rm_gallery.core.sandbox.floor import counts_per_namespace, executable, stranger
from rm_gallery.core.sandbox.inside.codec import CodecError, decode
from rm_gallery.core.sandbox.process import (
    Prints,
    Pump,
    SandboxLimits,
    SandboxProcess,
    tasks_of_user,
    with_job,
)
from rm_gallery.core.sandbox.runner import (
    BOOT,
    PREFIX,
    LocalRunner,
    Setting,
    boot_message,
    environment,
    is_package,
    version,
)
from rm_gallery.core.utils.errors import SandboxUnavailable

_REAP_SECONDS = 2.0


def _collect(info: int) -> None:
    # a program that ended by itself lets the monitor go before its child: if we are the one who
    # adopts orphans, the remains are ours to collect; for anybody else's child the system says
    # so at once
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        inner = int(json.loads(os.read(info, 4096))["child-pid"])
        until = time.monotonic() + _REAP_SECONDS
        while os.waitpid(inner, os.WNOHANG)[0] == 0 and time.monotonic() < until:
            time.sleep(0.002)
    os.close(info)


INSTALL = (
    "apt-get install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora), apk add "
    "bubblewrap (Alpine)"
)
_PROBE_SECONDS = 20.0
_WORKING: dict[str, tuple[str, str]] = {}


class BwrapRunner(LocalRunner):
    """Starts each process in a bubblewrap sandbox of its own.

    Inside there are the interpreter, the system's libraries, three harmless devices and an empty
    temp folder; no /proc, no home, no network, no other sample's files, a handful of fixed
    environment variables. `packages` are folders that become importable, read-only (for instance
    one with numpy); everyone must be allowed to read them. Raises SandboxUnavailable where
    bubblewrap is missing or may not run.
    """

    name = "bwrap"

    def __init__(self, packages: Sequence[str] = ()) -> None:
        program = shutil.which("bwrap")
        if program is None:
            raise SandboxUnavailable(unavailable("bubblewrap is not installed"))
        way, reason = probe(program)
        if way is None:
            raise SandboxUnavailable(unavailable(reason))
        self._program = program
        self._way = way
        self._packages = tuple(packages)

    def start(self, role: str, limits: SandboxLimits) -> tuple[SandboxProcess, bytes]:
        """Start one sandboxed interpreter; see LocalRunner."""
        return _start_process(self._program, self._way, role, limits, self._packages)


def unavailable(reason: str) -> str:
    """Return the message that says why there is no sandbox and what can be done."""
    return (
        f"running untrusted code needs bubblewrap, and {reason}. Install it with: {INSTALL}. "
        'Or accept weaker walls on purpose: sandbox="subprocess" runs with resource limits alone '
        '(the code can read and change files and use the network), sandbox="fusion:URL" '
        "uses a SandboxFusion service."
    )


def _start_process(
    program: str, way: str, role: str, limits: SandboxLimits, packages: Sequence[str] = ()
) -> tuple[SandboxProcess, bytes]:
    visible, inside = package_mounts(packages)
    settings: dict[str, Setting] = {"strict": True, "paths": inside}
    if way == "root":
        # a user of its own per sandbox: the kernel exempts root from process limits, and counts
        # every other user's
        settings["user"] = stranger()
    elif not counts_per_namespace():
        settings["processes"] = int(limits.processes) + tasks_of_user()
    info, info_write = os.pipe()
    descriptors = [info_write]
    try:
        options = [
            program,
            *_walls(way),
            *mounts(),
            *visible,
            *_temp(program, limits),
            *("--remount-ro", "/", "--info-fd", str(info_write)),
        ]
        filter_program = system_call_filter()
        if filter_program is not None:
            reader, writer = os.pipe()
            os.write(writer, filter_program)
            os.close(writer)
            descriptors.append(reader)
            options += ["--seccomp", str(reader)]
        # outermost a monitor; below it process 1 of the sandbox; below that the boot
        process = SandboxProcess(
            [*options, "--", f"{PREFIX}/bin/python{version()}", "-S", "-s", "-c", BOOT],
            limits=limits,
            environment=environment(),
            helpers=2,
            pass_fds=descriptors,
            folder="/",
            after_wait=functools.partial(_collect, info),
        )
    except BaseException as error:
        os.close(info)
        if isinstance(error, OSError):
            raise SandboxUnavailable(f"bubblewrap could not be started: {error}") from error
        raise
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return process, boot_message(role, limits, settings)


def _walls(way: str) -> list[str]:
    options = f"{_ALONE} {_ROOT if way == 'root' else _USER}".split()
    # folders made only as the way to a mount would be closed to the sandbox's user
    for folder in ("/dev", "/usr", "/packages", PREFIX, f"{PREFIX}/bin"):
        options += ["--dir", folder]
    for device in ("null", "zero", "urandom"):
        options += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    return options


_ALONE = f"--die-with-parent --new-session --hostname sandbox --setenv LD_LIBRARY_PATH {PREFIX}/lib"
_USER = "--unshare-all --uid 65534 --gid 65534"
# without a user namespace: the id that is switched to inside is then a real stranger to the whole
# machine
_ROOT = (
    "--unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try "
    "--cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID"
)
_SYSTEM_LIBRARIES = "/usr/lib /usr/lib64 /usr/lib32 /lib /lib64 /lib32".split()


@functools.cache
def mounts() -> tuple[str, ...]:
    """Return the bubblewrap options that make the interpreter and the system's libraries visible,
    read-only.

    Folders of installed packages are covered by empty ones: what is installed beside the
    interpreter is nobody's business inside, and it may hold the project itself.
    """
    options: list[str] = []
    if executable().startswith("/nix/"):
        options += ["--dir", "/nix", "--ro-bind", "/nix/store", "/nix/store"]
    for path in _SYSTEM_LIBRARIES:
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            options += ["--ro-bind", path, path]
    options += ["--ro-bind", executable(), f"{PREFIX}/bin/python{version()}"]
    libraries = Path(sys.base_prefix) / "lib"
    standard = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    hidden = []
    shown, inside, packages = libraries, f"{PREFIX}/lib", "python3*/*-packages"
    if sys.base_prefix == "/usr" or not standard.is_relative_to(libraries):
        shown, packages = standard, "*-packages"
        inside = f"{PREFIX}/{sys.platlibdir}/python{version()}"
        hidden = ["/usr/lib/python3/dist-packages", f"/usr/lib/python{version()}/dist-packages"]
    options += ["--ro-bind", str(shown), inside]
    hidden += [f"{inside}/{path.relative_to(shown)}" for path in shown.glob(packages)]
    for path in hidden:
        if path.startswith(PREFIX) or os.path.isdir(path):
            options += ["--tmpfs", path, "--remount-ro", path]
    return tuple(options)


def package_mounts(folders: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options that make extra package folders visible, and their paths inside.

    A folder that is itself a package (it holds `__init__.py`) is visible alone, without what lies
    beside it.
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


def _temp(program: str, limits: SandboxLimits) -> list[str]:
    if {"--size", "--perms"} <= _bwrap_options(program):
        return f"--perms 1777 --size {limits.file_bytes} --tmpfs /tmp --chdir /tmp".split()
    # a folder whose size cannot be bounded is no place for strangers to write
    return "--tmpfs /tmp --remount-ro /tmp --chdir /tmp".split()


@functools.cache
def _bwrap_options(program: str) -> frozenset[str]:
    text = subprocess.run(
        [program, "--help"], capture_output=True, text=True, timeout=10, check=False
    ).stdout
    return frozenset(re.findall(r"--[a-z-]+", text))


def probe(program: str) -> tuple[str | None, str]:
    """Try the sandbox; return the way that works ('root' or 'user') or None, and why. A success is
    remembered.
    """
    if program in _WORKING:
        return _WORKING[program]
    for way in ["root", "user"] if os.geteuid() == 0 else ["user"]:
        reason = _try(program, way)
        if not reason:
            how = "own user id" if way == "root" else "user namespace"
            return _WORKING.setdefault(program, (way, f"works ({how})"))
    return None, f"it does not work here: {reason}"


def _try(program: str, way: str) -> str:
    limits = SandboxLimits(processes=8, wall_seconds=_PROBE_SECONDS)
    try:
        facts, prints = _probe_facts(program, way, limits)
    except (OSError, SandboxUnavailable, subprocess.SubprocessError) as error:
        return str(error)
    if facts is None:
        return (prints.last_line or "it did not answer") + _hint(prints.text)
    if (
        facts.get("sees_outside_file")
        or facts.get("can_write_root")
        or set(facts.get("interfaces", ["?"])) - {"lo"}
    ):
        return (
            "the sandbox leaks: an outside file, a writable root or a network interface is visible "
            "inside"
        )
    if not facts.get("can_fork"):
        return "no process can be started inside"
    return (
        "" if facts.get("processes_bounded") or way == "user" else "the process limit does not hold"
    )


def _probe_facts(
    program: str, way: str, limits: SandboxLimits
) -> tuple[dict[str, Any] | None, Prints]:
    started, said = _start_process(program, way, "probe", limits), bytearray()
    with Pump() as pump, with_job(started, pump, os.path.abspath(__file__), said.extend) as one:
        until = time.monotonic() + _PROBE_SECONDS
        while one.exit_code(0) is None and time.monotonic() < until:
            pump.turn(0.05)
        pump.turn(0)
    try:
        facts = decode(bytes(said[4:]))
    except CodecError:
        facts = None
    return (facts if isinstance(facts, dict) else None), one.prints


def _hint(stderr: str) -> str:
    if "namespace" in stderr or "uid map" in stderr or "Operation not permitted" in stderr:
        return (
            " (user namespaces seem to be forbidden: allow them with sysctl "
            "kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0, "
            "or start the container with --security-opt seccomp=unconfined)"
        )
    return ""


_DENIED = """
# memory that no per-process limit counts
memfd_create        319      279
memfd_secret        447      447
shmget               29      194
msgget               68      186
semget               64      190
mq_open             240      180
# the network; a namespace of its own does not cover every address family
socket               41      198
# new namespaces and mounts
unshare             272       97
setns               308      268
mount               165       40
umount2             166       39
pivot_root          155       41
chroot              161       51
open_tree           428      428
move_mount          429      429
fsopen              430      430
fsconfig            431      431
fsmount             432      432
fspick              433      433
mount_setattr       442      442
# other processes
ptrace              101      117
process_vm_readv    310      270
process_vm_writev   311      271
pidfd_getfd         438      438
kcmp                312      272
# kernel interfaces with a history of holes
bpf                 321      280
perf_event_open     298      241
userfaultfd         323      282
io_uring_setup      425      425
io_uring_enter      426      426
io_uring_register   427      427
add_key             248      217
request_key         249      218
keyctl              250      219
personality         135       92
syslog              103      116
open_by_handle_at   304      265
"""
"""System calls and their numbers, x86_64 and aarch64."""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE = (56, 220)
_CLONE3 = 435
# CLONE_NEWTIME shares its bit with the exit signal's mask and is only valid for clone3 and unshare
_NEW_NAMESPACES = 0x7E020000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38


def system_call_filter(machine: str | None = None) -> bytes | None:
    """Return the filter for this processor as packed BPF instructions, or None for a processor it
    does not know.

    Denied calls fail with EPERM; clone3 fails with ENOSYS so that the C library falls back to
    clone, whose flags can be seen.
    """
    known = _ARCHITECTURES.get(machine or platform.machine())
    if known is None:
        return None
    column, audit = known
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    if column == 0:  # the x32 numbers would slip past the table
        code += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    numbers = [int(line.split()[1 + column]) for line in re.findall(r"(?m)^\w.*", _DENIED)]
    for number, error in (*((number, _EPERM) for number in numbers), (_CLONE3, _ENOSYS)):
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    code += [(_EQUAL, 0, 3, _CLONE[column]), (_LOAD, 0, 0, 16), (_ANY_BIT, 0, 1, _NEW_NAMESPACES)]
    code += [(_RETURN, 0, 0, _ERRNO | _EPERM), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
