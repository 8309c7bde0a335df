"""Reads rows from CSV files of any separator and encoding and from Excel workbooks."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, Any

from rm_gallery.core.data.load.converters import MAX_NAMES, RowRef, listed, nearest
from rm_gallery.core.data.load.files import (
    Row,
    RowItem,
    check_not_empty,
    check_unpacked,
    kept,
    numbered_lines,
    open_bytes,
)
from rm_gallery.core.data.load.padding import plain
from rm_gallery.core.utils.errors import ConfigError, DataError, MissingExtra, RMGalleryError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
WIDE = frozenset({"utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"})
"""Encodings in which a line does not end with the byte of a line feed."""
_HEAD, _CHUNK, _ENOUGH = 4096, 1 << 20, 1 << 18
_WESTERN = "äöüÄÖÜßéèêëáàâãåçíìîïñóòôõøúùûýæœÉÈÊËÁÀÂÃÅÇÍÌÎÏÑÓÒÔÕØÚÙÛÆŒšžŠŽ¿¡«»‹›„“”‚‘’–—…•·°§€£¥©®™´µ×²³½¼¾±¹ºª\xa0¦¬¨"
_SIGN_IN_WORD = re.compile(r"(?<=[^\W\d_])[¿¡³¹²¼½¾±×»«¦¬º£](?=[^\W\d_])")
_KOREAN_TELLS = 20
"""Characters needed to distinguish Korean from Chinese: their bytes overlap."""


def detect_encoding(open_file: Callable[[], AbstractContextManager[IO[bytes]]]) -> str:
    """Python's name for the encoding of the bytes that `open_file` gives.

    A byte order mark decides, then valid UTF-8, then bytes that are 0 (UTF-16), then what the text
    would be: kana (Shift-JIS, EUC-JP), Hangul, common Chinese characters (GB 18030), Western
    letters and quotes (cp1252). Where none fits, or most lines are UTF-8, it is `utf-8`, and the
    lines that are not are named when they are read.
    """
    with open_file() as file:
        head = file.read(_HEAD)
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    if zeros := head.count(0):
        odd = head[1::2].count(0)
        if zeros > len(head) // 4 and max(odd, zeros - odd) > 0.9 * zeros:
            return "utf-16-le" if odd * 2 > zeros else "utf-16-be"
    with open_file() as file:
        if _is_utf8(iter(lambda: file.read(_CHUNK), b"")):
            return "utf-8"
    with open_file() as file:
        return _by_content(file)


def check_encoding(name: str) -> str:
    """The name, when Python knows a text encoding of that name; else ConfigError."""
    try:
        "".encode(name)
    except (LookupError, ValueError):
        raise ConfigError(
            f"encoding is {name!r}; give one such as utf-8, utf-16, cp1252, gb18030 or shift_jis."
        ) from None
    return name


def _is_utf8(chunks: Iterable[bytes]) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in chunks:
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _by_content(lines: Iterable[bytes]) -> str:
    fine, strange, size = 0, [], 0
    for line in lines:
        if line.isascii():
            continue
        if _is_utf8([line]):
            fine += 1
            continue
        strange.append(line)
        size += len(line)
        if size > _ENOUGH:
            break
    if fine >= len(strange):
        return "utf-8"
    sample = b"".join(strange)
    fitting = (n for n, fits in _CANDIDATES.items() if fits(_beyond_ascii(sample, n), sample))
    return next(fitting, "utf-8")


def _beyond_ascii(sample: bytes, encoding: str) -> str:
    """The characters that are no ASCII; empty where the bytes are not of this encoding."""
    try:
        return "".join(character for character in sample.decode(encoding) if character > "\x7f")
    except UnicodeDecodeError:
        return ""


def _share(text: str, characters: str) -> float:
    """How much of a text is of these characters, given as regular expressions give a class."""
    return len(re.findall(f"[{characters}]", text)) / max(1, len(text))


def _is_chinese(text: str, _: bytes) -> bool:
    known = text.encode("gb2312", "ignore")
    common = sum(0xB0 <= lead <= 0xD7 or 0xA1 <= lead <= 0xA3 for lead in known[::2])
    # other alphabets of one byte a letter fall among the rare characters
    return bool(text) and len(known) / 2 >= 0.9 * len(text) and common >= 0.7 * len(text)


def _is_western(text: str, sample: bytes) -> bool:
    letters = len(re.findall(b"[A-Za-z]", sample))
    if not text or _share(text, _WESTERN) < 0.95 or len(text) >= 0.5 * (letters + len(text)):
        return False
    # letters of central Europe look like signs in the middle of words
    return len(_SIGN_IN_WORD.findall(sample.decode("cp1252"))) <= 0.1 * len(text)


_KANA, _HALF_WIDTH_KANA, _HANGUL = "぀-ヿ", "｡-ﾟ", "가-힣"
_CANDIDATES: dict[str, Callable[[str, bytes], bool]] = {
    "cp932": lambda text, _: _share(text, _KANA) >= 0.2 and _share(text, _HALF_WIDTH_KANA) < 0.1,
    "euc_jp": lambda text, _: _share(text, _KANA) >= 0.2,
    "cp949": lambda text, _: len(text) >= _KOREAN_TELLS and _share(text, _HANGUL) > 0.9,
    "gb18030": _is_chinese,
    "cp1252": _is_western,
}
"""By encoding, whether bytes are of it: they, and their characters that are no ASCII."""


SEPARATORS = ",;\t|"
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "|"}
_SNIFFED_RECORDS = 50
_SNIFFED_LINES = 2_000
_EXCEL_HINT = "sep="


class _SheetSource(ABC):
    """Rows below a header. A blank cell is no value (None), a blank row none."""

    @abstractmethod
    def _records(self) -> Iterator[RowItem]: ...

    def count(self) -> int:
        """Number of rows that are not blank."""
        return sum(1 for _ in self._records())

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order."""
        return kept(self._records(), keep)


