"""Replies already paid for, kept across runs and processes in one SQLite file, without holding up
the event loop.
"""

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
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls.cache_file import MAX_VALUE_BYTES, CacheFile, is_busy
from rm_gallery.core.utils.errors import ConfigError, logger
from rm_gallery.core.utils.identity import hashed

VARIABLE = "RM_GALLERY_CACHE"
"""Environment variable: `off`, or the folder to keep replies in."""
# The schema is part of the name, so that versions of the library with different schemas leave each
# other alone.
FILE_NAME = "calls-1.sqlite3"
_BACKLOG_BYTES = 64 << 20
_GATHER_SECONDS = 0.003
_TEND_EVERY = 60.0
_TOUCH_AFTER = 3600
_TOUCH_BATCH = 1000


def canonical_key(obj: object) -> str:
    """sha256, as 64 hexadecimal digits, of the object's JSON with sorted keys.

    Raises ConfigError: the object holds something JSON has no form for.
    """
    try:
        data = orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Lone surrogates and integers above 64 bit, which the fast encoder refuses.
        try:
            data = json.dumps(obj, sort_keys=True, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"a cache key must be made of plain JSON values: {error}") from None
    return hashed(hashlib.sha256(), data)


def default_cache_folder() -> Path:
    """The user's cache folder for this library: XDG_CACHE_HOME, LOCALAPPDATA or ~/.cache, and
    `rm-gallery` in it.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    if not base and sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "rm-gallery"


@dataclass(frozen=True)
class CacheStats:
    """What a cache file holds, and what this process did with it; oldest and newest noted use in
    Unix seconds.
    """

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
    waiter: asyncio.Future[bool] | None
    """Who is told whether it was stored; None for whoever was told already."""


class CallCache:
    """Persistent map from a request's hash to its reply; it stores what it is given, so give it
    good replies only.

    `put` hands a reply to one thread that commits whatever has come in as a group (SQLite,
    write-ahead log); what it promised survives `kill -9`. Usable from several threads, event loops
    and processes, and after a fork. A damaged file is set aside and a new one begun; a file that
    cannot be written is done without; one that other processes hold is waited for while the run
    goes on. Each gives one warning.

    Args:
        path: folder, or a file ending in .sqlite3, .sqlite or .db; default the user's cache folder.
        max_bytes: size above which the longest unused replies are removed, down to 90 %; None for
            no limit.
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
        own = path is None
        path = default_cache_folder() if path is None else Path(path)
        self.path = path if path.suffix in (".sqlite3", ".sqlite", ".db") else path / FILE_NAME
        self.max_bytes = max_bytes
        self.max_age = max_age
        self.hits = self.misses = self.stored = 0
        self._last_tended = 0.0
        self._file = CacheFile(self.path, own, on_warning)
        self._fresh()
        _live.add(self)

    def _fresh(self) -> None:
        """Lock, queue and thread of this process."""
        self._lock = threading.Lock()  # guards the queue
        self._wake = threading.Condition(self._lock)
        self._queue: list[_Put] = []
        self._pending: dict[str, bytes] = {}
        self._backlog = 0
        self._touched: deque[int] = deque()
        self._thread: threading.Thread | None = None
        self._idle = True
        self._stuck = self._stopping = False

    @property
    def writable(self) -> bool:
        """Whether new replies are being stored."""
        return self._file.writable

    def get(self, key: str) -> bytes | None:
        """The stored reply, or None; trouble with the file never raises."""
        value = self._pending.get(key)
        if value is None and self._file.readable:
            value = self._read_fresh(key)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
        return value

    def _read_fresh(self, key: str) -> bytes | None:
        row = self._file.read(key)
        now = time.time()
        if row is None or (self.max_age is not None and row.created < now - self.max_age):
            return None
        if row.used < now - _TOUCH_AFTER and self._file.writable:
            self._touched.append(row.n)
            if len(self._touched) >= _TOUCH_BATCH:
                with self._lock:
                    self._wake_writer()
        return row.value

    def put(self, key: str, value: bytes) -> asyncio.Future[bool]:
        """Store a reply; the future gives True once it would survive `kill -9`, False if it is not
        stored, or not soon.
        """
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with self._lock:
            full = self._stuck and self._backlog > _BACKLOG_BYTES
            taken = (
                self._file.writable
                and len(value) <= MAX_VALUE_BYTES
                and not self._stopping
                and not full
            )
            if taken:
                self._backlog += len(value) if self._stuck else 0
                self._pending[key] = value
                self._queue.append(_Put(key, value, None if self._stuck else waiter))
                self._wake_writer()
            if not taken or self._stuck:
                waiter.set_result(False)
        return waiter

    def _wake_writer(self) -> None:
        if self._thread is None:
            self._idle = False
            self._thread = threading.Thread(
                target=self._write_batches, name="rm-gallery-cache", daemon=True
            )
            self._thread.start()
        elif self._idle:
            self._idle = False
            self._wake.notify_all()

    def _write_batches(self) -> None:
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
                # under load a few more rows per commit save most of its cost
                time.sleep(_GATHER_SECONDS)
            with self._lock:
                batch, self._queue = self._queue, []
            stored = self._commit(batch)
            gather = len(batch) > 4
            self._tell_of_batch(batch, stored)
            if stored:
                self._tend_now_and_then()
            elif self._stuck and not self._stopping:
                with self._lock:
                    self._wake.wait(1.0)
            elif self._stopping:
                return

    def _commit(self, batch: list[_Put]) -> bool:
        touched = [self._touched.popleft() for _ in range(len(self._touched))]
        for _ in range(3):
            try:
                if not self._file.write([(put.key, put.value) for put in batch], touched):
                    return False
            except sqlite3.Error as error:
                if is_busy(error):
                    self._stuck = True
                    self._file.warn(
                        "busy",
                        f"is held by another process ({error}); the run goes on, and replies are "
                        f"stored later",
                    )
                    return False
                if self._file.recover(error):
                    continue
                self._file.stop_writing(error)
                return False
            self.stored += len(batch)
            self._stuck = False
            return True
        return False

    def _tell_of_batch(self, batch: list[_Put], stored: bool) -> None:
        """Tell those who wait; what could only not be stored yet is kept for the next try."""
        waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[bool]]] = {}
        with self._lock:
            if stored or not self._stuck:
                for put in batch:
                    if self._pending.get(put.key) is put.value:
                        del self._pending[put.key]
                self._backlog = (
                    sum(len(put.value) for put in self._queue if put.waiter is None)
                    if self._backlog
                    else 0
                )
            else:
                self._queue[:0] = [put._replace(waiter=None) for put in batch]
                self._backlog = sum(len(put.value) for put in self._queue)
        for put in batch:
            if put.waiter is not None:
                waiting.setdefault(put.waiter.get_loop(), []).append(put.waiter)
        for loop, waiters in waiting.items():
            with suppress(RuntimeError):  # the loop that waited is closed
                loop.call_soon_threadsafe(_tell, waiters, stored)

    def flush(self) -> None:
        """Wait until everything put so far is in the cache file, or cannot be stored."""
        while True:
            with self._lock:
                if self._stuck or not (
                    self._queue or (self._thread is not None and not self._idle)
                ):
                    return
            time.sleep(0.001)

    def stats(self) -> CacheStats:
        """Size and age of the file, and the counts of this process."""
        self.flush()
        entries, size, oldest, newest = self._file.summary()
        return CacheStats(
            self.path,
            entries,
            size,
            oldest,
            newest,
            self.hits,
            self.misses,
            self.stored,
            self._file.writable,
        )

    def prune(self, max_bytes: int | None = None, max_age: float | None = None) -> int:
        """Remove replies unused for `max_age` seconds and the longest unused above `max_bytes`;
        returns how many.

        Without arguments the limits of the cache apply.
        """
        self.flush()
        if max_bytes is None and max_age is None:
            max_bytes, max_age = self.max_bytes, self.max_age
        removed = self._file.prune(max_bytes, max_age)
        self._file.shrink()
        return removed

    def clear(self) -> int:
        """Remove everything; returns how many replies."""
        self.flush()
        removed = self._file.clear()
        self._file.shrink()
        return removed

    def _tend_now_and_then(self) -> None:
        now = time.monotonic()
        if self._last_tended and now - self._last_tended < _TEND_EVERY:
            return
        self._last_tended = now
        try:
            self._file.prune(self.max_bytes, self.max_age)
        except sqlite3.Error as error:
            if not is_busy(error):
                self._file.recover(error)

    def close(self) -> None:
        """Store what is pending and close the file; afterwards the cache is empty and takes
        nothing.
        """
        with self._lock:
            self._stopping = True
            if self._touched and self._file.writable:
                self._wake_writer()
            thread = self._thread
            self._wake.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            self._queue, self._pending = [], {}
        self._file.readable = self._file.writable = False
        self._file.close()
        _live.discard(self)

    def __enter__(self) -> CallCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def shared() -> CallCache | None:
    """The cache file this process uses, opened at first use; None when the environment switches it
    off. Raises ConfigError where that names a URL.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting.lower() == "off":
        return None
    if "://" in setting:  # a password may stand in it
        raise ConfigError(
            f"{VARIABLE} is a URL; give the folder that keeps replies, or off. Several machines "
            f"share replies through one run on Ray (--engine ray)."
        )
    cache = _shared.get(setting)
    if cache is None:
        with _sharing:
            cache = _shared.get(setting)
            if cache is None:
                cache = _shared[setting] = CallCache(
                    Path(setting) if setting else None, on_warning=logger.warning
                )
    return cache


def _tell(waiters: list[asyncio.Future[bool]], stored: bool) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(stored)


_sharing = threading.Lock()
_shared: dict[str, CallCache] = {}
_live: weakref.WeakSet[CallCache] = weakref.WeakSet()


@library_loop.at_close
async def _close_shared() -> None:
    while _shared:
        _shared.popitem()[1].close()


def _close_all() -> None:
    for cache in list(_live):
        cache.close()


def _before_fork() -> None:
    for cache in list(_live):
        cache._file.before_fork()
        cache._lock.acquire()


def _after_fork_in_parent() -> None:
    for cache in list(_live):
        cache._lock.release()
        cache._file.after_fork_in_parent()


def _after_fork_in_child() -> None:
    global _sharing
    _sharing = threading.Lock()
    _shared.clear()
    for cache in list(_live):
        cache._file.fresh()
        cache._fresh()  # the queue is the parent's


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
