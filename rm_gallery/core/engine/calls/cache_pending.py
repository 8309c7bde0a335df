"""Replies on their way into the cache file: appended in microseconds, safe from `kill -9`, stored in bulk later."""

from __future__ import annotations

import os
import struct
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

from rm_gallery.core.engine.folder.files import try_lock

# sha256 key, length and CRC-32 of the value, then the value.
_HEAD = struct.Struct("<32sII")
_INFIX = ".pending-"
# A file is locked right after it is made; until then it is empty.
_SETTLED = 60.0

# Files of this process: opening and closing one of them again would drop its lock.
_own: set[str] = set()


class PendingLog:
    """Append-only side file of one process; its lock, freed by the owner's death, tells whether it is orphaned.

    Raises:
        OSError: the file cannot be made or locked.
    """

    def __init__(self, cache: Path) -> None:
        while True:
            self.path = cache.with_name(f"{cache.name}{_INFIX}{os.getpid()}-{uuid.uuid4().hex[:12]}")
            _own.add(str(self.path))
            self._fd = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600
            )
            if try_lock(self._fd) and self.path.exists():
                return
            self.abandon()

    def append(self, key: str, value: bytes) -> None:
        """Hand a reply to the operating system; raises OSError when the disk is full."""
        data = _HEAD.pack(bytes.fromhex(key), len(value), zlib.crc32(value)) + value
        written = os.write(self._fd, data)
        while written < len(data):
            written += os.write(self._fd, data[written:])

    def reset(self) -> bool:
        """Empty the file, because what it held is in the cache file now; whether it can be used again."""
        try:
            os.ftruncate(self._fd, 0)
        except OSError:
            return False
        return True

    def abandon(self) -> None:
        """Close the file and leave it to whoever opens the cache next."""
        os.close(self._fd)
        _own.discard(str(self.path))

    def remove(self) -> None:
        """Close and delete the file."""
        self.abandon()
        self.path.unlink(missing_ok=True)


def forget_own() -> None:
    """In a forked child: the parent's files are the parent's."""
    _own.clear()


def orphans(cache: Path) -> Iterator[list[tuple[str, bytes]]]:
    """What processes that died left behind, file by file; a file is deleted when the next one is asked for."""
    for path in sorted(cache.parent.glob(f"{cache.name}{_INFIX}*")):
        if str(path) in _own:
            continue
        try:
            fd = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        except OSError:
            continue
        try:
            status = os.fstat(fd)
            young_and_empty = not status.st_size and time.time() - status.st_mtime < _SETTLED
            if young_and_empty or not try_lock(fd):
                continue
            with open(fd, "rb", closefd=False) as file:
                rows = list(_parse(file.read()))
            if rows:
                yield rows
        finally:
            os.close(fd)
        path.unlink(missing_ok=True)


def _parse(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The whole entries of a file; the last one may be torn."""
    position = 0
    while position + _HEAD.size <= len(data):
        key, length, checksum = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        value = data[position : position + length]
        if len(value) != length or zlib.crc32(value) != checksum:
            return
        yield key.hex(), value
        position += length
