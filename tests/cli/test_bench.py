"""`rm-gallery bench`: a benchmark by name, from files or from the hub, and what it says when something is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery.gallery.benchmarks.base import benchmarks
from tests.benchmarks.excerpts import EXCERPTS, LONG, SHORT
from tests.benchmarks.test_votes import OWN, ppe_correctness
from tests.support.command import command


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in EXCERPTS["judgebench"]), encoding="utf-8")
    return path


def test_bench_and_eval_are_one_path(data: Path) -> None:
    by_name = command("bench", "JudgeBench", "--reward", "length_baseline", "--data", str(data), "--json")
    by_file = command("eval", "length_baseline", str(data), "--json")
    assert (by_name.code, by_file.code) == (0, 0), by_name.err
    found, expected = (json.loads(done.out) for done in (by_name, by_file))
    assert {**found, "seconds": 0} == {**expected, "seconds": 0}


def test_list_names_every_benchmark_and_its_modes() -> None:
    done = command("bench", "--list", "--json")
    listed = {entry["name"]: entry for entry in json.loads(done.out)}
    assert listed.keys() == benchmarks().keys()
    assert listed["rewardbench2"]["modes"].keys() == {"ranking", "ratings"}
    plain = command("bench", "--list")
    assert plain.code == 0
    assert [line.split()[0] for line in plain.out.splitlines() if not line.startswith(" ")] == sorted(benchmarks())


WRONG = [
    ([], "bench needs the NAME of a benchmark"),
    (["judgebenhc", "-r", "length_baseline"], "There is no benchmark 'judgebenhc'. Did you mean judgebench"),
    (["judgebench", "--data", "x.jsonl"], "bench needs a reward: --reward NAME"),
    (["judgebench", "-r", "length_baseline"], "judgebench needs its data: give --data PATH or --hub for ScalerLab/"),
    (["rmb", "-r", "length_baseline"], "rmbbenchmark_pairwise needs its data: give --data PATH."),
    (["rmb", "-r", "length_baseline", "--hub"], "is on no hub; give its files with --data PATH"),
    (["judgebench", "-r", "length_baseline", "--data", "x", "--hub"], "--data and --hub both say where the rows are"),
    (["judgebench", "-r", "length_baseline", "--data", "x", "--split", "gpt"], "give it with --hub"),
    (["judgebench", "-r", "length_baseline", "--data", "x", "--mode", "both"], "There is no mode of judgebench 'both'"),
    (["rm_bench", "-r", "length_baseline", "--data", "x", "--mode", "a"], "rm_bench has no modes"),
    (["judgebench", "-r", "length_baseline", "--data", "no.jsonl"], "no.jsonl: no such file or folder"),
    (["judgebench", "--scores", "x.jsonl", "--repeats", "2"], "--repeats asks a judge again"),
    (["judgebench", "-r", "length_baselin", "--data", "x"], "Did you mean length_baseline"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[" ".join(arguments) or "-" for arguments, _ in WRONG])
def test_wrong_use_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    done = command("bench", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err and done.err.count("\n") == 1


def test_a_file_of_another_benchmark_is_refused(data: Path) -> None:
    done = command("bench", "rewardbench2", "-r", "length_baseline", "--data", str(data))
    assert done.code == 2
    assert "has the columns of judgebench, and rewardbench2 has another rule; score it as judgebench" in done.err


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Any]]:
    seen: list[tuple[str, Any, Any]] = []

    def load_dataset(path: str, config: Any, **options: Any) -> Any:
        seen.append((path, config, options["split"]))
        if "gone" in options["split"]:
            raise ConnectionError("no route to host")
        if path == "ScalerLab/JudgeBench":
            return EXCERPTS["judgebench"]
        domain = "math" if "MATH" in path else "gpqa"
        return [ppe_correctness("a", [LONG, SHORT], [True, False], [[0, 1]], **OWN[domain])]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return seen


def test_hub_takes_the_published_split_or_another(asked: list[Any]) -> None:
    for split, more in (("gpt", []), ("claude", ["--split", "claude"])):
        done = command("bench", "judgebench", "-r", "length_baseline", "--hub", *more, "--json")
        assert (done.code, json.loads(done.out)["score"]) == (0, 0.5), done.err
        assert asked[-1] == ("ScalerLab/JudgeBench", None, split)


def test_hub_reads_all_data_sets_of_a_benchmark(asked: list[Any]) -> None:
    done = command("bench", "ppe", "-r", "length_baseline", "--hub", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert (result["n"], result["score"], len({path for path, _, _ in asked})) == (5, 1.0, 5)
    assert list(result["by_subset"]) == ["gpqa", "math"]


def test_without_a_network_it_says_what_to_do(asked: list[Any]) -> None:
    done = command("bench", "judgebench", "-r", "length_baseline", "--hub", "--split", "gone")
    assert (done.code, done.out) == (2, "")
    assert "'ScalerLab/JudgeBench' cannot be loaded: ConnectionError: no route to host. Without a network" in done.err
    assert "Traceback" not in done.err


def test_an_estimate_counts_every_repeat(data: Path) -> None:
    asked = ("bench", "judgebench", "-r", "length_baseline", "--data", str(data), "--estimate", "--json")
    once, thrice = (json.loads(command(*asked, "--repeats", k).out)["samples"] for k in ("1", "3"))
    assert thrice - once == 2 * len(EXCERPTS["judgebench"])
