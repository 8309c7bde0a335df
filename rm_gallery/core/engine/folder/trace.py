"""The trace of a run: for every judgement what was asked, what came back, and what it cost."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rm_gallery.core.engine.folder.files import from_line, mend_tail, read_lines, to_line
from rm_gallery.core.utils.errors import DataError
from rm_gallery.core.utils.secrets import redact

TRACE = "trace.jsonl"


class TraceFile:
    """Appends judgements to `trace.jsonl` of a run folder, one JSON line each, without secrets.

    Safe from any thread. A continued run appends; a line half-written by a killed process is cut off first.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self._path = Path(run_dir) / TRACE
        self._fd = -1
        self._guard = threading.Lock()

    def write(self, entry: dict[str, Any]) -> None:
        """Keep one judgement."""
        line = to_line(redact(entry))
        with self._guard:
            if self._fd < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
                self._fd = os.open(self._path, flags, 0o600)
                mend_tail(self._fd)
            os.write(self._fd, line)

    def close(self) -> None:
        """Release the file."""
        with self._guard:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1


def read_trace(run_dir: str | Path, sample: str | None = None) -> Iterator[dict[str, Any]]:
    """The judgements of a run, or of one sample by its id or key, in the order they were made.

    Raises DataError when the folder holds no trace.
    """
    path = Path(run_dir) / TRACE
    if not path.is_file():
        raise DataError(f"{run_dir} holds no {TRACE}; run it with --trace, or trace=True, to keep prompts and replies.")
    for line in read_lines(path):
        entry = from_line(line)
        if entry is not None and (sample is None or sample in (entry.get("id"), entry.get("sample_key"))):
            yield entry
