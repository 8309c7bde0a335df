"""Small samples for tests, in one line each."""

from __future__ import annotations

from typing import Any

from rm_gallery import ChatMessage, DataOutput, DataSample, MessageRole, Step


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
