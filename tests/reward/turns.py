"""Trajectories and step rewards for the tests of rewards per turn."""

from __future__ import annotations

from typing import Any, ClassVar

from rm_gallery import (
    BaseStepWiseReward,
    DataSample,
    RewardDimensionWithScore,
    RewardResult,
    Unscored,
)
from rm_gallery.core.data.conversation import sample_of_completion

CALL = {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"x": 2}'}}
TURNS: list[dict[str, Any]] = [
    {"role": "assistant", "content": "I ask first.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "tools say a lot of words"},
    {"role": "assistant", "content": "سلام 你好 4?"},
    {"role": "user", "content": "go on"},
    {"role": "assistant", "content": "It is 4"},
]
"""Three turns of the policy, of three words each, the last of which is right."""
ROW = {"reference": "4"}


class Words(BaseStepWiseReward):
    """A tenth per word of a turn; a turn with "unknown" in it has no score."""

    score_range: tuple[float | None, float | None] = (0.0, 1.0)
    asked: ClassVar[list[str]] = []

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        turn = (sample.output[0].steps or [])[-1]
        type(self).asked.append(turn.text)
        if "unknown" in turn.text:
            raise Unscored("nothing is known of it", reason="no_reference")
        score = min(1.0, len(turn.text.split()) / 10)
        return RewardResult(
            name=self.name, details=[RewardDimensionWithScore(name=self.name, score=score)]
        )


def trajectory(*texts: str) -> DataSample:
    """The conversation of `TURNS`, or one whose policy says these texts between users' turns."""
    spoken = list(TURNS)
    if texts:
        spoken = [{"role": "assistant", "content": texts[0]}]
        for text in texts[1:]:
            spoken += [{"role": "user", "content": "go on"}, {"role": "assistant", "content": text}]
    return sample_of_completion("2 + 2?", spoken, row=ROW)
