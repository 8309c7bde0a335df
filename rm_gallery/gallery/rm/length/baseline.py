"""The reference everyone needs: how far does length alone get?"""

from __future__ import annotations

from typing import Any, ClassVar

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.gallery.rm.rule import RuleReward, one_score


@RewardRegistry.register("length_baseline")
class LengthBaselineReward(RuleReward):
    """Number of characters of the answer; with `shortest`, minus that number.

    Range [0, infinity) or (-infinity, 0], higher is better. Not a measure of quality: a benchmark score means as much as it
    differs from this one.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (None, None)

    name: str = "length_baseline"
    shortest: bool = False

    example = Example(
        sample_of("What is six times seven? Explain.", "42, since 6 · 7 = 42.", "It is 42. " * 3, "It is 42. " * 6),
        use="The scores are a yardstick for other rewards and nothing to train on.",
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Count the characters."""
        length = float(len(sample.output[0].answer.text))
        return one_score(self.name, -length if self.shortest else length)
