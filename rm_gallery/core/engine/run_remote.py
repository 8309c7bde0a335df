"""A run folder on an object store: judged into a copy on this machine, whose growth is sent on in
sealed pieces.

Object stores cannot append. A file that grows (results, spend, trace, batches) is there as pieces
`NAME.OFFSET`, each whole lines and never changed again; what is written once is there under its own
name. A machine that is lost takes along what it had not sent.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson

from rm_gallery.core.engine.calls.cache import default_cache_folder
from rm_gallery.core.engine.calls.usage import SPEND_LOG
from rm_gallery.core.engine.run_records import MANIFEST, PARTS, RESULTS, TRACE
from rm_gallery.core.utils.errors import ConfigError, DataError, MissingExtra, logger
from rm_gallery.core.utils.file import FileLock, write_whole

GROWING = (RESULTS, SPEND_LOG, TRACE, "batches.jsonl")
WRITER = ".writer.json"
"""Who writes now, and when that was said last: a lock for those who cannot see each other's."""
SECONDS = 10.0
"""Between two sendings; what is judged in between is lost with the machine."""
ALIVE = 6 * SECONDS
_BLOCK = 32 << 20
# a path has lost one of the slashes; C:/ is no URL
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.+)", re.DOTALL)
_PIECE = re.compile(r"(.+)\.(\d{15})")


def url_of(place: str | Path) -> str | None:
    """The URL of a place on an object store, None for a path of this machine."""
    match = _URL.fullmatch(str(place).replace("\\", "/"))
    if match is None:
        return None
    return f"{match[1]}://{'/' if match[1] in ('file', 'local') else ''}{match[2].rstrip('/')}"


@contextmanager
def run_at(place: str | Path, part: str | None = None) -> Iterator[Path]:
    """The run folder at a place to judge into; one at a URL that fsspec knows is a copy here, sent
    on as it grows and in the end.

    Args:
        place: a path, which is given back, or a URL such as `s3://bucket/run`; its credentials are
            those fsspec finds.
        part: the name of the part that is written, such as `2of4`; others write theirs at the same
            time.

    Raises:
        ConfigError: fsspec or what it needs for this URL is missing, somebody else writes there, or
            in the end something could not be sent (it stays here, and the same command sends it).
    """
    url = url_of(place)
    if url is None:
        yield Path(place)
        return
    below = f"{PARTS}/{part}/" if part else ""
    copy = _Copy(url, below)
    with copy.held():
        copy.claim()
        copy.fetch()
        with copy.sending():
            yield copy.folder


def fetched(place: str | Path) -> Path:
    """The folder at a place to be read: itself, or a copy of what is at a URL now."""
    url = url_of(place)
    if url is None:
        return Path(place)
    copy = _Copy(url, "", "read")
    with copy.held():
        copy.fetch()
    return copy.folder


