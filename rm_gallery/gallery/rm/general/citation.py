"""Rewards for search answers: citation precision and recall, and exact match of the short answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.rule import (
    known,
    rule,
    shown,
)
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.score import Score
from rm_gallery.core.text.blocks import prose_of, tagged
from rm_gallery.core.text.canonical import compared, fold
from rm_gallery.core.text.language import tokenizer, words
from rm_gallery.core.text.quantities import find_numbers
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.bounds import Share
from rm_gallery.gallery.rm.general.overlap import Overlap, harmonic

_CITED = re.compile(r"[\[【［]\s*(\d{1,4}(?:\s*[-–—,，、;]\s*\d{1,4})*)\s*[\]】］]")
_PART = re.compile(r"(\d+)\s*[-–—]\s*(\d+)|(\d+)")
_SENTENCE_END = re.compile(
    r"(?<=[.!?])[\"'”’)]*(?:\s*[\[【［][\d\s,，、;–—-]+[\]】］])*\s+(?=\S)"
    r"|(?<=[。！？])(?:[\[【［][\d\s,，、;–—-]+[\]】］])*|\n+"
)
_SOURCE_NUMBER = re.compile(r"\s*[\[【(]?\s*(\d{1,9})(?:\.0)?\s*[\]】)]?\s*")
_MAX_RANGE = 100


class Sentence(NamedTuple):
    """A sentence without its citations, and the numbers it cites in order, each once."""

    text: str
    cited: list[int]


def cited_sentences(text: str) -> list[Sentence]:
    """The sentences of a text's prose; citations after the full stop belong to the sentence before
    it.

    Reads [1], [1, 2], [1-3], [1][2] and 【1】; skips code and sentences without a letter.
    """
    prose, sentences = prose_of(text), []
    ends = [match.end() for match in _SENTENCE_END.finditer(prose)]
    for start, end in pairwise([0, *ends, len(prose)]):
        part = prose[start:end]
        plain = _CITED.sub(" ", part).strip()
        cited = list(dict.fromkeys(chain.from_iterable(map(_cited_numbers, _CITED.findall(part)))))
        if any(map(str.isalpha, plain)):
            sentences.append(Sentence(plain, cited))
        elif cited and sentences:
            sentences[-1].cited.extend(
                number for number in cited if number not in sentences[-1].cited
            )
    return sentences


def _cited_numbers(group: str) -> list[int]:
    numbers: list[int] = []
    for first, last, single in _PART.findall(group):
        if single:
            numbers.append(int(single))
        elif 0 <= int(last) - int(first) <= _MAX_RANGE:
            numbers.extend(range(int(first), int(last) + 1))
    return numbers


_STOP = frozenset(
    "the of and to in is that it was for on are with as be at this have from or had by not but "
    "what all were when an a its has been which their also can will more than they he she his her "
    "we you i who these those such into about 的 了 是 在 和".split()
)


@rule(
    "citation_precision_recall",
    needs="sources",
    example=Example(
        sample_of(
            "When was the bridge opened, and how many lanes has it?",
            "The bridge was opened in 1932 [1]. It carries eight lanes of traffic [2].",
            "The bridge was opened in 1932 [2]. It carries eight lanes of traffic.",
            sources=[
                "The harbour bridge was opened in 1932.",
                "The bridge carries eight lanes of traffic.",
            ],
        )
    ),
)
def citation_precision_recall(
    sample: DataSample,
    answer: str,
    *,
    measure: Literal["f1", "precision", "recall"] = "f1",
    min_overlap: Annotated[float, Field(gt=0, le=1)] = 0.5,
) -> Score[float]:
    """F1 (or `measure`) of citations such as [1] against the sources, which are numbered from 1.

    With the numbers of the right sources in `relevant_sources` of answer.label or metadata:
    precision is the share of the cited sources that are right, recall the share of the right ones
    that are cited.

    Else by the text of `sources` in metadata: recall is the share of sentences whose cited sources
    together hold at least `min_overlap` of the sentence's content words, precision the share of
    citations whose source alone does so or gives a word of its own to a supported sentence. That is
    the scheme of ALCE (Gao et al. 2023, arXiv 2305.14627, section 4) with word overlap in place of
    an entailment model.

    A citation of a source that does not exist is wrong. Range [0, 1], higher is better; an answer
    without citations has 0; unscored without sources (`no_sources`), with a `relevant_sources` that
    is no list of numbers (`bad_label`), or for an answer without sentences (`empty`).

    Args:
        measure: Which of F1, precision and recall is the score.
        min_overlap: Share of a sentence's content words that its sources must hold to support it.
    """
    relevant = _relevant_numbers(known(sample, "relevant_sources"))
    sources = [fold(text) for text in _source_texts(known(sample, "sources"))]
    if not relevant and not sources:
        raise Unscored(
            "it needs sources: set metadata['sources'] to texts or 'relevant_sources' to numbers.",
            reason="no_sources",
        )
    sentences = cited_sentences(answer)
    if not sentences:
        raise Unscored("the answer has no sentences.", reason="empty", cause="answer")
    rates = (
        rates_by_number(sentences, relevant)
        if relevant
        else rates_by_text(sentences, sources, min_overlap)
    )
    score = float(getattr(rates, measure))
    citations = sum(len(sentence.cited) for sentence in sentences)
    rate = f"precision {rates.precision:.2f}, recall {rates.recall:.2f}."
    reason = f"{citations} citations in {len(sentences)} sentences: {rate}"
    return Score(score, reason, extra={"precision": rates.precision, "recall": rates.recall})


def _relevant_numbers(label: Any) -> set[int]:
    """The numbers of the right sources; texts such as "[2]" hold one."""
    label = [] if label is None else label.tolist() if hasattr(label, "tolist") else label
    parts = label if isinstance(label, list | tuple | set | frozenset) else [label]
    matches = [_SOURCE_NUMBER.fullmatch(str(part)) for part in parts]
    if not all(matches) or any(isinstance(part, bool) for part in parts):
        raise Unscored(
            f"relevant_sources holds numbers of sources, found {shown(label)}.",
            reason="bad_label",
        )
    return {int(match[1]) for match in matches if match}


def rates_by_number(sentences: list[Sentence], relevant: set[int]) -> Overlap:
    """Precision and recall of the set of cited sources."""
    cited = {number for sentence in sentences for number in sentence.cited}
    right = len(cited & relevant)
    return harmonic(right / len(cited) if cited else 0.0, right / len(relevant))


def rates_by_text(sentences: list[Sentence], sources: list[str], min_overlap: float) -> Overlap:
    """Precision and recall by the content words that sentences share with the sources they cite."""
    contents = [_content_words(source) for source in sources]
    supported = right = total = 0
    for sentence in sentences:
        claim = _content_words(sentence.text)
        parts = [
            claim & contents[n - 1] if 0 < n <= len(contents) else set() for n in sentence.cited
        ]
        holds = bool(parts) and len(set().union(*parts)) >= min_overlap * len(claim) > 0
        supported += holds
        total += len(parts)
        for i, part in enumerate(parts):
            others = set().union(*parts[:i], *parts[i + 1 :])
            right += bool(part) and (
                len(part) >= min_overlap * len(claim) or (holds and bool(part - others))
            )
    return harmonic(right / total if total else 0.0, supported / len(sentences))


def _content_words(text: str) -> set[str]:
    return set(words(text)) - _STOP


def _source_texts(sources: Any) -> list[str]:
    """The sources as texts; objects by their text, content or snippet, with their title."""
    if isinstance(sources, dict):
        sources = list(sources.values())
    texts = []
    for source in sources if isinstance(sources, list | tuple) else ():
        if isinstance(source, dict):
            parts = (source.get(key) for key in ("title", "text", "content", "snippet"))
            source = "\n".join(part for part in parts if isinstance(part, str))
        texts.append(str(source))
    return texts


_ABSTAINS = re.compile(
    r"(?:i (?:do not|don['’]t) know|unknown|unanswerable|no answer|not (?:known|enough information"
    r"|answerable)|insufficient information"
    r"|(?:it |this )?(?:cannot|can['’]t|could not) be (?:determined|answered|found)|不知道|无法(?:确定"
    r"|回答)|未知)\W*",
    re.IGNORECASE,
)


@rule(
    "search_answer",
    example=Example(
        sample_of(
            "Who wrote The Trial?",
            "<think>The novel is by Kafka.</think><answer>Franz Kafka</answer>",
            "<answer>Max Brod</answer>",
            "It was Franz Kafka.",
            reference=["Franz Kafka", "Kafka"],
        )
    ),
)
def search_answer(
    sample: DataSample,
    answer: str,
    references: Sequence[str],
    *,
    metric: Literal["em", "subem", "f1"] = "em",
    format_score: Share = 0.0,
    abstention_score: Share = 0.0,
) -> Score[float]:
    """Exact match, or the best token F1, of the short answer in the last `<answer>` tag with the
    references and their aliases.

    Texts are compared as SQuAD does: in lower case, without punctuation, articles and white space;
    but signs, decimal points and relations of numbers and formulas count (-5 is not 5, x<3 is not
    x>3). `metric` is `em` (equal), `subem` (a reference stands in the answer, word by word) or
    `f1`. Without the tag the score is 0; a well-formed wrong answer gets `format_score`, one that
    abstains ("I don't know") `abstention_score`. Where the references themselves say that there is
    no answer, abstaining is right. A thought is left out. Range [0, 1], higher is better.
    References: `answer.label` or metadata `reference` (a text or a list) and `aliases`. Source:
    Search-R1 (arXiv 2503.09516).
    """
    also = known(sample, "aliases")
    aliases = [compared(str(alias)) for alias in also] if isinstance(also, list | tuple) else []
    references = [*references, *aliases]
    bodies, _ = tagged(answer, "answer")
    if not bodies:
        return Score(0.0, "The answer stands in no <answer> tag.")
    given = bodies[-1].strip()
    if _ABSTAINS.fullmatch(given):
        right = any(_ABSTAINS.fullmatch(text.strip()) for text in references)
        return Score(1.0 if right else abstention_score, "The answer abstains.")
    score = max(
        _answer_score(given[:_LONGEST], text[:_LONGEST], metric=metric) for text in references
    )
    return Score(
        score or format_score,
        f"{shown(given)} scores {score:.3g} with the best reference.",
    )


def _answer_score(answer: str, reference: str, *, metric: Literal["em", "subem", "f1"]) -> float:
    given, wanted = _squad(answer), _squad(reference)
    if given == wanted and _numbers_and_signs(answer) != _numbers_and_signs(reference):
        return 0.0
    if metric == "em":
        return float(given == wanted and bool(wanted))
    if metric == "subem":
        return float(bool(wanted) and f" {' '.join(wanted)} " in f" {' '.join(given)} ")
    shared = (Counter(given) & Counter(wanted)).total()
    return 2 * shared / (len(given) + len(wanted)) if shared else 0.0


_SIGNS = re.compile(r"[<>≤≥≠=±^∞]|\+(?!\d)|\\[a-z]+|(?<![\w)])-(?=[\w\\])")
_INTERVAL = re.compile(r"\s*([\[(])[^\[\]()]*,[^\[\]()]*([\])])\s*")


def _numbers_and_signs(text: str) -> tuple[list[float], list[str], list[str]]:
    """What SQuAD's normalization drops from numbers and formulas: values, signs, the ends of an
    interval.
    """
    text = text.strip(" .$")
    interval = _INTERVAL.fullmatch(text)
    return (
        [number.value for number in find_numbers(text)],
        _SIGNS.findall(text),
        list(interval.groups()) if interval else [],
    )


_LONGEST = 10_000
"""Characters of a short answer that are compared, at most."""
_squad = tokenizer("squad")
