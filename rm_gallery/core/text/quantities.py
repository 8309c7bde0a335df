"""Numbers with their units in running text: SI with its prefixes, imperial, time, angle,
temperature, data, currencies, percent.

The units are a table (`units.yaml`), so that a verdict is the same on every machine.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import cache, lru_cache
from typing import NamedTuple

from rm_gallery.core.text.canonical import rewrites, rewritten
from rm_gallery.core.text.language import function_words, word_table

SMALL = 1e-4
"""Below this, numbers are compared relatively: to the reference, to this share of it."""
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")


class Number(NamedTuple):
    """A number in a text; a whole number of many digits is an `int`, so it compares exactly."""

    value: float
    """The number as written: 50 for "50%"."""
    percent: bool
    start: int
    end: int


_SIGNS = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if code != 0xFF0C} | {
    0x2212: "-",
    0xA0: "\u2009",
    0x202F: "\u2009",
}
_EUROPEAN = r"\d{1,3}(?:\.\d{3})+,\d{1,2}(?![.,]?\d)|\d{1,3}(?:\.\d{3}){2,}(?![.,]?\d)"
"""1.250,50 and 1.000.000: points between groups, and a comma before decimals."""
_GROUPED = (
    _EUROPEAN
    + r"|\d{1,3}(?:,\d{3})+(?!\d)|\d{1,3}(?:\{,\}\d{3})+(?!\d)|\d{1,3}(?:\u2009\d{3})+(?!\d)"
)
_DIGITS = re.compile(rf"(?<![A-Za-z_0-9])(?<!\d\.)(?:(?:{_GROUPED}|\d+)(?:\.\d+)?|\.\d+)")
_IS_EUROPEAN = re.compile(_EUROPEAN)
_AFTER = re.compile(
    r"""
    (?:[eE](?P<exponent>[-+]?\d{1,4})(?![A-Za-z0-9_]|\.\d))?
    (?:\s?(?:\\times|\\cdot|×|\*|·|⋅|x)\s?10\s?(?:(?:\^|\*\*)\s?[{(]?(?P<power>[-+]?\d{1,4})[})]?|(?P<raised>[⁻⁺]?[⁰¹²³⁴-⁹]{1,4})))?
    (?P<scale>k(?![A-Za-z0-9])|\s?(?:万亿|百万|千万|万|亿|(?:dozen|hundred|thousand|million|billion|trillion)\b))?
    (?P<percent>\s?\\?%|\s?percent\b)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BELOW = re.compile(r"\s?/\s?0{0,3}([1-9]\d{0,14})(?!\d|[.,]\d|\s?/)")
_MIXED = re.compile(r"\s(\d{1,6})\s?/\s?([1-9]\d{0,5})(?![\d/])")
_FRACTION_SIGN = re.compile(r"\s?([¼½¾⅐-⅞])")
_MAY_GO_ON = re.compile(r"[eEk%\\×*·⋅x万亿百千]|\s[%\\×*·⋅x万亿百千dhtmbpDHTMBP]")
_DIGIT = re.compile(r"\d")
_POINT = re.compile(r"(?<!\w)\.")
_NUMBER_BEFORE = re.compile(
    r"(?P<percent_of>百分之)?(?P<sign>(?<![\w)\]}.])[-+])?(?:\\?[$€£¥₹]\s?)?$"
)
_BEFORE_SIZE = 6
_MAY_STAND_BEFORE = frozenset("-+$€£¥₹之 ")
_NOT_DIGITS = re.compile(r"[^\d.]")


