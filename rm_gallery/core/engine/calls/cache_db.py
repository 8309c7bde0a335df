"""The SQLite file behind the call cache: schema, rows in and out, pruning, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rm_gallery.core.engine.folder.files import FileLock
from rm_gallery.core.utils.errors import ConfigError

T = TypeVar("T")

APPLICATION_ID = 0x524D4743  # "RMGC": tells the file from other programs' SQLite files
BUSY_SECONDS = 10.0
_READER_BUSY_SECONDS = 0.1

# zlib level 1 halves a reply but costs about 60 µs per kB, three times what writing it costs; it pays for long ones
# (token probabilities), which shrink to a fifth.
_COMPRESS_FROM = 16_384
_RAW, _ZLIB = 0, 1

# Rows are appended and found through a narrow index of 64-bit hashes: with the hash as primary key each row dirtied
# several random pages and cost four times the CPU (60 against 15 µs).
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS calls (n INTEGER PRIMARY KEY, hash INTEGER NOT NULL, key BLOB NOT NULL, "
    "codec INTEGER NOT NULL, created INTEGER NOT NULL, used INTEGER NOT NULL, value BLOB NOT NULL)",
    "CREATE UNIQUE INDEX IF NOT EXISTS calls_hash ON calls (hash)",
    "CREATE INDEX IF NOT EXISTS calls_used ON calls (used)",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
_INSERT = "INSERT OR REPLACE INTO calls (hash, key, codec, created, used, value) VALUES "
_VALUES = "(?, ?, ?, ?, ?, ?)"
# One statement for up to so many rows: each statement gives up and regains the interpreter lock, which under load
# costs more than the row itself.
_ROWS = 32
_SELECT = "SELECT key, codec, created, used, value, n FROM calls WHERE hash = ?"
_CHUNK = 500


@dataclass(frozen=True)
class Found:
    """One row: its number, Unix seconds of creation and of last noted use, and the value."""

    n: int
    created: int
    used: int
    value: bytes


class CacheDb:
    """One open cache file: a writer and a reader connection, each used and closed under its own lock only.

    SQLite crashes the process when a connection is closed while another thread is inside it.

    Raises:
        ConfigError: the file is a SQLite file of another program.
        sqlite3.Error, OSError: it cannot be opened or created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write_lock = threading.Lock()
        self.read_lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = _connect(path, BUSY_SECONDS)
        try:
            patiently(lambda: _prepare(self._writer, path))
            self._reader = _connect(path, _READER_BUSY_SECONDS)
            self._reader.execute("PRAGMA query_only = 1")
            self._reader.execute(_SELECT, (0,)).fetchone()
        except BaseException:
            self.close()
            raise
        self.inode = inode(path)

    def close(self) -> None:
        """Close both connections."""
        self._writer.close()
        if hasattr(self, "_reader"):
            self._reader.close()

    def read(self, key: str) -> Found | None:
        """The row of a key (64 hexadecimal digits)."""
        with self.read_lock:
            row = self._reader.execute(_SELECT, (_short(key),)).fetchone()
        if row is None or row[0] != bytes.fromhex(key):
            return None
        return Found(row[5], row[2], row[3], zlib.decompress(row[4]) if row[1] == _ZLIB else row[4])

    def write(self, rows: Sequence[tuple[str, bytes]], touched: Sequence[int], now: int) -> None:
        """Store (key, value) rows and note the use of row numbers, in one transaction."""
        inserts = [_insert(rows[i : i + _ROWS], now) for i in range(0, len(rows), _ROWS)]
        with self.write_lock:
            if len(inserts) == 1 and not touched:
                self._writer.execute(*inserts[0])
                return
            self._transaction(lambda: self._write(inserts, [(now, n) for n in touched]))

    def _write(self, inserts: list[tuple[str, list[object]]], touched: list[tuple[int, int]]) -> None:
        for statement, values in inserts:
            self._writer.execute(statement, values)
        if touched:
            self._writer.executemany("UPDATE calls SET used = ? WHERE n = ?", touched)

    def prune_chunk(self, max_bytes: int | None, used_after: float | None) -> int:
        """Remove up to 500 rows that are too old, or the longest unused while the file is too large."""
        with self.write_lock:
            removed = 0
            if used_after is not None:
                removed = self._delete("SELECT n FROM calls WHERE used < ? LIMIT ?", (int(used_after), _CHUNK))
            if not removed and max_bytes is not None and self._bytes_used() > max_bytes:
                removed = self._delete("SELECT n FROM calls ORDER BY used, n LIMIT ?", (_CHUNK,))
            return removed

    def _delete(self, which: str, values: tuple[int, ...]) -> int:
        return self._transaction(
            lambda: self._writer.execute(f"DELETE FROM calls WHERE n IN ({which})", values).rowcount
        )

    def clear(self) -> int:
        """Remove all rows."""
        with self.write_lock:
            return self._transaction(lambda: self._writer.execute("DELETE FROM calls").rowcount)

    def shrink(self) -> None:
        """Give the space of removed rows back to the file system."""
        with self.write_lock:
            self._writer.execute("VACUUM")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _transaction(self, work: Callable[[], T]) -> T:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            result = work()
            self._writer.execute("COMMIT")
        except BaseException:
            _rollback(self._writer)
            raise
        return result

    def bytes_used(self) -> int:
        """Bytes of pages in use; no scan."""
        with self.write_lock:
            return self._bytes_used()

    def _bytes_used(self) -> int:
        pages, free, size = (self._pragma(name) for name in ("page_count", "freelist_count", "page_size"))
        return (pages - free) * size

    def _pragma(self, name: str) -> int:
        return int(self._writer.execute(f"PRAGMA {name}").fetchone()[0])

    def summary(self) -> tuple[int, int, int | None, int | None]:
        """Rows, bytes used, and the Unix seconds of the longest and the latest noted use."""
        with self.write_lock:
            entries, oldest, newest = self._writer.execute(
                "SELECT count(*), min(used), max(used) FROM calls"
            ).fetchone()
            return entries, self._bytes_used(), oldest, newest


