"""Texts: how alike two are, by nineteen algorithms, whether one matches another, and whether one is
JSON, XML or YAML.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Literal

from pydantic import Field, model_validator
from rapidfuzz import fuzz
from rapidfuzz.distance import Levenshtein

from rm_gallery.core.graders.base import BaseGrader, GraderScore
from rm_gallery.core.text.blocks import read_json, split_fences
from rm_gallery.core.text.canonical import compared, fold, split_reasoning, turn_text, visible
from rm_gallery.core.text.language import tokenizer, words
from rm_gallery.core.utils.errors import MissingExtra, Unscored
from rm_gallery.gallery.rm.general.overlap import (
    Overlap,
    best_rouge,
    bleu,
    chrf,
    rouge_of,
    sacrebleu_metrics,
    token_f1,
)

Tokens = Sequence[str]


def _counted(tokens: Tokens, n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


def sentence_bleu(hypothesis: Tokens, reference: Tokens) -> float:
    """BLEU of one sentence over 1- to 4-grams of equal weight; an order without a match counts 0.1
    matches (method 1 of Chen and Cherry 2014). Equal to NLTK's
    `sentence_bleu(…, smoothing_function=SmoothingFunction().method1)`.
    """
    if not hypothesis or not set(hypothesis) & set(reference):
        return 0.0
    logs = []
    for n in range(1, 5):
        made = _counted(hypothesis, n)
        matched = sum((made & _counted(reference, n)).values())
        logs.append(math.log((matched or 0.1) / max(1, sum(made.values()))))
    brevity = (
        1.0 if len(hypothesis) > len(reference) else math.exp(1 - len(reference) / len(hypothesis))
    )
    return brevity * math.exp(math.fsum(logs) / 4)


def gleu(hypothesis: Tokens, reference: Tokens) -> float:
    """Google BLEU (Wu et al. 2016): the lower of precision and recall of all 1- to 4-grams. Equal
    to NLTK's.
    """
    matched = made = wanted = 0
    for n in range(1, 5):
        own, other = _counted(hypothesis, n), _counted(reference, n)
        matched += sum((own & other).values())
        made += sum(own.values())
        wanted += sum(other.values())
    return matched / max(made, wanted) if made and wanted else 0.0


def meteor(
    hypothesis: Tokens, reference: Tokens, stem: Callable[[str], str] = lambda word: word
) -> float:
    """METEOR (Banerjee and Lavie 2005) with exact and stem matches, alpha 0.9, beta 3, gamma 0.5;
    without WordNet's synonyms, which would have to be downloaded. Equal to NLTK's with an empty
    WordNet.
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
    counted = sum(own.values()) + sum(other.values())
    # texts without a word are not alike for that: equal ones never come here, and "+" is not "-"
    return 2 * sum((own & other).values()) / counted if counted else 0.0


def _mean_rouge(hypothesis: Tokens, reference: Tokens) -> float:
    return (
        math.fsum(ON_TOKENS[name](hypothesis, reference) for name in ("rouge1", "rouge2", "rougeL"))
        / 3
    )


def _jaccard(hypothesis: Tokens, reference: Tokens) -> float:
    own, other = set(hypothesis), set(reference)
    return len(own & other) / len(own | other) if own or other else 0.0


def cosine(hypothesis: Tokens, reference: Tokens) -> float:
    """Cosine of the TF-IDF vectors of 1- and 2-grams, with scikit-learn's smoothed IDF over just
    the two texts.
    """
    own, other = (_counted(t, 1) + _counted(t, 2) for t in (hypothesis, reference))
    if not own or not other:
        return 0.0

    def weight(term: Any) -> float:
        return math.log(3 / (1 + (term in own) + (term in other))) + 1

    dot = math.fsum(
        own[term] * other[term] * weight(term) ** 2 for term in own.keys() & other.keys()
    )
    lengths = [
        math.sqrt(math.fsum((n * weight(term)) ** 2 for term, n in side.items()))
        for side in (own, other)
    ]
    return min(1.0, dot / (lengths[0] * lengths[1]))


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


