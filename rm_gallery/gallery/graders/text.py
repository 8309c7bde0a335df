"""Text measures: how alike two texts are, by nineteen algorithms, and whether one text matches another."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Literal

from pydantic import Field, model_validator
from rapidfuzz import fuzz
from rapidfuzz.distance import LCSseq, Levenshtein

from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.graders.result import GraderScore
from rm_gallery.core.text.language import tokenizer, words
from rm_gallery.core.utils.errors import MissingExtra, Unscored
from rm_gallery.gallery.rm.general.overlap import sacrebleu_metrics, tokenization_of

Tokens = Sequence[str]


def _counted(tokens: Tokens, n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


def _f(common: float, given: int, wanted: int) -> float:
    # texts without a word are not alike for that: equal ones never come here, and "+" is not "-"
    return 2 * common / (given + wanted) if given + wanted else 0.0


def sentence_bleu(hypothesis: Tokens, reference: Tokens) -> float:
    """BLEU of one sentence over 1- to 4-grams of equal weight; an order without a match counts 0.1 matches (method 1 of Chen
    and Cherry 2014). Equal to NLTK's `sentence_bleu(…, smoothing_function=SmoothingFunction().method1)`.
    """
    if not hypothesis or not set(hypothesis) & set(reference):
        return 0.0
    logs = []
    for n in range(1, 5):
        made = _counted(hypothesis, n)
        matched = sum((made & _counted(reference, n)).values())
        logs.append(math.log((matched or 0.1) / max(1, sum(made.values()))))
    brevity = 1.0 if len(hypothesis) > len(reference) else math.exp(1 - len(reference) / len(hypothesis))
    return brevity * math.exp(math.fsum(logs) / 4)


def gleu(hypothesis: Tokens, reference: Tokens) -> float:
    """Google BLEU (Wu et al. 2016): the lower of precision and recall of all 1- to 4-grams. Equal to NLTK's."""
    matched = made = wanted = 0
    for n in range(1, 5):
        own, other = _counted(hypothesis, n), _counted(reference, n)
        matched += sum((own & other).values())
        made += sum(own.values())
        wanted += sum(other.values())
    return matched / max(made, wanted) if made and wanted else 0.0


def meteor(hypothesis: Tokens, reference: Tokens, stem: Callable[[str], str] = lambda word: word) -> float:
    """METEOR (Banerjee and Lavie 2005) with exact and stem matches, alpha 0.9, beta 3, gamma 0.5; without WordNet's synonyms,
    which would have to be downloaded. Equal to NLTK's with an empty WordNet.
    """
    pairs: list[tuple[int, int]] = []
    left, right = set(range(len(hypothesis))), set(range(len(reference)))
    for form in (lambda word: word, stem):
        free: dict[str, list[int]] = {}
        for j in sorted(right):
            free.setdefault(form(reference[j]), []).append(j)
        for i in sorted(left, reverse=True):  # from the end, each with the last that is free
            if places := free.get(form(hypothesis[i])):
                pairs.append((i, places.pop()))
        left -= {i for i, _ in pairs}
        right -= {j for _, j in pairs}
    if not pairs:
        return 0.0
    pairs.sort()
    precision, recall = len(pairs) / len(hypothesis), len(pairs) / len(reference)
    mean = precision * recall / (0.9 * precision + 0.1 * recall)
    chunks = 1 + sum(b != (a[0] + 1, a[1] + 1) for a, b in zip(pairs, pairs[1:], strict=False))
    return (1 - 0.5 * (chunks / len(pairs)) ** 3) * mean


def _ngram_f(hypothesis: Tokens, reference: Tokens, n: int) -> float:
    own, other = _counted(hypothesis, n), _counted(reference, n)
    return _f(sum((own & other).values()), sum(own.values()), sum(other.values())) if own and other else 0.0


def _rouge_l(hypothesis: Tokens, reference: Tokens) -> float:
    common = LCSseq.similarity(hypothesis, reference)
    return _f(common, len(hypothesis), len(reference)) if hypothesis and reference else 0.0


def _mean_rouge(hypothesis: Tokens, reference: Tokens) -> float:
    parts = (_ngram_f(hypothesis, reference, 1), _ngram_f(hypothesis, reference, 2), _rouge_l(hypothesis, reference))
    return math.fsum(parts) / 3


def _jaccard(hypothesis: Tokens, reference: Tokens) -> float:
    own, other = set(hypothesis), set(reference)
    return len(own & other) / len(own | other) if own or other else 0.0


def _token_f1(hypothesis: Tokens, reference: Tokens) -> float:
    common = sum((Counter(hypothesis) & Counter(reference)).values())
    return _f(common, len(hypothesis), len(reference))


def cosine(hypothesis: Tokens, reference: Tokens) -> float:
    """Cosine of the TF-IDF vectors of 1- and 2-grams, with scikit-learn's smoothed IDF over just the two texts."""
    own, other = (_counted(t, 1) + _counted(t, 2) for t in (hypothesis, reference))
    if not own or not other:
        return 0.0

    def weight(term: Any) -> float:
        return math.log(3 / (1 + (term in own) + (term in other))) + 1

    dot = math.fsum(own[term] * other[term] * weight(term) ** 2 for term in own.keys() & other.keys())
    lengths = [math.sqrt(math.fsum((n * weight(term)) ** 2 for term, n in side.items())) for side in (own, other)]
    return min(1.0, dot / (lengths[0] * lengths[1]))


