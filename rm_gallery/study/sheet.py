"""A user's table, read before anything is paid: rows, cells as texts and numbers, labels, subgroups."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import sys
from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import SpooledTemporaryFile
from threading import Lock
from typing import Any, TypeVar, overload
from weakref import finalize

import orjson

from rm_gallery.core.data.labels import number_of
from rm_gallery.core.data.load.base import LoadReport, create_loader, row_bytes
from rm_gallery.core.data.load.converters import RowRef, nearest, shown
from rm_gallery.core.data.schema import DataSample, blank_is_none
from rm_gallery.core.utils.errors import ConfigError, DataError

T = TypeVar("T")
Cell = str | None
_LABELS = ("--labels", "columns.label_column")


_BLOCK, _BLOCK_CHARACTERS = 512, 1 << 18
_IN_MEMORY = 1 << 20


PlacedRow = tuple[RowRef, dict[str, Any]]
"""A row of a table and where it stands."""


class MadeWhenAsked(Sequence[T]):
    """A sequence that makes an item when it is asked for."""

    @abstractmethod
    def made(self, place: int) -> T:
        """The item at a place from 0."""

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        places = range(len(self))[place]
        return (
            self.made(places) if isinstance(places, int) else [self.made(each) for each in places]
        )


class Rows(MadeWhenAsked[dict[str, Any]]):
    """The rows of a table with their places; beyond the first MB they are in a temporary file, in
    blocks.
    """

    def __init__(self, placed: Iterable[PlacedRow] = ()) -> None:
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)
        finalize(self, self._file.close)
        self._starts, self._firsts = array("Q"), array("Q", [0])
        """Of each block its place in the file, and its first row."""
        self._size = 0
        self._last: list[PlacedRow] = []
        self._read: tuple[int, list[PlacedRow]] = (-1, [])
        self._sources: set[str] = set()
        self._lock = Lock()
        for place, row in placed:
            self.add(place, row)

    def add(self, place: RowRef, row: dict[str, Any]) -> None:
        """Append a row."""
        self._sources.add(place.source)
        self._last.append((place, row))
        self._size += sum(len(cell) for cell in row.values() if isinstance(cell, str))
        if len(self._last) == _BLOCK or self._size > _BLOCK_CHARACTERS:
            with self._lock:
                self._starts.append(self._file.seek(0, os.SEEK_END))
                # of this process alone, and the file has no name
                pickle.dump(self._last, self._file, pickle.HIGHEST_PROTOCOL)
            self._firsts.append(len(self))
            self._last, self._size = [], 0

    def _placed_row(self, row: int) -> PlacedRow:
        number = bisect_right(self._firsts, row) - 1
        return self._block(number)[row - self._firsts[number]]

    def _block(self, number: int) -> list[PlacedRow]:
        if number == len(self._starts):
            return self._last
        with self._lock:
            if self._read[0] != number:
                self._file.seek(self._starts[number])
                self._read = number, pickle.load(self._file)
            return self._read[1]

    def placed(self) -> Iterator[PlacedRow]:
        """Every row with its place, in order."""
        for number in range(len(self._starts) + 1):
            yield from self._block(number)

    def place(self, number: int) -> RowRef:
        """Where a row stands; as a text what messages call it, such as "answers.csv, line 3"."""
        return self._placed_row(number)[0]

    def name(self, place: RowRef) -> str:
        """What a row is called within the table: "line 3", behind its file where the table is
        several.
        """
        return (
            place.within
            if len(self._sources) == 1
            else f"{Path(place.source).name}, {place.within}"
        )

    def __len__(self) -> int:
        return self._firsts[-1] + len(self._last)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (row for _, row in self.placed())

    def made(self, place: int) -> dict[str, Any]:
        """The row at a place, read again."""
        return self._placed_row(place)[1]


@dataclass(frozen=True)
class Sheet:
    """A table.

    Attributes:
        name: where it comes from.
        understood: how it was read: format, separator, encoding, sheet.
        columns: names in order.
        rows: the cells by column, and where each row stands.
        notes: what a reader of figures should know of the reading.
    """

    name: str
    understood: str
    columns: list[str]
    rows: Rows
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def places(self) -> Iterator[RowRef]:
        """Where each row stands."""
        return (place for place, _ in self.rows.placed())

    def require(self, name: str, role: str) -> None:
        """ConfigError when there is no column of that name."""
        if name not in self.columns:
            known = nearest(name, self.columns)
            tail = (
                "" if known.startswith("known") else f" Its columns: {', '.join(self.columns[:12])}"
            )
            raise ConfigError(
                f"{role} is '{name}', and {self.name} has no such column; {known}{tail}"
            )

    def column(self, name: str, role: str) -> Iterator[Any]:
        """The cells of a column; ConfigError when there is none of that name, or when it is blank
        throughout.
        """
        self.require(name, role)
        if all(cell_of(row, name) is None for row in self.rows):
            raise self.all_blank(name, role)
        return (cell_of(row, name) for row in self.rows)

    def all_blank(self, name: str, role: str) -> ConfigError:
        """The error for a column without a filled cell."""
        return ConfigError(
            f"{role} is '{name}', and that column is blank in all {len(self)} rows; name another "
            f"one."
        )

    def values(
        self,
        name: str,
        role: str,
        read: Callable[[Any], float | None] | None = None,
        expected: str = "a number",
    ) -> list[float | None]:
        """The cells of a column as numbers, decimal commas included, or as `read` takes them; None
        for a blank cell.

        Raises ConfigError for a cell that cannot be read, saying what was `expected`.
        """
        numbers: list[float | None] = []
        known: dict[float | None, float | None] = {}  # of labels there are few different ones
        for place, cell in zip(self.places, self.column(name, role), strict=True):
            value = None if cell is None else (read or number_of)(cell)
            if cell is not None and value is None:
                where = f"column '{name}'" if role in _LABELS else f"column '{name}' ({role})"
                raise ConfigError(f"{place}, {where}: expected {expected}, found {shown(cell)}")
            numbers.append(value if len(known) > _FEW else known.setdefault(value, value))
        return numbers

    def digest(self) -> str:
        """Hash of all cells, which tells a table from another one of the same name."""
        digest = hashlib.sha256()
        for place, row in self.rows.placed():
            digest.update(row_bytes(row, place))
        return digest.hexdigest()


def open_sheet(
    data: Any, *, limit: int | None = None, seed: int = 0, on_bad_row: str = "raise", **reading: Any
) -> Sheet:
    """Read a file, a folder, a pandas frame or a list of rows as one table.

    `reading` are the loader's keys `encoding`, `separator`, `sheet`, `header_row` and
    `records_key`; what is None is found.

    Raises:
        ConfigError: a key is unknown; the data are samples, which `evaluate` takes, or no table at
            all.
        DataError: the source cannot be read, a row does not fit, or there is none.
    """
    path = isinstance(data, (str, os.PathLike))
    table = path or hasattr(data, "iloc") or isinstance(data, Mapping)
    if not table and isinstance(data, Iterable):
        data = list(data)
        if data and isinstance(data[0], DataSample):
            raise ConfigError(
                "data are samples already; judge them with evaluate(reward, samples)."
            )
    config = {key: value for key, value in reading.items() if value is not None}
    config |= {"limit": limit, "seed": seed, "on_bad_row": on_bad_row}
    loader = create_loader("table", "local", "*", {**config, "path" if path else "data": data})
    name = str(data) if path else "the data"
    columns: dict[str, None] = {}
    rows, report = Rows(), LoadReport()
    for where, row in loader.rows():
        report.rows += 1
        if not isinstance(row, DataError):
            columns.update(dict.fromkeys(map(str, row)))
            rows.add(where, row)
        elif on_bad_row == "raise":
            raise row
        else:
            report.skip(row)
    if not len(rows):
        raise DataError(
            f"{name}: no rows found; give a table with names in its first row and at least one row "
            f"below."
        )
    understood = "; ".join(dict.fromkeys(source.understood() for source in loader.sources()))
    return Sheet(name, understood, list(columns), rows, tuple(report.notes()))


def cell_of(row: Mapping[str, Any], column: str) -> Any:
    """The cell of a column; None where it is blank or there is none."""
    return blank_is_none(row.get(column))


def text_of_cell(cell: Any) -> Cell:
    """A cell as a text; None for a blank one."""
    if cell is None or isinstance(cell, str):
        return cell
    return orjson.dumps(cell, default=str).decode() if isinstance(cell, (dict, list)) else str(cell)


_FEW = 1000


def id_text(cell: Any) -> str:
    """An id as text: 7.0 and " 7" are 7."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


