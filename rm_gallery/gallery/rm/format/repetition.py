"""A penalty for n-grams that come again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import EMPTY_IS_BEST, Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.gallery.rm.rule import RuleReward, TokenizerSetting, answer_text, one_score, tokens_of

Scope = Literal["full", "thought"]


@RewardRegistry.register("ngram_repetition_penalty")
class NgramRepetitionPenaltyReward(RuleReward):
    """Penalty by the rate of repeated n-grams, rate = 1 - distinct n-grams / all n-grams; never below `max_penalty`.

    Hard (default): -(rate - `penalty_threshold`) x `penalty_rate` above the threshold, else 0. Soft: `max_penalty` x
    (rate - `min_scaling`) / (1 - `min_scaling`) above `min_scaling`, else 0; with its defaults this is TRL's
    `get_repetition_penalty_reward`, which counts token ids: give your model's tokenizer for it. A text shorter than n
    tokens gets 0. `analyze_scope="thought"` looks at the thought alone. Range [-1, 0], higher is better. Source: the
    repetition penalty of arXiv 2502.03373, appendix C.2, on the whole text instead of per token.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (-1.0, 0.0)

    name: str = "ngram_repetition_penalty"
    n: int = Field(default=3, ge=1)
    """Length of the n-grams."""
    penalty_threshold: float = Field(default=0.3, ge=0, le=1)
    penalty_rate: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    use_soft_penalty: bool = False
    """Whether the soft rule is taken instead of the hard one."""
    max_penalty: float = Field(default=-1.0, ge=-1, le=0)
    min_scaling: float = Field(default=0.0, ge=0, lt=1)
    tokenizer: TokenizerSetting = Field(default="words", repr=False)
    """What the n-grams are made of: a built-in tokenizer's name, a function, or an object with `encode`."""
    analyze_scope: Scope = "full"

    example = Example(
        sample_of("Tell me about the sea.", "The sea is wide, deep and never quite still.", "the sea is wide " * 4),
        use=EMPTY_IS_BEST,
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Count the n-grams."""
        text = answer_text(sample)
        if self.analyze_scope == "thought":
            text = sample.output[0].answer.reasoning_content or split_reasoning(text).reasoning
        rate = repetition_rate(tokens_of(self.tokenizer or "words", text), self.n)
        penalty = self.penalty(rate)
        reason = f"{rate:.1%} of the {self.n}-grams are repetitions."
        return one_score(self.name, penalty, reason, {"repetition_rate": rate})

    def penalty(self, rate: float) -> float:
        """The penalty for a rate of repetition in [0, 1]."""
        if self.use_soft_penalty:
            scaled = max(0.0, (rate - self.min_scaling) / (1 - self.min_scaling))
            return scaled * self.max_penalty or 0.0
        return max(self.max_penalty, -max(0.0, rate - self.penalty_threshold) * self.penalty_rate) or 0.0


def repetition_rate(tokens: Sequence[Any], n: int) -> float:
    """Share of a text's n-grams that occurred in it before: 1 - distinct / all; 0 for fewer than `n` tokens."""
    total = len(tokens) - n + 1
    if total <= 0:
        return 0.0
    return 1 - len(set(zip(*(tokens[start:] for start in range(n)), strict=False))) / total
