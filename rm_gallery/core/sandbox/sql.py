"""Run a model's SQL read-only on a small in-memory SQLite database in a killable process, and
compare result sets.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Union

from rm_gallery.core.engine.pool import WorkerCrashed, get_pool
from rm_gallery.core.sandbox.inside.testing import same_number
from rm_gallery.core.utils.errors import DataError, DeadlineExceeded

Cell = Union[None, int, float, str, bytes]
Row = tuple[Cell, ...]

_MAX_CELL = 1_000_000
_MAX_BYTES = 32 * 2**20
_HEAP_BYTES = 160 * 2**20
_WORKER_BYTES = 512 * 2**20
_AFTER_DEADLINE = 0.5
_FEW_ROWS = 50
_MAX_MATCHING = 400
_STEPS_BETWEEN_CHECKS = 1000

_READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    getattr(sqlite3, "SQLITE_RECURSIVE", 33),
}
_NEVER = {
    sqlite3.SQLITE_ATTACH,
    sqlite3.SQLITE_DETACH,
    sqlite3.SQLITE_CREATE_VTABLE,
    sqlite3.SQLITE_DROP_VTABLE,
}
# functions that reach outside or make megabytes out of nothing
_FORBIDDEN_FUNCTIONS = frozenset(
    "load_extension readfile writefile edit fts3_tokenizer zeroblob randomblob".split()
)


@dataclass(frozen=True)
class QueryResult:
    """Rows of a query, or why there are none."""

    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    error: str = ""
    """'' on success; 'deadline', 'too many rows', 'too much memory', 'not read-only' or SQLite's
    message.
    """
    schema_seconds: float = 0.0
    """How long the database took to build."""


async def run_query_in_worker(
    schema: str,
    query: str,
    *,
    deadline: float = 5.0,
    max_rows: int = 10_000,
    schema_seconds: float | None = None,
) -> QueryResult:
    """Like `run_query`, in a worker process that is killed where SQLite itself does not stop.

    SQLite looks at its clock between steps, and one call of a function is one step. The process
    ends half a second after `deadline` at the latest (and after the time the schema needs:
    `schema_seconds` where it is known, else up to `deadline`); its memory is bounded at 512 MB of
    addresses, 160 MB of them for the database.
    """
    building = deadline if schema_seconds is None else min(deadline, 2 * schema_seconds)
    run = partial(run_query, deadline=deadline, max_rows=max_rows)
    return await _in_worker(partial(run, schema, query), building + deadline)


async def run_file_query_in_worker(
    database: str, query: str, *, deadline: float = 5.0, max_rows: int = 10_000
) -> QueryResult:
    """Like `run_file_query`, in a worker process that is killed where SQLite itself does not stop."""
    run = partial(run_file_query, database, query, deadline=deadline, max_rows=max_rows)
    return await _in_worker(run, deadline)


async def _in_worker(run: Callable[[], QueryResult], seconds: float) -> QueryResult:
    pool = get_pool("sql", memory_cap=_WORKER_BYTES)
    try:
        return await pool.asubmit(run, deadline=seconds + _AFTER_DEADLINE)
    except DeadlineExceeded:
        return QueryResult(error="deadline")
    except MemoryError:
        return QueryResult(error="too much memory")
    except WorkerCrashed as error:
        return QueryResult(error=f"SQLite crashed, exit code {error.exit_code}")


async def same_results(actual: QueryResult, expected: QueryResult, *, ordered: bool) -> bool:
    """Tell whether two results are equal in width and rows, see `compare_results`; large ones
    compare in a worker process.
    """
    if len(actual.columns) != len(expected.columns) or len(actual.rows) != len(expected.rows):
        return False
    if len(actual.rows) <= _FEW_ROWS:
        return compare_results(actual.rows, expected.rows, ordered=ordered)
    pool = get_pool("sql", memory_cap=_WORKER_BYTES)
    return await pool.asubmit(partial(compare_results, ordered=ordered), actual.rows, expected.rows)


def run_query(
    schema: str, query: str, *, deadline: float = 5.0, max_rows: int = 10_000
) -> QueryResult:
    """Build a fresh in-memory database from the `schema` script, then run one query that may only
    read.

    The query fails with the record's `error` set after `deadline` seconds, above `max_rows` rows,
    for more than one statement, above 32 MB of text and blobs, and for anything but reading:
    writes, ATTACH, PRAGMA and extensions are refused by SQLite's own authorizer. Raises DataError
    when the schema script itself does not run. Safe to call from any thread.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _bound_sizes(connection)
        connection.set_authorizer(_allow_building)
        began = time.monotonic()
        _stop_at(connection, began + deadline)
        try:
            connection.executescript(schema)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise DataError(f"the SQL schema script does not run: {error}") from error
        built = time.monotonic() - began
        found = _fetch(connection, query, deadline, max_rows)
        return replace(found, schema_seconds=built)


def _stop_at(connection: sqlite3.Connection, until: float) -> None:
    connection.set_progress_handler(lambda: int(time.monotonic() > until), _STEPS_BETWEEN_CHECKS)


