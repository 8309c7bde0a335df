"""A phrase that spreads over a training run: the plainest trace of a reward that was found out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

_WORD = re.compile(r"[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]|[^\W_]+|[^\w\s]")
WORDS, LONGEST, AT_MOST = 4, 12, 400
"""Words of a phrase at least and at most, and words read at either end of a completion."""
SPREAD = 0.3
_CUT = "\0"
"""Where the middle of a long completion was left out; no phrase goes over it."""


def spread_phrase(texts: Sequence[str], early: Any, late: Any) -> tuple[str, float, float, Any] | None:
    """The phrase of four words or more whose share of the completions has grown most, when it grew by 30 points or more.

    `early` and `late` say for every text whether it belongs there. Gives the phrase, its share early and late, and for every
    text whether it holds the phrase; characters of scripts without spaces are words. None when no phrase has spread.
    """
    import numpy as np

    n_early, n_late = int(np.sum(early)), int(np.sum(late))
    if n_early < 10 or n_late < 10:
        return None
    words = [_words(text) if first or last else [] for text, first, last in zip(texts, early, late, strict=True)]
    before, after = (_counts([own for own, inside in zip(words, rows, strict=True) if inside]) for rows in (early, late))
    grown = {gram: count / n_late - before[gram] / n_early for gram, count in after.items()}
    top = max(grown.items(), key=lambda item: (item[1], item[0]), default=None)
    if top is None or top[1] < SPREAD:
        return None
    # neighbouring windows that are as frequent are the same phrase
    near = {gram for gram, share in grown.items() if share >= top[1] - 0.02}
    phrase = _joined(top[0], near)
    has = np.array([_holds(own, top[0]) for own in words], dtype=np.float64)
    shown = _shown(phrase, next(text for text, inside in zip(texts, has * np.asarray(late), strict=True) if inside))
    return shown, before[top[0]] / n_early, after[top[0]] / n_late, has


Gram = tuple[str, ...]


def _words(text: str) -> list[str]:
    found = _WORD.findall(text[: 12 * AT_MOST].lower())
    if len(text) > 12 * AT_MOST or len(found) > 2 * AT_MOST:
        found = [*found[:AT_MOST], _CUT, *_WORD.findall(text[-12 * AT_MOST :].lower())[-AT_MOST:]]
    return found


def _grams(words: list[str]) -> set[Gram]:
    grams = zip(*(words[at:] for at in range(WORDS)), strict=False)
    return {gram for gram in grams if _CUT not in gram and any(w.isalnum() for w in gram)}


def _counts(texts: list[list[str]]) -> Counter[Gram]:
    found: Counter[Gram] = Counter()
    for words in texts:
        found.update(_grams(words))
    return found


def _holds(words: list[str], gram: Gram) -> bool:
    return gram in _grams(words)


def _joined(start: Gram, near: set[Gram]) -> list[str]:
    """The phrase with the windows that go on where it ends, to both sides."""
    phrase = list(start)
    for side in (1, -1):
        while len(phrase) < LONGEST:
            key = tuple(phrase[-(WORDS - 1) :]) if side > 0 else tuple(phrase[: WORDS - 1])
            nexts = sorted(gram for gram in near if (gram[:-1] if side > 0 else gram[1:]) == key)
            if not nexts or nexts[0] == start:
                break
            phrase = [*phrase, nexts[0][-1]] if side > 0 else [nexts[0][0], *phrase]
    return phrase


def _shown(phrase: list[str], text: str) -> str:
    """The phrase as a completion writes it."""
    found = re.search(r"\s*".join(map(re.escape, phrase)), text, re.IGNORECASE)
    return found[0] if found else " ".join(phrase)
