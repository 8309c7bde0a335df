"""How are a text's words divided among languages?"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import NamedTuple

from rm_gallery.core.text.language import UNKNOWN, candidate_languages
from rm_gallery.core.text.tokens import words

__all__ = ["LanguageShares", "language_shares"]

_EASTERN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC"})


class LanguageShares(NamedTuple):
    """Share of a text's words per language, the number of words, and the languages the largest part may be in."""

    shares: dict[str, float]
    words: int
    main: frozenset[str]


@lru_cache(maxsize=8192)
def _script(character: str) -> str:
    script = unicodedata.name(character, "UNKNOWN").split(" ", 1)[0]
    return "CJK" if script in _EASTERN else script


def language_shares(text: str) -> LanguageShares:
    """The share of words in each language; each Chinese or Japanese character is a word, numbers are none.

    The words of one script are all in one language, as `candidate_languages` tells them; where it leaves a choice, each
    candidate has the whole share, so that shares may sum to more than 1. Words of no known language are `und`.
    """
    by_script: dict[str, list[str]] = {}
    for word in words(text):
        letter = next((c for c in word if c.isalpha()), None)
        if letter is not None:
            by_script.setdefault(_script(letter), []).append(word)
    total = sum(map(len, by_script.values()))
    shares: dict[str, float] = {}
    main: frozenset[str] = frozenset()
    for found in sorted(by_script.values(), key=len, reverse=True):
        languages = candidate_languages(" ".join(found)) or frozenset({UNKNOWN})
        main = main or languages
        for language in sorted(languages):
            shares[language] = shares.get(language, 0.0) + len(found) / total
    return LanguageShares(shares, total, main)
