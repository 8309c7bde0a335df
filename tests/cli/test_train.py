"""`rm-gallery train bt` writes a model that `bt:DIR` then names everywhere, and says how good it is
beside length.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rm_gallery.gallery.rm.trained.bradley_terry import load_model
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


@pytest.mark.long("several commands")
def test_a_model_is_written_that_is_a_reward_and_said_beside_both_length_baselines(
    trained: tuple[Path, Done],
) -> None:
    out, done = trained
    held_out: dict[str, Any] = json.loads(done.out)["held_out"]
    assert set(held_out) == {"model", "longest", "shortest"}
    for figure in held_out.values():
        low, high = figure["ci95"]
        assert 0 <= low <= figure["accuracy"] <= high <= 1 and figure["n"] > 0
    assert {path.suffix for path in out.iterdir()} == {".json", ".npz"}, "data without pickle"
    result = json.loads(command("eval", f"bt:{out}", str(DATA / "test.parquet"), "--json").out)
    assert (result["n_scored"], result["n_unscored"], result["n_failed"]) == (result["n"], 0, 0)
    assert "kind: pointwise" in command("show", f"bt:{out}").out


def test_seed_and_share_arrive_and_the_table_says_how_to_use_it(
    data: Path, trained: tuple[Path, Done], tmp_path: Path
) -> None:
    other = command(
        "train",
        "bt",
        str(data),
        "--out",
        str(tmp_path / "model"),
        "--seed",
        "1",
        "--test-share",
        "0.5",
    )
    assert other.code == 0 and f"use it as bt:{tmp_path / 'model'}" in other.out
    lines = [line.split() for line in other.out.splitlines()[:3]]
    assert [line[0] for line in lines] == ["model", "longest", "shortest"]
    assert (
        int(lines[0][-1].removeprefix("n="))
        > 2 * json.loads(trained[1].out)["held_out"]["model"]["n"]
    )
    assert load_model(tmp_path / "model").metadata["seed"] == 1
