"""Judges of known quality, behind real HTTP, on the built-in split: the same figure in Python and on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats.chance import chance_interval_of_means
from rm_gallery.report.evaluate import evaluate
from tests.acceptance.test_judge_matrix_modes import KINDS, N, rows_of
from tests.support.benchmarks import load_samples, oracle_of
from tests.support.children import ROOT
from tests.support.command import command
from tests.support.judge_server import JudgeServer

REWARD, SOURCE = "safety_listwise_reward", "rewardbench2"
FIGURES = ("score", "ci95", "n", "n_scored", "n_unscored", "n_failed", "n_stopped", "by_subset")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in split without its Ties rows: one right answer among four, which a listwise judge can name."""
    table = pq.read_table(ROOT / "data" / "test.parquet")
    file = tmp_path_factory.mktemp("matrix") / "best_of_4.parquet"
    pq.write_table(table.filter(pc.not_equal(table["subset"], "Ties")), file)
    return file


@pytest.fixture(scope="module")
def samples(path: Path) -> list[DataSample]:
    found = load_samples(path, SOURCE)
    assert len(found) == 312
    return found


@pytest.fixture(scope="module")
def server(samples: list[DataSample]) -> Iterator[JudgeServer]:
    with JudgeServer("perfect", oracle=oracle_of(samples)) as running:
        yield running


def reward_of(kind: str, server: JudgeServer) -> BaseReward:
    llm = OpenaiLLM("judge-1", base_url=server.base_url, cache=False, max_attempts=1)
    return RewardRegistry.create(KINDS[kind], llm=llm)


@pytest.mark.parametrize("behaviour", ["first", "last"])
def test_a_judge_that_looks_at_positions_only_earns_nothing_in_two_games(behaviour: str, server: JudgeServer) -> None:
    server.set(behaviour=behaviour)
    report = evaluate(reward_of("pairwise", server), rows_of("judgebench"))
    orders = report.extra["orders"]
    assert (report.rule, report.score) == ("two_game_sign", 0.0)
    assert (orders["consistency"], orders["mean_of_orders"], orders["draws"]) == (0.0, 0.5, N)
    cells = evaluate(reward_of("pairwise", server), rows_of("rm_bench"))
    assert cells.score == 0.0, "a draw is no win"


@pytest.mark.parametrize("behaviour", ["perfect", "first", "last", "garbage"])
def test_the_same_figure_in_python_and_on_the_command_line(
    behaviour: str, server: JudgeServer, samples: list[DataSample], path: Path
) -> None:
    server.set(behaviour=behaviour)
    report = evaluate(reward_of("listwise", server), samples, max_workers=64).to_dict()
    endpoint = ["--llm", "judge-1", "--base-url", server.base_url, "--no-cache", "--max-workers", "64"]
    done = command("eval", REWARD, str(path), *endpoint, "--json")
    printed: dict[str, Any] = json.loads(done.out)
    assert {name: printed[name] for name in FIGURES} == {name: report[name] for name in FIGURES}
    assert server.stats(detail=False)["internal_errors"] == []
    if behaviour == "garbage":
        assert (done.code, report["score"], report["n_scored"], report["n_unscored"]) == (1, None, 0, 312)
        counts = {reason: int(n) for n, reason in re.findall(r"^(\d+) samples unscored: (\w+)", done.err, re.MULTILINE)}
        assert set(counts) == {"parse", "empty"} and sum(counts.values()) == 312
        return
    chances = {name: [0.25] * part["n"] for name, part in report["by_subset"].items()}
    low, high = (1.0, 1.0) if behaviour == "perfect" else chance_interval_of_means(chances.values())
    assert (done.code, report["n_scored"]) == (0, 312) and low <= report["score"] <= high
