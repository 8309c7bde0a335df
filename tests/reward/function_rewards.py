"""Reward functions of a module with postponed annotations, for what is found by name: pickles,
worker processes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Optional, Union

from rm_gallery import EvaluateResult, Message, MetricResult, reward_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nowhere import Thing  # type: ignore[import-not-found]


@reward_function(score_range=(-1, None))
def optional(messages: Optional[list[Message]], **kwargs: Any) -> EvaluateResult:  # noqa: UP045
    return EvaluateResult(score=len(messages[-1].text) if messages else -1)


@reward_function(score_range=(-1, None))
def union(messages: Union[list[Message], list[dict[str, Any]]], **kwargs: Any) -> EvaluateResult:
    return EvaluateResult(score=len(messages[-1].content or ""))  # type: ignore[union-attr]


@reward_function(score_range=(-1, None))
def sequence(messages: Sequence[Message], **kwargs: Any) -> EvaluateResult:
    return EvaluateResult(score=len(messages[-1].text))


@reward_function(score_range=(-1, None))
def unknown_beside(
    messages: list[Message], thing: Thing | None = None, **kwargs: Any
) -> EvaluateResult:
    return EvaluateResult(score=len(messages[-1].text))


@reward_function(score_range=(-1, None))
def dicts(messages: list[dict[str, Any]], **kwargs: Any) -> EvaluateResult:
    assert type(messages[-1]) is dict
    return EvaluateResult(score=len(messages[-1]["content"] or ""))


@reward_function(score_range=(-1, None))
def untyped(messages, **kwargs):  # type: ignore[no-untyped-def]
    assert messages[-1]["role"] == messages[-1].role
    return {"score": len(messages[-1].text)}


@reward_function(id="waits", score_range=(0, None), requirements=["numpy"])
async def waits(messages: list[Message], **kwargs: Any) -> EvaluateResult:
    await asyncio.sleep(0.001)
    return EvaluateResult(score=len(messages[-1].text))


@reward_function(mode="batch")
def share(rollouts_messages: list[list[Message]], **kwargs: Any) -> list[EvaluateResult]:
    lengths = [len(messages[-1].text) for messages in rollouts_messages]
    return [
        EvaluateResult(
            score=n / max(lengths), is_score_valid=n > 0, reason="empty" if not n else None
        )
        for n in lengths
    ]


@reward_function(mode="batch", score_range=(0, None))
async def share_later(rollouts_messages: list[list[Message]], **kwargs: Any) -> list[Any]:
    await asyncio.sleep(0.001)
    return [{"score": len(messages)} for messages in rollouts_messages]


@reward_function(score_range=(0, 1))
def graded(
    messages: list[Message], ground_truth: str, near: float = 0.5, **kwargs: Any
) -> EvaluateResult:
    right = ground_truth == messages[-1].text
    score = 1.0 if right else near if ground_truth in messages[-1].text else 0.0
    metrics = {
        "right": MetricResult(score=right, reason="equal"),
        "seen": MetricResult(score=0, is_score_valid=False),
    }
    return EvaluateResult(score=score, reason="r", metrics=metrics)


def plain(messages: list[Message], **kwargs: Any) -> float:
    return len(messages[-1].text) / 4
