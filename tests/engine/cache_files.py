"""Filling, ageing and checking cache files for the cache tests."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from rm_gallery.core.engine.calls.cache import CallCache, canonical_key


def keys(count: int) -> list[str]:
    return [canonical_key(number) for number in range(count)]


def put_all(cache: CallCache, rows: Mapping[str, bytes]) -> list[bool]:
    """What each put returned; afterwards the rows are in the file."""

    async def main() -> list[bool]:
        return list(await asyncio.gather(*(cache.put(key, value) for key, value in rows.items())))

    results = asyncio.run(main())
    cache.flush()
    return results


def put_one(cache: CallCache, key: str, value: bytes) -> bool:
    """What one put returned."""

    async def main() -> bool:
        return await cache.put(key, value)

    return asyncio.run(main())


def make_older(path: Path, key: str, *, created: float, used: float) -> None:
    """Move creation and last use of a row so many seconds into the past."""
    now = time.time()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE calls SET created = ?, used = ? WHERE key = ?",
            (int(now - created), int(now - used), bytes.fromhex(key)),
        )


def stored(path: Path) -> dict[str, tuple[int, bytes]]:
    """Seconds of last use and value by key, read by nobody but SQLite."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return {
            key.hex(): (used, value)
            for key, used, value in connection.execute("SELECT key, used, value FROM calls")
        }
