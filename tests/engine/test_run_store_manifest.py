"""A run is continued only by a command that asks for the same; otherwise the differences are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from rm_gallery.core.engine.folder.store import RunStore
from rm_gallery.core.utils.errors import ConfigError

MANIFEST: dict[str, Any] = {
    "reward": {"name": "helpfulness", "weights": [0.5, 0.5]},
    "model": {"name": "judge", "temperature": 0.0, "api_key": "sk-very-secret-key-1"},
    "seed": 0,
    "versions": {"rm-gallery": "0.2"},
}


def changed(**more: Any) -> dict[str, Any]:
    return {**MANIFEST, **more}


@pytest.mark.parametrize(
    "again",
    [
        MANIFEST,
        changed(versions={"rm-gallery": "0.3"}),
        changed(created="2026-01-01"),
        changed(reward={"weights": (0.5, 0.5), "name": "helpfulness"}),
        changed(model={**MANIFEST["model"], "api_key": "sk-another-secret-key"}),
        changed(model={**MANIFEST["model"], "temperature": 0}),
    ],
    ids=["same", "version", "time", "order and tuples", "another key for the same model", "0 and 0.0"],
)
def test_what_continues_a_run(tmp_path: Path, again: dict[str, Any]) -> None:
    RunStore.open(tmp_path, MANIFEST).close()
    RunStore.open(tmp_path, again).close()


@pytest.mark.parametrize(
    ("again", "line"),
    [
        (changed(seed=1), "seed: 0 → 1"),
        (changed(model={**MANIFEST["model"], "temperature": 0.7}), "model.temperature: 0.0 → 0.7"),
        (changed(reward={"name": "helpfulness", "weights": [0.5, 0.6]}), "reward.weights[1]: 0.5 → 0.6"),
        (changed(reward={"name": "helpfulness", "weights": [0.5]}), "reward.weights: [0.5,0.5] → [0.5]"),
        (changed(n=3), "n: (absent) → 3"),
        ({key: value for key, value in MANIFEST.items() if key != "seed"}, "seed: 0 → (absent)"),
        (changed(seed=False), "seed: 0 → false"),
        (changed(seed="评" * 200), 'seed: 0 → "评评'),
    ],
)
def test_what_is_refused_and_how_it_is_shown(tmp_path: Path, again: dict[str, Any], line: str) -> None:
    RunStore.open(tmp_path, MANIFEST).close()
    with pytest.raises(ConfigError) as caught:
        RunStore.open(tmp_path, again)
    message = str(caught.value)
    assert line in message
    assert "--force-new" in message
    assert max(map(len, message.splitlines())) < 200
    RunStore.open(tmp_path, MANIFEST).close()


def test_hundreds_of_differences_are_cut_short(tmp_path: Path) -> None:
    RunStore.open(tmp_path, {}).close()
    with pytest.raises(ConfigError, match="and 80 more"):
        RunStore.open(tmp_path, {f"key{i}": i for i in range(100)})


def test_force_new_moves_the_old_run_aside(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for seed in range(3):
        with RunStore.open(folder, changed(seed=seed), force_new=True) as store:
            assert store.finished() == {}
            store.append({"id": f"s{seed}", "status": "scored"})
    assert orjson.loads((folder / "manifest.json").read_bytes())["seed"] == 2
    aside = sorted(tmp_path.glob("run.old-*"))
    assert len(aside) == 2
    assert {(path / "results.jsonl").read_text()[:10] for path in aside} == {'{"id":"s0"', '{"id":"s1"'}


def test_the_written_manifest_is_readable_and_holds_no_secret(tmp_path: Path) -> None:
    RunStore.open(tmp_path, changed(path=tmp_path, text="评分")).close()
    text = (tmp_path / "manifest.json").read_text(encoding="utf-8")
    assert "secret" not in text
    assert "评分" in text
    assert str(tmp_path) in text
    assert text.count("\n") > 5


def test_a_folder_with_other_files_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    RunStore.open(tmp_path, MANIFEST, force_new=True).close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("results.jsonl", '{"id":"a","status":"scored"}\n', "no manifest.json"),
        ("manifest.json", '{"reward": ', "not valid JSON"),
        ("manifest.json", "[]", "different run"),
    ],
)
def test_folders_nobody_can_make_sense_of_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message):
        RunStore.open(tmp_path, MANIFEST)
    assert (tmp_path / name).read_text() == content
    RunStore.open(tmp_path, MANIFEST, force_new=True).close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="file/run cannot be written"):
        RunStore.open(tmp_path / "file" / "run", MANIFEST)
