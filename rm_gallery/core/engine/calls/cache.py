"""Replies already paid for, kept across runs and processes without ever holding up the event loop."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import os
import sqlite3
import sys
import time
import weakref
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import orjson

from rm_gallery.core.engine.calls import cache_db
from rm_gallery.core.engine.calls.cache_db import CacheDb, Found
from rm_gallery.core.engine.calls.cache_file import CacheFile
from rm_gallery.core.engine.calls.cache_writer import CacheWriter
from rm_gallery.core.engine.calls.single_flight import SingleFlight
from rm_gallery.core.utils.errors import ConfigError

__all__ = ["CacheStats", "CallCache", "SingleFlight", "canonical_key", "default_cache_folder"]

# The schema is part of the name, so that versions of the library with different schemas leave each other alone.
FILE_NAME = "calls-1.sqlite3"
_TEND_EVERY = 60.0
_BACKLOG = 1000
_PRUNE_TO = 0.9
_TOUCH_AFTER = 3600


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


class CallCache:
    """Persistent map from a request's hash to its reply; it stores what it is given, so give it good replies only.

    `get` reads in place and `put` appends to a side file, about 10 µs each; one thread moves what was put to the SQLite
    file in bulk, and a cache that opens takes over the side files of processes that were killed.
    Usable from several threads, event loops and processes, and after a fork. A damaged file is set aside and a new one
    begun; a file that cannot be written is done without. Either gives one warning and the run goes on.

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
        path = default_cache_folder() if path is None else Path(path)
        self.path = path if path.suffix in (".sqlite3", ".sqlite", ".db") else path / FILE_NAME
        self.max_bytes = max_bytes
        self.max_age = max_age
        self.hits = self.misses = 0
        self._last_tended = 0.0
        self._file = CacheFile(self.path, on_warning)
        self._writer = CacheWriter(self._file, self._tend_now_and_then)
        self._writer.adopt_orphans()
        _install_hooks()
        _live.add(self)

    @property
    def writable(self) -> bool:
        """Whether new replies are being stored."""
        return self._file.writable

    def get(self, key: str) -> bytes | None:
        """The stored reply, or None; trouble with the file never raises."""
        value = self._writer.pending.get(key)
        if value is None and self._file.readable:
            value = self._read(key)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
        return value

    def _read(self, key: str) -> bytes | None:
        found = self._find(key)
        if found is None:
            return None
        now = time.time()
        if self.max_age is not None and found.created < now - self.max_age:
            return None
        if found.used < now - _TOUCH_AFTER and self._file.writable:
            self._writer.touch(found.n)
        return found.value

    def _find(self, key: str) -> Found | None:
        for _ in range(2):
            db = self._file.db()
            if db is None:
                return None
            try:
                return db.read(key)
            except sqlite3.ProgrammingError:
                continue  # closed under us for a fork or a replacement
            except sqlite3.Error as error:
                if cache_db.is_busy(error) or not self._file.recover(db, error):
                    return None
            except zlib.error:
                return None
        return None

    def put(self, key: str, value: bytes) -> asyncio.Future[bool]:
        """Store a reply from a coroutine; the future gives True once it would survive `kill -9`, False if not stored.

        That takes microseconds; other processes see the reply some 50 ms later, or after `flush`.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        future.set_result(self._writer.put(key, value))
        return future

    def put_sync(self, key: str, value: bytes) -> bool:
        """Store a reply from outside an event loop; True once it would survive `kill -9`, False if not stored."""
        return self._writer.put(key, value)

    def flush(self) -> None:
        """Wait until everything put so far is in the cache file."""
        self._writer.flush()

    def stats(self) -> CacheStats:
        """Size and age of the file, and the counts of this process."""
        self.flush()
        db = self._file.db()
        entries, size, oldest, newest = (0, 0, None, None) if db is None else db.summary()
        return CacheStats(
            self.path, entries, size, oldest, newest, self.hits, self.misses, self._writer.stored, self._file.writable
        )

    def prune(self, max_bytes: int | None = None, max_age: float | None = None) -> int:
        """Remove replies unused for `max_age` seconds and the longest unused above `max_bytes`; returns how many.

        Without arguments the limits of the cache apply.
        """
        self.flush()
        if max_bytes is None and max_age is None:
            max_bytes, max_age = self.max_bytes, self.max_age
        db = self._file.db()
        if db is None:
            return 0
        removed = self._prune(db, max_bytes, max_age, lambda: False)
        db.shrink()
        return removed

    def clear(self) -> int:
        """Remove everything; returns how many replies."""
        self.flush()
        db = self._file.db()
        if db is None:
            return 0
        removed = db.clear()
        db.shrink()
        return removed

    def _prune(self, db: CacheDb, max_bytes: int | None, max_age: float | None, interrupted: Callable[[], bool]) -> int:
        used_after = None if max_age is None else time.time() - max_age
        if max_bytes is not None and db.bytes_used() > max_bytes:
            max_bytes = int(max_bytes * _PRUNE_TO)
        removed = 0
        while not interrupted():
            chunk = db.prune_chunk(max_bytes, used_after)
            if not chunk:
                break
            removed += chunk
        return removed

    def _tend_now_and_then(self) -> None:
        """In the writer thread: take over from dead processes, and prune while nothing waits to be stored."""
        now = time.monotonic()
        if self._last_tended and now - self._last_tended < _TEND_EVERY:
            return
        self._writer.adopt_orphans()
        db = self._file.db()
        if db is None:
            return
        try:
            self._prune(db, self.max_bytes, self.max_age, lambda: self._writer.backlog > _BACKLOG)
        except sqlite3.Error as error:
            if not cache_db.is_busy(error) and not isinstance(error, sqlite3.ProgrammingError):
                self._file.recover(db, error)
        if self._writer.backlog <= _BACKLOG:
            self._last_tended = now

    def close(self) -> None:
        """Store what is pending and close the file; afterwards the cache is empty and takes nothing."""
        self._writer.stop()
        self._file.end()
        _live.discard(self)

    def __enter__(self) -> CallCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _before_fork(self) -> None:
        self._file.before_fork()

    def _after_fork_in_parent(self) -> None:
        self._file.after_fork_in_parent()

    def _after_fork_in_child(self) -> None:
        self._file.after_fork_in_child()
        self._writer.after_fork_in_child()


_live: weakref.WeakSet[CallCache] = weakref.WeakSet()
_hooked = False


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