class _Copy:
    """What is here of a folder at a URL, for one who writes `below` it, or who reads."""

    def __init__(self, url: str, below: str, use: str = "write") -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise MissingExtra("fsspec", "object-store", url) from None
        try:
            self.fs, self.root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"{url}: {error}. Install what fsspec needs for it, or name a folder of this "
                f"machine."
            ) from error
        self.url, self.below = url, below
        name = hashlib.sha256(f"{use} {url} {below}".encode()).hexdigest()[:24]
        self.folder = default_cache_folder() / "runs" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder.with_name(f"{name}.lock"))
        self._me = secrets.token_hex(8)
        self._sent: dict[str, tuple[int, int]] = {}
        """By name, size and time of change as sent; of what grows, how much of it."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """One process of this machine uses the copy."""
        if not self._lock.acquire(timeout=SECONDS):
            raise ConfigError(
                f"{self.url} is in use by {self._lock.owner()}; wait for it, or stop it."
            )
        try:
            yield
        finally:
            self._lock.release()

    def _there(self) -> dict[str, int]:
        """What is at the URL: names below it, and sizes."""
        self.fs.invalidate_cache()
        start = len(self.root.rstrip("/")) + 1
        try:
            entries = self.fs.find(self.root, detail=True)
        except FileNotFoundError:
            return {}
        return {path[start:]: int(entry["size"] or 0) for path, entry in entries.items()}

    def _bytes(self, name: str) -> bytes:
        data: bytes = self.fs.cat_file(f"{self.root}/{name}")
        return data

    def fetch(self) -> None:
        """Bring the copy up to what is there; what grew here and was not sent stays."""
        pieces: dict[str, list[tuple[int, str, int]]] = {}
        there = self._there()
        for name, size in there.items():
            if name.endswith(WRITER) or not (name == MANIFEST or name.startswith(self.below)):
                continue
            if match := _PIECE.fullmatch(name):
                pieces.setdefault(match[1], []).append((int(match[2]), name, size))
            else:
                self._write_here(name, self._bytes(name))
        for name, parts in pieces.items():
            self._join(name, sorted(parts))
        for path in self._files():
            name = path.relative_to(self.folder).as_posix()
            if path.name not in GROWING:
                if name not in there:
                    path.unlink()
                else:
                    self._sent[name] = _state(path)

    def _join(self, name: str, pieces: list[tuple[int, str, int]]) -> None:
        path, whole = self.folder / name, 0
        for offset, _, size in pieces:
            if offset != whole:
                raise DataError(
                    f"{self.url}/{name}: the piece at byte {whole} is missing; it was removed, or "
                    f"is not visible yet."
                )
            whole += size
        offset, piece, size = pieces[-1]
        here = path.stat().st_size if path.is_file() else 0
        if here >= whole and _slice(path, offset, size) == self._bytes(piece):
            self._sent[name] = (whole, 0)
            return
        self._write_here(name, b"".join(self._bytes(piece) for _, piece, _ in pieces))
        self._sent[name] = (whole, 0)

    def _write_here(self, name: str, data: bytes) -> None:
        path = self.folder / name
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise DataError(f"{self.url} holds {name!r:.80}, which is no name of a file in a run.")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)

    def _files(self) -> list[Path]:
        return [
            p
            for p in self.folder.rglob("*")
            if p.is_file() and not p.name.startswith(".") and p.suffix != ".tmp"
        ]

    def claim(self) -> None:
        """Say that this process writes; ConfigError where somebody else does."""
        for name in self._there():
            if not name.endswith(WRITER) or not name.startswith(self.below):
                continue
            try:
                writer = orjson.loads(self._bytes(name))
                who, at = str(writer["who"]), float(writer["at"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if who != self._me and time.time() - at < ALIVE:
                where = f"{self.url}/{name.removesuffix(WRITER)}".rstrip("/")
                raise ConfigError(
                    f"{where} is being written by another process; wait for it, or for {ALIVE:.0f} "
                    f"s where it ended without a word."
                )
        self._beat()

    def _beat(self) -> None:
        self.fs.pipe_file(
            f"{self.root}/{self.below}{WRITER}", orjson.dumps({"who": self._me, "at": time.time()})
        )

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send what grows now and then, and everything in the end."""
        over = threading.Event()
        failed: list[BaseException] = []

        def keep_sending() -> None:
            while not over.wait(SECONDS):
                try:
                    self._beat()
                    self._send_growth()
                    self._send_whole(MANIFEST)
                    failed.clear()
                except Exception as error:  # noqa: BLE001  # each store has its own; it is said once, and tried again until the end
                    if not failed:
                        logger.warning(
                            "{}: what is judged could not be sent ({}); it is kept here and tried "
                            "again.",
                            self.url,
                            error,
                        )
                    failed.append(error)

        thread = threading.Thread(target=keep_sending, name="rm-gallery-sending", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            try:
                self._send_growth()
                self._send_whole()
                self.fs.rm_file(f"{self.root}/{self.below}{WRITER}")
            except Exception as error:  # each store has its own
                raise ConfigError(
                    f"{self.url}: not all could be sent ({type(error).__name__}: {error!s:.200}). "
                    f"It is kept on this machine; the same "
                    "command sends it."
                ) from error

    def _send_growth(self) -> None:
        for path in self._files():
            if path.name in GROWING:
                self._send_pieces(path)

    def _send_pieces(self, path: Path) -> None:
        name = path.relative_to(self.folder).as_posix()
        while True:
            offset = self._sent.get(name, (0, 0))[0]
            data = _slice(path, offset, _BLOCK)
            data = data[: data.rfind(b"\n") + 1]
            if not data:
                return
            self.fs.pipe_file(f"{self.root}/{name}.{offset:015d}", data)
            self._sent[name] = (offset + len(data), 0)

    def _send_whole(self, *only: str) -> None:
        for path in self._files():
            if only and path.name not in only:
                continue
            name = path.relative_to(self.folder).as_posix()
            with suppress(FileNotFoundError):
                if path.name not in GROWING and self._sent.get(name) != (state := _state(path)):
                    self.fs.put_file(str(path), f"{self.root}/{name}")
                    self._sent[name] = state


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _slice(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)
