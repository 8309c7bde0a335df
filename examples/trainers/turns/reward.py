"""A safe that opens after four right words: a score for each word, and one for the open safe."""

from __future__ import annotations

from typing import Any

from rm_gallery import (
    BaseStepWiseReward,
    DataSample,
    Message,
    RewardDimensionWithScore,
    RewardResult,
    TurnRewards,
    reward_function,
)
from rm_gallery.integrations.episodes import EpisodeRewards


class RightWord(BaseStepWiseReward):
    """1 for a turn that says the combination's word at its place, else 0."""

    score_range: tuple[float | None, float | None] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        steps = sample.output[0].steps or []  # up to the turn that is judged
        said = [step.text for step in steps if step.role == "assistant"]
        wanted = (sample.metadata or {})["combination"].split()
        right = float(said[-1] == wanted[len(said) - 1])
        detail = RewardDimensionWithScore(name=self.name, score=right)
        return RewardResult(name=self.name, details=[detail])


@reward_function(score_range=(0.0, 1.0))
def opened(messages: list[Message], combination: str = "", **columns: Any) -> float:
    """1 when all words were right, else 0."""
    said = [message.text for message in messages if message.role == "assistant"]
    return float(said == combination.split())


by_turn = TurnRewards(steps=RightWord(), outcome=opened)
rewards = {"each turn": EpisodeRewards(by_turn), "final alone": EpisodeRewards(opened)}
"""What an environment of several turns keeps."""