def find_numbers(text: str, *, fractions: bool = False) -> list[Number]:
    """All numbers in order; with `fractions` 3/4, 1 1/2 and ½ are one number each.

    Read as one number: 1,000 (also with thin spaces or LaTeX's {,}), -5, .5, 1e5, 3 × 10^4, $1,200,
    50%, 百分之五十 only in digits (百分之50), 3万, 2 million, and full-width digits. A minus between two
    numbers ("3-5") is no sign. Digits glued to the end of a Latin word (H2O, v2) are no numbers.
    Positions are those of the given text.
    """
    if not text.isascii():
        text = text.translate(_SIGNS)
    numbers: list[Number] = []
    position = 0
    # searching for a digit is many times faster than for the signs that may precede it
    while (digit := _DIGIT.search(text, position)) is not None:
        start = digit.start()
        if text[start - 1 : start] == "." and _POINT.match(text, start - 1):
            start -= 1
        digits = _DIGITS.match(text, start)
        if digits is None:
            position = digit.end()
            continue
        number = _number_at(text, digits)
        if fractions:
            number = _with_fraction(text, number)
        position = number.end
        if math.isfinite(number.value):
            numbers.append(number)
    return numbers


def _with_fraction(text: str, number: Number) -> Number:
    """The number, joined with the fraction that follows: 3/4, 1 1/2, 2½."""
    written = text[number.start : number.end]
    if fraction := _FRACTION_SIGN.match(text, number.end):
        part = unicodedata.numeric(fraction[1])
    elif not written.lstrip("-+").isdigit() or text[number.start - 1 : number.start] == "/":
        return number
    elif fraction := _MIXED.match(text, number.end):
        part = int(fraction[1]) / int(fraction[2])
    elif below := _BELOW.match(text, number.end):
        return number._replace(value=number.value / int(below[1]), end=below.end())
    else:
        return number
    return number._replace(
        value=number.value + math.copysign(part, number.value), end=fraction.end()
    )


def _number_at(text: str, digits: re.Match[str]) -> Number:
    start, end = digits.span()
    written = digits[0]
    if "." in written and _IS_EUROPEAN.fullmatch(written):
        written = written.replace(".", "").replace(",", ".")
    plain = written if written.isdigit() else _NOT_DIGITS.sub("", written)
    value: float = int(plain) if 15 < len(plain) < 300 and plain.isdigit() else float(plain)
    percent = False
    if _MAY_GO_ON.match(text, end) and (after := _AFTER.match(text, end)):
        value, percent, end = _scaled(value, after), bool(after["percent"]), after.end()
    if (
        start
        and text[start - 1] in _MAY_STAND_BEFORE
        and (before := _NUMBER_BEFORE.search(text, max(0, start - _BEFORE_SIZE), start))
    ):
        start, percent = before.start(), percent or bool(before["percent_of"])
        value = -value if before["sign"] == "-" else value
    return Number(value, percent, start, end)


def _scaled(value: float, after: re.Match[str]) -> float:
    if exponent := after["exponent"] or after["power"] or after["raised"]:
        try:
            value *= 10.0 ** int(exponent.translate(SUPERSCRIPTS))
        except OverflowError:
            return math.inf
    return value * _scale(after["scale"]) if after["scale"] else value


def _scale(name: str) -> float:
    """What a word or letter behind a number multiplies it by: k, million, 万."""
    return float(word_table("units")["scales"][name.strip().lower()])


def close(a: float, b: float, tolerance: float) -> bool:
    """Whether two numbers differ by at most `tolerance`: absolutely or relative to `b`, below 1e-4
    only relative to `b`.

    Whole numbers are equal or not, unless the tolerance is above 1e-6.
    """
    if tolerance <= 1e-6 and a == int(a) and b == int(b):
        return a == b
    return abs(a - b) <= tolerance * (max(1.0, abs(b)) if max(abs(a), abs(b)) >= SMALL else abs(b))


class UnitOfMeasure(NamedTuple):
    """A unit in base units: value * factor + offset; `dimension` holds the powers of base units."""

    factor: float
    dimension: tuple[tuple[str, float], ...]
    offset: float = 0.0