_ROW = re.compile(r"(row|line) \d+")


def filled_ids(sheet: Sheet, column: str, needed: str) -> Iterator[Any]:
    """The cells of a column of ids; ConfigError for a blank one, since every `needed`."""
    for place, cell in zip(sheet.places, sheet.column(column, "--id"), strict=True):
        if cell is None:
            raise ConfigError(f"{place}: column '{column}' (--id) is blank; every {needed}")
        yield cell


def row_ids(sheet: Sheet, column: str) -> list[str]:
    """The ids of a table's rows as text; ConfigError for a blank or doubled one."""
    ids = [id_text(cell) for cell in filled_ids(sheet, column, "row needs its id.")]
    doubled = [(name, times) for name, times in Counter(ids).most_common() if times > 1]
    if doubled:
        raise ConfigError(
            f"{sheet.name}: column '{column}' (--id) gives {sum(n for _, n in doubled):,} of "
            f"{len(ids):,} rows an id that another has: {doubled[0][0][:40]!r} stands "
            f"{doubled[0][1]:,} times; name a column that tells rows apart, or call this one "
            f"columns.cluster."
        )
    return ids


def joined(
    sheet: Sheet, other: Sheet, column: str, id_column: str, prompt: str
) -> tuple[Sheet, str]:
    """The table with a column of another table added, joined by id, and the name of that column.

    A row the other table lacks has a blank cell in it.

    Raises:
        ConfigError: an id is blank, doubled or only in the other table, or rows of one id have
            different prompts.
    """
    cells = other.column(column, "--b")
    hint = "answers are compared by equal ids only, so give files of the same questions."
    matched = _matched(sheet, other, id_column, hint)
    name = column if column not in sheet.columns else f"{column} ({Path(other.name).name})"
    additions = {
        place: (where, key, cell, text_of_cell(other_row.get(prompt)))
        for (where, other_row), cell, (key, place) in zip(
            other.rows.placed(), cells, matched, strict=True
        )
    }

    def widened() -> Iterator[PlacedRow]:
        for place, (own_place, row) in enumerate(sheet.rows.placed()):
            where, key, cell, asked = additions.pop(place, (None, "", None, None))
            if where and prompt in other.columns and asked != text_of_cell(row.get(prompt)):
                raise ConfigError(
                    f"{where}: id {key[:40]!r} has another '{prompt}' than in {sheet.name}; give "
                    f"files of the same questions."
                )
            yield own_place, {**row, name: cell}

    return replace(
        sheet,
        columns=[*sheet.columns, name],
        rows=Rows(widened()),
        name=f"{sheet.name} with {other.name}",
    ), name


