"""Model-written SQL within its bounds: time, memory, rows and cells."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from rm_gallery import DataError
from rm_gallery.core.engine.pool import get_pool
from rm_gallery.core.sandbox.sql import (
    QueryResult,
    compare_results,
    run_query,
    run_query_in_worker,
    same_results,
)
from tests.engine.processes import worker_pids

SCHEMA = "CREATE TABLE town (name TEXT)"


def test_endless_query_meets_its_deadline() -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT count(*) FROM n"
    assert run_query(SCHEMA, endless, deadline=0.2).error == "deadline"


WITHIN_ONE_CALL = "SELECT instr(printf('%.900000c', 'a'), printf('%.450000c', 'a') || 'b')"
LONG_TEXTS = (
    "WITH RECURSIVE n(x, s) AS (SELECT 1, printf('%.900000c', 'a') UNION ALL SELECT x + 1, s FROM "
    "n WHERE x < 4000) "
)


@pytest.mark.long("programs that resist")
@pytest.mark.parametrize(("query", "error"), [
    (WITHIN_ONE_CALL, "deadline"),
    (LONG_TEXTS + "SELECT s FROM n", "too much memory"),
    (LONG_TEXTS + "SELECT count(*) FROM (SELECT DISTINCT s || x FROM n)", "too much memory|deadline|out of memory"),
], ids=["one function call", "rows", "inside SQLite"])  # fmt: skip
def test_a_query_ends_at_its_deadline_and_within_its_memory(query: str, error: str) -> None:
    async def run() -> tuple[str, int]:
        await run_query_in_worker(SCHEMA, "SELECT 1")
        before = set(worker_pids(get_pool("sql")))
        result = await run_query_in_worker(SCHEMA, query, deadline=1.0, schema_seconds=0.0)
        memory = [peak_megabytes(pid) for pid in before & set(worker_pids(get_pool("sql")))]
        return result.error, max(memory, default=0)

    found, megabytes = asyncio.run(run())
    assert re.search(error, found)
    assert megabytes < 256


def peak_megabytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1024


def test_rows_are_bounded() -> None:
    many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n LIMIT {}) SELECT x FROM n"
    assert run_query(SCHEMA, many.format(101), max_rows=100).error == "too many rows"
    assert len(run_query(SCHEMA, many.format(100), max_rows=100).rows) == 100


def test_bytes_of_all_rows_are_bounded() -> None:
    """32 MB: 64 rows of half a megabyte fit, and not one byte more."""
    half = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n LIMIT 64) SELECT "
        "printf('%.524288c', 'a') FROM n"
    )
    assert run_query(SCHEMA, half).error == ""
    assert run_query(SCHEMA, f"{half} UNION ALL SELECT 'b'").error == "too much memory"
    assert run_query(SCHEMA, f"{half} UNION ALL SELECT 7").error == ""


@pytest.mark.parametrize("rows", [1, 50, 51, 300])
def test_results_differ_in_width_in_length_and_in_any_row(rows: int) -> None:
    found = QueryResult(("a",), tuple((n,) for n in range(rows)))
    others = [
        (QueryResult(("b",), found.rows[::-1]), False, True),
        (QueryResult(("b",), found.rows[::-1]), True, rows == 1),
        (QueryResult(("a", "b"), found.rows), False, False),
        (QueryResult(("a",), found.rows[1:]), False, False),
        (QueryResult(("a",), (*found.rows[1:], (-1,))), False, False),
    ]
    for other, ordered, same in others:
        assert asyncio.run(same_results(found, other, ordered=ordered)) is same


def test_rows_whose_order_a_tolerance_decides_are_matched_up_to_400_of_them() -> None:
    for pairs, same in ((200, True), (201, False)):
        found = [row for n in range(pairs) for row in ((n + 0.5, 1.0), (n + 0.5 + 1e-9, 2.0))]
        expected = [row for n in range(pairs) for row in ((n + 0.5, 2.0), (n + 0.5 + 1e-9, 1.0))]
        assert compare_results(found, expected, ordered=False) is same


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="SQLite limits can be set from Python 3.11 on"
)
def test_cells_are_bounded() -> None:
    doubling = (
        "WITH RECURSIVE t(x, n) AS (SELECT 'aa', 0 UNION ALL SELECT x||x, n+1 FROM t WHERE n<40) "
        "SELECT length(x) FROM t"
    )
    assert "too big" in run_query(SCHEMA, doubling).error


@pytest.mark.parametrize(
    "schema", ["CREATE TABL x", "ATTACH '{file}' AS y", "SELECT load_extension('x')"]
)
def test_broken_schema_is_the_callers_error(schema: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="schema script"):
        run_query(schema.format(file=tmp_path / "y.db"), "SELECT 1")
    assert list(tmp_path.iterdir()) == []