class Quantity(NamedTuple):
    """A number and what it counts."""

    value: float
    units: tuple[UnitOfMeasure, ...]
    """Possible meanings of its unit, likeliest first ("C": Celsius, coulomb); empty if unknown."""
    things: frozenset[str]
    """Words after the number that are no unit: red and apple in "5 red apples"."""
    start: int
    end: int


PERCENT = UnitOfMeasure(0.01, ())

_CJK = r"\u3400-\u9fff\u30a0-\u30ff\uac00-\ud7a3"
_WORD = rf"[А-Яа-яё]+|[A-Za-zÀ-ÖØ-öø-ÿµμΩ°º℃℉%％€£¥￥₹₩₽¢$]+|(?:(?!每)[{_CJK}]){{1,4}}"
_POWER = (
    r"(?:\s?(?:\^|\*\*)\s?[{(]?\s?-?[1-4]\s?[})]?|[⁻¹²³⁴]{1,2}|-[1-3](?!\d)|[23](?![\d.,])"
    r"|\s+squared\b|\s+cubed\b)?"
)
_TERM = rf"(?:(?:square|cubic|sq\.?|cu\.?|平方|立方)\s*)?(?:{_WORD}){_POWER}"
_UNIT = re.compile(
    rf"(?i)(?:\s{{0,3}}|-)(?:(?:degrees?|deg|°|º)\s*(?P<degrees>Celsius|Fahrenheit|C\b|F\b)"
    rf"|(?P<unit>{_TERM}(?:(?:\s?[/·⋅×*每]\s?|\s+(?:per|pro|par|por)\s+"
    rf"|\s?(?=[A-Za-z]{{1,3}}\s?(?:\^|\*\*|[⁻²³]|-\d))|\s(?=[A-Za-z]{{1,3}}/)"
    rf"|\s(?=[msK]\b))(?:{_TERM}|\({_TERM}(?:[·⋅* ]{_TERM})?\))){{0,3}}))"
)
_TERMS = re.compile(rf"(?i)\s({_TERM}(?!\S)|\S+)")
_SINGLE = re.compile(_WORD)
_TERM_PARTS = re.compile(
    r"(?i)(square|cubic|sq|cu|平方|立方)?\.?\s*([^\s\d^²³⁻¹⁴*-]+?)\s*(?:(?:\^"
    r"|\*\*)?\s*[{(]?\s?(-?[1-4])\s?[})]?|(⁻?[¹²³⁴]|[¹²³⁴]{2})|(squared|cubed))?"
)
_THING = re.compile(
    r"(?:[\s-]{1,2}|^)([A-Za-zÀ-ÖØ-öø-ÿА-Яа-яё]{2,30})(?![A-Za-zÀ-ÖØ-öø-ÿА-Яа-яё/^]|\.(?=\S))"
)
_CURRENCY = re.compile(r"US\$|A\$|C\$|USD|EUR|GBP|CNY|RMB|JPY|INR|[$€£¥￥₹₩₽]")
_BEFORE = re.compile(r"(?:US\$?|USD|EUR|GBP|CNY|RMB|JPY|INR|CHF|AUD|CAD|KRW|RUB)\s?$")
_SCALE = re.compile(r"\s?([kKmMbB])n?\b(?!\s?/)")
_SHORT_SCALE = re.compile(r"([KMB])(?![A-Za-z0-9/^²³])")
"""K, M and B are thousand, million and billion, unless units are asked for."""
_CLOCK = re.compile(r"(?i)\s?([ap])\.?m\b")
_GOES_ON = re.compile(r"\s+[A-Za-z]")


def find_quantities(text: str, *, units: bool = True) -> list[Quantity]:
    """All numbers in order, each with the unit after it or the currency before it.

    Parts such as "5 ft 3 in" and "1 h 30 min" are one quantity. LaTeX around units is understood.
    Without `units` only currencies and percent are read.
    """
    text = plain_units(text)
    quantities: list[Quantity] = []
    for number in find_numbers(text, fractions=True):
        if quantities and number.start < quantities[-1].end:  # the power in m/s^2
            continue
        quantity = _quantity(text, number, units)
        if not (quantities and _extends(quantities, quantity, text)):
            quantities.append(quantity)
    return quantities


