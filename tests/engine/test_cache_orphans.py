"""Side files of killed processes are taken over; those of living ones, and damaged entries, are not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rm_gallery.core.engine.calls.cache import FILE_NAME, CallCache
from rm_gallery.core.engine.calls.cache_pending import PendingLog
from tests.engine.cache_files import keys, stored
from tests.engine.child_processes import kill_after_lines, start

KEYS = keys(3)
HOLDER = """
    import os, sys, time
    from pathlib import Path
    from rm_gallery.core.engine.calls import cache_writer
    from rm_gallery.core.engine.calls.cache import CallCache
    cache_writer._GATHER_SECONDS = 60.0
    cache = CallCache(Path(sys.argv[1]))
    for key in sys.argv[2:]:
        cache.put_sync(key, b"from the child")
    os.write(1, b"put\\n")
    time.sleep(20)
"""


def side_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.pending-*"))


def test_only_the_dead_are_inherited_from(tmp_path: Path) -> None:
    child = start(HOLDER, tmp_path, *KEYS)
    assert child.stdout is not None
    assert child.stdout.readline() == "put\n"
    with CallCache(tmp_path) as cache:
        assert cache.get(KEYS[0]) is None
    assert len(side_files(tmp_path)) == 1
    child.kill()
    kill_after_lines(child, 1)
    with CallCache(tmp_path) as cache:
        assert [cache.get(key) for key in KEYS] == [b"from the child"] * 3
    assert side_files(tmp_path) == []
    assert len(stored(tmp_path / FILE_NAME)) == 3


@pytest.mark.parametrize(
    ("spoil", "left"),
    [
        (lambda data: data, 3),
        (lambda data: data[:-1], 2),
        (lambda data: data[: len(data) // 3 + 5], 1),
        (lambda data: data[:10], 0),
        (lambda data: data[:-1] + b"X", 2),
        (lambda data: b"garbage " * 100, 0),
        (lambda data: data + b"\x00" * 500, 3),
    ],
    ids=["whole", "last value torn", "second head torn", "first head torn", "checksum", "garbage", "zeros behind"],
)
def test_whole_entries_are_taken(tmp_path: Path, spoil: object, left: int) -> None:
    log = PendingLog(tmp_path / FILE_NAME)
    for key in KEYS:
        log.append(key, b"reply " * 50)
    log.abandon()
    assert callable(spoil)
    log.path.write_bytes(spoil(log.path.read_bytes()))
    with CallCache(tmp_path, on_warning=pytest.fail) as cache:
        assert [cache.get(key) for key in KEYS] == [b"reply " * 50] * left + [None] * (3 - left)
    assert side_files(tmp_path) == []


def test_an_empty_side_file_is_left_to_its_maker_for_a_minute(tmp_path: Path) -> None:
    """It may have been made, but not locked, an instant ago."""
    path = tmp_path / f"{FILE_NAME}.pending-1-abc"
    path.touch()
    CallCache(tmp_path).close()
    assert path.exists()
    os.utime(path, (time.time() - 100, time.time() - 100))
    CallCache(tmp_path).close()
    assert not path.exists()


def test_two_caches_of_one_process_keep_their_side_files_apart(tmp_path: Path) -> None:
    with CallCache(tmp_path) as one:
        one.put_sync(KEYS[0], b"1")
        with CallCache(tmp_path) as two:
            two.put_sync(KEYS[1], b"2")
            one.put_sync(KEYS[2], b"3")
        assert one.put_sync(KEYS[2], b"4")
    assert {value for _, value in stored(tmp_path / FILE_NAME).values()} == {b"1", b"2", b"4"}
    assert side_files(tmp_path) == []
