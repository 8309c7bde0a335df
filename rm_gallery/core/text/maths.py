"""Is an answer mathematically equal to a reference? Plain numbers are compared here; Math-Verify
decides the rest.

Math-Verify (https://github.com/huggingface/Math-Verify, Apache-2.0) runs without its own time
limits, which need signals. An expression may keep it busy for ever, so call `verify_answer` in a
worker process with a deadline.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from rm_gallery.core.text.answer import (
    PHANTOM,
    Extraction,
    concluded,
    final_text,
    last_boxed,
    read_statements,
)
from rm_gallery.core.text.canonical import readable, rewrites, rewritten, turn_text
from rm_gallery.core.text.expressions import FinalAnswer, find_answer, find_moment, find_reference
from rm_gallery.core.text.moments import read_moment
from rm_gallery.core.text.quantities import (
    SMALL,
    Quantity,
    conversions,
    find_quantities,
    plain_units,
)
from rm_gallery.core.text.values import choice_letter

_LETTER = re.compile(r"\(?[A-J]\)?")
_BASED = re.compile(r"([\dA-Fa-f]+)_\{?(\d{1,2})\}?")
_PERCENT = re.compile(r"(-?\d+(?:\.\d+)?)\s*\\?%")
_FACTORIAL = re.compile(r"(?<!\d)\d{1,3}!")
_INTEGER = re.compile(r"-?\d+")
_NEGATIVE_ZEROS = re.compile(r"-0\d")
"""Math-Verify does not read "-007" everywhere."""
_DECIMAL = re.compile(r"-?\d+\.\d{1,100}")
_FRACTION = re.compile(r"-?\d{1,6}/(?!0+$)\d{1,6}")
_PLAIN_LOG = re.compile(r"\\log(?![A-Za-z]|\s*_)")
_EXACT_DIGITS = 15
_DECIMALS = 6
_LARGE = 1e15
"""Above this a decimal number holds no more digits than its mantissa does."""
_SMALL = Decimal("1e-4")


class MathVerdict(NamedTuple):
    """Score of one comparison.

    `no_gold`: the reference holds nothing to compare with, so the answer cannot be scored;
    `no_answer`: the text gives no answer; `exploding`: the answer cost too much to compare, which
    is its own fault. `answer` and `gold` are the compared parts, empty if there are none.
    """

    status: Literal["correct", "wrong", "no_gold", "no_answer", "exploding"]
    answer: str = ""
    gold: str = ""


def verify_answer(answer: str, gold: str, extraction: Extraction = "any") -> MathVerdict:
    """Compares the final answers of a solution and a reference. May run for ever or need much
    memory.

    Equality is Math-Verify's: numbers to six decimals, expressions symbolically, 50% equals both
    0.5 and 50. Numbers below 1e-4 are compared relatively, dates and times of day by value, a
    letter of a choice as `choice_letter` reads it. "It is 5!" is 5 or 120, whichever the reference
    is.
    """
    if (quick := fast_verdict(answer, gold, extraction)) is not None:
        return quick
    answer, gold = _prepared(_allowed(answer, extraction)), _prepared(gold)
    verdict = _verify(answer, gold, False)
    if verdict.status in ("wrong", "no_answer") and _FACTORIAL.search(answer):
        other = _verify(answer, gold, True)
        return other if other.status == "correct" else verdict
    return verdict


def _verify(answer: str, gold: str, factorial: bool) -> MathVerdict:
    final, reference = find_answer(answer, factorial=factorial), _reference(gold)
    given, wanted = _as_given(answer), _as_given(gold)
    of_integers = any(
        value is not None and _OF_INTEGERS.search(value.text) for value in (final, reference)
    )
    final, reference = (value and _unquantified(value) for value in (final, reference))
    gold_values = _parse(reference).values if reference is not None else ()
    final = _as_number(final, reference)
    if final is None or reference is None or not gold_values:
        if _written_alike(given, wanted):
            return MathVerdict("correct", given, wanted)
        return MathVerdict(
            "no_answer" if gold_values else "no_gold",
            final.text if final else "",
            reference.text if reference else "",
        )
    if (label := _compared_as_written(final, reference, answer)) is not None:
        return label
    parsed = _parse(final)
    # "The answer is obvious" announces no value, unless the reference is a word too.
    announced = bool(parsed.values) and (final.shape != "words" or reference.shape == "words")
    if final.fallback and not announced:
        parsed = _parse(FinalAnswer(final.fallback, "text", ""))
    if not parsed.values:
        return MathVerdict("no_answer", parsed.text, reference.text)
    equal = (
        (
            _equal(gold_values, parsed.values)
            or _equal_otherwise(reference, gold_values, final, parsed.values)
        )
        and not _says_other(final.text, reference.text)
        and not _says_other(given, wanted)
    )
    equal = (
        equal
        or _equal_families(gold_values[0], parsed.values[0], of_integers)
        or _equal_angles((given, parsed.values), (wanted, gold_values))
        or _in_one_unit(given, wanted) is True
    )
    return _correct_or_wrong(equal, parsed.text, reference.text)


def _correct_or_wrong(equal: object, answer: str, gold: str, stated: object = True) -> MathVerdict:
    return MathVerdict("correct" if equal else "wrong" if stated else "no_answer", answer, gold)


def _allowed(answer: str, extraction: Extraction) -> str:
    return answer if extraction == "any" else concluded(final_text(answer), extraction)


def fast_verdict(answer: str, gold: str, extraction: Extraction = "any") -> MathVerdict | None:
    """The verdict of `verify_answer` where plain arithmetic gives it in microseconds, else None.

    None means that Math-Verify has to look. Covers integers, decimals, fractions, and texts without
    an answer or reference; needs no heavy import.
    """
    answer, gold = _prepared(_allowed(answer, extraction)), _prepared(gold)
    final, reference = find_answer(answer), _reference(gold)
    if (stated := _compared_as_statements(final, answer, gold)) is not None:
        return stated
    final = _as_number(final, reference)
    if reference is None:
        return MathVerdict("no_gold", final.text if final else "", "")
    if "!" in answer and _FACTORIAL.search(answer):
        return None
    if final is None:
        return MathVerdict("no_answer", "", reference.text) if reference.shape == "number" else None
    equal, given, wanted = _equal_plainly(reference, final), _as_given(answer), _as_given(gold)
    if equal is None:
        return None
    equal = equal and not _says_other(given, wanted) or _in_one_unit(given, wanted)
    return _correct_or_wrong(equal, final.text, reference.text)


_reference = functools.lru_cache(maxsize=1024)(find_reference)
_CONGRUENCE = re.compile(
    r"(?:([A-Za-z]\w{0,8})\s*(?:\\equiv|≡)\s*)?(-?\d{1,18})\s*(?:\\p?mod|\\bmod"
    r"|\\?\(\s*(?:\\text\{)?mod\}?)\s*\{?\s*((?!0+(?!\d))\d{1,18})\s*\}?\s*\)?"
)
_WORDS_FOR = {
    "nothing": re.compile(
        r"(?i)(?:there (?:is|are) |it has |has |the equation has )?no (?:real |integer |such "
        r"|positive |valid |possible )*"
        r"(?:solutions?|roots?|values?|answers?|integers?|numbers?)(?: exists?)?|\\emptyset"
        r"|\\varnothing|∅|\\?\{\s*\\?\}|无(?:实数)?解|没有解"
    ),
    "undefined": re.compile(
        r"(?i)undefined|DNE|(?:(?:the )?limit )?(?:it )?does not exist|不存在|无定义"
    ),
    "all": re.compile(
        r"(?i)infinitely many(?: solutions)?|all real numbers|\\mathbb\s*\{?R\}?|无穷多(?:个)?解"
        r"|(?:an )?infinite(?: number(?: of solutions)?)?"
    ),
    "infinity": re.compile(
        r"(?i)(?:plus |positive )?infinit(?:y|e)|\+?\s?(?:\\infty|∞)|正?无穷大?"
    ),
    "minus infinity": re.compile(r"(?i)(?:minus |negative |-\s?)(?:infinity|\\infty|∞)|负无穷大?"),
}
"""Answers that are no value; an answer equals a reference that says the same."""


_WITHOUT_NOTATION = rewrites(
    (
        r"(\\[A-Za-z]+)?(?:\\(?:mathrm|operatorname|textrm|text|mathit|rm)\s*\{\s*([ei])\s*\}"
        r"|\{\s*\\rm\s+([ei])\s*\})",
        lambda match: (f"{match[1]} " if match[1] else "") + (match[2] or match[3]),
    ),
    (
        r"(\\(?:sin|cos|tan|cot|sec"
        r"|csc))\s*(?:\\left)?[({]?\s*(-?\d{1,9}(?:\.\d{1,9})?)\s*(?:\^\s*\{?\s*\\circ\s*\}?"
        r"|°)\s*(?:\\right)?[)}]?",
        r"\1(\\frac{\2 \\pi}{180})",
    ),
    (r"(?:\\right)?\\rangle", ")"),
    (r"(?:\\left)?\\langle", "("),
    (
        r"\\begin\{(cases|aligned|array)\}(?:\{[^{}]{0,20}\})?([^&]{0,400}?)\\end\{\1\}",
        lambda match: ", ".join(part.strip() for part in match[2].split(r"\\") if part.strip()),
    ),
)


def _prepared(text: str) -> str:
    """The readable turn with plain e and i, radians inside functions, systems as lists and round
    brackets for angle brackets.
    """
    text = readable(turn_text(text))
    return rewritten(text, _WITHOUT_NOTATION) if "\\" in text else text


def _compared_as_statements(
    final: FinalAnswer | None, answer: str, gold: str
) -> MathVerdict | None:
    """The verdict if the reference is no number but a moment, a congruence, a bound or words such as
    "no solution".
    """
    wanted = _as_given(gold)
    if not wanted:
        return None
    shown = final.text if final else ""
    if (moment := read_moment(wanted)) is not None:
        stated = find_moment(answer)
        return _correct_or_wrong(stated and stated.same_as(moment), shown, wanted, final or stated)
    text = wanted.replace(r"\text{", "").replace(r"\;", "").strip("{} ")
    given = _as_given(answer) or shown
    if modulo := _CONGRUENCE.fullmatch(text):
        congruences = [*_CONGRUENCE.finditer(given or answer[-2000:])]
        if not congruences:
            return _correct_or_wrong(
                not modulo[1] and _is_residue(shown, modulo), shown, wanted, final
            )
        last = congruences[-1]
        same = (
            int(modulo[3]) == int(last[3])
            and (int(last[2]) - int(modulo[2])) % int(last[3]) == 0
            and (not modulo[1] or not last[1] or modulo[1] == last[1])
        )
        return _correct_or_wrong(same, last[0], wanted)
    if _INTEGER.fullmatch(text) and (residue := _CONGRUENCE.fullmatch(given)):
        return _correct_or_wrong(_is_residue(text, residue), given, wanted)
    if (bound := _bound(text)) is not None:
        statements = read_statements(answer).statements[:1]
        texts = [given, *(statement.text.rstrip(". ") for statement in statements)]
        if stated_bound := next(filter(None, map(_bound, texts)), None):
            return _correct_or_wrong(stated_bound == bound, given, wanted)
    meant = next((name for name, words in _WORDS_FOR.items() if words.fullmatch(text)), None)
    if meant is None:
        return None
    for line in (given, shown, answer.strip().rpartition("\n")[2].rpartition(". ")[2][-200:]):
        plain = line
        if text not in ("{}", r"\{\}"):
            plain = re.sub(r"\\text\s*\{|[{}$.!。]", " ", line).strip()
        if any(map(_WORDS_FOR[meant].fullmatch, (plain, line.strip("$ .")))):
            return MathVerdict("correct", line, wanted)
    # infinity is a value, too
    return None if "infinity" in meant else _correct_or_wrong(False, shown or given, wanted, given)


def _is_residue(number: str, congruence: re.Match[str]) -> bool:
    """Whether a text is the least residue that a congruence such as 3 (mod 7) names."""
    return (
        _INTEGER.fullmatch(number) is not None
        and len(number) < _EXACT_DIGITS
        and int(number) == int(congruence[2]) % int(congruence[3])
    )


_BOUND = re.compile(
    r"(?i)(?:\\text\s*\{\s*)?(?:[a-z]\s*)?(?:(?P<ge>≥|>=|\\geq?(?:slant)?(?![a-z])|at\s+least"
    r"|no\s+(?:less|fewer)\s+than|minimum\s+of)|(?P<gt>>|\\gt(?![a-z])|more\s+than|greater\s+than"
    r"|over)"
    r"|(?P<le>≤|<=|\\leq?(?:slant)?(?![a-z])|at\s+most|no\s+more\s+than|up\s+to|maximum\s+of)"
    r"|(?P<lt><|\\lt(?![a-z])|less\s+than|fewer\s+than|under))"
    r"\s*\}?\s*\$?\s*(?P<value>-?\d{1,18}(?:\.\d{1,18})?)\s*\}?"
)


def _bound(text: str) -> tuple[str, Decimal] | None:
    """A bound in words or symbols, "at least 5" and "x ≥ 5"; None where a text is anything else."""
    bound = _BOUND.fullmatch(text.strip(" $"))
    if bound is None:
        return None
    return next(name for name in ("ge", "gt", "le", "lt") if bound[name]), Decimal(bound["value"])


_DECIMAL_COMMA = re.compile(r"(-?\d{1,9}),(\d{1,2}|\d{4,9})")
_PROSE_PERCENT = re.compile(r"[^\d\\$%=<>]{3,80}?\s(-?\d{1,9}(?:\.\d{1,9})?\s?%)[.\s]*")
_SHORT_SCALE = re.compile(r"(-?\d[\d,]{0,18}(?:\.\d{1,12})?)\s?(k|K|M|B)n?")


def _as_number(final: FinalAnswer | None, reference: FinalAnswer | None) -> FinalAnswer | None:
    """The answer as a number if the reference is one: "1,5" is then no list, and 15k no product."""
    if final is None or reference is None or reference.shape != "number":
        return final
    if share := _PROSE_PERCENT.fullmatch(final.text):
        return final._replace(text=share[1].replace(" ", ""), shape="number")
    if short := _SHORT_SCALE.fullmatch(final.text):
        value = Decimal(short[1].replace(",", "")).scaleb(
            {"k": 3, "m": 6, "b": 9}[short[2].lower()]
        )
        return final._replace(text=format(value, "f"), shape="number")
    comma = _DECIMAL_COMMA.fullmatch(final.text)
    if comma and _DECIMAL.fullmatch(reference.text):
        return final._replace(text=f"{comma[1]}.{comma[2]}", shape="number")
    return final


_DEGREES = re.compile(
    r"(?:\\angle\s*\w{1,5}\s*=\s*)?(-?\d{1,9}(?:\.\d{1,9})?)\s*(?:\^\s*\{?\s*\\circ\s*\}?|°"
    r"|\s*degrees?)"
)

_RADIANS = re.compile(r"[^A-Za-z]{1,40}\s*(?:\\(?:text|mathrm)\s*\{\s*)?rad(?:ian)?s?\s*\}?")


def _equal_angles(answer: tuple[str, tuple[Any, ...]], gold: tuple[str, tuple[Any, ...]]) -> bool:
    """Whether one is an angle in degrees, and the other the same angle as a multiple of pi."""
    degrees = [_DEGREES.fullmatch(text) for text, _ in (answer, gold)]
    if (degrees[0] is None) == (degrees[1] is None):
        return False
    text, values = gold if degrees[0] else answer
    radians = _numbers_in(values[0]) if values and (r"\pi" in text or "π" in text) else []
    angle = next(float(match[1]) for match in degrees if match)
    return len(radians) == 1 and math.isclose(
        radians[0], math.radians(angle), rel_tol=1e-9, abs_tol=1e-12
    )


def _compared_as_written(
    final: FinalAnswer, reference: FinalAnswer, answer: str
) -> MathVerdict | None:
    """The verdict on numerals of one base and letters of choices, compared as written."""
    based = [_BASED.fullmatch(value.text) for value in (final, reference)]
    if based[0] and based[1]:
        same = len({(number[1].lower().lstrip("0"), number[2]) for number in based if number}) == 1
        return _correct_or_wrong(same, final.text, reference.text)
    if _LETTER.fullmatch(reference.text) and (letter := choice_letter(answer)) is not None:
        return _correct_or_wrong(letter in reference.text, letter, reference.text)
    return None


_NAMED = re.compile(r"\s*([A-Za-z](?:_\{?\w{1,8}\}?)?(?:\(-?\d{1,9}\))?|\\[a-z]+)\s*=\s*[^=]+")
_HEDGE = re.compile(r"\\(?:lor|vee)(?![A-Za-z])|\b(?:or|oder|ou|или)\b|或者?|∨")
_LIST = re.compile(r"\\?[(（]?([^()\[\]{}]*,[^()\[\]{}]*)\\?[)）]?")


def _says_other(answer: str, reference: str) -> bool:
    """Whether an answer with the numbers of the reference still says something else.

    Math-Verify ignores the name of a variable, the unit, the base of a numeral, the order in a
    pair, a choice between alternatives, and invisible text.
    """
    ways = _HEDGE.split(answer)
    several = _HEDGE.search(reference) or re.search(r",|\\pm|±", reference)
    if len(ways) > 1 and all(re.search(r"\d", way) for way in ways) and not several:
        return True
    if (same := _equal_across_bases(answer, reference)) is not None:
        return not same
    both = ((answer, reference), (reference, answer))
    names = [_NAMED.fullmatch(text) for text in (answer, reference)]
    if (
        (PHANTOM.search(answer) and not re.search(r"\w", PHANTOM.sub("", answer)))
        or any(_RADIANS.fullmatch(a) and _DEGREES.fullmatch(b) for a, b in both)
        or (names[0] and names[1] and names[0][1].lower() != names[1][1].lower())
        or _in_one_unit(answer, reference) is False
    ):
        return True
    if answer.lstrip()[:1] not in ("(", "（", "\\") or reference.lstrip()[:1] in "(（\\{":
        return False
    lists = [_LIST.fullmatch(text.strip()) for text in (answer, reference)]
    parts = [[part.strip() for part in found[1].split(",")] for found in lists if found]
    return len(parts) == 2 and sorted(parts[0]) == sorted(parts[1]) and parts[0] != parts[1]


def _equal_across_bases(left: str, right: str) -> bool | None:
    """Whether a numeral with its base, 101_2, is a plain integer; None unless just one has a base."""
    numeral, plain = _BASED.fullmatch(left.strip()), right
    if numeral is None:
        numeral, plain = _BASED.fullmatch(right.strip()), left
    if numeral is None or _BASED.fullmatch(plain.strip()):
        return None
    try:
        return int(numeral[1], int(numeral[2])) == int(plain)
    except ValueError:  # no integer, a digit that the base has not, a base above 36
        return False


def _written_alike(given: str, wanted: str) -> bool:
    """Whether two short texts differ only in typesetting."""
    plain = [re.sub(r"\\(?:text|left|right|[,; ])|[\s{}$]", "", text) for text in (given, wanted)]
    return plain[0] == plain[1] != ""


def _as_given(text: str) -> str:
    """A short answer, or the last box of a long one, without dollar signs and full stop."""
    box = last_boxed(text[-2000:])
    given = text if box is None else box
    if len(given) > 80 or "<" in given:
        return ""
    return given.replace("$", "").strip().removesuffix(".").strip()


def _in_one_unit(answer: str, reference: str) -> bool | None:
    """Whether two quantities are equal in the reference's unit; None if one is no quantity, since
    letters may be variables.
    """
    given, wanted = _quantity(answer), _quantity(reference)
    if given is None or wanted is None:
        return None
    return any(
        math.isclose(value, wanted.value, rel_tol=1e-6) for value in conversions(given, wanted)
    )


_MEASURES = re.compile(r"\s*[-+$€£¥]?\s*\.?\d.*[A-Za-zµμ°ΩÅ%$€£¥]", re.DOTALL)


@functools.lru_cache(maxsize=1024)
def _quantity(text: str) -> Quantity | None:
    """The text as one quantity with a unit; None if it is anything else or holds more."""
    if len(text) > 80 or not _MEASURES.match(text):
        return None
    text = plain_units(text).strip().rstrip(".")
    quantities = find_quantities(text)
    whole = (
        len(quantities) == 1
        and text[quantities[0].end :].strip(" })") == ""
        and not text[: quantities[0].start].strip("-+$€£¥ ")
    )
    return quantities[0] if whole and quantities[0].units else None


def _equal_plainly(gold: FinalAnswer, answer: FinalAnswer) -> bool | None:
    if not gold.shape == answer.shape == "number":
        return None
    texts = [value.text.replace(",", "") for value in (gold, answer)]
    if any(_NEGATIVE_ZEROS.match(text) for text in texts):
        return None
    if all(_INTEGER.fullmatch(text) for text in texts):
        if max(map(len, texts)) > 1000:  # Python refuses to convert very long ones
            return None
        return int(texts[0]) == int(texts[1])
    if all(_INTEGER.fullmatch(text) or _DECIMAL.fullmatch(text) for text in texts):
        return _equal_decimals(*texts)
    if all(_INTEGER.fullmatch(text) or _FRACTION.fullmatch(text) for text in texts):
        if max(map(len, texts)) <= _EXACT_DIGITS:
            return Fraction(texts[0]) == Fraction(texts[1])
    return None


def _equal_decimals(gold: str, answer: str) -> bool | None:
    """Compares as Math-Verify does, to six decimals in floats of 15 digits; None if that rounds."""
    whole, decimals = zip(*(text.partition(".")[::2] for text in (gold, answer)), strict=True)
    if max(map(len, whole)) > _EXACT_DIGITS - _DECIMALS:
        return None
    wanted, given = Decimal(gold), Decimal(answer)
    difference = abs(wanted - given)
    if difference > Decimal(2).scaleb(-_DECIMALS):
        return False
    if max(abs(wanted), abs(given)) < _SMALL and difference > abs(wanted) * _SMALL:
        return False
    return difference == 0 if max(map(len, decimals)) <= _DECIMALS else None


@functools.lru_cache(maxsize=1)
def prepare_worker() -> None:
    """Imports, parses and compares once: the first time costs half a second that no answer caused."""
    verify_answer(r"\frac{x}{3}", r"\frac{x}{2}")


@functools.lru_cache(maxsize=1)
def _math_verify() -> Any:
    import math_verify
    from math_verify import grader, parser

    # Each worker process would warn that no time limit is set; the pool holds the deadline.
    parser.TIMEOUT_WARNING_SHOWN = grader.TIMEOUT_WARNING_SHOWN = True
    return math_verify


class _Parsed(NamedTuple):
    values: tuple[Any, ...]
    text: str


@functools.lru_cache(maxsize=512)
def _parse(answer: FinalAnswer) -> _Parsed:
    """The expressions of a text and their source; cached, since answers share references."""
    library = _math_verify()
    plain, latex = library.ExprExtractionConfig(), library.LatexExtractionConfig()
    text, targets = answer.text, [plain]
    if answer.shape == "text":
        targets = [latex, plain]
    elif answer.shape not in ("number", "mixed"):
        words = rf"\text{{{text}}}" if answer.shape == "words" else text
        text, targets = f"${words}$", [latex]
    parsed = library.parse(text, targets, parsing_timeout=None)
    values = tuple(value for value in parsed if not isinstance(value, str))
    source = next((value for value in parsed if isinstance(value, str)), "")
    return _Parsed(values, source if answer.shape == "text" else answer.text)


def _equal(gold: tuple[Any, ...], answer: tuple[Any, ...]) -> bool:
    equal = bool(_math_verify().verify(list(gold), list(answer), timeout_seconds=None))
    return equal and _small_parts_agree(gold[0], answer[0]) and _exactly_equal(gold[0], answer[0])


_MOST_DIGITS = 4000
"""Digits to which a difference is computed; if it is still zero, the numbers are equal."""


def _exactly_equal(gold: Any, answer: Any) -> bool:
    """Whether two values that agree to six decimals are exactly equal.

    Double precision takes (1/2)^2023 for (1/2)^2024. Sets and tuples are compared member by member;
    decimals and values with a variable are left to Math-Verify.
    """
    held = [_members(value) for value in (gold, answer)]
    if all(held):
        return all(any(_exactly_equal(a, b) for b in held[1]) for a in held[0])
    exact = all(
        getattr(value, "is_number", False) and getattr(value, "is_finite", True) is not False
        for value in (gold, answer)
    )
    return not exact or _holds_floats(gold, answer) or not _differs(gold, answer)


def _members(value: Any) -> tuple[Any, ...]:
    """The members of a set or tuple; empty for any other value."""
    return tuple(value.args) if type(value).__name__ in ("FiniteSet", "Tuple") else ()


def _holds_floats(*values: Any) -> bool:
    return any(type(part).__name__ == "Float" for value in values for part in value.atoms())


def _differs(gold: Any, answer: Any) -> bool:
    """Whether two exact numbers surely differ; the precision grows up to a bound."""
    sympy: Any = sys.modules["sympy"]
    with sympy.evaluate(True):
        difference = gold - answer
    if difference.is_Rational:
        return bool(difference != 0)
    for digits in (100, 1000, _MOST_DIGITS):
        value = difference.evalf(5, maxn=digits)
        parts = [part for part in value.as_real_imag() if part != 0]
        if any(getattr(part, "_prec", 2) > 1 for part in parts):
            return True
        if not parts:
            return False
    return False


def _small_parts_agree(gold: Any, answer: Any) -> bool:
    """Whether numbers below 1e-4, for which six decimals are too few, agree relatively."""
    wanted, given = _numbers_in(gold), _numbers_in(answer)
    if len(wanted) != len(given) or not any(abs(value) < SMALL for value in wanted + given):
        return True
    return all(any(_near(a, b) for b in given) for a in wanted) and all(
        any(_near(a, b) for a in wanted) for b in given
    )


def _near(wanted: float, given: float) -> bool:
    return abs(wanted - given) <= (
        abs(wanted) * SMALL if max(abs(wanted), abs(given)) < SMALL else SMALL
    )


def _numbers_in(value: Any) -> list[float]:
    """The real number that a value is, or those in a set or tuple."""
    if getattr(value, "is_number", False):
        try:
            return [float(value)]
        except (TypeError, OverflowError, ValueError):
            return []
    return [number for part in _members(value) for number in _numbers_in(part)]


def _equal_otherwise(
    reference: FinalAnswer, gold: tuple[Any, ...], final: FinalAnswer, answer: tuple[Any, ...]
) -> bool:
    """Equality in notations Math-Verify keeps apart: x > 3 and (3, oo), log 2 for ln 2."""
    if {"Interval", "Union"}.intersection(type(value).__name__ for value in gold):
        ways = _HEDGE.split(_TEXT_WORD.sub(r" \1 ", final.text))
        if len(ways) > 1:
            return _equal_sets(
                gold[0], [_parse(final._replace(text=way.strip(" ,;"))).values for way in ways]
            )
        if getattr(answer[0], "is_Relational", False) or type(answer[0]).__name__ == "And":
            return bool(_math_verify().verify(list(answer), list(gold), timeout_seconds=None))
    large = [_numbers_in(values[0]) for values in (gold, answer)]
    if all(len(numbers) == 1 and abs(numbers[0]) > _LARGE for numbers in large) and _holds_floats(
        gold[0], answer[0]
    ):
        # no machine floats: all above 2^1024 are infinite
        wanted, given = gold[0].evalf(20), answer[0].evalf(20)
        return bool(abs(wanted - given) <= abs(wanted) * 1e-12)
    texts = (reference.text, final.text)
    shares = [_PERCENT.fullmatch(text.replace(",", "")) for text in texts]
    if (shares[0] is None) != (shares[1] is None):
        # 12.5% is both 12.5 and 0.125
        value = Decimal(next(share[1] for share in shares if share))
        other = _parse(reference).values if shares[1] else answer
        return any(
            _equal(_parse(FinalAnswer(str(v), "number", "")).values, other)
            for v in (value, value / 100)
        )
    if _equal_complex(gold, answer):
        return True
    measured = _MEASURED.fullmatch(final.text)
    if measured is not None and not re.search(
        r"[A-Za-z]", reference.text.replace(r"\pi", "").replace(r"\sqrt", "").replace(r"\frac", "")
    ):
        return _equal(gold, _parse(final._replace(text=measured[1])).values)
    if (same := _equal_across_bases(*texts)) is not None:
        return same
    if any(r"\ln" in text for text in texts) and any(_PLAIN_LOG.search(text) for text in texts):
        natural = [
            value._replace(text=_PLAIN_LOG.sub(r"\\ln", value.text)) for value in (reference, final)
        ]
        values = [_parse(value).values for value in natural]
        return bool(values[0]) and bool(values[1]) and _equal(values[0], values[1])
    return False


_OF_INTEGERS = re.compile(
    r"(?:\\(?:q?quad|[ ,;])|[\s,;(]|\\text\s*\{\s*(?:where|for|with|,)?\s*\})*[kmnlj]\s*(?:\\in"
    r"|∈)\s*(?:\\(?:mathbb|mathbf|Bbb)\s*\{?\s*Z\s*\}?|\\Z(?![a-z])|ℤ|Z)\)?"
    r"|(?:\\q?quad|[\s,;(])*(?:\\text\s*\{\s*)?,?\s*(?:where|for|with)\s+(?:(?:any|all|some|an"
    r"|every)\s+)?(?:integers?\s+\$?[kmnlj]\$?|\$?[kmnlj]\$?\s+(?:is\s+)?(?:any"
    r"|an)\s+integer)\s*\}?\)?"
)
"""Words that let the letter of a family of solutions run over the integers."""


_FOR_ANY = re.compile(
    r"(?:\\q?quad|[\s,;])*\\text\s*\{\s*,?\s*(?:for|where|with)\s+(?:any|all|some|every|each"
    r"|an?\s+arbitrary)\s*(?:real|positive)?\s*(?:numbers?|constants?)?"
    r"\s*\}?\s*\$?[A-Za-z]\$?\s*\}?\s*$"
)


def _unquantified(value: FinalAnswer) -> FinalAnswer:
    """The value without the words that say over what a letter runs."""
    text = _FOR_ANY.sub("", _OF_INTEGERS.sub("", value.text))
    return value if text == value.text else value._replace(text=text.strip(" ,;"))


def _equal_families(gold: Any, answer: Any, of_integers: bool) -> bool:
    """Whether a + bk and c + dn are one family over all integers: b = ±d, and a - c is a multiple
    of b.

    A letter from j to n times a multiple of pi runs over the integers even if nothing says so.
    """
    sympy: Any = sys.modules["sympy"]
    families = []
    for value in (gold, answer):
        value = value.rhs if type(value).__name__ in ("Eq", "Equality") else value
        letters = sorted(getattr(value, "free_symbols", ()), key=str)
        if (
            len(letters) != 1
            or str(letters[0]) not in "jklmn"
            or not hasattr(value, "as_coefficients_dict")
        ):
            return False
        with sympy.evaluate(True):
            step = sympy.expand(value).coeff(letters[0], 1)
            start = sympy.expand(value - step * letters[0])
        if not (step.is_number and start.is_number and step != 0) or not (
            of_integers or step.has(sympy.pi)
        ):
            return False
        families.append((start, step))
    (a, b), (c, d) = families
    with sympy.evaluate(True):
        return bool(sympy.simplify(abs(b) - abs(d)) == 0 and sympy.simplify((a - c) / b).is_integer)


_TEXT_WORD = re.compile(r"\\(?:text|mathrm|mbox)\s*\{\s*(or|oder|ou|или|或者?)\s*\}")


def _equal_sets(gold: Any, ways: list[tuple[Any, ...]]) -> bool:
    """Whether alternatives such as x < -1 or x > 1 make up the union of intervals `gold`."""
    parts = []
    for way in ways:
        value: Any = way[0] if way else None
        if getattr(value, "is_Relational", False) and len(value.free_symbols) == 1:
            parts.append(value.as_set())
        elif type(value).__name__ in ("Interval", "Union", "FiniteSet"):
            parts.append(value)
        else:
            return False
    return bool(functools.reduce(lambda left, right: left.union(right), parts) == gold)


_MEASURED = re.compile(
    r"(.*(?:\\pi|[\d)}]))\s+(?:[mcdk]m|m|in|ft|yd|mi|inch(?:es)?|feet|met(?:er|re)s?|(?:square "
    r"|cubic )?units?)(?:\^\{?[23]\}?)?"
)


def _equal_complex(gold: tuple[Any, ...], answer: tuple[Any, ...]) -> bool:
    """Equality of numbers with i and e, which Math-Verify takes for variables."""
    sympy: Any = sys.modules["sympy"]  # Math-Verify has imported it
    values, named = [], False
    for value in (gold[0], answer[0]):
        names = {str(symbol): symbol for symbol in getattr(value, "free_symbols", ())}
        if not names.keys() <= {"i", "e"} or not hasattr(value, "subs"):
            return False
        values.append(
            value.subs(
                {symbol: sympy.I if name == "i" else sympy.E for name, symbol in names.items()}
            )
        )
        named = named or bool(names)
    if not named or not all(value.is_number for value in values):
        return False
    if _holds_floats(*values):
        return bool(abs(complex((values[0] - values[1]).evalf(15))) < 1e-9)
    return not _differs(*values)