_MACRO = re.compile(r"\\([A-Za-z]+)")


def _siunitx(unit: str) -> str:
    r"""A unit of the siunitx package as text: `\kilo\meter\per\second\squared` is
    kilometer/second^2.
    """
    table = word_table("units")
    parts: list[str] = []
    for macro in _MACRO.findall(unit):
        word = table["macros"].get(macro, macro)
        joined = (
            not parts or parts[-1] in table["prefixes"] or parts[-1][-1] in "/ " or word[0] in "/^"
        )
        parts += [word] if joined else ["·", word]
    return "".join(parts) or unit


def _per_hour(match: re.Match[str]) -> str:
    return f"{match[5]} {match[6]}/{next(part for part in match.groups() if part)}"


_PLAIN_UNITS = rewrites(
    # behind a word a space may stand between two numbers; before a unit it groups the digits, as SI
    # and ISO 80000-1 write them
    (
        r"(?<![\d.,] )(?<![\w.,])[1-9]\d{0,2}(?: \d{3})+(?=\s?(?P<unit>[^\W\d_]{1,12}|[%°€£¥]))",
        lambda match: match[0].replace(" ", "") if is_unit(match["unit"]) else match[0],
    ),
    (
        r"\b(light|nautical)[ -](years?|miles?)\b|\bmm (?=Hg\b)",
        lambda match: re.sub("[ -]", "", match[0]),
    ),
    (
        r"(?<![\w.,] )(?<![\w.,])[1-9]\d{0,2}(?: \d{3})+(?![\d,/]| \d)",
        lambda match: match[0].replace(" ", ""),
    ),
    (r"(?<![\d.,])(\d{1,3}),(\d{1,2})(?=\s?[A-Za-zÀ-ÿА-Яа-яµΩ°€%])", r"\1.\2"),
    (
        r"(?:每(小时|分钟|秒|天)|(時)速|(秒)速|(分)速)(?:约"
        r"|約)?\s?(\d[\d.,]*)\s?([A-Za-z\u30a0-\u30ff\u3400-\u9fff]{1,6})",
        _per_hour,
    ),
    (r"(?<!\d)(\d{1,2})\s?['′’]\s?(\d{1,2})\s?[\"″”]", r"\1 ft \2 in"),
    # a value with its uncertainty: 12.6 ± 0.1; bounded, for it is tried at every digit of a number
    (r"\(?\s?(-?\d[\d.,]{0,40})\s*(?:±|\\pm|\+/-)\s*\d[\d.,]*(?:\s?\))?", r"\1"),
    (
        r"(?i)(?:^|(?<=[:=(\n])|(?<=\bis )|(?<=\bwas )|(?<=\bto )|(?<=: )|(?<== ))(?:minus"
        r"|negative)\s+(?=\$?\d)",
        "-",
    ),
    (r"(?<=\dh)(\s?[0-5]?\d)\s?m(?![\w/^²³])", r"\1 min"),
    (r"(?<=\d)(hrs?|h|min|ft|d)(?=\d)", r"\1 "),
)
_WITHOUT_COMMANDS = rewrites(
    (
        r"\\(?:SI|qty)\s*(?:\[[^\[\]]{0,80}\])?\s*\{([^{}]{1,80})\}\s*\{([^{}]{1,120})\}",
        lambda match: f"{match[1]} {_siunitx(match[2])}",
    ),
    (r"\\(?:text|mathrm|mbox|textrm|rm|operatorname|mathit|si|unit)\s*\{([^{}]*)\}", r" \1"),
    (
        r"\\[dt]?frac\s*(?:\{\s*(\d{1,12})\s*\}\s*\{\s*(\d{1,12})\s*\}|(\d)(\d))",
        lambda match: f" {match[1] or match[3]}/{match[2] or match[4]}",
    ),
)
_WITHOUT_FORMULAS = rewrites(
    (r"\\[,;:! ]|~|\\q?quad(?![A-Za-z])", " "),
    (r"\$(?=\S)([^$\n]{1,200}?)(?<=\S)\$(?!\d)", r"\1"),
    (r"\\\$", "$"),
)


