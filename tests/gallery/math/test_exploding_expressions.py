"""Expressions that would keep Math-Verify busy for ever cost their deadline and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rm_gallery.core.engine.workers.pool import WorkerPool
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.text.maths import verify_answer
from rm_gallery.core.utils.errors import DeadlineExceeded
from tests.support.samples import issues, make_sample, scores

_DEADLINE = 1.0


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2) as shared:
        yield shared


@pytest.mark.parametrize(
    "expression",
    [
        r"\boxed{9^{9^{9^{9}}}}",
        r"A: $9^{9^{9}} + 1$",
        r"The answer is $((10!)!)!$.",
        r"\boxed{\sum_{k=1}^{10^{9}} \frac{1}{k}}",
        r"\boxed{\binom{10^9}{5\cdot 10^8}}",
    ],
)
def test_costs_its_deadline_only(pool: WorkerPool, expression: str) -> None:
    pairs = [("A: 18", "18")] * 6
    pairs[2] = (expression, "18")
    results = pool.starmap(verify_answer, pairs, deadline=_DEADLINE)
    assert isinstance(results[2], DeadlineExceeded)
    others = results[:2] + results[3:]
    assert [getattr(verdict, "status", verdict) for verdict in others] == ["correct"] * 5


@pytest.mark.parametrize(
    ("reference", "outcome"), [("18", ([0.0], [])), (r"\frac{x}{2}", ([None], [("failed", "deadline")]))]
)
def test_an_answer_does_not_turn_its_0_into_no_score(reference: str, outcome: object) -> None:
    reward = RewardRegistry.create("math_verify_reward", timeout=2.0)
    scored = reward.evaluate(make_sample(r"\boxed{1000000!}", reference=reference))
    assert (scores(scored), issues(scored)) == outcome
