"""A rule that is called at once is the rule it is on threads: the same outcomes, the same run."""

from __future__ import annotations

import asyncio
import decimal
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rm_gallery import (
    BaseReward,
    Budget,
    DataSample,
    OpenaiLLM,
    RewardRegistry,
    Unscored,
    WeightedSum,
    rule,
)
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.score import scored
from tests.support.judge_server import JudgeServer
from tests.support.samples import make_sample, scores


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RewardRegistry, "_classes", dict(RewardRegistry._classes))


def made(name: str, function: Callable[..., Any], inline: bool, **more: Any) -> BaseReward:
    rule(name, inline=inline, **more)(function)
    return RewardRegistry.create(name)


class Unreadable(Exception):
    """An error whose message breaks as well."""

    def __str__(self) -> str:
        raise AttributeError("nope")


class Own(BaseException):
    """No Exception."""


def raising(error: BaseException) -> Callable[[str], float]:
    def breaks(answer: str) -> float:
        """Breaks on one answer. Range [0, 1]."""
        if answer == "bad":
            raise error
        return 1.0

    return breaks


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(
    "error", [Unreadable(), SystemExit(3), Own("x"), asyncio.CancelledError(), RecursionError()]
)
def test_whatever_a_rule_raises_costs_its_own_row(error: BaseException, inline: bool) -> None:
    reward = made("breaks_so", raising(error), inline)
    samples = [make_sample(text) for text in ("good", "bad", "good")]
    judged = reward.evaluate_batch(samples, deadline=20.0)
    assert [scores(one) for one in judged] == [[1.0], [None], [1.0]]
    [issue] = judged[1].output[0].answer.reward.issues
    assert (issue.status, issue.cause) == ("failed", "rule")
    assert scores(reward.evaluate(samples[1])) == [None]


@pytest.mark.parametrize("inline", [True, False])
def test_what_failed_is_said_at_the_end_of_the_run(inline: bool, warned: list[str]) -> None:
    reward = made("breaks_so", raising(KeyError("odd")), inline)
    reward.evaluate_batch([make_sample(text) for text in ("good", "bad", "bad")])
    [said] = warned
    assert "of 3 samples 2 failed" in said and "(2) error: KeyError: 'odd'" in said


def test_ctrl_c_ends_a_run_of_a_rule_that_is_called_at_once() -> None:
    reward = made("breaks_so", raising(KeyboardInterrupt()), True)
    with pytest.raises(KeyboardInterrupt):
        reward.evaluate_batch([make_sample("good"), make_sample("bad")])


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("value", [decimal.Decimal("0.5"), np.float32(0.5), 1, True])
def test_a_scores_value_is_a_number_and_what_else_it_holds_is_kept(
    value: Any, inline: bool, tmp_path: Path
) -> None:
    def gives(answer: str) -> Any:
        """A number of another type. Range [0, 1]."""
        return scored(value, "so", extra={"seen": {1}})

    reward = made("gives_so", gives, inline)
    [judged] = reward.evaluate_batch([make_sample("x")], run_dir=str(tmp_path / str(inline)))
    assert scores(judged) == [float(value)]
    assert type(judged.output[0].answer.reward.score) is float
    [line] = (tmp_path / str(inline) / "results.jsonl").read_text().splitlines()
    assert "{1}" in line and json.loads(line)


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer("fixed:<reason>so</reason><score>5</score>", in_process=True) as running:
        yield running


@pytest.mark.parametrize("inline", [True, False])
def test_what_a_rule_asks_counts_in_its_run(server: JudgeServer, inline: bool) -> None:
    llm = OpenaiLLM("judge-1", base_url=server.base_url)
    judge = RewardRegistry.create("base_helpfulness_pointwise", llm=llm)

    def asks(sample: DataSample) -> float:
        """What a judge says, else a number that was made up. Range [0, 1]."""
        own = judge.evaluate(sample).output[0].answer.reward
        return 0.5 if own.score is None else 1.0

    reward, control = made("asks_so", asks, inline), RunControl()
    samples = [make_sample(f"a {k}", unique_id=str(k)) for k in range(10)]
    judged = reward.evaluate_batch(
        samples, budget=Budget(max_calls=3), cache=False, control=control, max_workers=1
    )
    assert server.stats()["requests"] == control.calls == 3 and control.stopped
    codes = [i.reason for one in judged for i in one.output[0].answer.reward.issues]
    assert set(codes) <= {"stopped", "budget"} and len(codes) >= 7


def test_an_answer_gains_nothing_by_breaking_a_penalty() -> None:
    def flaw(answer: str) -> float:
        """How flawed an answer is. Range [0, 1]."""
        if answer == "breaks it":
            raise Unscored("it explodes", reason="timeout", cause="answer")
        return 0.9

    def good(answer: str) -> float:
        """Half. Range [0, 1]."""
        return 0.5

    parts = {"good": made("good_so", good, True), "flaw": made("flaw_so", flaw, True)}
    for normalize in (False, True):
        whole = WeightedSum(parts, weights={"flaw": -1.0}, normalize=normalize)
        broken, flawed = (scores(whole.evaluate(make_sample(t)))[0] for t in ("breaks it", "x"))
        assert [broken, flawed] == pytest.approx([-0.5, -0.4])
    opened = made("open_so", flaw, True, score_range=(0.0, None))
    whole = WeightedSum({"good": parts["good"], "flaw": opened}, weights={"flaw": -1.0})
    [issue] = whole.evaluate(make_sample("breaks it")).output[0].answer.reward.issues
    assert (issue.status, issue.cause) == ("unscored", "answer")