def _matched(sheet: Sheet, other: Sheet, id_column: str | None, hint: str) -> list[tuple[str, int]]:
    """Per row of the other table its id and the place of that id in `sheet`; ConfigError with
    `hint` where there is none.

    Without a column of ids, rows go by their place, which is their name in runs and on their pages.
    """
    own = (
        [where.within for where in sheet.places] if id_column is None else row_ids(sheet, id_column)
    )
    known = {name: place for place, name in enumerate(own)}
    ids = row_ids(other, id_column or "id")
    strange = [name for name in ids if name not in known]
    if strange:
        raise ConfigError(
            f"{other.name}: {len(strange)} of {len(ids)} ids are in no row of {sheet.name}, such "
            f"as {strange[0][:40]!r}; {hint}"
        )
    return [(name, known[name]) for name in ids]


def groups_of(sheet: Sheet, columns: Sequence[str]) -> dict[str, list[Cell]]:
    """Per column that makes subgroups, the group of every row; None where the cell is blank."""
    groups = {}
    for name in columns:
        texts = (text_of_cell(cell) for cell in sheet.column(name, "--by"))
        groups[name] = [None if text is None else sys.intern(text) for text in texts]
    return groups


def labels_of(
    sheet: Sheet,
    labels: str,
    read: Callable[[Any], float | None],
    expected: str,
    *,
    id_column: str | None = None,
    label_column: str | None = None,
) -> list[float | None]:
    """A label per row (None where there is none): from the column `labels`, or from the file
    `labels`, joined by the id.

    Raises:
        ConfigError: there is neither; ids of the file are unknown, blank or doubled; a label cannot
            be read.
    """
    if labels in sheet.columns:
        return sheet.values(labels, "--labels", read, expected)
    if not Path(labels).is_file():
        raise ConfigError(
            f"--labels is '{labels}': {sheet.name} has no such column, and there is no such file; "
            f"{nearest(labels, sheet.columns)}"
        )
    other = open_sheet(labels)
    if id_column is None and not (
        "id" in other.columns and all(map(_ROW.fullmatch, row_ids(other, "id")))
    ):
        raise ConfigError(
            "labels in a file of their own are joined by an id; name its column with --id COL."
        )
    rest = [name for name in other.columns if name != (id_column or "id")]
    if label_column is None and len(rest) != 1:
        raise ConfigError(
            f"{labels} has the columns {', '.join(other.columns)}; say which holds labels: "
            f"--config columns.label_column=COL."
        )
    given = other.values(label_column or rest[0], "columns.label_column", read, expected)
    matched = _matched(
        sheet, other, id_column, "labels are joined by equal ids only, so mend or remove these."
    )
    by_row: list[float | None] = [None] * len(sheet)
    for value, (_, place) in zip(given, matched, strict=True):
        by_row[place] = value
    return by_row


def label_chances(
    sheet: Sheet, labels: Sequence[float | None] | None, column: str | None
) -> list[float | None] | None:
    """Per row the probability with which it was chosen for labelling; None without such a column.

    Raises:
        ConfigError: there are no labels, a labelled row has no probability, or one is not within
            0..1.
    """
    if column is None:
        return None
    if labels is None:
        raise ConfigError(
            "columns.label_probability says how labelled rows were drawn; name the labels with "
            "--labels."
        )
    chances = sheet.values(column, "columns.label_probability")
    for place, label, chance in zip(sheet.places, labels, chances, strict=True):
        if (label is not None and chance is None) or (
            chance is not None and not 0.0 < chance <= 1.0
        ):
            raise ConfigError(
                f"{place}, column '{column}' (columns.label_probability): expected a probability "
                f"above 0 and at most 1 for every labelled row, found "
                f"{'a blank cell' if chance is None else f'{chance:g}'}"
            )
    return chances
