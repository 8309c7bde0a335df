"""From a conversation and an answer to numbers: dense figures, and the places of its words in a
table of weights.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from functools import lru_cache
from importlib import resources
from itertools import chain, zip_longest
from math import log1p
from string import ascii_uppercase, digits
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.message import ChatMessage, MessageRole

HASH_BITS = 18
"""Words and pairs share 2**HASH_BITS weights."""

# Scripts written without spaces: each character is a token, so that pairs of tokens make words.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
_TOKEN = re.compile(rf"[^\W_{_CJK}]+(?:'[^\W_{_CJK}]+)?|[{_CJK}]|\n|[^\w\s]|_")
# The same for text of ASCII characters, in half the time.
_ASCII_TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)?|[^\w\s]|[\n_]")
SENTENCE_ENDS = frozenset((".", "!", "?", ":", "\n", "。", "！", "？", "：", "…"))
QUESTION_MARKS = frozenset(("?", "？"))
# What may stand between the end of one sentence and the first word of the next.
_BETWEEN = frozenset("\"')]}>*_”’»」』")

# Odd 64-bit constants of SplitMix64 (Steele, Lea and Flood 2014); products wrap around.
_FIRST = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xBF58476D1CE4E5B9)
_FINAL = np.uint64(0x94D049BB133111EB)


def tokenize(text: str) -> list[str]:
    """Lower-case words (with their apostrophe part), single Han, Kana and Hangul characters,
    punctuation and line ends.
    """
    if text.isascii():
        return _ASCII_TOKEN.findall(text.lower())
    return _TOKEN.findall(text.lower().replace("’", "'"))


def word_hash(token: str) -> int:
    """CRC-32 of a token's UTF-8 bytes; half surrogate pairs are taken as they are."""
    return crc32(token.encode("utf-8", "surrogatepass"))


def hashed_features(tokens: list[str]) -> NDArray[np.int64]:
    """Rising places in [0, 2**HASH_BITS) of the distinct words and distinct pairs of neighbouring
    words.
    """
    if not tokens:
        return np.empty(0, np.int64)
    words = np.fromiter(map(word_hash, tokens), np.uint64, len(tokens))
    mixed = words * _FIRST
    places = np.concatenate((mixed, mixed[:-1] + (words[1:] + np.uint64(1)) * _SECOND))
    places ^= places >> np.uint64(31)
    places *= _FINAL
    places >>= np.uint64(64 - HASH_BITS)
    bits: NDArray[np.int64] = np.unique(places).astype(np.int64)
    return bits


def sentences(tokens: list[str]) -> tuple[list[int], list[bool]]:
    """Places where sentences start, rising, and whether each ends with a question mark.

    A sentence ends with a full stop, question or exclamation mark, colon or line end; closing
    quotes belong to it.
    """
    starts: list[int] = []
    asks: list[bool] = []
    inside = False
    for place, token in enumerate(tokens):
        if token in SENTENCE_ENDS:
            inside = False
            if asks and token in QUESTION_MARKS:
                asks[-1] = True
        elif not inside and token not in _BETWEEN:
            inside = True
            starts.append(place)
            asks.append(False)
    return starts, asks


_HEADER = re.compile(r"\[([a-z_]+)\]$")
LONGEST = 64
"""Characters of a token at most whose cues are remembered."""


class Phrase(NamedTuple):
    """A cue of several tokens, or of one that has to stand at a certain place."""

    place: str
    """Empty for anywhere, `^` for the start of the text, `>` for that of a sentence."""
    tokens: list[str]
    section: int


class CueList:
    """Cue sections in order, with their cues sorted by how they are looked up. Not changed after it
    is built.
    """

    def __init__(self, text: str) -> None:
        """Read the notation explained at the head of `cues.txt`; ValueError for a cue outside a
        section.
        """
        self.names: list[str] = []
        self._words = defaultdict[str, set[int]](set)
        self._starts: list[tuple[str, int]] = []
        self._ends: list[tuple[str, int]] = []
        self._phrases = defaultdict[tuple[str, ...], list[Phrase]](list)
        """By their first two tokens."""
        for line in map(str.strip, text.splitlines()):
            header = _HEADER.match(line)
            if header:
                self.names.append(header[1])
            elif line and not line.startswith("#"):
                self._add_cues(line)
        self._remembered = lru_cache(maxsize=1 << 16)(self.of_token)

    def _add_cues(self, line: str) -> None:
        if not self.names:
            raise ValueError(f"cues before the first [name]: {line[:60]!r}")
        section = len(self.names) - 1
        for cue in filter(None, map(str.strip, line.split(","))):
            place, literal = cue[0] if cue[0] in "^>" else "", cue.lstrip("^> ")
            tokens = tokenize(literal)
            if literal.endswith("*"):
                self._starts.append((literal[:-1], section))
            elif literal.startswith("*"):
                self._ends.append((literal[1:], section))
            elif len(tokens) == 1 and not place:
                self._words[literal].add(section)
            else:
                self._phrases[tuple(tokens[:2])].append(Phrase(place, tokens, section))

    def of_token(self, token: str) -> frozenset[int]:
        """The cue sections of a token, regardless of its position, each once."""
        return frozenset(
            chain(
                self._words.get(token, ()),
                (section for start, section in self._starts if token.startswith(start)),
                (section for end, section in self._ends if token.endswith(end)),
            )
        )

    def count(self, tokens: list[str], starts: list[int]) -> NDArray[np.int64]:
        """Occurrences per section in the tokens of one text, whose sentences start at the given
        places.
        """
        counts = np.zeros(len(self.names), np.int64)
        for token, times in Counter(tokens).items():
            known = self._remembered if len(token) <= LONGEST else self.of_token
            for section in known(token):
                counts[section] += times
        allowed = {"": range(len(tokens)), "^": starts[:1], ">": set(starts)}
        for at, pair in enumerate(zip_longest(tokens, tokens[1:])):
            for key in (pair, pair[:1]):
                for place, phrase, section in self._phrases.get(key, ()):
                    if at in allowed[place] and tokens[at : at + len(phrase)] == phrase:
                        counts[section] += 1
        return counts


