"""What is put comes back: at once, in a later process, in the same bytes; within its size and age,
or it is done without.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import sqlite3
import stat
import threading
import time
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from rm_gallery.core.engine.calls import cache as cache_module
from rm_gallery.core.engine.calls import cache_file
from rm_gallery.core.engine.calls.cache import (
    FILE_NAME,
    CallCache,
    canonical_key,
    default_cache_folder,
)
from rm_gallery.core.engine.calls.cache_file import CacheFile
from rm_gallery.core.utils.errors import ConfigError
from tests.engine.cache_files import keys, make_older, put_all, put_one, stored
from tests.engine.processes import wait_until

KEYS = keys(200)
DAY = 86_400.0


def test_keys_are_sha256_of_json_with_sorted_keys() -> None:
    data = '{"a":null,"b":[1,"ü"]}'.encode()
    assert canonical_key({"b": [1, "ü"], "a": None}) == hashlib.sha256(data).hexdigest()
    surrogates = [canonical_key({"x": text}) for text in ("\ud800", "\ud800", "\udfff")]
    assert surrogates[0] == surrogates[1] != surrogates[2]


def test_the_default_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "rm-gallery"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "me")
    assert default_cache_folder().name == "rm-gallery"


@pytest.mark.parametrize(
    "value", [b"", "评分：4".encode(), b"ab" * 40_000, os.urandom(300_000)], ids=len
)
def test_values_come_back_unchanged(tmp_path: Path, value: bytes) -> None:
    with CallCache(tmp_path) as cache:
        assert cache.get(KEYS[0]) is None and put_one(cache, KEYS[0], value)
        assert cache.get(KEYS[0]) == value
    with CallCache(tmp_path) as cache:
        assert cache.get(KEYS[0]) == value and cache.get(KEYS[1]) is None
        assert cache.get(KEYS[0][:16] + KEYS[1][16:]) is None, (
            "found by a part of its key and told by the whole of it"
        )
        assert (cache.hits, cache.misses) == (1, 2)


def test_many_puts_from_a_loop_are_stored_and_seen_before_that(tmp_path: Path) -> None:
    async def main(cache: CallCache) -> None:
        futures = [cache.put(key, key.encode()) for key in KEYS]
        assert [cache.get(key) for key in KEYS] == [key.encode() for key in KEYS]
        assert await asyncio.gather(*futures) == [True] * len(KEYS)

    with CallCache(tmp_path) as cache:
        asyncio.run(main(cache))
        assert cache.stats().stored == len(KEYS)
        asyncio.run(main(cache))  # the last value of a key counts
        stats = cache.stats()
        assert (stats.entries, stats.stored, stats.writable) == (len(KEYS), 2 * len(KEYS), True)
    with CallCache(tmp_path) as cache:
        assert all(cache.get(key) == key.encode() for key in KEYS)


def test_a_closed_cache_is_empty_and_takes_nothing(tmp_path: Path) -> None:
    others = set(threading.enumerate())
    cache = CallCache(tmp_path)
    put_one(cache, KEYS[0], b"x")
    cache.close()
    cache.close()
    assert "rm-gallery-cache" not in {thread.name for thread in set(threading.enumerate()) - others}
    assert cache.get(KEYS[0]) is None and not put_one(cache, KEYS[1], b"y")


def test_path_may_be_a_folder_or_a_file(tmp_path: Path) -> None:
    for path, file in (
        (tmp_path / "deep" / "er", tmp_path / "deep" / "er" / FILE_NAME),
        (tmp_path / "a.db",) * 2,
    ):
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


@pytest.mark.parametrize(
    ("days", "most", "found"), [(2, 3 * DAY, b"x"), (2, DAY, None), (400, None, b"x")]
)
def test_old_replies_are_not_used(
    tmp_path: Path, days: int, most: float | None, found: bytes | None
) -> None:
    with CallCache(tmp_path, max_age=most) as cache:
        put_all(cache, {KEYS[0]: b"x"})
        make_older(cache.path, KEYS[0], created=days * DAY, used=0.0)
        assert cache.get(KEYS[0]) == found


def test_prune_by_age_removes_what_nobody_used(tmp_path: Path) -> None:
    old, used, new = keys(3)
    with CallCache(tmp_path) as cache:
        put_all(cache, {old: b"1", used: b"2", new: b"3"})
        make_older(cache.path, old, created=9 * DAY, used=9 * DAY)
        make_older(cache.path, used, created=9 * DAY, used=1 * DAY)
        assert cache.prune(max_age=7 * DAY) == 1 and set(stored(cache.path)) == {used, new}
        assert (cache.clear(), cache.stats().entries) == (2, 0) and put_one(cache, old, b"again")


def test_prune_by_size_removes_the_longest_unused(tmp_path: Path) -> None:
    names = keys(2000)
    with CallCache(tmp_path) as cache:
        put_all(cache, {name: os.urandom(1000) for name in names})
        make_older(cache.path, names[-1], created=9.0, used=9 * DAY)
        before = cache.stats()
        assert before.bytes > 2_000_000
        removed = cache.prune(max_bytes=1_000_000)
        after = cache.stats()
        assert removed == before.entries - after.entries and 500_000 <= after.bytes <= 1_000_000
        assert cache.path.stat().st_size <= 1_000_000, "space goes back to the file system"
        left = set(stored(cache.path))
        assert names[-1] not in left and names[-2] in left


def test_the_writer_keeps_the_file_within_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "_TEND_EVERY", 0.0)  # else once a minute
    limit = 1_000_000
    with CallCache(tmp_path, max_bytes=limit) as cache:
        put_all(cache, {name: os.urandom(1000) for name in keys(2000)})
        put_one(cache, keys(1)[0], b"the thread prunes before it takes this up, or after")
    with CallCache(tmp_path) as cache:
        assert cache.stats().bytes <= limit and cache.stats().entries >= 300


def test_use_is_noted_at_the_latest_when_the_cache_closes(tmp_path: Path) -> None:
    used, unused, lately = keys(3)
    with CallCache(tmp_path) as cache:
        put_all(cache, {used: b"1", unused: b"2", lately: b"3"})
        for key in (used, unused):
            make_older(cache.path, key, created=DAY, used=DAY)
        make_older(cache.path, lately, created=DAY, used=3000)
        assert (cache.get(used), cache.get(lately)) == (b"1", b"3")
    now = time.time()
    rows = stored(cache.path)
    assert rows[used][0] == pytest.approx(now, abs=60) and rows[unused][0] == pytest.approx(
        now - DAY, abs=60
    )
    assert rows[lately][0] == pytest.approx(now - 3000, abs=60), (
        "what was used within an hour is not noted again"
    )


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    warnings: list[str] = []
    (tmp_path / "file").write_text("not a folder")
    path = tmp_path / "file" / "cache"
    with CallCache(path, on_warning=warnings.append) as cache:
        assert put_all(cache, dict.fromkeys(KEYS, b"x")) == [False] * len(KEYS)
        assert [cache.get(key) for key in KEYS] == [None] * len(KEYS) and not put_one(
            cache, KEYS[0], b"x"
        )
        cache.flush()
        assert (cache.stats().entries, cache.writable, cache.prune(), cache.clear()) == (
            0,
            False,
            0,
            0,
        )
    assert len(warnings) == 1 and str(path / FILE_NAME) in warnings[0]


@pytest.mark.parametrize("told", [True, False], ids=["told", "a warning that is an error here"])
def test_writes_that_begin_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """Where warnings are errors the writer thread has to live on all the same."""
    warnings: list[str] = []

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with CallCache(tmp_path, on_warning=warnings.append if told else None) as cache:
        assert put_all(cache, {KEYS[0]: b"before"}) == [True]
        monkeypatch.setattr(CacheFile, "write", fail)
        assert put_all(cache, dict.fromkeys(KEYS[1:9], b"x")) == [False] * 8
        assert not put_one(cache, KEYS[1], b"x") and not cache.writable
        assert cache.get(KEYS[0]) == b"before", "what is there can still be read"
        assert cache.get(KEYS[2]) is None
    assert len(warnings) == (1 if told else 0)
    assert all(
        str(cache.path) in text and "cannot be written (database or disk is full)" in text
        for text in warnings
    )
    assert len(stored(cache.path)) == 1


def test_a_lock_held_by_another_process_does_not_switch_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_file, "BUSY_SECONDS", 0.2)
    monkeypatch.setattr(cache_module, "_BACKLOG_BYTES", 20)
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        assert put_all(cache, {KEYS[0]: b"before"}) == [True]
        other = sqlite3.connect(cache.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert put_all(cache, {KEYS[1]: b"held up"}) == [False]
        assert put_all(cache, {KEYS[2]: b"nobody waits again"}) == [False]
        assert put_all(cache, {KEYS[4]: b"too much is waiting"}) == [False]
        found = [cache.get(key) for key in (*KEYS[:3], KEYS[4])]
        assert found == [b"before", b"held up", b"nobody waits again", None]
        other.execute("COMMIT")
        other.close()
        assert wait_until(lambda: len(stored(cache.path)) == 3) and cache.writable
        assert put_all(cache, {KEYS[3]: b"after"}) == [True]
    assert len(warnings) == 1 and "held by another process" in warnings[0]
    assert {value for _, value in stored(cache.path).values()} == {
        b"before",
        b"held up",
        b"nobody waits again",
        b"after",
    }


def test_only_the_user_can_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "rm-gallery"
    folder.mkdir(mode=0o755)
    (folder / FILE_NAME).touch(mode=0o644)
    before = os.umask(0)
    try:
        with CallCache() as cache:
            put_all(cache, {KEYS[0]: b"x"})
            modes = {
                path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.iterdir()]
            }
    finally:
        os.umask(before)
    assert len(modes) >= 3
    assert {mode & 0o077 for mode in modes.values()} == {0}, modes


@pytest.mark.parametrize("packed", [True, False])
def test_a_row_that_is_or_unpacks_to_gigabytes_is_none_of_ours(
    tmp_path: Path, packed: bool
) -> None:
    with CallCache(tmp_path) as cache:
        put_all(cache, dict.fromkeys(KEYS[:2], b"x"))
        packer = zlib.compressobj(9)
        bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()
        bomb = bomb if packed else bytes(cache_file.MAX_VALUE_BYTES + 1)
        with closing(sqlite3.connect(cache.path)) as connection, connection:
            connection.execute(
                "UPDATE calls SET value = ?, codec = ? WHERE key = ?",
                (bomb, packed, bytes.fromhex(KEYS[0])),
            )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert (
            cache.get(KEYS[0]) is None
            and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120_000
        )
        assert cache.get(KEYS[1]) == b"x" and not put_one(
            cache, KEYS[2], bytes(cache_file.MAX_VALUE_BYTES + 1)
        )
