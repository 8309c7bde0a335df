"""Instructions about what is said: keywords, phrases at the start and the end, placeholders, commas."""

from __future__ import annotations

import re

from rm_gallery.core.text.tokens import is_unspaced
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.instruction.arguments import Arguments

_COMMA = re.compile("[,，、،﹐]")
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\]")
_POSTSCRIPTS = {"P.P.S": re.compile(r"p\.\s?p\.\s?s"), "P.S.": re.compile(r"p\.\s?s\.")}


def keywords_exist(text: str, arguments: Arguments) -> bool:
    """Every keyword occurs, as part of a word or a word, in any case."""
    lowered = text.lower()
    return all(keyword.lower() in lowered for keyword in arguments.texts("keywords"))


def keyword_frequency(text: str, arguments: Arguments) -> bool:
    """The keyword occurs often or seldom enough, parts of words counted."""
    count = text.lower().count(arguments.text("keyword").lower())
    return arguments.compare(count, "relation", "frequency")


def no_forbidden_words(text: str, arguments: Arguments) -> bool:
    """None of the words occurs as a whole word, in any case."""
    return not any(re.search(_whole_word(word), text, re.IGNORECASE) for word in arguments.texts("forbidden_words"))


def _whole_word(word: str) -> str:
    """Pattern of the word; its ends are word ends unless they are signs or a script without spaces."""
    left = r"(?<!\w)" if _is_spaced_letter(word[0]) else ""
    right = r"(?!\w)" if _is_spaced_letter(word[-1]) else ""
    return left + re.escape(word) + right


def _is_spaced_letter(character: str) -> bool:
    return (character.isalnum() or character == "_") and not is_unspaced(ord(character))


def letter_frequency(text: str, arguments: Arguments) -> bool:
    """The letter occurs often or seldom enough, in any case."""
    letter = arguments.text("letter").lower()
    if len(letter) != 1:
        raise Unscored("keywords:letter_frequency: 'letter' is a single character.", reason="bad_instruction")
    return arguments.compare(text.lower().count(letter), "let_relation", "let_frequency")


def placeholders(text: str, arguments: Arguments) -> bool:
    """There are at least so many [placeholders] in square brackets."""
    return len(_PLACEHOLDER.findall(text)) >= arguments.number("num_placeholders")


def postscript(text: str, arguments: Arguments) -> bool:
    """There is a postscript with this marker; P.S. and P.P.S may be spaced."""
    marker = arguments.text("postscript_marker")
    pattern = _POSTSCRIPTS.get(marker)
    lowered = text.lower()
    return bool(pattern.search(lowered)) if pattern else marker.lower() in lowered


def two_responses(text: str, arguments: Arguments) -> bool:
    """There are exactly two different responses with ****** between them."""
    parts = [part.strip() for part in text.split("******")]
    inner = parts[1:-1]
    filled = [part for part in parts if part]
    return all(inner) and len(filled) == 2 and filled[0] != filled[1]


def repeats_prompt(text: str, arguments: Arguments) -> bool:
    """The response begins with the prompt, word for word, in any case."""
    return text.strip().lower().startswith(arguments.text("prompt_to_repeat").lower())


def ends_with(text: str, arguments: Arguments) -> bool:
    """The response ends with the phrase, in any case; closing quotation marks do not count."""
    return text.strip().strip('"').lower().endswith(arguments.text("end_phrase").lower())


def is_quoted(text: str, arguments: Arguments) -> bool:
    """The whole response stands between double quotation marks."""
    body = text.strip()
    return len(body) > 1 and body[0] == body[-1] == '"'


def no_comma(text: str, arguments: Arguments) -> bool:
    """There is no comma of any script."""
    return not _COMMA.search(text)
