"""Which language a text is in, told by its script and its function words: no model, no download, always the same."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from rm_gallery.core.text.function_words import FUNCTION_WORDS, MARKS
from rm_gallery.core.text.tokens import words

UNKNOWN = "und"
"""ISO 639's code for a language that could not be told."""

_LATIN = (
    "en",
    "es",
    "pt",
    "fr",
    "de",
    "it",
    "nl",
    "sv",
    "da",
    "no",
    "fi",
    "pl",
    "cs",
    "ro",
    "hu",
    "tr",
    "vi",
    "id",
    "sw",
    "ca",
)
_SCRIPTS: dict[str, tuple[tuple[tuple[int, int], ...], tuple[str, ...]]] = {
    "latin": (((0x41, 0x24F), (0x1E00, 0x1EFF), (0xFF21, 0xFF5A)), _LATIN),
    "han": (((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)), ("zh",)),
    "kana": (((0x3041, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)), ("ja",)),
    "hangul": (((0x1100, 0x11FF), (0x3131, 0x318E), (0xAC00, 0xD7A3)), ("ko",)),
    "cyrillic": (((0x400, 0x52F),), ("ru", "uk", "bg")),
    "arabic": (((0x620, 0x77F), (0xFB50, 0xFEFC)), ("ar", "fa", "ur")),
    "devanagari": (((0x900, 0x97F),), ("hi", "mr", "ne")),
    "bengali": (((0x980, 0x9FF),), ("bn",)),
    "gurmukhi": (((0xA00, 0xA7F),), ("pa",)),
    "gujarati": (((0xA80, 0xAFF),), ("gu",)),
    "tamil": (((0xB80, 0xBFF),), ("ta",)),
    "telugu": (((0xC00, 0xC7F),), ("te",)),
    "kannada": (((0xC80, 0xCFF),), ("kn",)),
    "malayalam": (((0xD00, 0xD7F),), ("ml",)),
    "thai": (((0xE00, 0xE7F),), ("th",)),
    "greek": (((0x370, 0x3FF), (0x1F00, 0x1FFF)), ("el",)),
    "hebrew": (((0x5D0, 0x5F2),), ("he",)),
    "georgian": (((0x10A0, 0x10FF),), ("ka",)),
    "armenian": (((0x531, 0x587),), ("hy",)),
}
_WORD_END = re.compile(r"[\s\d.,;:!?\"'’“”«»()\[\]{}<>*_/|\\…،؛؟۔।—–=+~`#-]+")
_GENITIVE = re.compile(r"['’]s\b")
_ALIASES = {"iw": "he", "nb": "no", "nn": "no", "in": "id"}
_JAPANESE_SHARE = 0.05
_DENSE = {"han": 3, "kana": 3, "hangul": 2}
"""Letters of other scripts that say as much as one of these."""
_MARK_WEIGHT = 0.5
_LETTER_WEIGHT = 0.3
"""A single letter may be a name, a unit or a choice as well."""
_SHORT_HAN = 16
_CHINESE_ONLY = frozenset("的了是我你您他她们这那哪吗呢吧啊不在有没和就都很为会说个什么请还把被让过着")
_SHORT_WORDS = 3
"""Letters up to which a text in a shared script may be in any of its languages."""
_NEAR = 0.85
_ENOUGH_WORDS = 20
_LEAST_SHARE = 0.05


def known_language(code: str) -> str | None:
    """The code as used here (zh-cn is zh), None for a language that cannot be told."""
    base = code.strip().lower().replace("_", "-").partition("-")[0]
    base = _ALIASES.get(base, base)
    return base if any(base in languages for _, languages in _SCRIPTS.values()) else None


def candidate_languages(text: str) -> frozenset[str]:
    """ISO 639-1 codes of the languages the text may be in: one for a text of some length, several when it is too short.

    Empty for a text without letters; `und` for a text of twenty words or more that fits no language known here. Where
    scripts are mixed, the one with the most letters counts.
    """
    counts = dict.fromkeys(_SCRIPTS, 0)
    for character, count in Counter(text).items():
        script = _script_of(character) if character.isalpha() else None
        if script is not None:
            counts[script] += count
    if not any(counts.values()):
        return frozenset()
    eastern = counts["han"] + counts["kana"]
    # a Japanese text is largely Chinese characters
    counts["han"], counts["kana"] = (0, eastern) if counts["kana"] > _JAPANESE_SHARE * eastern else (eastern, 0)
    main = max(counts, key=lambda script: counts[script] * _DENSE.get(script, 1))
    if main == "han" and eastern <= _SHORT_HAN and not _CHINESE_ONLY.intersection(text):
        return frozenset({"zh", "ja"})  # a name or a title in Chinese characters is both
    languages = _SCRIPTS[main][1]
    return frozenset(languages) if len(languages) == 1 else _by_words(text.lower(), languages)


@lru_cache(maxsize=4096)
def _script_of(character: str) -> str | None:
    code = ord(character)
    return next((name for name, (ranges, _) in _SCRIPTS.items() if any(a <= code <= b for a, b in ranges)), None)


def _by_words(text: str, languages: tuple[str, ...]) -> frozenset[str]:
    tokens = [token for token in _WORD_END.split(_GENITIVE.sub(" ", text)) if token]
    table = _word_weights(languages)
    scores: dict[str, float] = dict.fromkeys(languages, 0.0)
    for token, count in Counter(tokens).items():
        for language, weight in table.get(token, ()):
            scores[language] += (weight if len(token) > 1 else _LETTER_WEIGHT * weight) * count
    for character, count in Counter(text).items():
        for language, weight in _mark_weights(languages).get(character, ()):
            scores[language] += _MARK_WEIGHT * weight * count
    best = max(scores.values())
    if sum(map(len, tokens)) <= _SHORT_WORDS and not any(c in _mark_weights(languages) for c in text):
        return frozenset(languages)  # "hi", "no", "OK"
    if len(tokens) >= _ENOUGH_WORDS and best < _LEAST_SHARE * len(tokens):
        return frozenset({UNKNOWN})
    return frozenset(language for language, score in scores.items() if score >= _NEAR * best)


@lru_cache(maxsize=8)
def _word_weights(languages: tuple[str, ...]) -> dict[str, list[tuple[str, float]]]:
    return _weights({language: FUNCTION_WORDS[language].split() for language in languages})


@lru_cache(maxsize=8)
def _mark_weights(languages: tuple[str, ...]) -> dict[str, list[tuple[str, float]]]:
    return _weights({language: list(MARKS.get(language, "")) for language in languages})


def _weights(entries: dict[str, list[str]]) -> dict[str, list[tuple[str, float]]]:
    """By entry, the languages that have it; what several share counts less for each."""
    owners: dict[str, list[str]] = {}
    for language, found in entries.items():
        for entry in set(found):
            owners.setdefault(entry, []).append(language)
    return {entry: [(language, 1 / len(named)) for language in named] for entry, named in owners.items()}


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
