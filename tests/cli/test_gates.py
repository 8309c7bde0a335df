"""A judge that refuses what it would have called wrong passes no gate: 83.3 %, somewhere between 50
and 90.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import BasePointWiseReward, DataSample, ParseError, RewardRegistry, RewardResult
from tests.reward.rewards import scored
from tests.support.command import Done, command

NAME = "refuses_what_loses"
SAID = "missing scores go with "


class RefusesWhatLoses(BasePointWiseReward):
    """Says nothing readable of an answer with a mark in it."""

    name: str = NAME
    score_range = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if "ZZHOLE" in text:
            raise ParseError("I cannot help with that")
        return scored(self.name, float("GOOD" in text))


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    known = dict(RewardRegistry._classes)
    RewardRegistry.register(NAME, RefusesWhatLoses)
    yield
    RewardRegistry._classes.clear()
    RewardRegistry._classes.update(known)


def losing(hole: bool) -> list[dict[str, str]]:
    rows = []
    for k in range(200):
        new = (
            "GOOD answer"
            if k % 2 == 0
            else "POOR answer ZZHOLE"
            if hole and k % 5
            else "POOR answer"
        )
        rows.append(
            {"prompt": f"Question {k}", "new": new, "old": "POOR one" if k % 2 == 0 else "GOOD one"}
        )
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gates")
    for name, hole in (("hole", True), ("honest", False)):
        table = [{"id": str(k), **row} for k, row in enumerate(losing(hole))]
        pairs = [
            {"id": r["id"], "prompt": r["prompt"], "chosen": r["new"], "rejected": r["old"]}
            for r in table
        ]
        graded = [{"query": row["prompt"], "response": row["new"]} for row in table]
        for kind, rows in (("table", table), ("pairs", pairs), ("graded", graded)):
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{name}-{kind}.jsonl").write_text(lines, encoding="utf-8")
        done = command(
            "eval", NAME, str(folder / f"{name}-pairs.jsonl"), "--out", str(folder / f"{name}-run")
        )
        assert done.code == 0, "no gate is set"
    (folder / "graders.yaml").write_text(f"graders: {{{NAME}: {{}}}}\n", encoding="utf-8")
    return folder


COMMANDS = {
    "eval": ("eval", NAME, "{d}/{k}-pairs.jsonl"),
    "bench": ("bench", NAME, "preferences", "--data", "{d}/{k}-pairs.jsonl"),
    "winrate": (
        "winrate",
        NAME,
        "{d}/{k}-table.jsonl",
        "--prompt",
        "prompt",
        "--a",
        "new",
        "--b",
        "old",
    ),
    "score": ("score", NAME, "{d}/{k}-table.jsonl", "--prompt", "prompt", "--answer", "new"),
    "grade": ("grade", "{d}/graders.yaml", "{d}/{k}-graded.jsonl"),
    "report": ("report", "{d}/{k}-run", "--format", "json"),
    "junit": ("report", "{d}/{k}-run", "--format", "junit"),
    "compare": ("compare", "{d}/{k}-run", "{d}/{k}-run"),
}


def asked(name: str, data: Path, kind: str, *more: str) -> Done:
    return command(*(word.format(d=data, k=kind) for word in COMMANDS[name]), *more)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_missing_counts_as_wrong_at_every_door(name: str, data: Path) -> None:
    allowed = ("--max-unscored", "80")
    for more in ((), allowed):
        done = asked(name, data, "hole", "--fail-under", "0.8", *more)
        assert done.code == 1
        unit = (
            ("0.8333", "0.5", "0.9", "0.8")
            if name in ("score", "grade")
            else ("83.3 %", "50.0 %", "90.0 %", "80.0 %")
        )
        said = (
            "the score {} is {} at worst, below {}; 80 of 200 are missing (80 by the judge), so it "
            "lies from {} to {}"
        )
        assert said.format(unit[0], unit[1], unit[3], unit[1], unit[2]) in done.err
        assert ("80 samples are unscored; 0 may be" in done.err) == (not more)
    assert asked(name, data, "hole", "--fail-under", "0.5", *allowed).code == 0
    assert asked(name, data, "hole", "--max-unscored", "79").code == 1
    assert asked(name, data, "honest", "--fail-under", "0.5").code == 0


@pytest.mark.parametrize("name", ["eval", "bench", "winrate", "score", "grade"])
def test_the_figure_says_where_it_lies_and_what_goes_missing(name: str, data: Path) -> None:
    found = json.loads(asked(name, data, "hole", "--json").out)
    assert (round(found["score"], 3), found["missing"]) == (0.833, {"judge": 80})
    assert found["bounds"] == pytest.approx([0.5, 0.9])
    assert any(one["with"].startswith("the length of ") for one in found["suspicion"]["found"])
    assert found["suspicion"]["said"][0].startswith(SAID)
    honest = json.loads(asked(name, data, "honest", "--json").out)
    assert (honest["missing"], honest["suspicion"]) == ({}, {}) and honest["bounds"] == [
        honest["score"]
    ] * 2


@pytest.mark.parametrize("form", ["md", "html"])
def test_a_report_says_that_it_settles_nothing(form: str, data: Path, tmp_path: Path) -> None:
    asked("winrate", data, "hole", "--out", str(tmp_path / "run"))
    command("report", str(tmp_path / "run"), "--format", form, "--out", str(tmp_path / "page"))
    page = (tmp_path / "page").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert "above 50 %, but what is missing could undo that" in page
    assert "80 of 200 rows are missing (80 by the judge), so that the figure lies from" in page
    assert "50.0 to 90.0 %" in page and SAID[1:] in page


def test_nothing_is_better_that_missing_rows_could_make_worse(data: Path, tmp_path: Path) -> None:
    before = [
        json.loads(line)
        for line in (data / "hole-pairs.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    for row in before:  # the run before read every answer, and got 70 % right
        row["chosen"], row["rejected"] = (
            ("GOOD", "POOR") if int(row["id"]) % 10 < 7 else ("POOR", "GOOD")
        )
    runs = {"before": before, "after": [{**row, "chosen": row["chosen"]} for row in before]}
    for row in runs["after"]:  # now it is right wherever it is read, and refuses the rest and more
        row["chosen"], row["rejected"] = (
            ("GOOD", "POOR") if int(row["id"]) % 10 < 6 else ("POOR ZZHOLE", "GOOD")
        )
    for name, rows in runs.items():
        folder = tmp_path / name
        command("eval", NAME, str(_written(tmp_path / f"{name}.jsonl", rows)), "--out", str(folder))
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        (folder / "manifest.json").write_text(
            json.dumps({**manifest, "data": "the same"}), encoding="utf-8"
        )
        lines = [
            json.loads(line)
            for line in (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        alike = [{**line, "answers": ["one", "other"]} for line in lines]  # the same rows to both
        _written(folder / "samples.jsonl", alike)
    both = str(tmp_path / "before"), str(tmp_path / "after")
    done = command("compare", *both)
    assert (
        done.code == 0
        and "is better" not in done.out
        and "missing: 80 of the second (80 by the judge)" in done.out
    )
    (found,) = json.loads(command("compare", *both, "--json").out)
    assert found["whole"]["bounds"] == pytest.approx([-0.1, 0.3]) and found["suspicion"]["found"]
    done = command("compare", *both, "--fail-if-worse", "--max-unscored", "80")
    assert done.code == 1 and "worse than before by 10.0 points at worst" in done.err
    done = command("compare", both[1], both[0], "--fail-if-worse")
    assert (
        done.code == 2
        and (
            "after cannot be compared with: it has no score for 80 of its 200 rows (80 by the "
            "judge)"
        )
        in done.err
    )
    assert (
        "Run the command that made it once more" in done.err
        and "result.max_unscored=80" in done.err
    )
    assert command("compare", both[1], both[0], "--fail-if-worse", "--max-unscored", "80").code in (
        0,
        1,
    ), "allowed, it is held to"
    done = command(
        "eval",
        NAME,
        f"{both[1]}.jsonl",
        "--fail-if-worse-than",
        both[1],
        "--out",
        str(tmp_path / "next"),
    )
    assert (
        done.code == 2 and "80 of its 200 rows" in done.err and not (tmp_path / "next").exists()
    ), "before anything is paid"


def _written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
