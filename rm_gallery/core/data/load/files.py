"""Bytes and lines of data files, unpacked within bounds."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.utils.errors import DataError, reason_of

Row = dict[str, Any]
RowItem = tuple[RowRef, Row | DataError]
"""A row with its place; a DataError instead of a row that cannot be read."""


def check_not_empty(path: Path) -> None:
    """DataError when the file cannot be read at all, or has no bytes."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not size:
        raise DataError(f"{path}: the file is empty")


ROOM = 1 << 28
"""Bytes that a packed file may always unpack to; above that, a hundred times its size at most."""
COLUMNAR = 1000
"""The factor for parquet, which stores repeated values of a column once."""


def check_unpacked(path: Path, packed: int, unpacked: int, times: int = 100) -> None:
    """DataError for a decompression bomb: data that would unpack to fill the memory."""
    if unpacked > max(ROOM, times * packed):
        raise DataError(
            f"{path}: {packed:,} bytes unpack to more than {unpacked - 1:,}; that is no table (the "
            f"bound is {ROOM:,} bytes, or {times} "
            "times the file). Unpack it and look at it."
        )


T = TypeVar("T")


def kept(items: Iterable[T], keep: Sequence[int] | None) -> Iterator[T]:
    """The items at the positions `keep`, from 0; all of them for None."""
    wanted = None if keep is None else set(keep)
    return (item for at, item in enumerate(items) if wanted is None or at in wanted)


BOM = b"\xef\xbb\xbf"
LONGEST_LINE = 1 << 26
"""Bytes of one JSON line."""


class Unpacking:
    """Counts the unpacked bytes of a file, within the bounds of `check_unpacked`."""

    def __init__(self, path: Path, times: int = 100) -> None:
        self._path, self._packed, self._unpacked = path, path.stat().st_size, 0
        self._times = times

    def expect(self, size: int) -> None:
        """DataError, before reading, where so many bytes would be out of proportion."""
        check_unpacked(self._path, self._packed, self._unpacked + size, self._times)

    def note(self, size: int) -> None:
        """Count bytes; DataError above the bound."""
        self._unpacked += size
        self.expect(0)


class _Unpacked(io.RawIOBase):
    """The bytes of a gzip file."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._room, self._packed = Unpacking(path), gzip.GzipFile(fileobj=file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._packed.readinto(buffer)
        self._room.note(size)
        return size


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked if it ends in .gz; DataError if it is empty or unreadable."""
    check_not_empty(path)
    compressed = path.name.lower().endswith(".gz")
    try:
        with path.open("rb") as file:
            yield cast(IO[bytes], io.BufferedReader(_Unpacked(path, file))) if compressed else file
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {reason_of(error)}") from error


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers from 1, without a byte order mark."""
    with open_bytes(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
            if len(line) > LONGEST_LINE:
                raise DataError(
                    f"{RowRef(str(path), number, 'line')}: longer than {LONGEST_LINE:,} bytes, the "
                    f"most one line may have"
                )
            yield number, line.removeprefix(BOM) if number == 1 else line
