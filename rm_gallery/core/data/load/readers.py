"""Rows out of files and memory: which reader a source needs, the bytes and lines of files, parquet,
frames, lists and hub splits.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Protocol, cast

from rm_gallery.core.data.load.converters import RowRef, listed, shown
from rm_gallery.core.data.load.padding import (
    Restore,
    number,
    restore_of_schema,
    restore_of_type,
    restore_of_values,
    whole_with_gap,
    without_padding,
)
from rm_gallery.core.utils.errors import ConfigError, DataError

Row = dict[str, Any]
RowItem = tuple[RowRef, Row | DataError]

_BATCH_ROWS = 512
_BINARY_SUFFIXES = (".parquet", ".pq", ".arrow", ".feather", ".xlsx", ".xlsm", ".eval")
_ALSO = (".txt", ".xlsm")
"""Read when such a file is named, not when it lies in a folder."""


class RowSource(Protocol):
    """Something that gives rows, any number of times.

    A row that cannot be read comes as the DataError that says why, so that the caller decides
    whether to go on; what is wrong with the whole source is raised.
    """

    def count(self) -> int | None:
        """Number of rows, unreadable ones included; None when only reading all of them would tell."""

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """All rows in order, or those at the sorted positions `keep` (counted from 0)."""

    def understood(self) -> str:
        """How the source is read, in a few words for people."""


@dataclass(frozen=True)
class ReadOptions:
    """How files are to be read, where that is not left to be found.

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
        self._whole_columns: frozenset[str] | None = None

    def count(self) -> int:
        """Number of rows, from the footer."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order; row groups without a wanted row are not read."""
        import pyarrow as pa

        name, start = str(self.path), 0
        room = _Unpacking(self.path)
        with self._open() as file:
            whole = self._whole(file)
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                if keep is None or bisect_left(keep, start) < bisect_left(keep, end):
                    room.expect(file.metadata.row_group(group))
                    batches = file.iter_batches(
                        batch_size=_BATCH_ROWS, row_groups=[group], use_threads=False
                    )
                    try:
                        yield from _placed_rows(batches, start, keep, name, room, whole)
                    except (pa.ArrowException, OSError) as error:
                        raise DataError(
                            f"{name}: row group {group + 1} cannot be read: {error}"
                        ) from error
                    # what a row group took to unpack is kept for the next one otherwise, and there
                    # may be none
                    pa.default_memory_pool().release_unused()
                start = end

    def _whole(self, file: Any) -> frozenset[str]:
        """Columns of whole numbers that pandas made floats because of a gap; read once, up to the
        first that is none.
        """
        if self._whole_columns is None:
            import pyarrow as pa

            columns = (file.schema_arrow.pandas_metadata or {}).get("columns", ())
            names = [
                column["name"]
                for column in columns
                if str(column.get("numpy_type", "")).startswith("float")
            ]
            try:
                self._whole_columns = frozenset(
                    name
                    for name in names
                    if name in file.schema_arrow.names
                    and whole_with_gap(
                        value
                        for batch in file.iter_batches(columns=[name], use_threads=False)
                        for value in batch[0].to_numpy(False)
                    )
                )
            except (pa.ArrowException, OSError):
                # the row group that cannot be read is named when its rows are
                self._whole_columns = frozenset()
        return self._whole_columns

    def understood(self) -> str:
        """The format."""
        return "parquet"

    def _open(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        check_not_empty(self.path)
        try:
            # Buffering ahead would hold whole row groups in memory.
            return pq.ParquetFile(self.path, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: not a readable parquet file: {error}") from error


class _Unpacking:
    """What was unpacked of a parquet file so far."""

    def __init__(self, path: Path) -> None:
        self._path, self._packed, self._unpacked = path, path.stat().st_size, 0

    def expect(self, group: Any) -> None:
        """DataError where a row group says itself that it is out of proportion, before it is read."""
        check_unpacked(
            self._path, self._packed, self._unpacked + int(group.total_byte_size), COLUMNAR
        )

    def note(self, batch: Any) -> None:
        """Count a batch; DataError where it is too much."""
        self._unpacked += int(batch.nbytes)
        check_unpacked(self._path, self._packed, self._unpacked, COLUMNAR)


class ArrowSource:
    """An Arrow file (`.arrow`, `.feather`), in the layout of files or of streams, as `datasets`
    keeps its cache in.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def count(self) -> int:
        """Number of rows."""
        with self._batches() as batches:
            return sum(batch.num_rows for batch in batches)

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order."""
        with self._batches() as batches:
            yield from _placed_rows(
                batches, 0, keep, str(self.path), _Unpacking(self.path), frozenset()
            )

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
                    opened = pa.ipc.open_file(file)
                    yield (opened.get_batch(number) for number in range(opened.num_record_batches))
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
    room: _Unpacking,
    whole: frozenset[str],
) -> Iterator[RowItem]:
    """The rows of batches of which the first begins at `start`; `whole` names columns whose floats
    are whole numbers.
    """
    import pyarrow as pa

    for batch in batches:
        room.note(batch)
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
    """The rows of a batch or table of pyarrow without Arrow's padding; of one that Python cannot
    hold, why.
    """
    rows = _unrestored_rows(batch)
    restores = restore_of_schema(batch.schema)
    floats = [
        field.name for field in batch.schema if str(field.type) in ("halffloat", "float", "double")
    ]
    for row in rows if restores or floats else ():
        if isinstance(row, dict):
            row.update({name: restore(row[name]) for name, restore in restores.items()})
            row.update({name: number(row[name], name in whole) for name in floats})
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


def check_not_empty(path: Path) -> None:
    """DataError when the file cannot be read at all, or has no bytes."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not size:
        raise DataError(f"{path}: the file is empty")


ROOM = 1 << 28
"""Bytes that a packed file may always unpack to; beyond them it may be no more than a hundred times
its size.
"""
COLUMNAR = 1000
"""The same of a parquet file, which holds a value that is repeated in a column once."""


def check_unpacked(path: Path, packed: int, unpacked: int, times: int = 100) -> None:
    """DataError for data that are packed as no text is, which would fill the memory."""
    if unpacked > max(ROOM, times * packed):
        raise DataError(
            f"{path}: {packed:,} bytes unpack to more than {unpacked - 1:,}; that is no table (the "
            f"bound is {ROOM:,} bytes, or {times} "
            "times the file). Unpack it and look at it."
        )


BOM = b"\xef\xbb\xbf"
LONGEST_LINE = 1 << 26
"""Bytes of one JSON line."""


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
    """The bytes of a file, unpacked where it ends in .gz; DataError when it is empty or cannot be
    read.
    """
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
                    f"{RowRef(str(path), number, 'line')}: longer than {LONGEST_LINE:,} bytes, the "
                    f"most one line may have"
                )
            yield number, line.removeprefix(BOM) if number == 1 else line


def rows_in(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file or folder as they are; raises DataError at the first that cannot be read."""
    return (row for _, row in placed_rows(path))


def placed_rows(path: Path) -> Iterator[tuple[RowRef, dict[str, Any]]]:
    """`rows_in`, each row behind where it stands."""
    for source in file_sources(path):
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


def _json(path: Path, reading: ReadOptions) -> RowSource:
    from rm_gallery.core.data.load.json_files import JsonSource

    return JsonSource(path, reading.records_key)


def _json_lines(path: Path, reading: ReadOptions) -> RowSource:
    from rm_gallery.core.data.load.json_files import JsonLinesSource

    return JsonLinesSource(path, reading.sheet)


def _inspect(path: Path, reading: ReadOptions) -> RowSource:
    from rm_gallery.core.data.load.json_files import InspectSource

    return InspectSource(path)


def _csv(path: Path, reading: ReadOptions) -> RowSource:
    from rm_gallery.core.data.load.sheets import CsvSource

    return CsvSource(
        path,
        reading.separator or ("\t" if _suffix(path.name) == ".tsv" else None),
        reading.encoding,
    )


def _xlsx(path: Path, reading: ReadOptions) -> RowSource:
    from rm_gallery.core.data.load.sheets import XlsxSource

    return XlsxSource(path, reading.sheet, reading.header_row)


READERS: dict[str, Callable[[Path, ReadOptions], RowSource]] = {
    **dict.fromkeys((".parquet", ".pq"), lambda path, reading: ParquetSource(path)),
    **dict.fromkeys((".arrow", ".feather"), lambda path, reading: ArrowSource(path)),
    ".json": _json,
    **dict.fromkeys((".jsonl", ".ndjson"), _json_lines),
    **dict.fromkeys((".csv", ".tsv"), _csv),
    ".xlsx": _xlsx,
    ".eval": _inspect,
    ".txt": _csv,
    ".xlsm": _xlsx,
}
"""What reads files of an extension."""
_SUFFIXES = tuple(suffix for suffix in READERS if suffix not in _ALSO)


SOURCE_NAME = "data"

_PLAIN = frozenset({str, int, float, bool, type(None)})
_NO_VALUE = frozenset({"NAType", "NaTType"})


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
                yield where, {name: number(value) for name, value in plain(dict(record)).items()}
            else:
                yield (
                    where,
                    DataError(
                        f"{where}: expected a dict with named columns, found {shown(record)}"
                    ),
                )

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
        self._cells: list[Restore] | None = None

    def count(self) -> int:
        """Number of rows."""
        return len(self.frame)

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order, with plain Python values."""
        if self._cells is None:  # by whole columns, whichever rows are kept
            self._cells = [
                _cell_reader(self.frame.iloc[:, place]) for place in range(len(self.names))
            ]
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
    """What makes plain values of the cells of a column."""
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


def plain(value: Any) -> Any:
    """The value of plain Python types, where data has arrays, numpy scalars, tensors, pandas'
    values and configuration nodes.

    Through lists and dicts, whose keys become texts. An array of one element stays a list.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return {str(key): plain(item) for key, item in value.items()}
    if kind in (list, tuple):
        return [plain(item) for item in value]
    if kind.__name__ in _NO_VALUE:
        return None
    if isinstance(value, datetime):
        return value.to_pydatetime() if hasattr(value, "to_pydatetime") else value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [plain(item) for item in value]
    return value


def _cell(value: Any) -> Any:
    return number(plain(value))


class HubSource:
    """One split of a hub data set, or a `datasets.Dataset` in memory; a streamed one does not know
    its size.
    """

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
            found = {name: _cell(value) for name, value in dict(row).items()}
            if restores is None:
                found = {name: without_padding(value) for name, value in found.items()}
            else:
                found |= {
                    name: restore(found[name])
                    for name, restore in restores.items()
                    if name in found
                }
            yield RowRef(self.name, (place if keep is None else keep[place]) + 1), found

    def understood(self) -> str:
        """The form."""
        return "hub data set"
