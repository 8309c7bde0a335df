"""Hooks that raise, cancel or block, and a thousand of them at once."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.reward.reward import BaseReward
from tests.faults.rewards import BLOCK_SECONDS, Awaited, Counting, Plain
from tests.support.samples import issues, make_sample, scores

REWARDS = pytest.mark.parametrize("reward", [Plain(), Awaited()], ids=lambda reward: reward.name)


@REWARDS
@pytest.mark.parametrize("text", ["raise", "cancel"])
def test_what_a_hook_raises_is_that_samples_failure(reward: BaseReward, text: str) -> None:
    texts = [text if k % 10 == 0 else "x" * k for k in range(60)]
    scored = reward.evaluate_batch([make_sample(t) for t in texts], max_workers=4)
    assert [scores(sample) for sample in scored] == [[None] if t == text else [len(t)] for t in texts]
    assert [issues(sample) for sample in scored if issues(sample)] == [[("failed", "error")]] * 6


@REWARDS
def test_a_thousand_awaited_at_once(reward: BaseReward) -> None:
    async def main() -> list[list[float | None]]:
        calls = [reward.async_evaluate(make_sample("x" * (k % 50))) for k in range(1000)]
        return [scores(sample) for sample in await asyncio.gather(*calls)]

    threads = threading.active_count()
    assert asyncio.run(main()) == [[k % 50] for k in range(1000)]
    assert threading.active_count() < threads + 100


def test_a_thousand_awaited_at_once_wait_together() -> None:
    Counting.now = Counting.most = 0
    Counting.threads.clear()

    async def main() -> int:
        ticks = 0

        async def heartbeat() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        beating = asyncio.ensure_future(heartbeat())
        reward = Counting(seconds=1.0)
        done = await asyncio.gather(*(reward.async_evaluate(make_sample("x")) for _ in range(1000)))
        beating.cancel()
        assert all(scores(sample) == [1.0] for sample in done)
        return ticks

    assert asyncio.run(main()) >= 3, "the caller's own loop goes on meanwhile"
    assert Counting.most > 500, "they are not held to a number in flight that nobody asked for"
    assert len(Counting.threads) == 1
    assert Counting.threads != {threading.get_ident()}, "coroutines of hooks run on the library's loop"


def test_a_batch_keeps_to_its_number_in_flight() -> None:
    Counting.now = Counting.most = 0
    Counting(seconds=0.005).evaluate_batch([make_sample("x") for _ in range(200)], max_workers=7)
    assert Counting.most == 7


def beats(reward: BaseReward) -> tuple[int, float]:
    """How often the library's loop turned while the reward blocked for 0.2 s four times, and the longest pause."""
    times: list[float] = []
    done = threading.Event()

    async def heart() -> None:
        while not done.is_set():
            times.append(time.perf_counter())
            await asyncio.sleep(0.005)
        times.append(time.perf_counter())

    beating = library_loop.submit(heart())
    reward.evaluate_batch([make_sample("block")] * 4, max_workers=4)
    done.set()
    beating.result(5)
    return len(times), max(after - before for before, after in zip(times, times[1:], strict=False))


def test_a_plain_hook_that_blocks_blocks_a_thread() -> None:
    began = time.perf_counter()
    count, pause = beats(Plain())
    assert time.perf_counter() - began < 4 * BLOCK_SECONDS, "the four block side by side"
    assert count > 10
    assert pause < BLOCK_SECONDS


def test_a_coroutine_that_blocks_holds_up_every_other_coroutine() -> None:
    """The price of one loop for everything, and why blocking work belongs in a plain hook."""
    began = time.perf_counter()
    _, pause = beats(Awaited())
    assert time.perf_counter() - began >= 4 * BLOCK_SECONDS, "one after the other"
    assert pause >= BLOCK_SECONDS
