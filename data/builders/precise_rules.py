"""Checkable constraints: a rule is a string such as ``words:42``, and code decides whether a text
obeys it.

===================
===================================================================================== rule
obeyed when ===================
===================================================================================== ``words:N``
the text has exactly N words (runs of letters, digits, apostrophes and hyphens) ``words<=:N``
at most N words; ``words>=:N`` at least N ``sentences:N``     exactly N sentences, each ended by
``.``, ``!``, ``?`` or their Chinese forms ``paragraphs:N``    exactly N blocks of text, parted by
blank lines ``bullets:N``       exactly N lines start with ``- `` and no line starts in another way
``sorted:N``        N lines numbered from 1, whose items are in alphabetical order
``without:X``       the letters X occur nowhere, in either case
``keyword:W:N``     the word W occurs exactly N times
``starts:S``        the text starts with S; ``ends:S`` the text ends with S
``lower``           no capital letter; ``upper`` no small letter
``title``           the first line is a title in double angle brackets
``quoted``          the whole text is in double quotation marks, with none inside
``json:a,b,c``      the whole text is one JSON object with exactly these keys
``language:L``      every sentence holds more function words of language L than of the other
languages known here ``zh-chars<=:N``    at most N Chinese characters
===================
=====================================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_END = re.compile(r"[.!?。！？]+")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")

FUNCTION_WORDS = {
    "en": "the is and my i a with it in of can on her from he you not when are we but was were to for at its".split(),
    "fr": "le la les est et mon je une un des du avec elle dans de ne pas sur son il nous mais était au pour".split(),
    "de": "der die das ist und mein ich eine ein mit sie im am den aus nicht er du wir aber war auf zu für ihrem".split(),
    "es": "el la los las es y mi una un con por en de del no te más su está pero era para al lo que".split(),
}


def words(text: str) -> list[str]:
    """Return the words of a text."""
    return _WORD.findall(text)


def _sentences(text: str) -> int:
    return len(_END.findall(text.strip()))


def _bullets(text: str, number: int) -> bool:
    lines = text.split("\n")
    return len(lines) == number and all(line.startswith("- ") for line in lines)


def _sorted(text: str, number: int) -> bool:
    found = [re.fullmatch(r"(\d+)\. (.+)", line) for line in text.split("\n")]
    if not all(found) or [int(match[1]) for match in found if match] != list(range(1, number + 1)):
        return False
    items = [match[2] for match in found if match]
    return items == sorted(items)


def _json(text: str, keys: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and set(value) == set(keys.split(","))


def _language(text: str, language: str) -> bool:
    for sentence in _END.split(text):
        present = [word.lower() for part in words(sentence) for word in re.split(r"['’]", part)]
        if not present:
            continue
        hits = {
            name: sum(word in known for word in present) for name, known in FUNCTION_WORDS.items()
        }
        if any(count >= hits[language] for name, count in hits.items() if name != language):
            return False
    return True


def _quoted(text: str) -> bool:
    return len(text) > 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1]


_RULES: dict[str, Callable[[str, str], bool]] = {
    "words": lambda text, value: len(words(text)) == int(value),
    "words<=": lambda text, value: len(words(text)) <= int(value),
    "words>=": lambda text, value: len(words(text)) >= int(value),
    "sentences": lambda text, value: _sentences(text) == int(value),
    "paragraphs": lambda text, value: (
        len([part for part in text.split("\n\n") if part.strip()]) == int(value)
    ),
    "bullets": lambda text, value: _bullets(text, int(value)),
    "sorted": lambda text, value: _sorted(text, int(value)),
    "without": lambda text, value: value.lower() not in text.lower(),
    "starts": lambda text, value: text.startswith(value),
    "ends": lambda text, value: text.endswith(value),
    "lower": lambda text, _: not any(letter.isupper() for letter in text),
    "upper": lambda text, _: not any(letter.islower() for letter in text),
    "title": lambda text, _: bool(re.fullmatch(r"<<[^<>]+>>", text.split("\n")[0])),
    "quoted": lambda text, _: _quoted(text),
    "json": _json,
    "language": _language,
    "zh-chars<=": lambda text, value: len(_CHINESE.findall(text)) <= int(value),
}


def obeys(text: str, rule: str) -> bool:
    """Return whether the text obeys the rule; raises ValueError for an unknown rule."""
    name, _, value = rule.partition(":")
    if name == "keyword":
        word, _, number = value.partition(":")
        return [found.lower() for found in words(text)].count(word) == int(number)
    if name not in _RULES:
        raise ValueError(f"unknown rule {rule!r}; known: {', '.join(sorted([*_RULES, 'keyword']))}")
    return _RULES[name](text, value)
