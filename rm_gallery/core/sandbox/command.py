"""Runs one Python program of a task on a copy of a workspace, in the sandbox."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rm_gallery.core.engine.pool import WorkerCrashed, get_pool, processors
from rm_gallery.core.sandbox.attempt import exit_reason, hear
from rm_gallery.core.sandbox.process import SandboxLimits, not_started
from rm_gallery.core.sandbox.runner import LocalRunner
from rm_gallery.core.sandbox.select import get_runner
from rm_gallery.core.sandbox.workspace import (
    ReadBounds,
    Workspace,
    folder_for_all,
    place,
    temporary_folder,
)
from rm_gallery.core.utils.errors import ConfigError

_AROUND = 60.0
"""Seconds for copying and starting, beside the program's own."""


@dataclass(frozen=True)
class ProgramRun:
    """How a program ended."""

    exit_code: int | None = None
    """Negative for a signal; None where it was stopped."""
    stdout: str = ""
    last_line: str = ""
    """Of what it printed to stderr."""
    stopped: str = ""
    """'' or why it was stopped: deadline, memory, processes, output limit."""


@dataclass(frozen=True)
class Program:
    """A Python program: `python FILE …` or `python -c CODE …`, with the check's own files.

    `files`, path to text, are written to the copy in place of what is there. Only a FILE that is not
    among them is the workspace's, and only then its folder is importable.
    """

    arguments: Sequence[str]
    files: Mapping[str, str]
    stdin: str = ""

    def job(self) -> dict[str, object]:
        """What the sandboxed process is told."""
        first, *rest = self.arguments
        if first == "-c":
            return {"how": "code", "what": rest[0], "arguments": list(rest[1:])}
        how = "own" if first in self.files else "theirs"
        return {"how": how, "what": first, "arguments": rest}


async def run_on_copy(
    folder: str,
    program: Program,
    *,
    sandbox: str,
    packages: Sequence[str],
    limits: SandboxLimits,
    bounds: ReadBounds,
) -> ProgramRun:
    """Run a program on a copy of `folder`, without network and with limits, and tell how it ended.

    The copy is read-only in bubblewrap. Nothing in it reaches the interpreter's start: no
    environment, no site or user packages, no start-up file. Raises SandboxUnavailable when there is
    no sandbox, StateFault when the folder holds too much, ConfigError for a sandbox elsewhere.
    """
    get_runner(sandbox)  # whether there is one, before anything is copied
    pool = get_pool("sandbox", max_workers=processors() + 1)
    arguments = (folder, program, sandbox, tuple(packages), limits, bounds)
    try:
        return await pool.asubmit(
            _copied_and_run, *arguments, deadline=limits.wall_seconds + _AROUND
        )
    except WorkerCrashed:
        if sandbox != "subprocess":
            raise
        # without walls the program can kill whoever runs it, and must gain nothing by it
        return ProgramRun(stopped="tampering")


def _copied_and_run(
    folder: str,
    program: Program,
    sandbox: str,
    packages: Sequence[str],
    limits: SandboxLimits,
    bounds: ReadBounds,
) -> ProgramRun:
    with temporary_folder() as shown:
        runner = get_runner(sandbox, packages=[*packages, shown])
        if not isinstance(runner, LocalRunner):
            raise ConfigError("a workspace is not sent elsewhere: choose sandbox='auto'.")
        copy = f"{shown}/workspace"
        folder_for_all(copy)
        with Workspace(folder, bounds) as workspace:
            workspace.copy_to(copy)
        for path, text in program.files.items():
            place(copy, path, text)
        return run_program(runner, program, limits)


def run_program(runner: LocalRunner, program: Program, limits: SandboxLimits) -> ProgramRun:
    """Run a program in the folder `workspace` of the last folder that `runner` shows."""
    heard = hear(
        runner.start("command", limits),
        limits,
        time.monotonic() + limits.wall_seconds + _AROUND,
        program.job(),
        stdin=program.stdin.encode("utf-8", "surrogatepass"),
    )
    if not heard.began:
        raise not_started(heard.last_line or str(heard.code))
    stopped, code = heard.stopped, heard.code
    if not stopped and exit_reason(code) == "deadline":
        stopped = "deadline"
    text = heard.said.decode("utf-8", "replace")
    return ProgramRun(None if stopped else code, text, heard.last_line, stopped)
