"""A folder that an agent left behind, read without trusting anything in it, and copied."""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from tempfile import mkdtemp
from typing import Any

from rm_gallery.core.sandbox.runner import remove_folder
from rm_gallery.core.utils.errors import Cause, DataError, RMGalleryError
from rm_gallery.core.utils.shown import excerpt

_DEEPEST = 100
_MOST_LINKS = 40
_CHUNK = 1 << 20
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_BROKEN_ARCHIVE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, NotImplementedError, RuntimeError, OSError),
)


class StateFault(RMGalleryError):
    """What the agent left cannot be looked at as it is: a link out, a device, too much of it."""

    reason = "state"
    cause: Cause = "answer"


class WorkspaceTooLarge(StateFault):
    """A workspace is more than the bounds as a whole, which are the reader's: the data's doing."""

    reason = "too_large"
    cause: Cause = "data"


@dataclass(frozen=True)
class ReadBounds:
    """How much of a workspace is read: bytes of one file, files, and 16 times the first in all."""

    file_bytes: int = 64 << 20
    files: int = 100_000

    @property
    def total_bytes(self) -> int:
        """Bytes of all files together."""
        return 16 * self.file_bytes


class Workspace:
    """A folder whose links are followed inside it only, and whose pipes and devices are never opened.

    Every step of a path is opened from the folder above it, so that a name that is exchanged
    meanwhile leads nowhere. Raises DataError when the folder is not there, StateFault when it cannot
    be read.
    """

    def __init__(self, folder: str, bounds: ReadBounds = ReadBounds()) -> None:
        self._bounds, self._left = bounds, bounds.total_bytes
        try:
            self._root = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        except PermissionError as error:
            raise StateFault("the workspace may not be read") from error
        except (OSError, ValueError) as error:
            raise DataError(
                f"the workspace {excerpt(folder)!r} is no folder here; name the folder that the "
                "agent left, an archive of it, or its files as a mapping."
            ) from error

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None where there is none. StateFault for what is no file of this
        workspace, may not be read, or is larger than the bounds.
        """
        descriptor = self._opened(path)
        return None if descriptor is None else self._content(descriptor, path)

    def _content(self, descriptor: int, path: str) -> bytes:
        """All that is in an open file, which is closed then."""
        with open(descriptor, "rb", buffering=0):
            return b"".join(self._chunks(descriptor, path))

    def _opened(self, path: str) -> int | None:
        todo, links = path.split("/")[::-1], 0
        way = [os.dup(self._root)]
        try:
            while todo:
                name = todo.pop()
                if name in ("", "."):
                    continue
                if name == "..":
                    if len(way) == 1:
                        raise StateFault(f"{excerpt(path)} is a link out of the workspace")
                    os.close(way.pop())
                    continue
                found = _entry(way[-1], name)
                if found is None:
                    return None
                name, mode = found
                if stat.S_ISLNK(mode):
                    links += 1
                    todo += _led_to(name, way[-1], path, links)
                elif stat.S_ISDIR(mode):
                    way.append(_below(name, way, path))
                elif any(part not in ("", ".") for part in todo):
                    return None
                else:
                    return _regular(name, way[-1], path)
            raise StateFault(f"{excerpt(path)} is a folder and no file")
        except OSError as error:
            raise StateFault(f"{excerpt(path)} cannot be read: {error.strerror}") from error
        finally:
            for each in way:
                os.close(each)

    def _chunks(self, descriptor: int, path: str) -> Iterator[bytes]:
        limit = min(self._bounds.file_bytes, self._left)
        size = os.fstat(descriptor).st_size
        if limit < size <= self._bounds.file_bytes:
            raise _too_many_bytes(self._bounds)
        if size > limit:
            raise StateFault(f"{excerpt(path)} is larger than what is read (max_file_mb)")
        while chunk := os.read(descriptor, min(_CHUNK, limit + 1)):
            limit -= len(chunk)
            self._left -= len(chunk)
            if limit < 0:
                raise StateFault(f"{excerpt(path)} is larger than what is read (max_file_mb)")
            yield chunk

    def entries(self) -> Iterator[tuple[str, int, int]]:
        """Path, mode and folder descriptor of everything that is no folder, by name; the descriptor
        is open until the next step. StateFault beyond the bounds. A folder that cannot be entered
        stands for what is in it.
        """
        count, pending = 0, [""]
        while pending:
            prefix = pending.pop()
            here = self._folder(prefix)
            if here is None:
                yield prefix, 0, self._root
                continue
            try:
                inner = []
                for name in sorted(os.listdir(here)):
                    count += 1
                    if count > self._bounds.files:
                        raise _too_many_files(self._bounds)
                    found = _entry(here, name)
                    if found is not None and stat.S_ISDIR(found[1]):
                        inner.append(f"{prefix}{name}/")
                    elif found is not None:
                        yield prefix + name, found[1], here
                pending += inner[::-1]
            finally:
                os.close(here)

    def _folder(self, path: str) -> int | None:
        """A folder of the workspace; None where it cannot be entered or lies too deep."""
        if path.count("/") > _DEEPEST:
            return None
        here = os.dup(self._root)
        for part in path.split("/")[:-1]:
            try:
                below = os.open(part, os.O_RDONLY | _FOLDER, dir_fd=here)
            except OSError:
                return None
            finally:
                os.close(here)
            here = below
        return here

    def state(self) -> dict[str, str]:
        """By path, what a file is: `sha256:…`, `link:TARGET`, `large:SIZE`, `unreadable`, or
        `special` for a pipe, socket or device.
        """
        return {path: self._state_of(path, mode, here) for path, mode, here in self.entries()}

    def _state_of(self, path: str, mode: int, here: int) -> str:
        name = path.rpartition("/")[2]
        if stat.S_ISLNK(mode):
            with suppress(OSError):
                return f"link:{os.readlink(name, dir_fd=here)}"
            return "unreadable"
        if not stat.S_ISREG(mode):
            return "special" if mode else "unreadable"
        try:
            descriptor = _regular(name, here, path)
        except (OSError, StateFault):
            return "unreadable"
        with open(descriptor, "rb", buffering=0):
            size = os.fstat(descriptor).st_size
            if size > self._bounds.file_bytes:
                return f"large:{size}"
            whole = hashlib.sha256()
            for chunk in self._chunks(descriptor, path):
                whole.update(chunk)
            return f"sha256:{whole.hexdigest()}"

    def copy_to(self, target: str) -> dict[str, str]:
        """Copy what a program may be shown: files within the bounds, and links that stay inside.

        Files are the copy's own and readable by everyone; pipes, devices, large and unreadable files
        are left out. Gives what was left out, and why.
        """
        absent: dict[str, str] = {}
        for path, mode, here in self.entries():
            name, why = path.rpartition("/")[2], "it cannot be read"
            with suppress(OSError):
                if stat.S_ISLNK(mode):
                    place(target, path, os.readlink(name, dir_fd=here), link=True)
                    why = ""
                elif stat.S_ISREG(mode):
                    descriptor = _regular(name, here, path)
                    size = os.fstat(descriptor).st_size
                    if size > self._bounds.file_bytes:
                        os.close(descriptor)
                        why = f"its {size} bytes are too many"
                    else:
                        place(target, path, self._content(descriptor, path))
                        why = ""
                elif mode:
                    why = "it is a pipe, a socket or a device"
            if why:
                absent[path] = why
        return {**absent, **dropped_links(target)}


def _entry(folder: int, name: str) -> tuple[str, int] | None:
    """The name as it is written there, and its mode; None where there is none. Other spellings of
    the same characters count.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        return name, os.lstat(name, dir_fd=folder).st_mode
    if name.isascii():
        return None
    plain = unicodedata.normalize("NFC", name)
    for other in os.listdir(folder):
        if unicodedata.normalize("NFC", other) == plain:
            return other, os.lstat(other, dir_fd=folder).st_mode
    return None


