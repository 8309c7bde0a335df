"""Model-written SQL may read, and nothing else; result sets compare as multisets."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path

import pytest

from rm_gallery.core.engine.workers.pool import get_pool
from rm_gallery.core.sandbox.sql import Cell, compare_results, run_query, run_query_apart
from rm_gallery.core.utils.errors import DataError

SCHEMA = """
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE town (name TEXT, people INTEGER, area REAL);
INSERT INTO town VALUES ('Ulm', 126000, 118.7), ('Bonn', 330000, 141.1), ('北京', 21540000, NULL);
COMMIT;
"""


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT name FROM town ORDER BY people", (("Ulm",), ("Bonn",), ("北京",))),
        ("SELECT count(*), sum(area) FROM town;", ((3, pytest.approx(259.8)),)),
        ("SELECT area FROM town WHERE name = '北京' -- comment", ((None,),)),
        ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<3) SELECT x FROM n", ((1,), (2,), (3,))),
        ("SELECT upper(name) FROM town WHERE people < 0", ()),
        ("SELECT CAST(x'ff' AS TEXT)", (("\ufffd",),)),
    ],
)
def test_reading_works(query: str, rows: tuple[tuple[Cell, ...], ...]) -> None:
    result = run_query(SCHEMA, query)
    assert result.error == ""
    assert result.rows == rows


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO town VALUES ('x', 1, 1)",
        "UPDATE town SET people = 0",
        "DELETE FROM town",
        "DROP TABLE town",
        "CREATE TABLE other (x)",
        "CREATE TEMP VIEW v AS SELECT 1",
        "ATTACH DATABASE '{file}' AS other",
        "DETACH DATABASE main",
        "VACUUM INTO '{file}'",
        "PRAGMA writable_schema = 1",
        "PRAGMA table_info(town)",
        "SELECT * FROM pragma_table_info('town')",
        "BEGIN",
        "SELECT load_extension('x')",
        "SELECT zeroblob(1000000000)",
        "REINDEX",
        "ANALYZE",
    ],
)
def test_anything_else_is_refused(query: str, tmp_path: Path) -> None:
    result = run_query(SCHEMA, query.format(file=tmp_path / "out.db"))
    assert result.error != ""
    assert result.rows == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT no_such FROM town", "no such column: no_such"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELEC 1", "syntax error"),
        ("", "not a query"),
        ("INSERT INTO town VALUES ('x', 1, 1)", "not read-only"),
    ],
)
def test_errors_are_named(query: str, error: str) -> None:
    assert error in run_query(SCHEMA, query).error


def test_endless_query_meets_its_deadline() -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT count(*) FROM n"
    assert run_query(SCHEMA, endless, deadline=0.2).error == "deadline"


WITHIN_ONE_CALL = "SELECT instr(printf('%.900000c', 'a'), printf('%.450000c', 'a') || 'b')"
LONG_TEXTS = (
    "WITH RECURSIVE n(x, s) AS (SELECT 1, printf('%.900000c', 'a') UNION ALL SELECT x + 1, s FROM n WHERE x < 4000) "
)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        (WITHIN_ONE_CALL, "deadline"),
        (LONG_TEXTS + "SELECT s FROM n", "too much memory"),
        (LONG_TEXTS + "SELECT count(*) FROM (SELECT DISTINCT s || x FROM n)", "too much memory|deadline|out of memory"),
    ],
    ids=["one function call", "rows", "inside SQLite"],
)
def test_s4_a_query_ends_at_its_deadline_and_within_its_memory(query: str, error: str) -> None:
    async def run() -> tuple[str, int, float]:
        await run_query_apart(SCHEMA, "SELECT 1")
        before = set(get_pool("sql").worker_pids())
        began = time.monotonic()
        result = await run_query_apart(SCHEMA, query, deadline=1.0, schema_seconds=0.0)
        took = time.monotonic() - began
        memory = [peak_megabytes(pid) for pid in before & set(get_pool("sql").worker_pids())]
        return result.error, max(memory, default=0), took

    found, megabytes, took = asyncio.run(run())
    assert re.search(error, found)
    assert megabytes < 256
    assert took < 2.5


def peak_megabytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1024


def test_rows_are_bounded() -> None:
    many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT x FROM n"
    assert run_query(SCHEMA, many, max_rows=100).error == "too many rows"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="SQLite limits can be set from Python 3.11 on")
def test_cells_are_bounded() -> None:
    doubling = "WITH RECURSIVE t(x, n) AS (SELECT 'aa', 0 UNION ALL SELECT x||x, n+1 FROM t WHERE n<40) SELECT length(x) FROM t"
    assert "too big" in run_query(SCHEMA, doubling).error


@pytest.mark.parametrize("schema", ["CREATE TABL x", "ATTACH '{file}' AS y", "SELECT load_extension('x')"])
def test_broken_schema_is_the_callers_error(schema: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="schema script"):
        run_query(schema.format(file=tmp_path / "y.db"), "SELECT 1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("found", "expected", "ordered", "same"),
    [
        ([(1,), (2,)], [(2,), (1,)], False, True),
        ([(1,), (2,)], [(2,), (1,)], True, False),
        ([(1,), (1,)], [(1,)], False, False),
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)], False, False),
        ([(1,)], [(1.0,)], False, True),
        ([(1000000006.0,)], [(1000000007,)], False, False),
        ([(1000000006,)], [(1000000007.0,)], True, False),
        ([(6.6e-34,)], [(1.6e-19,)], False, False),
        ([(1e-17,)], [(0.0,)], False, True),
        ([(0.1 + 0.2, "a")], [(0.3, "a")], False, True),
        ([(10**15,)], [(10**15 + 1,)], False, False),
        ([(None,)], [(None,)], False, True),
        ([(None,)], [(0,)], False, False),
        ([("1",)], [(1,)], False, False),
        ([(b"a",)], [("a",)], False, False),
        ([], [], False, True),
        ([(1, 2)], [(1,)], False, False),
        ([(1, "a"), (2, "b")], [(2, "a"), (1, "b")], False, False),
        ([(1.0, 2.0), (1.0 + 1e-9, 1.0)], [(1.0 + 1e-9, 2.0), (1.0, 1.0)], False, True),
        ([(1.0, 2.0), (1.0, 1.0)], [(1.0, 1.0), (1.0, 1.0)], False, False),
    ],
)
def test_comparison(found: list[tuple[Cell, ...]], expected: list[tuple[Cell, ...]], ordered: bool, same: bool) -> None:
    assert compare_results(found, expected, ordered=ordered) is same