LONG = 1e7
"""Steps beyond which texts are compared in a process that can be killed: no thread can be stopped in the midst of it."""


async def killable(grader: BaseGrader, function: Callable[..., Any], *given: Any) -> Any:
    """What a function makes of something in a worker process, which is killed at the grader's deadline."""
    from rm_gallery.core.engine.processes.pool import get_pool

    return await get_pool().asubmit(function, *given, deadline=grader.deadline)


ON_TOKENS: dict[str, Callable[[Tokens, Tokens], float]] = {
    "sentence_bleu": sentence_bleu,
    "gleu": gleu,
    "rouge": _mean_rouge,
    "rouge_ngram": partial(_ngram_f, n=2),
    **{f"rouge{n}": partial(_ngram_f, n=n) for n in (1, 2, 3, 4, 5)},
    "rougeL": _rouge_l,
    "f1_score": _token_f1,
    "token_f1": _token_f1,
    "cosine": cosine,
    "jaccard": _jaccard,
}
OTHERS = ("bleu", "chrf", "meteor", "fuzzy_match", "edit_distance")
ALGORITHMS = tuple(sorted((*ON_TOKENS, *OTHERS)))


@lru_cache(maxsize=8)
def _stemmer() -> Callable[[str], str]:
    try:
        from nltk.stem.porter import PorterStemmer
    except ImportError as error:
        raise MissingExtra("nltk", "text", "Stemming") from error
    return lru_cache(maxsize=65536)(PorterStemmer().stem)


class SimilarityGrader(BaseGrader):
    """How alike a response and its reference are, by `algorithm`.

    Fields: `response`, `reference_response` (a text, or several of which the best counts). Range [0, 1], 1 is equal. Case
    counts only with `case_sensitive`; words are runs of letters and digits, each character of an unspaced script by itself.
    Two empty texts are equal; one empty text is not like any other, nor are two different ones without a word ("+", "-") in the
    algorithms over words. Algorithms: bleu and chrf (sacrebleu, sentence level),
    sentence_bleu and gleu (NLTK's), meteor (exact and stem matches), rouge1 to rouge5, rougeL, rouge (mean of 1, 2 and L),
    rouge_ngram (`n`), f1_score = token_f1, fuzzy_match (Levenshtein ratio, or `partial`, `token_sort`), edit_distance, cosine,
    jaccard.
    """

    algorithm: str = "bleu"
    case_sensitive: bool = False
    stem: bool = False
    """Whether English words are stemmed first (Porter), in the algorithms over words; meteor always stems."""
    n: int = Field(default=2, ge=1, le=10)
    """Words in a row, of `rouge_ngram`."""
    method: Literal["ratio", "partial", "token_sort"] = "ratio"
    """Of `fuzzy_match`."""

    @model_validator(mode="after")
    def _known(self) -> SimilarityGrader:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm is {self.algorithm!r}; it is one of {', '.join(ALGORITHMS)}")
        return self

    def check(self) -> None:
        """Raise MissingExtra when the package of the algorithm is absent."""
        if self.algorithm in ("bleu", "chrf"):
            sacrebleu_metrics(self.algorithm)
        if self.stem or self.algorithm == "meteor":
            _stemmer()

    def _grade(self, response: str, reference_response: Any) -> Any:
        given = [reference_response] if isinstance(reference_response, str) else reference_response
        if not isinstance(given, (list, tuple)) or not given:
            raise Unscored(f"{self.name} needs a reference response.", reason="no_reference")
        own, references = str(response), list(map(str, given))
        if sum(self._steps(len(own), len(other)) for other in references) > LONG:
            return killable(self, SimilarityGrader._best, self, own, references)
        return self._best(own, references)

    def _best(self, response: str, references: Sequence[str]) -> GraderScore:
        score = max(self._alike(response, reference) for reference in references)
        return GraderScore(score=min(1.0, max(0.0, score)), metadata={"algorithm": self.algorithm}, **self.about())

    def _steps(self, own: int, other: int) -> float:
        """About how many steps the algorithm takes for texts of these lengths."""
        if self.algorithm == "fuzzy_match" and self.method == "partial":
            return min(own, other) ** 2 * max(own, other) / 64
        return own * other / 64

    def _alike(self, response: str, reference: str) -> float:
        own, other = (text if self.case_sensitive else text.casefold() for text in (response, reference))
        if own == other:
            return 1.0
        if not own.strip() or not other.strip():
            return 0.0
        if self.algorithm == "edit_distance":
            return Levenshtein.normalized_similarity(own, other)
        if self.algorithm == "fuzzy_match":
            measure = {"ratio": fuzz.ratio, "partial": fuzz.partial_ratio, "token_sort": fuzz.token_sort_ratio}
            return measure[self.method](own, other) / 100
        if self.algorithm == "bleu":
            return float(_bleu(tokenization_of(other)).sentence_score(own, [other]).score) / 100
        if self.algorithm == "chrf":
            return float(_chrf().sentence_score(own, [other]).score) / 100
        split = tokenizer("words") if not self.case_sensitive else _cased_words
        tokens, wanted = list(split(own)), list(split(other))
        if self.stem:
            tokens, wanted = list(map(_stemmer(), tokens)), list(map(_stemmer(), wanted))
        if self.algorithm == "meteor":
            return meteor(tokens, wanted, _stemmer())
        if self.algorithm == "rouge_ngram":
            return _ngram_f(tokens, wanted, self.n)
        return ON_TOKENS[self.algorithm](tokens, wanted)


