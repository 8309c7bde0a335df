"""A run as a folder: what was asked (manifest), what came out line by line (results), and the sum
of it (summary).

A folder `shards/2of4` of a run folder is a run of its own with the same manifest: another machine's
share. Whoever opens the run folder afterwards finds what all shards finished.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import (
    AppendedFile,
    FileLock,
    as_json,
    from_line,
    read_lines,
    to_line,
    write_whole,
)
from rm_gallery.core.utils.shown import redact

_ABSENT = "(absent)"
_SHOWN = 20
_OURS = re.compile(r"rm_gallery(?:\.[a-z0-9_]+)*\.(_?[A-Z][\w.]*)")


def plain(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest as it reads back from its file: redacted, and in JSON's types."""
    data = orjson.dumps(redact(manifest), default=str, option=orjson.OPT_NON_STR_KEYS)
    content: dict[str, Any] = orjson.loads(data)
    return content


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One line `key: old → new` per value that differs, with dotted keys.

    When it was made, with which versions, and in which module a class of the library stood then,
    where that was kept, do not count; nor does a setting that is no more and was null.
    """
    before, after = (
        {key: each[key] for key in each if key not in ("created", "versions")}
        for each in (old, new)
    )
    lines = [
        f"{path or '(all)'}: {_shown_apart(a, b)}" for path, a, b in _differing("", before, after)
    ]
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"… and {len(lines) - _SHOWN} more"]


def _differing(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _differing(
                f"{path}.{key}" if path else str(key), old.get(key, _ABSENT), new.get(key, _ABSENT)
            )
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from _differing(f"{path}[{position}]", a, b)
    elif (old, new) == (None, _ABSENT):
        return  # a setting that is no more, and was left open
    elif _unplaced(old) != _unplaced(new) or (
        type(old) is not type(new) and not {type(old), type(new)} <= {int, float}
    ):
        yield path, old, new


def _unplaced(value: Any) -> Any:
    """The name of a class of this library without its module: a class that moved is still the same
    one.
    """
    ours = _OURS.fullmatch(value) if isinstance(value, str) else None
    return ours[1] if ours else value


def _shown_apart(old: Any, new: Any) -> str:
    """Both values, long ones from shortly before the place where they part."""
    a, b = (value if value is _ABSENT else orjson.dumps(value).decode() for value in (old, new))
    shared = next(
        (place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
        min(len(a), len(b)),
    )
    start = max(0, shared - 20) if min(len(a), len(b)) > 80 else 0
    return f"{_excerpt(a, start)} → {_excerpt(b, start)}"


def _excerpt(text: str, start: int) -> str:
    return (
        ("… " if start else "")
        + text[start : start + 75]
        + (" …" if len(text) > start + 75 else "")
    )


SHARDS = "shards"
_EARLIER = "parts"
"""What `SHARDS` was called; shards that lie there go on there."""
_SHARD = re.compile(r"\d+of\d+")
MANIFEST = "manifest.json"
RESULTS = "results.jsonl"
SUMMARY = "summary.json"
STATUSES = frozenset({"scored", "unscored", "failed"})
REUSED = frozenset({"scored", "unscored"})


class RunStore:
    """One run's folder, open for appending; made by `open`, usable from several threads of one
    process.

    A record is a dict with at least `id` (str) and `status` (scored, unscored or failed); `key`
    (str) tells apart what shares an id, `n` numbers equal ones. The last record of a key counts.
    Records survive `kill -9` once `append` has returned.
    """

    def __init__(self, folder: Path, lock: FileLock, results: AppendedFile) -> None:
        self.folder = folder
        self._file_lock = lock
        self.shards = shards_of(folder)
        """The folders of what others judged of this run."""
        self._results = results
        self._pid = os.getpid()
        self.appended = 0
        self.damaged = 0
        """Lines without a record, as of the last reading."""

    @classmethod
    def open(
        cls, folder: Path | str, manifest: Mapping[str, Any], force_new: bool = False
    ) -> RunStore:
        """Start a run in a folder, or continue the one that is there when its manifest is the same.

        Secrets in the manifest are masked before it is written or compared; when it was `created`,
        and the `versions`, may differ. `force_new` moves an existing run aside to NAME.old-TIME.

        Args:
            folder: made when absent.
            manifest: JSON-like description of the run: config, versions, hashes, seed.
            force_new: start anew whatever is there.

        Raises:
            ConfigError: another process writes this run or a shard of it, the manifest differs
                (shows old → new), results lie there without a manifest, or the folder cannot be
                written.
        """
        folder = Path(folder)
        wanted = plain(manifest)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = _locked(folder)
        except OSError as error:
            raise ConfigError(
                f"run folder {folder} cannot be written: {error.strerror or error}. Choose another "
                f"folder."
            ) from error
        try:
            if force_new and any((folder / name).exists() for name in (MANIFEST, RESULTS)):
                lock = _move_aside(folder, lock)
            if _is_shard(folder):
                _settle_manifest(folder.parent.parent, wanted)
            _settle_manifest(folder, wanted)
            for shard in shards_of(folder):
                _check_shard(shard, wanted)
            results = AppendedFile(folder / RESULTS, 0o644)
        except BaseException as error:
            lock.release()
            if isinstance(error, OSError):
                raise _unwritable(folder, error, 0) from error
            raise
        return cls(folder, lock, results)

    def append(self, *records: Mapping[str, Any]) -> None:
        """Add records with a single write; they survive `kill -9` once this returns.

        Raises:
            ConfigError: they cannot be written (disk full, …); nothing before them is damaged.
            DataError: one has no id or no valid status.
        """
        lines = [to_line(_check_record(record)) for record in records]
        if not lines:
            return
        if self._pid != os.getpid() or self._results.closed:
            raise ConfigError(
                f"run {self.folder} is not open in this process; open it here, or send records to "
                f"its owner"
            )
        try:
            self._results.write(b"".join(lines))
        except OSError as error:
            raise _unwritable(self.folder, error, self.appended) from error
        self.appended += len(lines)

    def records(self) -> Iterator[dict[str, Any]]:
        """All records in the order written, superseded ones too; lines that hold none are counted
        in `damaged`, and what they stood for is owed again. Those of shards come first.
        """
        self.damaged = 0
        for line in (
            line for folder in (*self.shards, self.folder) for line in read_lines(folder / RESULTS)
        ):
            record = from_line(line)
            if record is not None and isinstance(record.get("id"), str) and _same_kind(record):
                yield record
            else:
                self.damaged += 1

    def finished(self, reuse: Collection[str] = REUSED) -> dict[str, dict[str, Any]]:
        """The last record per key, for those whose last status is in `reuse`.

        By default failed samples are retried, and those of which a judge said nothing at all.
        """
        last: dict[str, dict[str, Any]] = {}
        for record in self.records():
            key = record_key(record.get("key", record["id"]), record.get("n", 0))
            if record["status"] in reuse and not (
                record["status"] == "unscored" and _empty_reply(record)
            ):
                last[key] = record
            else:
                last.pop(key, None)
        return last

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace summary.json as a whole."""
        try:
            write_whole(self.folder / SUMMARY, as_json(plain(summary)))
        except OSError as error:
            raise _unwritable(self.folder, error, self.appended) from error

    def close(self) -> None:
        """Close the files and free the run for other processes."""
        self._results.close()
        self._file_lock.release()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _empty_reply(part: Any) -> bool:
    """Whether some judgement in a record is missing because the judge's reply was empty: a server's
    hiccup, not a verdict.
    """
    if isinstance(part, dict):
        by_judge = part.get("cause") == "judge" and "empty" in (
            part.get("reason"),
            part.get("error_type"),
        )
        return by_judge or any(map(_empty_reply, part.values()))
    return isinstance(part, list) and any(map(_empty_reply, part))


