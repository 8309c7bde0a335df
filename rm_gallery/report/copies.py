"""A copy of a table's file with columns added; of a workbook what openpyxl can write again."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, Any, cast

import orjson

from rm_gallery.core.data.load.files import numbered_lines
from rm_gallery.core.data.load.json_files import JsonLinesSource, JsonSource
from rm_gallery.core.data.load.readers import ParquetSource, RowSource
from rm_gallery.core.data.load.sheets import CsvSource, XlsxSource
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import written_whole
from rm_gallery.core.utils.log import logger
from rm_gallery.report.cells import harmless, sheet_text, workbooks

_MOST_COLUMNS = 16_384


class Added:
    """Columns to be added: what each holds, and their cells by row number (None: no such row)."""

    def __init__(
        self, columns: Mapping[str, type], rows: Callable[[int], Mapping[str, Any] | None]
    ) -> None:
        self.columns, self._rows = columns, rows

    def cells(self, number: int) -> list[Any] | None:
        """The cells of a row, None for a blank one; None where there is no such row."""
        row = self._rows(number)
        return None if row is None else [row.get(name) for name in self.columns]

    def free_names(self, own: Iterable[Any]) -> list[str]:
        """The names, numbered where the table has such a column already: `score (2)`."""
        taken = {str(name).strip().casefold() for name in own}
        names = []
        for name in self.columns:
            spellings = chain([name], (f"{name} ({number})" for number in count(2)))
            names.append(next(each for each in spellings if each.casefold() not in taken))
            taken.add(names[-1].casefold())
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
    form, wanted = (Path(file.name.lower().removesuffix(".gz")).suffix for file in (path, target))
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
        workbooks()
        logger.warning(
            "--annotate writes {} without {}; formulas are calculated when it is opened.",
            target.name,
            ", ".join(_lost(path)),
        )
    if isinstance(source, JsonSource):
        source.written()


def write_copy(source: RowSource, target: Path, added: Added) -> None:
    """Write the source's file to `target` with the added columns, whole or not at all.

    Raises:
        DataError: the file cannot be read any more, or `target` cannot be written.
        ConfigError: there is no room for more columns.
    """
    with written_whole(target) as file:
        gz = target.name.lower().endswith(".gz")
        with gzip.GzipFile(fileobj=file, mode="wb") if gz else nullcontext(file) as opened:
            _WRITERS[type(source)](source, cast("IO[bytes]", opened), added)


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
        # csv writes nothing for None
        own = _csv_text([*[""] * (width - len(values)), *map(harmless, cells)], source)
        body = written.rstrip("\r\n")
        end = written[len(body) :]
        if body.count('"') % 2:  # a quote that nothing closes before the end of the file
            body = _csv_text(values, source)
        text.write(f"{body}{source.separator}{own}{end}")
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
        _json_lines(JsonLinesSource(source.path), file, added)
        return
    whole, records = written
    numbered = [(n, record) for n, record in enumerate(records, 1) if isinstance(record, dict)]
    objects = added.objects({name for _, record in numbered for name in record})
    for number, record in numbered:
        record.update(objects(number))
    file.write(orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _parquet(source: ParquetSource, file: IO[bytes], added: Added) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(source.path, pre_buffer=False) as parquet:
        schema, numbers = parquet.schema_arrow, count(1)
        kinds = [pa.float64() if kind is float else pa.string() for kind in added.columns.values()]
        for name, kind in zip(added.free_names(schema.names), kinds, strict=True):
            schema = schema.append(pa.field(name, kind))
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group)
                rows = [
                    added.cells(number) or [None] * len(kinds)
                    for number in islice(numbers, table.num_rows)
                ]
                columns = [pa.array([row[k] for row in rows], kind) for k, kind in enumerate(kinds)]
                arrays = [*table.columns, *columns]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _xlsx(source: XlsxSource, file: IO[bytes], added: Added) -> None:
    """The workbook as openpyxl reads and writes it, with cells behind the last column of the
    sheet.
    """
    import openpyxl

    header, names = source.header()
    macros = source.path.suffix.lower() == ".xlsm"
    book = openpyxl.load_workbook(source.path, keep_vba=macros, rich_text=True)
    sheet = book[source.sheet]
    first, last = sheet.max_column + 1, sheet.max_row
    if first + len(added.columns) > _MOST_COLUMNS + 1:
        raise ConfigError(
            f"{source.path}: cells stand up to the last column of the sheet; clear those that "
            f"are not needed."
        )
    style = copy(sheet.cell(header, first - 1)._style)
    for place, title in enumerate(added.free_names(names), first):
        sheet.cell(header, place, title)._style = copy(style)
    for number in range(header + 1, last + 1):
        for place, value in enumerate(added.cells(number) or (), first):
            if isinstance(value, (int, float)) and math.isfinite(value):
                sheet.cell(number, place, value)
            elif value is not None:
                cell = sheet.cell(number, place, sheet_text(str(value)))
                cell.data_type = "s"  # never a formula
    book.save(file)


LOST = {
    "xl/charts/": "charts as they look",
    "xl/media/": "pictures",
    "xl/drawings/": "shapes",
    "xl/threadedComments/": "threads of comments",
    "xl/slicers/": "slicers",
    "customXml/": "custom XML",
}
"""By the part of a workbook that holds it, what openpyxl does not write again, or not as it was."""


def _lost(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        parts = archive.namelist()
    lost = [what for part, what in LOST.items() if any(name.startswith(part) for name in parts)]
    return [*lost, "the stored results of formulas"]


_WRITERS: dict[type, Callable[[Any, IO[bytes], Added], None]]
_WRITERS = {
    CsvSource: _csv,
    JsonLinesSource: _json_lines,
    JsonSource: _json,
    ParquetSource: _parquet,
    XlsxSource: _xlsx,
}