@lru_cache(maxsize=1)
def cue_list() -> CueList:
    """The parsed `cues.txt`; read once per process."""
    text = (
        resources.files("rm_gallery.gallery.rm.trained")
        .joinpath("cues.txt")
        .read_text(encoding="utf-8")
    )
    return CueList(text)


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
_LINE_MARKS = ("list_item", "heading", "speaker_mark")
# One search for all three, because each search looks at every character.
_LINE_MARK = re.compile(
    r"^[ \t]*(?:(?P<list_item>[-*•]|\d{1,3}[.)])[ \t]|(?P<heading>#{1,6}) |(?P<speaker_mark>human"
    r"|assistant|user):)",
    re.M | re.I,
)
_STRINGS = {"bold": "**", "link": "http"}
MARKS = (*_CHARACTERS, *_LINE_MARKS, *_STRINGS, "number")

SHAPE = (
    "log_characters log_words log_sentences words_below_5 words_below_10 words_below_25 "
    "words_above_100 capital_share digit_share log_word_length distinct_share question_share "
    "ends_asking ends_unfinished paragraphs"
).split()
OVERLAP = (
    "last_share log_last last_recall context_share log_context previous_share new_share log_new "
    "number_share"
).split()
_SHORT = 3
_STOP_WORDS = frozenset(
    "the and for are with not what how can your this have was but just they them his her their "
    "from there would could should will it's don't i'm you're that's you that who why when which "
    "been has had were does did our out about into than then also some any all".split()
)
_UNFINISHED = re.compile(r"[\w,，、]\s*\Z")
_ASKING = re.compile(r"[?？][\"'”’)\s]*\Z")
_CAPITALS, _DIGITS = ascii_uppercase.encode(), digits.encode()


def content_words(tokens: Collection[str]) -> frozenset[str]:
    """Distinct words that carry meaning: no short or stop words, but numbers and single Han or Kana
    characters.
    """
    return frozenset(
        t
        for t in set(tokens)
        if (len(t) >= _SHORT or t.isdigit() or t > "\u2fff") and t not in _STOP_WORDS
    )


def marks(text: str, counts: Counter[str]) -> list[int]:
    """Occurrences of each of `MARKS`, from the text and the counts of its tokens."""
    totals = [sum(counts.get(c, 0) for c in characters) for characters in _CHARACTERS.values()]
    lines = Counter(match.lastgroup for match in _LINE_MARK.finditer(text))
    totals += [lines[name] for name in _LINE_MARKS]
    totals += [text.count(string) for string in _STRINGS.values()]
    return [*totals, sum(counts[token] for token in filter(str.isdigit, counts))]


def shape(
    text: str, n_words: int, n_distinct: int, n_sentences: int, n_questions: int
) -> list[float]:
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


def overlap(
    answer: frozenset[str], last: frozenset[str], previous: frozenset[str], context: frozenset[str]
) -> list[float]:
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
"""Raised whenever the same text would give other features; a saved model is only read with its own
version.
"""

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
    user = [place for place, (role, _) in enumerate(spoken) if role == MessageRole.USER]
    at = user[-1] if user else len(spoken) - 1
    last = spoken[at][1] if spoken else _NOTHING
    before = [words for role, words in spoken[:at] if role == MessageRole.ASSISTANT]
    everything = _NOTHING.union(*(words for _, words in spoken))
    return Conversation(last, before[-1] if before else _NOTHING, everything)


# A sample's answers are scored one after the other, and share their conversation.
@lru_cache(maxsize=64)
def _content_words(text: str) -> frozenset[str]:
    return content_words(tokenize(text))


def answer_features(conversation: Conversation, answer: str) -> Features:
    """Features of one answer; any text is fine, the empty one included, and the form of its line
    ends does not matter.
    """
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
