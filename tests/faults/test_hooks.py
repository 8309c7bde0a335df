"""Hooks that raise, cancel or block."""

from __future__ import annotations

import asyncio

import pytest

from rm_gallery.core.engine import alone
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.reward.reward import BaseReward
from tests.faults.rewards import Awaited, Blocking, Plain
from tests.support.samples import issues, make_sample, scores

REWARDS = pytest.mark.parametrize("reward", [Plain(), Awaited()], ids=lambda reward: reward.name)


@pytest.fixture(autouse=True)
def _count_anew() -> None:
    Blocking.inside = 0
    Blocking.threads.clear()
    Blocking.go_on.clear()


@REWARDS
@pytest.mark.parametrize("text", ["raise", "cancel"])
def test_what_a_hook_raises_is_that_samples_failure(reward: BaseReward, text: str) -> None:
    texts = [text if k % 10 == 0 else "x" * k for k in range(60)]
    scored = reward.evaluate_batch([make_sample(t) for t in texts], max_workers=4)
    assert [scores(sample) for sample in scored] == [[None] if t == text else [len(t)] for t in texts]
    assert [issues(sample) for sample in scored if issues(sample)] == [[("failed", "error")]] * 6


def test_plain_hooks_awaited_by_themselves_share_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many run at once depends on what they cost, which a busy machine makes look dear; never more than is allowed."""
    monkeypatch.setattr(alone, "MAX_ALONE", 12)
    monkeypatch.setattr(alone, "_shared", None)

    async def main() -> list[list[float | None]]:
        calls = [asyncio.ensure_future(Blocking().async_evaluate(make_sample("x"))) for _ in range(100)]
        while Blocking.inside < 12:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert Blocking.inside == 12
        Blocking.go_on.set()
        return [scores(await call) for call in calls]

    assert asyncio.run(main()) == [[1.0]] * 100
    assert len(Blocking.threads) <= 12


def test_plain_hooks_that_block_block_threads_and_not_the_loop() -> None:
    """The loop lets them go on once all four are at it: had they blocked it, or each other, nobody would."""

    async def let_go() -> None:
        while Blocking.inside < 4:
            await asyncio.sleep(0.005)
        Blocking.go_on.set()

    letting = library_loop.submit(let_go())
    scored = Blocking().evaluate_batch([make_sample("x")] * 4, max_workers=4)
    assert [scores(sample) for sample in scored] == [[1.0]] * 4
    letting.result(20)
