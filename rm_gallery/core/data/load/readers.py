"""Sources of rows: parquet, Arrow, frames, lists and hub splits, and the reader for each kind of file."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

from rm_gallery.core.data.load.converters import RowRef, listed, shown
from rm_gallery.core.data.load.files import (
    COLUMNAR,
    Row,
    RowItem,
    Unpacking,
    check_not_empty,
)
from rm_gallery.core.data.load.json_files import InspectSource, JsonLinesSource, JsonSource
from rm_gallery.core.data.load.padding import (
    Restore,
    number,
    plain,
    restore_of_schema,
    restore_of_type,
    restore_of_values,
    whole_with_gap,
    without_padding,
)
from rm_gallery.core.data.load.sheets import CsvSource, XlsxSource
from rm_gallery.core.utils.errors import ConfigError, DataError

_BATCH_ROWS = 512
_BINARY_SUFFIXES = (".parquet", ".pq", ".arrow", ".feather", ".xlsx", ".xlsm", ".eval")
_ALSO = (".txt", ".xlsm")
"""Extensions read only if the file itself is named, not inside a folder."""


class RowSource(Protocol):
    """A source of rows that can be read any number of times.

    An unreadable row comes as a DataError, so the caller decides whether to go on; a fault of the
    whole source is raised.
    """

    def count(self) -> int | None:
        """Number of rows, unreadable ones included; None if only reading all of them would show it."""

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """All rows in order, or those at the sorted positions `keep` (counted from 0)."""

    def understood(self) -> str:
        """How the source is read, in a few words for people."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read files; what is None is detected.

    Attributes:
        records_key: what holds the list in a JSON file that is one object.
        encoding: of CSV files, by Python's names.
        separator: between the columns of CSV files.
        sheet: of a workbook; of lm-evaluation-harness samples, the filter.
        header_row: row of a sheet with the names of the columns, from 1.
    """

    records_key: str | None = None
    encoding: str | None = None
    separator: str | None = None
    sheet: str | None = None
    header_row: int | None = None


class ParquetSource:
    """A parquet file, read row group by row group in small batches."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def count(self) -> int:
        """Number of rows, from the footer."""
        with self._open_parquet() as file:
            return int(file.metadata.num_rows)

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order; row groups without a wanted row are not read."""
        import pyarrow as pa

        name, start = str(self.path), 0
        room = Unpacking(self.path, COLUMNAR)
        with self._open_parquet() as file:
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                if keep is None or bisect_left(keep, start) < bisect_left(keep, end):
                    room.expect(file.metadata.row_group(group).total_byte_size)
                    batches = file.iter_batches(
                        batch_size=_BATCH_ROWS, row_groups=[group], use_threads=False
                    )
                    try:
                        yield from _placed_rows(
                            batches, start, keep, name, room, self._whole_columns
                        )
                    except (pa.ArrowException, OSError) as error:
                        raise DataError(
                            f"{name}: row group {group + 1} cannot be read: {error}"
                        ) from error
                    # Arrow would keep the memory of this row group for the next one
                    pa.default_memory_pool().release_unused()
                start = end

    @cached_property
    def _whole_columns(self) -> frozenset[str]:
        """Integer columns that pandas made floats because of a gap; read once."""
        import pyarrow as pa

        with self._open_parquet() as file:
            there = file.schema_arrow.names
            columns = (file.schema_arrow.pandas_metadata or {}).get("columns", ())
            floats = [
                column["name"]
                for column in columns
                if str(column.get("numpy_type", "")).startswith("float") and column["name"] in there
            ]
            try:
                return frozenset(
                    name
                    for name in floats
                    if whole_with_gap(
                        value
                        for batch in file.iter_batches(columns=[name], use_threads=False)
                        for value in batch[0].to_numpy(False)
                    )
                )
            except (pa.ArrowException, OSError):
                # reading the rows names the unreadable row group
                return frozenset()

    def understood(self) -> str:
        """The format."""
        return "parquet"

    def _open_parquet(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        check_not_empty(self.path)
        try:
            # Buffering ahead would hold whole row groups in memory.
            return pq.ParquetFile(self.path, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: not a readable parquet file: {error}") from error


class ArrowSource:
    """An Arrow file (`.arrow`, `.feather`), in file or stream layout (the cache of `datasets`)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def count(self) -> int:
        """Number of rows."""
        with self._batches() as batches:
            return sum(batch.num_rows for batch in batches)

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order."""
        with self._batches() as batches:
            room = Unpacking(self.path, COLUMNAR)
            yield from _placed_rows(batches, 0, keep, str(self.path), room, frozenset())

    def understood(self) -> str:
        """The format."""
        return "arrow"

    @contextmanager
    def _batches(self) -> Iterator[Iterator[Any]]:
        import pyarrow as pa

        check_not_empty(self.path)
        try:
            with pa.memory_map(str(self.path)) as file:
                if file.read(6) == b"ARROW1":
                    reader = pa.ipc.open_file(file)
                    yield (reader.get_batch(number) for number in range(reader.num_record_batches))
                else:
                    file.seek(0)
                    yield iter(pa.ipc.open_stream(file))
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: not a readable Arrow file: {error}") from error


def _placed_rows(
    batches: Iterable[Any],
    start: int,
    keep: Sequence[int] | None,
    name: str,
    room: Unpacking,
    whole: frozenset[str],
) -> Iterator[RowItem]:
    """The rows of batches, the first row being number `start`; `whole` names integer columns stored
    as floats.
    """
    import pyarrow as pa

    for batch in batches:
        room.note(batch.nbytes)
        end = start + batch.num_rows
        positions: Sequence[int] = range(start, end)
        if keep is not None:
            positions = keep[bisect_left(keep, start) : bisect_left(keep, end)]
            batch = batch.take(
                pa.array([position - start for position in positions], type=pa.int64())
            )
        for position, row in zip(positions, batch_rows(batch, whole), strict=True):
            where = RowRef(name, position + 1)
            yield (
                where,
                row if isinstance(row, dict) else DataError(f"{where}: cannot be read: {row}"),
            )
        start = end


def batch_rows(
    batch: Any, whole: frozenset[str] = frozenset()
) -> list[Row | ValueError | OverflowError]:
    """The rows of a pyarrow batch or table without Arrow's padding; the error of an unreadable row."""
    rows = _unrestored_rows(batch)
    restores = restore_of_schema(batch.schema) | {
        field.name: partial(number, whole=field.name in whole)
        for field in batch.schema
        if str(field.type) in ("halffloat", "float", "double")
    }
    for row in rows if restores else ():
        if isinstance(row, dict):
            row.update({name: restore(row[name]) for name, restore in restores.items()})
    return rows


