"""The SQLite file behind the call cache: opened when needed, replaced when damaged, done without
when it cannot be used.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import FileLock

APPLICATION_ID = 0x524D4743  # "RMGC": tells the file from other programs' SQLite files
MAX_VALUE_BYTES = 32 << 20
"""A longer reply is neither kept nor read: a row that unpacks to gigabytes is none of ours."""
BUSY_SECONDS = 5.0
"""How long a commit waits for other processes before samples go on without it; it is tried again
until it succeeds.
"""
# zlib takes 60 µs per kB, three times what writing it costs; it pays for long replies
_COMPRESS_FROM = 16_384
# each statement gives up and regains the interpreter lock, which under load costs more than its
# rows
_ROWS = 32
_PRUNE_TO = 0.9
_CHUNK = 500
_MAX_RECOVERIES = 8

# Rows are appended and found through a narrow index of 64-bit hashes: with the hash as primary key
# each row dirtied several random pages and cost four times the CPU.
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS calls (n INTEGER PRIMARY KEY, hash INTEGER NOT NULL, key BLOB NOT "
    "NULL, codec INTEGER NOT NULL, created INTEGER NOT NULL, used INTEGER NOT NULL, value BLOB "
    "NOT NULL)",
    "CREATE UNIQUE INDEX IF NOT EXISTS calls_hash ON calls (hash)",
    "CREATE INDEX IF NOT EXISTS calls_used ON calls (used)",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
_INSERT = "INSERT OR REPLACE INTO calls (hash, key, codec, created, used, value) VALUES "
_SELECT = (
    f"SELECT key, codec, created, used, CASE WHEN length(value) <= {MAX_VALUE_BYTES} THEN value "
    f"END, n FROM calls "
    "WHERE hash = ?"
)


class StoredReply(NamedTuple):
    """One stored reply: its number, Unix seconds of creation and last noted use, and the value."""

    n: int
    created: int
    used: int
    value: bytes


class CacheFile:
    """A writing and a reading connection to one file, each used under its own lock; thread-safe.

    Trouble is told once through `on_warning` (default: a RuntimeWarning), and the cache goes on
    with a new file, read-only, or not at all.
    Raises ConfigError: the path is a SQLite file of another program.
    """

    def __init__(
        self, path: Path, own_folder: bool, on_warning: Callable[[str], None] | None
    ) -> None:
        self.path = path
        self.readable = self.writable = True
        self._own_folder = own_folder
        self._on_warning = on_warning
        self._warned: set[str] = set()
        self._recoveries = 0
        self._inherited: list[object] = []
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self.fresh()
        self.open()

    def fresh(self) -> None:
        """Locks of this process, and no connections: those of a parent are kept, never touched."""
        self._inherited.append((self._writer, self._reader))
        self._io = threading.RLock()  # guards the writing connection, and opening and closing both
        self._reading = threading.Lock()
        self._writer = self._reader = None
        self._inode: int | None = None

    def read(self, key: str) -> StoredReply | None:
        """The row of a key (64 hexadecimal digits); trouble with the file never raises."""
        row = None
        for _ in range(2):
            if not self.readable:
                return None
            try:
                with self._reading:
                    if self._reader is not None:
                        row = self._reader.execute(_SELECT, (_short(key),)).fetchone()
                        break
            except sqlite3.Error as error:
                if is_busy(error) or not self.recover(error):
                    return None
                continue
            # closed for a fork or a replacement
            if not self._io.acquire(timeout=0.1):
                return None
            try:
                self.open()
            finally:
                self._io.release()
        if row is None or row[4] is None or row[0] != bytes.fromhex(key):
            return None
        value = _unpacked(row[4]) if row[1] else bytes(row[4])
        return None if value is None else StoredReply(row[5], row[2], row[3], value)

    def write(self, rows: Sequence[tuple[str, bytes]], touched: Sequence[int]) -> bool:
        """Store (key, value) rows and note the use of row numbers, in one transaction; False when
        there is no file.
        """
        now = int(time.time())
        inserts = [_insert(rows[i : i + _ROWS], now) for i in range(0, len(rows), _ROWS)]
        with self._io:
            db = self.open() if self.writable else None
            if db is None:
                return False
            if len(inserts) == 1 and not touched:
                db.execute(*inserts[0])
                return True
            with _transaction(db):
                for statement, values in inserts:
                    db.execute(statement, values)
                if touched:
                    db.executemany(
                        "UPDATE calls SET used = ? WHERE n = ?", [(now, n) for n in touched]
                    )
            return True

    def summary(self) -> tuple[int, int, int | None, int | None]:
        """Rows, bytes used, and the Unix seconds of the longest and the latest noted use."""
        with self._io:
            db = self.open()
            if db is None:
                return 0, 0, None, None
            entries, oldest, newest = db.execute(
                "SELECT count(*), min(used), max(used) FROM calls"
            ).fetchone()
            return entries, _bytes_used(db), oldest, newest

    def prune(self, max_bytes: int | None, max_age: float | None) -> int:
        """Remove rows unused for `max_age` seconds, then the longest unused above `max_bytes`, down
        to 90 % of it.
        """
        used_after = None if max_age is None else int(time.time() - max_age)
        removed, started = 0, False
        while True:
            with self._io:  # in chunks: a commit may come in between
                db = self.open()
                if db is None:
                    return removed
                chunk = 0
                if used_after is not None:
                    chunk = _delete(db, "WHERE used < ?", used_after)
                if not chunk and max_bytes is not None and _bytes_used(db) > max_bytes:
                    started, max_bytes = True, max_bytes if started else int(max_bytes * _PRUNE_TO)
                    chunk = _delete(db, "ORDER BY used, n")
            if not chunk:
                return removed
            removed += chunk

    def clear(self) -> int:
        """Remove all rows."""
        with self._io:
            db = self.open()
            return 0 if db is None else db.execute("DELETE FROM calls").rowcount

    def shrink(self) -> None:
        """Give the space of removed rows back to the file system."""
        with self._io:
            if self._writer is not None:
                self._writer.execute("VACUUM")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def open(self) -> sqlite3.Connection | None:
        """The writing connection, with the reading one beside it; None when there is none to be
        had.
        """
        for last in (False, True):
            if self._writer is not None or not self.readable:
                break
            before = _inode(self.path)
            try:
                self._make_private()
                self._writer = self._connect(BUSY_SECONDS)
                _patiently(self._prepare)
                with self._reading:
                    self._reader = self._connect(0.1)
                    self._reader.execute("PRAGMA query_only = 1")
                    self._reader.execute(_SELECT, (0,)).fetchone()
                self._inode = _inode(self.path)
            except ConfigError:
                self.close()
                raise
            except (sqlite3.Error, OSError) as error:
                self.close()
                if last or not self._set_aside(before, error):
                    self.readable = self.writable = False
                    self.warn(
                        "use",
                        f"cannot be used ({error}); the run goes on without it, and equal calls of "
                        f"later "
                        # fmt: skip
                        "runs are paid again. Give the cache a folder that can be written, or "
                        "clear this one",
                    )
        return self._writer

    def _connect(self, timeout: float) -> sqlite3.Connection:
        # by name: Python 3.13 warns of anything given by position besides the path
        return sqlite3.connect(
            self.path, timeout=timeout, isolation_level=None, check_same_thread=False
        )

    def _make_private(self) -> None:
        """Replies are for the user's eyes only: make folder and file so, also where an earlier
        version did not.
        """
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600))
        for path in [self.path, *([folder] if self._own_folder else [])]:
            status = path.stat()
            if status.st_mode & 0o077 and hasattr(os, "getuid") and status.st_uid == os.getuid():
                with suppress(OSError):
                    path.chmod(0o700 if path is folder else 0o600)

    def _prepare(self) -> None:
        """Set the connection up and create the tables where the file is new."""
        connection = self._writer
        assert connection is not None
        with _transaction(connection, "BEGIN"):  # another process may be just making the tables
            owner = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if owner != APPLICATION_ID and (owner or tables):
            raise ConfigError(
                f"{self.path} is a SQLite file of another program; give the call cache a path of "
                f"its own"
            )
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        if owner != APPLICATION_ID:
            with _transaction(connection):
                for statement in _SCHEMA:
                    connection.execute(statement)

    def close(self) -> None:
        """Close both connections; SQLite crashes the process when another thread is inside one."""
        with self._io, self._reading:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None

    def recover(self, error: sqlite3.Error) -> bool:
        """Whether it is worth trying again: there is another file now, or another connection to it."""
        with self._io:
            if isinstance(error, sqlite3.ProgrammingError) and self._writer is None:
                return self.open() is not None  # closed under us for a fork or a replacement
            same = _inode(self.path) == self._inode
            if same and not _is_corrupt(error):
                return False  # a new connection to the same file would fare no better
            damaged = self._inode
            self.close()
            self._recoveries += 1
            if self._recoveries > _MAX_RECOVERIES:
                self.readable = self.writable = False
            elif same:
                self._set_aside(damaged, error)
            return self.open() is not None

    def _set_aside(self, damaged: int | None, error: sqlite3.Error | OSError) -> bool:
        """Rename the file found damaged with its log; whether there is room for a new one. One
        process does it.
        """
        if not isinstance(error, sqlite3.Error) or not _is_corrupt(error):
            return False
        try:
            with FileLock(self.path.with_name(self.path.name + ".lock")):
                if damaged is None or _inode(self.path) != damaged:
                    return True
                kept = self.path.with_name(
                    f"{self.path.name}.corrupt-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
                )
                for suffix in ("", "-wal", "-shm"):
                    if os.path.exists(f"{self.path}{suffix}"):
                        os.replace(f"{self.path}{suffix}", f"{kept}{suffix}")
        except OSError:
            return False
        self.warn("", f"is damaged ({error}); it was renamed to {kept.name} and a new one begun")
        return True

    def stop_writing(self, error: sqlite3.Error) -> None:
        """Go on without storing anything new; what is there can still be read."""
        self.writable = False
        self.warn("write", f"cannot be written ({error}); the run goes on and reads from it, but new replies are not "
                   "stored. Check free space and permissions there")  # fmt: skip

    def warn(self, once: str, what: str) -> None:
        """Say what became of the file; what has a name in `once` is said only once."""
        if once in self._warned:
            return
        self._warned |= {once} if once else set()
        message = f"the call cache {self.path} {what}."
        if self._on_warning is not None:
            self._on_warning(message)
            return
        # Where warnings are errors this one would end the writer thread or a sample; the run is to
        # go on.
        with suppress(RuntimeWarning):
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def before_fork(self) -> None:
        """Leave the child nothing of SQLite's: an inherited connection believes in locks the child
        does not hold.
        """
        self._forking = self._io.acquire(timeout=2.0)
        if self._forking:
            self.close()

    def after_fork_in_parent(self) -> None:
        """Let other threads open the file again."""
        if self._forking:
            self._io.release()


def _bytes_used(db: sqlite3.Connection) -> int:
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
    return (pages - free) * size


def _short(key: str) -> int:
    return int(key[:16], 16) - (1 << 63)


def _insert(rows: Sequence[tuple[str, bytes]], now: int) -> tuple[str, list[object]]:
    values: list[object] = []
    for key, value in rows:
        packed = len(value) >= _COMPRESS_FROM
        kept = zlib.compress(value, 1) if packed else value
        values += (_short(key), bytes.fromhex(key), int(packed), now, now, kept)
    return _INSERT + ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(rows)), values


def _unpacked(value: bytes) -> bytes | None:
    try:
        data = zlib.decompressobj().decompress(value, MAX_VALUE_BYTES + 1)
    except zlib.error:
        return None
    return data if len(data) <= MAX_VALUE_BYTES else None


def _delete(db: sqlite3.Connection, which: str, *values: int) -> int:
    return db.execute(
        f"DELETE FROM calls WHERE n IN (SELECT n FROM calls {which} LIMIT {_CHUNK})", values
    ).rowcount


@contextmanager
def _transaction(db: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    db.execute(begin)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _patiently(work: Callable[[], None]) -> None:
    """Repeat `work` while other processes hold the file; SQLite's own waiting does not cover a
    change of journal mode.
    """
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


def _is_corrupt(error: sqlite3.Error) -> bool:
    return any(
        word in str(error)
        for word in ("malformed", "not a database", "no such table", "no such column")
    )


def _inode(path: Path) -> int | None:
    """What tells this file from a later one of the same name; None where there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None
