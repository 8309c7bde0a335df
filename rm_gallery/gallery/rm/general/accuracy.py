"""Exact match with the reference answer."""

from __future__ import annotations

from typing import Any, ClassVar

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, one_score, references_of


@RewardRegistry.register("accuracy")
class AccuracyReward(RuleReward):
    """1 when the answer equals the reference after trimming, else 0; unscored without a reference.

    Range [0, 1], higher is better. White space at both ends and Windows line ends do not count, case does unless
    `ignore_case`. With several references it is enough to equal one.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference"})

    name: str = "accuracy"
    ignore_case: bool = False

    example = Example(
        sample_of("What is the capital of Australia? Reply with the name alone.", "Canberra", "Sydney", reference="Canberra")
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Compare the one output with its reference."""
        answer = answer_text(sample).strip()
        references = [text.replace("\r\n", "\n").strip() for text in references_of(sample, self.name)]
        if self.ignore_case:
            answer, references = answer.casefold(), [text.casefold() for text in references]
        if answer in references:
            return one_score(self.name, 1.0, "The answer equals the reference.")
        return one_score(self.name, 0.0, "The answer differs from the reference.")
