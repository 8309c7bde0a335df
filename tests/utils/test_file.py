"""Files that are whole or not there, JSON of anything, and lists that are cut in two without
leaking groups.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rm_gallery import ChatMessage, DataError, DataSample
from rm_gallery.core.utils.file import (
    as_json,
    replacing,
    seeded_positions,
    split_samples,
    write_whole,
    written_whole,
)


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


@pytest.mark.skipif(os.name == "nt", reason="there are no such files there")
def test_a_device_or_a_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"said")
    reader.join(10)
    assert (
        read == [b"said"]
        and pipe.is_fifo()
        and [path.name for path in tmp_path.iterdir()] == ["pipe"]
    )


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
@pytest.mark.parametrize("name", [".a.json.fixed.tmp", "a.json"])
def test_a_planted_link_is_not_followed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with (
        pytest.raises(DataError, match=r"file/x.json: cannot be written"),
        written_whole(tmp_path / "file/x.json"),
    ):
        pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": "ü"}, '{\n  "a": "ü"\n}\n'),
        (["\ud800"], '[\n  "?"\n]\n'),
        ({"a": 2**80}, f'{{\n  "a": {2**80}\n}}\n'),
    ],
)
def test_json_of_anything(value: Any, text: str) -> None:
    assert as_json(value).decode() == text and json.loads(text) is not None


def test_samples_of_one_seed_are_nested() -> None:
    found = [set(seeded_positions(50, count, 7)) for count in range(52)]
    assert [len(each) for each in found] == [*range(51), 50]
    assert all(smaller < larger for smaller, larger in zip(found[:50], found[1:51], strict=True))
    assert seeded_positions(50, 9, 7) == sorted(found[9]) != seeded_positions(50, 9, 8)


def test_default_is_a_tenth_in_order_and_seeded() -> None:
    items = list(range(500))
    first, rest = split_samples(items)
    assert (len(first), len(rest)) == (50, 450)
    assert first == sorted(first) and rest == sorted(rest)
    assert sorted(first + rest) == items and (first, rest) == split_samples(items)
    assert first != split_samples(items, seed=1)[0] != items[:50]


def test_samples_are_not_copied() -> None:
    items = [DataSample(unique_id=str(n)) for n in range(20)]
    first, rest = split_samples(items, 0.5)
    assert {id(item) for item in first + rest} == {id(item) for item in items}


# a machine under load is slow, not wrong
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    keys=st.lists(st.integers(0, 8), max_size=60),
    ratio=st.floats(0.05, 0.95),
    seed=st.integers(0, 50),
)
def test_groups_stay_together(keys: list[int], ratio: float, seed: int) -> None:
    items = list(enumerate(keys))
    first, rest = split_samples(items, ratio, seed, by=lambda item: item[1])
    assert sorted(first + rest) == items and not {key for _, key in first} & {
        key for _, key in rest
    }
    if len(set(keys)) > 1:
        largest = max(Counter(keys).values())
        assert first and rest
        assert abs(len(first) - ratio * len(items)) <= largest + 1


def test_by_prompt_ignores_white_space_and_sees_the_whole_conversation() -> None:
    def sample(name: str, *texts: str) -> DataSample:
        return DataSample(unique_id=name, input=[ChatMessage(content=text) for text in texts])

    items = [
        sample(f"{n}{side}", f"question {n}" + side) for n in range(10) for side in ("", "\n", " ")
    ]
    items += [sample("long", "question 1", "and more")]
    first, rest = split_samples(items, 0.3, by="prompt")
    assert 8 <= len(first) <= 10
    assert not {item.unique_id[0] for item in first if item.unique_id != "long"} & {
        item.unique_id[0] for item in rest
    }
