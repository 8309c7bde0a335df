"""How near is the answer to the reference: words, n-grams, characters, meaning."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from pydantic import NonNegativeInt, SerializeAsAny, field_validator
from rapidfuzz.distance import LCSseq

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.embeddings import BaseEmbeddings, resolve_embeddings
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.rule import RuleReward, references_of, rule
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.score import Score
from rm_gallery.core.text.canonical import is_unspaced, split_reasoning, turn_text
from rm_gallery.core.text.language import TokenizerName, words
from rm_gallery.core.text.language import tokenizer as tokenize
from rm_gallery.core.utils.errors import ConfigError, MissingExtra, Unscored
from rm_gallery.gallery.rm.bounds import Count

SUMMARY = sample_of(
    "Sum up the report in one sentence.",
    "The bridge is closed for repairs in May.",
    "In May the town will repair its old bridge.",
    "It rained all week.",
    reference="The old bridge is closed for repairs in May.",
)
"""The example of rewards that compare an answer's text with a reference's."""


class Overlap(NamedTuple):
    """Overlap of two token lists: its share of the first, of the second, and their harmonic mean."""

    precision: float
    recall: float
    f1: float


def overlap(common: int, given: int, wanted: int) -> Overlap:
    """The overlap of lists of `given` and `wanted` tokens that have `common` ones; all 0 where they
    have none.
    """
    return harmonic(common / given, common / wanted) if common else Overlap(0.0, 0.0, 0.0)


def harmonic(precision: float, recall: float) -> Overlap:
    """Precision, recall and their harmonic mean (0 where both are 0)."""
    total = precision + recall
    return Overlap(precision, recall, 2 * precision * recall / total if total else 0.0)


def _best(overlaps: Iterable[Overlap]) -> Overlap | None:
    """The overlap with the nearest of several references, the first of equals; None without one."""
    return max(overlaps, key=attrgetter("f1"), default=None)


@rule(
    "f1_score",
    source="the SQuAD metric (Rajpurkar et al. 2016, arXiv 1606.05250), equal to its script with "
    '`tokenizer="squad"`',
    example=Example(SUMMARY),
    check=lambda tokenizer: tokenize(tokenizer)(""),
)
def f1_score(
    answer: str, references: Sequence[str], *, tokenizer: TokenizerName = "words"
) -> Score[float]:
    """Token F1 with the reference: 2PR / (P + R), P and R the shares of answer and reference tokens
    in common.

    Tokens count as often as they occur in both: "the the the cat" against "the cat" has P = 2/4.
    Range [0, 1], higher is better; with several references the best one counts; unscored without a
    reference.

    >>> f1_score("the cat sat", ["the cat"]).value
    0.8
    """
    best = token_f1(answer, references, tokenizer)
    if best is None:
        raise Unscored("the reference holds no token.", reason="no_reference")
    return Score(best.f1, components={"precision": best.precision, "recall": best.recall})


def token_f1(
    text: str, references: Sequence[str], tokens: TokenizerName = "words"
) -> Overlap | None:
    """Tokens in common with the best of the references; None where they hold none."""
    given = tokenize(tokens)(text)
    counted = (_token_counts(tokens, reference) for reference in references)
    return _best(
        overlap(_in_common(given, counts), len(given), size) for size, counts in counted if size
    )


@lru_cache(maxsize=4096)
def _token_counts(name: str, reference: str) -> tuple[int, dict[str, int]]:
    tokens = tokenize(name)(reference)
    return len(tokens), dict(Counter(tokens))


def _in_common(answer: list[str], reference: dict[str, int]) -> int:
    # removing tokens one by one is faster than counting the answer's and comparing counts
    left = reference.copy()
    common = 0
    for token in answer:
        if token in left:
            count = left[token]
            if count:
                left[token] = count - 1
                common += 1
    return common


Variant = Literal["rougeL", "rouge1", "rouge2"]
Measure = Literal["fmeasure", "precision", "recall"]

_LATIN_WORDS = re.compile("[a-z0-9]+")
_OTHER_SCRIPTS = ((0x0370, 0x1DFF), (0x2C80, 0xA71F), (0xA800, 0xFF20), (0xFF5B, 0x10FFFF))


@rule(
    "rouge",
    source='Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries"',
    example=Example(SUMMARY),
)
def rouge(
    answer: str,
    references: Sequence[str],
    *,
    variant: Variant = "rougeL",
    measure: Measure = "fmeasure",
) -> Score[float]:
    """ROUGE-L F-measure of the answer against the reference, or ROUGE-1 / ROUGE-2 by `variant`.

    With LCS the longest common subsequence of words (for ROUGE-N: n-grams in common): P = LCS /
    answer words, R = LCS / reference words, F = 2PR / (P + R). Range [0, 1], higher is better; with
    several references the best F counts; unscored without a reference.

    Scores equal the `rouge-score` package without stemming for references in Latin script. For
    references in other scripts, of which that package sees nothing, words of every script count,
    and each Chinese or Japanese character is a word.

    Args:
        measure: Which of F, P and R is the score.

    >>> rouge("the cat sat", ["the cat"]).value
    0.8
    """
    best = best_rouge(answer, references, variant)
    if best is None:
        raise Unscored("the reference holds no word.", reason="no_reference")
    score = best.f1 if measure == "fmeasure" else getattr(best, measure)
    return Score(score, components={"precision": best.precision, "recall": best.recall})


def best_rouge(text: str, references: Sequence[str], variant: Variant = "rougeL") -> Overlap | None:
    """ROUGE of a text with the best of its references; None where they hold no word."""
    read = map(_reference_words, references)
    return _best(
        rouge_of(_latin_words(text) if latin else words(text), target, variant)
        for latin, target in read
        if target
    )


MOST_WORDS = 30_000
"""So many words of each text are compared in order; those behind them match nothing. The work grows
with the product, in code that lets no other thread run: 600,000 words stopped a server for minutes.
"""


def rouge_of(answer: list[str], reference: list[str], variant: Variant = "rougeL") -> Overlap:
    """ROUGE of two word lists; all 0 where one has no words (no n-grams)."""
    if variant == "rougeL":
        common = LCSseq.similarity(answer[:MOST_WORDS], reference[:MOST_WORDS])
        return overlap(common, len(answer), len(reference))
    return overlap(*ngrams_in_common(answer, reference, 2 if variant == "rouge2" else 1))


def ngrams_in_common(answer: list[str], reference: list[str], n: int) -> tuple[int, int, int]:
    """How many n-grams two token lists have in common, and how many each of them has."""
    given, wanted = ngrams(answer, n), ngrams(reference, n)
    counts = Counter(wanted)
    common = sum(
        min(count, counts[gram])
        for gram, count in Counter(filter(counts.__contains__, given)).items()
    )
    return common, len(given), len(wanted)


def ngrams(tokens: list[str], n: int) -> list[Any]:
    """Every `n` tokens in a row; of one the tokens themselves."""
    return tokens if n == 1 else list(zip(*(tokens[i:] for i in range(n)), strict=False))


def _latin_words(text: str) -> list[str]:
    # the two agree on ASCII text; the first takes a third of the time
    return words(text) if text.isascii() else _LATIN_WORDS.findall(text.lower())


@lru_cache(maxsize=4096)
def _reference_words(reference: str) -> tuple[bool, list[str]]:
    """Whether the reference is in Latin script, and its words."""
    latin = reference.isascii() or not any(
        c.isalpha() and any(low <= ord(c) <= high for low, high in _OTHER_SCRIPTS)
        for c in reference
    )
    return latin, _latin_words(reference) if latin else words(reference)


Tokenization = Literal["auto", "13a", "intl", "zh", "char", "none"]


@rule(
    "bleu",
    needs=("reference", "text"),
    source="Papineni et al. 2002; Post 2018 (arXiv 1804.08771)",
    example=Example(
        SUMMARY, environment="the extra `text`", recorded=("0.7956", "0.0998", "0.0393")
    ),
    check=lambda: sacrebleu_metrics("bleu"),
)
def bleu(
    answer: str,
    references: Sequence[str],
    *,
    tokenize: Tokenization = "auto",
    lowercase: bool = False,
) -> Score[float]:
    """Sentence BLEU of the answer against all references, divided by 100.

    sacrebleu's: up to 4-grams, exponential smoothing, effective order. `tokenize` is one of
    sacrebleu's tokenizers; "auto" takes "zh" for references in Chinese, "char" for other scripts
    without spaces, else "13a". Range [0, 1], higher is better; unscored without a reference; needs
    the extra `text`.

    Args:
        lowercase: Whether case is ignored.
    """
    chosen = tokenization_of(references[0]) if tokenize == "auto" else tokenize
    metric = _sacrebleu("BLEU", tokenize=chosen, lowercase=lowercase, effective_order=True)
    score = metric.sentence_score(answer, references)
    about = {"tokenize": chosen, "brevity_penalty": score.bp}
    return Score(min(score.score / 100, 1.0), extra=about)


def sacrebleu_metrics(used_for: str) -> Any:
    """The module sacrebleu.metrics; MissingExtra when it is absent."""
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise MissingExtra("sacrebleu", "text", f"The reward '{used_for}'") from error
    return metrics


def tokenization_of(text: str) -> str:
    """The sacrebleu tokenizer that suits a text's script."""
    unspaced = [ord(c) for c in text if is_unspaced(c)] if not text.isascii() else []
    if not unspaced:
        return "13a"
    return (
        "zh"
        if all(code >= 0x3400 or code < 0x3040 and code >= 0x3005 for code in unspaced)
        else "char"
    )


