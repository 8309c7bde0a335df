"""The replies that a run's records were made of, kept beside them: scoring a record once more needs
neither the cache nor the model.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import AppendedFile, from_line
from rm_gallery.core.utils.first_keys import FirstKeys

REPLIES = "replies.jsonl"
_HEAD, _KEY = b'{"key":"', 64
_TEXT, _BYTES = b'","reply":', b'","base64":"'
_FILE_BITS = 48
"""A place is the number of its file above so many bits of where its line begins."""


class ReplyStore(Protocol):
    """What a run keeps replies in."""

    def get(self, key: str) -> bytes | None:
        """The reply to a request."""

    def knows(self, key: str) -> bool:
        """Whether the request was made."""

    def put(self, key: str, reply: bytes | None) -> None:
        """Keep a reply, or that there was one which is not kept."""


class KeptReplies:
    """An append-only file with a line for each reply: `{"key": …, "reply": …}`.

    The key is the hash of the request, with its endpoint and the number of the repeat. A line is
    one `write`, so a kill at any byte leaves at most one torn line, which holds no reply. The same
    reply to the same request is kept once. A request that was answered in two ways has no reply
    here: nobody knows which one a record was made of. Opening it reads it once; only the places of
    lines are held in memory, 30 bytes each. One process writes it at a time: the run folder's lock
    sees to that.
    """

    def __init__(self, path: Path, others: Iterable[Path] = ()) -> None:
        """Read what is kept in `path`, made with the first reply, and in `others`, which are read
        alone.
        """
        self.path = path
        self._files = [path, *others]
        self._places = FirstKeys()
        self._ambiguous: set[int] = set()
        self._lock = threading.Lock()
        self._file: AppendedFile | None = None
        self.is_empty = True
        for number, file in enumerate(self._files):
            self._take_in(number, file)

    def _take_in(self, number: int, path: Path) -> None:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
        at = number << _FILE_BITS
        with file:
            for line in file:
                key = line[len(_HEAD) : len(_HEAD) + _KEY].decode("ascii", "replace")
                if line.startswith(_HEAD) and line.endswith(b"}\n"):
                    self._note(key, at, line)
                at += len(line)

    def _note(self, key: str, place: int, line: bytes) -> bool:
        """Take in where a line is; False where it says nothing new."""
        try:
            name = int(key[:16], 16) - (1 << 63)
        except ValueError:
            return True
        self.is_empty = False
        first = self._places.first(name, place)
        if first is None:
            return True
        if name in self._ambiguous or self._line(first) == line:
            return False
        self._ambiguous.add(name)
        return True

    def _line(self, place: int) -> bytes:
        with self._files[place >> _FILE_BITS].open("rb") as file:
            file.seek(place & ((1 << _FILE_BITS) - 1))
            return file.readline()

    def get(self, key: str) -> bytes | None:
        """The one reply to a request; None where there is none, or more than one."""
        name = int(key[:16], 16) - (1 << 63)
        place = self._places.get(name)
        if place is None or name in self._ambiguous:
            return None
        line = self._line(place)
        rest = line[len(_HEAD) + _KEY :]
        if not line.startswith(_HEAD + key.encode()) or from_line(line) is None:
            return None
        if rest.startswith(_BYTES):
            return base64.b64decode(rest[len(_BYTES) : -3])
        reply = rest[len(_TEXT) : -2]
        return None if reply == b"null" else reply

    def knows(self, key: str) -> bool:
        """Whether the request was made, also where no reply to it is kept."""
        return self._places.get(int(key[:16], 16) - (1 << 63)) is not None

    def put(self, key: str, reply: bytes | None) -> None:
        """Keep a reply: JSON as it is, other bytes as text; None for one that is not to be kept. It
        survives a killed process when this returns.

        Raises ConfigError where it cannot be written.
        """
        reply = b"null" if reply is None else reply
        is_json = (reply[:1] in (b"{", b"[") or reply == b"null") and b"\n" not in reply
        body = _TEXT + reply if is_json else _BYTES + base64.b64encode(reply) + b'"'
        line = _HEAD + key.encode() + body + b"}\n"
        with self._lock:
            try:
                if self._file is None:
                    self._file = AppendedFile(self.path, 0o600)
                if self._file.closed:  # what was cut off may tell late
                    return
                if self._note(key, self.path.stat().st_size, line):
                    self._file.write(line)
            except OSError as error:
                raise ConfigError(
                    f"{self.path} cannot be written: {error.strerror or error}. Everything "
                    f"finished is saved. Free some space, or mend that, then run the same command "
                    f"to continue."
                ) from error

    def close(self) -> None:
        """Keep nothing more."""
        with self._lock:
            if self._file is not None:
                self._file.close()
