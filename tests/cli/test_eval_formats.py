"""The benchmark format is found from the columns, in every kind of file, or said with `--format`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rm_gallery.core.data.export import to_jsonl, to_parquet
from rm_gallery.core.data.schema import BaseDataSet
from tests.cli.rows import ONE_ROW
from tests.data.loading import write
from tests.support.command import command
from tests.support.samples import make_sample

RULES = {
    "rewardbench2": "unweighted_mean_of_subsets",
    "rewardbench": "rewardbench1_sections",
    "rmbbenchmark_pairwise": "pair_strict",
    "hh_rlhf": "pair_strict",
}


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "jsonl.gz"])
@pytest.mark.parametrize("name", RULES)
def test_found_from_the_columns(tmp_path: Path, name: str, suffix: str) -> None:
    path = write(tmp_path / f"data.{suffix}", [ONE_ROW[name]])
    done = command("eval", "length_baseline", str(path), "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert (result["rule"], result["n_scored"], result["score"]) == (RULES[name], 1, 1.0)


def test_found_in_csv_and_in_a_folder(tmp_path: Path) -> None:
    for place in ("one.csv", "deep/two.csv"):
        write(tmp_path / place, [ONE_ROW["rewardbench"] | {"id": place}])
    assert json.loads(command("eval", "length_baseline", str(tmp_path), "--json").out)["n_scored"] == 2


@pytest.mark.parametrize("writer", [to_jsonl, to_parquet])
def test_samples_of_ones_own(tmp_path: Path, writer: object) -> None:
    assert callable(writer)
    dataset = BaseDataSet(name="own", datasamples=[make_sample("longest", "b", chosen=0)])
    path = writer(dataset, tmp_path / ("own.jsonl" if writer is to_jsonl else "own.parquet"))
    result = json.loads(command("eval", "length_baseline", str(path), "--json").out)
    assert (result["rule"], result["score"]) == ("pair_strict", 1.0)


def test_a_given_format_goes_before_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", [ONE_ROW["rewardbench2"]])
    result = json.loads(command("eval", "length_baseline", str(path), "--json", "--format", "*").out)
    assert (result["rule"], result["score"]) == ("best_of_n_tie_credit", 1.0)


REFUSED = [
    ({"prompt": "q", "response": "a"}, [], "no benchmark format fits the columns ['prompt', 'response']"),
    ({"prompt": "q", "response": "a"}, [], "`rm-gallery score` scores them"),
    ({"question": "q", "new": "a", "old": "b"}, [], "columns of answers are compared by `rm-gallery winrate`"),
    (ONE_ROW["chat_message"], [], "no benchmark format fits the columns ['messages']"),
    (
        ONE_ROW["rewardbench2"],
        ["--format", "rewardbench3"],
        "There is no benchmark 'rewardbench3'. Did you mean rewardbench",
    ),
    (ONE_ROW["rewardbench2"], ["--format", "hh_rlhf"], "has the columns of rewardbench2, and hh_rlhf has another rule"),
]


@pytest.mark.parametrize(("row", "options", "message"), REFUSED)
def test_what_does_not_fit_is_named(tmp_path: Path, row: dict[str, object], options: list[str], message: str) -> None:
    path = write(tmp_path / "data.parquet", [row])
    done = command("eval", "length_baseline", str(path), *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