def _insert(rows: Sequence[tuple[str, bytes]], now: int) -> tuple[str, list[object]]:
    values: list[object] = []
    for key, value in rows:
        codec = _RAW
        if len(value) >= _COMPRESS_FROM:
            codec, value = _ZLIB, zlib.compress(value, 1)
        values += (_short(key), bytes.fromhex(key), codec, now, now, value)
    return _INSERT + ", ".join([_VALUES] * len(rows)), values


def _short(key: str) -> int:
    return int(key[:16], 16) - (1 << 63)


def _connect(path: Path, busy: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=busy, isolation_level=None, check_same_thread=False)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Set the connection up and create the tables where the file is new."""
    # One transaction: another process may be just making the tables.
    connection.execute("BEGIN")
    try:
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    finally:
        _rollback(connection)
    if owner != APPLICATION_ID and (owner or tables):
        raise ConfigError(f"{path} is a SQLite file of another program; give the call cache a path of its own")
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    if owner != APPLICATION_ID:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            _rollback(connection)
            raise


def _rollback(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def patiently(work: Callable[[], T]) -> T:
    """Repeat `work` while other processes hold the file; SQLite's own waiting does not cover a change of journal mode."""
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= give_up:
                raise
            time.sleep(0.02)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds the file."""
    return any(word in str(error) for word in ("locked", "busy"))


def is_corrupt(error: sqlite3.Error) -> bool:
    """Whether the file is damaged or no SQLite file at all."""
    return any(word in str(error) for word in ("malformed", "not a database", "no such table", "no such column"))


def inode(path: Path) -> int | None:
    """What tells this file from a later one of the same name; None where there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def set_aside(path: Path, damaged: int | None) -> Path | None:
    """Rename a damaged cache file with its write-ahead log; None when another process has already replaced it.

    `damaged` is the `inode` of the file found damaged.
    """
    with FileLock(path.with_name(path.name + ".lock")):
        if damaged is None or inode(path) != damaged:
            return None
        target = path.with_name(f"{path.name}.corrupt-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        for suffix in ("", "-wal", "-shm"):
            if os.path.exists(f"{path}{suffix}"):
                os.replace(f"{path}{suffix}", f"{target}{suffix}")
        return target
