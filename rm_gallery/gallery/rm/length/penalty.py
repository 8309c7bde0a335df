"""A penalty for answers that are too short or too long."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.example import PENALTY, Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult
from rm_gallery.core.utils.errors import ConfigError


@RewardRegistry.register("length_penalty")
class LengthPenaltyReward(BasePointWiseReward):
    """0 between `min_length` and `max_length` characters; outside, -`penalty_rate` for every character too few or too many.

    Range [-`max_penalty`, 0], or (-infinity, 0] with `max_penalty=None`; higher is better.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (None, 0.0)

    name: str = "length_penalty"
    min_length: int = Field(default=10, ge=0)
    max_length: int = Field(default=1000, ge=0)
    penalty_rate: float = Field(default=0.01, ge=0)
    max_penalty: float | None = Field(default=None, ge=0)

    example = Example(
        sample_of("What is six times seven? Explain.", "42, since 6 · 7 = 42.", "It is 42. " * 3, "It is 42. " * 6),
        params={"min_length": 10, "max_length": 40},
        use=PENALTY,
    )

    @model_validator(mode="after")
    def _bounds(self) -> LengthPenaltyReward:
        if self.min_length > self.max_length:
            raise ConfigError(f"min_length {self.min_length} is above max_length {self.max_length}.")
        return self

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Measure the answer against the bounds."""
        length = len(sample.output[0].answer.text)
        excess = max(self.min_length - length, length - self.max_length, 0)
        penalty = self.penalty_rate * excess
        if self.max_penalty is not None:
            penalty = min(penalty, self.max_penalty)
        reason = f"{length} characters; allowed are {self.min_length} to {self.max_length}."
        detail = RewardDimensionWithScore(name=self.name, score=-penalty if penalty else 0.0, reason=reason)
        return RewardResult(name=self.name, details=[detail])
