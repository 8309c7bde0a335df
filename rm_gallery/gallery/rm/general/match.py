"""Match rewards: exact text, boxed answer, letter, choice, pattern, language."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.rule import (
    extraction_of,
    known,
    rule,
    shown,
)
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.score import Score
from rm_gallery.core.text.answer import (
    LIMIT,
    Extraction,
    concluded,
    final_text,
    last_boxed,
    read_statements,
    value_part,
)
from rm_gallery.core.text.blocks import prose_of
from rm_gallery.core.text.canonical import (
    compared,
    fold,
    normalized,
    split_reasoning,
    turn_text,
    visible,
    whole_word,
)
from rm_gallery.core.text.language import UNKNOWN, known_language, language_shares
from rm_gallery.core.text.values import LETTERS, choice_letter
from rm_gallery.core.utils.errors import ConfigError, Unscored


@rule(
    "accuracy",
    example=Example(
        sample_of(
            "What is the capital of Australia? Reply with the name alone.",
            "Canberra",
            "Sydney",
            reference="Canberra",
        )
    ),
)
def accuracy(answer: str, references: list[str], *, ignore_case: bool = False) -> Score[float]:
    """1 when the answer equals the reference after trimming, else 0; unscored without a reference.

    Range [0, 1], higher is better. White space at both ends, line ends, invisible characters and
    the form of quotation marks and minus signs are ignored; case counts unless `ignore_case`. A
    thought is left out. With several references, one match is enough.

    >>> accuracy("Canberra ", ["Canberra"]).value
    1.0
    """
    answer = answer.strip()
    if ignore_case:
        answer, references = answer.casefold(), [text.casefold() for text in references]
    if answer in references:
        return Score(1.0, "The answer equals the reference.")
    return Score(0.0, "The answer differs from the reference.")


_SPACES = re.compile(r"\\[,!:; ]|\\q?quad\b|~|\s+")
_SIZES = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])")
_FRACTIONS = re.compile(r"\\[dt]frac(?![A-Za-z])")
_SHORT_FRACTION = re.compile(r"\\frac(\d)(\d)(?!\d)")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox)\{([^{}]*)\}")


@rule(
    "boxed_answer",
    example=Example(
        sample_of(
            "Solve 2x = 1.", "So $x = \\boxed{\\dfrac{1}{2}}$.", "So x = 1/2.", reference="\\frac12"
        )
    ),
)
def boxed_answer(
    text: str, references: list[str], *, normalize: bool = True, extraction: Extraction = "boxed"
) -> Score[float]:
    r"""1 when the last `\boxed{}` of the answer equals the reference, else 0; braces may be nested.

    The text is compared, not its value: 1/2 is not 0.5 (see math_verify_reward). `normalize`
    ignores typesetting: spaces, dollar signs, \left and \right, \dfrac for \frac, \text{} around
    words, a full stop at the end. A reference may be boxed itself. Range [0, 1], higher is better;
    without a box 0; unscored without a reference.

    Args:
        extraction: With `announced` or `any` an answer without a box is compared by what it
            announces.

    >>> boxed_answer(r"So \boxed{\dfrac{1}{2}}.", [r"\frac12"]).value
    1.0
    """
    text = final_text(text)
    given = last_boxed(text)
    if given is None and extraction != "boxed":
        statements = read_statements(text).statements
        given = next((value_part(statement.text) for statement in statements), None)
    if given is None:
        return Score(0.0, r"The answer holds no \boxed{}.")
    plain = plain_latex if normalize else str.strip
    wanted = [
        plain(reference if (box := last_boxed(reference)) is None else box)
        for reference in references
    ]
    return Score(float(plain(fold(given)) in wanted), f"The box holds {shown(given)}.")


def plain_latex(text: str) -> str:
    """A LaTeX answer without what only typesetting needs."""
    text = _TEXT.sub(r"\1", text)
    text = _SIZES.sub("", text.replace(r"\$", "").replace("$", ""))
    text = _FRACTIONS.sub(r"\\frac", text)
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    return _SPACES.sub("", text).rstrip(".")


def _each_letter_once(value: str) -> str:
    if not value.isascii() or not value.isalpha() or len(set(value.upper())) != len(value):
        raise ConfigError("it holds each letter once, such as 'ABCD'.")
    return value.upper()


@rule(
    "multiple_choice_letter",
    example=Example(
        sample_of(
            "Which planet is the largest? (A) Mars (B) Jupiter (C) Venus",
            "Jupiter has more than twice the mass of all others. The answer is (B).",
            "It could be A or B.",
            reference="B",
        )
    ),
)
def multiple_choice_letter(
    sample: DataSample,
    references: list[str],
    choices: Any = None,
    *,
    letters: Annotated[str, AfterValidator(_each_letter_once)] = LETTERS,
    extraction: Extraction = "any",
) -> Score[float]:
    r"""1 when the answer picks the reference's letter, else 0; an answer that picks none, or two,
    gets 0.

    The first rule that finds one reads the letter: the final statement (an `<answer>` tag, a JSON
    answer, a box, "the answer is B" in eight languages, "I'd go with B", "so B", 选B); a last line
    that is a letter; the whole answer; a letter it begins with ("B. Paris", "B, because"); then,
    where all matches agree: "B is correct"; lines that start with a letter; letters in brackets. A
    letter that is denied ("not A", "A is wrong"), supposed or taken back does not count. The
    article "A" and the pronoun "I" are words: "A cat", "The answer is a cat", "I think". A thought
    is left out, full-width letters count.

    The reference is a letter ("B", "(B)", "B. Paris"), or the text of one of `choices` in
    answer.label or metadata. Range [0, 1], higher is better; unscored without such a reference.

    Args:
        letters: The letters there are; only the first ones when `choices` holds fewer.
        extraction: What counts as the answer's pick: a box alone, whatever announces one, or any
            text that picks one.
    """
    options = (
        [compared(str(choice)) for choice in choices] if isinstance(choices, list | tuple) else []
    )
    letters = letters[: len(options)] if options else letters
    wanted = {_letter_of(text, letters, options) for text in references}
    given = choice_letter(sample.answer_text(), letters, extraction_of(sample, extraction))
    if given is None:
        return Score(0.0, "The answer picks no letter.")
    return Score(float(given in wanted), f"The answer picks {given}.", extra={"letter": given})


def _letter_of(reference: str, letters: str, choices: list[str]) -> str:
    if reference in choices[: len(letters)]:
        return letters[choices.index(reference)]
    letter = choice_letter(reference, letters)
    if letter is None:
        raise Unscored(
            f"the reference {shown(reference)} is none of the letters {letters}.",
            reason="no_reference",
        )
    return letter


_EDGES = " \t\n.,;:!?*_`\"'()[]{}。，；：！？“”‘’「」（）【】"
_LEAD = 200
_ASKED = re.compile(
    r"(?:^|(?<=[.!?\n]))[ \t]*(?:is|are|was|were|could|would|should|might|does|do"
    r"|did)\b[^.!?\n]{0,200}\?",
    re.IGNORECASE | re.M,
)
_REASON = re.compile(r"\s(?:because|since|although|though|despite)\b|因为|尽管", re.IGNORECASE)
_NO_NOUN = re.compile(
    r"\s+(?!(?:because|since|as|it|he|she|they|i|we|you|this|that|the|there|and|but)\b)[a-z]",
    re.IGNORECASE,
)
_CONCLUDED = re.compile(
    r".*(?:,\s*(?:so|but|hence|thus|therefore|it['’]s|it\s+is|the\s+(?:overall\s+)?\w+\s+is)\b"
    r"|\b(?:overall|so|therefore|hence|thus)\b[,:]?)((?:\s+[^\s.!?]+){1,8})[.!]?\Z",
    re.IGNORECASE,
)
"""The clause that draws the conclusion: "While it has negative words, the overall sentiment is
positive".
"""
_PART_END = re.compile(r"[.!?,:;。！？，：；\n]+")
_DENIED = re.compile(
    r"(?:\b(?:not|no(?!\s+(?:doubt|question))|hardly|scarcely|barely|far\s+from|anything\s+but"
    r"|nowhere\s+near|doubt|не|never|neither|nor|without|rather\s+than|instead\s+of|nicht|kein\w*"
    r"|pas|ni)|n['’]t|\\(?:neq?|neg|lnot)|\\text\{\s*not\s*\})"
    r"(?:\s+(?!but\b)[\w'’]+){0,3}[\s\"'*(“]*\Z|\bnon[-\s]?\Z|(?:不是?|并?非|没有?|无)\Z",
    re.IGNORECASE,
)
_IS_WRONG = re.compile(
    r"[\s\"'*)”]*(?:(?:if|unless)\b|isn['’]t|(?:is|was|would\s+be|seems)\s+(?:wrong|incorrect|not)"
    r"|是?(?:错|不对)|では(?:な|あり)|じゃ(?:な|あり)|[이가]\s?아니|[이가]\s?아닙|ではな)",
    re.IGNORECASE,
)


def _two_choices(value: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if value is not None and (len(value) < 2 or not all(choice.strip() for choice in value)):
        raise ConfigError("it holds at least two choices, none of them blank.")
    return value


@rule(
    "choice_match",
    needs=("reference", "choices"),
    example=Example(
        sample_of(
            "Is the mood of the text positive, negative or neutral?",
            "The answer is negative.",
            "Partly positive, partly negative.",
            choices=["positive", "negative", "neutral"],
            reference="negative",
        )
    ),
)
def choice_match(
    sample: DataSample,
    references: list[str],
    *,
    choices: Annotated[tuple[str, ...] | None, AfterValidator(_two_choices)] = None,
    case_sensitive: bool = False,
    extraction: Extraction = "any",
) -> Score[float]:
    """1 when the answer names the reference choice and no other, else 0.

    The choices are the field `choices`, else `choices` in answer.label or metadata; the reference
    is one of them. The first of these that names a choice decides: the whole answer, its final
    statement (an `<answer>` tag, a JSON answer, a box, "the answer is …" in eight languages), what
    the text begins with, its last line, all of it. A choice matches as whole words, and the longer
    of two that overlap wins ("very good" is not "good"); a denied choice ("not positive") does not
    count; case counts only with `case_sensitive`. A thought is left out. Range [0, 1], higher is
    better; unscored without choices (`no_choices`) or without a reference among them.

    Args:
        extraction: What counts as the answer's choice: a box alone, whatever announces one, or any
            text that names one.
    """
    offered = choices if choices is not None else known(sample, "choices")
    if not isinstance(offered, list | tuple) or not offered:
        raise Unscored(
            "it needs the choices: set the field choices or metadata['choices'].",
            reason="no_choices",
        )
    names = tuple(_normalized(str(choice), case_sensitive) for choice in offered)
    wanted = {_normalized(text, case_sensitive) for text in references} & set(names)
    if not wanted:
        raise Unscored(
            f"the reference is none of the choices {shown(offered)}.", reason="no_reference"
        )
    text = concluded(final_text(sample.answer_text()), extraction_of(sample, extraction))
    given = chosen(text, names, case_sensitive)
    if given is None:
        return Score(0.0, "The answer names no single choice.")
    return Score(float(given in wanted), f"The answer names {shown(given)}.")


def chosen(text: str, choices: tuple[str, ...], case_sensitive: bool = False) -> str | None:
    """The one of `choices` (in lower case unless `case_sensitive`) that a text names, else None."""

    def normal(part: str) -> str:
        return _normalized(part, case_sensitive)

    def named(part: str) -> set[str]:
        part = normal(part)
        return {
            m.group()
            for m in _any_choice(choices).finditer(part)
            if not _is_denied(part, m.start(), m.end())
        }

    reading = read_statements(final_text(text))
    if normal(reading.text) in choices:
        return normal(reading.text)
    if reading.kind == "box" and not any(named(statement.text) for statement in reading.statements):
        # the box holds a value from which the choice follows, not the choice
        reading = read_statements(final_text(text), boxes=False)
    for statement in reading.statements:
        if picks := named(value_part(statement.text)) or named(statement.text):
            return picks.pop() if len(picks) == 1 else None
    rest = _ASKED.sub(" ", reading.rest).strip()
    end = rest[-LIMIT:]
    begins = filter(None, map(normal, _PART_END.split(rest[:_LEAD], maxsplit=2)))
    first, second = next(begins, ""), next(begins, "")
    last = end.rpartition("\n")[2]
    if (concluded := _CONCLUDED.match(last[-2 * _LEAD :])) and len(
        picks := named(concluded[1])
    ) == 1:
        return picks.pop()
    if first in choices and second not in choices and normal(last) not in {*choices} - {first}:
        return first
    claim = _REASON.split(last, maxsplit=1)[0]
    return next((picks.pop() for picks in map(named, (last, claim, end)) if len(picks) == 1), None)


def _is_denied(text: str, start: int, end: int) -> bool:
    if text[start:end].casefold() == "no" and _NO_NOUN.match(text, end):  # "no doubt", "no idea"
        return True
    return bool(_DENIED.search(text, max(0, start - 40), start) or _IS_WRONG.match(text, end))


def _normalized(text: str, case_sensitive: bool) -> str:
    text = normalized("NFKC", compared(text)).strip(_EDGES)
    return text if case_sensitive else text.casefold()


@lru_cache(maxsize=256)
def _any_choice(choices: tuple[str, ...]) -> re.Pattern[str]:
    ordered = sorted(set(choices), key=len, reverse=True)
    return re.compile("|".join(whole_word(choice) for choice in ordered if choice) or r"(?!)")


Mode = Literal["search", "match", "fullmatch"]


NO_PATTERN = (re.error, OverflowError, RecursionError)
"""What Python raises for a text that is no regular expression."""


def _compiles(value: str | None) -> str | None:
    try:
        re.compile(value or "")
    except NO_PATTERN as error:
        raise ConfigError(f"it is no regular expression: {error}") from None
    return value


@rule(
    "regex_match",
    needs="pattern",
    killable=True,
    example=Example(
        sample_of(
            "When was the treaty signed? Use the form 2000-12-31.",
            "Signed on 1648-10-24.",
            "In October 1648.",
            pattern=r"\b\d{4}-\d{2}-\d{2}\b",
        ),
        inputs={"pattern": "the field `pattern`, else `pattern` in `answer.label` or `metadata`"},
    ),
)
def regex_match(
    sample: DataSample,
    *,
    pattern: Annotated[str | None, AfterValidator(_compiles)] = None,
    mode: Mode = "search",
    ignore_case: bool = False,
    multiline: bool = False,
    dotall: bool = False,
    negate: bool = False,
) -> Score[float]:
    """1 when the answer matches the pattern, else 0; with `negate` the other way round.

    The pattern is the field `pattern`, else `pattern` in answer.label or metadata; Python's syntax.
    `mode` says where: anywhere (search), at the start (match), or as a whole (fullmatch, white
    space at both ends left out). The text is tried as written and folded (invisible characters
    away, minus signs a hyphen). A thought is left out, reasoning_format checks its form. A pattern
    that backtracks without end is stopped at the reward's deadline. Range [0, 1], higher is better;
    unscored without a pattern (`no_pattern`) or with a broken one in the sample
    (`invalid_pattern`).

    Args:
        ignore_case: Python's re.IGNORECASE.
        multiline: Python's re.MULTILINE.
        dotall: Python's re.DOTALL.
    """
    written = pattern if pattern is not None else known(sample, "pattern")
    if not isinstance(written, str):
        raise Unscored(
            "it needs a pattern: set the field pattern or metadata['pattern'].", reason="no_pattern"
        )
    written = turn_text(written)
    flags = re.IGNORECASE * ignore_case | re.MULTILINE * multiline | re.DOTALL * dotall
    try:
        match = pattern_match(written, split_reasoning(sample.answer_text()).final, flags, mode)
    except NO_PATTERN as error:
        raise Unscored(f"{shown(written)}: {error}", reason="invalid_pattern") from None
    if match is None:
        return Score(float(negate), "The pattern does not match.")
    return Score(float(not negate), f"The pattern matches {shown(match.group())}.")


def pattern_match(
    pattern: str, text: str, flags: int = 0, mode: Mode = "search"
) -> re.Match[str] | None:
    """Where a text, as written or folded, matches a pattern; `mode` as in `regex_match`.

    Raises what `NO_PATTERN` lists for a text that is no pattern.
    """
    # folding may remove or replace a character that the pattern names, so both forms are tried
    forms = [
        (re.compile(pattern, flags), text),
        (re.compile(visible(pattern), flags), fold(text)),
    ]
    found = (
        getattr(compiled, mode)(form.strip() if mode == "fullmatch" else form)
        for compiled, form in forms
    )
    return next(filter(None, found), None)


_NOT_PROSE = re.compile(
    r"https?://\S+|(?<!\S)\S{1,64}@\S+|\$\$.{1,2000}?\$\$|\\\[(?:(?!\\\[).){1,2000}?\\\]"
    r"|\\\((?:(?!\\\().){1,500}?\\\)|\\[A-Za-z]+",
    re.DOTALL,
)

_SHOWN = 3


def _iso_code(value: str | None) -> str | None:
    code = None if value is None else known_language(value)
    if value is not None and code is None:
        raise ConfigError(
            "this language cannot be told; give an ISO 639-1 code such as 'en' or 'zh'."
        )
    return code


@rule(
    "language_match",
    example=Example(
        sample_of("今天天气怎么样？", "今天晴，最高气温二十五度。", "It is sunny today."), params={}
    ),
)
def language_match(
    sample: DataSample,
    *,
    language: Annotated[str | None, AfterValidator(_iso_code)] = None,
    min_share: Annotated[float | None, Field(gt=0, le=1)] = None,
    include_thought: bool = False,
) -> Score[float]:
    """Share of the answer's words that are in the wanted language; with `min_share` 1 from that
    share on, else 0.

    The language is the field `language`, else `language` in answer.label or metadata (ISO 639-1:
    "en", "zh", also "zh-CN"), else that of the last user turn. Languages differ by script, and
    within a script by common words: all Latin words of a text count for one language, so a few
    foreign names cost little. A text too short to decide counts for every language it could be in.
    Code, formulas, addresses and a thought are left out (`include_thought` takes it in). Range [0,
    1], higher is better; unscored when the answer has no words (`no_words`) or the wanted language
    is unknown (`no_language`).
    """
    wanted = frozenset({language}) if language is not None else _wanted_languages(sample)
    text = sample.answer_text()
    answer = language_shares(prose(text if include_thought else split_reasoning(text).final))
    if not answer.words:
        raise Unscored("the answer has no words.", reason="no_words", cause="answer")
    share = max(answer.shares.get(one, 0.0) for one in wanted)
    names = " or ".join(sorted(wanted))
    most = ", ".join(f"{name} {part:.0%}" for name, part in list(answer.shares.items())[:_SHOWN])
    reason = f"Wanted {names}; found {most}{', …' if len(answer.shares) > _SHOWN else ''}."
    score = share if min_share is None else float(share >= min_share)
    return Score(score, reason, extra={"language": names, "shares": answer.shares})


def _wanted_languages(sample: DataSample) -> frozenset[str]:
    given = known(sample, "language")
    if given is not None:
        code = known_language(given) if isinstance(given, str) else None
        if code is None:
            raise Unscored(f"no language {shown(given)} is known.", reason="no_language")
        return frozenset({code})
    asked = language_shares(prose(sample.query_text())).main - {UNKNOWN}
    if not asked:
        raise Unscored(
            "the wanted language cannot be told from the prompt: set language, or "
            "metadata['language'].",
            reason="no_language",
        )
    return asked


def prose(text: str) -> str:
    """A text without code, formulas and addresses."""
    return _NOT_PROSE.sub(" ", prose_of(text))
