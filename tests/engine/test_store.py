"""A run folder: continued by whoever asks for the same, whole after a full disk or a kill, and
written by one at a time.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest

from rm_gallery import ConfigError, DataError
from rm_gallery.core.engine.folder import RunStore
from tests.engine.processes import finish, kill_after_lines, start

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
MANIFEST: dict[str, Any] = {"seed": 0}


def record(sample: str, status: str = "scored", **more: Any) -> dict[str, Any]:
    return {"id": sample, "status": status, **more}


def test_a_class_of_the_library_that_moved_is_no_other_run(tmp_path: Path) -> None:
    RunStore(
        tmp_path,
        {
            "class": "rm_gallery.gallery.rm.math.reward.Maths",
            "mode": ["rm_gallery.core.old.Mode", "a"],
        },
    ).release()
    for here in ("rm_gallery.gallery.rm.math.Maths", "rm_gallery.Maths"):
        RunStore(tmp_path, {"class": here, "mode": ["rm_gallery.core.new.Mode", "a"]}).release()
    with pytest.raises(
        ConfigError, match=r"class: .rm_gallery.gallery.rm.math.reward.Maths. → .mine.Maths."
    ):
        RunStore(tmp_path, {"class": "mine.Maths", "mode": ["rm_gallery.core.old.Mode", "a"]})


def test_the_written_manifest_is_readable_and_holds_no_secret(tmp_path: Path) -> None:
    RunStore(
        tmp_path, {"api_key": "sk-very-secret", "path": tmp_path, "text": "评分", "n": {"b", "a"}}
    ).release()
    text = (tmp_path / "manifest.json").read_text(encoding="utf-8")
    assert orjson.loads(text) == {
        "api_key": "***",
        "path": str(tmp_path),
        "text": "评分",
        "n": ["a", "b"],
    }
    assert "评分" in text and text.count("\n") == 9


def test_force_new_moves_the_old_run_aside(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for seed in range(3):
        with RunStore(folder, {"seed": seed}, force_new=True) as store:
            assert store.finished() == {}
            store.write({"id": f"s{seed}", "status": "scored"})
    assert orjson.loads((folder / "manifest.json").read_bytes())["seed"] == 2
    aside = tmp_path.glob("run.old-*")
    assert {(path / "results.jsonl").read_text()[:10] for path in aside} == {
        '{"id":"s0"',
        '{"id":"s1"',
    }


def test_a_folder_with_other_files_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    RunStore(tmp_path, MANIFEST, force_new=True).release()
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("results.jsonl", '{"id":"a","status":"scored"}\n', "no manifest.json"),
        ("manifest.json", '{"reward": ', "holds no JSON object"),
        ("manifest.json", "[]", "holds no JSON object"),
    ],
)
def test_folders_nobody_can_make_sense_of_are_refused(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message):
        RunStore(tmp_path, MANIFEST)
    assert (tmp_path / name).read_text() == content
    RunStore(tmp_path, MANIFEST, force_new=True).release()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="file/run cannot be written"):
        RunStore(tmp_path / "file" / "run", MANIFEST)


VALUES = [
    "评分：好\r\n",
    "\u2028",
    "lone \ud800 surrogate",
    2**70,
    math.inf,
    [1, {"x": None}],
    "",
    "a\nb",
]


@pytest.mark.parametrize("value", VALUES, ids=ascii)
def test_any_text_comes_back_on_its_one_line(tmp_path: Path, value: Any) -> None:
    with RunStore(tmp_path, MANIFEST) as store:
        store.write(record("编号", value=value), record("b"))
        found = store.finished()["编号"]["value"]
    assert (
        found == (None if value == math.inf else value)
        and (tmp_path / "results.jsonl").read_bytes().count(b"\n") == 2
    )


def test_a_record_that_json_has_no_form_for_is_refused(tmp_path: Path) -> None:
    with RunStore(tmp_path, MANIFEST) as store:
        with pytest.raises(DataError):
            store.write(record("ok"), record("a", value={(1, 2): 3}))
        assert store.finished() == {}


def test_the_summary_is_replaced_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with RunStore(tmp_path, MANIFEST) as store:
        store.write_summary({"n": 1, "api_key": "sk-abc"})
        store.write_summary({"n": 2})
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(
            ConfigError, match="No space left.*Free some space, .* run the same command"
        ):
            store.write_summary({"n": 3})
        monkeypatch.undo()
    assert (tmp_path / "summary.json").read_text() == '{\n  "n": 2\n}\n' and not list(
        tmp_path.glob("*.tmp")
    )


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = RunStore(tmp_path, MANIFEST)
    store.release()
    store.release()
    with pytest.raises(ConfigError, match="not open in this process"):
        store.write(record("a"))


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

    with RunStore(tmp_path, MANIFEST) as store:
        store.write({"id": "before", "status": "scored"})
        monkeypatch.setattr(os, "write", write)
        monkeypatch.setattr(os, "ftruncate", truncate)
        with pytest.raises(ConfigError, match="Everything finished is saved"):
            store.write({"id": "lost", "status": "scored"})
        full = False
        store.write({"id": "after", "status": "scored"})
        assert list(store.finished()) == ["before", "after"]


HOLDER = """
    import os, sys, time
    from rm_gallery.core.engine.folder import RunStore
    store = RunStore(sys.argv[1], {"seed": 0})
    orphan = os.fork() if sys.argv[2] == "with a child" else 0
    if sys.argv[2] == "with a child" and not orphan:
        os.close(1)
        os.close(2)
        time.sleep(20)
        os._exit(0)
    os.write(1, b"%d\\n" % orphan)
    time.sleep(20)
