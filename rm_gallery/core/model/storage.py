"""Replies that were paid for, in files that are only appended to: the cache of a user, and beside the
records of a run what they were made of.

A reply is one line, with its key and a checksum, written by one `write` before its sample counts:
a kill at any byte costs at most the line that was being written. Any number of processes append to
a file, and a miss looks at what the others have added.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sqlite3
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import FileLock
from rm_gallery.core.utils.first_keys import FirstKeys
from rm_gallery.core.utils.identity import hashed
from rm_gallery.core.utils.log import logger

VARIABLE = "RM_GALLERY_CACHE"
"""Environment variable: `off`, or the folder to keep replies in."""
FILE_NAME = "replies-1.log"
_NAMES = FILE_NAME, "replies.jsonl"
"""Where a run folder holds replies; the other is of versions before this one, and only read."""
EARLIER_NAME = "calls-1.sqlite3"
"""Where versions before this one kept the replies of a user; read on a miss, never written."""
PATH_SECONDS = 0.05
"""So long another process may have made the file anew before this one looks."""
MAX_VALUE_BYTES = 32 << 20
"""A longer reply is neither kept nor read: what unpacks to gigabytes is none of ours."""
_COMPRESS_FROM = 16_384
_ROUNDS = 10
"""Who copies the file catches up with those who write to it, but does not run after them for ever."""
_NONE = 0
"""The place of a reply that is not kept, and of one to a request that was answered in two ways."""
_FILE = 1 << 48
"""A place in another file is the number of that file, times this, and where the line begins."""
_READS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""A pipe may be planted in a folder: nobody waits for it."""
_APPENDS = os.O_APPEND | os.O_WRONLY | os.O_CREAT | _READS
_APPENDS |= getattr(os, "O_NOFOLLOW", 0)  # and so may a link
# The places of a line: checksum [0:8], key [9:73], of which [9:25] is its name, when it was made
# [74:82] in hexadecimal, - or z for packed [83:84], value [85:]; one of 85 bytes holds none.
_LINE = re.compile(rb"[0-9a-f]{8} [0-9a-f]{64} [0-9a-f]{8} [-z] .*")
_EARLIER_LINE = re.compile(rb'\{"key":"([0-9a-f]{64})","(?:reply":(?:null|(.*))|base64":"(.*)")\}')


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
    return Path(base or Path.home() / ".cache", "rm-gallery")


@dataclass(frozen=True)
class CacheStats:
    """What a cache file holds; oldest and newest reply in Unix seconds."""

    path: Path
    entries: int
    bytes: int
    oldest: int | None
    newest: int | None


class ReplyStore(Protocol):
    """What a run keeps replies in."""

    def get(self, key: str) -> bytes | None:
        """The reply to a request."""

    def knows(self, key: str) -> bool:
        """Whether the request was made."""

    def put(self, key: str, reply: bytes | None) -> object:
        """Keep a reply, or that there was one which is not kept."""


