"""The way into the call cache: noted at once, stored in bulk by one thread."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable

from rm_gallery.core.engine.calls import cache_db, cache_pending
from rm_gallery.core.engine.calls.cache_file import CacheFile
from rm_gallery.core.engine.calls.cache_pending import PendingLog

# In bulk a row costs about 15 µs of CPU; committed one by one or a few at a time, with a thread woken and the
# interpreter lock passed to and fro for each, 50 to 250 µs.
_GATHER_SECONDS = 0.05
_BATCH_AT_ONCE = 512
_TOUCH_BATCH = 1000
_ATTEMPTS = 3

_Batch = list[tuple[str, bytes]]


class CacheWriter:
    """Appends each put to a side file, which makes it safe, and moves what has come in to the cache file.

    Two side files take turns, so that one can be emptied while the other fills. `after_commit` runs in the thread after
    each batch.
    """

    def __init__(self, file: CacheFile, after_commit: Callable[[], None]) -> None:
        self._file = file
        self._after_commit = after_commit
        self.stored = 0
        self.fresh()

    def fresh(self) -> None:
        """Locks, queue and thread of this process."""
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._settled = threading.Condition(self._lock)
        self._puts = self._settled_puts = 0
        self._queue: _Batch = []
        self.pending: dict[str, bytes] = {}
        self._touched: deque[int] = deque()
        self._filling: PendingLog | None = None
        self._spare: PendingLog | None = None
        self._thread: threading.Thread | None = None
        self._working = self._stopping = False
        self._hurried = 0

    def after_fork_in_child(self) -> None:
        """Leave queue, thread and side files to the parent."""
        for log in (self._filling, self._spare):
            if log is not None:
                log.abandon()
        cache_pending.forget_own()
        self.fresh()

    @property
    def backlog(self) -> int:
        """Puts not yet taken up by the thread."""
        return len(self._queue)

    def adopt_orphans(self) -> None:
        """Store what killed processes had noted but not stored."""
        for rows in cache_pending.orphans(self._file.path):
            if not self._commit(rows):
                break

    def put(self, key: str, value: bytes) -> bool:
        """Take a row; True once it would survive `kill -9`."""
        with self._lock:
            if self._stopping or not self._file.writable:
                return False
            try:
                if self._filling is None:
                    self._filling = PendingLog(self._file.path)
                self._filling.append(key, value)
            except OSError as error:
                self._file.stop_writing(error)
                return False
            self.pending[key] = value
            self._queue.append((key, value))
            self._puts += 1
            if not self._working or len(self._queue) == _BATCH_AT_ONCE:
                self._start_or_notify()
        return True

    def touch(self, n: int) -> None:
        """Note the use of a row; written with a later batch."""
        self._touched.append(n)
        if len(self._touched) == _TOUCH_BATCH:
            with self._lock:
                self._start_or_notify()

    def _start_or_notify(self) -> None:
        self._working = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rm-gallery-cache", daemon=True)
            self._thread.start()
        else:
            self._wake.notify_all()

    def _run(self) -> None:
        try:
            while self._take_and_store():
                pass
        finally:
            # Also after a bug: the next put starts another thread.
            with self._lock:
                self._thread = None
                self._working = False

    def _take_and_store(self) -> bool:
        with self._lock:
            while not (self._queue or len(self._touched) >= _TOUCH_BATCH):
                if self._stopping:
                    if self._touched:
                        break
                    return False
                self._working = False
                self._wake.wait()
            self._working = True
            self._wake.wait_for(self._batch_is_due, timeout=_GATHER_SECONDS)
            batch, self._queue = self._queue, []
            self._filling, self._spare, filled = self._spare, None, self._filling
        stored = False
        try:
            stored = self._commit(batch)
        finally:
            self._settle(batch, filled, stored)
        if stored:
            self._after_commit()
        return True

    def _batch_is_due(self) -> bool:
        return self._hurried > 0 or self._stopping or len(self._queue) >= _BATCH_AT_ONCE

    def _commit(self, rows: _Batch) -> bool:
        touched = [self._touched.popleft() for _ in range(len(self._touched))]
        if not rows and not touched:
            return self._file.writable
        for attempt in range(_ATTEMPTS):
            db = self._file.db()
            if db is None or not self._file.writable:
                break
            try:
                db.write(rows, touched, int(time.time()))
            except sqlite3.Error as error:
                # ProgrammingError: the connection was closed under us for a fork or a replacement.
                again = cache_db.is_busy(error) or isinstance(error, sqlite3.ProgrammingError)
                if attempt + 1 == _ATTEMPTS or not (again or self._file.recover(db, error)):
                    self._file.stop_writing(error)
                    break
            else:
                self.stored += len(rows)
                return True
        return False

    def _settle(self, batch: _Batch, filled: PendingLog | None, stored: bool) -> None:
        with self._lock:
            if stored:
                for key, value in batch:
                    if self.pending.get(key) is value:
                        del self.pending[key]
            self._settled_puts += len(batch)
            self._settled.notify_all()
            if filled is None:
                return
            if not stored and batch:
                filled.abandon()  # the next run stores it
            elif self._spare is None and filled.reset():
                self._spare = filled
            else:
                filled.remove()

    def flush(self) -> None:
        """Wait until everything put so far is in the cache file, or the file cannot be written."""
        with self._lock:
            until = self._puts
            if self._settled_puts >= until:
                return
            self._hurried += 1
            self._start_or_notify()
            self._settled.wait_for(lambda: self._settled_puts >= until)
            self._hurried -= 1

    def stop(self) -> None:
        """Store what is left, end the thread and remove the side files."""
        with self._lock:
            thread = self._thread
            self._stopping = True
            self._wake.notify_all()
        if thread is not None:
            thread.join()
        elif self._touched:
            self._commit([])
        with self._lock:
            for log in (self._filling, self._spare):
                if log is not None:
                    log.remove()
            self._filling = self._spare = None
