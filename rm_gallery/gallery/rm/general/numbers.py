"""Number rewards: share of the reference's numbers given, and quantities within a tolerance after
unit conversion.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from rapidfuzz.distance import LCSseq

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.rule import (
    extraction_of,
    rule,
)
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.score import Score
from rm_gallery.core.text.answer import (
    Extraction,
    concluded,
    final_text,
    read_statements,
    value_part,
)
from rm_gallery.core.text.canonical import normalized
from rm_gallery.core.text.expressions import (
    find_moment,
    with_digits,
    without_asides,
    without_denied,
)
from rm_gallery.core.text.moments import read_moment
from rm_gallery.core.text.quantities import (
    PERCENT,
    Number,
    Quantity,
    close,
    conversions,
    find_numbers,
    find_quantities,
    plain_units,
    same_kind,
)
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.bounds import Amount
from rm_gallery.gallery.rm.general.overlap import MOST_WORDS

Mode = Literal["ordered", "any_order", "final"]


@rule(
    "number_accuracy",
    example=Example(
        sample_of(
            "How many women and how many men work there?",
            "There are 1,204 women and 987 men.",
            "There are 1204 women and 978 men.",
            reference="1204 women, 987 men",
        )
    ),
)
def number_accuracy(
    sample: DataSample,
    answer: str,
    references: Sequence[str],
    *,
    tolerance: Amount = 1e-6,
    mode: Mode = "ordered",
    extraction: Extraction = "any",
) -> Score[float]:
    """Share of the reference's numbers that the answer gives: matched / numbers in the reference.

    `mode` says which numbers of the answer count. "ordered": all, as long as they come in the
    reference's order; others may stand between them ("In 2024 it was 42" has the 42). "any_order":
    all. "final": the last ones only, as many as the reference holds; use this one in training,
    since an answer that lists many numbers games the other two.

    1,000 equals 1000, 1e3 and 1.0 thousand; numbers in words are read where the answer holds no
    digit; 50% equals 50 and 0.5; numbers are equal when they differ by at most `tolerance`,
    absolutely or relative to the reference; below 1e-4 only the relative difference counts, and
    whole numbers must be exact unless the tolerance is above 1e-6. A thought is left out, and so is
    what is denied ("not 42"), has either sign ("±42") or is one of alternatives ("41 or 42") that
    are not all in the reference. Range [0, 1], higher is better; the best of several references
    counts; unscored when the reference is missing or holds no number.

    Args:
        extraction: Where the answer's numbers are looked for: in its box, in what it announces, or in all of it.
    """
    text = without_denied(concluded(answer, extraction_of(sample, extraction)))
    if not any(_EITHER_SIGN.search(reference) for reference in references):
        text = _EITHER_SIGN.sub(" ", text)
    given = find_numbers(text := with_digits(text))
    wanted = [numbers for reference in references if (numbers := find_numbers(reference))]
    if not wanted:
        raise Unscored("the reference holds no number.", reason="no_reference")
    counts = [
        matched(_without_alternatives(text, given, numbers, tolerance), numbers, tolerance, mode)
        for numbers in wanted
    ]
    count, best = max(zip(counts, wanted, strict=True), key=lambda pair: pair[0] / len(pair[1]))
    reason = f"{count} of the reference's {len(best)} numbers found; the answer holds {len(given)}."
    return Score(count / len(best), reason)


def _without_alternatives(
    text: str, given: list[Number], wanted: list[Number], tolerance: float
) -> list[Number]:
    """Drops both numbers of "41 or 42" where only one of them is in the reference."""
    if len(given) < 2:
        return given
    places = _Places(wanted, tolerance)
    dropped: set[int] = set()
    for i, (left, right) in enumerate(pairwise(given)):
        if _OR.fullmatch(text, left.end, right.start) and (places.of(left) is None) != (
            places.of(right) is None
        ):
            dropped |= {i, i + 1}
    return [number for i, number in enumerate(given) if i not in dropped] if dropped else given


def matched(
    given: list[Number], wanted: list[Number], tolerance: float, mode: Mode = "ordered"
) -> int:
    """How many `wanted` numbers the `given` ones match, by the rules of `number_accuracy`."""
    if mode == "final":
        pairs = zip(given[-len(wanted) :], wanted[-len(given) :] if given else [], strict=True)
        return sum(
            any(close(x, y, tolerance) for x in _readings(a) for y in _readings(b))
            for a, b in pairs
        )
    places = _Places(wanted, tolerance)
    given_places, wanted_places = (
        [place for place in map(places.of, numbers) if place is not None]
        for numbers in (given, wanted)
    )
    if mode == "ordered":
        return int(LCSseq.similarity(given_places[:MOST_WORDS], wanted_places[:MOST_WORDS]))
    limits = Counter(wanted_places)
    return sum(min(count, limits[place]) for place, count in Counter(given_places).items())


def _readings(number: Number) -> tuple[float, ...]:
    return (number.value, number.value / 100) if number.percent else (number.value,)


class _Places:
    """Maps equal numbers to the same small integer, so that lists of numbers compare as sequences."""

    def __init__(self, wanted: list[Number], tolerance: float) -> None:
        self.tolerance = tolerance
        readings = sorted(
            (value, index) for index, number in enumerate(wanted) for value in _readings(number)
        )
        self.values = [value for value, _ in readings]
        self.owner = [index for _, index in readings]
        self.representative = list(range(len(wanted)))
        for (below, first), (value, index) in pairwise(readings):
            if close(value, below, tolerance):
                self.representative[index] = self.representative[first]

    def of(self, number: Number) -> int | None:
        """The integer of the wanted number this one equals, None when it equals none."""
        for value in _readings(number):
            position = bisect_left(self.values, value)
            for near in (position, position - 1):
                if 0 <= near < len(self.values) and close(value, self.values[near], self.tolerance):
                    return self.representative[self.owner[near]]
        return None


_EITHER_SIGN = re.compile(r"(?<![\d)}°%\s])\s*(?:±|\\pm(?![A-Za-z])|\+/-)\s*\$?\d[\d.,/]{0,20}")
"""A number with both signs (±42); an uncertainty (12.6 ± 0.1) does not match."""
_OR = re.compile(
    r"\s*[,;(]?\s*(?:(?:or|oder|ou|o|или|或者?|か|または|또는)(?:\s+(?:maybe|perhaps|possibly))?"
    r"|alternatively,?|maybe|perhaps|possibly|也许|可能)\s*"
)
_RANGE = re.compile(r"\s*(?:[–—~〜]|-|(?:m|km|cm|kg|g|s|h)?\s(?:to|bis|до)\s|至|到)\s*")
_SIGN = re.compile(r"(?<![\d\s])[¼½¾⅐-⅞]|(?<!\d)(?<!\d\s)[¼½¾⅐-⅞]")
_PI = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)?\s?(?:π|\\pi\b)(?:\s?/\s?(\d+))?(?![A-Za-z0-9])")
_BOUND_AFTER = re.compile(
    r"\s*(?:at\s+(?:most|least)\b|or\s+(?:more|less|fewer|above|below|so)\b|以[上下内])"
)
_DENIED = re.compile(
    r"(?:≠|\\neq?(?![A-Za-z])|!=|(?i:not|anything\s+but|definitely\s+not)\b|[^\d\n,，]{0,12}(?:不是"
    r"|不等于|不为|并非))\s*[-$€£¥]?\d"
)
_BOUNDED = re.compile(
    r"(?:between|(?:more|less|greater|fewer|higher|lower|longer|shorter)\s+than|at\s+(?:least|most)"
    r"|(?:größer|kleiner|mehr|weniger)\s+als|plus\s+de|moins\s+de|más\s+de|menos\s+de"
    r"|大于|小于|超过|多于|少于|^(?:under|over|above"
    r"|below)\b)\s*(?:\S+\s+(?:\S+\s+)?and\s+)?[-$€£¥]?\d[\d.,]*",
    re.IGNORECASE,
)
"""A bound is no value: "more than 5 km"."""


@rule(
    "tolerance_number_match",
    example=Example(
        sample_of(
            "How long is a marathon?",
            "It is 42.195 km.",
            "About 26.2 miles.",
            "40 km",
            reference="42195 m",
        )
    ),
)
def tolerance_number_match(
    sample: DataSample,
    text: str,
    references: Sequence[str],
    *,
    relative_tolerance: Amount = 1e-3,
    absolute_tolerance: Amount = 0.0,
    require_unit: bool = False,
    extraction: Extraction = "any",
) -> Score[float]:
    r"""1 when |answer - reference| <= max(`absolute_tolerance`, `relative_tolerance` x
    |reference|), else 0.

    Quantities are read with their units and compared in the reference's unit: "5 km" is 5000 m, "68
    °F" is 20 °C, "50%" is 0.5, "1 h 30 min" is 90 minutes, "$1,000" is 1000 USD, "3/4" is 0.75.
    Units are a built-in table, named in English, Chinese and some other languages: SI with
    prefixes, imperial, time, angles, temperatures, data; currencies are never converted. A
    reference without a unit accepts any unit, and both readings of "50%" (50 and 0.5), as
    `math_verify_reward` does; an answer without a unit takes the reference's unless `require_unit`;
    a unit of another kind is wrong, and so are other things ("10 apples" for 10 m). Dates and times
    of day are compared by value: "3:30 PM" is 15:30.

    The answer's quantity is that of its final statement (an `<answer>` tag, a JSON answer, a box,
    "the answer is …"), else the last one in its text of the reference's kind; "5 V or 6 V", "±5 V"
    and "5 V at most" do not count. Range [0, 1], higher is better; unscored when the reference is
    missing, holds no number, or more than 20,000 characters.

    Args:
        extraction: What counts as the answer's conclusion: a box alone, whatever announces an answer, or any closing sentence that asserts.
    """
    references = [text for text in references if len(text) <= _LONGEST_REFERENCE]
    wanted = [
        (text, quantities)
        for text in references
        if (quantities := find_quantities(_with_plain_numbers(text)))
    ]
    if not wanted:
        raise Unscored("the reference holds no number.", reason="no_reference")
    answer = concluded(final_text(text), extraction_of(sample, extraction))
    reasons = []
    for text, (reference, *others) in wanted:
        if _EITHER_SIGN.search(text) is None:
            answer = _EITHER_SIGN.sub(" ", answer)
        if (moment := read_moment(text.strip())) is not None:
            if (given_moment := find_moment(answer)) is not None and given_moment.same_as(moment):
                return Score(1.0, f"The answer is {text.strip()}.")
            reasons.append(f"The answer is not {text.strip()}.")
            continue
        given = answer_quantity(answer, reference, require_unit, several=bool(others))
        values = _values_in_unit(given, reference) if given is not None else []
        for value in values:
            if _within(value, reference.value, relative_tolerance, absolute_tolerance):
                return Score(1.0, f"{value:.12g} is near {reference.value:.12g}.")
        reasons.append(
            f"{values[0]:.12g} is not near {reference.value:.12g}."
            if values
            else "The answer holds no quantity of the reference's kind."
        )
    return Score(0.0, reasons[0])


def _within(value: float, wanted: float, relative: float, absolute: float) -> bool:
    # a conversion may leave the range of floats
    if not (math.isfinite(value) and math.isfinite(wanted)):
        return False
    # the last digits of a conversion are never exact
    slack = 1e-12 * max(abs(value), abs(wanted))
    return abs(value - wanted) <= max(absolute, relative * abs(wanted)) + slack


def answer_quantity(
    text: str, reference: Quantity, require_unit: bool = False, several: bool = False
) -> Quantity | None:
    """The quantity that a text without its reasoning gives as its answer; None without one of the
    reference's kind.

    From a list the first is taken where the reference has `several`, else none.
    """
    units = bool(reference.units or reference.things)
    reading = read_statements(text)
    for statement in reading.statements:
        part = value_part(_with_plain_numbers(statement.text))
        if _BOUNDED.match(part) or _DENIED.match(part):
            return None
        result = part.rpartition("=")[2]
        part = result if find_quantities(result, units=False) else part
        if quantities := find_quantities(part, units=units):
            hedged = (
                _BOUND_AFTER.match(part, quantities[0].end) is not None
                or _stand_apart(part, quantities[:2], _OR, _RANGE)
                or (
                    not several
                    and statement.kind == "box"
                    and _stand_apart(part, quantities[:2], _LIST_GAP)
                )
            )
            fits = _is_of_kind(quantities[0], reference, require_unit)
            return quantities[0] if fits and not hedged else None
    rest = _BOUNDED.sub(" ", _with_plain_numbers(without_asides(reading.rest)))
    quantities = find_quantities(rest, units=units)
    fitting = [
        quantity for quantity in quantities if _is_of_kind(quantity, reference, require_unit)
    ]
    same = [quantity for quantity in fitting if quantity.units or quantity.things] or fitting
    if same and _BOUND_AFTER.match(rest, same[-1].end):
        return None
    guessed = _stand_apart(rest, quantities[-2:], _OR, _RANGE) or _is_list(rest, same)
    return same[-1] if same and not guessed else None


def _with_plain_numbers(text: str) -> str:
    text = _SIGN.sub(lambda match: f"{unicodedata.numeric(match[0]):.9g}", normalized("NFC", text))
    text = with_digits(text)
    return plain_units(
        _PI.sub(lambda match: f"{float(match[1] or 1) * math.pi / float(match[2] or 1):.12g}", text)
    )


def _stand_apart(text: str, pair: list[Quantity], *gaps: re.Pattern[str]) -> bool:
    """Whether two quantities with one of these between them are different ones, not one quantity in
    two units.
    """
    if len(pair) != 2 or not any(gap.fullmatch(text, pair[0].end, pair[1].start) for gap in gaps):
        return False
    nearby = conversions(*pair)
    return not any(abs(value - pair[1].value) <= 0.01 * abs(value) for value in nearby)


_LONGEST_REFERENCE = 20_000
"""Longest reference, in characters: 256 KB of numbers took 5 s."""
_LIST_GAP = re.compile(r"[\s,;/&、，；]*(?:and\s+|und\s+|和)?")


def _is_list(text: str, quantities: list[Quantity]) -> bool:
    """Whether the last three quantities stand next to each other: a list of guesses is no answer."""
    last = quantities[-3:]
    return len(last) == 3 and all(
        _LIST_GAP.fullmatch(text, a.end, b.start) for a, b in zip(last, last[1:], strict=False)
    )


def _is_of_kind(given: Quantity, reference: Quantity, require_unit: bool) -> bool:
    if reference.things:
        return bool(given.things & reference.things) or not (
            given.things or given.units or require_unit
        )
    if not reference.units:
        return not given.things & {"am", "pm"}
    if not given.units:
        return not given.things and (not require_unit or reference.units[0] == PERCENT)
    return same_kind(given, reference) is not None


def _values_in_unit(given: Quantity, reference: Quantity) -> list[float]:
    """The answer's value in the reference's unit, for every reading of its unit; 50% is 50 and 0.5."""
    if not reference.units:
        shares = [given.value * unit.factor for unit in given.units if not unit.dimension]
        return [given.value, *shares]
    if not given.units:
        return [given.value, given.value * 100] if reference.units[0] == PERCENT else [given.value]
    return conversions(given, reference)