@lru_cache(maxsize=32)
def _sacrebleu(metric: str, **settings: Any) -> Any:
    return getattr(sacrebleu_metrics(metric.lower()), metric)(**settings)


@rule(
    "chrf",
    needs=("reference", "text"),
    source="Popović 2015 (chrF) and 2017 (chrF++); sacrebleu computes",
    example=Example(
        SUMMARY, environment="the extra `text`", recorded=("0.8642", "0.3858", "0.0786")
    ),
    check=lambda: sacrebleu_metrics("chrf"),
)
def chrf(
    answer: str,
    references: Sequence[str],
    *,
    char_order: Count = 6,
    word_order: NonNegativeInt = 0,
    beta: Count = 2,
    lowercase: bool = False,
) -> Score[float]:
    """The chrF of the answer against the best of its references, divided by 100: the F-score (beta
    2) of character n-grams.

    `word_order=2` makes it chrF++. White space does not count, so the score suits any script. Range
    [0, 1], higher is better; unscored without a reference; needs the extra `text`.

    Args:
        char_order: Longest character n-grams.
        beta: How many times more recall weighs than precision.
        lowercase: Whether case is ignored.
    """
    metric = _sacrebleu(
        "CHRF", char_order=char_order, word_order=word_order, beta=beta, lowercase=lowercase
    )
    return Score(min(float(metric.sentence_score(answer, references).score) / 100, 1.0))


