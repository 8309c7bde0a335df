"""`rm-gallery bench`: a benchmark by name, from files or from the hub."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery.gallery.benchmarks.base import benchmarks
from tests.benchmarks.excerpts import EXCERPTS, rows_of
from tests.support.command import command


def test_bench_and_eval_are_one_path(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(
        "".join(json.dumps(row) + "\n" for row in EXCERPTS["judgebench"]), encoding="utf-8"
    )
    by_name = command("bench", "length_baseline", "JudgeBench", "--data", str(data), "--json")
    by_file = command("eval", "length_baseline", str(data), "--json")
    found, expected = (json.loads(done.out) for done in (by_name, by_file))
    assert {**found, "seconds": 0} == {**expected, "seconds": 0}
    estimate = (
        "bench",
        "length_baseline",
        "judgebench",
        "--data",
        str(data),
        "--estimate",
        "--json",
    )
    once, thrice = (json.loads(command(*estimate, "--repeats", k).out)["samples"] for k in "13")
    assert thrice - once == 2 * len(EXCERPTS["judgebench"])


def test_list_names_every_benchmark_and_its_modes() -> None:
    listed = {
        entry["name"]: entry for entry in json.loads(command("bench", "--list", "--json").out)
    }
    assert listed.keys() == benchmarks().keys() and listed["rewardbench2"]["modes"].keys() == {
        "ranking",
        "ratings",
    }
    plain = command("bench", "--list").out.splitlines()
    assert [line.split()[0] for line in plain if not line.startswith(" ")] == sorted(benchmarks())
    assert any(
        line.startswith("rewardbench2 ") and "modes: ranking, ratings" in line for line in plain
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Any]]:
    """What the hub is asked for; it has JudgeBench and PPE, and is out of reach for splits that are
    gone.
    """
    seen: list[tuple[str, Any, Any]] = []

    def load_dataset(path: str, config: Any, **options: Any) -> Any:
        seen.append((path, config, options["split"]))
        if "gone" in options["split"]:
            raise ConnectionError("no route to host")
        if path == "ScalerLab/JudgeBench":
            return EXCERPTS["judgebench"]
        return rows_of("ppe_correctness")[:1]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return seen


def test_the_hub_is_asked_for_the_published_split_another_one_or_every_part(
    asked: list[Any],
) -> None:
    for split, more in (("gpt", []), ("claude", ["--split", "claude"])):
        done = command("bench", "length_baseline", "judgebench", "--hub", *more, "--json")
        assert (done.code, json.loads(done.out)["score"]) == (0, 0.5), done.err
        assert asked[-1] == ("ScalerLab/JudgeBench", None, split)
    asked.clear()
    whole = json.loads(command("bench", "length_baseline", "ppe", "--hub", "--json").out)
    assert (whole["n"], len({path for path, _, _ in asked})) == (5, 5)


def test_without_a_network_it_says_what_to_do(asked: list[Any]) -> None:
    done = command("bench", "length_baseline", "judgebench", "--hub", "--split", "gone")
    assert (done.code, done.out) == (2, "")
    assert (
        "'ScalerLab/JudgeBench' cannot be loaded: ConnectionError: no route to host. Without a "
        "network" in done.err
    )
