"""Files that are whole or not there, and the nearest names for a typing error."""

from __future__ import annotations

import ast
import gc
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rm_gallery.core.utils.errors import DataError
from rm_gallery.core.utils.file import replacing, write_whole, written_whole
from rm_gallery.core.utils.identity import syntax_tree
from rm_gallery.core.utils.models import nearest, unknown_name


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    write_whole(target, b"old")
    with pytest.raises(RuntimeError), replacing(target) as out:
        out.write(b"half")
        raise RuntimeError
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.json": b"old"}
    with written_whole(tmp_path / "deep" / "b.json") as out:
        out.write(b"new")
    assert (tmp_path / "deep" / "b.json").read_bytes() == b"new"


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
@pytest.mark.parametrize("name", [".a.json.fixed.tmp", "a.json"])
def test_s_minor_a_planted_link_is_not_followed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / name).symlink_to(victim)
    (tmp_path / "a.json.tmp").symlink_to(victim)
    monkeypatch.setattr("secrets.token_hex", lambda size: "fixed")
    if name == "a.json":
        write_whole(tmp_path / "a.json", b"new")
        assert not (tmp_path / "a.json").is_symlink()
    else:
        with pytest.raises(FileExistsError):
            write_whole(tmp_path / "a.json", b"new")
    assert victim.read_bytes() == b"mine"


def test_where_nothing_can_be_written_the_message_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file/x.json: cannot be written"), written_whole(tmp_path / "file/x.json"):
        pass


@pytest.mark.parametrize(
    ("name", "found"),
    [("acuracy", ["accuracy"]), ("ACCURACY", ["accuracy"]), ("rouje", ["Rouge"]), ("xyzzy", []), ("", [])],
)
def test_nearest_names(name: str, found: list[str]) -> None:
    known = ["accuracy", "Rouge", "bleu"]
    assert nearest(name, known) == found
    assert unknown_name("reward", name, known).endswith(f"Did you mean {', '.join(found)}?") is bool(found)


def test_syntax_trees_are_made_by_one_thread_at_a_time() -> None:
    """Two at once ended in a SystemError now and then: the first samples of a reward of one's own had failed then."""
    source = "".join(f"def f{n}(a):\n    return [a, (a + {n}) * 2]\n" for n in range(80))
    before, often = gc.get_threshold(), sys.getswitchinterval()
    callback = lambda *_: time.sleep(0)  # noqa: E731 - gives the other threads a turn in the middle of a tree
    gc.callbacks.append(callback)
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert len([tree for tree in pool.map(syntax_tree, [source] * 60) if isinstance(tree, ast.Module)]) == 60
    finally:
        sys.setswitchinterval(often)
        gc.set_threshold(*before)
        gc.callbacks.remove(callback)
