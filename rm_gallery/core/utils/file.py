"""Files that are whole or not there, locks that their owner's death frees, JSON lines that survive
a kill; seeded samples and splits of lists.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import random
import secrets
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import orjson

from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.shown import one_line

T = TypeVar("T")
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""To open bytes as they are, and no link that somebody planted (CWE-59)."""


def seeded_positions(size: int, count: int, seed: int) -> list[int]:
    """A uniform sample of `count` positions out of `size`, sorted; all of them when `count` is
    larger.

    Samples of one seed are nested: a larger one contains the smaller, so work done for the smaller
    can be reused.
    """
    generator, moved = random.Random(seed), dict[int, int]()
    chosen = []
    # The first steps of a Fisher-Yates shuffle, holding only the places that moved.
    for place in range(min(count, size)):
        other = generator.randrange(place, size)
        chosen.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    return sorted(chosen)


def split_samples(
    samples: Sequence[T],
    ratio: float = 0.1,
    seed: int = 0,
    by: Literal["prompt"] | Callable[[T], Hashable] | None = None,
) -> tuple[list[T], list[T]]:
    """Split into (first, rest), both in the original order; the samples themselves are not copied.

    `first` holds round(ratio * n) samples, at least 1 (and at most n - 1) when there are two or
    more. With `by`, samples of equal key stay together, so that nothing learned from one side is on
    the other; `first` then comes as near to its size as whole groups allow. `by="prompt"` groups by
    the conversation before the answer, white space aside. Raises ConfigError for a ratio outside 0
    to 1.
    """
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio < 1:
        raise ConfigError(f"ratio must lie between 0 and 1, found {ratio!r}")
    size = len(samples)
    wanted = min(max(round(ratio * size), 1), size - 1) if size > 1 else round(ratio * size)
    if by is None:
        chosen = set(seeded_positions(size, wanted, seed))
    else:
        chosen = _grouped_positions([_split_key(sample, by) for sample in samples], wanted, seed)
    first, rest = list[T](), list[T]()
    for position, sample in enumerate(samples):
        (first if position in chosen else rest).append(sample)
    return first, rest


def _split_key(sample: Any, by: Literal["prompt"] | Callable[[Any], Hashable]) -> Hashable:
    if callable(by):
        return by(sample)
    if by != "prompt":
        raise ConfigError(f"by must be 'prompt' or a function of a sample, found {by!r}")
    try:
        return tuple(
            (str(message.role), " ".join(message.text.split())) for message in sample.input
        )
    except AttributeError:
        raise ConfigError(
            f"by='prompt' needs samples with an input, found {type(sample).__name__}"
        ) from None


def _grouped_positions(keys: list[Hashable], wanted: int, seed: int) -> set[int]:
    groups: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    order = [*groups.values()]
    random.Random(seed).shuffle(order)
    chosen: set[int] = set()
    for group in order:
        after = len(chosen) + len(group)
        # Overshooting is right only where stopping short would miss the size by more.
        if after - wanted <= wanted - len(chosen) and after < len(keys):
            chosen.update(group)
    if not chosen and len(order) > 1 and wanted:
        smallest = min(order, key=len)
        chosen.update(smallest)
    return chosen


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Give a new file beside `path`; on success it takes the place of `path` in one step, else it
    is removed.

    A reader, or a process killed midway, never leaves or sees half a file, and a power cut keeps
    the old one or the new. The new file's name is a random one that must not exist yet, so that no
    planted link is followed. A device or a pipe is written to as it stands. Raises OSError.
    """
    target = Path(path)
    # a device or a pipe, such as /dev/null, is written to and never replaced
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            yield file
        return
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def as_json(value: Any) -> bytes:
    """JSON types as indented JSON with a line end; what is no valid Unicode in a text becomes a
    question mark.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # lone surrogates and integers beyond 64 bits, which orjson refuses
        return json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "replace") + b"\n"


