"""chrF with the reference answer, through sacrebleu."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

from pydantic import Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.gallery.rm.general.bleu import sacrebleu_metrics
from rm_gallery.gallery.rm.rule import SUMMARY, RuleReward, answer_text, one_score, references_of


@RewardRegistry.register("chrf")
class ChrfReward(RuleReward):
    """chrF of the answer against the best of its references, divided by 100: the F-score (beta 2) of character n-grams.

    `word_order=2` makes it chrF++. White space does not count, so the score suits any script. Range [0, 1], higher is
    better; unscored without a reference; needs the extra `text`. Sources: Popović 2015 (chrF) and 2017 (chrF++);
    sacrebleu computes.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference", "text"})

    name: str = "chrf"
    char_order: int = Field(default=6, ge=1)
    """Longest character n-grams."""
    word_order: int = Field(default=0, ge=0)
    beta: int = Field(default=2, ge=1)
    """How many times more recall weighs than precision."""
    lowercase: bool = False
    """Whether case is ignored."""

    example = Example(
        SUMMARY,
        environment="the extra `text`",
        recorded=("0.8642", "0.3858", "0.0786"),
    )

    def check(self) -> None:
        """Raise MissingExtra when sacrebleu is absent."""
        sacrebleu_metrics("chrf")

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Let sacrebleu score the answer."""
        metric = _metric(self.char_order, self.word_order, self.beta, self.lowercase)
        found = metric.sentence_score(answer_text(sample), references_of(sample, self.name))
        return one_score(self.name, min(found.score / 100, 1.0))


@lru_cache(maxsize=32)
def _metric(char_order: int, word_order: int, beta: int, lowercase: bool) -> Any:
    return sacrebleu_metrics("chrf").CHRF(char_order=char_order, word_order=word_order, beta=beta, lowercase=lowercase)
