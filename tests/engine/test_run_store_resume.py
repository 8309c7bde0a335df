"""A run continues where it stopped: finished samples are reused, failed and unfinished ones owed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import orjson
import pytest

from rm_gallery.core.engine.folder.store import RunStore
from rm_gallery.core.utils.errors import ConfigError, DataError

MANIFEST = {"reward": "accuracy", "seed": 0}


def record(sample: str, status: str = "scored", **more: Any) -> dict[str, Any]:
    return {"id": sample, "status": status, **more}


@pytest.mark.parametrize(
    ("written", "finished"),
    [
        ([], {}),
        ([record("a", score=1.0)], {"a": 1.0}),
        ([record("a", "unscored", score=None)], {"a": None}),
        ([record("a", "failed", score=None)], {}),
        ([record("a", "failed", score=None), record("a", score=0.5)], {"a": 0.5}),
        ([record("a", score=0.1), record("b", score=0.2), record("a", score=0.3)], {"a": 0.3, "b": 0.2}),
        ([record("a", score=0.1), record("a", "failed", score=None)], {}),
    ],
    ids=["nothing", "scored", "unscored", "failed", "failed then scored", "the last counts", "failed later"],
)
def test_what_a_second_start_finds(
    tmp_path: Path, written: list[dict[str, Any]], finished: dict[str, float | None]
) -> None:
    with RunStore.open(tmp_path / "run", MANIFEST) as store:
        for entry in written:
            store.append(entry)
    with RunStore.open(tmp_path / "run", MANIFEST) as store:
        assert {key: entry["score"] for key, entry in store.finished().items()} == finished
        assert list(store.records()) == written


def test_which_statuses_are_reused_is_a_choice(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, MANIFEST) as store:
        store.append_all([record("a"), record("b", "unscored"), record("c", "failed")])
        assert set(store.finished(reuse=("scored",))) == {"a"}
        assert set(store.finished(reuse=("scored", "unscored", "failed"))) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "value",
    ["评分：好\r\n", "\u2028", "lone \ud800 surrogate", 2**70, math.inf, [1, {"x": None}], "", "a\nb"],
    ids=["Chinese and CRLF", "line separator", "surrogate", "large integer", "infinity", "nested", "empty", "newline"],
)
def test_any_text_comes_back_on_its_one_line(tmp_path: Path, value: Any) -> None:
    with RunStore.open(tmp_path, MANIFEST) as store:
        store.append_all([record("编号", value=value), record("b")])
        found = store.finished()["编号"]["value"]
    assert found == (None if value == math.inf else value)
    assert (tmp_path / "results.jsonl").read_bytes().count(b"\n") == 2


@pytest.mark.parametrize(
    "entry",
    [{"status": "scored"}, {"id": 3, "status": "scored"}, {"id": "a"}, {"id": "a", "status": "maybe"},
     record("a", value=object())],
    ids=["no id", "id is no text", "no status", "unknown status", "not JSON"],
)  # fmt: skip
def test_a_record_that_could_not_be_found_again_is_refused(tmp_path: Path, entry: dict[str, Any]) -> None:
    with RunStore.open(tmp_path, MANIFEST) as store:
        with pytest.raises(DataError):
            store.append_all([record("ok"), entry])
        assert list(store.records()) == []


def test_the_summary_is_replaced_as_a_whole(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, MANIFEST) as store:
        store.write_summary({"n": 1, "api_key": "sk-abc"})
        store.write_summary({"n": 2})
    assert orjson.loads((tmp_path / "summary.json").read_bytes()) == {"n": 2}


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = RunStore.open(tmp_path, MANIFEST)
    store.flush()
    store.close()
    store.close()
    with pytest.raises(ConfigError, match="not open in this process"):
        store.append(record("a"))
