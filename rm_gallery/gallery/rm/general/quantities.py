"""Numbers with their units in running text."""

from __future__ import annotations

import re
from typing import NamedTuple

from rm_gallery.core.text.numbers import Number, find_numbers
from rm_gallery.gallery.rm.general.units import Unit, unit_of


class Quantity(NamedTuple):
    """A number and its unit, None where it has none that the table knows."""

    value: float
    unit: Unit | None
    start: int
    end: int

    def in_unit(self, unit: Unit) -> float:
        """The value in another unit of the same dimension."""
        own = self.unit or unit
        return (self.value * own.factor + own.offset - unit.offset) / unit.factor


_CJK = r"\u3400-\u9fff"
_WORD = rf"[A-Za-zµμ°℃℉%％€£¥￥₹¢$]+|[{_CJK}]{{1,4}}"
_POWER = r"(?:\s?\^\s?\{?-?[1-4]\}?|[²³]|\s+squared\b|\s+cubed\b)?"
_UNIT = re.compile(
    rf"(?:\s{{0,3}}|-)(?:(?:degrees?|°)\s*(?P<degrees>Celsius|Fahrenheit|C\b|F\b)"
    rf"|(?P<unit>(?:(?:square|cubic|sq\.?|cu\.?)\s+)?(?:{_WORD}){_POWER}"
    rf"(?:(?:\s?[/·⋅*]\s?|\s+per\s+)(?:{_WORD}){_POWER}){{0,2}}))",
    re.IGNORECASE,
)
_CURRENCY = re.compile(r"US\$|USD|EUR|GBP|CNY|RMB|JPY|INR|[$€£¥￥₹]")
_BEFORE = re.compile(r"(?:US|USD|EUR|GBP|CNY|RMB|JPY|INR)\s?$")
_SCALE = re.compile(r"\s?([kKmMbB])n?\b")
_GOES_ON = re.compile(r"\s+[A-Za-z]")
_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textrm|rm|operatorname)\s*\{([^{}]*)\}")
_MATH = re.compile(r"\$(?=\S)([^$\n]{1,200}?)(?<=\S)\$(?!\d)")
_REPLACED = (
    ("\\left", ""),
    ("\\right", ""),
    ("^\\circ", "°"),
    ("^{\\circ}", "°"),
    ("\\%", "%"),
    ("\\cdot", "·"),
    ("\\$", "$"),
)
_SPACE = re.compile(r"\\[,;:! ]|~")


def find_quantities(text: str) -> list[Quantity]:
    """All numbers in order with the unit that follows them (or the currency before them).

    Parts such as "5 ft 3 in" and "1 h 30 min" are one quantity. LaTeX around units is understood.
    """
    text = plain_units(text)
    found: list[Quantity] = []
    for number in find_numbers(text):
        if found and number.start < found[-1].end:  # the power in m/s^2
            continue
        quantity = _quantity(text, number)
        if not (found and _extends(found, quantity, text)):
            found.append(quantity)
    return found


def plain_units(text: str) -> str:
    """The text without the LaTeX that stands around units."""
    if "\\" not in text and "$" not in text:
        return text
    text = _TEXT.sub(r" \1", text)
    for latex, plain in _REPLACED[:-1]:
        text = text.replace(latex, plain)
    return _MATH.sub(r"\1", _SPACE.sub(" ", text)).replace("\\$", "$")


def _quantity(text: str, number: Number) -> Quantity:
    if number.percent:
        return Quantity(number.value, unit_of("%"), number.start, number.end)
    currency = _currency(text, number.start, number.end)
    if currency is not None:
        scale = _SCALE.match(text, number.end)
        factor = {"k": 1e3, "m": 1e6, "b": 1e9}[scale[1].lower()] if scale else 1.0
        return Quantity(number.value * factor, currency, number.start, scale.end() if scale else number.end)
    unit, end = _unit_after(text, number.end)
    return Quantity(number.value, unit, number.start, end)


def _unit_after(text: str, position: int) -> tuple[Unit | None, int]:
    match = _UNIT.match(text, position)
    if match is None:
        return None, position
    if match["degrees"]:
        return unit_of(f"°{match['degrees'][0].upper()}"), match.end()
    written = match["unit"]
    if written == "in" and _GOES_ON.match(text, match.end()):  # "5 in total"
        return None, position
    end = match.end()
    # Chinese runs on without a space, and a compound may end in a word that is no unit
    while written:
        unit = unit_of(written)
        if unit is not None:
            return unit, end
        shorter = (
            written[:-1]
            if re.search(rf"[{_CJK}]$", written)
            else re.sub(r"(?:[/·⋅*]|\s+per\s+|^)[^/·⋅*]*$", "", written)
        )
        end -= len(written) - len(shorter)
        written = shorter.rstrip()
    return None, position


def _currency(text: str, start: int, end: int) -> Unit | None:
    inside = _CURRENCY.search(text, start, end)
    if inside is not None:
        return unit_of(inside.group())
    before = _BEFORE.search(text[max(0, start - 5) : start])
    return unit_of(before.group().strip()) if before else None


def _extends(found: list[Quantity], part: Quantity, text: str) -> bool:
    """Add a smaller part to the quantity right before it."""
    whole = found[-1]
    if whole.unit is None or part.unit is None or whole.unit.dimension != part.unit.dimension or whole.unit.offset:
        return False
    if not whole.unit.dimension or part.unit.factor >= whole.unit.factor or part.value < 0:
        return False
    if text[whole.end : part.start].strip() or part.value * part.unit.factor >= whole.unit.factor:
        return False
    value = whole.value + part.value * part.unit.factor / whole.unit.factor
    found[-1] = Quantity(value, whole.unit, whole.start, part.end)
    return True
