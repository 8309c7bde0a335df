"""`rm-gallery demo` runs without a key and prints one table; with an endpoint the judge is in it as
well.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.benchmarks import load_samples, oracle_of
from tests.support.children import ROOT
from tests.support.command import command
from tests.support.judge_server import JudgeServer

SUBSETS = ["Factuality", "Focus", "Math", "Precise IF", "Safety", "Ties"]


def figures(table: str, label: str) -> list[str]:
    """What stands in a line of the table: one figure a reward."""
    line = next(line for line in table.splitlines() if line.startswith(label))
    return re.findall(r"-?\d+(?:\.\d+)?", line.removeprefix(label))


@pytest.mark.smoke("the first command")
def test_without_a_model_named_nothing_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in the environment is no order to spend money."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("COLUMNS", "80")
    (work := tmp_path / "work").mkdir()
    monkeypatch.chdir(work)
    done = command("demo")
    assert done.code == 0, done.err
    for label in ("score %", *SUBSETS):
        assert len(figures(done.out, label)) == 4, label
    assert figures(done.out, "unscored") == figures(done.out, "failed") == ["0"] * 4
    assert "benchmark: rewardbench2" in done.out and "no judge" in " ".join(done.out.split())
    assert max(map(len, done.out.splitlines())) <= 80
    assert list(work.iterdir()) == [], "the trained model is not left behind"


@pytest.mark.long("several commands")
def test_with_a_model_named_the_judge_is_added() -> None:
    samples = load_samples(ROOT / "data" / "test.parquet", "rewardbench2")
    with JudgeServer("perfect", oracle=oracle_of(samples)) as server:
        done = command("demo", "--llm", "judge-1", "--base-url", server.base_url)
        url = server.base_url
    assert done.code == 0, done.err
    perfect = {label: figures(done.out, label)[-1] for label in (*SUBSETS, "unscored", "failed")}
    assert {perfect.pop("Ties") != "100.0", *perfect.values()} == {True, "100.0", "0"}, (
        "perfect everywhere but in Ties"
    )
    assert f"judge judge-1 at {url}" in " ".join(done.out.split())
