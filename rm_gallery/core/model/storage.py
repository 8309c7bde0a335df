"""Replies that were paid for, in one file that is only appended to.

A reply is one line, with its key and a checksum, written by one `write` before its sample counts:
a kill at any byte costs at most the line that was being written. Any number of processes append to
the file, and a miss looks at what the others have added.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sqlite3
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.utils.errors import ConfigError, logger
from rm_gallery.core.utils.file import FileLock
from rm_gallery.core.utils.identity import hashed

VARIABLE = "RM_GALLERY_CACHE"
"""Environment variable: `off`, or the folder to keep replies in."""
FILE_NAME = "replies-1.log"
EARLIER_NAME = "calls-1.sqlite3"
"""Where versions before this one kept replies; read on a miss, never written."""
MAX_VALUE_BYTES = 32 << 20
"""A longer reply is neither kept nor read: what unpacks to gigabytes is none of ours."""
_CHUNK = 8 << 20
_COMPRESS_FROM = 16_384
_LENGTH_BITS = 26
_PRUNE_TO = 0.9


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
    """What a cache file holds, and what this process did with it; oldest and newest reply in Unix
    seconds.
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


class ReplyCache:
    """Map from a request's hash to its reply; it stores what it is given, so give it good replies
    only. Memory: about 120 bytes a reply. Thread-safe, and safe after a fork.

    A file that cannot be written is read only, one that cannot be opened is done without; each
    gives one warning.

    Args:
        folder: where `replies-1.log` lies; default the user's cache folder.
        max_bytes: size above which the oldest replies are removed, down to 90 %; None for no limit.
        max_age: seconds after which a reply is not used any more; None for no limit.
        on_warning: receives the warnings; default the log.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        max_bytes: int | None = 2 << 30,
        max_age: float | None = 30 * 86400.0,
        on_warning: Callable[[str], object] | None = None,
    ) -> None:
        self.path = (default_cache_folder() if folder is None else Path(folder)) / FILE_NAME
        self.max_bytes, self.max_age = max_bytes, max_age
        self.hits = self.misses = self.stored = 0
        self.writable = True
        self._warn = on_warning or logger.warning
        self._lock = threading.RLock()
        self._file = -1
        self._earlier = Earlier(self.path.with_name(EARLIER_NAME))
        self._open()

    def _open(self) -> None:
        """Open the file, and forget where replies lay in another one of its name."""
        self.close()
        self._places: dict[int, int] = {}
        """By the first 64 bits of a key, where its line begins and how long it is."""
        self._read_to = self._too_large = 0
        flags = os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # replies are for the user's eyes only
            self._file = os.open(self.path, flags | os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            self._give_up(error)
            with suppress(OSError):
                self._file = os.open(self.path, flags | os.O_RDONLY)

    def _give_up(self, error: OSError) -> None:
        if self.writable:
            self.writable = False
            self._warn(
                f"the call cache {self.path} cannot be written ({error.strerror or error}); the "
                f"run goes on, and equal calls of later runs are paid again. Check free space and "
                f"permissions there."
            )

    def get(self, key: str) -> bytes | None:
        """The reply under a key of 64 hexadecimal digits, or None; trouble with the file never
        raises.
        """
        with self._lock:
            line = self._line(key)
            found = line and _value(line, key, self._oldest_used())
            if found is None:
                found, created = self._earlier.get(key, self._oldest_used())
                if found is not None:
                    self.put(key, found, created)
            if found is None:
                self.misses += 1
            else:
                self.hits += 1
            return found

    def put(self, key: str, value: bytes, created: float | None = None) -> bool:
        """Keep a reply, made in this Unix second or now; whether it would survive `kill -9`."""
        if len(value) > MAX_VALUE_BYTES:
            return False
        line = _line_of(key, value, time.time() if created is None else created)
        with self._lock:
            if not self.writable or self._file < 0:
                return False
            try:
                size = self._append(line)
            except OSError as error:
                self._give_up(error)
                return False
            if size == self._read_to + len(line):  # nobody else has written meanwhile
                self._note(line[1:], self._read_to + 1)
                self._read_to = size
            self.stored += 1
            if self.max_bytes is not None and size > max(self.max_bytes, self._too_large):
                self._too_large = size + self.max_bytes // 10  # tried again when it has grown
                self._rewrite(int(self.max_bytes * _PRUNE_TO), self.max_age)
            return True

    def _append(self, line: bytes) -> int:
        """Write a line, and give the size of the file. Whoever made the file anew while it was
        written could miss it: it is written again, into the new one.
        """
        while True:
            if os.write(self._file, line) != len(line):
                raise OSError(28, "the disk is full")
            status = os.fstat(self._file)
            if status.st_nlink:
                return status.st_size
            self._open()

    def _oldest_used(self) -> float:
        return 0.0 if self.max_age is None else time.time() - self.max_age

    def _line(self, key: str) -> bytes | None:
        number = int(key[:16], 16)
        place = self._places.get(number)
        if place is None:
            self._catch_up()
            if (place := self._places.get(number)) is None:
                return None
        offset, length = place >> _LENGTH_BITS, place & ((1 << _LENGTH_BITS) - 1)
        with suppress(OSError):
            return _read_at(self._file, length, offset)
        return None

    def _catch_up(self) -> None:
        """Read what was added since: whole lines, whoever wrote them."""
        with suppress(OSError):
            status = os.fstat(self._file)
            if not status.st_nlink:
                self._open()
                status = os.fstat(self._file)
            for line, place in _whole_lines(self._file, self._read_to, status.st_size):
                self._note(line, place)
                self._read_to = place + len(line)

    def _note(self, line: bytes, place: int) -> None:
        if len(line) > 1 << _LENGTH_BITS:
            return
        with suppress(ValueError):
            number = int(line[9:25], 16)
            if number not in self._places or _is_whole(line):  # a torn line hides no whole one
                self._places[number] = (place << _LENGTH_BITS) + len(line)

    def _rewrite(self, most: int | None, max_age: float | None) -> int:
        """Make the file anew with the latest replies of at most `most` bytes together; how many
        were removed. Nothing happens while another process does it.
        """
        lock = FileLock(self.path.with_name(f"{FILE_NAME}.lock"))
        removed = 0
        try:
            if not lock.acquire():
                return 0
            try:
                removed = self._copy(most, 0.0 if max_age is None else time.time() - max_age)
            finally:
                lock.release()
        except OSError as error:
            self._warn(f"the call cache {self.path} cannot be made smaller ({error}).")
        return removed

    def _copy(self, most: int | None, oldest: float) -> int:
        for left in self.path.parent.glob(f"{FILE_NAME}.*[0-9]"):  # of a process that was killed
            left.unlink(missing_ok=True)
        self._catch_up()
        total = os.fstat(self._file).st_size
        before, begin = len(self._places), 0 if most is None else total - most
        # the lines that hold a reply now, in the order of the file
        kept = sorted(place for place in self._places.values() if place >> _LENGTH_BITS >= begin)
        new = self.path.with_name(f"{FILE_NAME}.{os.getpid()}")
        try:
            self._write_anew(new, kept, oldest)
        finally:
            new.unlink(missing_ok=True)
            if self._file < 0:
                self._open()
        self._catch_up()
        return before - len(self._places)

    def _write_anew(self, new: Path, kept: list[int], oldest: float) -> None:
        old, read_to = self._file, self._read_to
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
            for place in kept:
                line = _read_at(old, place & ((1 << _LENGTH_BITS) - 1), place >> _LENGTH_BITS)
                if _created(line) >= oldest:
                    file.write(b"\n" + line)
        self._file = -1
        try:
            new.replace(self.path)
            self._open()
            # what others wrote until then; later they see that the file is another one
            for line, _ in _whole_lines(old, read_to, os.fstat(old).st_size):
                os.write(self._file, b"\n" + line)
        finally:
            os.close(old)

    def stats(self) -> CacheStats:
        """Size and age of the file, and the counts of this process."""
        with self._lock:
            self._catch_up()
            places = self._places.values()
            return CacheStats(
                path=self.path,
                entries=len(places),
                bytes=os.fstat(self._file).st_size if self._file >= 0 else 0,
                oldest=self._moment(min(places, default=None)),
                newest=self._moment(max(places, default=None)),
                hits=self.hits,
                misses=self.misses,
                stored=self.stored,
                writable=self.writable,
            )

    def _moment(self, place: int | None) -> int | None:
        if place is None:
            return None
        return _created(_read_at(self._file, 96, place >> _LENGTH_BITS))

    def prune(self, max_bytes: int | None = None, max_age: float | None = None) -> int:
        """Remove replies older than `max_age` seconds and the oldest above `max_bytes`; returns how
        many.

        Without arguments the limits of the cache apply.
        """
        if max_bytes is None and max_age is None:
            max_bytes, max_age = self.max_bytes, self.max_age
        with self._lock:
            return self._rewrite(max_bytes, max_age)

    def clear(self) -> int:
        """Remove everything; returns how many replies."""
        with self._lock:
            return self._rewrite(0, None) + self._earlier.remove()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1


class Earlier:
    """The SQLite file of versions before this one, which is only read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_there = path.is_file()

    def get(self, key: str, oldest: float) -> tuple[bytes | None, float]:
        """The reply that was kept there since `oldest`, and when, in Unix seconds."""
        if not self._is_there:
            return None, 0.0
        short = int(key[:16], 16) - (1 << 63)
        try:
            with closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)) as db:  # fmt: skip
                row = db.execute(
                    "SELECT key, codec, value, created FROM calls WHERE hash = ? AND created >= ?",
                    (short, oldest),
                ).fetchone()
        except sqlite3.Error:  # damaged, or of a later version: there is nothing to be read
            self._is_there = False
            return None, 0.0
        if row is None or row[0] != bytes.fromhex(key):
            return None, 0.0
        return _unpacked(row[2]) if row[1] else bytes(row[2]), row[3]

    def remove(self) -> int:
        """Delete the file; how many replies it held."""
        held = 0
        if self._is_there:
            with suppress(sqlite3.Error), closing(sqlite3.connect(self._path)) as db:
                held = int(db.execute("SELECT count(*) FROM calls").fetchone()[0])
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        self._is_there = False
        return held


