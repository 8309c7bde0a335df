"""What is put comes back: at once, in a later process, and in the same bytes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from rm_gallery.core.engine.calls.cache import FILE_NAME, CallCache, canonical_key
from rm_gallery.core.utils.errors import ConfigError

KEYS = [canonical_key(number) for number in range(200)]


@pytest.mark.parametrize(
    "value",
    [b"", b"x", "评分：4".encode(), os.urandom(2_000), b"ab" * 40_000, os.urandom(300_000)],
    ids=["empty", "one byte", "Chinese", "random", "long and compressible", "long and not"],
)
def test_values_come_back_unchanged(tmp_path: Path, value: bytes) -> None:
    with CallCache(tmp_path) as cache:
        assert cache.get(KEYS[0]) is None
        assert cache.put_sync(KEYS[0], value)
        assert cache.get(KEYS[0]) == value
    with CallCache(tmp_path) as cache:
        assert cache.get(KEYS[0]) == value
        assert cache.get(KEYS[1]) is None
        assert (cache.hits, cache.misses) == (1, 1)


def test_many_puts_from_a_loop_are_stored_and_seen_before_that(tmp_path: Path) -> None:
    async def main(cache: CallCache) -> None:
        futures = [cache.put(key, key.encode()) for key in KEYS]
        assert [cache.get(key) for key in KEYS] == [key.encode() for key in KEYS]
        assert await asyncio.gather(*futures) == [True] * len(KEYS)

    with CallCache(tmp_path) as cache:
        asyncio.run(main(cache))
        assert cache.stats().stored == len(KEYS)
        asyncio.run(main(cache))
        stats = cache.stats()
        assert (stats.entries, stats.stored, stats.writable) == (len(KEYS), 2 * len(KEYS), True)
    with CallCache(tmp_path) as cache:
        assert all(cache.get(key) == key.encode() for key in KEYS)


def test_the_last_value_of_a_key_counts(tmp_path: Path) -> None:
    with CallCache(tmp_path) as cache:
        for value in (b"1", b"2"):
            cache.put_sync(KEYS[0], value)
        assert cache.get(KEYS[0]) == b"2"
        assert cache.stats().entries == 1


def test_sixteen_threads_share_one_cache(tmp_path: Path) -> None:
    wrong: list[str] = []

    def work(cache: CallCache, part: list[str]) -> None:
        for key in part:
            cache.put_sync(key, key.encode())
            if cache.get(key) != key.encode():
                wrong.append(key)

    with CallCache(tmp_path) as cache:
        threads = [threading.Thread(target=work, args=(cache, KEYS[i::16])) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert cache.stats().entries == len(KEYS)


def test_the_awaiting_loop_may_close_before_the_commit(tmp_path: Path) -> None:
    async def main(cache: CallCache) -> None:
        cache.put(KEYS[0], b"left behind")

    with CallCache(tmp_path) as cache:
        asyncio.run(main(cache))
    with CallCache(tmp_path) as cache:
        assert cache.get(KEYS[0]) == b"left behind"


def test_a_closed_cache_is_empty_and_takes_nothing(tmp_path: Path) -> None:
    cache = CallCache(tmp_path)
    cache.put_sync(KEYS[0], b"x")
    threads = threading.active_count()
    cache.close()
    cache.close()
    assert threading.active_count() == threads - 1
    assert cache.get(KEYS[0]) is None
    assert not cache.put_sync(KEYS[1], b"y")


def test_path_may_be_a_folder_or_a_file(tmp_path: Path) -> None:
    for path, file in ((tmp_path / "deep" / "er", tmp_path / "deep" / "er" / FILE_NAME), (tmp_path / "a.db",) * 2):
        with CallCache(path) as cache:
            assert cache.path == file
        assert file.exists()


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "notes.db")
    other.execute("CREATE TABLE notes (text TEXT)")
    other.close()
    before = (tmp_path / "notes.db").read_bytes()
    with pytest.raises(ConfigError, match="another program"):
        CallCache(tmp_path / "notes.db")
    assert (tmp_path / "notes.db").read_bytes() == before