def _led_to(name: str, folder: int, path: str, links: int) -> list[str]:
    target = os.readlink(name, dir_fd=folder)
    if target.startswith("/") or links > _MOST_LINKS:
        raise StateFault(f"{excerpt(path)} is a link out of the workspace")
    return target.split("/")[::-1]


def _below(name: str, way: list[int], path: str) -> int:
    if len(way) > _DEEPEST:
        raise StateFault(f"{excerpt(path)} lies too deep")
    return os.open(name, os.O_RDONLY | _FOLDER, dir_fd=way[-1])


def _regular(name: str, folder: int, path: str) -> int:
    # looked at before it is opened, since opening a device can do something; and after, since it may
    # have been exchanged
    if not stat.S_ISREG(os.lstat(name, dir_fd=folder).st_mode):
        raise StateFault(f"{excerpt(path)} is a pipe, a socket or a device and no file")
    descriptor = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StateFault(f"{excerpt(path)} is no file")
    return descriptor


def inner_path(path: str) -> bool:
    """Whether a path stays below the folder it is relative to, by its text, and can be a name."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    parts = path.replace("\\", "/").split("/")
    return bool(path) and "\0" not in path and not path.startswith("/") and ".." not in parts


def place(folder: str, path: str, content: bytes | str, *, link: bool = False) -> None:
    """Write a file (or a link) below `folder`, in place of whatever is at its path or in its way.

    No link is followed. OSError where the system takes no such name.
    """
    *above, name = [part for part in path.split("/") if part not in ("", ".")]
    here = folder
    for part in above:
        here = os.path.join(here, part)
        if os.path.islink(here) or (os.path.lexists(here) and not os.path.isdir(here)):
            os.unlink(here)
        if not os.path.isdir(here):
            folder_for_all(here)
    target = os.path.join(here, name)
    if os.path.isdir(target) and not os.path.islink(target):
        remove_folder(target)
    elif os.path.lexists(target):
        os.unlink(target)
    if link:
        os.symlink(content, target)
        return
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o644)  # whatever the umask
        file.write(raw)


def dropped_links(folder: str) -> dict[str, str]:
    """Remove the links that lead out of a copy, through other links too, and tell which."""
    whole, out = os.path.realpath(folder), []
    for here, folders, names in os.walk(folder):
        for each in filter(os.path.islink, (os.path.join(here, name) for name in folders + names)):
            try:
                with suppress(FileNotFoundError):
                    os.stat(each)  # which gives up after some links, so that the next one need not
                inner = f"{os.path.realpath(each)}/".startswith(f"{whole}/")
            except OSError:
                inner = False
            if not inner:
                out.append(each)
    for each in out:
        os.unlink(each)
    return {
        os.path.relpath(each, folder): "it is a link out of the workspace, or in circles"
        for each in out
    }


def folder_for_all(path: str) -> None:
    """Make a folder that everyone may read, whoever makes it."""
    os.mkdir(path)
    os.chmod(path, 0o755)  # whatever the umask


def copy_database(folder: str, bounds: ReadBounds, path: str, own: str) -> bool:
    """Copy a SQLite file of a workspace and its write-ahead log to `own`, as `database`; False where
    there is none.

    A rollback journal stays behind: it can name any file of the machine, and SQLite would delete it.
    """
    with Workspace(folder, bounds) as workspace:
        raw, log = workspace.read(path), workspace.read(f"{path}-wal")
    if raw is None:
        return False
    place(own, "database", raw)
    if log is not None:
        place(own, "database-wal", log)
    return True


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder of this process's own, readable by everyone who is shown it, removed at the end."""
    folder = mkdtemp(prefix=f"rm-gallery-{os.getpid()}-")
    inner = os.path.join(folder, "files")
    try:
        folder_for_all(inner)
        yield inner
    finally:
        remove_folder(folder)