def _line_of(key: str, value: bytes, created: float) -> bytes:
    """A line; the break before it ends what a killed process left half written."""
    packed = len(value) >= _COMPRESS_FROM or b"\n" in value
    text = base64.b64encode(zlib.compress(value, 1)) if packed else value
    body = b"%s %08x %s %s" % (key.encode(), int(created), b"z" if packed else b"-", text)
    return b"\n%08x %s\n" % (zlib.crc32(body), body)


def _is_whole(line: bytes) -> bool:
    return line[:8] == b"%08x" % zlib.crc32(line[9:-1])


def _value(line: bytes, key: str, oldest: float) -> bytes | None:
    """The reply of a line, where that is whole, of this key and not too old."""
    if line[9:73] != key.encode() or not _is_whole(line):
        return None
    if _created(line) < oldest:
        return None
    return line[85:-1] if line[83:84] == b"-" else _unpacked(base64.b64decode(line[85:-1]))


def _created(line: bytes) -> int:
    with suppress(ValueError):
        return int(line[74:82], 16)
    return 0


def _unpacked(value: bytes) -> bytes | None:
    try:
        data = zlib.decompressobj().decompress(value, MAX_VALUE_BYTES + 1)
    except zlib.error:
        return None
    return data if len(data) <= MAX_VALUE_BYTES else None


