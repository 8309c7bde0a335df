"""`rm-gallery train bt` writes a model that `bt:DIR` then names everywhere, and says how good it is beside length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.support.children import ROOT
from tests.support.command import Done, command

DATA = ROOT / "data"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quarter of the built-in training rows: how good the model gets is not looked at here."""
    table = pq.read_table(DATA / "train.parquet")
    path = tmp_path_factory.mktemp("data") / "train.parquet"
    pq.write_table(table.take(list(range(0, table.num_rows, 4))), path)
    return path


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    out = tmp_path_factory.mktemp("train") / "deep" / "model"
    return out, command("train", "bt", str(data), "--out", str(out), "--json")


def test_it_says_how_good_the_model_is_beside_both_length_baselines(trained: tuple[Path, Done]) -> None:
    held_out: dict[str, Any] = json.loads(trained[1].out)["held_out"]
    assert set(held_out) == {"model", "longest", "shortest"}
    for figure in held_out.values():
        low, high = figure["ci95"]
        assert 0 <= low <= figure["accuracy"] <= high <= 1 and figure["n"] > 0


def test_the_model_is_data_without_pickle_and_a_reward(trained: tuple[Path, Done]) -> None:
    out, _ = trained
    assert {path.suffix for path in out.iterdir()} == {".json", ".npz"}
    result = json.loads(command("eval", f"bt:{out}", str(DATA / "test.parquet"), "--json").out)
    assert (result["n_scored"], result["n_unscored"], result["n_failed"]) == (result["n"], 0, 0)
    assert "kind: pointwise" in command("show", f"bt:{out}").out


def test_the_seed_and_nothing_else_decides_the_model(data: Path, trained: tuple[Path, Done], tmp_path: Path) -> None:
    out, first = trained
    again = command("train", "bt", str(data), "--out", str(tmp_path / "again"), "--json")
    assert json.loads(again.out)["held_out"] == json.loads(first.out)["held_out"]
    arrays = [
        {name: values.tolist() for name, values in np.load(folder / "weights.npz").items()}
        for folder in (out, tmp_path / "again")
    ]
    assert arrays[0] == arrays[1]
    other = command("train", "bt", str(data), "--out", str(tmp_path / "model"), "--seed", "1", "--test-share", "0.5")
    assert other.code == 0 and f"use it as bt:{tmp_path / 'model'}" in other.out
    lines = [line.split() for line in other.out.splitlines()[:3]]
    assert [line[0] for line in lines] == ["model", "longest", "shortest"]
    assert int(lines[0][-1].removeprefix("n=")) > 2 * json.loads(first.out)["held_out"]["model"]["n"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [{"role": "user", "content": "q"}]}, "chosen"),
        ({"prompt": "q", "response": "a"}, "no benchmark format fits"),
    ],
)
def test_data_without_preferences_is_wrong_input(tmp_path: Path, row: Any, message: str) -> None:
    (tmp_path / "data.jsonl").write_text(json.dumps(row))
    done = command("train", "bt", str(tmp_path / "data.jsonl"), "--out", str(tmp_path / "model"))
    assert (done.code, done.out) == (2, "") and message in done.err
    assert not (tmp_path / "model").exists()