def unpack(source: str | Mapping[str, object], target: str, bounds: ReadBounds) -> None:
    """Write the files of a mapping (path to text or bytes) or of an archive (tar, zip) to `target`.

    Raises DataError for what is neither, StateFault for a path that leads out and for too much.
    """
    left, count = bounds.total_bytes, 0
    try:
        files = _in_mapping(source) if not isinstance(source, str) else _in_archive(source, bounds)
        for path, content, link in files:
            left, count = left - len(content), count + 1
            if left < 0 or len(content) > bounds.file_bytes:
                raise _too_many_bytes(bounds)
            if count > bounds.files:
                raise _too_many_files(bounds)
            if not inner_path(path):
                raise StateFault(f"the workspace names a path outside of it: {excerpt(path)}")
            try:
                place(target, path, content, link=link)
            except (OSError, ValueError) as error:
                raise StateFault(f"no file can have the name {excerpt(path)}") from error
    except _BROKEN_ARCHIVE as error:
        raise DataError(f"the workspace cannot be unpacked: {excerpt(str(error))}") from error


def _too_many_files(bounds: ReadBounds) -> WorkspaceTooLarge:
    return WorkspaceTooLarge(f"the workspace holds more than {bounds.files} files (max_files)")


def _too_many_bytes(bounds: ReadBounds) -> WorkspaceTooLarge:
    return WorkspaceTooLarge(
        f"the workspace holds more than is read, {bounds.file_bytes >> 20} MB of one file and "
        "16 times as much of all (max_file_mb)"
    )


