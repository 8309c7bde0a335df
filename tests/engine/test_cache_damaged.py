"""A damaged file is set aside with one warning, and the run goes on with a new one."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rm_gallery.core.engine.calls.cache import FILE_NAME, CallCache
from tests.engine.cache_files import keys, put_all, stored

KEYS = keys(400)


def fill(folder: Path) -> Path:
    with CallCache(folder) as cache:
        put_all(cache, {key: os.urandom(900) for key in KEYS})
    return folder / FILE_NAME


def scribble(path: Path, start: int, length: int) -> None:
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(os.urandom(length))


def set_aside(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if ".corrupt-" in name and not name.endswith(("-wal", "-shm")))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"this is no database at all" * 200),
        lambda path: scribble(path, 0, 4096),
        lambda path: os.truncate(path, path.stat().st_size // 2),
        lambda path: scribble(path, 4096, path.stat().st_size - 4096),
    ],
    ids=["another file", "header", "cut in half", "everything but the header"],
)
def test_a_file_damaged_between_runs(tmp_path: Path, damage: object) -> None:
    path = fill(tmp_path)
    assert callable(damage)
    damage(path)
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        for key in KEYS:
            cache.get(key)
        results = put_all(cache, {key: b"new" for key in KEYS})
        assert results == [True] * len(KEYS)
        assert all(cache.get(key) == b"new" for key in KEYS)
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    assert ".corrupt-" in warnings[0]
    assert len(set_aside(tmp_path)) == 1
    assert len(stored(path)) == len(KEYS)


def test_a_file_damaged_while_open(tmp_path: Path) -> None:
    path = fill(tmp_path)
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        assert cache.get(KEYS[0]) is not None
        scribble(path, 4096, path.stat().st_size - 4096)
        found = [cache.get(key) for key in KEYS]
        assert put_all(cache, {key: b"new" for key in KEYS}) == [True] * len(KEYS)
        assert [cache.get(key) for key in KEYS] == [b"new"] * len(KEYS)
    assert None in found
    assert len(warnings) == 1
    assert len(set_aside(tmp_path)) == 1


def test_two_caches_set_a_damaged_file_aside_once(tmp_path: Path) -> None:
    path = fill(tmp_path)
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as one, CallCache(tmp_path, on_warning=warnings.append) as two:
        scribble(path, 4096, path.stat().st_size - 4096)
        for cache in (one, two):
            for key in KEYS:
                cache.get(key)
            put_all(cache, {KEYS[0]: b"new"})
        assert one.get(KEYS[0]) == two.get(KEYS[0]) == b"new"
        assert put_all(one, {KEYS[1]: b"from one"}) == [True]
        assert two.get(KEYS[1]) == b"from one"
    assert len(warnings) == 1
    assert len(set_aside(tmp_path)) == 1


def test_a_file_removed_while_open_is_begun_anew(tmp_path: Path) -> None:
    path = fill(tmp_path)
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        for key in KEYS:
            cache.get(key)
            cache.put_sync(key, b"new") if key < "1" else None
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        assert cache.put_sync(KEYS[0], b"later")
        assert cache.get(KEYS[0]) == b"later"
    assert not set_aside(tmp_path)


def test_tables_of_an_unknown_kind_are_set_aside(tmp_path: Path) -> None:
    path = fill(tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE calls")
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        assert cache.put_sync(KEYS[0], b"x")
    assert len(set_aside(tmp_path)) == len(warnings) == 1


def test_the_default_is_a_python_warning(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 1000)
    with pytest.warns(RuntimeWarning, match="is damaged"):
        CallCache(tmp_path).close()