ON_TOKENS: dict[str, Callable[[Tokens, Tokens], float]] = {
    "sentence_bleu": sentence_bleu,
    "gleu": gleu,
    "rouge_mean": _mean_rouge,
    **{f"rouge{n}": partial(_ngram_f, n=n) for n in (1, 2, 3, 4, 5)},
    **dict.fromkeys(
        ("rouge", "rougeL"),
        lambda hypothesis, reference: rouge_of(list(hypothesis), list(reference)).f1,
    ),
    **dict.fromkeys(("f1_score", "token_f1"), partial(_ngram_f, n=1)),
    "cosine": cosine,
    "jaccard": _jaccard,
}
REWARDS: dict[str, Callable[[str, Sequence[str]], Overlap | None]] = {
    **dict.fromkeys(("rouge", "rougeL"), best_rouge),
    **{name: partial(best_rouge, variant=name) for name in ("rouge1", "rouge2")},
    **dict.fromkeys(("f1_score", "token_f1"), token_f1),
}
ALGORITHMS = tuple(
    sorted((*ON_TOKENS, "bleu", "chrf", "meteor", "rouge_ngram", "fuzzy_match", "edit_distance"))
)


@lru_cache(maxsize=8)
def _stemmer() -> Callable[[str], str]:
    try:
        from nltk.stem.porter import PorterStemmer
    except ImportError as error:
        raise MissingExtra("nltk", "text", "Stemming") from error
    return lru_cache(maxsize=65536)(PorterStemmer().stem)


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
        if self.algorithm in ("bleu", "chrf"):
            sacrebleu_metrics(self.algorithm)
        if self.stem or self.algorithm == "meteor":
            _stemmer()

    def _grade(self, response: str, reference_response: Any) -> Any:
        given = [reference_response] if isinstance(reference_response, str) else reference_response
        if not isinstance(given, (list, tuple)) or not given:
            raise Unscored(f"{self.name} needs a reference response.", reason="no_reference")
        own, references = (
            fold(split_reasoning(str(response)).final).strip(),
            [compared(str(one)) for one in given],
        )
        if sum(self._steps(len(own), len(other)) for other in references) > LONG:
            return killable(self, SimilarityGrader._best, self, own, references)
        return self._best(own, references)

    def _best(self, response: str, references: Sequence[str]) -> GraderScore:
        best = self._of_a_reward(response, references)
        score = max(self._alike(response, one) for one in references) if best is None else best
        return GraderScore(score=min(1.0, max(0.0, score)), metadata={"algorithm": self.algorithm})

    def _of_a_reward(self, response: str, references: Sequence[str]) -> float | None:
        """What the reward of that name gives; None where there is none, or settings of this
        grader's own are asked for.
        """
        folded = self.case_sensitive is False
        own, others = (
            (response.casefold(), [one.casefold() for one in references])
            if folded
            else (response, references)
        )
        if not own.strip() or own in others:
            return None
        if self.algorithm == "bleu":
            return bleu(own, others).value or 0.0
        if self.algorithm == "chrf":
            return chrf(own, others).value or 0.0
        if self.stem or self.case_sensitive is not None:
            return None
        own_measure = REWARDS.get(self.algorithm)
        best = None if own_measure is None else own_measure(response, references)
        return None if best is None else best.f1

    def _steps(self, own: int, other: int) -> float:
        """About how many steps the algorithm takes for texts of these lengths."""
        if self.algorithm == "fuzzy_match" and self.method == "partial":
            return min(own, other) ** 2 * max(own, other) / 64
        return own * other / 64

    def _alike(self, response: str, reference: str) -> float:
        own, other = (
            text if self.case_sensitive else text.casefold() for text in (response, reference)
        )
        if own == other:
            return 1.0
        if not own.strip() or not other.strip():
            return 0.0
        if self.algorithm == "edit_distance":
            return Levenshtein.normalized_similarity(own, other)
        if self.algorithm == "fuzzy_match":
            measure = {
                "ratio": fuzz.ratio,
                "partial": fuzz.partial_ratio,
                "token_sort": fuzz.token_sort_ratio,
            }
            return measure[self.method](own, other) / 100
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
    folded, cased, at = text.lower(), [], 0
    for word in words(text):
        at = max(at, folded.find(word, at))
        cased.append(text[at : at + len(word)])
        at += len(word)
    return cased


