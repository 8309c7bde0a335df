"""Rows out of text files: JSON, JSON lines and CSV, in UTF-8 with or without a byte order mark."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import orjson

from rm_gallery.core.data.load.fields import RowRef, nearest, shown
from rm_gallery.core.data.load.readers import Row, RowItem, check_not_empty
from rm_gallery.core.utils.errors import DataError

_BOM = b"\xef\xbb\xbf"
_RECORD_KEYS = ("data", "records", "rows", "samples", "examples", "instances", "datasamples")


class JsonLinesSource:
    """A file with one JSON object per line; blank lines are no rows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def count(self) -> int:
        """Number of lines that are not blank."""
        return sum(1 for _ in self._lines())

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order; only wanted lines are parsed."""
        name, wanted = str(self.path), None if keep is None else set(keep)
        for position, (number, line) in enumerate(self._lines()):
            if wanted is None or position in wanted:
                where = RowRef(name, number, "line")
                yield where, _parsed_line(line, where)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        for number, line in _numbered_lines(self.path):
            line = line.strip()
            if line:
                yield number, line


class JsonSource:
    """A JSON file, read whole: a list of objects, one object, or an object that holds the list under a records key.

    JSON lines under the extension `.json` are read as such.
    """

    def __init__(self, path: Path, records_key: str | None = None) -> None:
        self.path = path
        self.records_key = records_key

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

    def _records(self) -> list[Any] | None:
        with _opened(self.path) as file:
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
        for key in _RECORD_KEYS:
            records = value.get(key)
            if isinstance(records, list) and records and all(isinstance(record, dict) for record in records):
                return records
        return [value]


class CsvSource:
    """A CSV or TSV file with a header; a record may span lines and is named by its first."""

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        self.path = path
        self.delimiter = delimiter

    def count(self) -> int:
        """Number of records that are not blank."""
        return sum(1 for _ in self._records())

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Records in order, every value a text; a blank cell is no value (None)."""
        wanted = None if keep is None else set(keep)
        for position, item in enumerate(self._records()):
            if wanted is None or position in wanted:
                yield item

    def _records(self) -> Iterator[RowItem]:
        # The limit (128 KiB a field) is one setting of the process; raising it can hurt nobody, long answers need it.
        csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))
        undecodable: dict[int, DataError] = {}
        reader = csv.reader(self._decoded(undecodable), delimiter=self.delimiter)
        header: list[str] = []
        while True:
            where = RowRef(str(self.path), reader.line_num + 1, "line", untyped=True)
            try:
                values = next(reader, None)
            except csv.Error as error:
                raise DataError(f"{where}: not readable as CSV: {error}") from error
            if values is None:
                return
            fault = undecodable.pop(min(undecodable)) if undecodable else None
            undecodable.clear()
            if fault is not None and not header:
                raise fault
            if fault is not None:
                yield where, fault
            elif values and not header:
                header = _checked_header(values, where)
            elif values:
                yield where, _csv_row(header, values, where)

    def _decoded(self, undecodable: dict[int, DataError]) -> Iterator[str]:
        for number, line in _numbered_lines(self.path):
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                where = RowRef(str(self.path), number, "line")
                undecodable[number] = DataError(f"{where}: not UTF-8 at byte {error.start + 1}; save the file as UTF-8")
                yield line.decode("utf-8", "replace")


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    check_not_empty(path)
    compressed = path.name.lower().endswith(".gz")
    try:
        with cast(IO[bytes], gzip.open(path, "rb") if compressed else path.open("rb")) as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
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


def _checked_header(values: list[str], where: RowRef) -> list[str]:
    doubled = sorted({name for name in values if values.count(name) > 1})
    if doubled:
        raise DataError(f"{where}: the header names a column twice: {', '.join(doubled)}")
    return values


def _csv_row(header: list[str], values: list[str], where: RowRef) -> Row | DataError:
    if len(values) != len(header):
        return DataError(f"{where}: found {len(values)} fields, the header has {len(header)}: {', '.join(header)}")
    return {name: value or None for name, value in zip(header, values, strict=True)}
