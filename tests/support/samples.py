"""Small samples for tests, in one line each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from rm_gallery import BaseReward, ChatMessage, DataOutput, DataSample, MessageRole, Step


def make_sample(
    *answers: str,
    query: str = "What is it?",
    unique_id: str = "s",
    chosen: int | None = None,
    reference: Any = None,
    metadata: dict[str, Any] | None = None,
) -> DataSample:
    """A sample with these answers; `chosen` labels that one chosen and the others rejected."""
    outputs = []
    for index, text in enumerate(answers):
        label: dict[str, Any] = (
            {} if chosen is None else {"preference": "chosen" if index == chosen else "rejected"}
        )
        if reference is not None:
            label["reference"] = reference
        outputs.append(
            DataOutput(answer=Step(role=MessageRole.ASSISTANT, content=text, label=label))
        )
    return DataSample(
        unique_id=unique_id, input=[ChatMessage(content=query)], output=outputs, metadata=metadata
    )


def scores(sample: DataSample) -> list[float | None]:
    return [output.answer.reward.score for output in sample.output]


def issues(sample: DataSample) -> list[tuple[str, str]]:
    """(status, reason) of each issue of each output."""
    return [
        (issue.status, issue.reason)
        for output in sample.output
        for issue in output.answer.reward.issues
    ]


async def _listed(stream: Any) -> list[DataSample]:
    return [sample async for sample in stream]


def through(
    door: str, reward: BaseReward, samples: Iterable[DataSample], **how: Any
) -> list[DataSample]:
    """Samples as the reward's method of this name judges them: one after another, all at once or as
    a stream, awaited or not.
    """
    method = getattr(reward, door)
    if not door.endswith("evaluate"):
        found: Any = method(iter(samples) if "stream" in door else samples, **how)
        if door.startswith("async"):
            found = asyncio.run(_listed(found) if "stream" in door else found)
        return list(found)
    return [
        asyncio.run(method(sample, **how)) if door.startswith("async") else method(sample, **how)
        for sample in samples
    ]
