"""Numbers in running text, as people write them."""

from __future__ import annotations

import math
import re
from typing import NamedTuple


class Number(NamedTuple):
    """A number found in a text."""

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
    (?:[eE](?P<exponent>[-+]?\d{1,4})(?![\w.]))?
    (?:\s?(?:\\times|×|\*)\s?10\s?(?:\^|\*\*)\s?\{?(?P<power>-?\d{1,4})\}?)?
    (?P<scale>\s?(?:万亿|百万|千万|万|亿|(?:thousand|million|billion|trillion)\b))?
    (?P<percent>\s?\\?%|\s?percent\b)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MAY_GO_ON = re.compile(r"[eE%\\×*万亿百千]|\s[%\\×*万亿百千tmbpTMBP]")
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
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
}
_NOT_DIGITS = re.compile(r"[^\d.]")


def find_numbers(text: str) -> list[Number]:
    """All numbers in order.

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
        if math.isfinite(number.value):
            found.append(number)
    return found


def _number(text: str, digits: re.Match[str]) -> Number:
    start, end = digits.span()
    written = digits.group()
    value = float(written if written.isdigit() else _NOT_DIGITS.sub("", written))
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
    if exponent := after["exponent"] or after["power"]:
        try:
            value *= 10.0 ** int(exponent)
        except OverflowError:
            return math.inf
    if after["scale"]:
        value *= _SCALES[after["scale"].strip().lower()]
    return value


def close(a: float, b: float, tolerance: float) -> bool:
    """Whether two numbers differ by at most `tolerance`, absolutely or relative to `b`."""
    return abs(a - b) <= tolerance * max(1.0, abs(b))