def plain_units(text: str) -> str:
    """The text without the LaTeX that stands around units."""
    text = rewritten(text, _PLAIN_UNITS)
    if "\\" not in text and "$" not in text:
        return text
    text = rewritten(text, _WITHOUT_COMMANDS)
    for latex, plain in word_table("units")["latex"].items():
        text = text.replace(latex, plain)
    return rewritten(text, _WITHOUT_FORMULAS)


def same_kind(given: Quantity, wanted: Quantity) -> tuple[UnitOfMeasure, UnitOfMeasure] | None:
    """The likeliest readings of two quantities' units that have one dimension; None if none do."""
    return next(
        ((a, b) for b in wanted.units for a in given.units if a.dimension == b.dimension), None
    )


def conversions(given: Quantity, wanted: Quantity) -> list[float]:
    """`given` in the unit of `wanted`, once per way to read their units."""
    # next to an explicit GiB, GB is decimal
    left, right = (
        q.units[:1] if _is_binary(o) else q.units for q, o in ((given, wanted), (wanted, given))
    )
    pairs = ((a, b) for b in right for a in left if a.dimension == b.dimension)
    return [(given.value * a.factor + a.offset - b.offset) / b.factor for a, b in pairs]


def _is_binary(quantity: Quantity) -> bool:
    return [unit.dimension for unit in quantity.units] == [(("bit", 1.0),)] and (
        quantity.units[0].factor % 8192 == 0
    )


def _quantity(text: str, number: Number, units: bool) -> Quantity:
    currency = (PERCENT,) if number.percent else _currency(text, number.start, number.end)
    pattern = _SCALE if currency else _SHORT_SCALE
    scaled = not number.percent and (currency or not units)
    if scaled and (scale := pattern.match(text, number.end)):
        value = number.value * _scale(scale[1])
        return Quantity(value, currency, frozenset(), number.start, scale.end())
    if currency:
        return Quantity(number.value, currency, frozenset(), number.start, number.end)
    readings, end = _unit_after(text, number.end, units)
    things = _things(text, number.end) if units and not readings else frozenset()
    if not readings and (clock := _CLOCK.match(text, number.end)):
        things = frozenset({clock[1].lower() + "m"})
    return Quantity(number.value, readings, things, number.start, end)


def _unit_after(text: str, position: int, units: bool) -> tuple[tuple[UnitOfMeasure, ...], int]:
    match = _UNIT.match(text, position)
    if match is None:
        return (), position
    if match["degrees"]:
        return (units_of(f"°{match['degrees'][0].upper()}") if units else ()), match.end()
    written = match["unit"]
    if written.lower() == "in" and _GOES_ON.match(text, match.end()):  # "5 in total"
        return (), position
    end = match.end()
    # Chinese has no space after the unit, and a compound may end in a word that is no unit
    while written:
        readings = _currency_of(written) or (units_of(written) if units else ())
        if readings:
            return readings, end
        if re.search(rf"[{_CJK}]$", written):
            shorter = written[:-1]
        else:
            shorter = re.sub(
                r"(?:\s?[/·⋅×*每]\s?|\s+(?:per|pro|par|por)\s+|\s|^)[^/·⋅×*每\s]*$", "", written
            )
        end -= len(written) - len(shorter)
        written = shorter
    return (), position


@cache
def _no_things() -> frozenset[str]:
    return frozenset(function_words("en")) | frozenset(word_table("units")["no_thing"].split())


