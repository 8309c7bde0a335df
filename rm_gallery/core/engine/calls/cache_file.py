"""The cache file as a run sees it: opened when needed, replaced when damaged, done without when it cannot be written."""

from __future__ import annotations

import sqlite3
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rm_gallery.core.engine.calls import cache_db
from rm_gallery.core.engine.calls.cache_db import CacheDb

_FORK_WAIT = 2.0
_MAX_RECOVERIES = 8


class CacheFile:
    """Owns the open `CacheDb` of a path and decides what follows from its errors; thread-safe.

    Trouble never raises: it is told once through `on_warning` (default: a RuntimeWarning) and the cache goes on with a
    new file, read-only, or not at all.

    Raises:
        ConfigError: the path is a SQLite file of another program.
    """

    def __init__(self, path: Path, on_warning: Callable[[str], None] | None = None) -> None:
        self.path = path
        self.readable = self.writable = True
        self._on_warning = on_warning
        self._db: CacheDb | None = None
        self._lock = threading.RLock()
        self._recoveries = 0
        self._inherited: list[CacheDb] = []
        self.db()

    def db(self) -> CacheDb | None:
        """The open file; None when there is none to be had."""
        if self._db is not None or not self.readable:
            return self._db
        with self._lock:
            for last in (False, True):
                if self._db is not None or not self.readable:
                    break
                before = cache_db.inode(self.path)
                try:
                    self._db = CacheDb(self.path)
                except (sqlite3.Error, OSError) as error:
                    if last or not self._set_aside(before, error):
                        self._give_up(error)
            return self._db

    def recover(self, failed: CacheDb, error: sqlite3.Error) -> bool:
        """Whether it is worth trying again after `error` on `failed`: there is another file now."""
        with self._lock:
            if self._db is not failed:
                return self._db is not None or self.db() is not None
            damaged = failed.inode
            if not cache_db.is_corrupt(error) and cache_db.inode(self.path) == damaged:
                return False  # a new connection to the same file would fare no better
            self.close()
            self._recoveries += 1
            hopeless = cache_db.is_corrupt(error) and not self._set_aside(damaged, error)
            if hopeless or self._recoveries > _MAX_RECOVERIES:
                self._give_up(error)
            return self.db() is not None

    def _set_aside(self, damaged: int | None, error: sqlite3.Error | OSError) -> bool:
        """Make room for a new file when `error` says that this one is damaged."""
        if not isinstance(error, sqlite3.Error) or not cache_db.is_corrupt(error):
            return False
        try:
            kept = cache_db.set_aside(self.path, damaged)
        except OSError:
            return False
        if kept is not None:
            self._warn(
                f"the call cache {self.path} is damaged ({error}); it was renamed to {kept.name} and a new one begun"
            )
        return True

    def _give_up(self, error: sqlite3.Error | OSError) -> None:
        self.readable = self.writable = False
        self._warn(
            f"the call cache {self.path} cannot be used ({error}); the run goes on without it, and equal calls of later "
            "runs are paid again. Give the cache a folder that can be written, or clear this one."
        )

    def stop_writing(self, error: sqlite3.Error | OSError) -> None:
        """Go on without storing anything new; what is there can still be read."""
        with self._lock:
            if not self.writable:
                return
            self.writable = False
        self._warn(
            f"the call cache {self.path} cannot be written ({error}); the run goes on and reads from it, but new replies "
            "are not stored. Check free space and permissions there."
        )

    def _warn(self, message: str) -> None:
        if self._on_warning is not None:
            self._on_warning(message)
            return
        # Where warnings are errors this one would end the writer thread or a sample; the run is to go on.
        with suppress(RuntimeWarning):
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            db, self._db = self._db, None
            if db is not None:
                with db.write_lock, db.read_lock:
                    db.close()

    def end(self) -> None:
        """Close the file for good."""
        with self._lock:
            self.readable = self.writable = False
            self.close()

    def before_fork(self) -> None:
        """Leave the child nothing of SQLite's: an inherited connection believes in locks the child does not hold."""
        if not self._lock.acquire(timeout=_FORK_WAIT):
            return
        db = self._db
        if db is not None and db.write_lock.acquire(timeout=_FORK_WAIT):
            with db.read_lock:
                db.close()
            db.write_lock.release()
            self._db = None

    def after_fork_in_parent(self) -> None:
        """Let other threads open the file again."""
        with suppress(RuntimeError):
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Start with locks of our own; a connection that could not be closed in time is kept, never touched."""
        self._lock = threading.RLock()
        if self._db is not None:
            self._inherited.append(self._db)
            self._db = None
