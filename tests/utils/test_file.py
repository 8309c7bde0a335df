"""Files that are whole or not there, and JSON of anything."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.utils.errors import DataError
from rm_gallery.core.utils.file import as_json, deeper, replacing, seeded_positions, write_whole, written_whole


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
def test_a_planted_link_is_not_followed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    ("value", "text"),
    [({"a": "ü"}, '{\n  "a": "ü"\n}\n'), (["\ud800"], '[\n  "?"\n]\n'), ({"a": 2**80}, f'{{\n  "a": {2**80}\n}}\n')],
)
def test_json_of_anything(value: Any, text: str) -> None:
    assert as_json(value).decode() == text
    assert json.loads(text) is not None


@pytest.mark.parametrize(("value", "levels"), [(1, 0), ([], 1), ({"a": [1, {}]}, 3), ([[[]], []], 3)])
def test_how_deep_a_value_is(value: Any, levels: int) -> None:
    assert [deeper(value, most) for most in range(5)] == [levels > most for most in range(5)]


def test_samples_of_one_seed_are_nested() -> None:
    found = [set(seeded_positions(50, count, 7)) for count in range(52)]
    assert [len(each) for each in found] == [*range(51), 50]
    assert all(smaller < larger for smaller, larger in zip(found[:50], found[1:51], strict=True))
    assert seeded_positions(50, 9, 7) == sorted(found[9]) != seeded_positions(50, 9, 8)
