"""Two writers never share a run, and a dead one does not keep it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from rm_gallery.core.engine.folder.store import RunStore
from rm_gallery.core.utils.errors import ConfigError
from tests.engine.child_processes import finish, kill_after_lines, start

MANIFEST = {"seed": 0}
HOLDER = """
    import os, sys, time
    from rm_gallery.core.engine.folder.store import RunStore
    store = RunStore.open(sys.argv[1], {"seed": 0})
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
    with RunStore.open(tmp_path, MANIFEST) as store:
        for folder in (tmp_path, tmp_path / ".." / tmp_path.name):
            with pytest.raises(ConfigError, match="being written by this process"):
                RunStore.open(folder, MANIFEST)
        store.append({"id": "a", "status": "scored"})
    RunStore.open(tmp_path, MANIFEST).close()


@pytest.mark.parametrize("family", ["alone", "with a child"])
def test_another_process_is_refused_until_it_dies(tmp_path: Path, family: str) -> None:
    """A worker forked by the killed run may live on; it does not hold the run."""
    if family != "alone" and not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    child = start(HOLDER, tmp_path, family)
    assert child.stdout is not None
    orphan = int(child.stdout.readline())
    try:
        for force_new in (False, True):
            with pytest.raises(ConfigError, match=rf"being written by pid {child.pid} on "):
                RunStore.open(tmp_path, MANIFEST, force_new=force_new)
        child.kill()
        kill_after_lines(child, 1)
        RunStore.open(tmp_path, MANIFEST).close()
    finally:
        if orphan:
            os.kill(orphan, signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_cannot_write_into_its_parents_run(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, MANIFEST) as store:
        pid = os.fork()
        if not pid:
            code = 0
            for attempt in (
                lambda: store.append({"id": "x", "status": "scored"}),
                lambda: RunStore.open(tmp_path, MANIFEST),
            ):
                try:
                    attempt()
                    code = 1
                except ConfigError:
                    pass
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        with pytest.raises(ConfigError, match="this process"):
            RunStore.open(tmp_path, MANIFEST)
        assert list(store.records()) == []


def test_threads_share_a_store(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, MANIFEST) as store:

        def work(part: int) -> None:
            for number in range(100):
                store.append({"id": f"{part}-{number}", "status": "scored", "text": "x" * 500})

        threads = [threading.Thread(target=work, args=(part,)) for part in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.finished()) == store.appended == 1600


def test_d_a_copied_or_read_folder_keeps_its_lock(tmp_path: Path) -> None:
    """Opening and closing the lock file in the owner's own process, as a copy does, frees nothing."""
    folder = tmp_path / "run"
    with RunStore.open(folder, MANIFEST) as store:
        store.append({"id": "a", "status": "scored"})
        shutil.copytree(folder, tmp_path / "copy")
        refused = f"""
            from rm_gallery.core.engine.folder.store import RunStore
            try:
                RunStore.open({str(folder)!r}, {{"seed": 0}})
            except ValueError as error:
                print(error)
        """
        assert f"being written by pid {os.getpid()} on " in finish(start(refused))
        with RunStore.open(tmp_path / "copy", MANIFEST) as copy:
            assert list(copy.finished()) == ["a"]


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
@pytest.mark.parametrize("name", ["manifest.json.tmp", "summary.json.tmp", ".lock", "results.jsonl"])
def test_d_a_planted_link_is_not_followed(tmp_path: Path, name: str) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_text("")
    folder.mkdir()
    (folder / name).symlink_to(victim)
    with contextlib.suppress(ConfigError), RunStore.open(folder, MANIFEST) as store:
        store.append({"id": "a", "status": "scored"})
        store.write_summary({"n": 1})
    assert victim.read_text() == ""