def _unrestored_rows(batch: Any) -> list[Row | ValueError | OverflowError]:
    try:
        rows: list[Row | ValueError | OverflowError] = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        # One value that Python cannot hold (bytes that are no UTF-8, a date out of range) must not
        # cost its neighbours.
        if batch.num_rows == 1:
            return [error]
        return [
            row
            for position in range(batch.num_rows)
            for row in _unrestored_rows(batch.slice(position, 1))
        ]
    return rows


def rows_in(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file or folder; raises DataError at the first unreadable one."""
    return (row for _, row in placed_rows(path))


def placed_rows(path: Path) -> Iterator[tuple[RowRef, dict[str, Any]]]:
    """`rows_in`, each row with its place."""
    for source in file_sources(path):
        yield from readable_rows(source)


def readable_rows(source: RowSource) -> Iterator[tuple[RowRef, dict[str, Any]]]:
    """The rows of a source with their places; raises DataError at the first unreadable one."""
    for where, row in source.rows():
        if isinstance(row, DataError):
            raise row
        yield where, row


def file_sources(path: Path, reading: ReadOptions | None = None) -> list[RowSource]:
    """The sources a path stands for: a file, or every data file below a folder, sorted by path.

    Raises DataError for a missing path, an unknown extension, and a folder without data files.
    """
    reading = reading or ReadOptions()
    if path.is_dir():
        files = sorted(_files_below(path), key=lambda file: file.relative_to(path).parts)
        if not files:
            raise DataError(f"{path}: the folder holds no data file ({', '.join(_SUFFIXES)})")
        return [_file_source(file, reading) for file in files]
    if not path.exists():
        raise DataError(f"{path}: no such file or folder (looked from {Path.cwd()})")
    return [_file_source(path, reading)]


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        # ~$ begins the lock file of a workbook that is open in Excel
        yield from (
            Path(parent, name)
            for name in files
            if name[:1] not in (".", "~") and _suffix(name) in _SUFFIXES
        )


def _suffix(file_name: str) -> str:
    name = file_name.lower()
    suffix = Path(name.removesuffix(".gz")).suffix
    return "" if name.endswith(".gz") and suffix in _BINARY_SUFFIXES else suffix


def _file_source(path: Path, reading: ReadOptions) -> RowSource:
    reader = READERS.get(_suffix(path.name))
    if reader is None:
        raise DataError(
            f"{path}: unknown extension '{path.suffix}'; known: {', '.join(READERS)} (text formats "
            f"also .gz)"
        )
    return reader(path, reading)


def _csv_source(path: Path, reading: ReadOptions) -> CsvSource:
    tabs = "\t" if _suffix(path.name) == ".tsv" else None
    return CsvSource(path, reading.separator or tabs, reading.encoding)


def _xlsx_source(path: Path, reading: ReadOptions) -> XlsxSource:
    return XlsxSource(path, reading.sheet, reading.header_row)


READERS: dict[str, Callable[[Path, ReadOptions], RowSource]] = {
    **dict.fromkeys((".parquet", ".pq"), lambda path, reading: ParquetSource(path)),
    **dict.fromkeys((".arrow", ".feather"), lambda path, reading: ArrowSource(path)),
    ".json": lambda path, reading: JsonSource(path, reading.records_key),
    **dict.fromkeys(
        (".jsonl", ".ndjson"), lambda path, reading: JsonLinesSource(path, reading.sheet)
    ),
    **dict.fromkeys((".csv", ".tsv"), _csv_source),
    ".xlsx": _xlsx_source,
    ".eval": lambda path, reading: InspectSource(path),
    ".txt": _csv_source,
    ".xlsm": _xlsx_source,
}
"""The source for each extension."""
_SUFFIXES = tuple(suffix for suffix in READERS if suffix not in _ALSO)


SOURCE_NAME = "data"


class ListSource:
    """A list of dicts."""

    def __init__(self, records: Sequence[Any]) -> None:
        self.records = records

    def count(self) -> int:
        """Number of records."""
        return len(self.records)

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Records in order, with plain Python values."""
        for position in range(len(self.records)) if keep is None else keep:
            record, where = self.records[position], RowRef(SOURCE_NAME, position + 1)
            if isinstance(record, Mapping):
                yield where, {name: number(value) for name, value in plain(record).items()}
            else:
                why = f"{where}: expected a dict with named columns, found {shown(record)}"
                yield where, DataError(why)

    def understood(self) -> str:
        """The form."""
        return "rows in memory"


class FrameSource:
    """A pandas frame; missing values (NaN, NaT, NA) come as None, list columns as lists.

    Whole numbers that pandas made floats because of a gap are integers again, and nulls that Arrow
    put into dicts are gone.
    """

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.names = [str(name) for name in frame.columns]
        if len(set(self.names)) != len(self.names):
            raise DataError(f"{SOURCE_NAME}: the frame names a column twice: {listed(self.names)}")

    @cached_property
    def _cells(self) -> list[Restore]:
        """The reader of each column: by whole columns, whichever rows are kept."""
        return [_cell_reader(self.frame.iloc[:, place]) for place in range(len(self.names))]

    def count(self) -> int:
        """Number of rows."""
        return len(self.frame)

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order, with plain Python values."""
        frame = self.frame if keep is None else self.frame.iloc[list(keep)]
        positions = range(len(frame)) if keep is None else keep
        for position, values in zip(
            positions, frame.itertuples(index=False, name=None), strict=True
        ):
            row: Row = {
                name: cell(value)
                for name, cell, value in zip(self.names, self._cells, values, strict=True)
            }
            yield RowRef(SOURCE_NAME, position + 1), row

    def understood(self) -> str:
        """The form."""
        return "a frame"


def _cell_reader(column: Any) -> Restore:
    """The function that turns the cells of a column into plain values."""
    if getattr(column.dtype, "kind", "O") == "f" and whole_with_gap(
        value for value in plain(column.tolist())
    ):
        return lambda value: number(plain(value), whole=True)
    if hasattr(column.dtype, "pyarrow_dtype"):
        restore = restore_of_type(column.dtype.pyarrow_dtype)
    elif column.dtype == object and any(
        isinstance(value, dict | list) or hasattr(value, "tolist") for value in column
    ):
        restore = restore_of_values(map(plain, column))
    else:
        restore = None
    return _cell if restore is None else lambda value: restore(_cell(value))


def memory_source(data: Any) -> RowSource:
    """The source for a pandas frame, a `datasets.Dataset` or a list of dicts; ConfigError for
    anything else.
    """
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return FrameSource(data)
    if hasattr(data, "features") and hasattr(data, "column_names"):
        return HubSource(data, SOURCE_NAME)
    if isinstance(data, (list, tuple)):
        return ListSource(data)
    raise ConfigError(
        f"config key 'data' must be a pandas DataFrame, a datasets.Dataset or a list of dicts, "
        f"found {type(data).__name__}; "
        "a file or folder goes into the config key 'path'"
    )


def _cell(value: Any) -> Any:
    return number(plain(value))


class HubSource:
    """One split of a hub data set, or a `datasets.Dataset` in memory; a streamed one has no size."""

    def __init__(self, split: Any, name: str) -> None:
        self.split = split
        self.name = name

    def count(self) -> int | None:
        """Number of rows, None for a streamed split."""
        return len(self.split) if hasattr(self.split, "__len__") else None

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order, with plain Python values."""
        chosen = self.split if keep is None else self.split.select(list(keep))
        # unknown to a stream before it is read
        schema = getattr(getattr(self.split, "features", None), "arrow_schema", None)
        restores = None if schema is None else restore_of_schema(schema)
        for place, row in enumerate(chosen):
            restored = {name: _cell(value) for name, value in dict(row).items()}
            if restores is None:
                restored = {name: without_padding(value) for name, value in restored.items()}
            else:
                restored |= {
                    name: restore(restored[name])
                    for name, restore in restores.items()
                    if name in restored
                }
            yield RowRef(self.name, (place if keep is None else keep[place]) + 1), restored

    def understood(self) -> str:
        """The form."""
        return "hub data set"