class CsvSource(_SheetSource):
    """A CSV or TSV file with a header; a record may span lines and is named by its first.

    Encoding and separator are found unless given, every value is a text. Columns without a name or
    a value are none; a first line `sep=;`, as Excel reads it, names the separator.
    """

    def __init__(
        self, path: Path, separator: str | None = None, encoding: str | None = None
    ) -> None:
        self.path = path
        self._separator = None if separator is None else _checked_separator(separator)
        self._encoding = None if encoding is None else check_encoding(encoding)

    def written(self) -> Iterator[tuple[int, bool, list[str], str]]:
        """Each record of the file: number of its first line, whether it is the header, fields, text.

        Blank records are there too. Bytes that are not of the encoding stay as surrogates
        (`surrogateescape`).
        """
        lines: list[str] = []

        def noted() -> Iterator[str]:
            for line in self._decoded({}, "surrogateescape"):
                lines.append(line)
                yield line

        for number, is_header, values in self._parsed(noted()):
            yield number, is_header, values, "".join(lines)
            lines.clear()

    def understood(self) -> str:
        """Separator and encoding, as they are read."""
        return (
            f"csv, separator {_NAMES.get(self.separator, self.separator)}, encoding {self.encoding}"
        )

    @cached_property
    def encoding(self) -> str:
        """The encoding given or found."""
        with open_bytes(self.path):
            pass
        return self._encoding or detect_encoding(lambda: open_bytes(self.path))

    @cached_property
    def separator(self) -> str:
        """The separator given or detected: the one that splits most records into equally many fields."""
        if self._separator is not None:
            return self._separator
        lines = list(islice(self._decoded({}), _SNIFFED_LINES))
        if lines and lines[0].lower().startswith(_EXCEL_HINT) and lines[0][4:5] in SEPARATORS:
            return lines[0][4]
        fits = {separator: _fit(lines, separator) for separator in SEPARATORS}
        return max(fits, key=lambda separator: (fits[separator], separator == ","))

    def _records(self) -> Iterator[RowItem]:
        undecodable: dict[int, DataError] = {}
        header: list[str] = []
        for number, is_header, values in self._parsed(self._decoded(undecodable)):
            where = RowRef(str(self.path), number, "line", untyped=True)
            fault = next(iter(undecodable.values()), None)
            undecodable.clear()
            if is_header:
                if fault is not None:
                    raise fault
                header = checked_header(values, where)
            elif header and any(values):
                yield where, _csv_row(header, values, where) if fault is None else fault

    def _parsed(self, lines: Iterable[str]) -> Iterator[tuple[int, bool, list[str]]]:
        """The records of lines: number of the first line, whether it is the header, fields."""
        _allow_long_fields()
        reader, headed = csv.reader(lines, delimiter=self.separator), False
        while True:
            number = reader.line_num + 1
            try:
                values = next(reader, None)
            except csv.Error as error:
                # csv's own words speak of a mode of open() that Python no longer has
                alone = "new-line character" in str(error)
                why = "a carriage return stands alone outside quotes" if alone else error
                hint = "; save the file with line ends LF or CRLF" if alone else ""
                where = RowRef(str(self.path), number, "line")
                raise DataError(f"{where}: not readable as CSV: {why}{hint}") from error
            if values is None:
                return
            is_header = not headed and any(values) and not _is_hint(values, reader.line_num)
            headed = headed or is_header
            yield number, is_header, values

    def _decoded(self, undecodable: dict[int, DataError], errors: str = "replace") -> Iterator[str]:
        encoding = self.encoding
        if encoding in WIDE:
            yield from self._wide(encoding)
            return
        # the mark is gone from the first line
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding
        for number, line in numbered_lines(self.path):
            try:
                yield line.decode(encoding)
            except UnicodeDecodeError as error:
                where = RowRef(str(self.path), number, "line")
                name = encoding.upper() if encoding == "utf-8" else encoding
                undecodable[number] = DataError(
                    f"{where}: not {name} at byte {error.start + 1}; save the file as UTF-8, or "
                    f"name its encoding"
                )
                yield line.decode(encoding, errors)

    def _wide(self, encoding: str) -> Iterator[str]:
        try:
            with (
                open_bytes(self.path) as file,
                io.TextIOWrapper(file, encoding, newline="") as text,
            ):
                yield from text
        except UnicodeError as error:
            raise DataError(
                f"{self.path}: not {encoding}: {error}; save the file as UTF-8"
            ) from error


