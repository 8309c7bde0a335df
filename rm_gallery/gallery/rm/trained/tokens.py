"""Words of any script, their hash that is the same everywhere and for ever, and the cues of `cues.txt` among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import resources
from itertools import chain
from typing import TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

V = TypeVar("V")

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


class TokenTable(dict[str, V]):
    """What is known of each token, worked out when it is first asked for; bounded, and fine to share between threads."""

    LIMIT = 1 << 16
    LONGEST = 64

    def __init__(self, compute: Callable[[str], V]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, token: str) -> V:
        value = self._compute(token)
        if len(token) <= self.LONGEST:
            if len(self) >= self.LIMIT:
                self.clear()
            self[token] = value
        return value


def tokenize(text: str) -> list[str]:
    """Lower-case words (with their apostrophe part), single Han, Kana and Hangul characters, punctuation and line ends."""
    if text.isascii():
        return _ASCII_TOKEN.findall(text.lower())
    return _TOKEN.findall(text.lower().replace("’", "'"))


def word_hash(token: str) -> int:
    """CRC-32 of a token's UTF-8 bytes; half surrogate pairs are taken as they are."""
    return crc32(token.encode("utf-8", "surrogatepass"))


_HASHES = TokenTable(word_hash)


def hashed_features(tokens: list[str]) -> NDArray[np.int64]:
    """Rising places in [0, 2**HASH_BITS) of the distinct words and distinct pairs of neighbouring words."""
    if not tokens:
        return np.empty(0, np.int64)
    words = np.fromiter(map(_HASHES.__getitem__, tokens), np.uint64, len(tokens))
    mixed = words * _FIRST
    places = np.concatenate((mixed, mixed[:-1] + (words[1:] + np.uint64(1)) * _SECOND))
    places ^= places >> np.uint64(31)
    places *= _FINAL
    places >>= np.uint64(64 - HASH_BITS)
    places.sort()
    fresh = np.ones(len(places), np.bool_)
    np.not_equal(places[1:], places[:-1], out=fresh[1:])
    found: NDArray[np.int64] = places[fresh].astype(np.int64)
    return found


def sentences(tokens: list[str]) -> tuple[list[int], list[bool]]:
    """Places where sentences start, rising, and whether each ends with a question mark.

    A sentence ends with a full stop, question or exclamation mark, colon or line end; closing quotes belong to it.
    """
    starts: list[int] = []
    asks: list[bool] = []
    start = _first_word(tokens, 0)
    for end in [place for place, token in enumerate(tokens) if token in SENTENCE_ENDS]:
        asking = tokens[end] in QUESTION_MARKS
        if start < end:
            starts.append(start)
            asks.append(asking)
            start = _first_word(tokens, end + 1)
        elif asking and asks:
            asks[-1] = True
    if start < len(tokens):
        starts.append(start)
        asks.append(False)
    return starts, asks


def _first_word(tokens: list[str], place: int) -> int:
    while place < len(tokens) and (tokens[place] in SENTENCE_ENDS or tokens[place] in _BETWEEN):
        place += 1
    return place


_HEADER = re.compile(r"\[([a-z_]+)\]$")
Phrase = tuple[list[str], int]
"""Tokens, and the section they are a cue of."""
Phrases = dict[str, dict[str, list[Phrase]]]
"""By first token and second token, "" where there is none."""


class CueList:
    """Cue sections in order, with their cues sorted by how they are looked up. Not changed after it is built."""

    def __init__(self, text: str) -> None:
        """Read the notation explained at the head of `cues.txt`; ValueError for a cue outside a section."""
        self.names: list[str] = []
        self._words: dict[str, set[int]] = {}
        self._starts: dict[str, set[int]] = {}
        self._ends: dict[str, set[int]] = {}
        self._anywhere: Phrases = {}
        self._openings: Phrases = {}
        self._sentence_openings: Phrases = {}
        for line in map(str.strip, text.splitlines()):
            header = _HEADER.match(line)
            if header:
                self.names.append(header[1])
            elif line and not line.startswith("#"):
                self._read(line)
        self._start_lengths = sorted({len(start) for start in self._starts})
        self._end_lengths = sorted({len(end) for end in self._ends})
        self._known = TokenTable(self.of_token)

    def _read(self, line: str) -> None:
        if not self.names:
            raise ValueError(f"cues before the first [name]: {line[:60]!r}")
        section = len(self.names) - 1
        places = {"^": self._openings, ">": self._sentence_openings}
        for cue in filter(None, map(str.strip, line.split(","))):
            phrases, literal = places.get(cue[0], self._anywhere), cue.lstrip("^> ")
            if literal.endswith("*"):
                self._starts.setdefault(literal[:-1], set()).add(section)
            elif literal.startswith("*"):
                self._ends.setdefault(literal[1:], set()).add(section)
            elif len(tokens := tokenize(literal)) == 1 and phrases is self._anywhere:
                self._words.setdefault(literal, set()).add(section)
            else:
                second = tokens[1] if len(tokens) > 1 else ""
                phrases.setdefault(tokens[0], {}).setdefault(second, []).append((tokens, section))

    def of_token(self, token: str) -> tuple[int, ...]:
        """Sections that a token belongs to wherever it stands, each once."""
        found = set(self._words.get(token, ()))
        for length in self._start_lengths:
            if token[:length] in self._starts:
                found |= self._starts[token[:length]]
        for length in self._end_lengths:
            if token[-length:] in self._ends:
                found |= self._ends[token[-length:]]
        return tuple(sorted(found))

    def count(self, tokens: list[str], starts: list[int]) -> NDArray[np.int64]:
        """Occurrences per section in the tokens of one text, whose sentences start at the given places."""
        single = np.fromiter(chain.from_iterable(map(self._known.__getitem__, tokens)), np.int64)
        counts = np.bincount(single, minlength=len(self.names))
        following = [*tokens[1:], " "]
        anywhere = self._anywhere
        for place, token in enumerate(tokens):
            if token in anywhere and following[place] in anywhere[token]:
                _match(anywhere[token][following[place]], tokens, place, counts)
        for places, phrases in ((starts, self._sentence_openings), (starts[:1], self._openings)):
            for place in places:
                seconds = phrases.get(tokens[place])
                if seconds is not None:
                    _match(seconds.get("", ()), tokens, place, counts)
                    _match(seconds.get(following[place], ()), tokens, place, counts)
        return counts


def _match(phrases: Iterable[Phrase], tokens: list[str], place: int, counts: NDArray[np.int64]) -> None:
    for phrase, section in phrases:
        if tokens[place : place + len(phrase)] == phrase:
            counts[section] += 1


@lru_cache(maxsize=1)
def cue_list() -> CueList:
    """The parsed `cues.txt`; read once per process."""
    text = resources.files("rm_gallery.gallery.rm.trained").joinpath("cues.txt").read_text(encoding="utf-8")
    return CueList(text)
