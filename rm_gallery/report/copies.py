"""A copy of a table's file with columns added; whatever else it holds stays as it is."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast
from xml.parsers import expat
from xml.sax.saxutils import escape

import orjson

from rm_gallery.core.data.load.files import numbered_lines
from rm_gallery.core.data.load.json_files import JsonLinesSource, JsonSource
from rm_gallery.core.data.load.readers import ParquetSource, RowSource
from rm_gallery.core.data.load.sheets import CsvSource, XlsxSource, letters_of
from rm_gallery.core.utils.errors import ConfigError, MissingExtra
from rm_gallery.core.utils.file import written_whole
from rm_gallery.report.cells import harmless, sheet_text

Cells = Callable[[int], Sequence[Any] | None]
"""The added cells of the row with this number in the file (None: blank); None where there is no
such row.
"""
_CHUNK = 1 << 20
_MOST_COLUMNS = 16_384


class Added:
    """Columns to be added: their names and which of them hold numbers, and their cells by row
    number.
    """

    def __init__(self, names: Sequence[tuple[str, type]], cells: Cells) -> None:
        self.names = [name for name, _ in names]
        self.kinds = [kind for _, kind in names]
        self.cells = cells

    def free_names(self, own: Iterable[Any]) -> list[str]:
        """The names, numbered where the table has such a column already: `score (2)`."""
        taken = {str(name).strip().casefold() for name in own}
        names = []
        for name in self.names:
            number, fresh = 1, name
            while fresh.casefold() in taken:
                number += 1
                fresh = f"{name} ({number})"
            taken.add(fresh.casefold())
            names.append(fresh)
        return names

    def objects(self, own: Iterable[Any]) -> Callable[[int], dict[str, Any]]:
        """The cells of a row by column, without the blank ones."""
        names = self.free_names(own)
        return lambda number: {
            n: v for n, v in zip(names, self.cells(number) or (), strict=False) if v is not None
        }


def check_copy(source: RowSource, path: Path, target: Path) -> None:
    """Raise ConfigError where no copy of this source can be written to `target`, before anything is
    judged.
    """
    if type(source) not in _WRITERS:
        raise ConfigError(
            f"--annotate writes a copy of a csv, xlsx, parquet or json file, and {path.name} is "
            f"none; use --export."
        )
    form, wanted = (_extension(one) for one in (path, target))
    if form != wanted:
        raise ConfigError(
            f"--annotate is '{target.name}' and writes a copy of {path.name}; give it the "
            f"extension {form} as well."
        )
    if target.exists() and target.samefile(path):
        raise ConfigError(
            f"--annotate is {target}, the table itself, which is never overwritten; name another "
            f"file."
        )
    if isinstance(source, XlsxSource):
        try:
            import openpyxl  # noqa: F401
        except ImportError as error:
            raise MissingExtra("openpyxl", "report", "Reading and writing Excel files") from error
    if isinstance(source, JsonSource):
        source.written()


def _extension(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def write_copy(source: RowSource, target: Path, added: Added) -> None:
    """Write the source's file to `target` with the added columns, whole or not at all.

    Raises:
        DataError: the file cannot be read any more, or `target` cannot be written.
        ConfigError: there is no room for more columns.
    """
    with written_whole(target) as file:
        if target.name.lower().endswith(".gz"):
            with gzip.GzipFile(fileobj=file, mode="wb") as packed:
                _WRITERS[type(source)](source, cast("IO[bytes]", packed), added)
        else:
            _WRITERS[type(source)](source, file, added)


def _csv(source: CsvSource, file: IO[bytes], added: Added) -> None:
    # columns begin beyond the longest record, so that one with too many fields is seen to have them
    # still
    width = max(len(values) for _, _, values, _ in source.written())
    text = io.TextIOWrapper(
        cast("Any", file), source.encoding, errors="surrogateescape", newline=""
    )
    for number, is_header, values, written in source.written():
        cells = (
            added.free_names(values) if is_header else added.cells(number) if any(values) else None
        )
        if cells is None:
            text.write(written)
            continue
        own = _csv_text(
            [""] * (width - len(values)) + ["" if c is None else harmless(c) for c in cells], source
        )
        body = written.rstrip("\r\n")
        if body.count('"') % 2:  # a quote that nothing closes before the end of the file
            body = _csv_text(values, source)
        text.write(
            f"{body}{source.separator}{own}{written[len(written.rstrip(chr(13) + chr(10))) :]}"
        )
    text.detach()


def _csv_text(values: Sequence[Any], source: CsvSource) -> str:
    made = io.StringIO(newline="")
    csv.writer(made, delimiter=source.separator, lineterminator="\r\n").writerow(values)
    text = made.getvalue()[:-2]
    return text.encode(source.encoding, "replace").decode(source.encoding)


def _json_lines(source: JsonLinesSource, file: IO[bytes], added: Added) -> None:
    names: dict[str, None] = {}
    for _, line in numbered_lines(source.path):
        names.update(dict.fromkeys(_keys(line)))
    objects = added.objects(names)
    for number, line in numbered_lines(source.path):
        body, own = line.rstrip(), objects(number)
        if own and body.endswith(b"}"):
            comma = b"," if _keys(line) else b""
            line = body[:-1].rstrip() + comma + orjson.dumps(own)[1:] + line[len(body) :]
        file.write(line)


def _keys(line: bytes) -> list[str]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return []
    return list(record) if isinstance(record, dict) else []


def _json(source: JsonSource, file: IO[bytes], added: Added) -> None:
    written = source.written()
    if written is None:
        return _json_lines(JsonLinesSource(source.path), file, added)
    whole, records = written
    objects = added.objects(
        dict.fromkeys(name for record in records if isinstance(record, dict) for name in record)
    )
    for number, record in enumerate(records, 1):
        if isinstance(record, dict):
            record.update(objects(number))
    file.write(orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return None


def _parquet(source: ParquetSource, file: IO[bytes], added: Added) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(source.path, pre_buffer=False) as parquet:
        schema, number = parquet.schema_arrow, 0
        kinds = [pa.float64() if kind is float else pa.string() for kind in added.kinds]
        for name, kind in zip(added.free_names(schema.names), kinds, strict=True):
            schema = schema.append(pa.field(name, kind))
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group)
                rows = [
                    added.cells(number + place) or [None] * len(kinds)
                    for place in range(1, table.num_rows + 1)
                ]
                number += table.num_rows
                columns = [pa.array([row[k] for row in rows], kind) for k, kind in enumerate(kinds)]
                arrays = [*(column for column in table.columns), *columns]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _xlsx(source: XlsxSource, file: IO[bytes], added: Added) -> None:
    """All parts of the workbook as they are, byte for byte, but the sheet, whose rows get cells
    behind their last one.

    A workbook that was read into a library's own objects and written again would come out without
    charts, pictures and the stored results of formulas.
    """
    header, names, part = source.header()
    with zipfile.ZipFile(source.path) as archive, zipfile.ZipFile(file, "w") as copy:
        with archive.open(part) as given:
            first, style = _beyond(given, header)
        if first + len(added.names) > _MOST_COLUMNS:
            raise ConfigError(
                f"{source.path}: cells stand up to the last column of the sheet; clear those that "
                f"are not needed."
            )
        letters = [letters_of(first + place) for place in range(len(added.names))]
        titles = added.free_names(names)

        def cells(number: int, prefix: str) -> bytes:
            values = (
                titles if number == header else added.cells(number) if number > header else None
            )
            given = zip(letters, values or (), strict=False)
            look = style if number == header else None
            return b"".join(
                _cell(f"{letter}{number}", value, look, prefix)
                for letter, value in given
                if value is not None
            )

        for info in archive.infolist():
            own = zipfile.ZipInfo(info.filename, info.date_time)
            own.compress_type, own.external_attr = info.compress_type, info.external_attr
            with (
                archive.open(info) as given,
                copy.open(own, "w", force_zip64=info.file_size > 1 << 30) as taken,
            ):
                if info.filename == part:
                    for piece in _widened(given, letters[-1], cells):
                        taken.write(piece)
                else:
                    shutil.copyfileobj(given, taken, _CHUNK)


def _beyond(given: IO[bytes], header: int) -> tuple[int, str | None]:
    """The first column, from 0, behind all cells of a sheet, and the style of the header's last
    cell.
    """
    last, column, row = -1, -1, 0
    style: str | None = None

    def begun(name: str, about: dict[str, str]) -> None:
        nonlocal last, column, row, style
        kind = name.rpartition(" ")[2]
        if kind == "row":
            row, column = int(about.get("r", row + 1)), -1
        elif kind == "c":
            column = _column_number(about["r"]) if "r" in about else column + 1
            last = max(last, column)
            style = about.get("s", style) if row == header else style

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = begun
    for chunk in iter(lambda: given.read(_CHUNK), b""):
        parser.Parse(chunk)
    parser.Parse(b"", True)
    return last + 1, style


def _widened(given: IO[bytes], last: str, cells: Callable[[int, str], bytes]) -> Iterator[bytes]:
    """The XML of a sheet in pieces, with cells before the end of its rows; nothing else of it
    changes but its stated width.
    """
    raw, base, row, begun = bytearray(), 0, 0, -1
    edits: list[tuple[int, int, bytes]] = []

    def tag_at(index: int) -> bytes:
        return bytes(raw[index - base : raw.index(b">", index - base) + 1])

    def start(name: str, about: dict[str, str]) -> None:
        nonlocal row, begun
        kind, index = name.rpartition(" ")[2], parser.CurrentByteIndex
        if kind == "dimension":
            tag = tag_at(index)
            edits.append(
                (
                    index,
                    index + len(tag),
                    _DIMENSION.sub(rb"\g<1>" + last.encode() + rb"\g<2>", tag),
                )
            )
        elif kind == "row":
            row, begun, tag = int(about.get("r", row + 1)), index, tag_at(index)
            if not tag.endswith(b"/>"):
                edits.append((index, index + len(tag), _SPANS.sub(b"", tag)))

    def end(name: str) -> None:
        if name.rpartition(" ")[2] != "row":
            return
        index = parser.CurrentByteIndex
        tag = tag_at(index)
        own = re.sub(rb"[</>\s].*", b"", tag.lstrip(b"</"), flags=re.DOTALL)
        made = cells(row, own[:-3].decode())
        if index != begun:
            edits.append((index, index, made))
        elif made:  # <row r="3"/>
            edits.append(
                (
                    index,
                    index + len(tag),
                    _SPANS.sub(b"", tag[:-2].rstrip()) + b">" + made + b"</" + own + b">",
                )
            )

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    for chunk in iter(lambda: given.read(_CHUNK), b""):
        raw += chunk
        parser.Parse(chunk)
        for begin, until, made in edits:
            yield bytes(raw[: begin - base]) + made
            del raw[: until - base]
            base = until
        edits.clear()
    parser.Parse(b"", True)
    yield bytes(raw)


_DIMENSION = re.compile(rb"""(ref=["'][A-Z]+\d+:)[A-Z]+(\d+["'])""")
_SPANS = re.compile(rb"""\sspans=["'][^"']*["']""")


def _cell(place: str, value: Any, style: str | None, p: str) -> bytes:
    """A cell; `p` is the prefix of elements. Inline strings are never read as formulas."""
    about = f'r="{place}"' + ("" if style is None else f' s="{style}"')
    if isinstance(value, (int, float)) and math.isfinite(value):
        return f"<{p}c {about}><{p}v>{value!r}</{p}v></{p}c>".encode()
    text = escape(sheet_text(str(value)))
    made = (
        f'<{p}c {about} t="inlineStr"><{p}is><{p}t '
        f'xml:space="preserve">{text}</{p}t></{p}is></{p}c>'
    )
    return made.encode("ascii", "xmlcharrefreplace")


def _column_number(reference: str) -> int:
    column = 0
    for letter in reference.rstrip("0123456789"):
        column = 26 * column + ord(letter) - 64
    return column - 1


_WRITERS: dict[type, Callable[[Any, IO[bytes], Added], None]]
_WRITERS = {
    CsvSource: _csv,
    JsonLinesSource: _json_lines,
    JsonSource: _json,
    ParquetSource: _parquet,
    XlsxSource: _xlsx,
}
