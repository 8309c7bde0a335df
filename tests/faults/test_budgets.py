"""A budget ends a run cleanly; the same command with a higher one finishes it, and every sample is paid once."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.engine.calls.budget import Budget
from rm_gallery.core.engine.calls.prices import PriceTable
from rm_gallery.core.model.fake import FakeLLM
from rm_gallery.core.reward.registry import RewardRegistry
from tests.faults.material import REWARD, eval_arguments, make_judge, make_samples, records, run, write_data
from tests.support.command import Done, command
from tests.support.judge_server import Faults, JudgeServer

N = 60
PRICES = "judge-*: {input: 1000, output: 2000}\n"


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    file = tmp_path / "prices.yaml"
    file.write_text(PRICES)
    return file


def judged(server: JudgeServer, data: Path, folder: Path | None, *options: str) -> Done:
    return command(*eval_arguments(data, server, folder, "--max-workers", "4", *options))


@pytest.mark.parametrize(("option", "low"), [("--max-calls", "20"), ("--max-tokens", "9000"), ("--max-cost", "9.5")])
def test_a_stopped_run_is_finished_later(
    server: JudgeServer, tmp_path: Path, prices: Path, option: str, low: str
) -> None:
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    fixed = ["--prices", str(prices), "--no-cache"]
    for _ in range(2):  # the same command spends its limit once
        stopped = judged(server, data, folder, option, low, *fixed)
        asked = server.stats()["requests"]
    result = json.loads(stopped.out)
    assert stopped.code == 1
    assert f"run the same command with a higher {option}" in stopped.err
    assert 0 < result["n_scored"] < N
    assert result["n_scored"] + result["n_failed"] + result["n_stopped"] == N
    assert server.stats()["requests"] == asked == result["n_scored"]
    assert len(records(folder)) == result["n_scored"], "a sample that was not begun leaves no record"

    finished = judged(server, data, folder, option, "1000000", *fixed)
    whole = json.loads(finished.out)
    assert (finished.code, whole["n_scored"], whole["score"]) == (0, N, 1.0)
    assert server.stats()["requests"] == N
    assert server.stats()["max_attempts"] == 1
    assert sorted(record["id"] for record in records(folder)) == sorted(f"sum-{k}" for k in range(N))


@pytest.mark.parametrize("limits", [{"max_calls": 10}, {"max_tokens": 4000}, {"max_cost": 4.0}], ids=str)
@pytest.mark.parametrize("max_workers", [1, 30])
def test_a_budget_is_kept(server: JudgeServer, prices: Path, limits: dict[str, Any], max_workers: int) -> None:
    budget = Budget(**limits, prices=PriceTable.from_yaml(prices))
    ran = run(make_judge(server.base_url), make_samples(N), max_workers=max_workers, budget=budget, cache=False)
    usage = server.stats()["usage"]
    tokens = usage["prompt_tokens"] + usage["completion_tokens"]
    cost = (1000 * usage["prompt_tokens"] + 2000 * usage["completion_tokens"]) / 1e6
    assert ran.control.calls <= limits.get("max_calls", N)
    assert tokens <= limits.get("max_tokens", tokens)
    assert cost <= limits.get("max_cost", cost)
    assert ran.control.usage.cost == pytest.approx(cost)
    assert ran.control.usage.input_tokens + ran.control.usage.output_tokens == tokens
    assert set(ran.outcomes) <= {("scored", ""), ("failed", "budget"), ("failed", "stopped")}
    assert ran.outcomes["scored", ""] == server.stats()["requests"] > 0


def test_an_estimate_is_near_what_the_run_takes(server: JudgeServer, tmp_path: Path, prices: Path) -> None:
    data = write_data(tmp_path / "data.jsonl", N)
    estimate = json.loads(judged(server, data, None, "--estimate", "--prices", str(prices)).out)
    assert server.stats()["requests"] == 10
    assert (estimate["samples"], estimate["calls"]["mean"]) == (N - 10, N - 10)
    assert judged(server, data, tmp_path / "run", "--prices", str(prices)).code == 0
    assert server.stats()["requests"] == N, "what the estimate asked is not paid again"
    found = {name: (N - 10) * value / N for name, value in server.stats()["usage"].items()}
    asked, replied = found["prompt_tokens"], found["completion_tokens"]
    cost = (1000 * asked + 2000 * replied) / 1e6
    for name, value in (("input_tokens", asked), ("output_tokens", replied), ("cost", cost)):
        low, mean, high = (estimate[name][key] for key in ("low", "mean", "high"))
        assert low <= mean <= high
        assert mean == pytest.approx(value, rel=0.05)
        assert low * 0.98 <= value <= high * 1.02
    assert 0 < estimate["seconds"]["mean"]


@pytest.mark.parametrize("max_workers", [1, 8])
def test_attempts_that_fail_count(server: JudgeServer, max_workers: int) -> None:
    server.set(faults=Faults(always=500))
    ran = run(make_judge(server.base_url), make_samples(30), max_workers=max_workers, budget=Budget(max_calls=5))
    assert server.stats()["requests"] == 5
    assert set(ran.outcomes) <= {("failed", "budget"), ("failed", "stopped"), ("failed", "transient")}


class Counting(FakeLLM):
    """A judge whose usage is whatever it is told to be."""

    usage_given: Any = None

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        await asyncio.sleep(0.001)
        return {**await super().attempt(payload, timeout), "usage": self.usage_given}


UNUSABLE: list[Any] = [None, "many", [], {}, {"prompt_tokens": "7", "completion_tokens": None}, {"prompt_tokens": -5}]
UNUSABLE += [{"prompt_tokens": value, "completion_tokens": value} for value in (1e300, math.nan, True, 10**30)]


@pytest.mark.parametrize("usage", UNUSABLE, ids=str)
def test_usage_that_cannot_be_used_gives_way_to_an_estimate(prices: Path, usage: Any) -> None:
    llm = Counting(model="judge-1", reply="<best>1</best>", usage_given=usage)
    judge = RewardRegistry.create(REWARD, llm=llm)
    budget = Budget(max_tokens=20_000, max_cost=15.0, prices=PriceTable.from_yaml(prices))
    ran = run(judge, make_samples(300), max_workers=32, budget=budget)
    assert ran.control.stopped is not None
    assert 0 < ran.outcomes["scored", ""] < 300
    assert 5_000 < budget.spent.total_tokens <= 20_000
    assert ran.control.usage.cost is not None
    assert ran.control.usage.cost <= 15.0
