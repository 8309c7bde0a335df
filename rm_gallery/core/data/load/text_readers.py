"""Rows out of JSON and JSON lines, in UTF-8 with or without a byte order mark."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import orjson

from rm_gallery.core.data.load.converters import RowRef, nearest, shown
from rm_gallery.core.data.load.readers import Row, RowItem, check_not_empty, check_unpacked
from rm_gallery.core.data.load.result_files import HARNESS, converted, harness_row, is_harness_row, tool_rows
from rm_gallery.core.utils.errors import DataError

_BOM = b"\xef\xbb\xbf"
LONGEST_LINE = 1 << 26
"""Bytes of one JSON line."""
_RECORD_KEYS = ("data", "records", "rows", "samples", "examples", "instances", "datasamples")


class JsonLinesSource:
    """A file with one JSON object per line; blank lines are no rows.

    Samples of lm-evaluation-harness hold each reply once per filter: of several filters `part` names the one that is read.
    """

    def __init__(self, path: Path, part: str | None = None) -> None:
        self.path = path
        self.part = part
        self._several: bool | None = None

    def count(self) -> int:
        """Number of lines that are not blank."""
        return sum(1 for _ in self._lines())

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order; only wanted lines are parsed."""
        name, wanted = str(self.path), None if keep is None else set(keep)
        for position, (number, line) in enumerate(self._lines()):
            if wanted is None or position in wanted:
                where = RowRef(name, number, "line")
                row = _parsed_line(line, where)
                harness = isinstance(row, dict) and is_harness_row(row)
                yield where, converted(HARNESS, harness_row, row, where) if harness else row

    def understood(self) -> str:
        """The format, and the tool that wrote it where it is known."""
        first = next((_parsed_line(line, RowRef("", number)) for number, line in self._lines()), None)
        return HARNESS if isinstance(first, dict) and is_harness_row(first) else "JSON lines"

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        if self._several is None:
            self._several = self._has_filters()
        for number, line in self._written():
            if not self._several or self._filter_of(number, line) in (self.part, None):
                yield number, line

    def _written(self) -> Iterator[tuple[int, bytes]]:
        return ((number, text) for number, line in numbered_lines(self.path) if (text := line.strip()))

    @staticmethod
    def _filter_of(number: int, line: bytes) -> str | None:
        """The filter of a harness sample; None for any other line."""
        row = _parsed_line(line, RowRef("", number))
        return str(row.get("filter")) if isinstance(row, dict) and is_harness_row(row) else None

    def _has_filters(self) -> bool:
        """Whether one of several filters is to be read; DataError where it is not said which."""
        lines = self._written()
        first = next((self._filter_of(*line) for line in lines), None)
        if first is None:
            return False
        found = list(dict.fromkeys([first, *(name for line in lines if (name := self._filter_of(*line)) is not None)]))
        if len(found) > 1 and self.part not in found:
            told = "name one" if self.part is None else f"'{self.part}' is none of them, name one"
            raise DataError(
                f"{self.path}: every reply is there once per filter ({', '.join(found)}); {told} with sheet= or --sheet."
            )
        return len(found) > 1


class JsonSource:
    """A JSON file, read whole: a list of objects, one object, or an object that holds the list under a records key.

    JSON lines under the extension `.json` are read as such.
    """

    def __init__(self, path: Path, records_key: str | None = None) -> None:
        self.path = path
        self.records_key = records_key
        self._tool: str | None = None

    def count(self) -> int:
        """Number of records."""
        records = self._records()
        return JsonLinesSource(self.path).count() if records is None else len(records)

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Records in order."""
        records, name = self._records(), str(self.path)
        if records is None:
            yield from JsonLinesSource(self.path).rows(keep)
            return
        for position in range(len(records)) if keep is None else keep:
            record, where = records[position], RowRef(name, position + 1, "item")
            yield where, record if isinstance(record, dict) else _not_an_object(record, where)

    def understood(self) -> str:
        """The format, and the tool that wrote it where it is known."""
        records = self._records()
        return self._tool or ("JSON" if records is not None else JsonLinesSource(self.path).understood())

    def _records(self) -> list[Any] | None:
        with opened(self.path) as file:
            content = file.read().removeprefix(_BOM)
        try:
            return self._unwrapped(orjson.loads(content))
        except orjson.JSONDecodeError as error:
            if _looks_like_json_lines(content):
                return None
            raise DataError(f"{self.path}: not valid JSON: {_json_fault(content, error)}") from None

    def _unwrapped(self, value: Any) -> list[Any]:
        if isinstance(value, list):
            return value
        if not isinstance(value, dict):
            raise DataError(f"{self.path}: expected a list of objects or an object, found {shown(value)}")
        if self.records_key is not None:
            records = value.get(self.records_key)
            if not isinstance(records, list):
                found = shown(records) if self.records_key in value else "nothing; " + nearest(self.records_key, value)
                raise DataError(f"{self.path}: expected a list of records under '{self.records_key}', found {found}")
            return records
        known = converted("the tool that seems to have written it", tool_rows, value, self.path)
        if isinstance(known, DataError):
            raise known
        if known is not None:
            self._tool, records = known
            return list(records)
        for key in _RECORD_KEYS:
            records = value.get(key)
            if isinstance(records, list) and records and all(isinstance(record, dict) for record in records):
                return records
        return [value]


class _Unpacked(io.RawIOBase):
    """The bytes of a gzip file, as long as they are not out of all proportion to it."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._packed = path, gzip.GzipFile(fileobj=file)
        self._sizes = path.stat().st_size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._packed.readinto(buffer)
        self._sizes = self._sizes[0], self._sizes[1] + found
        check_unpacked(self._path, *self._sizes)
        return found


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where it ends in .gz; DataError when it is empty or cannot be read."""
    check_not_empty(path)
    compressed = path.name.lower().endswith(".gz")
    try:
        with path.open("rb") as file:
            yield cast(IO[bytes], io.BufferedReader(_Unpacked(path, file))) if compressed else file
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers from 1, without a byte order mark."""
    with opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
            if len(line) > LONGEST_LINE:
                raise DataError(
                    f"{RowRef(str(path), number, 'line')}: longer than {LONGEST_LINE:,} bytes, the most one line may have"
                )
            yield number, line.removeprefix(_BOM) if number == 1 else line


def _parsed_line(line: bytes, where: RowRef) -> Row | DataError:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return DataError(f"{where}: not valid JSON: {_json_fault(line, error)}")
    return value if isinstance(value, dict) else _not_an_object(value, where)


def _json_fault(content: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as decode_error:
        line = content.count(b"\n", 0, decode_error.start) + 1
        place = f" (line {line})" if b"\n" in content else ""
        return f"not UTF-8 at byte {decode_error.start + 1}{place}; save the file as UTF-8"
    return f"{error.msg} (" + (f"line {error.lineno}, " if b"\n" in content else "") + f"column {error.colno})"


def _not_an_object(value: object, where: RowRef) -> DataError:
    return DataError(f"{where}: expected an object with named columns, found {shown(value)}")


def _looks_like_json_lines(content: bytes) -> bool:
    first, _, rest = content.strip().partition(b"\n")
    try:
        return bool(rest) and isinstance(orjson.loads(first), dict)
    except orjson.JSONDecodeError:
        return False
