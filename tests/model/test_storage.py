"""What is put comes back: at once, in a later process, in the same bytes; within its size and age,
after a kill at any byte, beside other processes; or it is done without.
"""

from __future__ import annotations

import hashlib
import os
import random
import sqlite3
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from rm_gallery import ConfigError
from rm_gallery.core.model import storage
from rm_gallery.core.model.storage import FILE_NAME, KeptReplies, ReplyCache, canonical_key
from tests.engine.processes import finish, kill_after_lines, start

KEYS = [canonical_key(number) for number in range(200)]
DAY = 86_400.0


def opened(folder: Path, **settings: object) -> closing[ReplyCache]:
    return closing(ReplyCache(folder, **settings))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def nothing_to_warn_of(warned: list[str]) -> Iterator[None]:
    """Unless a test has looked at what was said, and cleared it."""
    yield
    assert warned == []


def test_a_url_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RM_GALLERY_CACHE", "redis://:secret@host")
    with pytest.raises(ConfigError, match="the folder .* Each machine keeps its own") as told:
        storage.shared()
    assert "secret" not in str(told.value)


@contextmanager
def days_ago(days: float) -> Iterator[None]:
    now = time.time()
    with mock.patch("time.time", lambda: now - days * DAY):
        yield


def test_keys_are_sha256_of_json_with_sorted_keys() -> None:
    data = '{"a":null,"b":[1,"ü"]}'.encode()
    assert canonical_key({"b": [1, "ü"], "a": None}) == hashlib.sha256(data).hexdigest()
    surrogates = [canonical_key({"x": text}) for text in ("\ud800", "\ud800", "\udfff")]
    assert surrogates[0] == surrogates[1] != surrogates[2]


def test_the_default_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert storage.default_cache_folder() == tmp_path / "rm-gallery"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "me")
    assert storage.default_cache_folder().name == "rm-gallery"


@pytest.mark.parametrize(
    "value",
    [b"", "评分：4".encode(), b"a\nb\r\n", b"ab" * 40_000, os.urandom(300_000)],
    ids=len,
)
def test_values_come_back_unchanged(tmp_path: Path, value: bytes) -> None:
    with opened(tmp_path) as cache:
        assert cache.get(KEYS[0]) is None and cache.put(KEYS[0], value)
        assert cache.get(KEYS[0]) == value
    with opened(tmp_path) as cache:
        assert cache.get(KEYS[0]) == value and cache.get(KEYS[1]) is None
        assert cache.get(KEYS[0][:16] + KEYS[1][16:]) is None, (
            "found by a part of its key and told by the whole of it"
        )


def test_the_last_value_of_a_key_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        for value in (b"1", b"2"):
            assert all(cache.put(key, value) for key in KEYS)
        stats = cache.stats()
        assert stats.entries == len(KEYS) and cache.writable
        size = stats.bytes
        assert cache.prune(max_bytes=1 << 30) == 0 and cache.stats().bytes < 0.6 * size
    with opened(tmp_path) as cache:
        assert {cache.get(key) for key in KEYS} == {b"2"}


def test_a_closed_cache_takes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.put(KEYS[0], b"x")
    cache.close()
    assert not cache.put(KEYS[1], b"y") and cache.get(KEYS[1]) is None


