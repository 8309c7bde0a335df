"""Replies already paid for, kept across runs and processes in one SQLite file, without holding up the event loop."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import os
import sqlite3
import sys
import threading
import time
import warnings
import weakref
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import orjson

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.folder.files import FileLock
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.log import logger

VARIABLE = "RM_GALLERY_CACHE"
"""Environment variable: `off`, or the folder to keep replies in."""
# The schema is part of the name, so that versions of the library with different schemas leave each other alone.
FILE_NAME = "calls-1.sqlite3"
APPLICATION_ID = 0x524D4743  # "RMGC": tells the file from other programs' SQLite files
MAX_VALUE_BYTES = 32 << 20
"""A longer reply is neither kept nor read: a row that unpacks to gigabytes is none of ours."""
BUSY_SECONDS = 5.0
"""How long a commit waits for other processes before samples go on without it; it is tried again until it succeeds."""
_BACKLOG_BYTES = 64 << 20
_COMPRESS_FROM = 16_384  # zlib takes 60 µs per kB, three times what writing it costs; it pays for long replies
_GATHER_SECONDS = 0.003
_ROWS = 32  # each statement gives up and regains the interpreter lock, which under load costs more than its rows
_TEND_EVERY = 60.0
_TOUCH_AFTER = 3600
_TOUCH_BATCH = 1000
_PRUNE_TO = 0.9
_CHUNK = 500
_MAX_RECOVERIES = 8

# Rows are appended and found through a narrow index of 64-bit hashes: with the hash as primary key each row dirtied
# several random pages and cost four times the CPU.
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS calls (n INTEGER PRIMARY KEY, hash INTEGER NOT NULL, key BLOB NOT NULL, "
    "codec INTEGER NOT NULL, created INTEGER NOT NULL, used INTEGER NOT NULL, value BLOB NOT NULL)",
    "CREATE UNIQUE INDEX IF NOT EXISTS calls_hash ON calls (hash)",
    "CREATE INDEX IF NOT EXISTS calls_used ON calls (used)",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
_INSERT = "INSERT OR REPLACE INTO calls (hash, key, codec, created, used, value) VALUES "
_SELECT = (
    f"SELECT key, codec, created, used, CASE WHEN length(value) <= {MAX_VALUE_BYTES} THEN value END, n FROM calls "
    "WHERE hash = ?"
)


def canonical_key(obj: object) -> str:
    """sha256, as 64 hexadecimal digits, of the object's JSON with sorted keys.

    Raises:
        ConfigError: the object holds something JSON has no form for.
    """
    try:
        data = orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Lone surrogates and integers above 64 bit, which the fast encoder refuses.
        try:
            data = json.dumps(obj, sort_keys=True, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"a cache key must be made of plain JSON values: {error}") from None
    return hashlib.sha256(data).hexdigest()


def default_cache_folder() -> Path:
    """The user's cache folder for this library: XDG_CACHE_HOME, LOCALAPPDATA or ~/.cache, and `rm-gallery` in it."""
    base = os.environ.get("XDG_CACHE_HOME")
    if not base and sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "rm-gallery"


@dataclass(frozen=True)
class CacheStats:
    """What a cache file holds, and what this process did with it; oldest and newest noted use in Unix seconds."""

    path: Path
    entries: int
    bytes: int
    oldest: int | None
    newest: int | None
    hits: int
    misses: int
    stored: int
    writable: bool


class _Put(NamedTuple):
    key: str
    value: bytes
    done: Callable[[bool], None] | None
    loop: asyncio.AbstractEventLoop | None


