"""`rm-gallery plan`: sample sizes in one line, from figures or from a pilot."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.support.command import command


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--precision", "0.05"], "385 rows for ±0.04994"),
        (["--detect", "0.05", "--rate", "0.55"], "779 rows to find a difference of 0.05: 0.55 against 0.5, the harder side; against 0.6 it takes 754 (power 81 %)"),
        (["--precision", "0.05", "--rows-per-cluster", "5", "--icc", "0.5"], "1,153 rows for ±0.04999, in 231 clusters"),
        (["--detect", "0.03", "--discordance", "0.2"], "1,742 pairs to find a difference of 0.03 (power 80 %)"),
        (
            ["--precision", "0.03", "--judged", "4000", "--rate", "0.714", "--sensitivity", "0.97", "--specificity", "0.47"],
            "653 labels among 4,000 judged rows for ±0.02999; labels alone: 872",
        ),
    ],
)  # fmt: skip
def test_figures(arguments: list[str], line: str) -> None:
    done = command("plan", *arguments)
    assert (done.code, done.out.strip()) == (0, line)


def pilot(path: Path) -> str:
    rng = random.Random(0)
    lines = ["chat;judge;human"]
    for chat in range(40):
        tone = rng.random() < 0.7
        for _ in range(3):
            human = tone if rng.random() < 0.8 else rng.random() < 0.7
            lines.append(f"c{chat};{int(human if rng.random() < 0.9 else not human)};{'pass' if human else 'fail'}")
    path.write_text("\r\n".join([*lines, "c1;1;", "c2;;pass"]), encoding="cp1252")
    return str(path)


def test_a_pilot_gives_what_is_not_said(tmp_path: Path) -> None:
    path = pilot(tmp_path / "pilot.csv")
    found = json.loads(
        command("plan", "--precision", "0.03", "--judged", "20000", "--pilot", path, "--score", "judge", "--label", "human", "--json").out
    )  # fmt: skip
    assert found["pilot"]["n"] == 120
    assert 0.5 < found["pilot"]["correlation"] < 0.95
    assert found["n"] < found["alone"]
    done = command("plan", "--precision", "0.05", "--pilot", path, "--label", "human", "--cluster", "chat")
    assert "in " in done.out and "rows per cluster, correlated 0." in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--precision (how near) or --detect"),
        (["--precision", "0.1", "--detect", "0.1"], "one of the two"),
        (["--precision", "0.1", "--discordance", "0.2"], "name it with --detect"),
        (["--detect", "0.1", "--judged", "100"], "--judged plans labels"),
        (["--precision", "0.1", "--sensitivity", "0.9"], "--sensitivity is for a plan of labels"),
        (["--precision", "0.1", "--cluster", "chat"], "name its file with --pilot"),
        (["--precision", "0.001", "--judged", "100"], "needs 960365 rows"),
        (["--precision", "0.1", "--pilot", "none.csv", "--score", "x"], "none.csv"),
        (["--precision", "0.1", "--pilot", "none.csv"], "needs to know its columns"),
        (["--precision", "0.1", "--rate", "70"], "rate lies within 0..1"),
        (["--precision", "3"], "half_width is 3 and shares lie within 0..1"),
        (["--detect", "5"], "effect is 5 and shares lie within 0..1"),
    ],
)
def test_wrong_use(arguments: list[str], message: str) -> None:
    done = command("plan", *arguments)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