def _things(text: str, position: int) -> frozenset[str]:
    things: list[str] = []
    while len(things) < 3 and (word := _THING.match(text, position)) is not None:
        name = word[1].lower()
        if name in _no_things():
            break
        singular = name.removesuffix("es") if name.endswith("hes") else name.rstrip("s")
        things.append(name[:-3] + "y" if name.endswith("ies") else singular)
        position = word.end()
    return frozenset(things)


def _currency(text: str, start: int, end: int) -> tuple[UnitOfMeasure, ...]:
    inside = _CURRENCY.search(text, start, end)
    before = inside or _BEFORE.search(text[max(0, start - 5) : start])
    return _currency_of(before[0].strip()) if before else ()


def _currency_of(name: str) -> tuple[UnitOfMeasure, ...]:
    return _currencies().get(name, ())


@cache
def _currencies() -> dict[str, tuple[UnitOfMeasure, ...]]:
    """Currencies, their parts and percent by name."""
    table = word_table("units")
    units: dict[str, tuple[UnitOfMeasure, ...]] = {}
    for name, definition in table["parts"].items():
        factor, *codes = definition.split()
        units[name] = (UnitOfMeasure(float(factor), tuple((code, 1.0) for code in codes)),)
    for code, names in table["currencies"].items():
        for name in names.split():
            units[name] = (*units.get(name, ()), UnitOfMeasure(1.0, ((code, 1.0),)))
    return units


def _extends(quantities: list[Quantity], part: Quantity, text: str) -> bool:
    """Adds a smaller part to the quantity right before it: "5 ft 3 in". False if it is no part."""
    whole = quantities[-1]
    same = same_kind(part, whole)
    if same is None:
        return False
    small, large = same
    if large.offset or not large.dimension or small.factor >= large.factor or part.value < 0:
        return False
    between = text[whole.end : part.start]
    if (
        between.strip(" ,").removeprefix("and").strip()
        or part.value * small.factor >= large.factor
        or ("and" in between and large.dimension not in _JOINED_BY_AND)
    ):
        return False
    value = whole.value + part.value * small.factor / large.factor
    quantities[-1] = Quantity(value, (large,), frozenset(), whole.start, part.end)
    return True


_JOINED_BY_AND = ((("[time]", 1.0),), (("USD", 1.0),))


@lru_cache(maxsize=4096)
def units_of(text: str) -> tuple[UnitOfMeasure, ...]:
    """The units that "km", "m/s^2", "square feet", "m s⁻²" or 公里 may name; empty for no unit.

    Symbols are case-sensitive (Mg is no mg), words are not. A unit beyond the range of floats is
    left out.
    """
    if len(text) > 60:
        return ()
    try:
        return tuple(unit for unit in _units_of(text.strip()) if 0 < abs(unit.factor) < math.inf)
    except (OverflowError, ZeroDivisionError):
        return ()


def _units_of(text: str) -> tuple[UnitOfMeasure, ...]:
    if _SINGLE.fullmatch(text) and (single := _single(text)):
        return single
    result: list[UnitOfMeasure] = [UnitOfMeasure(1.0, ())]
    sign = 1
    for part in re.split(
        r"(\s*/\s*|\s+(?:per|pro|par|por)\s+|\s*每\s*|\s*[·⋅×]\s*|\s*(?<!\*)\*(?!\*)\s*)",
        text,
    ):
        mark = part.strip()
        if mark in ("/", "per", "pro", "par", "por", "每"):
            sign = -1
        elif mark not in ("·", "⋅", "×", "*"):
            for word in _TERMS.findall(f" {mark.strip('()')}") or [mark]:
                term = _term(word)
                if not term:
                    return ()
                result = [_times(left, right, sign) for left in result for right in term][:4]
    return tuple(result)


def _single(name: str) -> tuple[UnitOfMeasure, ...]:
    """The units that one word without a power may name."""
    known = word_table("units")["readings"]
    readings = known.get(name) or known.get(name.lower() if len(name) > 3 else "") or (name,)
    return tuple(unit for reading in readings for unit in _units_of_word(reading))


