"""A full disk ends the run with a clear message and leaves whole lines behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rm_gallery.core.engine.folder.store import RunStore
from rm_gallery.core.utils.errors import ConfigError
from tests.engine.child_processes import finish, start

MANIFEST = {"seed": 0}
FILLER = """
    import resource, sys
    from rm_gallery.core.engine.folder.store import RunStore
    from rm_gallery.core.utils.errors import ConfigError
    store = RunStore.open(sys.argv[1], {"seed": 0})
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    done = 0
    try:
        while done < 10_000:
            store.append({"id": str(done), "status": "scored", "text": "x" * 333})
            done += 1
    except ConfigError as error:
        print(done)
        print(error)
    store.close()
"""


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """A limit on the file size stands in for the full disk; the write that hits it is cut in the middle."""
    done, message = finish(start(FILLER, tmp_path)).strip().split("\n", 1)
    assert str(tmp_path) in message
    assert f"The {done} results of this session" in message
    assert "space" in message
    assert "same command" in message
    content = (tmp_path / "results.jsonl").read_bytes()
    assert content.endswith(b"\n"), "the half-written line was cut again"
    with RunStore.open(tmp_path, MANIFEST) as store:
        assert len(store.finished()) == int(done)
        store.append({"id": "more", "status": "scored"})
        assert len(store.finished()) == int(done) + 1


@pytest.mark.parametrize("cut_fails", [False, True], ids=["the half line can be cut", "it cannot"])
def test_the_store_goes_on_once_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_fails: bool
) -> None:
    real_write, real_truncate = os.write, os.ftruncate
    full = True

    def write(fd: int, data: bytes) -> int:
        if not full:
            return real_write(fd, data)
        if len(data) <= 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(fd, data[:20])

    def truncate(fd: int, length: int) -> None:
        if full and cut_fails:
            raise OSError(errno.EIO, "Input/output error")
        real_truncate(fd, length)

    with RunStore.open(tmp_path, MANIFEST) as store:
        store.append({"id": "before", "status": "scored"})
        monkeypatch.setattr(os, "write", write)
        monkeypatch.setattr(os, "ftruncate", truncate)
        with pytest.raises(ConfigError, match="The 1 results of this session"):
            store.append({"id": "lost", "status": "scored"})
        full = False
        store.append({"id": "after", "status": "scored"})
        assert list(store.finished()) == ["before", "after"]


def test_a_summary_that_does_not_fit_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore.open(tmp_path, MANIFEST) as store:
        store.write_summary({"n": 1})

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ConfigError, match="No space left"):
            store.write_summary({"n": 2})
        monkeypatch.undo()
    assert (tmp_path / "summary.json").read_text() == '{\n  "n": 1\n}\n'
    assert not list(tmp_path.glob("*.tmp"))
