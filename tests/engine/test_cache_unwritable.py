"""Where the cache cannot be written the run goes on without it, with one warning that names the path."""

from __future__ import annotations

import errno
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.engine.calls import cache_db, cache_pending
from rm_gallery.core.engine.calls.cache import FILE_NAME, CallCache
from tests.engine.cache_files import keys, put_all, stored

KEYS = keys(50)


def under_a_file(folder: Path) -> Path:
    (folder / "file").write_text("not a folder")
    return folder / "file" / "cache"


@pytest.mark.parametrize(
    "place", [under_a_file, lambda _: Path("/proc/rm-gallery")], ids=["under a file", "read-only system"]
)
def test_a_folder_that_cannot_be_made(tmp_path: Path, place: Any) -> None:
    warnings: list[str] = []
    path = place(tmp_path)
    with CallCache(path, on_warning=warnings.append) as cache:
        assert put_all(cache, dict.fromkeys(KEYS, b"x")) == [False] * len(KEYS)
        assert [cache.get(key) for key in KEYS] == [None] * len(KEYS)
        assert not cache.put_sync(KEYS[0], b"x")
        cache.flush()
        assert (cache.stats().entries, cache.writable, cache.prune(), cache.clear()) == (0, False, 0, 0)
    assert len(warnings) == 1
    assert str(path / FILE_NAME) in warnings[0]


@pytest.mark.parametrize(
    "reason", ["attempt to write a readonly database", "database or disk is full", "disk I/O error"]
)
def test_writes_that_begin_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        put_all(cache, {KEYS[0]: b"before"})

        def fail(*_: object) -> None:
            raise sqlite3.OperationalError(reason)

        monkeypatch.setattr(cache_db.CacheDb, "write", fail)
        assert put_all(cache, {KEYS[1]: b"promised"}) == [True]
        assert put_all(cache, dict.fromkeys(KEYS[2:], b"x")) == [False] * (len(KEYS) - 2)
        assert not cache.writable
        assert cache.get(KEYS[0]) == b"before", "what is there can still be read"
        assert cache.get(KEYS[1]) == b"promised"
        assert cache.get(KEYS[2]) is None
    assert len(warnings) == 1
    assert str(cache.path) in warnings[0]
    assert reason in warnings[0]
    assert len(stored(cache.path)) == 1
    monkeypatch.undo()
    with CallCache(tmp_path, on_warning=pytest.fail) as cache:
        assert cache.get(KEYS[1]) == b"promised", "what was promised is stored by the next run"
    assert len(stored(cache.path)) == 2


def test_a_side_file_that_cannot_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        assert cache.put_sync(KEYS[0], b"before")

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(cache_pending.PendingLog, "append", full)
        assert put_all(cache, dict.fromkeys(KEYS[1:], b"x")) == [False] * (len(KEYS) - 1)
        assert cache.get(KEYS[0]) == b"before"
    assert len(warnings) == 1
    assert "No space left" in warnings[0]


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """A limit on the file size stands in for the full disk."""
    script = """
        import resource, sys
        from pathlib import Path
        from rm_gallery.core.engine.calls.cache import CallCache
        from tests.engine.cache_files import keys, put_all
        warnings = []
        cache = CallCache(Path(sys.argv[1]), on_warning=warnings.append)
        done = put_all(cache, {key: key.encode() * 20 for key in keys(100)})
        assert all(done)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        more = [put_all(cache, {key: key.encode() * 20})[0] for key in keys(800)[100:]]
        assert not all(more) and not more[-1], "the disk never filled"
        assert len(warnings) == 1 and str(cache.path) in warnings[0], warnings
        assert cache.get(keys(1)[0]) == keys(1)[0].encode() * 20
        print(100 + sum(more))
        cache.close()
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    CallCache(tmp_path, on_warning=pytest.fail).close()
    rows = stored(tmp_path / FILE_NAME)
    assert len(rows) >= int(result.stdout)
    assert all(value == key.encode() * 20 for key, (_, value) in rows.items())


def test_a_warning_turned_into_an_error_does_not_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors in this test suite: the writer thread has to live on all the same."""
    with CallCache(tmp_path) as cache:

        def fail(*_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(cache_db.CacheDb, "write", fail)
        assert put_all(cache, {KEYS[0]: b"x"}) == [True]
        assert put_all(cache, {KEYS[1]: b"x"}) == [False]
