"""Parent and forked children go on with the same cache, each with connections of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rm_gallery.core.engine.calls.cache import FILE_NAME, CallCache, canonical_key
from tests.engine.cache_files import put_all, stored
from tests.engine.child_processes import finish, start

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

SCRIPT = """
    import asyncio, os, sys, threading, warnings
    from pathlib import Path
    from rm_gallery.core.engine.calls.cache import CallCache, canonical_key
    from tests.engine.cache_files import put_all
    # Newer Pythons warn of any fork beside threads; that is what is being tried here.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    trouble = []
    cache = CallCache(Path(sys.argv[1]), on_warning=trouble.append)

    def rows(who):
        return {canonical_key([who, number]): b"%d" % number for number in range(100)}

    assert all(put_all(cache, rows("before")))
    busy = True
    def write_on():
        number = 0
        while busy:
            assert cache.put_sync(canonical_key(["busy", number % 50]), b"x")
            number += 1
    thread = threading.Thread(target=write_on)
    thread.start()
    children = []
    for child in range(5):
        pid = os.fork()
        if not pid:
            found = all(cache.get(key) == value for key, value in rows("before").items())
            done = found and all(put_all(cache, rows(child))) and not trouble
            cache.put_sync(canonical_key(["left behind", child]), b"x")
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


def test_fork_while_another_thread_writes(tmp_path: Path) -> None:
    finish(start(SCRIPT, tmp_path))
    with CallCache(tmp_path) as cache:
        assert [cache.get(canonical_key(["left behind", child])) for child in range(5)] == [b"x"] * 5
    # The busy thread got to between one and all fifty of its own.
    assert 1105 < len(stored(tmp_path / FILE_NAME)) <= 1155


def test_a_child_that_never_uses_the_cache_harms_nobody(tmp_path: Path) -> None:
    with CallCache(tmp_path) as cache:
        put_all(cache, {"ab" * 32: b"x"})
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        assert cache.get("ab" * 32) == b"x"
        assert cache.put_sync("cd" * 32, b"y")
    assert len(stored(tmp_path / FILE_NAME)) == 2


def test_spawned_workers_share_the_file(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from rm_gallery.core.engine.calls.cache import CallCache, canonical_key
        with CallCache(Path(sys.argv[1])) as cache:
            print(cache.get(canonical_key("shared")))
    """
    with CallCache(tmp_path) as cache:
        put_all(cache, {canonical_key("shared"): b"seen"})
        assert finish(start(script, tmp_path)).strip() == "b'seen'"