def test_a_cut_at_any_byte_costs_one_reply(tmp_path: Path) -> None:
    with opened(tmp_path / "whole") as cache:
        for key in KEYS[:4]:
            cache.put(key, key[:7].encode())
        whole = cache.path.read_bytes()
    begins = [whole.index(key.encode()) for key in KEYS[:4]]
    for length in range(len(whole) + 1):
        folder = tmp_path / str(length)
        folder.mkdir()
        (folder / FILE_NAME).write_bytes(whole[:length])
        with opened(folder) as cache:
            found = [cache.get(key) for key in KEYS[:4]]
            ends = [whole.index(b"\n", begin) for begin in begins]
            assert [value is not None for value in found] == [length > end for end in ends]
            assert cache.put(KEYS[9], b"new") and cache.get(KEYS[9]) == b"new"
        with opened(folder) as cache:
            assert cache.get(KEYS[9]) == b"new", "it stands on a line of its own"
            again = [cache.get(key) for key in KEYS[:4]]
            assert all(value in (None, now) for value, now in zip(found, again, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_damage_costs_the_lines_it_hits(tmp_path: Path, seed: int) -> None:
    with opened(tmp_path) as cache:
        for key in KEYS:
            cache.put(key, key.encode() * 5)
        path = cache.path
    rng = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(20):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)
    with opened(tmp_path) as cache:
        found = [cache.get(key) for key in KEYS]
        assert all(
            value in (None, key.encode() * 5) for key, value in zip(KEYS, found, strict=True)
        )
        assert sum(value is None for value in found) <= 40
    path.write_bytes(os.urandom(20_000))
    with opened(tmp_path) as cache:
        assert cache.get(KEYS[0]) is None and cache.put(KEYS[0], b"x")
        assert cache.get(KEYS[0]) == b"x"


def test_a_torn_line_hides_no_whole_one(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.put(KEYS[0], b"whole")
        line = cache.path.read_bytes()
    cache.path.write_bytes(line + line.replace(b"whole", b"torn!"))
    with opened(tmp_path) as cache:
        assert cache.get(KEYS[0]) == b"whole"
        cache.prune(max_bytes=1 << 30)
        assert cache.get(KEYS[0]) == b"whole"


def test_a_copy_that_was_left_half_made_is_taken_away(tmp_path: Path, warned: list[str]) -> None:
    with opened(tmp_path) as cache:
        cache.put(KEYS[0], b"x")
        (tmp_path / f"{FILE_NAME}.new").write_bytes(b"replies of a prune that was killed")
        with mock.patch("os.fdopen", side_effect=OSError(28, "No space left on device")):
            assert cache.prune(max_bytes=1 << 30) == 0 and cache.get(KEYS[0]) == b"x"
        warned.clear()
        assert sorted(os.listdir(tmp_path)) == [FILE_NAME, f"{FILE_NAME}.lock"]
        assert cache.clear() == 1


@pytest.mark.parametrize(
    ("days", "most", "found"), [(2, 3 * DAY, b"x"), (2, DAY, None), (400, None, b"x")]
)
def test_old_replies_are_not_used(
    tmp_path: Path, days: int, most: float | None, found: bytes | None
) -> None:
    with opened(tmp_path, max_age=most) as cache:
        with days_ago(days):
            cache.put(KEYS[0], b"x")
        assert cache.get(KEYS[0]) == found
        assert cache.prune() == (found is None)


def test_prune_removes_what_is_old_and_clear_everything(tmp_path: Path) -> None:
    with opened(tmp_path, max_age=None) as cache:
        for number, key in enumerate(KEYS[:10]):
            with days_ago(10 - number):
                cache.put(key, b"x" * 100)
        stats = cache.stats()
        assert stats.oldest is not None and stats.newest is not None
        assert stats.newest - stats.oldest == 9 * DAY
        assert cache.prune(max_age=5.5 * DAY) == 5
        assert cache.prune(max_bytes=cache.stats().bytes // 2) in (2, 3)
        assert cache.get(KEYS[9]) == b"x" * 100 and cache.get(KEYS[5]) is None
        left = cache.stats().entries
        assert cache.clear() == left and cache.stats().entries == 0
        assert cache.put(KEYS[0], b"y") and cache.get(KEYS[0]) == b"y"
    assert sorted(os.listdir(tmp_path)) == [FILE_NAME, f"{FILE_NAME}.lock"]


def test_the_file_keeps_within_its_size(tmp_path: Path) -> None:
    most = 40_000
    with opened(tmp_path, max_bytes=most) as cache:
        for number in range(1000):
            assert cache.put(canonical_key(["row", number]), b"x" * 400)
            assert cache.path.stat().st_size <= most + 500
        assert cache.get(canonical_key(["row", 999])) and not cache.get(canonical_key(["row", 9]))
        assert cache.stats().entries > 60


def test_what_another_process_adds_or_removes_is_seen(tmp_path: Path) -> None:
    with opened(tmp_path) as one, opened(tmp_path) as two:
        assert one.put(KEYS[0], b"1") and two.get(KEYS[0]) == b"1"
        assert two.put(KEYS[1], b"2") and one.put(KEYS[2], b"3")
        assert [one.get(key) for key in KEYS[:3]] == [two.get(key) for key in KEYS[:3]]
        assert two.clear() == 3
        assert one.put(KEYS[3], b"4"), "into the new file, not into the one that is gone"
        assert two.get(KEYS[3]) == b"4" and one.get(KEYS[9]) is None
    with opened(tmp_path) as cache:
        assert cache.get(KEYS[3]) == b"4" and cache.stats().entries == 1


def test_a_file_that_is_cut_or_moved_away_while_it_is_open(tmp_path: Path) -> None:
    with opened(tmp_path) as one, opened(tmp_path) as two:
        for cache, key in zip((one, two, one, two), KEYS, strict=False):
            assert cache.put(key, key.encode()) and cache.get(KEYS[9]) is None
        os.truncate(one.path, 0)
        assert [cache.get(KEYS[0]) for cache in (one, two)] == [None, None]
        assert two.put(KEYS[5], b"5") and one.get(KEYS[5]) == b"5"
        one.path.rename(tmp_path / "away")
        time.sleep(0.06)  # its path is looked at once in a while
        assert [cache.get(KEYS[5]) for cache in (one, two)] == [None, None]
        assert one.put(KEYS[6], b"6") and two.get(KEYS[6]) == b"6"


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="no list of open files on this system")
def test_a_file_is_opened_once_and_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    with opened(tmp_path) as cache:
        for key in KEYS:
            assert cache.get(key) is None and cache.put(key, b"x") and cache.get(key) == b"x"
        cache.prune()
        assert cache.get(KEYS[0]) == b"x" and len(os.listdir("/dev/fd")) <= before + 2
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("size", [4095, 4096, 4097, 65_536, 1 << 19])
def test_a_line_of_any_length_is_read_whole(tmp_path: Path, size: int) -> None:
    """Lines of one block, of a block and a byte, and of many."""
    replies = {
        key: os.urandom(size).hex().encode()[: size - number]
        for number, key in enumerate(KEYS[:90])
    }
    if size > 5000:
        replies = dict(list(replies.items())[:3])
    with mock.patch.object(storage, "_COMPRESS_FROM", 1 << 30), opened(tmp_path) as cache:
        for key, reply in replies.items():
            assert cache.put(key, reply) and cache.get(key) == reply
    with opened(tmp_path) as cache:
        assert {key: cache.get(key) for key in replies} == replies


def test_a_folder_that_cannot_be_made(tmp_path: Path, warned: list[str]) -> None:
    (tmp_path / "file").write_text("")
    with opened(tmp_path / "file" / "deep") as cache:
        assert cache.get(KEYS[0]) is None and not cache.put(KEYS[0], b"x")
        assert cache.stats().entries == 0 and not cache.writable
    [told] = warned
    assert "cannot be written" in told and str(cache.path) in told
    warned.clear()


def test_a_full_disk_is_told_once_and_what_is_kept_is_read(
    tmp_path: Path, warned: list[str]
) -> None:
    with opened(tmp_path) as cache:
        assert cache.put(KEYS[0], b"x")
        real = os.write
        with mock.patch("os.write", lambda file, data: real(file, data[:30])):
            assert not cache.put(KEYS[1], b"y") and not cache.put(KEYS[2], b"z")
        assert cache.get(KEYS[0]) == b"x" and cache.get(KEYS[1]) is None
    [told] = warned
    assert "the disk is full" in told
    warned.clear()
    with opened(tmp_path) as cache:
        assert cache.put(KEYS[3], b"new") and cache.get(KEYS[3]) == b"new"


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    with opened(tmp_path / "mine") as cache:
        cache.put(KEYS[0], b"x")
        cache.prune()
        assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(cache.path.parent.stat().st_mode) == 0o700


def test_a_reply_that_unpacks_to_gigabytes_is_none_of_ours(tmp_path: Path) -> None:
    with mock.patch.object(storage, "MAX_VALUE_BYTES", 1 << 20), opened(tmp_path) as cache:
        assert not cache.put(KEYS[0], b"x" * ((1 << 20) + 1))
        with mock.patch.object(storage, "MAX_VALUE_BYTES", 1 << 30):
            assert cache.put(KEYS[0], b"x" * (2 << 20))
        assert cache.get(KEYS[0]) is None


def earlier_file(folder: Path, rows: dict[str, bytes]) -> Path:
    """A cache as versions before the log wrote it."""
    path = folder / storage.EARLIER_NAME
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE calls (n INTEGER PRIMARY KEY, hash INTEGER NOT NULL, key BLOB NOT NULL, "
            "codec INTEGER NOT NULL, created INTEGER NOT NULL, used INTEGER NOT NULL, "
            "value BLOB NOT NULL)"
        )
        now = 1_700_000_000
        for key, value in rows.items():
            packed = len(value) >= 16_384
            db.execute(
                "INSERT INTO calls (hash, key, codec, created, used, value) VALUES (?, ?, ?, ?, ?, ?)",
                (int(key[:16], 16) - (1 << 63), bytes.fromhex(key), int(packed), now, now,
                 zlib.compress(value) if packed else value),
            )  # fmt: skip
    return path


def test_replies_of_earlier_versions_are_found_and_taken_over(tmp_path: Path) -> None:
    rows = {KEYS[0]: b"short", KEYS[1]: b"long " * 9000, KEYS[2]: b"old"}
    path = earlier_file(tmp_path, rows)
    with opened(tmp_path, max_age=None) as cache:
        assert cache.get(KEYS[0]) == b"short" and cache.get(KEYS[1]) == b"long " * 9000
        assert cache.get(KEYS[3]) is None
        assert cache.stats().oldest == 1_700_000_000, "it does not get younger"
    path.unlink()
    with opened(tmp_path, max_age=None) as cache, mock.patch("sqlite3.connect", pytest.fail):
        assert cache.get(KEYS[0]) == b"short" and cache.get(KEYS[2]) is None
    path = earlier_file(tmp_path, rows)
    with opened(tmp_path) as cache:
        assert cache.clear() == 2 + 3 and cache.get(KEYS[2]) is None
    assert not path.exists()
    path.write_bytes(b"no database" * 300)
    with opened(tmp_path) as cache:
        assert cache.get(KEYS[0]) is None and cache.put(KEYS[0], b"x")


WRITER = """
    import os, sys
    from pathlib import Path
    from rm_gallery.core.model.storage import ReplyCache, canonical_key

    cache = ReplyCache(Path(sys.argv[1]), max_bytes=int(sys.argv[3]))
    for number in range(int(sys.argv[4])):
        key = canonical_key([sys.argv[2], number])
        assert cache.put(key, key.encode() * 10)
        os.write(1, key.encode() + b"\\n")
"""


def test_promised_replies_survive_kill_9(tmp_path: Path) -> None:
    rng = random.Random(5)
    promised: list[str] = []
    for life in range(3):
        child = start(WRITER, tmp_path, life, 1 << 30, 1 << 30)
        promised += kill_after_lines(child, rng.randint(1, 600))
    with opened(tmp_path) as cache:
        assert [key for key in promised if cache.get(key) != key.encode() * 10] == []


def test_processes_that_write_and_shrink_one_file_lose_nothing_that_is_new(tmp_path: Path) -> None:
    """Each makes the file anew while the others append to it."""
    most, rows = 300_000, 400
    children = [start(WRITER, tmp_path, who, most, rows) for who in range(3)]
    written = finish(*children).split()
    assert len(written) == 3 * rows
    with opened(tmp_path, max_bytes=None) as cache:
        for who in range(3):
            keys = [canonical_key([str(who), number]) for number in range(rows)]
            held = [cache.get(key) == key.encode() * 10 for key in keys]
            # what was written while the file was made anew may stand behind all that came while
            # that process waited for its turn
            late = min(held[:one].count(True) + held[one:].count(False) for one in range(rows + 1))
            assert late <= 0.05 * rows, "what is gone is older than what is kept"
        assert cache.stats().bytes <= most + 3 * 800
        assert cache.stats().entries > 0.5 * most / 730


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_writes_beside_its_parent(tmp_path: Path) -> None:
    script = """
        import os, sys
        os.environ["RM_GALLERY_CACHE"] = sys.argv[1]
        from rm_gallery.core.model.storage import canonical_key, shared

        def write(who):
            keys = [canonical_key([who, number]) for number in range(200)]
            return all(shared().put(key, key.encode()) for key in keys) and all(
                shared().get(key) == key.encode() for key in keys
            )

        assert write("before")
        children = []
        for child in range(3):
            pid = os.fork()
            if not pid:
                os._exit(0 if write(child) and shared().get(canonical_key(["before", 0])) else 1)
            children.append(pid)
            assert write(["parent", child])
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        assert codes == [0] * 3, codes
        assert shared().stats().entries == 200 * 7
    """
    finish(start(script, tmp_path))


@pytest.mark.parametrize("line", [b"00000000", b"%08x x" % zlib.crc32(b"x"), b"\xff" * 90, b"{}"])
def test_a_line_of_somebody_else_is_passed_over(tmp_path: Path, line: bytes) -> None:
    with opened(tmp_path) as cache:
        assert cache.put(KEYS[0], b"1")
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b"\n" + line + b"\n")
    with opened(tmp_path) as cache:
        assert cache.get(KEYS[0]) == b"1" and cache.get(KEYS[1]) is None
        assert cache.put(KEYS[1], b"2") and cache.get(KEYS[1]) == b"2"


def test_a_damaged_line_of_an_earlier_folder_is_passed_over(tmp_path: Path) -> None:
    bad = b'{"key":"%s","base64":"a"}\n{"key":"%s","reply":{"a":{"key":1}\n' % (
        KEYS[0].encode(),
        KEYS[1].encode(),
    )
    good = b'{"key":"%s","reply":{"a":1}}\n' % KEYS[2].encode()
    (tmp_path / "replies.jsonl").write_bytes(bad + good)
    kept = KeptReplies(tmp_path)
    assert [kept.get(key) for key in KEYS[:3]] == [None, None, b'{"a":1}']
    kept.close()
