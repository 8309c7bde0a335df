"""`rm-gallery eval` prints a table, or with `--json` one JSON object on stdout and everything else on stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.cli.rows import best_of_4
from tests.support.command import command

KEYS = (
    "reward judge endpoint benchmark version data rule n n_scored n_unscored n_failed n_stopped score ci95 chance "
    "baselines extra by_subset duplicates id_collisions skipped calls cached usage reasons stopped notes seconds"
).split()
PART_KEYS = "rule n n_scored n_unscored n_failed n_stopped score ci95 chance baselines".split()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return best_of_4(tmp_path / "data.jsonl")


def test_names_out_of_files_do_not_steer_the_terminal(tmp_path: Path) -> None:
    name = "q\x1b]0;owned\x07\x1b[2J\u202e"
    data = tmp_path / "a.csv"
    data.write_text(f'"{name}",a,b\nQ,one,two\nQ,one\n')
    choose = ["--a", "a", "--b", "b", "--reward", "length_baseline"]
    out = ["--out", str(tmp_path / name)]
    runs = [
        command("winrate", str(data), "--prompt", "nope", *choose),
        command("winrate", str(data), "--prompt", name, *choose),
        command("winrate", str(data), "--prompt", name, "--on-bad-row", "skip", *choose, *out),
        command("eval", "--data", str(data), "--reward", "length_baseline", "--on-bad-row", "skip"),
        command("report", str(tmp_path / f"no {name}")),
        command("show", name),
    ]
    assert [run.code for run in runs][:3] == [2, 2, 0]
    for run in runs:
        assert not {"\x1b", "\x07", "\u202e"} & set(run.out + run.err), (run.out, run.err)


def test_json_holds_exactly_the_documented_keys(data: Path) -> None:
    done = command("eval", "length_baseline", str(data), "--json")
    assert done.code == 0
    result = json.loads(done.out)
    assert list(result) == KEYS
    assert (result["reward"], result["data"]) == ("length_baseline", str(data))
    assert result["rule"] == "unweighted_mean_of_subsets"
    assert (result["n"], result["n_scored"], result["n_unscored"], result["n_failed"], result["calls"]) == (
        12,
        12,
        0,
        0,
        0,
    )
    assert result["score"] == 0.5
    low, high = result["ci95"]
    assert 0 < low < 0.5 < high < 1
    assert set(result["by_subset"]) == {"Math", "Focus"}
    for part in result["by_subset"].values():
        assert list(part) == PART_KEYS
        assert (part["rule"], part["n"], part["score"]) == ("best_of_n_tie_credit", 6, 0.5)
    assert 0 <= result["seconds"] < 60
    assert "12/12 done" in done.err, "progress goes to stderr"


def test_the_table_holds_the_same_figures(data: Path) -> None:
    done = command("eval", "length_baseline", str(data))
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    figures = {line[0]: line[1:] for line in lines if line and line[0] in ("Math", "Focus", "all")}
    assert {name: (line[0], line[-2:]) for name, line in figures.items()} == {
        "Focus": ("50.0", ["6", "0"]),
        "Math": ("50.0", ["6", "0"]),
        "all": ("50.0", ["12", "0"]),
    }
    shown = " ".join(done.out.split())
    assert "length_baseline benchmark: rewardbench2 (" in shown
    assert f"data: {data}" in done.out.replace("\n", "")
    assert "rule: unweighted_mean_of_subsets: mean of the subset scores" in shown
    assert "beside it: longest answer 50.0 · shortest answer 50.0 · chance 25.0 0 calls" in shown


def test_names_are_whole_in_80_columns(data: Path) -> None:
    data.write_text(data.read_text(encoding="utf-8").replace("Math", "RMB-Harmlessness"), encoding="utf-8")
    with data.open("a", encoding="utf-8") as file:
        for kind, chosen in (("ref", ["one"]), ("tied", ["one", "two"])):
            row = {"id": f"{kind}:0", "prompt": "q", "chosen": chosen, "rejected": ["b", "c"], "subset": "Ties"}
            file.write(json.dumps(row) + "\n")
    shown = command("eval", "length_baseline", str(data)).out.splitlines()
    assert "shortest chance" in shown[0], "the widest table there is"
    assert any(line.startswith("RMB-Harmlessness ") for line in shown)
    for name in ("eval", "bench", "winrate"):
        told = command(name, "--help").out
        assert "…" not in told and max(map(len, told.splitlines())) <= 80
    assert "--fail-if-worse-than" in command("bench", "--help").out


def test_s7_u3_a_table_of_80_columns_whatever_the_names(tmp_path: Path) -> None:
    names = ["[/foo]", "[bold]x", "a\x1b[2Jb", "\u4e2d\u6587" * 30, "very long " * 20, "x" * 100_000]
    rows = [
        {"id": str(k), "prompt": f"q{k}", "chosen": "a", "rejected": "bb", "subset": n} for k, n in enumerate(names)
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = command("eval", "length_baseline", str(path))
    assert done.code == 0, done.err
    assert "[/foo]" in done.out and "[bold]x" in done.out
    assert "\x1b" not in done.out
    assert max(cell_len(line) for line in done.out.splitlines()) <= 80
    assert len(done.out) < 5_000, "a name beyond measure is cut"


def test_what_cannot_be_scored_is_counted_and_explained(data: Path) -> None:
    done = command("eval", "accuracy", str(data), "--json")
    result = json.loads(done.out)
    assert (done.code, result["score"], result["ci95"], result["n_unscored"]) == (1, None, None, 12)
    assert "12 samples unscored: no_reference: accuracy needs a reference" in done.err
    assert "name the column with --reference" in done.err
    assert "no sample could be scored, so there is no score" in done.err


def test_a_file_without_subsets_has_no_parts(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    row = {"chosen": "\n\nHuman: q\n\nAssistant: longer", "rejected": "\n\nHuman: q\n\nAssistant: no"}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert json.loads(command("eval", "length_baseline", str(path), "--json").out)["by_subset"] == {}
    table = command("eval", "length_baseline", str(path)).out
    assert [line.split()[0] for line in table.splitlines()].count("all") == 1
