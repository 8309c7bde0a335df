"""Size and age stay within their limits, and the longest unused goes first."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rm_gallery.core.engine.calls import cache as cache_module
from rm_gallery.core.engine.calls.cache import CallCache
from tests.engine.cache_files import keys, make_older, put_all, stored

DAY = 86_400.0


@pytest.mark.parametrize(
    ("age", "max_age", "found"),
    [(2 * DAY, 3 * DAY, True), (2 * DAY, 1 * DAY, False), (400 * DAY, None, True)],
    ids=["young enough", "too old", "no limit"],
)
def test_old_replies_are_not_used(tmp_path: Path, age: float, max_age: float | None, found: bool) -> None:
    (key,) = keys(1)
    with CallCache(tmp_path, max_age=max_age) as cache:
        put_all(cache, {key: b"reply"})
        make_older(cache.path, key, created=age, used=0.0)
        assert cache.get(key) == (b"reply" if found else None)


def test_prune_by_age_removes_what_nobody_used(tmp_path: Path) -> None:
    old, used, new = keys(3)
    with CallCache(tmp_path) as cache:
        put_all(cache, {old: b"1", used: b"2", new: b"3"})
        make_older(cache.path, old, created=9 * DAY, used=9 * DAY)
        make_older(cache.path, used, created=9 * DAY, used=1 * DAY)
        assert cache.prune(max_age=7 * DAY) == 1
        assert set(stored(cache.path)) == {used, new}


def test_prune_by_size_removes_the_longest_unused(tmp_path: Path) -> None:
    names = keys(2000)
    with CallCache(tmp_path) as cache:
        put_all(cache, {name: os.urandom(1000) for name in names})
        make_older(cache.path, names[-1], created=9.0, used=9 * DAY)
        before = cache.stats()
        assert before.bytes > 2_000_000
        removed = cache.prune(max_bytes=1_000_000)
        after = cache.stats()
        assert removed == before.entries - after.entries
        assert 500_000 <= after.bytes <= 1_000_000
        assert cache.path.stat().st_size <= 1_000_000, "space goes back to the file system"
        left = set(stored(cache.path))
        assert names[-1] not in left
        assert names[-2] in left


def test_the_writer_keeps_the_file_within_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_TEND_EVERY", 0.0)  # else once a minute
    limit = 1_000_000
    with CallCache(tmp_path, max_bytes=limit) as cache:
        put_all(cache, {name: os.urandom(1000) for name in keys(2000)})
        cache.put_sync(keys(1)[0], b"the thread prunes before it takes this up, or after")
    with CallCache(tmp_path) as cache:
        assert cache.stats().bytes <= limit
        assert cache.stats().entries >= 300


def test_use_is_noted_at_the_latest_when_the_cache_closes(tmp_path: Path) -> None:
    used, unused = keys(2)
    with CallCache(tmp_path) as cache:
        put_all(cache, {used: b"1", unused: b"2"})
        for key in (used, unused):
            make_older(cache.path, key, created=DAY, used=DAY)
        assert cache.get(used) == b"1"
    now = time.time()
    rows = stored(cache.path)
    assert rows[used][0] == pytest.approx(now, abs=60)
    assert rows[unused][0] == pytest.approx(now - DAY, abs=60)


def test_clear_removes_everything(tmp_path: Path) -> None:
    with CallCache(tmp_path) as cache:
        put_all(cache, {key: os.urandom(10_000) for key in keys(50)})
        assert cache.clear() == 50
        assert cache.stats().entries == 0
        assert cache.path.stat().st_size < 100_000
        assert cache.put_sync(keys(1)[0], b"again")