def record_key(key: str, number: int) -> str:
    """What a record is found by: its key (without one, its id), and its number among equal ones
    where it is not the first.
    """
    return f"{key}~{number}" if number else key


def _same_kind(record: dict[str, Any]) -> bool:
    key, number, status = record.get("key", ""), record.get("n", 0), record.get("status")
    return (
        isinstance(key, str)
        and type(number) is int
        and isinstance(status, str)
        and status in STATUSES
    )


def _locked(folder: Path) -> FileLock:
    lock = FileLock(folder / ".lock")
    if not lock.acquire():
        raise ConfigError(
            f"run {folder} is being written by {lock.owner()}; wait for it, stop it, or use "
            f"another folder"
        )
    return lock


def _move_aside(folder: Path, lock: FileLock) -> FileLock:
    lock.release()  # Windows does not rename a folder with an open file
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = folder.with_name(f"{folder.name}.old-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = folder.with_name(f"{folder.name}.old-{stamp}-{number}")
    folder.rename(target)
    folder.mkdir()
    return _locked(folder)


def _is_shard(folder: Path) -> bool:
    return folder.parent.name in (SHARDS, _EARLIER) and _SHARD.fullmatch(folder.name) is not None


def shard_folder(run: Path, name: str) -> Path:
    """Where a shard of a run is kept, or goes on."""
    earlier = run / _EARLIER / name
    return earlier if earlier.is_dir() else run / SHARDS / name


def shards_of(folder: Path) -> list[Path]:
    """The folders of the shards of a run, by name; none for a shard itself."""
    if _is_shard(folder):
        return []
    there = (path for name in (SHARDS, _EARLIER) for path in (folder / name).glob("*of*"))
    return sorted(path for path in there if _is_shard(path) and (path / MANIFEST).is_file())


def _check_shard(folder: Path, wanted: Mapping[str, Any]) -> None:
    """ConfigError for a shard of another run, and for one that somebody still writes."""
    _compare_manifest(folder, wanted, "Judge this shard again, or remove it.")
    lock = FileLock(folder / ".lock")
    if not lock.acquire():
        raise ConfigError(
            f"{folder} is being written by {lock.owner()}: the run is put together when all its "
            f"shards are done."
        )
    lock.release()


def _settle_manifest(folder: Path, wanted: dict[str, Any]) -> None:
    """Write the manifest of a new run, or make sure that the one there asks for the same."""
    try:
        _compare_manifest(
            folder,
            wanted,
            "Use another folder, or --force-new to move this one aside and start anew.",
        )
    except FileNotFoundError:
        if next(read_lines(folder / RESULTS), None) is not None:
            raise ConfigError(
                f"{folder} holds {RESULTS} but no {MANIFEST}, so nobody knows what made them; use "
                f"another folder or "
                "--force-new, which moves this one aside"
            ) from None
        write_whole(folder / MANIFEST, as_json(wanted))


def _compare_manifest(folder: Path, wanted: Mapping[str, Any], remedy: str) -> None:
    """ConfigError where the run in a folder is not the one that is wanted."""
    path = folder / MANIFEST
    try:
        manifest = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{path} is not valid JSON ({error}). {remedy}") from None
    changed = differences(manifest if isinstance(manifest, dict) else {}, wanted)
    if changed:
        lines = "".join(f"  {line}\n" for line in changed)
        raise ConfigError(f"{folder} holds a different run (old → new):\n{lines}{remedy}")


def _check_record(record: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(record.get("id"), str) or record.get("status") not in STATUSES:
        raise DataError(
            f"a result needs a text id and a status out of {', '.join(sorted(STATUSES))}; "
            f"found id {record.get('id')!r}, status {record.get('status')!r}"
        )
    return record if isinstance(record, dict) else dict(record)


def _unwritable(folder: Path, error: OSError, appended: int) -> ConfigError:
    full = error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", None))
    return ConfigError(
        f"run {folder} cannot be written: {error.strerror or error}. The {appended:,} results of "
        f"this session and all earlier ones are saved and whole. "
        f"{'Free some space' if full else 'Mend that'}, then run the same command to "
        "continue."
    )


TRACE = "trace.jsonl"


def read_trace(
    run_dir: str | Path, sample: str | None = None, root: Path | None = None
) -> Iterator[dict[str, Any]]:
    """The judgements of a run, or of one sample by its id or key, in the order they were made.

    With `root`, a folder above it, no link below that is followed.

    Raises DataError when the folder holds no trace.
    """
    files = traces_of(Path(run_dir))
    if not files:
        raise DataError(
            f"{run_dir} holds no {TRACE}; run it with --trace, or trace=True, to keep prompts and "
            f"replies."
        )
    for line in (line for path in files for line in read_lines(path, root)):
        entry = from_line(line)
        if entry is not None and (
            sample is None or sample in (entry.get("id"), entry.get("sample_key"))
        ):
            yield entry


def traces_of(folder: Path) -> list[Path]:
    """The files with the judgements of a run: its shards' and its own."""
    return [path for each in (*shards_of(folder), folder) if (path := each / TRACE).is_file()]