_NO_PATTERN = (re.error, OverflowError, RecursionError)


def _search_here(pattern: str, text: str, case_sensitive: bool) -> bool | str:
    """Whether the pattern is in the text, or why it is no pattern."""
    try:
        flags = re.RegexFlag(0) if case_sensitive else re.IGNORECASE
        pairs = ((turn_text(pattern), text), (visible(turn_text(pattern)), fold(text)))
        return any(re.search(*pair, flags) is not None for pair in pairs)
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
    substrings: list[str] = Field(default_factory=list)
    bidirectional: bool = False
    """Whether substring_match also takes a response that stands inside the reference."""

    @model_validator(mode="after")
    def _complete(self) -> StringMatchGrader:
        if self.algorithm in ("contains_all", "contains_any") and not [
            s for s in self.substrings if s
        ]:
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
        text = fold(turn_text(text))
        text = text if self.case_sensitive else text.casefold()
        return "".join(text.split()) if self.ignore_whitespace else text

    def _grade(self, response: str, reference_response: Any = None) -> Any:
        reference = "" if reference_response is None else str(reference_response)
        if self.algorithm == "regex_match":
            return self._searched(
                self.pattern if self.pattern is not None else reference,
                split_reasoning(str(response)).final,
            )
        return {
            "score": self._score(
                self._plain(split_reasoning(str(response)).final), self._plain(reference)
            ),
            "algorithm": self.algorithm,
        }

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
        if self.algorithm in ("contains_all", "contains_any"):
            matches = [self._plain(text) in own for text in self.substrings if text]
            return (
                sum(matches) / len(matches)
                if self.algorithm == "contains_all"
                else float(any(matches))
            )
        if not own or not other:
            return float(own == other)
        if self.algorithm in ("word_overlap", "char_overlap"):
            sides = [
                words(t) if self.algorithm == "word_overlap" else list(t) for t in (own, other)
            ]
            wanted = Counter(sides[1])
            return sum((Counter(sides[0]) & wanted).values()) / wanted.total() if wanted else 0.0
        if self.algorithm == "substring_match":
            return float(other in own or (self.bidirectional and own in other))
        if self.algorithm == "exact_match":
            return float(own == other)
        return float(
            own.startswith(other) if self.algorithm == "prefix_match" else own.endswith(other)
        )


MOST = 1_000_000
"""Characters of a response that are read, at most."""
DEEPEST = 200
"""Levels of YAML that are read, at most."""
_ABSENT = object()


def body_of(response: str, allow_fence: bool) -> str:
    """What a response says after its reasoning: its single fenced block, where that is allowed,
    else all of it.
    """
    text = split_reasoning(response).final.strip()
    blocks, prose = split_fences(text) if allow_fence else ([], text)
    return blocks[0].body if len(blocks) == 1 and not prose.strip() else text


