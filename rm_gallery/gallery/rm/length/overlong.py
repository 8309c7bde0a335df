"""DAPO's soft punishment of overlong answers."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import EMPTY_IS_BEST, Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.length.measure import MeasuredReward
from rm_gallery.gallery.rm.rule import one_score


@RewardRegistry.register("dapo_soft_overlong_punishment")
class DapoSoftOverlongPunishmentReward(MeasuredReward):
    """0 up to `max_length - cache`, falling linearly to -1 at `max_length`, -1 beyond; to be added to another reward.

    R(y) = 0 for |y| <= L - C; ((L - C) - |y|) / C for L - C < |y| <= L; -1 for |y| > L. Range [-1, 0], higher is
    better. Source: DAPO (arXiv 2503.14476), equation 13, whose L = 20480 and C = 4096 are tokens: give `unit="tokens"`
    and a tokenizer for it.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (-1.0, 0.0)

    name: str = "dapo_soft_overlong_punishment"
    max_length: int = Field(default=20480, gt=0)
    cache: int = Field(default=4096, ge=0)
    """Length before `max_length` over which the punishment grows; C above."""

    example = Example(
        sample_of("What is six times seven? Explain.", "42, since 6 · 7 = 42.", "It is 42. " * 3, "It is 42. " * 6),
        params={"max_length": 50, "cache": 25},
        use=EMPTY_IS_BEST,
    )

    @model_validator(mode="after")
    def _fits(self) -> DapoSoftOverlongPunishmentReward:
        if self.cache > self.max_length:
            raise ConfigError(f"cache {self.cache} is above max_length {self.max_length}.")
        return self

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Measure the answer."""
        length = self.length_of(sample.output[0].answer)
        reason = f"{length} {self.unit}; punished above {self.max_length - self.cache}, at most from {self.max_length}."
        return one_score(self.name, soft_overlong_punishment(length, self.max_length, self.cache), reason)


def soft_overlong_punishment(length: int, max_length: int, cache: int) -> float:
    """The punishment of DAPO's equation 13 for one length."""
    start = max_length - cache
    if length <= start:
        return 0.0
    return -1.0 if length > max_length else (start - length) / cache