def whose_size(start: Any, bounds: ReadBounds) -> Cause:
    """Who made a workspace too large: the candidate, where the start that it was given is known and
    was not too large itself; else nobody can tell, and it is the data's doing.
    """
    if start is None:
        return "data"
    try:
        if isinstance(start, Mapping):
            sizes = [
                int(state[6:]) if re.fullmatch(r"large:\d+", state) else len(state)
                for state in map(str, start.values())
            ]
            fits = len(sizes) <= bounds.files and max(sizes, default=0) <= bounds.file_bytes
        else:
            with Workspace(os.fspath(start), bounds) as earlier:
                fits = not any(state.startswith("large:") for state in earlier.state().values())
    except (RMGalleryError, TypeError):
        return "data"
    return "answer" if fits else "data"


def _in_mapping(files: Mapping[str, object]) -> Iterator[tuple[str, bytes | str, bool]]:
    for path, content in files.items():
        if not isinstance(path, str) or not isinstance(content, str | bytes):
            raise DataError(
                f"the workspace maps paths to texts; found {type(content).__name__} for "
                f"{excerpt(str(path))}."
            )
        yield path, content, False


def _in_archive(path: str, bounds: ReadBounds) -> Iterator[tuple[str, bytes | str, bool]]:
    most = bounds.file_bytes + 1
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            for info in packed.infolist():
                if not info.is_dir():
                    with packed.open(info) as file:
                        yield info.filename, file.read(most), False
        return
    with closing(tarfile.open(path)) as archive:
        for member in archive:
            if member.size > bounds.file_bytes:
                raise _too_many_bytes(bounds)
            if member.issym():
                yield member.name, member.linkname, True
            elif member.isreg() or member.islnk():
                content = archive.extractfile(member)
                yield member.name, b"" if content is None else content.read(most), False
            elif not member.isdir():
                yield member.name, "/dev/null", True  # a device or pipe: seen, and never opened


def workspace_state(folder: str | os.PathLike[str], max_file_mb: float = 64.0) -> dict[str, str]:
    """What is in a folder, to be kept before an agent starts and given as the start of a `changes`
    check.

    By path: `sha256:…` of a file, `link:TARGET` of a link, `large:SIZE` of a file above
    `max_file_mb`, `unreadable`, or `special` for a pipe, socket or device. Links are not followed.
    Raises DataError when there is no such folder, StateFault when it holds too much.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a.txt").write_text("one")
    ...     workspace_state(folder)["a.txt"][:14]
    'sha256:7692c3a'
    """
    with Workspace(os.fspath(folder), ReadBounds(int(max_file_mb * (1 << 20)))) as workspace:
        return workspace.state()
