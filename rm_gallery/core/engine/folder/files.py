"""Files of a run that survive a kill at any moment: whole or not at all, line by line."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from rm_gallery.core.utils.errors import DataError

_BLOCK = 1 << 20


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file by `data`: readers and a later run see the old content or the new, nothing in between."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename in it last through a power cut, where the system can."""
    if os.name == "nt":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # not every file system can
            raise
    finally:
        os.close(fd)


def to_line(record: dict[str, Any]) -> bytes:
    """A record as one JSON line with its line end.

    Raises:
        DataError: it holds something JSON has no form for.
    """
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        # Lone surrogates, integers above 64 bit, keys that are no strings: slower, and escaped.
        try:
            return json.dumps(record).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise DataError(f"the record of {record.get('id')!r} cannot be written as JSON: {error}") from None


def from_line(line: bytes) -> dict[str, Any] | None:
    """The record in a line; None when the line holds none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            record = json.loads(line)
        except ValueError:
            return None
    return record if isinstance(record, dict) else None


def read_lines(path: Path) -> Iterator[bytes]:
    """The non-empty lines of a file that may not exist, one in memory at a time."""
    try:
        file = open(path, "rb")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            if line.strip():
                yield line


def mend_tail(fd: int) -> int:
    """Cut a half-written last line, or end a whole one that lacks its line end; returns the bytes cut.

    `fd` is open for reading and appending.
    """
    end = os.lseek(fd, 0, os.SEEK_END)
    start = _line_start(fd, end)
    if start == end:
        return 0
    os.lseek(fd, start, os.SEEK_SET)
    tail = os.read(fd, end - start)
    if from_line(tail) is not None:
        os.write(fd, b"\n")
        return 0
    os.ftruncate(fd, start)
    return end - start


def _line_start(fd: int, end: int) -> int:
    """Where the text after the last line end before `end` begins."""
    position = end
    while position > 0:
        step = min(_BLOCK, position)
        position -= step
        os.lseek(fd, position, os.SEEK_SET)
        found = os.read(fd, step).rfind(b"\n")
        if found >= 0:
            return position + found + 1
    return 0
