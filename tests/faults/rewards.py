"""Rewards that misbehave when an answer says so: everything else is scored with its length."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any, ClassVar

from rm_gallery import BasePointWiseReward, DataSample, RewardDimensionWithScore, RewardResult

HANG_SECONDS = 600.0


def length_of(sample: DataSample) -> RewardResult:
    return RewardResult(
        name="length",
        details=[RewardDimensionWithScore(name="length", score=len(sample.output[0].answer.text))],
    )


def misbehave(text: str) -> None:
    if text == "hang":
        time.sleep(HANG_SECONDS)
    if text == "raise":
        raise RuntimeError("the hook broke")
    if text == "cancel":
        raise asyncio.CancelledError


class Plain(BasePointWiseReward):
    name = "plain"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        misbehave(sample.output[0].answer.text)
        return length_of(sample)


class Awaited(BasePointWiseReward):
    name = "awaited"
    ended: ClassVar[int] = 0
    """Hooks that ended after they were told to."""

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if text == "hang":
            await asyncio.sleep(HANG_SECONDS)
        if text == "stubborn":
            try:
                await asyncio.sleep(HANG_SECONDS)
            except asyncio.CancelledError:
                await asyncio.sleep(1.5)
                Awaited.ended += 1
                raise
        misbehave(text)
        await asyncio.sleep(0)
        return length_of(sample)


class OnGpu(BasePointWiseReward):
    """Says which GPU it was given."""

    name = "on_gpu"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        found = length_of(sample)
        found.details[0].reason = "GPU " + os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return found


class InWorker(Plain):
    name = "in_worker"
    cpu_bound: ClassVar[bool] = True


class Blocking(BasePointWiseReward):
    """Blocks its thread until it is told to go on; notes the threads."""

    name = "blocking"
    inside: ClassVar[int] = 0
    go_on: ClassVar[threading.Event] = threading.Event()
    threads: ClassVar[set[int]] = set()
    guard: ClassVar[threading.Lock] = threading.Lock()

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        with Blocking.guard:
            Blocking.inside += 1
        Blocking.threads.add(threading.get_ident())
        assert Blocking.go_on.wait(60)
        return length_of(sample)
