"""Dates and times of day as values: "March 14, 2025", "2025-03-14" and "14. März 2025" are one day,
"3:45 PM" and "15:45" one time.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from rm_gallery.core.text.language import NUMBERS

LONGEST = 60
"""Characters of a text that is nothing but a moment, at most."""


class Moment(NamedTuple):
    """A day or a time of day, in all its readings; a missing part fits any."""

    readings: frozenset[tuple[int | None, ...]]
    """Days as (year, month, day); times as (hour, minute, second), in 24 hours."""
    is_day: bool
    half: bool = True
    """Whether a time says morning or afternoon; two that do not compare as written: 15:30 is not
    3:30.
    """

    def same_as(self, other: Moment) -> bool:
        """Whether some reading of both agrees in all parts that both give."""
        left, right = (
            {min(m.readings)} if not (self.half or other.half) else m.readings
            for m in (self, other)
        )
        return self.is_day == other.is_day and any(
            all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))
            for a in left
            for b in right
        )


_MONTHS = (
    "january jan januar janvier enero ene gennaio", "february feb februar février fevrier febrero febbraio",
    "march mar märz maerz mars marzo", "april apr avril abril aprile", "may mai mayo maggio", "june jun juni juin junio giugno",
    "july jul juli juillet julio luglio", "august aug août aout agosto", "september sept sep septembre septiembre settembre",
    "october oct oktober okt octobre octubre ottobre", "november nov novembre noviembre",
    "december dec dezember dez décembre decembre diciembre dicembre",
)  # fmt: skip
_HOURS = NUMBERS[1:13]
_NUMBERS = {name: n for n, names in enumerate(_MONTHS, 1) for name in names.split()}
_MONTH = rf"(?:{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})\b\.?"
_NUMBERS |= {name: n for n, name in enumerate(_HOURS, 1)}
_DAY = r"(?:0?[1-9]|[12]\d|3[01])(?!\d)"
_YEAR = r"(?:1\d{3}|20\d{2}|21\d{2})(?!\d)"
_MOMENT = re.compile(
    rf"(?i)(?<![\w.,/:-])(?:"
    rf"(?P<year_iso>\d{{4}})(?P<sign>[-/.])(?P<month_iso>\d{{1,2}})(?P=sign)(?P<day_iso>\d{{1,2}})(?![\d:])"
    rf"|(?P<month_marked>\d{{1,2}})(?P<mark>[-/.])(?P<day_marked>\d{{1,2}})(?P=mark)(?P<year_marked>{_YEAR})"
    rf"|(?P<month>{_MONTH})\s+(?:the\s+)?(?P<day>{_DAY})(?:st|nd|rd"
    rf"|th)?(?:,?\s+(?P<year>{_YEAR}))?(?![\d:])"
    rf"|(?:the\s+)?(?P<day_first>{_DAY})(?:st|nd|rd|th|er|º|\.)?\s+(?:of\s+"
    rf"|de\s+)?(?P<month_second>{_MONTH})(?:,?\s+(?:de\s+|del\s+)?(?P<year_third>{_YEAR}))?"
    rf"|(?P<month_alone>{_MONTH})\s+(?P<year_alone>{_YEAR})"
    r"|(?:(?P<year_zh>\d{4})\s?年\s?)?(?P<month_zh>1[0-2]|0?[1-9])\s?月\s?(?P<day_zh>[12]\d|3[01]"
    r"|0?[1-9])\s?[日号號]"
    r"|(?:(?P<half_zh>上午|早上|凌晨|下午|晚上|中午)\s?)?(?P<hour_zh>[01]?\d"
    r"|2[0-3])\s?[点點时時]\s?(?P<minute_zh>[0-5]?\d)\s?分"
    r"|(?:(?P<half_before>上午|早上|凌晨|下午|晚上|中午)\s?)?(?P<hour>[01]?\d"
    r"|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<seconds>[0-5]\d))?"
    r"(?:\s*(?P<half>[ap])\.?\s?m\b\.?)?(?![\d:])"
    r"|(?P<hour_whole>1[0-2]|[1-9])\s*(?:(?P<half_whole>[ap])\.?\s?m\b\.?"
    r"|o['’]clock(?:\s+in\s+the\s+(?P<half_clock>morning|afternoon|evening))?)"
    rf"|(?P<spoken>half|quarter)\s+(?P<way>past|to)\s+(?P<hour_spoken>(?:{'|'.join(_HOURS)}"
    r"|1[0-2]|[1-9])\b)(?:\s*(?P<half_spoken>[ap])\.?\s?m\b\.?)?"
    r"|(?P<named>noon|midnight)\b)"
)
"""A group is called after the part of a moment that it holds, and after its form behind a `_`."""
_AFTERNOON = ("p", "下午", "晚上", "中午", "afternoon", "evening")
_MAY_BE_ONE = re.compile(r"(?i)\d\s?[-/.:]\s?\d|\d\s*[ap]\.?\s?m\b|[年月点點时時]|[a-zé]{3}")
_TYPESET = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{|\\[ ,;:!]|[{}$~*`]")


@lru_cache(maxsize=1024)
def read_moment(text: str) -> Moment | None:
    """The moment that makes up the whole text; None for any other text."""
    if len(text) > LONGEST or not _MAY_BE_ONE.search(text):
        return None
    plain = _without_typesetting(text).strip().rstrip(".").strip()
    match = _MOMENT.fullmatch(plain) or _MOMENT.fullmatch(f"{plain}.")
    return match and _moment(match)


def moments_in(text: str) -> list[Moment]:
    """The moments in a text, in order. Linear in the text."""
    return [
        moment
        for match in _MOMENT.finditer(_without_typesetting(text))
        if (moment := _moment(match)) is not None
    ]


def _without_typesetting(text: str) -> str:
    return re.sub(r"\s+", " ", _TYPESET.sub(" ", text))


def _moment(match: re.Match[str]) -> Moment | None:
    part = {
        name.partition("_")[0]: text.lower() for name, text in match.groupdict().items() if text
    }
    if "month" not in part:
        return Moment(_time_readings(part), False, "half" in part or "named" in part)
    year, month, day = (_number(part.get(name)) for name in ("year", "month", "day"))
    # of 3/4/2025 Americans write the month first, others the day
    days = {(year, month, day), (year, day, month)} if "mark" in part else {(year, month, day)}
    valid = frozenset((y, m, d) for y, m, d in days if (m or 1) <= 12 and (d or 1) <= 31)
    return Moment(valid, True) if valid else None


def _time_readings(part: dict[str, str]) -> frozenset[tuple[int | None, ...]]:
    if "named" in part:
        return frozenset({(12 if part["named"] == "noon" else 0, 0, 0)})
    hour, minute = _number(part.get("hour")) or 0, _number(part.get("minute")) or 0
    if "spoken" in part:
        minute = 30 if part["spoken"] == "half" else 15
        if part["way"] == "to":
            hour, minute = (hour - 2) % 12 + 1, 60 - minute
    half, seconds = part.get("half"), _number(part.get("seconds"))
    late = half in _AFTERNOON
    if hour > 12 or hour == 0 and not late:
        return frozenset({(hour, minute, seconds)})
    starts = (12,) if late or not half and hour == 12 else (0,) if half else (0, 12)
    return frozenset((hour % 12 + start, minute, seconds) for start in starts)


def _number(text: str | None) -> int | None:
    """A number in digits, the name of a month or an hour in words."""
    return None if text is None else _NUMBERS.get(text.rstrip(".")) or int(text)
