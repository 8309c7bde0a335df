"""What `put` has promised is there after kill -9 at any moment."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from rm_gallery.core.engine.calls.cache import CallCache
from tests.engine.cache_files import stored
from tests.engine.child_processes import finish, kill_after_lines, start

WRITER = """
    import asyncio, os, sys
    from pathlib import Path
    from rm_gallery.core.engine.calls.cache import CallCache, canonical_key

    async def main():
        cache, left = CallCache(Path(sys.argv[1])), iter(range(1_000_000))
        async def worker():
            for number in left:
                key = canonical_key([sys.argv[2], number])
                assert await cache.put(key, key.encode() * 10)
                os.write(1, key.encode() + b"\\n")
        await asyncio.gather(*(worker() for _ in range(32)))
    asyncio.run(main())
"""


def test_promised_rows_survive_kill_9(tmp_path: Path) -> None:
    rng = random.Random(5)
    promised: list[str] = []
    for life in range(6):
        promised += kill_after_lines(start(WRITER, tmp_path, life), rng.randint(1, 600))
    with CallCache(tmp_path, on_warning=pytest.fail) as cache:
        lost = [key for key in promised if cache.get(key) != key.encode() * 10]
        assert not lost
        path = cache.path
    rows = stored(path)
    assert all(value == key.encode() * 10 for key, (_, value) in rows.items())
    assert len(rows) >= len(promised)


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from rm_gallery.core.engine.calls.cache import CallCache, canonical_key
        from tests.engine.cache_files import put_all
        warnings = []
        with CallCache(Path(sys.argv[1]), on_warning=warnings.append) as cache:
            for batch in range(20):
                rows = {canonical_key([number, int(sys.argv[2]) * (number % 2)]): b"%d" % number
                        for number in range(batch * 25, batch * 25 + 25)}
                assert all(put_all(cache, rows))
                assert all(cache.get(key) == value for key, value in rows.items())
        assert not warnings, warnings
    """
    children = [start(script, tmp_path, number) for number in range(1, 5)]
    finish(*children)
    with CallCache(tmp_path) as cache:
        # Even numbers have the same key in all four processes, odd ones their own.
        assert cache.stats().entries == 250 + 4 * 250
        path = cache.path
    stored(path)


def test_processes_may_begin_the_same_cache_at_the_same_moment(tmp_path: Path) -> None:
    script = """
        import sys, time
        from pathlib import Path
        from rm_gallery.core.engine.calls.cache import CallCache, canonical_key
        time.sleep(max(0, float(sys.argv[2]) - time.time()))
        warnings = []
        with CallCache(Path(sys.argv[1]), on_warning=warnings.append) as cache:
            assert cache.put_sync(canonical_key(sys.argv[3]), b"x")
        assert not warnings, warnings
    """
    at = time.time() + 1.0
    finish(*(start(script, tmp_path, at, number) for number in range(6)))
    with CallCache(tmp_path) as cache:
        assert cache.stats().entries == 6


def test_what_nobody_awaited_is_stored_at_exit(tmp_path: Path) -> None:
    script = """
        import asyncio, sys
        from pathlib import Path
        from rm_gallery.core.engine.calls.cache import CallCache, canonical_key
        cache = CallCache(Path(sys.argv[1]))
        async def main():
            for number in range(300):
                cache.put(canonical_key(number), b"x")
        asyncio.run(main())
    """
    finish(start(script, tmp_path))
    with CallCache(tmp_path) as cache:
        assert cache.stats().entries == 300