def _allow_long_fields() -> None:
    # The limit (128 KiB a field) is set per process; long answers need more.
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))


def _checked_separator(separator: str) -> str:
    named = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}.get(
        separator.lower(), separator
    )
    if len(named) != 1 or named in '"\r\n':
        raise ConfigError(
            f"separator is {separator!r}; give one character, such as ',' or ';', or the word tab."
        )
    return named


def _fit(lines: Iterable[str], separator: str) -> tuple[float, int]:
    """How well a separator fits: the share of records as long as the header, and its length."""
    _allow_long_fields()
    try:
        records = [
            r for r in islice(csv.reader(lines, delimiter=separator), _SNIFFED_RECORDS) if any(r)
        ]
    except csv.Error:
        return 0.0, 0
    if not records or len(records[0]) < 2:
        return 0.0, 0
    width = len(records[0])
    return sum(len(record) == width for record in records) / len(records), width


def _is_hint(values: list[str], line: int) -> bool:
    return line == 1 and values[0].lower() in (_EXCEL_HINT, *(_EXCEL_HINT + c for c in SEPARATORS))


def checked_header(values: Sequence[str], where: RowRef) -> list[str]:
    """The names of the columns, blank for a nameless one; DataError for a duplicate."""
    names = [value.strip() for value in values]
    doubled = sorted(name for name, times in Counter(names).items() if name and times > 1)
    if doubled:
        raise DataError(f"{where}: the header names a column twice: {listed(doubled)}")
    return names


def _csv_row(header: list[str], values: list[str], where: RowRef) -> Row | DataError:
    if len(values) < len(header) or any(values[len(header) :]):
        known = listed([name for name in header[: 2 * MAX_NAMES] if name])
        return DataError(
            f"{where}: found {len(values)} fields, the header has {len(header)}: {known}"
        )
    for place, (name, value) in enumerate(zip(header, values, strict=False), 1):
        if value and not name:
            return DataError(
                f"{where}: column {place} has a value and no name; name it in the header"
            )
    return {name: value or None for name, value in zip(header, values, strict=False) if name}


