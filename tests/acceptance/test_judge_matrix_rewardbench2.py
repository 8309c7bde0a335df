"""Judges of known quality get the figure they deserve, the same one through every door, and none where nothing was judged."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.stats.chance import chance_interval_of_means
from rm_gallery.report.evaluate import report_on
from tests.support.benchmarks import load_samples, oracle_of
from tests.support.children import run_command
from tests.support.command import Done, command
from tests.support.judge_server import JudgeServer
from tests.support.samples import scores
from tests.support.shared_data import shared_file

REWARD, SOURCE = "safety_listwise_reward", "rewardbench2"
FIGURES = ("score", "ci95", "n", "n_scored", "n_unscored", "n_failed", "by_subset")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The benchmark without its Ties rows: one right answer among four, which a listwise judge can name."""
    table = pq.read_table(shared_file("rewardbench2_style.parquet"))
    file = tmp_path_factory.mktemp("matrix") / "best_of_4.parquet"
    pq.write_table(table.filter(pc.not_equal(table["subset"], "Ties")), file)
    return file


@pytest.fixture(scope="module")
def samples(path: Path) -> list[DataSample]:
    found = load_samples(path, SOURCE)
    assert len(found) == 1160
    return found


@pytest.fixture(scope="module")
def server(samples: list[DataSample]) -> Iterator[JudgeServer]:
    with JudgeServer("perfect", oracle=oracle_of(samples)) as running:
        yield running


@pytest.fixture(scope="module")
def chance(samples: list[DataSample]) -> tuple[float, float]:
    """Where the figure of a judge that guesses lies 95 times in 100."""
    strata: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        strata[(sample.metadata or {})["subset"]].append(1 / len(sample.output))
    low, high = chance_interval_of_means(strata.values())
    return low, high


def evaluated(path: Path, server: JudgeServer, *, child: Path | None = None) -> Done:
    """`rm-gallery eval`, in a child process where a folder is given for it."""
    arguments = ["eval", REWARD, str(path), "--llm", "judge-1", "--base-url", server.base_url, "--json", "--no-cache"]
    if child is None:
        return command(*arguments, "--max-workers", "64")
    finished = run_command(*arguments, "--max-workers", "64", cwd=child)
    return Done(finished.returncode, finished.stdout, finished.stderr)


MATRIX = [("perfect", True), ("worst", False), ("first", False), ("last", False), ("garbage", True)]


@pytest.mark.parametrize(("behaviour", "in_child"), MATRIX)
def test_the_same_figure_through_every_door(
    behaviour: str,
    in_child: bool,
    server: JudgeServer,
    samples: list[DataSample],
    path: Path,
    chance: tuple[float, float],
    tmp_path: Path,
) -> None:
    server.set(behaviour=behaviour)
    reward = RewardRegistry.create(REWARD, llm=OpenaiLLM("judge-1", base_url=server.base_url, cache=False))
    scored = reward.evaluate_batch(samples, max_workers=64)
    report = report_on(reward, scored, SOURCE).to_dict()

    expected = {"perfect": (1.0, 1.0), "worst": (0.0, 0.0), "first": chance, "last": chance}
    if behaviour == "garbage":
        assert (report["score"], report["n_scored"], report["n_unscored"], report["n_failed"]) == (None, 0, 1160, 0)
        assert all(not output.answer.reward for sample in scored for output in sample.output)
    else:
        low, high = expected[behaviour]
        assert report["n_scored"] == 1160
        assert low <= report["score"] <= high

    some = range(0, 1160, 40)
    assert [scores(reward.evaluate(samples[i])) for i in some] == [scores(scored[i]) for i in some]

    done = evaluated(path, server, child=tmp_path if in_child else None)
    printed: dict[str, Any] = json.loads(done.out)
    assert {name: printed[name] for name in FIGURES} == {name: report[name] for name in FIGURES}
    assert done.code == (1 if behaviour == "garbage" else 0)
    if behaviour == "garbage":
        counts = {reason: int(n) for n, reason in re.findall(r"^(\d+) samples unscored: (\w+)", done.err, re.MULTILINE)}
        assert set(counts) == {"parse", "empty"} and sum(counts.values()) == 1160
        assert "no sample could be scored" in done.err
    assert server.stats(detail=False)["internal_errors"] == []


def failing_server(kind: str, server: JudgeServer) -> str:
    """The URL of a server that fails in this way."""
    if kind == "unreachable":
        return "http://127.0.0.1:1/v1"
    server.set(behaviour="perfect", faults={"always": 401 if kind == "wrong key" else 500})
    return server.base_url


@pytest.mark.parametrize(
    ("kind", "limit", "message"),
    [
        ("broken", 60, "60 samples failed: transient: {url} answered 500"),
        ("wrong key", 60, "answered 401: Incorrect API key provided. (check the API key)"),
        ("unreachable", 60, "Cannot connect to {url}"),
    ],
)
def test_a_failing_server_gives_no_score(kind: str, limit: int, message: str, server: JudgeServer, path: Path) -> None:
    url = failing_server(kind, server)
    llm = json.dumps({"model": "judge-1", "base_url": url, "max_attempts": 1})
    try:
        done = command("eval", REWARD, str(path), "--param", f"llm={llm}", "--json", "--limit", str(limit))
    finally:
        server.set(faults={})
    printed = json.loads(done.out)
    assert (done.code, printed["score"], printed["ci95"]) == (1, None, None)
    assert (printed["n"], printed["n_scored"], printed["n_unscored"], printed["n_failed"]) == (limit, 0, 0, limit)
    assert message.format(url=url) in done.err
    assert "no sample could be scored" in done.err