class JsonValidatorGrader(BaseGrader):
    """1 when the response is JSON and nothing else, else 0; `allow_fence` also takes it in one
    fenced block.

    Field: `response`. NaN, Infinity, comments and trailing commas are no JSON. For a schema see
    `json_schema`.
    """

    name: str = "json_validator"
    allow_fence: bool = True

    def _grade(self, response: str) -> GraderScore:
        try:
            read_json(body_of(str(response), self.allow_fence)[:MOST])
        except ValueError as error:
            return GraderScore(score=0.0, reason=f"No JSON: {error}")
        return GraderScore(score=1.0, reason="JSON.")


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

    def _grade(self, response: str, reference_response: Any) -> GraderScore:
        try:
            wanted = (
                read_json(reference_response)
                if isinstance(reference_response, str)
                else reference_response
            )
        except ValueError as error:
            raise Unscored(
                f"{self.name}: the reference is no JSON: {error}", reason="no_reference"
            ) from error
        try:
            given = read_json(body_of(str(response), self.allow_fence)[:MOST])
        except ValueError as error:
            return GraderScore(score=0.0, reason=f"No JSON: {error}")
        if not self.partial:
            return GraderScore(score=float(self._same(given, wanted)))
        equal, total = self._counted(given, wanted)
        return GraderScore(score=equal / total, reason=f"{equal} of {total} values.")

    def _same(self, given: Any, wanted: Any) -> bool:
        if isinstance(given, bool) or isinstance(wanted, bool) or given is None or wanted is None:
            return given is wanted
        if isinstance(given, str) and isinstance(wanted, str):
            return fold(given) == fold(wanted)
        if isinstance(given, (int, float)) and isinstance(wanted, (int, float)):
            return (
                given == wanted
                or (isinstance(given, float) or isinstance(wanted, float))
                and _close(given, wanted)
            )
        if isinstance(given, dict) and isinstance(wanted, dict):
            fits = (
                wanted.keys() <= given.keys()
                if self.ignore_extra_keys
                else wanted.keys() == given.keys()
            )
            return fits and all(self._same(given[key], value) for key, value in wanted.items())
        if isinstance(given, list) and isinstance(wanted, list):
            if len(given) != len(wanted):
                return False
            if self.strict_order:
                return all(self._same(a, b) for a, b in zip(given, wanted, strict=True))
            # as they are written: to try all with all takes time by the square
            if len(wanted) > 300:
                written = [
                    Counter(json.dumps(item, sort_keys=True) for item in items)
                    for items in (given, wanted)
                ]
                return written[0] == written[1]
            return _matching([[self._same(a, b) for b in wanted] for a in given]) == len(wanted)
        return type(given) is type(wanted) and bool(given == wanted)

    def _counted(self, given: Any, wanted: Any) -> tuple[int, int]:
        """Values of the reference found at their places, and all of them."""
        if isinstance(wanted, dict) and wanted:
            pairs = [
                (given.get(k, _ABSENT) if isinstance(given, dict) else _ABSENT, v)
                for k, v in wanted.items()
            ]
        elif isinstance(wanted, list) and wanted:
            items = given if isinstance(given, list) else []
            pairs = [
                (items[i] if i < len(items) else _ABSENT, value) for i, value in enumerate(wanted)
            ]
        else:
            return int(self._same(given, wanted)), 1
        parts = [self._counted(a, b) for a, b in pairs]
        return sum(equal for equal, _ in parts), sum(total for _, total in parts)


def _close(one: float, other: float) -> bool:
    try:
        return math.isclose(one, other, rel_tol=1e-12)
    except OverflowError:
        return False


def _matching(table: list[list[bool]]) -> int:
    """Size of a maximum matching of rows to columns: the first fit is not always the right one."""
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    if not table or not table[0]:
        return 0
    partners = maximum_bipartite_matching(
        csr_matrix(np.array(table, dtype=np.int8)), perm_type="column"
    )
    return int((partners >= 0).sum())


class MarkupValidatorGrader(BaseGrader):
    """1 when the response is well-formed XML, or YAML that is a mapping or list, else 0;
    `allow_fence` takes a fenced block.

    Field: `response`. XML with a document type is refused: its entities could blow up. YAML tags
    make no objects.
    """

    name: str = "markup_validator"
    markup: Literal["xml", "yaml"] = "xml"
    allow_fence: bool = True

    def _grade(self, response: str) -> GraderScore:
        body = body_of(str(response), self.allow_fence)[:MOST]
        problem = _xml_problem(body) if self.markup == "xml" else _yaml_problem(body)
        return GraderScore(score=float(not problem), reason=problem or f"{self.markup.upper()}.")


def _xml_problem(text: str) -> str:
    from xml.parsers import expat

    def refuse(*_: Any) -> None:
        raise ValueError("a document type is not allowed")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except (expat.ExpatError, ValueError) as error:
        return f"No XML: {error}"
    return ""


def _yaml_problem(text: str) -> str:
    import yaml

    kinds, depth = [], 0
    try:
        # events alone: aliases are not expanded and tags make nothing
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            kinds.append(type(event).__name__)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
                event, yaml.CollectionEndEvent
            )
            if depth > DEEPEST:  # the parser's time grows with the square of the depth
                return f"No YAML that is read: nested more than {DEEPEST} deep."
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return f"No YAML: {str(error).splitlines()[0]}"
    begins = next(
        (kind for kind in kinds if kind not in ("StreamStartEvent", "DocumentStartEvent")), ""
    )
    return (
        ""
        if begins in ("MappingStartEvent", "SequenceStartEvent")
        else "No mapping or list, only plain text."
    )
