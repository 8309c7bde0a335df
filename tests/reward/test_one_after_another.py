"""Rewards that are called sample by sample: dear and cheap ones in turns share their threads, and nobody waits for nothing."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rm_gallery import DataSample
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.schema import RewardResult
from tests.reward.rewards import scored
from tests.support.samples import make_sample, scores


class Dear(BasePointWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        time.sleep(0.03)
        return scored(self.name, 1.0)


class Cheap(BasePointWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, 1.0)


def test_a_cheap_reward_after_dear_ones_finds_a_thread_at_once() -> None:
    sample, slowest = make_sample("x"), 0.0
    for _ in range(20):
        Cheap().evaluate(sample)  # now its cost is known
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert all(scores(s) == [1.0] for s in pool.map(Dear().evaluate, [sample] * 16))
            for _ in range(10):
                began = time.perf_counter()
                assert scores(Cheap().evaluate(sample)) == [1.0]
                slowest = max(slowest, time.perf_counter() - began)
    assert slowest < 1.0
