"""Starts a Python program in a folder that is shown to the sandbox, with nothing of that folder in
its interpreter's start.
"""

from __future__ import annotations

import os
import sys

from rm_gallery.core.sandbox.inside.base import Channel, confine
from rm_gallery.core.sandbox.inside.codec import decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_START = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
how, what, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path += sys.argv[4:4 + count]
sys.argv[:] = [what if how != "code" else "-c", *sys.argv[4 + count:]]
if how == "code":
    exec(compile(what, "<check>", "exec"), {"__name__": "__main__"})
else:
    import os, runpy
    if how == "theirs":
        sys.path.insert(0, os.path.dirname(os.path.abspath(what)))
    runpy.run_path(what, run_name="__main__")
"""


def serve_command(settings: Mapping[str, Any]) -> None:
    """Confine this process and become the program; the last of the shown folders is its own.

    The first message is `{"how", "what", "arguments"}`: `how` is "code" for a text, "own" for a file
    of the check, "theirs" for one of the workspace, whose folder alone is importable. What
    is written first is an empty message; all else is the program's.
    """
    confine(settings)
    channel = Channel(0, 1)
    job: Any = decode(channel.read())
    *packages, folder = settings["paths"]
    os.chdir(f"{folder}/workspace")
    channel.write(b"")
    command = [sys.executable, "-S", "-s", "-B", "-c", _START]
    arguments = [job["how"], job["what"], str(len(packages)), *packages, *job["arguments"]]
    os.execv(sys.executable, [*command, *arguments])
