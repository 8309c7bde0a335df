"""Citations such as [1] in a text, sentence by sentence."""

from __future__ import annotations

import re
from typing import NamedTuple

from rm_gallery.core.text.blocks import prose_of

_CITED = re.compile(r"[\[【［]\s*(\d{1,4}(?:\s*[-–—,，、;]\s*\d{1,4})*)\s*[\]】］]")
_PART = re.compile(r"(\d+)\s*[-–—]\s*(\d+)|(\d+)")
_SENTENCE_END = re.compile(
    r"(?<=[.!?])[\"'”’)]*(?:\s*[\[【［][\d\s,，、;–—-]+[\]】］])*\s+(?=\S)|(?<=[。！？])(?:[\[【［][\d\s,，、;–—-]+[\]】］])*|\n+"
)
_MAX_RANGE = 100


class Sentence(NamedTuple):
    """A sentence without its citations, and the numbers it cites in order, each once."""

    text: str
    cited: list[int]


def cited_sentences(text: str) -> list[Sentence]:
    """The sentences of a text's prose; citations after the full stop belong to the sentence before it.

    Read are [1], [1, 2], [1-3], [1][2] and 【1】; code is left out, and sentences without a letter are none.
    """
    found = []
    for part in _sentences(prose_of(text)):
        plain = _CITED.sub(" ", part).strip()
        cited = list(dict.fromkeys(number for group in _CITED.findall(part) for number in _numbers(group)))
        if any(map(str.isalpha, plain)):
            found.append(Sentence(plain, cited))
        elif cited and found:
            found[-1].cited.extend(number for number in cited if number not in found[-1].cited)
    return found


def _sentences(text: str) -> list[str]:
    parts, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        parts.append(text[start : end.end()])
        start = end.end()
    return [*parts, text[start:]]


def _numbers(group: str) -> list[int]:
    numbers: list[int] = []
    for first, last, single in _PART.findall(group):
        if single:
            numbers.append(int(single))
        elif 0 <= int(last) - int(first) <= _MAX_RANGE:
            numbers.extend(range(int(first), int(last) + 1))
    return numbers