def deeper(value: Any, most: int) -> bool:
    """Whether a JSON value has more levels of objects and lists than `most`."""
    level = [value]
    for _ in range(most + 1):
        inside = [each for each in level if type(each) in (dict, list)]
        if not inside:
            return False
        level = [
            child for each in inside for child in (each.values() if type(each) is dict else each)
        ]
    return True


def write_whole(path: str | Path, data: bytes) -> None:
    """Replace a file by `data`, as `replacing` does; raises OSError."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def written_whole(path: str | Path) -> Iterator[BinaryIO]:
    """`replacing` for a file a user named: folders are made as needed, and DataError says where
    nothing can be written.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error


def _sync_folder(folder: Path) -> None:
    """Make a rename in it last through a power cut, where the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # not every file system can
            raise
    finally:
        os.close(descriptor)


_open_locks: set[int] = set()
"""Descriptors this process holds a lock by."""
_guard = threading.Lock()


class FileLock:
    """Exclusive lock on a file, between processes and between holders in one process; its owner's
    death frees it.

    It belongs to the open file, so that copying or reading the file does not free it. Forked
    children close what they inherit of it: a killed run is free at once even while its orphaned
    workers live on. The file stays behind; it names the last owner.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._pid = 0

    def acquire(self, timeout: float = 0.0) -> bool:
        """Try to take the lock for up to `timeout` seconds; False when somebody else keeps it.
        Raises OSError.
        """
        give_up = time.monotonic() + timeout
        while not self._try():
            if time.monotonic() >= give_up:
                return False
            time.sleep(0.02)
        return True

    def _try(self) -> bool:
        with _guard:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o644)
            try:
                locked = _lock_open_file(fd)
                if locked:
                    os.ftruncate(fd, 0)
                    os.write(fd, f"{os.getpid()} {socket.gethostname()}\n".encode())
            except (OSError, ConfigError):
                os.close(fd)
                raise
            if not locked:
                os.close(fd)
                return False
            self._fd, self._pid = fd, os.getpid()
            _open_locks.add(fd)
            return True

    def release(self) -> None:
        """Give the lock back; harmless when it is not held, or held by the process this one was
        forked from.
        """
        with _guard:
            if self._fd >= 0 and self._pid == os.getpid():
                _open_locks.discard(self._fd)
                os.close(self._fd)
            self._fd = -1

    def owner(self) -> str:
        """Who took the lock last, as `pid N on HOST`; for messages."""
        try:
            pid, _, host = self.path.read_text(encoding="utf-8").strip().partition(" ")
        except (OSError, UnicodeDecodeError):
            return "another process"
        if (pid, host) == (str(os.getpid()), socket.gethostname()):
            return "this process"
        return f"pid {pid} on {host}" if pid else "another process"

    def __enter__(self) -> FileLock:
        if not self.acquire(timeout=10.0):
            raise TimeoutError(f"{self.path} has been locked by {self.owner()} for 10 s")
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _in_child() -> None:
    global _guard
    _guard = threading.Lock()
    while _open_locks:
        os.close(_open_locks.pop())


if hasattr(os, "register_at_fork"):
    # no fork happens while a lock is being taken, and a child keeps none of its parent's locks
    # alive
    os.register_at_fork(
        before=lambda: _guard.acquire(),
        after_in_parent=lambda: _guard.release(),
        after_in_child=_in_child,
    )


def _lock_open_file(fd: int) -> bool:
    # imported where it is used: a run without a folder needs no lock of the system
    try:
        import fcntl
    except ImportError:
        return _lock_on_windows(fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK):
            return False
        raise
    return True


def _lock_on_windows(fd: int) -> bool:
    try:
        msvcrt: Any = importlib.import_module("msvcrt")
    except ImportError:
        raise ConfigError(
            "This system locks no files (neither fcntl nor msvcrt is there), so two runs could "
            "write one folder at once: run without a run folder (run_dir, --out)."
        ) from None
    # Far behind the text, which others have to be able to read.
    os.lseek(fd, 1 << 30, os.SEEK_SET)
    try:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    os.lseek(fd, 0, os.SEEK_SET)
    return True


