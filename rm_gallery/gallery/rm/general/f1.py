"""Token overlap with the reference answer."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.tokens import TokenizerName, tokenizer
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.rule import SUMMARY, RuleReward, one_score, references_of


class Overlap(NamedTuple):
    """How much of two token lists agrees."""

    precision: float
    recall: float
    f1: float


@RewardRegistry.register("f1_score")
class F1ScoreReward(RuleReward):
    """Token F1 with the reference: 2PR / (P + R), P and R the shares of answer and reference tokens in common.

    Tokens count as often as they occur in both: "the the the cat" against "the cat" has P = 2/4. Range [0, 1], higher
    is better; with several references the best one counts; unscored without a reference. Source: the SQuAD metric
    (Rajpurkar et al. 2016, arXiv 1606.05250), equal to its script with `tokenizer="squad"`.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference"})

    name: str = "f1_score"
    tokenizer: TokenizerName = "words"

    example = Example(SUMMARY)

    def check(self) -> None:
        """Raise MissingExtra when the tokenizer's package is absent."""
        tokenizer(self.tokenizer)("")

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Count the tokens in common."""
        tokens = tokenizer(self.tokenizer)(sample.output[0].answer.text)
        best: Overlap | None = None
        for reference in references_of(sample, self.name):
            size, counts = _counted(self.tokenizer, reference)
            if size:
                found = _overlap(tokens, size, counts)
                best = found if best is None or found.f1 > best.f1 else best
        if best is None:
            raise Unscored(f"{self.name}: the reference holds no token.", reason="no_reference")
        return one_score(self.name, best.f1, None, {"precision": best.precision, "recall": best.recall})


@lru_cache(maxsize=4096)
def _counted(name: str, reference: str) -> tuple[int, dict[str, int]]:
    tokens = tokenizer(name)(reference)
    return len(tokens), dict(Counter(tokens))


def _overlap(answer: list[str], size: int, reference: dict[str, int]) -> Overlap:
    # taking tokens away one by one is faster than counting the answer's and comparing counts
    left = reference.copy()
    common = 0
    for token in answer:
        if token in left:
            count = left[token]
            if count:
                left[token] = count - 1
                common += 1
    if not common:
        return Overlap(0.0, 0.0, 0.0)
    precision, recall = common / len(answer), common / size
    return Overlap(precision, recall, 2 * precision * recall / (precision + recall))
