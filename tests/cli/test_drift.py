"""`rm-gallery drift`: files and runs of two judge versions, exit codes, and what is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.report.drifting import read_anchors
from tests.support.command import command


def table(path: Path, scores: list[Any], **columns: list[Any]) -> str:
    rows = [
        {
            "id": f"a{i}",
            "prompt": f"question {i}",
            "score": score,
            **{name: values[i] for name, values in columns.items()},
        }
        for i, score in enumerate(scores)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def verdicts(seed: int, n: int = 120, noise: float = 0.03, moved: int = 0) -> list[int]:
    rng = random.Random(seed)
    clear = [i % 3 != 0 for i in range(n)]
    for i in range(moved):
        clear[i * 2] = False
    return [int(value != (rng.random() < noise)) for value in clear]


def test_chance_is_no_finding_and_a_change_is_one(tmp_path: Path) -> None:
    old, again = table(tmp_path / "old.jsonl", verdicts(1)), table(tmp_path / "again.jsonl", verdicts(2))
    same, other = table(tmp_path / "same.jsonl", verdicts(3)), table(tmp_path / "other.jsonl", verdicts(4, moved=30))
    quiet = command("drift", old, same, "--old-again", again)
    assert (quiet.code, quiet.out.splitlines()[0]) == (0, "no drift found")
    assert "repeats of one version differ on" in quiet.out
    loud = command("drift", old, other, "--old-again", again)
    assert loud.code == 1
    assert loud.out.startswith("drift: ")
    assert "the mean score went from" in loud.out


def test_labels_and_json(tmp_path: Path) -> None:
    gold = [int(i % 3 != 0) for i in range(120)]
    old = table(tmp_path / "old.jsonl", verdicts(1), human=gold)
    new = table(tmp_path / "new.jsonl", ["pass" if v else "fail" for v in verdicts(4, moved=30)])
    found = json.loads(command("drift", old, new, "--labels", "human", "--json").out)
    assert found["agreement"]["old"] > 0.9 > found["agreement"]["new"]
    assert any("agreement with the labels" in finding for finding in found["findings"])
    assert found["noise"] is None
    labels = tmp_path / "labels.csv"
    labels.write_text("id;human\n" + "".join(f"a{i};{g}\n" for i, g in enumerate(gold[:60])), encoding="utf-8")
    joined = json.loads(command("drift", old, new, "--labels", str(labels), "--json").out)
    assert joined["agreement"]["n"] == 60


def test_missing_scores_are_counted(tmp_path: Path) -> None:
    old, new = verdicts(1), [None, *verdicts(1)[1:]]
    done = command("drift", table(tmp_path / "old.jsonl", old), table(tmp_path / "new.jsonl", new))
    assert done.code == 0
    assert "119 anchors scored by both, 1 by one or neither" in done.out


def run(folder: Path, credits: list[float], scores: list[tuple[float, float]], answer: str = "yes") -> str:
    folder.mkdir()
    with (folder / "samples.jsonl").open("w", encoding="utf-8") as file:
        for i, (credit, pair) in enumerate(zip(credits, scores, strict=True)):
            record = {"id": f"s{i}", "prompt": f"q{i}", "answers": [answer, "no"], "scores": pair, "credit": credit}
            file.write(json.dumps(record) + "\n")
    return str(folder)


def test_runs(tmp_path: Path) -> None:
    scores = [(0.9, 0.1 + (i % 5) / 10) for i in range(40)]
    old = run(tmp_path / "old", [1.0] * 40, scores)
    new = run(tmp_path / "new", [1.0] * 20 + [0.0] * 20, [*scores[:20], *((b, a) for a, b in scores[20:])])
    done = command("drift", old, new)
    assert done.code == 1
    assert "agreement with labels 100.0% to 50.0%" in done.out
    assert "80 anchors scored by both" in done.out
    assert command("drift", old, old).code == 0
    assert read_anchors(old).clusters["s3/1"] == "s3"


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"prompt": ["other"] * 120}, [], "120 anchors have other texts"),
        ({"human": [1] * 120}, ["--labels", "human"], "anchors have another label"),
        ({"score": ["maybe"] * 120}, [], "expected a number or a verdict such as pass or fail, found text 'maybe'"),
        ({"id": ["a1"] * 120}, [], "anchor 'a1' has several rows"),
        ({"id": [f"b{i}" for i in range(120)]}, [], "no anchor in common"),
        ({}, ["--score", "points"], "points"),
        ({}, ["--cluster", "session"], "--cluster is 'session': neither"),
        ({}, ["--bounds", "1", "5"], "a score is 0, outside the bounds 1..5"),
        ({}, ["--confidence", "95"], "between 0 and 1"),
    ],
)
def test_wrong_use_is_no_finding(tmp_path: Path, change: dict[str, Any], arguments: list[str], message: str) -> None:
    old = table(tmp_path / "old.jsonl", verdicts(1), human=[0] * 120)
    new = table(tmp_path / "new.jsonl", verdicts(1), **change)
    done = command("drift", old, new, *arguments)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_missing_file_and_a_folder_that_is_no_run(tmp_path: Path) -> None:
    old = table(tmp_path / "old.jsonl", verdicts(1))
    assert command("drift", old, str(tmp_path / "none.jsonl")).code == 2
    done = command("drift", old, str(tmp_path))
    assert (done.code, "is a folder without samples.jsonl" in done.err) == (2, True)
