"""Instructions about the shape of a response: its length, its layout, its letters."""

from __future__ import annotations

import re

from rm_gallery.core.text.blocks import read_json
from rm_gallery.core.text.language import candidate_languages, known_language
from rm_gallery.core.text.tokens import words
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.instruction.arguments import Arguments
from rm_gallery.gallery.rm.instruction.sentences import count_sentences

_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_PARAGRAPH = re.compile(r"\s?\*\*\*\s?")
_STAR_BULLET = re.compile(r"\s*\*[^*]")
_SINGLE = re.compile(r"\*[^\n*]*\*")
_DOUBLE = re.compile(r"\*\*[^\n*]*\*\*")
_FENCE_OPEN = re.compile(r"\A```(?:json|Json|JSON)?")
_CAPITAL_WORD = re.compile(r"[^\W_]+(?:[-'’.&/][^\W_]+)*")
_FIRST_WORD = re.compile(r"[^.,?!'\"]*")


def number_of_sentences(text: str, arguments: Arguments) -> bool:
    """There are fewer than, or at least, so many sentences."""
    return arguments.compare(count_sentences(text), "relation", "num_sentences")


def number_of_words(text: str, arguments: Arguments) -> bool:
    """There are fewer than, or at least, so many words; a character of Chinese, Japanese or Thai is a word."""
    # an underscore joins, as in \w+
    return arguments.compare(len(words(text.replace("_", "x"))), "relation", "num_words")


def number_of_paragraphs(text: str, arguments: Arguments) -> bool:
    """There are exactly so many paragraphs with *** between them, and none between two dividers is empty."""
    parts = [part.strip() for part in _PARAGRAPH.split(text)]
    return all(parts[1:-1]) and sum(map(bool, parts)) == arguments.number("num_paragraphs")


def nth_paragraph_first_word(text: str, arguments: Arguments) -> bool:
    """There are exactly so many paragraphs with blank lines between them, and the n-th begins with the word."""
    wanted, nth = arguments.number("num_paragraphs"), arguments.number("nth_paragraph", 1)
    first_word = arguments.text("first_word").lower()
    if nth > wanted:
        message = f"length_constraints:nth_paragraph_first_word asks for paragraph {nth} of {wanted}."
        raise Unscored(message, reason="bad_instruction")
    parts = [part.strip() for part in text.split("\n\n")]
    if sum(map(bool, parts)) != wanted or not parts[nth - 1]:
        return False
    word = parts[nth - 1].split()[0].lstrip("'").lstrip('"')
    found = _FIRST_WORD.match(word)
    return found is not None and found[0].lower() == first_word


def bullet_points(text: str, arguments: Arguments) -> bool:
    """There are exactly so many lines that begin with * or -."""
    count = sum(bool(_STAR_BULLET.match(line)) or line.lstrip().startswith("-") for line in text.split("\n"))
    return count == arguments.number("num_bullets")


def constrained_response(text: str, arguments: Arguments) -> bool:
    """The response holds "My answer is yes.", "My answer is no." or "My answer is maybe."."""
    return any(option in text for option in _OPTIONS)


def highlighted_sections(text: str, arguments: Arguments) -> bool:
    """There are at least so many *highlighted* or **highlighted** parts."""
    count = sum(bool(part.strip("*").strip()) for part in _SINGLE.findall(text))
    count += sum(bool(part[2:-2].strip()) for part in _DOUBLE.findall(text))
    return count >= arguments.number("num_highlights")


def multiple_sections(text: str, arguments: Arguments) -> bool:
    """There are at least so many sections that begin with the marker and a number."""
    marker = re.escape(arguments.text("section_spliter"))
    return len(re.findall(rf"{marker}\s?\d+", text)) >= arguments.number("num_sections")


def json_format(text: str, arguments: Arguments) -> bool:
    """The whole response is JSON, in a code fence or not."""
    body = _FENCE_OPEN.sub("", text.strip()).removesuffix("```").strip()
    try:
        read_json(body)
    except ValueError:
        return False
    return True


def title(text: str, arguments: Arguments) -> bool:
    """There is a title in <<double angular brackets>>."""
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start <= end - 3 and line[start : end + 2].lstrip("<").rstrip(">").strip():
            return True
    return False


def response_language(text: str, arguments: Arguments) -> bool:
    """The response is in the language; a text without any letter, or too short to tell, counts as such."""
    language = known_language(arguments.text("language"))
    if language is None:
        raise Unscored(
            f"language:response_language: '{arguments.text('language')}' is no language that can be told from text.",
            reason="bad_instruction",
        )
    found = candidate_languages(text)
    return not found or language in found


def english_capital(text: str, arguments: Arguments) -> bool:
    """The response is in English and without small letters."""
    return text.isupper() and "en" in candidate_languages(text)


def english_lowercase(text: str, arguments: Arguments) -> bool:
    """The response is in English and without capital letters."""
    return text.islower() and "en" in candidate_languages(text)


def capital_words(text: str, arguments: Arguments) -> bool:
    """There are fewer than, or at least, so many words in capitals; I and A are such, hyphens and apostrophes join."""
    count = sum(word.isupper() for word in _CAPITAL_WORD.findall(text))
    return arguments.compare(count, "capital_relation", "capital_frequency")