"""


def test_a_second_store_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with RunStore(tmp_path, MANIFEST) as store:
        for folder in (tmp_path, tmp_path / ".." / tmp_path.name):
            with pytest.raises(ConfigError, match="being written by this process"):
                RunStore(folder, MANIFEST)
        store.write({"id": "a", "status": "scored"})
    RunStore(tmp_path, MANIFEST).release()


@needs_fork
@pytest.mark.parametrize("family", ["alone", "with a child"])
def test_another_process_is_refused_until_it_dies(tmp_path: Path, family: str) -> None:
    """A worker forked by the killed run may live on; it does not hold the run."""
    child = start(HOLDER, tmp_path, family)
    assert child.stdout is not None
    orphan = int(child.stdout.readline())
    try:
        for force_new in (False, True):
            with pytest.raises(ConfigError, match=rf"being written by pid {child.pid} on "):
                RunStore(tmp_path, MANIFEST, force_new=force_new)
        child.kill()
        kill_after_lines(child, 1)
        RunStore(tmp_path, MANIFEST).release()
    finally:
        if orphan:
            os.kill(orphan, signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@needs_fork
def test_a_forked_child_cannot_write_into_its_parents_run(tmp_path: Path) -> None:
    with RunStore(tmp_path, MANIFEST) as store:
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                for attempt in (
                    lambda: store.write(record("x")),
                    lambda: RunStore(tmp_path, MANIFEST),
                ):
                    with pytest.raises(ConfigError):
                        attempt()
                store.release()  # and frees nothing that it has not
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        with pytest.raises(ConfigError, match="this process"):
            RunStore(tmp_path, MANIFEST)
        assert store.finished() == {}


def test_a_copied_or_read_folder_keeps_its_lock(tmp_path: Path) -> None:
    """Opening and closing the lock file in the owner's own process, as a copy does, frees nothing."""
    folder = tmp_path / "run"
    with RunStore(folder, MANIFEST) as store:
        store.write({"id": "a", "status": "scored"})
        shutil.copytree(folder, tmp_path / "copy")
        refused = f"""
            from rm_gallery.core.engine.folder import RunStore
            try:
                RunStore({str(folder)!r}, {{"seed": 0}})
            except ValueError as error:
                print(error)
        """
        assert f"being written by pid {os.getpid()} on " in finish(start(refused))
        with RunStore(tmp_path / "copy", MANIFEST) as copy:
            assert list(copy.finished()) == ["a"]


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
@pytest.mark.parametrize(
    "name", ["manifest.json.tmp", "summary.json.tmp", ".lock", "results.jsonl"]
)
def test_a_planted_link_is_not_followed(tmp_path: Path, name: str) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_text("")
    folder.mkdir()
    (folder / name).symlink_to(victim)
    with contextlib.suppress(ConfigError), RunStore(folder, MANIFEST) as store:
        store.write({"id": "a", "status": "scored"})
        store.write_summary({"n": 1})
    assert victim.read_text() == ""
