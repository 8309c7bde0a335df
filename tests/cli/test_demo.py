"""`rm-gallery demo` runs without a key and prints one table; with an endpoint the judge is in it as well."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.benchmarks import load_samples, oracle_of
from tests.support.children import ROOT, run_command
from tests.support.command import command
from tests.support.judge_server import JudgeServer

REWARDS = ["embedded Bradley–Terry", "length_baseline", "length_baseline (shortest)", "length_penalty"]
SUBSETS = ["Factuality", "Focus", "Math", "Precise IF", "Safety", "Ties"]


def figures(table: str, label: str) -> list[str]:
    """What stands in a line of the table: one figure a reward."""
    line = next(line for line in table.splitlines() if line.startswith(label))
    return re.findall(r"-?\d+(?:\.\d+)?", line.removeprefix(label))


def test_u2_without_a_model_named_nothing_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in the environment is no order to spend money."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    work = tmp_path / "work"
    work.mkdir()
    finished = run_command("demo", cwd=work)
    assert finished.returncode == 0, finished.stderr
    for label in ("score %", *SUBSETS, "unscored", "failed"):
        assert len(figures(finished.stdout, label)) == len(REWARDS), label
    assert figures(finished.stdout, "unscored") == figures(finished.stdout, "failed") == ["0"] * 4
    assert "benchmark: rewardbench2" in finished.stdout
    assert "no judge" in " ".join(finished.stdout.split())
    assert max(map(len, finished.stdout.splitlines())) <= 80
    assert list(work.iterdir()) == [], "the trained model is not left behind"


def test_with_a_model_named_the_judge_is_added() -> None:
    samples = load_samples(ROOT / "data" / "test.parquet", "rewardbench2")
    with JudgeServer("perfect", oracle=oracle_of(samples)) as server:
        done = command("demo", "--llm", "judge-1", "--base-url", server.base_url)
        url = server.base_url
    assert done.code == 0, done.err
    perfect = {label: figures(done.out, label)[-1] for label in (*SUBSETS, "unscored", "failed")}
    assert {perfect.pop("Ties") != "100.0", *perfect.values()} == {True, "100.0", "0"}, "perfect everywhere but in Ties"
    assert f"judge judge-1 at {url}" in " ".join(done.out.split())


def test_a_base_url_alone_names_no_model() -> None:
    assert "needs a model" in command("demo", "--base-url", "http://127.0.0.1:1/v1").err