class CallCache:
    """Persistent map from a request's hash to its reply; it stores what it is given, so give it good replies only.

    `put` hands a reply to one thread that commits whatever has come in as a group (SQLite, write-ahead log); what it
    promised survives `kill -9`. Usable from several threads, event loops and processes, and after a fork. A damaged file is
    set aside and a new one begun; a file that cannot be written is done without; one that other processes hold is waited
    for while the run goes on. Each gives one warning.

    Args:
        path: folder, or a file ending in .sqlite3, .sqlite or .db; default the user's cache folder.
        max_bytes: size above which the longest unused replies are removed, down to 90 %; None for no limit.
        max_age: seconds after which a reply is not used any more; None for no limit.
        on_warning: receives the warnings; default a RuntimeWarning.

    Raises:
        ConfigError: the path is a SQLite file of another program.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_bytes: int | None = 2 << 30,
        max_age: float | None = 30 * 86400.0,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self._own_folder = path is None
        path = default_cache_folder() if path is None else Path(path)
        self.path = path if path.suffix in (".sqlite3", ".sqlite", ".db") else path / FILE_NAME
        self.max_bytes = max_bytes
        self.max_age = max_age
        self.hits = self.misses = self.stored = 0
        self._on_warning = on_warning
        self._readable = self._writable = True
        self._warned: set[str] = set()
        self._recoveries = 0
        self._last_tended = 0.0
        self._fresh()
        with self._io:
            self._open()
        _install_hooks()
        _live.add(self)

    def _fresh(self) -> None:
        """Connections, locks, queue and thread of this process."""
        self._io = threading.RLock()  # guards the writing connection, and opening and closing both
        self._reading = threading.Lock()
        self._lock = threading.Lock()  # guards the queue
        self._wake = threading.Condition(self._lock)
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._queue: list[_Put] = []
        self._pending: dict[str, bytes] = {}
        self._backlog = 0
        self._touched: deque[int] = deque()
        self._thread: threading.Thread | None = None
        self._idle = True
        self._stuck = self._stopping = False

    # ---- reading

    @property
    def writable(self) -> bool:
        """Whether new replies are being stored."""
        return self._writable

    def get(self, key: str) -> bytes | None:
        """The stored reply, or None; trouble with the file never raises."""
        value = self._pending.get(key)
        if value is None and self._readable:
            value = self._read(key)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
        return value

    def _read(self, key: str) -> bytes | None:
        row = None
        for _ in range(2):
            try:
                with self._reading:
                    if self._reader is not None:
                        row = self._reader.execute(_SELECT, (_short(key),)).fetchone()
                        break
            except sqlite3.Error as error:
                if _is_busy(error) or not self._recover(error):
                    return None
                continue
            # closed for a fork or a replacement
            if not self._io.acquire(timeout=0.1):
                return None
            try:
                self._open()
            finally:
                self._io.release()
        now = time.time()
        if row is None or row[4] is None or row[0] != bytes.fromhex(key):
            return None
        if self.max_age is not None and row[2] < now - self.max_age:
            return None
        if row[3] < now - _TOUCH_AFTER and self._writable:
            self._touched.append(row[5])
            if len(self._touched) >= _TOUCH_BATCH:
                with self._lock:
                    self._start()
        return _unpacked(row[4]) if row[1] else bytes(row[4])

    # ---- writing

    def put(self, key: str, value: bytes) -> asyncio.Future[bool]:
        """Store a reply from a coroutine; the future gives True once it would survive `kill -9`, False if not stored."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()

        def done(stored: bool) -> None:
            if not future.done():
                future.set_result(stored)

        if not self._take(_Put(key, value, done, loop)):
            future.set_result(False)
        return future

    def put_sync(self, key: str, value: bytes) -> bool:
        """Store a reply from outside an event loop; True once it would survive `kill -9`, False if not stored."""
        stored: list[bool] = []
        finished = threading.Event()

        def done(found: bool) -> None:
            stored.append(found)
            finished.set()

        if not self._take(_Put(key, value, done, None)):
            return False
        finished.wait()
        return stored[0]

    def _take(self, put: _Put) -> bool:
        """Queue a reply; whether anybody will be told about it."""
        with self._lock:
            if self._stopping or not self._writable or len(put.value) > MAX_VALUE_BYTES:
                return False
            stuck = self._stuck
            if stuck:
                if self._backlog > _BACKLOG_BYTES:
                    return False
                self._backlog += len(put.value)
                put = put._replace(done=None)
            self._pending[put.key] = put.value
            self._queue.append(put)
            self._start()
        return not stuck

    def _start(self) -> None:
        if self._thread is None:
            self._idle = False
            self._thread = threading.Thread(target=self._run, name="rm-gallery-cache", daemon=True)
            self._thread.start()
        elif self._idle:
            self._idle = False
            self._wake.notify_all()

    def _run(self) -> None:
        gather = False
        while True:
            with self._lock:
                self._idle = True
                while not self._queue and not self._stopping and len(self._touched) < _TOUCH_BATCH:
                    self._wake.wait()
                self._idle = False
                if self._stopping and not self._queue and not self._touched:
                    return
            if gather and not self._stopping:
                time.sleep(_GATHER_SECONDS)  # under load a few more rows per commit save most of its cost
            with self._lock:
                batch, self._queue = self._queue, []
            stored = self._commit(batch)
            gather = len(batch) > 4
            self._settle(batch, stored)
            if stored:
                self._tend_now_and_then()
            elif self._stuck and not self._stopping:
                with self._lock:
                    self._wake.wait(1.0)
            elif self._stopping:
                return

    def _commit(self, batch: list[_Put]) -> bool:
        touched = [self._touched.popleft() for _ in range(len(self._touched))]
        now = int(time.time())
        inserts = [_insert(batch[i : i + _ROWS], now) for i in range(0, len(batch), _ROWS)]
        for _ in range(3):
            try:
                with self._io:
                    if not self._writable or self._open() is None:
                        return False
                    self._write(inserts, [(now, n) for n in touched])
            except sqlite3.Error as error:
                if _is_busy(error):
                    self._stuck = True
                    self._warn(
                        "busy", f"is held by another process ({error}); the run goes on, and replies are stored later"
                    )
                    return False
                if self._recover(error):
                    continue
                self._stop_writing(error)
                return False
            self.stored += len(batch)
            self._stuck = False
            return True
        return False

    def _write(self, inserts: list[tuple[str, list[object]]], touched: list[tuple[int, int]]) -> None:
        assert self._writer is not None
        if len(inserts) == 1 and not touched:
            self._writer.execute(*inserts[0])
            return
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            for statement, values in inserts:
                self._writer.execute(statement, values)
            if touched:
                self._writer.executemany("UPDATE calls SET used = ? WHERE n = ?", touched)
            self._writer.execute("COMMIT")
        except BaseException:
            _rollback(self._writer)
            raise

    def _settle(self, batch: list[_Put], stored: bool) -> None:
        """Tell those who wait; what could only not be stored yet is kept for the next try."""
        by_loop: dict[asyncio.AbstractEventLoop | None, list[Callable[[bool], None]]] = {}
        with self._lock:
            if stored or not self._stuck:
                for put in batch:
                    if self._pending.get(put.key) is put.value:
                        del self._pending[put.key]
                self._backlog = sum(len(put.value) for put in self._queue if put.done is None) if self._backlog else 0
            else:
                self._queue[:0] = [put._replace(done=None, loop=None) for put in batch]
                self._backlog = sum(len(put.value) for put in self._queue)
            for put in batch:
                if put.done is not None:
                    by_loop.setdefault(put.loop, []).append(put.done)
        for loop, callbacks in by_loop.items():
            if loop is None:
                _tell(callbacks, stored)
            else:
                with suppress(RuntimeError):  # the loop that waited is closed
                    loop.call_soon_threadsafe(_tell, callbacks, stored)

    def flush(self) -> None:
        """Wait until everything put so far is in the cache file, or cannot be stored."""
        while True:
            with self._lock:
                if self._stuck or not (self._queue or (self._thread is not None and not self._idle)):
                    return
            time.sleep(0.001)

    # ---- looking after the file

    def stats(self) -> CacheStats:
        """Size and age of the file, and the counts of this process."""
        self.flush()
        with self._io:
            db = self._open()
            found = (0, None, None)
            if db is not None:
                found = db.execute("SELECT count(*), min(used), max(used) FROM calls").fetchone()
            size = 0 if db is None else self._bytes_used()
        return CacheStats(
            self.path, found[0], size, found[1], found[2], self.hits, self.misses, self.stored, self._writable
        )

    def prune(self, max_bytes: int | None = None, max_age: float | None = None) -> int:
        """Remove replies unused for `max_age` seconds and the longest unused above `max_bytes`; returns how many.

        Without arguments the limits of the cache apply.
        """
        self.flush()
        if max_bytes is None and max_age is None:
            max_bytes, max_age = self.max_bytes, self.max_age
        removed = self._prune(max_bytes, max_age)
        self._shrink()
        return removed

    def clear(self) -> int:
        """Remove everything; returns how many replies."""
        self.flush()
        with self._io:
            db = self._open()
            removed = 0 if db is None else db.execute("DELETE FROM calls").rowcount
        self._shrink()
        return removed

    def _shrink(self) -> None:
        with self._io:
            if self._writer is not None:
                self._writer.execute("VACUUM")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _bytes_used(self) -> int:
        assert self._writer is not None
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (int(self._writer.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
        return (pages - free) * size

    def _prune(self, max_bytes: int | None, max_age: float | None) -> int:
        used_after = None if max_age is None else int(time.time() - max_age)
        removed, started = 0, False
        while True:
            with self._io:  # in chunks: a commit may come in between
                db = self._open()
                if db is None:
                    return removed
                chunk = 0
                if used_after is not None:
                    chunk = _delete(db, "WHERE used < ?", used_after)
                if not chunk and max_bytes is not None and self._bytes_used() > max_bytes:
                    started, max_bytes = True, max_bytes if started else int(max_bytes * _PRUNE_TO)
                    chunk = _delete(db, "ORDER BY used, n")
            if not chunk:
                return removed
            removed += chunk

    def _tend_now_and_then(self) -> None:
        now = time.monotonic()
        if self._last_tended and now - self._last_tended < _TEND_EVERY:
            return
        self._last_tended = now
        try:
            self._prune(self.max_bytes, self.max_age)
        except sqlite3.Error as error:
            if not _is_busy(error):
                self._recover(error)

    # ---- the file

    def _open(self) -> sqlite3.Connection | None:
        """The writing connection, with the reading one beside it; None when there is none to be had."""
        for last in (False, True):
            if self._writer is not None or not self._readable:
                break
            before = _inode(self.path)
            try:
                self._make_private()
                self._writer = sqlite3.connect(self.path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
                _patiently(self._prepare)
                with self._reading:
                    self._reader = sqlite3.connect(self.path, 0.1, isolation_level=None, check_same_thread=False)
                    self._reader.execute("PRAGMA query_only = 1")
                    self._reader.execute(_SELECT, (0,)).fetchone()
                self._inode = _inode(self.path)
            except ConfigError:
                self._close_file()
                raise
            except (sqlite3.Error, OSError) as error:
                self._close_file()
                if last or not self._set_aside(before, error):
                    self._readable = self._writable = False
                    self._warn("use", f"cannot be used ({error}); the run goes on without it, and equal calls of later "
                               "runs are paid again. Give the cache a folder that can be written, or clear this one")  # fmt: skip
        return self._writer

    def _make_private(self) -> None:
        """Replies are for the user's eyes only: make folder and file so, also where an earlier version did not."""
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
        # One transaction: another process may be just making the tables.
        connection.execute("BEGIN")
        try:
            owner = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        finally:
            _rollback(connection)
        if owner != APPLICATION_ID and (owner or tables):
            raise ConfigError(f"{self.path} is a SQLite file of another program; give the call cache a path of its own")
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

    def _close_file(self) -> None:
        """Close both connections; SQLite crashes the process when another thread is inside one."""
        with self._io, self._reading:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None

    def _recover(self, error: sqlite3.Error) -> bool:
        """Whether it is worth trying again: there is another file now, or another connection to it."""
        with self._io:
            if isinstance(error, sqlite3.ProgrammingError) and self._writer is None:
                return self._open() is not None  # closed under us for a fork or a replacement
            same = _inode(self.path) == self._inode
            if same and not _is_corrupt(error):
                return False  # a new connection to the same file would fare no better
            damaged = self._inode
            self._close_file()
            self._recoveries += 1
            if self._recoveries > _MAX_RECOVERIES:
                self._readable = self._writable = False
            elif same:
                self._set_aside(damaged, error)
            return self._open() is not None

    def _set_aside(self, damaged: int | None, error: sqlite3.Error | OSError) -> bool:
        """Rename the file found damaged with its log; whether there is room for a new one. One process does it."""
        if not isinstance(error, sqlite3.Error) or not _is_corrupt(error):
            return False
        try:
            with FileLock(self.path.with_name(self.path.name + ".lock")):
                if damaged is None or _inode(self.path) != damaged:
                    return True
                kept = self.path.with_name(f"{self.path.name}.corrupt-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
                for suffix in ("", "-wal", "-shm"):
                    if os.path.exists(f"{self.path}{suffix}"):
                        os.replace(f"{self.path}{suffix}", f"{kept}{suffix}")
        except OSError:
            return False
        self._warn("", f"is damaged ({error}); it was renamed to {kept.name} and a new one begun")
        return True

    def _stop_writing(self, error: sqlite3.Error) -> None:
        """Go on without storing anything new; what is there can still be read."""
        self._writable = False
        self._warn("write", f"cannot be written ({error}); the run goes on and reads from it, but new replies are not "
                   "stored. Check free space and permissions there")  # fmt: skip

    def _warn(self, once: str, what: str) -> None:
        if once in self._warned:
            return
        self._warned |= {once} if once else set()
        message = f"the call cache {self.path} {what}."
        if self._on_warning is not None:
            self._on_warning(message)
            return
        # Where warnings are errors this one would end the writer thread or a sample; the run is to go on.
        with suppress(RuntimeWarning):
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def close(self) -> None:
        """Store what is pending and close the file; afterwards the cache is empty and takes nothing."""
        with self._lock:
            self._stopping = True
            if self._touched and self._writable:
                self._start()
            thread = self._thread
            self._wake.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            left, self._queue = self._queue, []
            self._pending = {}
        for put in left:
            if put.done is not None and put.loop is None:
                put.done(False)
        self._readable = self._writable = False
        self._close_file()
        _live.discard(self)

    def __enter__(self) -> CallCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _before_fork(self) -> None:
        """Leave the child nothing of SQLite's: an inherited connection believes in locks the child does not hold."""
        self._forking = self._io.acquire(timeout=2.0)
        if self._forking:
            self._close_file()
        self._lock.acquire()

    def _after_fork_in_parent(self) -> None:
        self._lock.release()
        if self._forking:
            self._io.release()

    def _after_fork_in_child(self) -> None:
        # connections that could not be closed in time are kept, never touched; the queue is the parent's
        _inherited.append((self._writer, self._reader))
        self._fresh()


def shared() -> CallCache | None:
    """The cache this process uses, opened at first use; None when the environment switches it off."""
    setting = os.environ.get(VARIABLE, "")
    if setting.lower() == "off":
        return None
    cache = _shared.get(setting)
    if cache is None:
        with _sharing:
            cache = _shared.get(setting)
            if cache is None:
                cache = _shared[setting] = CallCache(Path(setting) if setting else None, on_warning=logger.warning)
    return cache


async def _close_shared() -> None:
    caches = list(_shared.values())
    _shared.clear()
    for cache in caches:
        cache.close()


def _forget_shared() -> None:
    global _sharing
    _sharing = threading.Lock()
    _shared.clear()


_sharing = threading.Lock()
_shared: dict[str, CallCache] = {}
_inherited: list[object] = []
_live: weakref.WeakSet[CallCache] = weakref.WeakSet()
_hooked = False
library_loop.at_close(_close_shared)
library_loop.after_fork(_forget_shared)


def _install_hooks() -> None:
    global _hooked
    if _hooked:
        return
    _hooked = True
    atexit.register(_each(CallCache.close))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_each(CallCache._before_fork),
            after_in_parent=_each(CallCache._after_fork_in_parent),
            after_in_child=_each(CallCache._after_fork_in_child),
        )


def _each(action: Callable[[CallCache], None]) -> Callable[[], None]:
    def run() -> None:
        for cache in list(_live):
            action(cache)

    return run


def _tell(callbacks: list[Callable[[bool], None]], stored: bool) -> None:
    for callback in callbacks:
        callback(stored)


def _short(key: str) -> int:
    return int(key[:16], 16) - (1 << 63)


def _insert(batch: list[_Put], now: int) -> tuple[str, list[object]]:
    values: list[object] = []
    for put in batch:
        packed = len(put.value) >= _COMPRESS_FROM
        value = zlib.compress(put.value, 1) if packed else put.value
        values += (_short(put.key), bytes.fromhex(put.key), int(packed), now, now, value)
    return _INSERT + ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(batch)), values


def _unpacked(value: bytes) -> bytes | None:
    try:
        data = zlib.decompressobj().decompress(value, MAX_VALUE_BYTES + 1)
    except zlib.error:
        return None
    return data if len(data) <= MAX_VALUE_BYTES else None


def _delete(db: sqlite3.Connection, which: str, *values: int) -> int:
    return db.execute(f"DELETE FROM calls WHERE n IN (SELECT n FROM calls {which} LIMIT {_CHUNK})", values).rowcount


def _rollback(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _patiently(work: Callable[[], None]) -> None:
    """Repeat `work` while other processes hold the file; SQLite's own waiting does not cover a change of journal mode."""
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() >= give_up:
                raise
            time.sleep(0.02)


def _is_busy(error: sqlite3.Error) -> bool:
    return any(word in str(error) for word in ("locked", "busy"))


def _is_corrupt(error: sqlite3.Error) -> bool:
    return any(word in str(error) for word in ("malformed", "not a database", "no such table", "no such column"))


def _inode(path: Path) -> int | None:
    """What tells this file from a later one of the same name; None where there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None
