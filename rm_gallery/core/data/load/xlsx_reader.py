"""Rows out of an Excel workbook, sheet by sheet, with the values its formulas had when it was saved."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rm_gallery.core.data.load.csv_reader import checked_header
from rm_gallery.core.data.load.fields import RowRef, nearest
from rm_gallery.core.data.load.readers import Row, RowItem, check_not_empty, check_unpacked, plain
from rm_gallery.core.utils.errors import ConfigError, DataError, MissingExtra, RMGalleryError


class XlsxSource:
    """One sheet of a workbook; its first filled row holds the names of the columns.

    Without `sheet` the workbook may have only one sheet with values. `header_row` (from 1) says where the names stand when
    there is more above them. Blank rows, and columns without a name or a value, are none.
    """

    def __init__(self, path: Path, sheet: str | None = None, header_row: int | None = None) -> None:
        self.path = path
        self._sheet = sheet
        self._header_row = header_row

    def count(self) -> int:
        """Number of rows that are not blank."""
        return sum(1 for _ in self._rows())

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order; a blank cell is no value (None), text, number and date as they are."""
        wanted = None if keep is None else set(keep)
        for position, item in enumerate(self._rows()):
            if wanted is None or position in wanted:
                yield item

    def understood(self) -> str:
        """The sheet that is read."""
        return f"xlsx, sheet '{self.sheet}'"

    @cached_property
    def sheet(self) -> str:
        """The sheet asked for, or the only one with values."""
        with self._open() as book:
            names: list[str] = [sheet.title for sheet in book.worksheets]
            if self._sheet is not None:
                if self._sheet not in names:
                    raise ConfigError(f"{self.path}: no sheet '{self._sheet}'; {nearest(self._sheet, names)}")
                return self._sheet
            filled = [sheet.title for sheet in book.worksheets if next(_filled(sheet), None) is not None]
        if len(filled) > 1:
            shown = ", ".join(f"'{name}'" for name in filled)
            raise ConfigError(f"{self.path}: values stand in several sheets: {shown}; name one with sheet= or --sheet.")
        return (filled or names or [""])[0]

    def _rows(self) -> Iterator[RowItem]:
        name = self.sheet
        with self._open() as book, self._open(formulas=True) as written:
            filled = _filled(book[name], written[name] if written is not None else None)
            header: list[str] = []
            for number, values, formulas in filled:
                where = RowRef(f"{self.path}, sheet '{name}'", number)
                if header:
                    yield where, _row(header, values, formulas, where)
                elif self._header_row is None or number >= self._header_row:
                    header = self._header(values, where)

    def _header(self, values: tuple[Any, ...], where: RowRef) -> list[str]:
        names = checked_header(["" if value is None else str(value) for value in values], where)
        if self._header_row is not None:
            return names
        with self._open() as book:
            below = next((v for n, v, _ in _filled(book[self.sheet]) if n > where.number), ())
        unnamed = [place for place, value in enumerate(below) if value is not None and not any(names[place : place + 1])]
        if unnamed:
            columns = ", ".join(_letters(place) for place in unnamed[:5])
            raise DataError(
                f"{where}: names stand above {len(below) - len(unnamed)} of {len(below)} columns, none above {columns} "
                "(a title, or merged cells?); give each column a name, or say where the names stand with header_row= or "
                "--header-row."
            )
        return names

    @contextmanager
    def _open(self, formulas: bool = False) -> Iterator[Any]:
        """The workbook with its stored values; with its formulas instead, or None where it has none."""
        try:
            import openpyxl
        except ImportError as error:
            raise MissingExtra("openpyxl", "report", "Reading and writing Excel files") from error
        check_not_empty(self.path)
        try:
            with self.path.open("rb") as file, zipfile.ZipFile(file) as archive:
                check_unpacked(self.path, self.path.stat().st_size, sum(part.file_size for part in archive.infolist()))
                if formulas and not _has_formulas(archive):
                    yield None
                    return
                with warnings.catch_warnings():  # about styles and extensions, which values do not need
                    warnings.simplefilter("ignore")
                    book = openpyxl.load_workbook(file, read_only=True, data_only=not formulas)
                with closing(book):
                    yield book
        except RMGalleryError:
            raise
        except Exception as error:  # of three packages, and a damaged part is met only when its row is read
            raise DataError(
                f"{self.path}: not a readable Excel workbook: {str(error)[:300]}; save it as .xlsx without a password, or as "
                ".csv."
            ) from error


def _has_formulas(archive: zipfile.ZipFile) -> bool:
    sheets = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
    return any(b"<f>" in (part := archive.read(name)) or b"<f " in part for name in sheets)


_MOST_ROWS = 1_048_576
_Filled = tuple[int, tuple[Any, ...], tuple[Any, ...]]


def _filled(sheet: Any, written: Any = None) -> Iterator[_Filled]:
    """Number (from 1), values and formulas of every row that is not blank."""
    for part in (sheet, written):
        if part is not None and hasattr(part, "reset_dimensions"):
            part.reset_dimensions()  # some programs write a wrong size, and rows beyond it would be lost
    lines = sheet.iter_rows(values_only=True)
    formulas = written.iter_rows(values_only=True) if written is not None else ()
    for number, (values, beneath) in enumerate(zip_longest(lines, formulas, fillvalue=()), 1):
        if number > _MOST_ROWS:
            raise ValueError(f"a row stands beyond {_MOST_ROWS:,}, where a sheet ends")
        cells = tuple(_value(value) for value in values)
        while cells and cells[-1] is None and not (len(beneath) >= len(cells) and _is_formula(beneath[len(cells) - 1])):
            cells = cells[:-1]
        if cells:
            yield number, cells, beneath


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.strip() else None
    value = plain(value)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _is_formula(value: Any) -> bool:
    return (isinstance(value, str) and value.startswith("=")) or type(value).__name__ == "ArrayFormula"


_ERRORS = frozenset({"#REF!", "#N/A", "#NAME?", "#VALUE!", "#DIV/0!", "#NULL!", "#NUM!", "#SPILL!", "#CALC!"})


def _row(header: list[str], values: tuple[Any, ...], formulas: tuple[Any, ...], where: RowRef) -> Row | DataError:
    row: Row = dict.fromkeys(name for name in header if name)
    for place, value in enumerate(values):
        name = header[place] if place < len(header) else ""
        if value is None and place < len(formulas) and _is_formula(formulas[place]):
            return DataError(
                f"{where}: cell {_letters(place)}{where.number} holds a formula without a stored value; open the file in "
                "Excel or LibreOffice and save it once."
            )
        if isinstance(value, str) and value in _ERRORS and name:
            return DataError(f"{where}: cell {_letters(place)}{where.number} holds the error {value}; mend its formula.")
        if value is not None and not name:
            return DataError(f"{where}: column {_letters(place)} has a value and no name; name it in the header.")
        if name:
            row[name] = value
    return row


def _letters(place: int) -> str:
    """The letters of a column, counted from 0."""
    letters, place = "", place + 1
    while place:
        place, rest = divmod(place - 1, 26)
        letters = chr(65 + rest) + letters
    return letters