class XlsxSource(_SheetSource):
    """One sheet of a workbook; its first filled row holds the names of the columns.

    Without `sheet` the workbook may have only one sheet with values. `header_row` (from 1) says
    where the names stand when there is more above them. Blank rows, and columns without a name or a
    value, are none.
    """

    def __init__(self, path: Path, sheet: str | None = None, header_row: int | None = None) -> None:
        self.path = path
        self._sheet = sheet
        self._header_row = header_row

    def understood(self) -> str:
        """The sheet that is read."""
        return f"xlsx, sheet '{self.sheet}'"

    def header(self) -> tuple[int, tuple[Any, ...]]:
        """Number and values of the row with the names."""
        with self._open_workbook() as book:
            rows = ((number, values) for number, values, _ in _filled(book[self.sheet]))
            return next(
                row for row in rows if self._header_row is None or row[0] >= self._header_row
            )

    @cached_property
    def sheet(self) -> str:
        """The sheet asked for, or the only one with values."""
        with self._open_workbook() as book:
            names: list[str] = [sheet.title for sheet in book.worksheets]
            if self._sheet is not None:
                if self._sheet not in names:
                    raise ConfigError(
                        f"{self.path}: no sheet '{self._sheet}'; {nearest(self._sheet, names)}"
                    )
                return self._sheet
            filled = [
                sheet.title for sheet in book.worksheets if next(_filled(sheet), None) is not None
            ]
        if len(filled) > 1:
            shown = ", ".join(f"'{name}'" for name in filled)
            raise ConfigError(
                f"{self.path}: values stand in several sheets: {shown}; name one with sheet= or "
                f"--config file.sheet=NAME (at score and winrate), or leave one in the file."
            )
        return (filled or names or [""])[0]

    def _records(self) -> Iterator[RowItem]:
        name = self.sheet
        with self._open_workbook() as book, self._open_workbook(formulas=True) as written:
            filled = _filled(book[name], written[name] if written is not None else None)
            header: list[str] = []
            for number, values, formulas in filled:
                where = RowRef(f"{self.path}, sheet '{name}'", number)
                if header:
                    yield where, _xlsx_row(header, values, formulas, where)
                elif self._header_row is None or number >= self._header_row:
                    header = self._header(values, where)

    def _header(self, values: tuple[Any, ...], where: RowRef) -> list[str]:
        names = checked_header(["" if value is None else str(value) for value in values], where)
        if self._header_row is not None:
            return names
        with self._open_workbook() as book:
            below = next((v for n, v, _ in _filled(book[self.sheet]) if n > where.number), ())
        unnamed = [
            place
            for place, value in enumerate(below)
            if value is not None and not any(names[place : place + 1])
        ]
        if unnamed:
            columns = ", ".join(letters_of(place) for place in unnamed[:5])
            raise DataError(
                f"{where}: names stand above {len(below) - len(unnamed)} of {len(below)} columns, "
                f"none above {columns} "
                "(a title, or merged cells?); give each column a name, or say where the names "
                "stand with header_row= or --config file.header_row=N (at score and winrate)."
            )
        return names

    @contextmanager
    def _open_workbook(self, formulas: bool = False) -> Iterator[Any]:
        """The workbook with its stored values; with its formulas instead, or None where it has
        none.
        """
        try:
            import openpyxl
        except ImportError as error:
            raise MissingExtra("openpyxl", "report", "Reading and writing Excel files") from error
        check_not_empty(self.path)
        try:
            with self.path.open("rb") as file, zipfile.ZipFile(file) as archive:
                check_unpacked(
                    self.path,
                    self.path.stat().st_size,
                    sum(part.file_size for part in archive.infolist()),
                )
                if formulas and not _has_formulas(archive):
                    yield None
                    return
                # about styles and extensions, which values do not need
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    book = openpyxl.load_workbook(file, read_only=True, data_only=not formulas)
                with closing(book):
                    yield book
        except RMGalleryError:
            raise
        # of three packages, and a damaged part is met only when its row is read
        except Exception as error:
            raise DataError(
                f"{self.path}: not a readable Excel workbook: {str(error)[:300]}; save it as .xlsx "
                f"without a password, or as "
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
            # some programs write a wrong size, and rows beyond it would be lost
            part.reset_dimensions()
    lines = sheet.iter_rows(values_only=True)
    formulas = written.iter_rows(values_only=True) if written is not None else ()
    for number, (values, beneath) in enumerate(zip_longest(lines, formulas, fillvalue=()), 1):
        if number > _MOST_ROWS:
            raise ValueError(f"a row stands beyond {_MOST_ROWS:,}, where a sheet ends")
        cells = tuple(_cell_value(value) for value in values)
        while (
            cells
            and cells[-1] is None
            and not (len(beneath) >= len(cells) and _is_formula(beneath[len(cells) - 1]))
        ):
            cells = cells[:-1]
        if cells:
            yield number, cells, beneath


def _cell_value(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.strip() else None
    value = plain(value)
    return (
        int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        else value
    )


def _is_formula(value: Any) -> bool:
    return (isinstance(value, str) and value.startswith("=")) or type(
        value
    ).__name__ == "ArrayFormula"


_ERRORS = frozenset(
    {"#REF!", "#N/A", "#NAME?", "#VALUE!", "#DIV/0!", "#NULL!", "#NUM!", "#SPILL!", "#CALC!"}
)


def _xlsx_row(
    header: list[str], values: tuple[Any, ...], formulas: tuple[Any, ...], where: RowRef
) -> Row | DataError:
    row: Row = dict.fromkeys(name for name in header if name)
    for place, value in enumerate(values):
        name = header[place] if place < len(header) else ""
        if value is None and place < len(formulas) and _is_formula(formulas[place]):
            return DataError(
                f"{where}: cell {letters_of(place)}{where.number} holds a formula without a stored "
                f"value; open the file in "
                "Excel or LibreOffice and save it once."
            )
        if isinstance(value, str) and value in _ERRORS and name:
            return DataError(
                f"{where}: cell {letters_of(place)}{where.number} holds the error {value}; mend "
                f"its formula."
            )
        if value is not None and not name:
            return DataError(
                f"{where}: column {letters_of(place)} has a value and no name; name it in the "
                f"header."
            )
        if name:
            row[name] = value
    return row


def letters_of(place: int) -> str:
    """The letters of a column, counted from 0."""
    from openpyxl.utils import get_column_letter

    return str(get_column_letter(place + 1))
