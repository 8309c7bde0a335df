"""From a conversation and an answer to numbers: dense figures, and the places of its words in a table of weights."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from math import log1p
from string import ascii_uppercase, digits
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.message import ChatMessage, MessageRole
from rm_gallery.gallery.rm.trained.tokens import cue_list, hashed_features, sentences, tokenize

# Markdown and punctuation as tokens: each counts the occurrences of its characters.
_CHARACTERS = {
    "backtick": "`",
    "line": "\n",
    "question": "?？",
    "exclamation": "!！",
    "comma": ",，、",
    "stop": ".。",
    "colon": ":;：；",
    "bracket": "()（）",
    "quote": '"“”「」',
    "dash": "-–—",
    "ellipsis": "…",
    "currency": "$€£¥%",
    "equation": "=+<>\\",
}
_PLACES = {character: place for place, characters in enumerate(_CHARACTERS.values()) for character in characters}
_LINE_MARKS = ("list_item", "heading", "speaker_mark")
# One search for all three, because each search looks at every character.
_LINE_MARK = re.compile(
    r"^[ \t]*(?:(?P<list_item>[-*•]|\d{1,3}[.)])[ \t]|(?P<heading>#{1,6}) |(?P<speaker_mark>human|assistant|user):)",
    re.M | re.I,
)
_STRINGS = {"bold": "**", "link": "http"}
MARKS = (*_CHARACTERS, *_LINE_MARKS, *_STRINGS, "number")

SHAPE = (
    "log_characters",
    "log_words",
    "log_sentences",
    "words_below_5",
    "words_below_10",
    "words_below_25",
    "words_above_100",
    "capital_share",
    "digit_share",
    "log_word_length",
    "distinct_share",
    "question_share",
    "ends_asking",
    "ends_unfinished",
    "paragraphs",
)
OVERLAP = (
    "last_share",
    "log_last",
    "last_recall",
    "context_share",
    "log_context",
    "previous_share",
    "new_share",
    "log_new",
    "number_share",
)
_SHORT = 3
_STOP_WORDS = frozenset(
    "the and for are with not what how can your this have was but just they them his her their from there would could "
    "should will it's don't i'm you're that's you that who why when which been has had were does did our out about into "
    "than then also some any all".split()
)
_UNFINISHED = re.compile(r"[\w,，、]\s*\Z")
_ASKING = re.compile(r"[?？][\"'”’)\s]*\Z")
_CAPITALS, _DIGITS = ascii_uppercase.encode(), digits.encode()


def content_words(tokens: Collection[str]) -> frozenset[str]:
    """Distinct words that carry meaning: no short or stop words, but numbers and single Han or Kana characters."""
    return frozenset(t for t in set(tokens) if (len(t) >= _SHORT or t.isdigit() or t > "\u2fff") and t not in _STOP_WORDS)


def marks(text: str, counts: Counter[str]) -> list[int]:
    """Occurrences of each of `MARKS`, from the text and the counts of its tokens."""
    found = [0] * len(_CHARACTERS)
    for character, place in _PLACES.items():
        found[place] += counts.get(character, 0)
    lines = Counter(match.lastgroup for match in _LINE_MARK.finditer(text))
    found += [lines[name] for name in _LINE_MARKS]
    found += [text.count(string) for string in _STRINGS.values()]
    return [*found, sum(counts[token] for token in filter(str.isdigit, counts))]


def shape(text: str, n_words: int, n_distinct: int, n_sentences: int, n_questions: int) -> list[float]:
    """The figures named in `SHAPE`: lengths on a log scale, shares in [0, 1], yes or no as 1 or 0."""
    raw = text.encode("utf-8", "surrogatepass")
    size = len(raw)
    end = text[-80:]
    return [
        log1p(len(text)),
        log1p(n_words),
        log1p(n_sentences),
        float(n_words < 5),
        float(n_words < 10),
        float(n_words < 25),
        float(n_words > 100),
        (size - len(raw.translate(None, _CAPITALS))) / (size + 5),
        (size - len(raw.translate(None, _DIGITS))) / (size + 5),
        log1p((len(text) - text.count(" ")) / (n_words + 1)),
        n_distinct / (n_words + 5),
        n_questions / (n_sentences + 1),
        float(_ASKING.search(end) is not None),
        float(_UNFINISHED.search(end) is not None),
        log1p(text.count("\n\n")),
    ]


def overlap(answer: frozenset[str], last: frozenset[str], previous: frozenset[str], context: frozenset[str]) -> list[float]:
    """The figures named in `OVERLAP`, of content words.

    Args:
        answer: of the answer.
        last: of the last user turn.
        previous: of the assistant turn before it.
        context: of the whole conversation.
    """
    size = len(answer) + 3
    shared, known = len(answer & last), len(answer & context)
    new = len(answer) - known
    numbers = [word for word in answer if word.isdigit()]
    return [
        shared / size,
        log1p(shared),
        shared / (len(last) + 3),
        known / size,
        log1p(known),
        len(answer & previous) / size,
        new / size,
        log1p(new),
        sum(number in context for number in numbers) / (len(numbers) + 1),
    ]


FEATURES_VERSION = 1
"""Raised whenever the same text would give other features; a saved model is only read with its own version."""

_SMOOTHING_WORDS = 10
_NOTHING: frozenset[str] = frozenset()


class Conversation(NamedTuple):
    """Content words of what an answer is compared with."""

    last: frozenset[str]
    """Of the last user turn."""
    previous: frozenset[str]
    """Of the last assistant turn before it."""
    everything: frozenset[str]


class Features(NamedTuple):
    """Features of one answer in its conversation."""

    dense: NDArray[np.float64]
    """Shape (len(dense_names()),)."""
    hashed: NDArray[np.int64]
    """Rising distinct places in the table of word weights; each counts 1."""


@lru_cache(maxsize=1)
def dense_names() -> tuple[str, ...]:
    """Names of the dense features, in order."""
    counted = [*cue_list().names, *MARKS]
    return (
        *(f"log.{name}" for name in counted),
        *(f"rate.{name}" for name in counted),
        *(f"shape.{name}" for name in SHAPE),
        *(f"overlap.{name}" for name in OVERLAP),
    )


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """The conversation's words. Without a user turn the last message stands for it."""
    spoken = [(message.role, _content_words(message.text)) for message in messages]
    if not spoken:
        return Conversation(_NOTHING, _NOTHING, _NOTHING)
    user = [place for place, (role, _) in enumerate(spoken) if role == MessageRole.USER]
    last = user[-1] if user else len(spoken) - 1
    before = [words for role, words in spoken[:last] if role == MessageRole.ASSISTANT]
    everything = _NOTHING.union(*(words for _, words in spoken))
    return Conversation(spoken[last][1], before[-1] if before else _NOTHING, everything)


# A sample's answers are scored one after the other, and share their conversation.
@lru_cache(maxsize=64)
def _content_words(text: str) -> frozenset[str]:
    return content_words(tokenize(text))


def answer_features(conversation: Conversation, answer: str) -> Features:
    """Features of one answer; any text is fine, the empty one included, and the form of its line ends does not matter."""
    answer = answer.replace("\r\n", "\n")
    tokens = tokenize(answer)
    counts = Counter(tokens)
    starts, asks = sentences(tokens)
    counted = np.concatenate((cue_list().count(tokens, starts), marks(answer, counts)))
    rest = [
        *shape(answer, len(tokens), len(counts), len(asks), sum(asks)),
        *overlap(content_words(counts), *conversation),
    ]
    dense = np.concatenate((np.log1p(counted), counted / (len(tokens) + _SMOOTHING_WORDS), rest))
    return Features(dense, hashed_features(tokens))


def sample_features(sample: DataSample) -> list[Features]:
    """Features of every output's final answer, in order."""
    conversation = read_conversation(sample.input)
    return [answer_features(conversation, output.answer.text) for output in sample.output]
