"""Judges of known quality, behind real HTTP, on every benchmark: each gets the figure it deserves,
and none without a verdict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rm_gallery import BaseReward, DataSample, OpenaiLLM, RewardRegistry, evaluate
from rm_gallery.core.stats.intervals import chance_interval_of_means
from rm_gallery.gallery.benchmarks.base import benchmarks, get_benchmark
from tests.benchmarks.excerpts import rows_of
from tests.support.benchmarks import load_samples, oracle_of
from tests.support.children import ROOT
from tests.support.choice import some
from tests.support.command import command
from tests.support.judge_server import JudgeServer

REWARD, SOURCE = "safety_listwise_reward", "rewardbench2"
FIGURES = ("score", "ci95", "n", "n_scored", "n_unscored", "n_failed", "n_stopped", "by_subset")
KINDS = {
    "listwise": REWARD,
    "pairwise": "base_helpfulness_pairwise",
    "pointwise": "base_helpfulness_pointwise",
}
APART = {name for name, found in benchmarks().items() if not found.baselines}
"""They judge steps, or single answers, which nothing is compared with."""
NAMES = sorted(benchmarks().keys() - APART - {"helpsteer2", "if_reward_bench"})
"""Without those whose rows are pairs by twos, or rank answers with no right one among them."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in split without its Ties rows: one right answer among four, which a listwise judge
    can name.
    """
    table = pq.read_table(ROOT / "data" / "test.parquet")
    file = tmp_path_factory.mktemp("matrix") / "best_of_4.parquet"
    pq.write_table(table.filter(pc.not_equal(table["subset"], "Ties")), file)
    return file


@pytest.fixture(scope="module")
def samples(path: Path) -> list[DataSample]:
    return load_samples(path, SOURCE)


@pytest.fixture(scope="module")
def server(samples: list[DataSample]) -> Iterator[JudgeServer]:
    rows = [get_benchmark(name).convert(row) for name in NAMES for row in rows_of(name)]
    with JudgeServer("perfect", oracle=oracle_of([*samples, *rows])) as running:
        yield running


def reward_of(kind: str, server: JudgeServer) -> BaseReward:
    llm = OpenaiLLM("judge-1", base_url=server.base_url, cache=False, max_attempts=1)
    return RewardRegistry.create(KINDS[kind], llm=llm)


@pytest.mark.parametrize("name", some(NAMES, 6))
def test_a_judge_that_knows_beats_one_that_errs_and_one_that_mumbles_has_no_score(
    name: str, server: JudgeServer
) -> None:
    for kind in sorted(KINDS.keys() & benchmarks()[name].kinds):
        found = {}
        for behaviour in ("perfect", "worst", "first", "garbage"):
            server.set(behaviour=behaviour)
            found[behaviour] = evaluate(
                reward_of(kind, server), rows_of(name), name, progress=False
            )
        best, worst, first, none = found.values()
        assert best.score is not None and worst.score is not None and first.score is not None, kind
        assert worst.score < best.score and worst.score <= first.score <= best.score, (kind, found)
        assert (none.score, none.ci95, none.n_scored, none.n_unscored) == (None, None, 0, none.n), (
            kind
        )


@pytest.mark.long("whole benchmarks")
@pytest.mark.parametrize("behaviour", ["perfect", "first", "last", "garbage"])
def test_the_same_figure_in_python_and_on_the_command_line(
    behaviour: str, server: JudgeServer, samples: list[DataSample], path: Path
) -> None:
    server.set(behaviour=behaviour)
    report = evaluate(reward_of("listwise", server), samples, max_workers=64).to_dict()
    endpoint = [
        "--llm",
        "judge-1",
        "--base-url",
        server.base_url,
        "--no-cache",
        "--max-workers",
        "64",
    ]
    done = command("eval", REWARD, str(path), *endpoint, "--json")
    printed: dict[str, Any] = json.loads(done.out)
    assert {name: printed[name] for name in FIGURES} == {name: report[name] for name in FIGURES}
    if behaviour == "garbage":
        assert (done.code, report["score"], report["n_scored"], report["n_unscored"]) == (
            1,
            None,
            0,
            312,
        )
        counts = {
            reason: int(n)
            for n, reason in re.findall(r"^(\d+) samples unscored: (\w+)", done.err, re.MULTILINE)
        }
        assert set(counts) == {"parse", "empty"} and sum(counts.values()) == 312
        return
    chances = {name: [0.25] * part["n"] for name, part in report["by_subset"].items()}
    low, high = (1.0, 1.0) if behaviour == "perfect" else chance_interval_of_means(chances.values())
    assert (done.code, report["n_scored"]) == (0, 312) and low <= report["score"] <= high


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("fault", "said"), [(500, "answered 500"), (401, "(check the API key)")])
def test_a_failing_server_gives_no_score_and_no_success(
    name: str, fault: int, said: str, server: JudgeServer, tmp_path: Path
) -> None:
    """However many failures are allowed, a run in which nothing could be scored has not worked."""
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows_of(name)), encoding="utf-8")
    llm = json.dumps({"model": "judge-1", "base_url": server.base_url, "max_attempts": 1})
    kind = "pointwise" if "pointwise" in benchmarks()[name].kinds else "listwise"
    server.set(behaviour="perfect", faults={"always": fault})
    arguments = [
        "bench",
        KINDS[kind],
        name,
        "--data",
        str(data),
        "--param",
        f"llm={llm}",
        "--json",
    ]
    try:
        done = command(*arguments, "--no-cache", "--max-failures", "1000")
    finally:
        server.set(faults={})
    printed = json.loads(done.out)
    assert (done.code, printed["score"], printed["ci95"], printed["n_scored"]) == (1, None, None, 0)
    assert (
        printed["n_failed"] + printed["n_stopped"] + printed["n_unscored"] == printed["n"]
        and printed["n_failed"] > 0
    )
    assert "no sample could be scored" in done.err and said in done.err