def _cased_words(text: str) -> list[str]:
    lower, found, at = words(text), [], 0
    folded = text.lower()
    for word in lower:
        at = max(at, folded.find(word, at))
        found.append(text[at : at + len(word)])
        at += len(word)
    return found


@lru_cache(maxsize=8)
def _bleu(tokenize: str) -> Any:
    return sacrebleu_metrics("bleu").BLEU(tokenize=tokenize, effective_order=True)


@lru_cache(maxsize=1)
def _chrf() -> Any:
    return sacrebleu_metrics("chrf").CHRF()


_NO_PATTERN = (re.error, OverflowError, RecursionError)


def _found(pattern: str, text: str, case_sensitive: bool) -> bool | str:
    """Whether the pattern is in the text, or why it is no pattern."""
    try:
        return re.search(pattern, text, re.RegexFlag(0) if case_sensitive else re.IGNORECASE) is not None
    except _NO_PATTERN as error:
        return str(error)


Match = Literal[
    "exact_match",
    "prefix_match",
    "suffix_match",
    "regex_match",
    "substring_match",
    "contains_all",
    "contains_any",
    "word_overlap",
    "char_overlap",
]


class StringMatchGrader(BaseGrader):
    """Whether a response matches its reference, by `algorithm`.

    Fields: `response`; `reference_response`, which is not needed where `pattern` or `substrings` are given. Range [0, 1]:
    exact_match, prefix_match, suffix_match, substring_match, regex_match and contains_any give 0 or 1, contains_all the share
    of `substrings` found, word_overlap and char_overlap the share of the reference's words or characters found, each as often
    as it stands there. An empty reference matches only an empty response.
    """

    algorithm: Match = "exact_match"
    case_sensitive: bool = False
    ignore_whitespace: bool = False
    pattern: str | None = None
    substrings: list[str] = Field(default_factory=list)
    bidirectional: bool = False
    """Whether substring_match also takes a response that stands inside the reference."""

    @model_validator(mode="after")
    def _complete(self) -> StringMatchGrader:
        if self.algorithm in ("contains_all", "contains_any") and not [s for s in self.substrings if s]:
            raise ValueError(f"{self.algorithm} needs substrings, texts that are not empty")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except _NO_PATTERN as error:
                raise ValueError(f"pattern is no regular expression: {error}") from error
        return self

    @property
    def inputs(self) -> dict[str, bool]:
        """`reference_response` is needed unless the settings stand for it."""
        stands = self.pattern is not None or bool(self.substrings)
        return {"response": True, "reference_response": not stands}

    def _plain(self, text: str) -> str:
        text = text if self.case_sensitive else text.casefold()
        return "".join(text.split()) if self.ignore_whitespace else text

    def _grade(self, response: str, reference_response: Any = None) -> Any:
        reference = "" if reference_response is None else str(reference_response)
        if self.algorithm == "regex_match":
            return self._searched(self.pattern if self.pattern is not None else reference, str(response))
        return self._scored(self._score(self._plain(str(response)), self._plain(reference)))

    def _scored(self, score: float) -> GraderScore:
        return GraderScore(score=score, metadata={"algorithm": self.algorithm}, **self.about())

    async def _searched(self, pattern: str, response: str) -> GraderScore:
        """A pattern may stand in the data, and one can take for ever without letting go of the interpreter."""
        found = await killable(self, _found, pattern, response, self.case_sensitive)
        if isinstance(found, str):
            raise Unscored(f"{self.name}: the reference is no regular expression: {found}", reason="invalid_pattern")
        return self._scored(float(found))

    def _score(self, own: str, other: str) -> float:
        if self.algorithm in ("contains_all", "contains_any"):
            found = [self._plain(text) in own for text in self.substrings if text]
            return sum(found) / len(found) if self.algorithm == "contains_all" else float(any(found))
        if not own or not other:
            return float(own == other)
        if self.algorithm in ("word_overlap", "char_overlap"):
            sides = [words(t) if self.algorithm == "word_overlap" else list(t) for t in (own, other)]
            wanted = Counter(sides[1])
            return sum((Counter(sides[0]) & wanted).values()) / wanted.total() if wanted else 0.0
        if self.algorithm == "substring_match":
            return float(other in own or (self.bidirectional and own in other))
        if self.algorithm == "exact_match":
            return float(own == other)
        return float(own.startswith(other) if self.algorithm == "prefix_match" else own.endswith(other))