def _units_of_word(name: str) -> tuple[UnitOfMeasure, ...]:
    """The unit of a word, or of a definition such as "0.5 kg", "km/hour" and "cm3"."""
    if currency := _currency_of(name):
        return currency
    names = word_table("units")["names"]
    known = names.get(name) or (names.get(name.lower()) if len(name) > 3 else None)
    factor, _, unit = (known or name).rpartition(" ")
    if not factor and not re.search(r"[/\d]", unit):
        return _known_unit(unit)
    return tuple(base._replace(factor=base.factor * float(factor or 1)) for base in units_of(unit))


def _term(text: str) -> tuple[UnitOfMeasure, ...]:
    match = _TERM_PARTS.fullmatch(text.strip())
    if match is None:
        return ()
    before, name, digits, raised, after = match.groups("")
    powers = word_table("units")["powers"]
    power = int((digits or raised or "1").translate(SUPERSCRIPTS))
    for word in (before, after):
        power *= powers.get(word.lower(), 1)
    units = _single(name)
    if power == 1:
        return units
    return tuple(
        UnitOfMeasure(
            unit.factor**power, tuple((base, exponent * power) for base, exponent in unit.dimension)
        )
        for unit in units[:1]
    )


def _times(left: UnitOfMeasure, right: UnitOfMeasure, sign: int) -> UnitOfMeasure:
    if not left.dimension and left.factor == 1 and sign == 1:
        return right
    powers = dict(left.dimension)
    for base, exponent in right.dimension:
        powers[base] = powers.get(base, 0) + sign * exponent
    return UnitOfMeasure(
        left.factor * right.factor**sign, tuple(sorted((b, e) for b, e in powers.items() if e))
    )


def is_unit(name: str) -> bool:
    """Whether a word, or a compound such as "m/s", names a unit or a currency."""
    return bool(_currency_of(name) or units_of(name))


@cache
def _units(symbols: bool) -> dict[str, UnitOfMeasure]:
    """The table's units by name, also behind prefixes; those of symbols, such as km, if asked for."""
    table = word_table("units")
    kinds = {
        kind: {name: _defined(definition) for name, definition in table[kind].items()}
        for kind in ("symbols", "words", "plain")
    }
    short, long = (
        {
            prefix + name: unit._replace(factor=unit.factor * factor)
            for prefix, factor in table[prefixes].items()
            for name, unit in kinds[kind].items()
        }
        for prefixes, kind in (("symbol_prefixes", "symbols"), ("prefixes", "words"))
    )
    words = {**long, **kinds["words"], **kinds["plain"]}
    return {**short, **words, **kinds["symbols"]} if symbols else words


_POWERED = re.compile(r"(rad|bit|[A-Z])(-?\d(?:\.\d)?)?")


def _defined(definition: str) -> UnitOfMeasure:
    factor, *parts = definition.split()
    bases = word_table("units")["bases"]
    powers = ((bases[base], float(power or 1)) for base, power in _POWERED.findall(definition))
    offset = float(parts[-1]) if parts and parts[-1][0].isdigit() else 0.0
    return UnitOfMeasure(float(factor), tuple(sorted(powers)), offset)


@cache
def _no_units() -> frozenset[str]:
    return frozenset(word_table("units")["no_unit"].split())


def _known_unit(name: str) -> tuple[UnitOfMeasure, ...]:
    """The table's entry for a word: as written, then in lower case, then without a plural ending."""
    for spelling in (name, name.lower() if len(name) > 1 else name):
        if spelling in _no_units():
            return ()
        if unit := _units(symbols=True).get(spelling):
            return (unit,)
        if len(spelling) > 3 and spelling.endswith("s"):
            for plural, singular in (("s$", ""), ("es$", ""), ("ies$", "y")):
                if unit := _units(symbols=False).get(re.sub(plural, singular, spelling)):
                    return (unit,)
    return ()
