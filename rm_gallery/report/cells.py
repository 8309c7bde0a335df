"""Text in the cells of spreadsheets: no formula, nothing that a workbook cannot hold."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import Any, TextIO

from rm_gallery.core.utils.errors import MissingExtra

_CELL_UNITS = 32_767
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*%?")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def workbooks() -> Any:
    """The package that reads and writes workbooks; MissingExtra where it is absent."""
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtra("openpyxl", "report", "Reading and writing Excel files") from error
    return openpyxl


def harmless(value: Any) -> Any:
    """The value, with an apostrophe before text that a spreadsheet would run as a formula."""
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def sheet_text(text: str) -> str:
    """The text as a workbook can hold it: characters that XML has no place for replaced, cut where
    a cell ends.
    """
    text = _NOT_XML.sub("\ufffd", text)
    units = len(text.encode("utf-16-le")) // 2
    if units <= _CELL_UNITS:
        return text
    note = f" … [cut: {len(text):,} characters]"
    return (
        text.encode("utf-16-le")[: 2 * (_CELL_UNITS - len(note))].decode("utf-16-le", "ignore")
        + note
    )


def write_csv(file: TextIO, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a table in which no text is a formula."""
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows(map(harmless, row) for row in rows)