def _whole_lines(file: int, begin: int, end: int) -> Iterator[tuple[bytes, int]]:
    """The whole lines from `begin` on that may be ours, with their places."""
    while begin < end:
        chunk = _read_at(file, min(_CHUNK, end - begin), begin)
        while (whole := chunk.rfind(b"\n") + 1) == 0 and begin + len(chunk) < end:
            more = _read_at(file, min(_CHUNK, end - begin - len(chunk)), begin + len(chunk))
            if not more:
                return
            chunk += more
        if not whole:
            return
        at = 0
        while at < whole:
            after = chunk.index(b"\n", at) + 1
            if after - at > 85:
                yield chunk[at:after], begin + at
            at = after
        begin += whole


def _read_at(file: int, length: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(file, length, offset)
    os.lseek(file, offset, os.SEEK_SET)  # Windows; what is appended goes to the end all the same
    return os.read(file, length)


def shared() -> ReplyCache | None:
    """The cache this process uses, opened at first use; None when the environment switches it off.
    Raises ConfigError where that names a URL.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting.lower() == "off":
        return None
    cache = _shared.get(setting)
    if cache is None:
        if "://" in setting:  # a password may stand in it
            raise ConfigError(
                f"{VARIABLE} is a URL; give the folder that keeps replies, or off. Several "
                f"machines share replies through one run on Ray (--engine ray)."
            )
        cache = _shared.setdefault(setting, ReplyCache(Path(setting) if setting else None))
    return cache


_shared: dict[str, ReplyCache] = {}


@library_loop.at_close
async def _close_shared() -> None:
    while _shared:
        _shared.popitem()[1].close()


@library_loop.after_fork
def _forget() -> None:
    _shared.clear()  # a lock may be held by a thread of the parent
