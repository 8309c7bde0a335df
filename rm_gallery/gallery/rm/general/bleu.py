"""BLEU with the reference answer, through sacrebleu."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Literal

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.tokens import is_unspaced
from rm_gallery.core.utils.errors import MissingExtra
from rm_gallery.gallery.rm.rule import SUMMARY, RuleReward, answer_text, one_score, references_of

Tokenization = Literal["auto", "13a", "intl", "zh", "char", "none"]


@RewardRegistry.register("bleu")
class BleuReward(RuleReward):
    """Sentence BLEU of the answer against all references, divided by 100.

    sacrebleu's: up to 4-grams, exponential smoothing, effective order. `tokenize` is one of sacrebleu's tokenizers;
    "auto" takes "zh" for references in Chinese, "char" for other scripts without spaces, else "13a". Range [0, 1],
    higher is better; unscored without a reference; needs the extra `text`. Sources: Papineni et al. 2002; Post 2018
    (arXiv 1804.08771).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference", "text"})

    name: str = "bleu"
    tokenize: Tokenization = "auto"
    lowercase: bool = False
    """Whether case is ignored."""

    example = Example(
        SUMMARY,
        environment="the extra `text`",
        recorded=("0.7956", "0.0998", "0.0393"),
    )

    def check(self) -> None:
        """Raise MissingExtra when sacrebleu is absent."""
        sacrebleu_metrics("bleu")

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Let sacrebleu score the answer."""
        references = references_of(sample, self.name)
        chosen = tokenization_of(references[0]) if self.tokenize == "auto" else self.tokenize
        found = _metric(chosen, self.lowercase).sentence_score(answer_text(sample), references)
        extra = {"tokenize": chosen, "brevity_penalty": found.bp}
        return one_score(self.name, min(found.score / 100, 1.0), None, extra)


def sacrebleu_metrics(used_for: str) -> Any:
    """The module sacrebleu.metrics; MissingExtra when it is absent."""
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise MissingExtra("sacrebleu", "text", f"The reward '{used_for}'") from error
    return metrics


def tokenization_of(text: str) -> str:
    """The sacrebleu tokenizer that suits a text's script."""
    unspaced = [ord(c) for c in text if is_unspaced(ord(c))] if not text.isascii() else []
    if not unspaced:
        return "13a"
    return "zh" if all(code >= 0x3400 or code < 0x3040 and code >= 0x3005 for code in unspaced) else "char"


@lru_cache(maxsize=32)
def _metric(tokenize: str, lowercase: bool) -> Any:
    return sacrebleu_metrics("bleu").BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=True)