def run_file_query(
    database: str, query: str, *, deadline: float = 5.0, max_rows: int = 10_000
) -> QueryResult:
    """Run one query that may only read on a database file that nobody trusts; it fails as that of
    `run_query` does.

    Give a copy that `copy_database` made: what stands in its write-ahead log beside it is taken in,
    and a journal beside it could have other files deleted. A file that is no database is an error
    of the result.
    """
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        try:
            _bound_sizes(connection)
            # functions that its views call must be harmless ones
            connection.execute("PRAGMA trusted_schema = OFF")
        except sqlite3.Error as error:
            return QueryResult(error=str(error)[:200])
        return _fetch(connection, query, deadline, max_rows)


def _fetch(
    connection: sqlite3.Connection, query: str, deadline: float, max_rows: int
) -> QueryResult:
    until = time.monotonic() + deadline
    connection.set_authorizer(_allow_reading)
    _stop_at(connection, until)
    # text that is not UTF-8 must not end the comparison
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        cursor = connection.execute(query)
        rows, size = [], 0
        for row in cursor:
            rows.append(row)
            size += sum(len(cell) for cell in row if isinstance(cell, (str, bytes)))
            if size > _MAX_BYTES:
                return QueryResult(error="too much memory")
            if len(rows) > max_rows:
                return QueryResult(error="too many rows")
    except MemoryError:
        return QueryResult(error="too much memory")
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        if time.monotonic() > until:
            return QueryResult(error="deadline")
        denied = (
            isinstance(error, sqlite3.DatabaseError)
            and "not authorized" in str(error)
            or "prohibited" in str(error)
        )
        return QueryResult(
            error="not read-only" if denied else str(error)[:200] or type(error).__name__
        )
    if cursor.description is None:
        return QueryResult(error="not a query")
    return QueryResult(
        tuple(str(column[0]) for column in cursor.description), tuple(map(tuple, rows))
    )


def _bound_sizes(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA hard_heap_limit = {_HEAP_BYTES}")
    # Python 3.10 cannot set SQLite's limits; there the row limit and the deadline have to do
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)


def _allow_building(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action in _NEVER or (action == sqlite3.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    # dumps begin with pragmas that mean nothing in memory: skipped, not refused
    return sqlite3.SQLITE_IGNORE if action == sqlite3.SQLITE_PRAGMA else sqlite3.SQLITE_OK


def _allow_reading(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action not in _READING or (
        action == sqlite3.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS
    ):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def compare_results(
    actual: Sequence[Sequence[Cell]], expected: Sequence[Sequence[Cell]], *, ordered: bool
) -> bool:
    """Tell whether two result sets are equal: row by row when `ordered`, else as multisets
    (duplicates count).

    An integer, on either side, is exact (1 equals 1.0); floats agree within 1e-6 of their size, or
    1e-9 beside a zero. NULL equals NULL, and a number never equals a text.
    Column names do not matter, the order of columns does.
    """
    if len(actual) != len(expected):
        return False
    if ordered:
        return all(map(_same_row, actual, expected))
    groups_actual, groups_expected = _grouped(actual), _grouped(expected)
    if groups_actual.keys() != groups_expected.keys():
        return False
    return all(_same_numbers(groups_actual[key], groups_expected[key]) for key in groups_expected)


def _same_cell(actual: Cell, expected: Cell) -> bool:
    if isinstance(actual, (int, float)) and isinstance(expected, (int, float)):
        return same_number(actual, expected)
    return type(actual) is type(expected) and actual == expected


def _same_row(actual: Sequence[Cell], expected: Sequence[Cell]) -> bool:
    return len(actual) == len(expected) and all(map(_same_cell, actual, expected))


def _grouped(rows: Sequence[Sequence[Cell]]) -> dict[Row, list[Sequence[Cell]]]:
    """Group rows by everything but their numbers, which need tolerance."""
    groups: dict[Row, list[Sequence[Cell]]] = {}
    for row in rows:
        key = tuple(
            ("number",) if isinstance(cell, (int, float)) else (type(cell).__name__, cell)
            for cell in row
        )
        groups.setdefault(key, []).append(row)  # type: ignore[arg-type]
    return groups


def _same_numbers(actual: list[Sequence[Cell]], expected: list[Sequence[Cell]]) -> bool:
    if len(actual) != len(expected):
        return False
    numbers = sorted(map(_numbers_of_row, actual)), sorted(map(_numbers_of_row, expected))
    if all(map(_same_row, *numbers)):
        return True
    # sorting can pair rows wrongly when a tolerance decides their order; small groups get a real
    # matching
    return len(actual) <= _MAX_MATCHING and _perfect_matching(*numbers)


def _numbers_of_row(row: Sequence[Cell]) -> tuple[float, ...]:
    return tuple(cell for cell in row if isinstance(cell, (int, float)))


def _perfect_matching(left: list[tuple[float, ...]], right: list[tuple[float, ...]]) -> bool:
    """Whether every left row can get a right row of its own within the tolerance."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    fits = csr_array([[_same_row(row, other) for other in right] for row in left])
    return bool((maximum_bipartite_matching(fits, perm_type="column") >= 0).all())
