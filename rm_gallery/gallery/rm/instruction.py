"""IFEval: share of verifiable instructions followed, for the 25 published types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Literal

from rm_gallery.core.data.schema import DataSample, is_absent
from rm_gallery.core.reward.rule import known, rule, shown
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.score import Score
from rm_gallery.core.text.blocks import read_json
from rm_gallery.core.text.canonical import compared, fold, split_reasoning, whole_word
from rm_gallery.core.text.language import candidate_languages, known_language, words
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.core.utils.names import unknown_name

_END = re.compile(r"([.!?…؟]+|[。！？｡।॥۔]+)([\"'”’»)\]*_」』]*)")
_ALWAYS = frozenset("。！？｡।॥۔")
_LOOK_AROUND = 24
_TITLES = frozenset(
    "mr mrs ms mx dr prof rev fr gen col capt lt sgt maj gov sen rep hon pres st mt ft messrs mme "
    "mlle ed eds cf vs viz approx est dept resp e.g i.e".split()
)
_BEFORE_NUMBERS = frozenset("no nos vol fig figs eq sec ch p pp art nr".split())
_MAY_END = frozenset(
    "etc al inc ltd co corp jr sr esq bros ph.d m.d b.a m.a b.sc m.sc a.m p.m u.s u.k u.n e.u d.c "
    "a.d b.c jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
_NUMBERING = re.compile(r"(?:^|\n)[ \t>*#-]*(?:\d{1,3}|[A-Za-z]|[ivxIVX]{2,5})$")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, stripped.

    A sentence ends at . ! ? … before white space or the text's end, and at 。！？ and । anywhere.
    Periods of titles (Dr.), initials (J. Smith), list numbers ("1." at a line's start), and of
    abbreviations or ellipses that a small letter follows do not end one. A line end alone ends
    none; what holds no letter or digit is no sentence.
    """
    ends = [match.end() for match in _END.finditer(text) if _ends_sentence(text, match)]
    parts = (text[start:end] for start, end in pairwise([0, *ends, len(text)]))
    return [part.strip() for part in parts if any(map(str.isalnum, part))]


def count_sentences(text: str) -> int:
    """Number of sentences, see `split_sentences`."""
    return len(split_sentences(text))


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    marks, closers = match[1], match[2]
    if marks[0] in _ALWAYS:
        return True
    rest = text[match.end() : match.end() + _LOOK_AROUND]
    if rest and not rest[0].isspace():
        return False
    following = rest.lstrip()[:1]
    if marks == ".":
        return not _is_abbreviation(text, match.start(), following)
    if "!" in marks or "?" in marks or "؟" in marks:
        # "Who?" he asked: the sentence goes on after speech
        return not (closers and following.islower())
    return not following.islower()


def _is_abbreviation(text: str, position: int, following: str) -> bool:
    before = text[max(0, position - _LOOK_AROUND) : position]
    if _NUMBERING.search(before):
        return True
    words = before.split()
    word = words[-1].lstrip("\"'“‘(*_[").lower() if words and not before[-1:].isspace() else ""
    if word in _TITLES or (word in _BEFORE_NUMBERS and following.isdigit()):
        return True
    if len(word) == 1 and word.isalpha() and word != "i":
        # the last letter of "plan B." ends a sentence when nothing follows
        return before[-1:].isupper() and following != ""
    return word in _MAY_END and (following.islower() or following in tuple(",;:0123456789"))


RELATIONS = ("less than", "at least")


