"""The scores a reward gave lately, by group, in this process or in all processes of one job on this
machine.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

LATELY = 128
"""Scores that are remembered: about a step of a small run, so that what is remembered is of nearly
the present policy.
"""
_HEAD = struct.Struct("<Q")
_ENTRY = struct.Struct("<Qd")
_SIZE = _HEAD.size + LATELY * _ENTRY.size
_KEPT_SECONDS = 86_400.0


class Recent:
    """A ring of the last scores."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, float]] = []

    def add(self, group: int, scores: Sequence[float]) -> None:
        """Remember the scores of a group."""
        self._entries = [*self._entries, *((group, score) for score in scores)][-LATELY:]

    def mean(self, group: int) -> float | None:
        """The mean of the group's last scores, with that of all last ones as one more; None before
        the first score.
        """
        entries = self._all()
        if not entries:
            return None
        own = [score for name, score in entries if name == group]
        overall = sum(score for _, score in entries) / len(entries)
        return (sum(own) + overall) / (len(own) + 1)

    def _all(self) -> list[tuple[int, float]]:
        return self._entries


class SharedRecent(Recent):
    """The same in a file that processes map: trainers spread a group's completions over workers,
    each of which sees few of them.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if os.fstat(self._file).st_size < _SIZE:
            os.ftruncate(self._file, _SIZE)
        self._map = mmap.mmap(self._file, _SIZE)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._file)

    def add(self, group: int, scores: Sequence[float]) -> None:
        """Remember the scores of a group."""
        import fcntl

        if not scores:
            return
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            (count,) = _HEAD.unpack_from(self._map)
            for score in scores:
                _ENTRY.pack_into(self._map, _HEAD.size + count % LATELY * _ENTRY.size, group, score)
                count += 1
            _HEAD.pack_into(self._map, 0, count)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _all(self) -> list[tuple[int, float]]:
        import fcntl

        fcntl.flock(self._file, fcntl.LOCK_SH)
        try:
            (count,) = _HEAD.unpack_from(self._map)
            size = min(count, LATELY) * _ENTRY.size
            return list(_ENTRY.iter_unpack(self._map[_HEAD.size : _HEAD.size + size]))
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def recent_scores(reward: str) -> Recent:
    """The last scores of a reward: shared by the processes of one Ray job on this machine, else
    this process's own.
    """
    job = os.environ.get("RAY_JOB_ID")
    if not (job and reward):
        return Recent()
    with suppress(ImportError, OSError):  # no locks on Windows, no place to write
        import fcntl  # noqa: F401

        # workers of a job have one parent, and numbers of jobs begin anew with each cluster
        name = hashlib.sha256("\0".join((job, str(os.getppid()), reward)).encode()).hexdigest()[:24]
        folder = Path(tempfile.gettempdir()) / f"rm-gallery-scores-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return Recent()
        for old in folder.iterdir():
            if time.time() - old.stat().st_mtime > _KEPT_SECONDS:
                old.unlink(missing_ok=True)
        return SharedRecent(folder / name)
    return Recent()
