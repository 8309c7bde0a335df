"""Rows out of CSV files: any separator, the usual encodings, quoted line ends, and what spreadsheets add."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path

from rm_gallery.core.data.load.encodings import WIDE, check_encoding, detect_encoding
from rm_gallery.core.data.load.fields import MAX_NAMES, RowRef, listed
from rm_gallery.core.data.load.readers import Row, RowItem
from rm_gallery.core.data.load.text_readers import numbered_lines, opened
from rm_gallery.core.utils.errors import ConfigError, DataError

SEPARATORS = ",;\t|"
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "|"}
_SNIFFED_RECORDS = 50
_SNIFFED_LINES = 2_000
_EXCEL_HINT = "sep="


class CsvSource:
    """A CSV or TSV file with a header; a record may span lines and is named by its first.

    Encoding and separator are found unless given. Blank records, and columns without a name or a value, are none; a first
    line `sep=;`, as Excel reads it, names the separator.
    """

    def __init__(self, path: Path, separator: str | None = None, encoding: str | None = None) -> None:
        self.path = path
        self._separator = None if separator is None else _checked_separator(separator)
        self._encoding = None if encoding is None else check_encoding(encoding)

    def count(self) -> int:
        """Number of records that are not blank."""
        return sum(1 for _ in self._records())

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Records in order, every value a text; a blank cell is no value (None)."""
        wanted = None if keep is None else set(keep)
        for position, item in enumerate(self._records()):
            if wanted is None or position in wanted:
                yield item

    def understood(self) -> str:
        """Separator and encoding, as they are read."""
        return f"csv, separator {_NAMES.get(self.separator, self.separator)}, encoding {self.encoding}"

    @cached_property
    def encoding(self) -> str:
        """The encoding given or found."""
        with opened(self.path):
            pass
        return self._encoding or detect_encoding(lambda: opened(self.path))

    @cached_property
    def separator(self) -> str:
        """The separator given or found: the one behind which records are equally long, and longest."""
        if self._separator is not None:
            return self._separator
        lines = list(islice(self._decoded({}), _SNIFFED_LINES))
        if lines and lines[0].lower().startswith(_EXCEL_HINT) and lines[0][4:5] in SEPARATORS:
            return lines[0][4]
        found = {separator: _fit(lines, separator) for separator in SEPARATORS}
        return max(found, key=lambda separator: (found[separator], separator == ","))

    def _records(self) -> Iterator[RowItem]:
        _allow_long_fields()
        undecodable: dict[int, DataError] = {}
        reader = csv.reader(self._decoded(undecodable), delimiter=self.separator)
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
            elif not header:
                if any(values) and not _is_hint(values, reader.line_num):
                    header = checked_header(values, where)
            elif any(values):
                yield where, _csv_row(header, values, where)

    def _decoded(self, undecodable: dict[int, DataError]) -> Iterator[str]:
        encoding = self.encoding
        if encoding in WIDE:
            yield from self._wide(encoding)
            return
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding  # the mark is gone from the first line
        for number, line in numbered_lines(self.path):
            try:
                yield line.decode(encoding)
            except UnicodeDecodeError as error:
                where = RowRef(str(self.path), number, "line")
                name = encoding.upper() if encoding == "utf-8" else encoding
                undecodable[number] = DataError(
                    f"{where}: not {name} at byte {error.start + 1}; save the file as UTF-8, or name its encoding"
                )
                yield line.decode(encoding, "replace")

    def _wide(self, encoding: str) -> Iterator[str]:
        try:
            with opened(self.path) as file, io.TextIOWrapper(file, encoding, newline="") as text:
                yield from text
        except UnicodeError as error:
            raise DataError(f"{self.path}: not {encoding}: {error}; save the file as UTF-8") from error


def _allow_long_fields() -> None:
    # The limit (128 KiB a field) is one setting of the process; raising it can hurt nobody, long answers need it.
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))


def _checked_separator(separator: str) -> str:
    named = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}.get(separator.lower(), separator)
    if len(named) != 1 or named in '"\r\n':
        raise ConfigError(f"separator is {separator!r}; give one character, such as ',' or ';', or the word tab.")
    return named


def _fit(lines: Iterable[str], separator: str) -> tuple[float, int]:
    """How well records behind this separator fit their header: the share as long as it, and its length."""
    _allow_long_fields()
    try:
        records = [r for r in islice(csv.reader(lines, delimiter=separator), _SNIFFED_RECORDS) if any(r)]
    except csv.Error:
        return 0.0, 0
    if not records or len(records[0]) < 2:
        return 0.0, 0
    width = len(records[0])
    return sum(len(record) == width for record in records) / len(records), width


def _is_hint(values: list[str], line: int) -> bool:
    return line == 1 and values[0].lower() in (_EXCEL_HINT, *(_EXCEL_HINT + c for c in SEPARATORS))


def checked_header(values: Sequence[str], where: RowRef) -> list[str]:
    """The names of the columns, blank where a column has none; DataError for a name that stands twice."""
    names = [value.strip() for value in values]
    doubled = sorted(name for name, times in Counter(names).items() if name and times > 1)
    if doubled:
        raise DataError(f"{where}: the header names a column twice: {listed(doubled)}")
    return names


def _csv_row(header: list[str], values: list[str], where: RowRef) -> Row | DataError:
    if len(values) < len(header) or any(values[len(header) :]):
        known = listed([name for name in header[: 2 * MAX_NAMES] if name])
        return DataError(f"{where}: found {len(values)} fields, the header has {len(header)}: {known}")
    for place, (name, value) in enumerate(zip(header, values, strict=False), 1):
        if value and not name:
            return DataError(f"{where}: column {place} has a value and no name; name it in the header")
    return {name: value or None for name, value in zip(header, values, strict=False) if name}