_BLOCK = 1 << 20


def to_line(record: dict[str, Any]) -> bytes:
    """A record as one JSON line with its line end; what JSON has no form for is its `str`.

    Raises DataError: it holds itself, or a key that JSON has no form for.
    """
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        # Lone surrogates, integers above 64 bit, keys that are no strings: slower, and escaped.
        try:
            return json.dumps(record, default=str).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise DataError(
                f"the record of {record.get('id')!r} cannot be written as JSON: {error}"
            ) from None


def from_line(line: bytes) -> dict[str, Any] | None:
    """The record in a line; None when the line holds none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return record if isinstance(record, dict) else None


def read_file(path: Path) -> Any:
    """What a file holds: YAML, TOML, JSON or lines of JSON, by its ending; ConfigError for none
    that can be read.
    """
    # most commands read no such file, so they do not pay for a YAML parser
    import yaml

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        if path.suffix in (".yaml", ".yml"):
            return read_yaml(text, str(path))
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        return json.loads(text)
    except ConfigError:
        raise
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path} cannot be read: {type(error).__name__} {one_line(str(error))}; correct it."
        ) from error


_MOST_LEVELS = 100
"""Levels of a YAML file; libyaml recurses in C, and one of 100,000 ended the process."""


def read_yaml(text: str, what: str) -> Any:
    """What the YAML text of `what` holds.

    Raises:
        ConfigError: a key stands twice in one mapping, which YAML 1.2.2 (3.2.1.1) forbids: loaders
            keep the last value alone, and a grader was dropped without a word; or it is nested too
            deep.
        yaml.YAMLError: it is no YAML.
    """
    import yaml

    # libyaml's loader, where it is there, takes a tenth of the time
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    parser = loader(text)
    try:
        _check_events(parser, yaml, what)
    finally:
        parser.dispose()
    return yaml.load(text, Loader=loader)


def _check_events(parser: Any, yaml: Any, what: str) -> None:
    open_: list[dict[Any, int] | None] = []  # the lines of a mapping's keys; None for a list
    at_key: list[bool] = []
    while parser.check_event():
        event = parser.get_event()
        if isinstance(event, yaml.CollectionEndEvent):
            open_.pop()
            at_key.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        if open_ and (lines := open_[-1]) is not None:
            if at_key[-1] and isinstance(event, yaml.ScalarEvent):
                _note_key(
                    event, parser.resolve(yaml.ScalarNode, event.value, event.implicit), lines, what
                )
            at_key[-1] = not at_key[-1]
        if isinstance(event, yaml.CollectionStartEvent):
            at_key.append(isinstance(event, yaml.MappingStartEvent))
            open_.append({} if at_key[-1] else None)
            if len(open_) > _MOST_LEVELS:
                raise ConfigError(
                    f"{what}: nested more than {_MOST_LEVELS} levels deep; write it flatter."
                )


def _note_key(event: Any, tag: str, lines: dict[Any, int], what: str) -> None:
    name, line = (event.tag or tag, event.value), event.start_mark.line + 1
    if name in lines and not tag.endswith(":merge"):  # several mappings may be merged in
        raise ConfigError(
            f"{what}: line {line}: the key '{event.value:.80}' stands there already in line "
            f"{lines[name]}; rename or remove one."
        )
    lines[name] = line


def read_lines(path: Path, root: Path | None = None) -> Iterator[bytes]:
    """The non-empty lines of a file that may not exist, one in memory at a time; with `root`, as
    `open_below` opens it.
    """
    with suppress(FileNotFoundError), opened_file(path, root) as file:
        yield from (line for line in file if line.strip())


def opened_file(path: Path, root: Path | None = None) -> BinaryIO:
    """A file to be read: as `open_below` opens it where a root is given, else wherever its path
    leads.
    """
    return open(path, "rb") if root is None else open_below(root, path)


_BELOW = os.O_RDONLY | _NO_LINK


def open_below(root: Path, path: Path) -> BinaryIO:
    """A regular file below `root`, to be read; no step of the way from `root` to it may be a link.

    A folder from elsewhere could link to any file of this machine, and swap a file for a link once
    it was looked at (CWE-59, CWE-367): each step is opened from the one before, and what is checked
    is what was opened.

    Raises:
        FileNotFoundError: there is none.
        DataError: a link, or no regular file.
    """
    *folders, name = path.relative_to(root).parts
    refused = DataError(
        f"{path} is a link, or no plain file; only files that stand in the folder itself are shown."
    )
    if ".." in (*folders, name):
        raise refused
    if os.open not in os.supports_dir_fd:
        return _open_checked(root, path, refused)
    at = os.open(root, os.O_RDONLY)
    try:
        for folder in folders:
            below = os.open(folder, _BELOW | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        descriptor = os.open(name, _BELOW | os.O_NONBLOCK, dir_fd=at)  # a pipe would be waited for
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO):
            raise refused from None
        raise
    finally:
        os.close(at)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise refused
    return file


def _open_checked(root: Path, path: Path, refused: DataError) -> BinaryIO:
    """`open_below` where nothing can be opened from a folder (Windows): the file is looked at again
    once it is open.
    """
    file = open(path, "rb")
    steps = (step for step in (path, *path.parents) if step.is_relative_to(root) and step != root)
    seen = os.fstat(file.fileno())
    if (
        any(step.is_symlink() for step in steps)
        or not stat.S_ISREG(seen.st_mode)
        or not os.path.samestat(seen, os.lstat(path))
    ):
        file.close()
        raise refused
    return file


class AppendedFile:
    """A file of lines that grows, safe from any thread.

    A last line that a killed process left half-written is cut off when it is opened; so is what a
    failed write left. Raises OSError.
    """

    def __init__(self, path: Path, mode: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _NO_LINK, mode)
        self._lock = threading.Lock()
        self._torn = False
        try:
            mend_tail(self._fd)
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._fd < 0

    def write(self, data: bytes) -> None:
        """Append whole lines, all of them or none."""
        with self._lock:
            # an earlier failure left half a line that could not be cut: it must not swallow this
            # one
            if self._torn:
                data = b"\n" + data
            written = os.write(self._fd, data)
            try:
                # Only a full disk or a signal leaves a short write; asking again tells which.
                while written < len(data):
                    written += os.write(self._fd, data[written:])
                self._torn = False
            except OSError:
                self._torn = True
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                self._torn = False
                raise

    def close(self) -> None:
        """Write nothing more; harmless when it is closed."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1


def mend_tail(fd: int) -> int:
    """Cut a half-written last line, or end a whole one that lacks its line end; returns the bytes
    cut.

    `fd` is open for reading and appending.
    """
    end = start = os.lseek(fd, 0, os.SEEK_END)
    blocks = [b""]
    while start > 0 and b"\n" not in blocks[-1]:
        size = min(_BLOCK, start)
        start -= size
        os.lseek(fd, start, os.SEEK_SET)
        blocks.append(os.read(fd, size))
    tail = b"".join(reversed(blocks)).rpartition(b"\n")[2]
    if not tail:
        return 0
    if from_line(tail) is not None:
        os.write(fd, b"\n")
        return 0
    os.ftruncate(fd, end - len(tail))
    return len(tail)


def most_open_files() -> int | None:
    """Files and connections that this process may have open, its soft limit raised to the hard one;
    None where unknown. For commands and servers: a process of somebody else's is left alone.
    """
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        with suppress(ValueError, OSError):  # not allowed: what there is must do
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft
