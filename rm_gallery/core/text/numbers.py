"""Numbers in running text, as people write them."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import NamedTuple

SMALL = 1e-4
"""Below this, numbers are compared relatively."""


class Number(NamedTuple):
    """A number found in a text; whole ones of many digits are `int`, so that they are compared exactly."""

    value: float
    """What is written; a percentage keeps its figure: 50 for "50%"."""
    percent: bool
    start: int
    end: int


_SIGNS = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if code != 0xFF0C} | {
    0x2212: "-",
    0xA0: "\u2009",
    0x202F: "\u2009",
}
_GROUPED = r"\d{1,3}(?:,\d{3})+(?!\d)|\d{1,3}(?:\{,\}\d{3})+(?!\d)|\d{1,3}(?:\u2009\d{3})+(?!\d)"
_DIGITS = re.compile(rf"(?<![A-Za-z_0-9])(?<!\d\.)(?:(?:{_GROUPED}|\d+)(?:\.\d+)?|\.\d+)")
_AFTER = re.compile(
    r"""
    (?:[eE](?P<exponent>[-+]?\d{1,4})(?![A-Za-z0-9_]|\.\d))?
    (?:\s?(?:\\times|\\cdot|×|\*|·|⋅|x)\s?10\s?(?:(?:\^|\*\*)\s?[{(]?(?P<power>[-+]?\d{1,4})[})]?|(?P<raised>[⁻⁺]?[⁰¹²³⁴-⁹]{1,4})))?
    (?P<scale>\s?(?:万亿|百万|千万|万|亿|(?:dozen|hundred|thousand|million|billion|trillion)\b))?
    (?P<percent>\s?\\?%|\s?percent\b)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BELOW = re.compile(r"\s?/\s?0{0,3}([1-9]\d{0,14})(?!\d|[.,]\d|\s?/)")
_MIXED = re.compile(r"\s(\d{1,6})\s?/\s?([1-9]\d{0,5})(?![\d/])")
_FRACTION_SIGN = re.compile(r"\s?([¼½¾⅐-⅞])")
_MAY_GO_ON = re.compile(r"[eE%\\×*·⋅x万亿百千]|\s[%\\×*·⋅x万亿百千dhtmbpDHTMBP]")
_DIGIT = re.compile(r"\d")
_BEFORE = re.compile(r"(?P<percent_of>百分之)?(?P<sign>(?<![\w)\]}.])[-+])?(?:\\?[$€£¥₹]\s?)?$")
_BEFORE_SIZE = 6
_MAY_STAND_BEFORE = frozenset("-+$€£¥₹之 ")
_SCALES = {
    "万": 1e4,
    "亿": 1e8,
    "万亿": 1e12,
    "百万": 1e6,
    "千万": 1e7,
    "dozen": 12,
    "hundred": 100,
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
}
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_NOT_DIGITS = re.compile(r"[^\d.]")


def find_numbers(text: str, *, fractions: bool = False) -> list[Number]:
    """All numbers in order; with `fractions` 3/4, 1 1/2 and ½ are one number each.

    Read as one number: 1,000 (also with thin spaces or LaTeX's {,}), -5, .5, 1e5, 3 × 10^4, $1,200, 50%, 百分之五十 only in
    digits (百分之50), 3万, 2 million, and full-width digits. A minus between two numbers ("3-5") is no sign. Digits glued
    to the end of a Latin word (H2O, v2) are no numbers. Positions are those of the given text.
    """
    if not text.isascii():
        text = text.translate(_SIGNS)
    found: list[Number] = []
    position = 0
    # a search that starts with a digit is many times faster than one that starts with what may stand before it
    while (digit := _DIGIT.search(text, position)) is not None:
        start = digit.start()
        if text[start - 1 : start] == "." and not (start > 1 and _is_word(text[start - 2])):
            start -= 1
        digits = _DIGITS.match(text, start)
        if digits is None:
            position = digit.end()
            continue
        number = _number(text, digits)
        position = number.end
        if fractions:
            number = _with_fraction(text, number)
            position = number.end
        if math.isfinite(number.value):
            found.append(number)
    return found


def _with_fraction(text: str, number: Number) -> Number:
    """The number with the fraction it is the numerator or the whole part of."""
    if sign := _FRACTION_SIGN.match(text, number.end):
        value = number.value + math.copysign(unicodedata.numeric(sign[1]), number.value)
        return number._replace(value=value, end=sign.end())
    written = text[number.start : number.end]
    if not written.lstrip("-+").isdigit() or text[number.start - 1 : number.start] == "/":
        return number
    whole = _MIXED.match(text, number.end)
    if whole is not None:
        part = int(whole[1]) / int(whole[2])
        return number._replace(value=number.value + math.copysign(part, number.value), end=whole.end())
    below = _BELOW.match(text, number.end)
    return number if below is None else number._replace(value=number.value / int(below[1]), end=below.end())


def _number(text: str, digits: re.Match[str]) -> Number:
    start, end = digits.span()
    written = digits.group()
    plain = written if written.isdigit() else _NOT_DIGITS.sub("", written)
    value: float = int(plain) if 15 < len(plain) < 300 and plain.isdigit() else float(plain)
    percent = False
    if _MAY_GO_ON.match(text, end):
        after = _AFTER.match(text, end)
        if after is not None:
            value, percent, end = _scaled(value, after), bool(after["percent"]), after.end()
    if start and text[start - 1] in _MAY_STAND_BEFORE:
        before = _BEFORE.search(text, max(0, start - _BEFORE_SIZE), start)
        if before is not None:
            start, percent = before.start(), percent or bool(before["percent_of"])
            value = -value if before["sign"] == "-" else value
    return Number(value, percent, start, end)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _scaled(value: float, after: re.Match[str]) -> float:
    if exponent := after["exponent"] or after["power"] or (after["raised"] or "").translate(_RAISED):
        try:
            value *= 10.0 ** int(exponent)
        except OverflowError:
            return math.inf
    if after["scale"]:
        value *= _SCALES[after["scale"].strip().lower()]
    return value


def close(a: float, b: float, tolerance: float) -> bool:
    """Whether two numbers differ by at most `tolerance`, absolutely or relative to `b`; below 1e-4 relatively alone.

    Whole numbers are equal or not, unless the tolerance is above 1e-6.
    """
    if tolerance <= 1e-6 and a == int(a) and b == int(b):
        return a == b
    return abs(a - b) <= tolerance * (max(1.0, abs(b)) if max(abs(a), abs(b)) >= SMALL else abs(b))
