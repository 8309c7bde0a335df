"""Dates and times of day as values: "March 14, 2025", "2025-03-14" and "14. März 2025" are one day,
"3:45 PM" and "15:45" one time.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

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
_MONTH_NUMBERS = {name: number for number, names in enumerate(_MONTHS, 1) for name in names.split()}
_MONTH = rf"(?:{'|'.join(sorted(_MONTH_NUMBERS, key=len, reverse=True))})\b\.?"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])(?!\d)"
_YEAR = r"(?:1\d{3}|20\d{2}|21\d{2})(?!\d)"
_HOURS = "one two three four five six seven eight nine ten eleven twelve".split()
_HOUR_WORD = rf"(?:{'|'.join(_HOURS)}|1[0-2]|[1-9])\b"
_MOMENT = re.compile(
    rf"(?i)(?<![\w.,/:-])(?:"
    rf"(?P<iso_year>\d{{4}})(?P<sign>[-/.])(?P<iso_month>\d{{1,2}})(?P=sign)(?P<iso_day>\d{{1,2}})(?![\d:])"
    rf"|(?P<first>\d{{1,2}})(?P<mark>[-/.])(?P<second>\d{{1,2}})(?P=mark)(?P<last_year>{_YEAR})"
    rf"|(?P<month>{_MONTH})\s+(?:the\s+)?(?P<day>{_DAY})(?:st|nd|rd"
    rf"|th)?(?:,?\s+(?P<year>{_YEAR}))?(?![\d:])"
    rf"|(?:the\s+)?(?P<day_first>{_DAY})(?:st|nd|rd|th|er|º|\.)?\s+(?:of\s+"
    rf"|de\s+)?(?P<month_second>{_MONTH})(?:,?\s+(?:de\s+|del\s+)?(?P<year_third>{_YEAR}))?"
    rf"|(?P<month_alone>{_MONTH})\s+(?P<its_year>{_YEAR})"
    r"|(?:(?P<zh_year>\d{4})\s?年\s?)?(?P<zh_month>1[0-2]|0?[1-9])\s?月\s?(?P<zh_day>[12]\d|3[01]"
    r"|0?[1-9])\s?[日号號]"
    r"|(?:(?P<zh_half>上午|早上|凌晨|下午|晚上|中午)\s?)?(?P<zh_hour>[01]?\d"
    r"|2[0-3])\s?[点點时時]\s?(?P<zh_minute>[0-5]?\d)\s?分"
    r"|(?:(?P<half_before>上午|早上|凌晨|下午|晚上|中午)\s?)?(?P<hour>[01]?\d"
    r"|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<seconds>[0-5]\d))?"
    r"(?:\s*(?P<half>[ap])\.?\s?m\b\.?)?(?![\d:])"
    r"|(?P<whole_hour>1[0-2]|[1-9])\s*(?:(?P<whole_half>[ap])\.?\s?m\b\.?"
    r"|o['’]clock(?:\s+in\s+the\s+(?P<clock_half>morning|afternoon|evening))?)"
    rf"|(?P<spoken>half|quarter)\s+(?P<way>past"
    rf"|to)\s+(?P<spoken_hour>{_HOUR_WORD})(?:\s*(?P<spoken_half>[ap])\.?\s?m\b\.?)?"
    r"|(?P<named>noon|midnight)\b)"
)
_MAY_BE_ONE = re.compile(r"(?i)\d\s?[-/.:]\s?\d|\d\s*[ap]\.?\s?m\b|[年月点點时時]|[a-zé]{3}")
_TYPESET = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{|\\[ ,;:!]|[{}$~*`]")


@lru_cache(maxsize=1024)
def read_moment(text: str) -> Moment | None:
    """The moment that makes up the whole text; None for any other text."""
    if len(text) > LONGEST or not _MAY_BE_ONE.search(text):
        return None
    plain = _without_typesetting(text).strip().rstrip(".").strip()
    match = _MOMENT.fullmatch(plain) or _MOMENT.fullmatch(f"{plain}.")
    return None if match is None else _moment(match)


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
    part = match.groupdict()
    day = _day_readings(part)
    if day is not None:
        valid = {(y, m, d) for y, m, d in day if 1 <= (m or 1) <= 12 and 1 <= (d or 1) <= 31}
        return Moment(frozenset(valid), True) if valid else None
    times = _time_readings(part)
    names_half = any(
        part[name]
        for name in (
            "half",
            "whole_half",
            "half_before",
            "zh_half",
            "clock_half",
            "spoken_half",
            "named",
        )
    )
    return Moment(frozenset(times), False, names_half)


def _day_readings(
    part: dict[str, str | None],
) -> list[tuple[int | None, int | None, int | None]] | None:
    if year := part["iso_year"]:
        return [(int(year), _integer(part["iso_month"]), _integer(part["iso_day"]))]
    if year := part["last_year"]:
        # Americans write the month first, others the day
        first, second = _integer(part["first"]), _integer(part["second"])
        return [(int(year), first, second), (int(year), second, first)]
    for name, day, of_year in (
        ("month", "day", "year"),
        ("month_second", "day_first", "year_third"),
    ):
        if part[name]:
            return [(_integer(part[of_year]), _month(part[name]), _integer(part[day]))]
    if part["month_alone"]:
        return [(_integer(part["its_year"]), _month(part["month_alone"]), None)]
    if part["zh_month"]:
        return [(_integer(part["zh_year"]), _integer(part["zh_month"]), _integer(part["zh_day"]))]
    return None


def _time_readings(part: dict[str, str | None]) -> set[tuple[int | None, ...]]:
    if part["named"]:
        return {(12 if part["named"].lower() == "noon" else 0, 0, 0)}
    if part["spoken"]:
        word = (part["spoken_hour"] or "").lower()
        hour = _HOURS.index(word) + 1 if word in _HOURS else int(word)
        minute = 30 if part["spoken"].lower() == "half" else 15
        if part["way"] == "to":
            hour, minute = (hour - 2) % 12 + 1, 60 - minute
        half, seconds = part["spoken_half"], None
    else:
        hour = int(part["hour"] or part["zh_hour"] or part["whole_hour"] or 0)
        minute = int(part["minute"] or part["zh_minute"] or 0)
        half = (
            part["half"]
            or part["whole_half"]
            or _HALVES.get(part["half_before"] or part["zh_half"] or part["clock_half"])
        )
        seconds = _integer(part["seconds"])
    if hour > 12 or (hour == 0 and half != "p"):
        return {(hour, minute, seconds)}
    morning, afternoon = (hour % 12, minute, seconds), (hour % 12 + 12, minute, seconds)
    if half:
        return {afternoon if half.lower() == "p" else morning}
    return {afternoon} if hour == 12 else {morning, afternoon}


_HALVES: dict[str | None, str | None] = {
    **dict.fromkeys(("上午", "早上", "凌晨", "morning"), "a"),
    **dict.fromkeys(("下午", "晚上", "中午", "afternoon", "evening"), "p"),
    None: None,
}


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)


def _month(name: str | None) -> int:
    return _MONTH_NUMBERS[(name or "").lower().rstrip(".")]
