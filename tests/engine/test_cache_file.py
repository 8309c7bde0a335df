"""A damaged file is set aside with one warning; what was promised survives kill -9, forks and other
processes.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import ClassVar

import pytest

from rm_gallery.core.engine.calls import cache_file
from rm_gallery.core.engine.calls.cache import FILE_NAME, CallCache, canonical_key
from rm_gallery.core.utils.file import FileLock
from tests.engine.cache_files import keys, put_all, put_one, stored
from tests.engine.processes import finish, kill_after_lines, start

KEYS = keys(400)


def fill(folder: Path) -> Path:
    with CallCache(folder) as cache:
        put_all(cache, {key: os.urandom(900) for key in KEYS})
    return folder / FILE_NAME


def scribble(path: Path, start: int, length: int) -> None:
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(os.urandom(length))


def without_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE calls")


def set_aside(folder: Path) -> list[str]:
    return sorted(
        name
        for name in os.listdir(folder)
        if ".corrupt-" in name and not name.endswith(("-wal", "-shm"))
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"this is no database at all" * 200),
        lambda path: scribble(path, 0, 4096),
        lambda path: os.truncate(path, path.stat().st_size // 2),
        lambda path: scribble(path, 4096, path.stat().st_size - 4096),
        without_table,
    ],
    ids=[
        "another file",
        "header",
        "cut in half",
        "everything but the header",
        "tables of another kind",
    ],
)
def test_a_file_damaged_between_runs(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    path = fill(tmp_path)
    damage(path)
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        for key in KEYS:
            cache.get(key)
        results = put_all(cache, {key: b"new" for key in KEYS})
        assert results == [True] * len(KEYS) and all(cache.get(key) == b"new" for key in KEYS)
    assert len(warnings) == 1 and str(path) in warnings[0]
    assert ".corrupt-" in warnings[0] and len(set_aside(tmp_path)) == 1
    assert len(stored(path)) == len(KEYS)


def test_two_caches_set_a_damaged_file_aside_once(tmp_path: Path) -> None:
    path = fill(tmp_path)
    warnings: list[str] = []
    with (
        CallCache(tmp_path, on_warning=warnings.append) as one,
        CallCache(tmp_path, on_warning=warnings.append) as two,
    ):
        scribble(path, 4096, path.stat().st_size - 4096)
        for cache in (one, two):
            for key in KEYS:
                cache.get(key)
            put_all(cache, {KEYS[0]: b"new"})
        assert one.get(KEYS[0]) == two.get(KEYS[0]) == b"new" and put_all(
            one, {KEYS[1]: b"from one"}
        ) == [True]
        assert two.get(KEYS[1]) == b"from one"
    assert len(warnings) == 1 and len(set_aside(tmp_path)) == 1


class Overtaken(FileLock):
    """A lock that another process had first: it set the damaged file aside and began a new one."""

    replaced: ClassVar[list[Path]] = []

    def __enter__(self) -> FileLock:
        lock = super().__enter__()
        folder = self.path.parent
        if not self.replaced:
            self.replaced.append(folder)
            for suffix in ("", "-wal", "-shm"):
                if os.path.exists(old := f"{folder / FILE_NAME}{suffix}"):
                    os.replace(old, f"{folder / FILE_NAME}.corrupt-by-another{suffix}")
            fill(new := folder / "new")
            os.replace(new / FILE_NAME, folder / FILE_NAME)
        return lock


@pytest.mark.parametrize("found", ["while open", "when opened"])
def test_a_file_that_another_process_began_anew_is_not_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    path = fill(tmp_path)
    warnings: list[str] = []
    monkeypatch.setattr(Overtaken, "replaced", [])
    with ExitStack() as stack:
        if found == "while open":
            cache = stack.enter_context(CallCache(tmp_path, on_warning=warnings.append))
        scribble(path, 4096 if found == "while open" else 0, path.stat().st_size - 4096)
        monkeypatch.setattr(cache_file, "FileLock", Overtaken)
        if found == "when opened":
            cache = stack.enter_context(CallCache(tmp_path, on_warning=warnings.append))
        for key in KEYS:
            cache.get(key)
        assert Overtaken.replaced == [tmp_path] and all(cache.get(key) is not None for key in KEYS)
        assert put_all(cache, {KEYS[0]: b"new"}) == [True]
    assert set_aside(tmp_path) == [f"{FILE_NAME}.corrupt-by-another"], (
        "what others stored since is kept"
    )
    assert set(stored(path)) == set(KEYS)


def test_a_file_removed_while_open_is_begun_anew(tmp_path: Path) -> None:
    path = fill(tmp_path)
    warnings: list[str] = []
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        for key in KEYS:
            cache.get(key)
            put_one(cache, key, b"new") if key < "1" else None
    with CallCache(tmp_path, on_warning=warnings.append) as cache:
        assert put_one(cache, KEYS[0], b"later") and cache.get(KEYS[0]) == b"later"
    assert not set_aside(tmp_path)


def test_the_default_is_a_python_warning(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 1000)
    with pytest.warns(RuntimeWarning, match="is damaged"):
        CallCache(tmp_path).close()


FORKING = """
    import os, sys, threading
    from pathlib import Path
    from rm_gallery.core.engine.calls.cache import CallCache, canonical_key
    from tests.engine.cache_files import put_all, put_one
    trouble = []
    cache = CallCache(Path(sys.argv[1]), on_warning=trouble.append)

    def rows(who):
        return {canonical_key([who, number]): b"%d" % number for number in range(100)}

    assert all(put_all(cache, rows("before")))
    busy = True
    def write_on():
        number = 0
        while busy:
            assert put_one(cache, canonical_key(["busy", number % 50]), b"x")
            number += 1
    thread = threading.Thread(target=write_on)
    thread.start()
    children = []
    for child in range(5):
        pid = os.fork()
        if not pid:
            found = all(cache.get(key) == value for key, value in rows("before").items())
            done = found and all(put_all(cache, rows(child))) and not trouble
            put_one(cache, canonical_key(["left behind", child]), b"x")
            if child % 2:
                os._exit(0 if done else 1)
            busy = False
            sys.exit(0 if done else 1)
        children.append(pid)
        assert all(put_all(cache, rows(f"parent {child}")))
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    busy = False
    thread.join()
    assert codes == [0] * 5, codes
    for child in range(5):
        assert all(cache.get(key) == value for key, value in rows(child).items()), child
    assert not trouble, trouble
    cache.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_while_another_thread_writes(tmp_path: Path) -> None:
    finish(start(FORKING, tmp_path))
    with CallCache(tmp_path) as cache:
        assert [cache.get(canonical_key(["left behind", child])) for child in range(5)] == [
            b"x"
        ] * 5
    # The busy thread got to between one and all fifty of its own.
    assert 1105 < len(stored(tmp_path / FILE_NAME)) <= 1155


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
    for life in range(4):
        promised += kill_after_lines(start(WRITER, tmp_path, life), rng.randint(1, 600))
    with CallCache(tmp_path, on_warning=pytest.fail) as cache:
        lost = [key for key in promised if cache.get(key) != key.encode() * 10]
        assert not lost
        path = cache.path
    rows = stored(path)
    assert all(value == key.encode() * 10 for key, (_, value) in rows.items()) and len(rows) >= len(
        promised
    )


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
