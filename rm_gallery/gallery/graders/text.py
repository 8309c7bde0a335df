"""Texts: how alike two are, by nineteen algorithms, whether one matches another, and whether one is
JSON, XML or YAML.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from statistics import fmean
from typing import Any, Literal, get_args
from xml.parsers import expat

import yaml
from pydantic import Field, model_validator
from rapidfuzz import fuzz
from rapidfuzz.distance import Levenshtein

from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.score import Score
from rm_gallery.core.text.blocks import read_json
from rm_gallery.core.text.canonical import compared, fold, split_reasoning, turn_text
from rm_gallery.core.text.language import words
from rm_gallery.core.utils.errors import MissingExtra, Unscored
from rm_gallery.gallery.rm.agent import in_any_order, nearly_equal
from rm_gallery.gallery.rm.format import json_part
from rm_gallery.gallery.rm.general.match import NO_PATTERN, pattern_match
from rm_gallery.gallery.rm.general.overlap import (
    Variant,
    bleu,
    chrf,
    f1_score,
    ngrams,
    ngrams_in_common,
    overlap,
    rouge,
    rouge_of,
    sacrebleu_metrics,
)
from rm_gallery.gallery.rm.general.overlap import cosine as angle

Tokens = list[str]
Measure = Callable[[Tokens, Tokens], float]


def _four_orders(hypothesis: Tokens, reference: Tokens) -> list[tuple[int, int, int]]:
    return [ngrams_in_common(hypothesis, reference, n) for n in range(1, 5)]


def sentence_bleu(hypothesis: Tokens, reference: Tokens) -> float:
    """BLEU of one sentence over 1- to 4-grams of equal weight; an order without a match counts 0.1
    matches (method 1 of Chen and Cherry 2014). Equal to NLTK's
    `sentence_bleu(…, smoothing_function=SmoothingFunction().method1)`.
    """
    orders = _four_orders(hypothesis, reference)
    if not orders[0][0]:
        return 0.0
    logs = (math.log((matched or 0.1) / (made or 1)) for matched, made, _ in orders)
    brevity = min(0.0, 1 - len(reference) / len(hypothesis))
    return math.exp(brevity + fmean(logs))


def gleu(hypothesis: Tokens, reference: Tokens) -> float:
    """Google BLEU (Wu et al. 2016): the lower of precision and recall of all 1- to 4-grams. Equal
    to NLTK's.
    """
    matched, made, wanted = map(sum, zip(*_four_orders(hypothesis, reference), strict=True))
    return matched / max(made, wanted, 1)


def meteor(hypothesis: Tokens, reference: Tokens, stem: Callable[[str], str] = str) -> float:
    """METEOR (Banerjee and Lavie 2005) with exact and stem matches, alpha 0.9, beta 3, gamma 0.5;
    without WordNet's synonyms, which would have to be downloaded. Equal to NLTK's with an empty
    WordNet.
    """
    partners: dict[int, int] = {}
    for form in (str, stem):
        taken, free = set(partners.values()), defaultdict[str, list[int]](list)
        for j, word in enumerate(reference):
            if j not in taken:
                free[form(word)].append(j)
        for i in reversed(range(len(hypothesis))):  # from the end, each with the last that is free
            if i not in partners and (places := free[form(hypothesis[i])]):
                partners[i] = places.pop()
    if not partners:
        return 0.0
    found = len(partners)
    mean = found / (0.9 * len(reference) + 0.1 * len(hypothesis))
    chunks = sum(partners.get(i - 1) != j - 1 for i, j in partners.items())
    return (1 - 0.5 * (chunks / found) ** 3) * mean


def _ngram_f(hypothesis: Tokens, reference: Tokens, n: int = 1) -> float:
    # texts without a word are not alike for that: equal ones never come here, and "+" is not "-"
    return overlap(*ngrams_in_common(hypothesis, reference, n)).f1


def _rouge(
    hypothesis: Tokens, reference: Tokens, variants: Sequence[Variant] = ("rougeL",)
) -> float:
    return fmean(rouge_of(hypothesis, reference, variant).f1 for variant in variants)


def jaccard(own: set[str], other: set[str]) -> float:
    """The share of all words of two texts that both have; 0 where neither has one."""
    return len(own & other) / max(1, len(own | other))


_IDF_OF_ONE = 1 + math.log(3 / 2)
"""Of a term in one of two texts; that of a term in both is 1."""


def cosine(hypothesis: Tokens, reference: Tokens) -> float:
    """Cosine of the TF-IDF vectors of 1- and 2-grams, with scikit-learn's smoothed IDF over just
    the two texts.
    """
    own, other = (Counter(ngrams(t, 1) + ngrams(t, 2)) for t in (hypothesis, reference))
    weights = {term: 1.0 if term in own and term in other else _IDF_OF_ONE for term in own | other}
    vectors = ([side[term] * weight for term, weight in weights.items()] for side in (own, other))
    return angle(*vectors) or 0.0


LONG = 1e7
"""Steps beyond which texts are compared in a process that can be killed: no thread can be stopped
in the midst of it.
"""


async def killable(grader: BaseGrader, function: Callable[..., Any], *given: Any) -> Any:
    """What a function makes of something in a worker process, which is killed at the grader's
    deadline.
    """
    from rm_gallery.core.engine.pool import get_pool

    return await get_pool().asubmit(function, *given, deadline=grader.deadline)


@cache
def _stemmer() -> Callable[[str], str]:
    try:
        from nltk.stem.porter import PorterStemmer
    except ImportError as error:
        raise MissingExtra("nltk", "text", "Stemming") from error
    return lru_cache(maxsize=65536)(PorterStemmer().stem)


ON_TOKENS: dict[str, Measure] = {
    "cosine": cosine,
    "f1_score": _ngram_f,
    "gleu": gleu,
    "jaccard": lambda hypothesis, reference: jaccard(set(hypothesis), set(reference)),
    "meteor": lambda hypothesis, reference: meteor(hypothesis, reference, _stemmer()),
    "rouge": _rouge,
    "rougeL": _rouge,
    "rouge_mean": partial(_rouge, variants=get_args(Variant)),
    "sentence_bleu": sentence_bleu,
    "token_f1": _ngram_f,
    **{f"rouge{n}": partial(_ngram_f, n=n) for n in range(1, 6)},
}
BY_SACREBLEU = ("bleu", "chrf")
REWARDS: dict[str, Callable[[str, Sequence[str]], Score[float]]] = {
    "bleu": bleu,
    "chrf": chrf,
    "f1_score": f1_score,
    "rouge": rouge,
    "token_f1": f1_score,
    **{variant: partial(rouge, variant=variant) for variant in get_args(Variant)},
}
FUZZY = {
    "ratio": fuzz.ratio,
    "partial": fuzz.partial_ratio,
    "token_sort": fuzz.token_sort_ratio,
}
ALGORITHMS = tuple(sorted({*ON_TOKENS, *REWARDS, "rouge_ngram", "fuzzy_match", "edit_distance"}))


class SimilarityGrader(BaseGrader):
    """How alike a response and its reference are, by `algorithm`.

    Fields: `response`, `reference_response` (a text, or several of which the best counts). Range
    [0, 1], 1 is equal. What is called like a reward (bleu, chrf, rouge, f1_score) is what that
    reward gives by default, unless the texts are equal. Elsewhere, and with `case_sensitive` or
    `stem`, words are runs of letters and digits, each character of an unspaced script by itself.
    Two empty texts are equal; one empty text is not like any other, nor are two different ones
    without a word ("+", "-") in the algorithms over words. Algorithms: bleu and chrf (sacrebleu,
    sentence level), sentence_bleu and gleu (NLTK's), meteor (exact and stem matches), rouge1 to
    rouge5, rougeL = rouge, rouge_mean (of 1, 2 and L), rouge_ngram (`n`), f1_score = token_f1,
    fuzzy_match (Levenshtein ratio, or `partial`, `token_sort`), edit_distance, cosine, jaccard.
    """

    algorithm: str = "bleu"
    case_sensitive: bool | None = None
    """Whether case counts; None as the algorithm is defined, which is so for bleu and chrf alone.
    """
    stem: bool = False
    """Whether English words are stemmed first (Porter), in the algorithms over words; meteor always
    stems.
    """
    n: int = Field(default=2, ge=1, le=10)
    """Words in a row, of `rouge_ngram`."""
    method: Literal["ratio", "partial", "token_sort"] = "ratio"
    """Of `fuzzy_match`."""

    @model_validator(mode="after")
    def _known(self) -> SimilarityGrader:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(
                f"algorithm is {self.algorithm!r}; it is one of {', '.join(ALGORITHMS)}"
            )
        return self

    def check(self) -> None:
        """Raise MissingExtra when the package of the algorithm is absent."""
        if self.algorithm in BY_SACREBLEU:
            sacrebleu_metrics(self.algorithm)
        if self.stem or self.algorithm == "meteor":
            _stemmer()

    def _grade(self, response: str, reference_response: Any) -> Any:
        given = [reference_response] if isinstance(reference_response, str) else reference_response
        if not isinstance(given, (list, tuple)) or not given:
            raise Unscored(f"{self.name} needs a reference response.", reason="no_reference")
        own = fold(split_reasoning(str(response)).final).strip()
        references = [compared(str(one)) for one in given]
        if sum(self._steps(len(own), len(other)) for other in references) > LONG:
            return killable(self, SimilarityGrader._best_score, self, own, references)
        return self._best_score(own, references)

    def _steps(self, own: int, other: int) -> float:
        """About how many steps the algorithm takes for texts of these lengths."""
        moved = self.algorithm == "fuzzy_match" and self.method == "partial"
        return own * other / 64 * (min(own, other) if moved else 1)

    def _best_score(self, response: str, references: Sequence[str]) -> Score[float]:
        # a reward reads case in its own way
        cased = self.algorithm in REWARDS if self.case_sensitive is None else self.case_sensitive
        own, *others = (t if cased else t.casefold() for t in (response, *references))
        score = 1.0 if own in others else self._alike(own, others) if own else 0.0
        return Score(score, extra={"algorithm": self.algorithm})

    def _alike(self, own: str, others: Sequence[str]) -> float:
        by_default = self.case_sensitive is None and not self.stem
        if self.algorithm in (REWARDS if by_default else BY_SACREBLEU):
            with suppress(Unscored):  # a reward that finds no word in the references
                return REWARDS[self.algorithm](own, others).value or 0.0
        return max(self._alike_one(own, other) for other in others)

    def _alike_one(self, own: str, other: str) -> float:
        stem, cased = _stemmer() if self.stem else str, bool(self.case_sensitive)
        match self.algorithm:
            case "edit_distance":
                return Levenshtein.normalized_similarity(own, other)
            case "fuzzy_match":
                return FUZZY[self.method](own, other) / 100
            case "rouge_ngram":
                measure: Measure = partial(_ngram_f, n=self.n)
            case name:
                measure = ON_TOKENS[name]
        return measure(*(list(map(stem, words(text, cased))) for text in (own, other)))


def _search_here(pattern: str, text: str, case_sensitive: bool) -> bool | str:
    """Whether the pattern is in the text, or why it is no pattern."""
    try:
        flags = 0 if case_sensitive else re.IGNORECASE
        return pattern_match(turn_text(pattern), text, flags) is not None
    except NO_PATTERN as error:
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


def _recall(own: Any, other: Any) -> float:
    """The share of what stands in `other` that `own` has too, word by word or character by character."""
    return overlap(*ngrams_in_common(own, other, 1)).recall


MATCHES: dict[str, Callable[[str, str], float]] = {
    "exact_match": operator.eq,
    "prefix_match": str.startswith,
    "suffix_match": str.endswith,
    "substring_match": operator.contains,
    "char_overlap": _recall,
    "word_overlap": lambda own, other: _recall(words(own), words(other)),
}
OF_SUBSTRINGS: dict[str, Callable[[list[bool]], float]] = {
    "contains_all": fmean,
    "contains_any": any,
}


class StringMatchGrader(BaseGrader):
    """Whether a response matches its reference, by `algorithm`.

    Fields: `response`; `reference_response`, which is not needed where `pattern` or `substrings`
    are given. Range [0, 1]: exact_match, prefix_match, suffix_match, substring_match, regex_match
    and contains_any give 0 or 1, contains_all the share of `substrings` found, word_overlap and
    char_overlap the share of the reference's words or characters found, each as often as it stands
    there. An empty reference matches only an empty response.
    """

    algorithm: Match = "exact_match"
    case_sensitive: bool = False
    ignore_whitespace: bool = False
    pattern: str | None = None
    substrings: list[str] = []
    bidirectional: bool = False
    """Whether substring_match also takes a response that stands inside the reference."""

    @model_validator(mode="after")
    def _complete(self) -> StringMatchGrader:
        if self.algorithm in OF_SUBSTRINGS and not any(self.substrings):
            raise ValueError(f"{self.algorithm} needs substrings, texts that are not empty")
        found = _search_here(self.pattern or "", "", self.case_sensitive)
        if isinstance(found, str):
            raise ValueError(f"pattern is no regular expression: {found}")
        return self

    @property
    def inputs(self) -> dict[str, bool]:
        """`reference_response` is needed unless the settings stand for it."""
        stands = self.pattern is not None or bool(self.substrings)
        return {"response": True, "reference_response": not stands}

    def _plain(self, text: str) -> str:
        text = fold(turn_text(text))
        text = text if self.case_sensitive else text.casefold()
        return "".join(text.split()) if self.ignore_whitespace else text

    def _grade(self, response: str, reference_response: Any = None) -> Any:
        own = split_reasoning(str(response)).final
        other = "" if reference_response is None else str(reference_response)
        if self.algorithm == "regex_match":
            return self._searched(other if self.pattern is None else self.pattern, own)
        score = self._score(self._plain(own), self._plain(other))
        return {"score": score, "algorithm": self.algorithm}

    async def _searched(self, pattern: str, response: str) -> dict[str, Any]:
        """A pattern may stand in the data, and one can take for ever without letting go of the
        interpreter.
        """
        match = await killable(self, _search_here, pattern, response, self.case_sensitive)
        if isinstance(match, str):
            raise Unscored(
                f"{self.name}: the reference is no regular expression: {match}",
                reason="invalid_pattern",
            )
        return {"score": float(match), "algorithm": self.algorithm}

    def _score(self, own: str, other: str) -> float:
        if of_all := OF_SUBSTRINGS.get(self.algorithm):
            return float(of_all([self._plain(text) in own for text in self.substrings if text]))
        if not own or not other:
            return float(own == other)
        if self.bidirectional and self.algorithm == "substring_match" and own in other:
            return 1.0
        return float(MATCHES[self.algorithm](own, other))


MOST = 1_000_000
"""Characters of a response that are read, at most."""
DEEPEST = 200
"""Levels of YAML that are read, at most."""
_ABSENT = object()


class JsonValidatorGrader(BaseGrader):
    """1 when the response is JSON and nothing else, else 0; `allow_fence` also takes it in one
    fenced block.

    Field: `response`. NaN, Infinity, comments and trailing commas are no JSON. For a schema see
    `json_schema`.
    """

    name: str = "json_validator"
    allow_fence: bool = True

    def _grade(self, response: str) -> Score[float]:
        return _well_formed("json", response, self.allow_fence)


class JsonMatchGrader(BaseGrader):
    """Whether the response is the reference's JSON.

    Fields: `response`; `reference_response` (JSON text or a value). 1 when both are equal, else 0;
    with `partial` the share of the reference's values found at their places. Objects are compared
    whatever the order of their keys; a key that is missing is not one that is null; true is not 1,
    while 1 is 1.0. `strict_order` compares lists place by place, else as bags. `ignore_extra_keys`
    passes over keys that the reference does not have. A response that is no JSON is 0, a reference
    that is none leaves the row unscored.
    """

    name: str = "json_match"
    strict_order: bool = True
    ignore_extra_keys: bool = False
    partial: bool = False
    allow_fence: bool = True

    def _grade(self, response: str, reference_response: Any) -> Score[float]:
        wanted = reference_response
        try:
            wanted = read_json(wanted) if isinstance(wanted, str) else wanted
        except ValueError as error:
            raise Unscored(
                f"{self.name}: the reference is no JSON: {error}", reason="no_reference"
            ) from error
        try:
            given = read_json(json_part(str(response), self.allow_fence)[:MOST])
        except ValueError as error:
            return Score(0.0, f"No JSON: {error}")
        if not self.partial:
            return Score(float(self._same(given, wanted)))
        found = list(self._places_found(given, wanted))
        return Score(fmean(found), f"{sum(found)} of {len(found)} values.")

    def _same(self, given: Any, wanted: Any) -> bool:
        match given, wanted:
            case (bool() | None, _) | (_, bool() | None):
                return given is wanted
            case str(), str():
                return fold(given) == fold(wanted)
            case int(), int():
                return given == wanted
            case int() | float(), int() | float():
                return nearly_equal(given, wanted, 1e-12)
            case dict(), dict():
                keys = given.keys() & wanted.keys() if self.ignore_extra_keys else given.keys()
                return keys == wanted.keys() and all(
                    self._same(given[key], wanted[key]) for key in keys
                )
            case list(), list():
                return len(given) == len(wanted) and self._same_items(given, wanted)
        return False

    def _same_items(self, given: list[Any], wanted: list[Any]) -> bool:
        if self.strict_order or not wanted:
            return all(map(self._same, given, wanted))
        # as they are written: to try all with all takes time by the square
        if len(wanted) > 300:
            one, other = (
                sorted(json.dumps(item, sort_keys=True) for item in items)
                for items in (given, wanted)
            )
            return one == other
        # the first fit is not always the right one
        fits = [[self._same(one, other) for other in wanted] for one in given]
        return in_any_order(fits) == len(wanted)

    def _places_found(self, given: Any, wanted: Any) -> Iterator[bool]:
        """Of each value of the reference whether it is found at its place."""
        places = _by_place(wanted)
        if not places:
            yield self._same(given, wanted)
        own = _by_place(given) if isinstance(given, type(wanted)) else {}
        for place, value in places.items():
            yield from self._places_found(own.get(place, _ABSENT), value)


def _by_place(value: Any) -> dict[Any, Any]:
    """What a list or an object holds, by its place."""
    if isinstance(value, list):
        return dict(enumerate(value))
    return value if isinstance(value, dict) else {}


class MarkupValidatorGrader(BaseGrader):
    """1 when the response is well-formed XML, or YAML that is a mapping or list, else 0;
    `allow_fence` takes a fenced block.

    Field: `response`. XML with a document type is refused: its entities could blow up. YAML tags
    make no objects.
    """

    name: str = "markup_validator"
    markup: Literal["xml", "yaml"] = "xml"
    allow_fence: bool = True

    def _grade(self, response: str) -> Score[float]:
        return _well_formed(self.markup, response, self.allow_fence)


def _parse_xml(text: str) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("a document type is not allowed")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(text.encode("utf-8", "replace"), True)


def _yaml_problem(text: str) -> str:
    """What keeps a text that YAML's parser takes from being a mapping or a list; empty for nothing."""
    kinds, depth = list[type[yaml.Event]](), 0
    # events alone: aliases are not expanded and tags make nothing
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        kinds.append(type(event))
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:  # the parser's time grows with the square of the depth
            return f"No YAML that is read: nested more than {DEEPEST} deep."
    # behind the starts of the stream and of the document
    if kinds[2:] and issubclass(kinds[2], yaml.CollectionStartEvent):
        return ""
    return "No mapping or list, only plain text."


_READERS = {"json": read_json, "xml": _parse_xml}


def _well_formed(markup: str, response: Any, allow_fence: bool) -> Score[float]:
    text, problem = json_part(str(response), allow_fence)[:MOST], ""
    try:
        if markup == "yaml":
            problem = _yaml_problem(text)
        else:
            _READERS[markup](text)
    except (ValueError, RecursionError, expat.ExpatError, yaml.YAMLError) as error:
        problem = f"No {markup.upper()}: {str(error).splitlines()[0]}"
    return Score(float(not problem), problem or f"{markup.upper()}.")