@RewardRegistry.register("embedding_similarity")
class EmbeddingSimilarityReward(RuleReward):
    """Cosine similarity of the embeddings of answer and reference: a·b / (|a||b|).

    Range [-1, 1], higher is better: 1 is the same direction, 0 unrelated. The usual scores depend
    on the model; many never go below 0. With several references the nearest counts; an empty answer
    is 0 without a call, and a thought in <think> tags is left out. Texts are embedded one by one,
    so that a reference shared by many answers is paid for once. Unscored without a reference
    (`no_reference`) and for a vector without direction (`zero_vector`); a failed call is failed.
    Raises ConfigError without `embeddings`.
    """

    score_range = (-1.0, 1.0)
    needs = frozenset({"reference", "embeddings"})
    looks_at = frozenset({"characters"})
    name = "embedding_similarity"
    embeddings: SerializeAsAny[BaseEmbeddings] | None = None
    """The embedding model: an OpenaiEmbeddings, a model's name, or a dict of its settings."""

    example = Example(
        SUMMARY,
        params={"embeddings": "fake:"},
        note=(
            "`fake:` makes vectors of hashed words, without a network and without meaning; a real "
            "one is a model's name."
        ),
    )

    @field_validator("embeddings", mode="before")
    @classmethod
    def _resolve(cls, value: Any) -> Any:
        return resolve_embeddings(value) if isinstance(value, str | dict) else value

    def check(self) -> None:
        """Raise ConfigError without an embedding model, or when it could not be called at all."""
        self._model().check()

    def _model(self) -> BaseEmbeddings:
        if self.embeddings is None:
            raise ConfigError(
                f"{self.name} has no embedding model: pass embeddings=OpenaiEmbeddings(model=…), "
                f"or a model's name."
            )
        return self.embeddings

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        references = references_of(sample, self.name, turn_text)
        answer = split_reasoning(sample.answer_text()).final.strip()
        if not answer:
            return Score(0.0, "The answer is empty.")
        embeddings = self._model()
        replies = await asyncio.gather(
            *(embeddings.aembed([text]) for text in [answer, *references])
        )
        (given, *wanted) = [vectors[0] for vectors in replies]
        near = [cosine(given, vector) for vector in wanted]
        best = max((value for value in near if value is not None), default=None)
        if best is None:
            raise Unscored(
                f"{self.name}: the model gave a vector of zeros, which has no direction.",
                reason="zero_vector",
                cause="judge",
            )
        return Score(best, f"Cosine similarity {best:.3f} with '{embeddings.model}'.")

    def describe(self) -> dict[str, Any]:
        """What identifies this reward in a manifest; the embedding model without its secrets."""
        own = self.model_copy(update={"embeddings": None})
        settings = super(EmbeddingSimilarityReward, own).describe()
        known = None if self.embeddings is None else self.embeddings.describe()
        return {**settings, "embeddings": known}


def cosine(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Cosine of the angle between two vectors, in [-1, 1]; None when one is all zeros. Raises
    ValueError for unequal lengths.
    """
    product = math.fsum(x * y for x, y in zip(a, b, strict=True))
    size = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(y * y for y in b))
    # rounding may leave the cosine of equal vectors a hair above 1
    return None if not size else max(-1.0, min(1.0, product / size))