class ReplyCache:
    """Map from a request's hash to its reply; it stores what it is given, so give it good replies
    only. Memory: about 40 bytes a reply. Thread-safe, and safe after a fork.

    The file is made with the first reply. One that cannot be written is read only, and gives one
    warning.

    Args:
        folder: where `replies-1.log` lies; default the user's cache folder.
        max_bytes: size above which the oldest replies are removed, down to 90 %; None for no limit.
        max_age: seconds after which a reply is not used any more; None for no limit.
    """

    one_reply = False
    """Whether a request that was answered in two ways has no reply; else the last one counts."""

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        max_bytes: int | None = 2 << 30,
        max_age: float | None = 30 * 86400.0,
    ) -> None:
        self.path = Path(folder or default_cache_folder()) / FILE_NAME
        self.max_bytes, self.max_age = max_bytes, max_age
        self.writable = True
        self._lock = threading.RLock()
        self._files = [str(self.path)]
        """The file that grows, and others that are read alone."""
        self._opened: dict[int, int] = {}
        """What they are read by, and -1: what the first is appended by."""
        self._earlier_files = [*self.path.parent.glob(EARLIER_NAME)]
        self._forget()

    def _forget(self) -> None:
        while self._opened:
            os.close(self._opened.popitem()[1])
        self._places, self._read_to, self._inode = FirstKeys(), 0, -1
        self._path_due = 0.0

    def _failed(self, error: OSError) -> bool:
        if self.writable:
            self.writable = False
            logger.warning(
                "the call cache {} cannot be written ({}); the run goes on, and equal calls of later "
                "runs are paid again. Check free space and permissions there.",
                self.path, error.strerror or error,
            )  # fmt: skip
        return False

    def get(self, key: str) -> bytes | None:
        """The reply under a key of 64 hexadecimal digits, or None; trouble with the file never
        raises.
        """
        with self._lock:
            oldest = _since(self.max_age)
            reply = _value(self._at(self._catch_up(key), key.encode()), oldest)
            if reply is None and (
                row := self._earlier(
                    "SELECT codec, value, created FROM calls "
                    "WHERE hash = ? AND key = ? AND created >= ?",
                    _name_of(key), bytes.fromhex(key), oldest,
                )
            ):  # fmt: skip
                reply = _unpacked(row[1]) if row[0] else row[1]
                if reply is not None:
                    self.put(key, reply, row[2])
            return reply

    def put(self, key: str, reply: bytes | None, created: float = 0.0) -> bool:
        """Keep a reply, made in this Unix second or now, or None for one that is not kept; whether
        it would survive `kill -9`.
        """
        reply = reply or b""
        line = _line_of(key.encode(), reply, created or time.time())
        with self._lock:
            if len(reply) > MAX_VALUE_BYTES or not self.writable:
                return False
            place = self._catch_up(key) if self.one_reply else None
            if place == _NONE or place is not None and _value(self._at(place)) == reply:
                return True
            try:
                size = self._append(line)
            except OSError as error:
                return self._failed(error)
            if self.max_bytes is not None and size > self.max_bytes:
                self.prune(self.max_bytes * 9 // 10, self.max_age)
            return True

    def _append(self, line: bytes) -> int:
        """Write a line, note it where nobody else wrote since, and give the size of the file.
        Whoever made the file anew while it was written could miss it: it is written again, into
        the new one.
        """
        if -1 not in self._opened:  # replies are for the user's eyes only
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._opened[-1] = os.open(self.path, _APPENDS, 0o600)
        if os.write(self._opened[-1], line) != len(line):
            raise OSError(28, "the disk is full")
        status = os.fstat(self._opened[-1])
        if not status.st_nlink:
            self._forget()
            return self._append(line)
        if (status.st_ino, status.st_size) == (self._inode, self._read_to + len(line)):
            self._note(line[1:-1], self._read_to + 1)
            self._read_to = status.st_size
        return status.st_size

    def _catch_up(self, key: str = "0", *, look: bool = False) -> int | None:
        """Read what was added since, whoever wrote it; where the reply under a key may lie. `look` by
        the path in any case.
        """
        try:
            # by its path once in a while: a look through folders costs more than all else of a miss
            now = time.monotonic()
            if 0 in self._opened and now < self._path_due and not look:
                status = os.fstat(self._opened[0])
            else:
                status, self._path_due = os.stat(self._files[0]), now + PATH_SECONDS
            inode, size = status.st_ino, status.st_size
        except OSError:
            inode = size = 0
        if self._inode not in (0, inode) or size < self._read_to:  # made anew by another process
            self._forget()
            for number in range(1, len(self._files)):
                self._take_in(number)
        self._inode = inode
        if size != self._read_to:
            self._read_to = self._take_in(0, self._read_to)
        return self._places.get(_name_of(key))

    def _take_in(self, number: int, begin: int = 0) -> int:
        """Note the lines of a file from `begin` on that are ended; where they end."""
        parts, end = list[bytes](), begin
        while block := self._read_at(number, end, 1 << 18):
            end += len(block)
            parts.append(block)
            if b"\n" not in block:
                continue
            *lines, rest = b"".join(parts).split(b"\n")
            parts = [rest]
            for line in lines:
                if line and (held := _checked(line)):
                    self._note(held, number * _FILE + begin)
                begin += len(line) + 1
        return begin

    def _note(self, line: bytes, place: int) -> None:
        name = _name_of(line[9:25])
        known = self._places.swap(name, place)
        if self.one_reply and (
            len(line) == 85 or known is not None and _value(self._at(known)) != _value(line)
        ):
            self._places.swap(name, _NONE)

    def _at(self, place: int | None, key: bytes = b"") -> bytes:
        """The line at a place, if it begins with that key; b"" where none is."""
        if not place:
            return b""
        for size in 4096, 1 << 18, 2 * MAX_VALUE_BYTES:
            line, end, _ = self._read_at(place // _FILE, place % _FILE, size).partition(b"\n")
            if end:
                break
        line = _checked(line)
        return line if line.startswith(key, 9) else b""

    def _read_at(self, number: int, begin: int, size: int) -> bytes:
        """Bytes of a file; b"" where there are none, or the file of a user cannot be read."""
        try:
            if number not in self._opened:
                self._opened[number] = os.open(self._files[number], _READS)
            return os.pread(self._opened[number], size, begin)
        except FileNotFoundError:
            return b""
        except OSError as error:
            if self.one_reply:
                error.filename = self._files[number]
                self._failed(error)
            return b""

    def stats(self) -> CacheStats:
        """Size and age of the file."""
        with self._lock:
            self._catch_up(look=True)
            places = self._places.values() or [_NONE]
            oldest, newest = (_created(self._at(end(places))) or None for end in (min, max))
            return CacheStats(self.path, len(self._places), self._read_to, oldest, newest)

    def prune(self, max_bytes: int | None = None, max_age: float | None = None) -> int:
        """Remove replies older than `max_age` seconds and the oldest above `max_bytes`; returns how
        many. Nothing happens while another process does it.

        Without arguments the limits of the cache apply.
        """
        if max_bytes is None and max_age is None:
            max_bytes, max_age = self.max_bytes, self.max_age
        lock = FileLock(self.path.with_name(f"{FILE_NAME}.lock"))
        with self._lock:
            try:
                return self._copy(max_bytes, _since(max_age)) if lock.acquire() else 0
            except FileNotFoundError:
                return 0
            except OSError as error:
                return self._failed(error)
            finally:
                lock.release()

    def _copy(self, most: int | None, oldest: float) -> int:
        self._catch_up(look=True)
        self._read_at(0, 0, 1)  # opened, before another file stands in its place
        before, end = len(self._places), self._read_to
        new = self.path.with_name(f"{FILE_NAME}.new")
        try:
            with os.fdopen(os.open(new, _APPENDS | os.O_TRUNC, 0o600), "ab") as file:
                begin = 0 if most is None else end - most
                for _ in range(_ROUNDS):  # and what others wrote meanwhile, so that little is left
                    file.writelines(self._lines_from(begin, oldest))
                    begin, end = end, self._take_in(0, end)
                    if begin == end:
                        break
                file.flush()
                new.replace(self.path)
                # the rest in one write, since others may write into this file already; later they
                # see that the file is another one
                self._take_in(0, end)
                os.write(file.fileno(), b"".join(self._lines_from(end, 0.0)))
        finally:
            new.unlink(missing_ok=True)
        self._catch_up(look=True)
        return before - len(self._places)

    def _lines_from(self, begin: int, oldest: float) -> Iterator[bytes]:
        """From a place on, the lines that hold a reply now, in the order of the file."""
        for place in sorted(place for place in self._places.values() if place >= begin):
            if _created(line := self._at(place)) >= oldest:
                yield b"\n%s\n" % line

    def clear(self) -> int:
        """Remove everything; returns how many replies."""
        with self._lock:
            held = self._earlier("SELECT count(*) FROM calls") or (0,)
            for path in self.path.parent.glob(f"{EARLIER_NAME}*"):
                path.unlink(missing_ok=True)
            return self.prune(0) + int(held[0])

    def _earlier(self, query: str, *values: object) -> Any:
        """A row of the SQLite file of versions before this one; None where there is none, or it is
        damaged or of a later version.
        """
        for path in [*self._earlier_files]:
            uri = f"{path.absolute().as_uri()}?mode=ro"
            try:
                with closing(sqlite3.connect(uri, uri=True, timeout=0.1)) as db:
                    return db.execute(query, values).fetchone()
            except sqlite3.Error:
                self._earlier_files.remove(path)
        return None

    def close(self) -> None:
        """Keep nothing more."""
        with self._lock:
            self._forget()
            self.writable = False


class KeptReplies(ReplyCache):
    """The replies that the records of a run were made of, beside them: scoring a record once more
    needs neither the cache nor the model.

    The key is the hash of the request, with its endpoint and the number of the repeat. The same
    reply to the same request is kept once. A request that was answered in two ways has no reply
    here: nobody knows which one a record was made of. One process writes at a time: the run
    folder's lock sees to that.
    """

    one_reply = True

    def __init__(self, folder: Path, parts: Iterable[Path] = ()) -> None:
        """Read what is kept in a run folder, and in those of its parts, which are read alone.

        Raises ConfigError where it cannot be read.
        """
        super().__init__(folder, max_bytes=None, max_age=None)
        self._files = [str(each / name) for each in (folder, *parts) for name in _NAMES]
        self._catch_up()

    @property
    def is_empty(self) -> bool:
        """Whether no reply was kept yet."""
        return -1 not in self._opened and not len(self._places)

    def knows(self, key: str) -> bool:
        """Whether the request was made, also where no reply to it is kept."""
        with self._lock:
            return self._catch_up(key) is not None

    def _failed(self, error: OSError) -> bool:
        raise ConfigError(
            f"{error.filename or self.path} cannot be used: {error.strerror}. Everything finished "
            f"is saved. Free some space, or mend that, then run the same command to continue."
        ) from error


def _since(max_age: float | None) -> float:
    return 0.0 if max_age is None else time.time() - max_age


def _name_of(key: str | bytes) -> int:
    return int(key[:16], 16) - (1 << 63)


def _line_of(key: bytes, value: bytes, created: float) -> bytes:
    """A line; the break before it ends what a killed process left half written."""
    packed = len(value) >= _COMPRESS_FROM or b"\n" in value
    text = base64.b64encode(zlib.compress(value, 1)) if packed else value
    body = b"%s %08x %s %s" % (key, int(created), b"z" if packed else b"-", text)
    return b"\n%08x %s\n" % (zlib.crc32(body), body)


def _checked(line: bytes) -> bytes:
    """A line as it is written now; b"" for one that is torn, damaged or none of ours."""
    if earlier := _EARLIER_LINE.fullmatch(line):
        key, text, data = earlier.groups()
        try:
            orjson.loads(text or b"null")  # two torn lines may look like one
            line = _line_of(key, text or base64.b64decode(data or b"", validate=True), 0)[1:-1]
        except ValueError:
            return b""
    is_whole = _LINE.fullmatch(line) and line[:8] == b"%08x" % zlib.crc32(line[9:])
    return line if is_whole else b""


def _created(line: bytes) -> int:
    return int(line[74:82] or b"0", 16)


def _value(line: bytes, oldest: float = 0.0) -> bytes | None:
    if not line or _created(line) < oldest:
        return None
    data = line[85:]
    return data if line[83:84] == b"-" else _unpacked(base64.b64decode(data))


def _unpacked(value: bytes) -> bytes | None:
    with suppress(zlib.error):
        data = zlib.decompressobj().decompress(value, MAX_VALUE_BYTES + 1)
        if len(data) <= MAX_VALUE_BYTES:
            return data
    return None


def shared() -> ReplyCache | None:
    """The cache this process uses, opened at first use; None when the environment switches it off.
    Raises ConfigError where that names a URL.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting.lower() == "off":
        return None
    if "://" in setting:  # a password may stand in it
        raise ConfigError(
            f"{VARIABLE} is a URL; give the folder that keeps replies, or off. Each machine keeps "
            f"its own; one run on several is `--engine ray`."
        )
    return _shared.get(setting) or _shared.setdefault(setting, ReplyCache(setting))


_shared: dict[str, ReplyCache] = {}


@library_loop.at_close
async def _close_shared() -> None:
    while _shared:
        _shared.popitem()[1].close()


@library_loop.after_fork
def _forget() -> None:
    _shared.clear()  # a lock may be held by a thread of the parent