class Arguments:
    """The keyword arguments of one instruction; data sets set those that do not apply to null.

    Every reader raises Unscored (`bad_instruction`) with the instruction's id where the argument
    cannot be used.
    """

    def __init__(self, instruction_id: str, values: Mapping[str, Any]) -> None:
        self._id = instruction_id
        self._values = values

    def number(self, name: str, least: int = 0) -> int:
        """A whole number; 3.0, as tables with gaps store it, is 3."""
        value = self._required(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self._unusable(name, f"a whole number of at least {least}")
        return value

    def text(self, name: str) -> str:
        """A text that is not blank, stripped."""
        value = self._required(name)
        if not isinstance(value, str) or not value.strip():
            raise self._unusable(name, "a text that is not empty")
        return compared(value)

    def texts(self, name: str) -> list[str]:
        """A list of texts, none of them blank."""
        value = self._required(name)
        if not isinstance(value, list | tuple) or not value:
            raise self._unusable(name, "a list of texts")
        if not all(isinstance(part, str) and part.strip() for part in value):
            raise self._unusable(name, "a list of texts that are not empty")
        return [compared(part) for part in value]

    def compare(self, count: int, relation: str, threshold: str) -> bool:
        """Whether `found` is less than, or at least, the number under `threshold`, as the argument
        `relation` says.
        """
        wanted, number = self.text(relation), self.number(threshold)
        if wanted not in RELATIONS:
            raise self._unusable(relation, " or ".join(map(repr, RELATIONS)))
        return count < number if wanted == RELATIONS[0] else count >= number

    def _required(self, name: str) -> Any:
        value = plain(self._values.get(name))
        if is_absent(value):
            raise Unscored(
                f"{self._id} needs the argument '{name}'; kwargs hold none.",
                reason="bad_instruction",
            )
        return value

    def _unusable(self, name: str, expected: str) -> Unscored:
        given = shown(self._values.get(name))
        return Unscored(
            f"{self._id}: '{name}' is {expected}, found {given}.", reason="bad_instruction"
        )


def plain(value: Any) -> Any:
    """A NumPy array or scalar as a Python value; other values as they are."""
    return value.tolist() if hasattr(value, "tolist") else value


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
    """There are fewer than, or at least, so many words; a character of Chinese, Japanese or Thai is
    a word.
    """
    # an underscore joins, as in \w+
    return arguments.compare(len(words(text.replace("_", "x"))), "relation", "num_words")


def number_of_paragraphs(text: str, arguments: Arguments) -> bool:
    """There are exactly so many paragraphs with *** between them, and none between two dividers is
    empty.
    """
    parts = [part.strip() for part in _PARAGRAPH.split(text)]
    return all(parts[1:-1]) and sum(map(bool, parts)) == arguments.number("num_paragraphs")


def nth_paragraph_first_word(text: str, arguments: Arguments) -> bool:
    """There are exactly so many paragraphs with blank lines between them, and the n-th begins with
    the word.
    """
    wanted, nth = arguments.number("num_paragraphs"), arguments.number("nth_paragraph", 1)
    first_word = arguments.text("first_word").lower()
    if nth > wanted:
        raise Unscored(
            f"length_constraints:nth_paragraph_first_word asks for paragraph {nth} of {wanted}.",
            reason="bad_instruction",
        )
    parts = [part for block in text.split("\n\n") if (part := block.strip())]
    if len(parts) != wanted:
        return False
    word = parts[nth - 1].split()[0].lstrip("'").lstrip('"')
    match = _FIRST_WORD.match(word)
    return match is not None and match[0].lower() == first_word


def bullet_points(text: str, arguments: Arguments) -> bool:
    """There are exactly so many lines that begin with * or -."""
    count = sum(
        bool(_STAR_BULLET.match(line)) or line.lstrip().startswith("-") for line in text.split("\n")
    )
    return count == arguments.number("num_bullets")


def constrained_response(text: str, arguments: Arguments) -> bool:
    """The response holds "My answer is yes.", "My answer is no." or "My answer is maybe."."""
    return any(option in text for option in _OPTIONS)


def highlighted_sections(text: str, arguments: Arguments) -> bool:
    """There are at least so many *highlighted* or **highlighted** parts."""
    parts = _SINGLE.findall(text) + _DOUBLE.findall(text)
    return sum(bool(part.strip("*").strip()) for part in parts) >= arguments.number(
        "num_highlights"
    )


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
    """The response is in the language; a text without any letter, or too short to tell, counts as
    such.
    """
    language = known_language(arguments.text("language"))
    if language is None:
        raise Unscored(
            f"language:response_language: '{arguments.text('language')}' is no language that can "
            f"be told from text.",
            reason="bad_instruction",
        )
    languages = candidate_languages(text)
    return not languages or language in languages


def english_capital(text: str, arguments: Arguments) -> bool:
    """The response is in English and without small letters."""
    return text.isupper() and "en" in candidate_languages(text)


def english_lowercase(text: str, arguments: Arguments) -> bool:
    """The response is in English and without capital letters."""
    return text.islower() and "en" in candidate_languages(text)


def capital_words(text: str, arguments: Arguments) -> bool:
    """There are fewer than, or at least, so many words in capitals; I and A are such, hyphens and
    apostrophes join.
    """
    count = sum(word.isupper() for word in _CAPITAL_WORD.findall(text))
    return arguments.compare(count, "capital_relation", "capital_frequency")


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
    return not any(
        re.search(whole_word(word, "_"), text, re.IGNORECASE)
        for word in arguments.texts("forbidden_words")
    )


def letter_frequency(text: str, arguments: Arguments) -> bool:
    """The letter occurs often or seldom enough, in any case."""
    letter = arguments.text("letter").lower()
    if len(letter) != 1:
        raise Unscored(
            "keywords:letter_frequency: 'letter' is a single character.", reason="bad_instruction"
        )
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


Check = Callable[[str, Arguments], bool]

INSTRUCTIONS: dict[str, Check] = {
    "keywords:existence": keywords_exist,
    "keywords:frequency": keyword_frequency,
    "keywords:forbidden_words": no_forbidden_words,
    "keywords:letter_frequency": letter_frequency,
    "language:response_language": response_language,
    "length_constraints:number_sentences": number_of_sentences,
    "length_constraints:number_paragraphs": number_of_paragraphs,
    "length_constraints:number_words": number_of_words,
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
    "detectable_content:number_placeholders": placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:number_bullet_lists": bullet_points,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:number_highlighted_sections": highlighted_sections,
    "detectable_format:multiple_sections": multiple_sections,
    "detectable_format:json_format": json_format,
    "detectable_format:title": title,
    "combination:two_responses": two_responses,
    "combination:repeat_prompt": repeats_prompt,
    "startend:end_checker": ends_with,
    "startend:quotation": is_quoted,
    "change_case:capital_word_frequency": capital_words,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "punctuation:no_comma": no_comma,
}


def follows(
    text: str, instruction_id: str, kwargs: Mapping[str, Any] | None = None, *, loose: bool = False
) -> bool:
    """Whether a response follows an instruction; a blank one follows none.

    `loose` also accepts the response without its first line, its last line, both, and each of these
    without asterisks (IFEval's loose accuracy). Raises Unscored (`bad_instruction`) for an unknown
    id or an argument that cannot be used.
    """
    check = INSTRUCTIONS.get(instruction_id)
    if check is None:
        raise Unscored(
            unknown_name("instruction type", instruction_id, list(INSTRUCTIONS), ""),
            reason="bad_instruction",
        )
    arguments = Arguments(instruction_id, kwargs or {})
    # checked even for a blank response, so that a broken argument is reported for every response
    if check(text, arguments) and text.strip():
        return True
    return loose and any(
        variant.strip() and check(variant, arguments) for variant in loose_variants(text)[1:]
    )


def loose_variants(text: str) -> list[str]:
    """The response itself first, then its seven loosened forms."""
    lines = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return cut + [part.replace("*", "") for part in cut]


@rule(
    "ifeval",
    needs="instructions",
    example=Example(
        sample_of(
            "Describe the sea in lower case and without commas.",
            "the sea is wide and never quite still",
            "The sea is wide and never quite still",
            "The sea, it is wide.",
            instruction_id_list=["change_case:english_lowercase", "punctuation:no_comma"],
            kwargs=[{}, {}],
        )
    ),
)
def ifeval(
    sample: DataSample,
    text: str,
    *,
    level: Literal["instruction", "prompt"] = "instruction",
    mode: Literal["strict", "loose"] = "strict",
) -> Score[float]:
    """Share of the sample's verifiable instructions that the answer follows; with `level="prompt"`
    1 for all, else 0.

    Instructions come from answer.label or metadata as in IFEval's data: `instruction_id_list` with
    one of the 25 published ids each, and `kwargs` with one dict of arguments per id. `mode="loose"`
    also tries the answer without its first or last line and without asterisks. A thought in <think>
    tags is no part of the answer; an empty answer follows nothing. Range [0, 1], higher is better.
    Unscored without instructions (`no_instructions`), and for an unknown id or an argument that is
    missing or makes no sense (`bad_instruction`), never half judged.

    Source: Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models", arXiv
    2311.07911. On purpose different from the published program: keywords are plain text, not
    patterns; sentence splitting and language detection use built-in rules instead of downloaded
    models; a contraction is one capital word; an empty paragraph does not count; commas of every
    script count; a character of an unspaced script is a word.

    Args:
        level: Whether the score is the share of instructions followed, or 1 for all and else 0.
    """
    instructions = _instructions(sample)
    text = fold(split_reasoning(text).final).strip()
    verdicts = [follows(text, name, given, loose=mode == "loose") for name, given in instructions]
    failed = [
        name for (name, _), verdict in zip(instructions, verdicts, strict=True) if not verdict
    ]
    reason = f"Not followed: {', '.join(failed)}." if failed else "Every instruction is followed."
    share = sum(verdicts) / len(verdicts)
    score = share if level == "instruction" else float(not failed)
    return Score(score, reason, extra={"followed": verdicts})


def _instructions(sample: DataSample) -> list[tuple[str, Mapping[str, Any]]]:
    names = plain(known(sample, "instruction_id_list"))
    if not isinstance(names, list | tuple) or not names:
        raise Unscored(
            f"it needs metadata['instruction_id_list'], a list of instruction ids; "
            f"found {shown(names)}.",
            reason="no_instructions",
        )
    given = plain(known(sample, "kwargs"))
    given = [None] * len(names) if given is None else given
    if not isinstance(given, list | tuple) or len(given) != len(names):
        raise Unscored(
            f"metadata['kwargs'] is a list with one dict for each of the {len(names)} instructions.",
            reason="bad_instruction",
        )
    if not all(part is None or isinstance(part, Mapping) for part in given):
        raise Unscored(
            f"metadata['kwargs'] holds dicts, found {shown(given)}.",
            reason="bad_instruction",
        )
    return [(str(name), part or {}) for name, part in zip(names, given, strict=True)]
