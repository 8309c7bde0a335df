"""Where the cache cannot be written the run goes on without it, with one warning that names the path."""

from __future__ import annotations

import os
import resource
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.engine.calls import cache_file
from rm_gallery.core.engine.calls.cache import FILE_NAME, CallCache
from rm_gallery.core.engine.calls.cache_file import CacheFile
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


def failing(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError(reason)

    monkeypatch.setattr(CacheFile, "write", fail)


@pytest.mark.parametrize(
    "reason", ["attempt to write a readonly database", "database or disk is full", "disk I/O error"]
)
def test_writes_that_begin_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        assert put_all(cache, {KEYS[0]: b"before"}) == [True]
        failing(monkeypatch, reason)
        assert put_all(cache, dict.fromkeys(KEYS[1:], b"x")) == [False] * (len(KEYS) - 1)
        assert not cache.writable
        assert cache.get(KEYS[0]) == b"before", "what is there can still be read"
        assert cache.get(KEYS[2]) is None
    assert len(warnings) == 1
    assert str(cache.path) in warnings[0]
    assert reason in warnings[0]
    assert len(stored(cache.path)) == 1


def test_e_minor_a_lock_held_by_another_process_does_not_switch_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_file, "BUSY_SECONDS", 0.2)
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        assert put_all(cache, {KEYS[0]: b"before"}) == [True]
        other = sqlite3.connect(cache.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert put_all(cache, {KEYS[1]: b"held up"}) == [False]
        assert put_all(cache, {KEYS[2]: b"nobody waits again"}) == [False]
        assert [cache.get(key) for key in KEYS[:3]] == [b"before", b"held up", b"nobody waits again"]
        other.execute("COMMIT")
        other.close()
        give_up = time.monotonic() + 10.0
        while len(stored(cache.path)) < 3 and time.monotonic() < give_up:
            time.sleep(0.05)
        assert cache.writable
        assert put_all(cache, {KEYS[3]: b"after"}) == [True]
    assert len(warnings) == 1
    assert "held by another process" in warnings[0]
    assert {value for _, value in stored(cache.path).values()} == {
        b"before",
        b"held up",
        b"nobody waits again",
        b"after",
    }


def test_s_minor_only_the_user_can_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "rm-gallery"
    folder.mkdir(mode=0o755)
    (folder / FILE_NAME).touch(mode=0o644)
    before = os.umask(0)
    try:
        with CallCache() as cache:
            put_all(cache, {KEYS[0]: b"x"})
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.iterdir()]}
    finally:
        os.umask(before)
    assert len(modes) >= 3
    assert {mode & 0o077 for mode in modes.values()} == {0}, modes


@pytest.mark.parametrize("packed", [True, False])
def test_s_minor_a_row_that_is_or_unpacks_to_gigabytes_is_none_of_ours(tmp_path: Path, packed: bool) -> None:
    with CallCache(tmp_path) as cache:
        put_all(cache, dict.fromkeys(KEYS[:2], b"x"))
        if packed:
            packer = zlib.compressobj(9)
            bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()
        else:
            bomb = bytes(cache_file.MAX_VALUE_BYTES + 1)
        with closing(sqlite3.connect(cache.path)) as connection, connection:
            connection.execute(
                "UPDATE calls SET value = ?, codec = ? WHERE key = ?", (bomb, packed, bytes.fromhex(KEYS[0]))
            )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert cache.get(KEYS[0]) is None
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120_000
        assert cache.get(KEYS[1]) == b"x"
        assert not cache.put_sync(KEYS[2], bytes(cache_file.MAX_VALUE_BYTES + 1))


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

        monkeypatch.setattr(CacheFile, "write", fail)
        assert put_all(cache, {KEYS[0]: b"x"}) == [False]
        assert put_all(cache, {KEYS[1]: b"x"}) == [False]
