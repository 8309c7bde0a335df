"""What a cell of labels says: a number, a verdict on one answer in a word, or which of several answers
is better.

>>> value_of("Pass"), value_of("3,5"), value_of("maybe")
(1.0, 3.5, None)
>>> verdict_of("B", ("new", "old")), verdict_of("new", ("new", "old")), verdict_of("tie", "ab")
((0.0, 1.0), (1.0, 0.0), (0.5, 0.5))
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

WORDS = {
    **dict.fromkeys(("pass", "passed", "yes", "true", "correct", "good", "win", "safe"), 1.0),
    **dict.fromkeys(
        ("fail", "failed", "no", "false", "incorrect", "wrong", "bad", "loss", "unsafe"), 0.0
    ),
    # as Inspect writes correct and incorrect
    "c": 1.0,
    "i": 0.0,
    "tie": 0.5,
}
"""What is said of one answer."""
VALUE = f"a number or one of {', '.join(word for word in WORDS if len(word) > 1)}"
"""What `value_of` takes, for messages."""
TIES = frozenset(
    {"tie", "draw", "equal", "same", "both", "=", "c", "neither", "unentschieden", "gleich", "平局"}
)
"""What is said of several answers of which none is better; of three, `c` is the third."""
VERDICT = "a, b, first, second, tie, A>B, the name of an answer column, or the win of a as a number from 0 to 1"
_ORDINALS = ("first", "second", "third", "fourth")
_ORDERED = re.compile(r"([a-z])\s*(>+|<+|=+)\s*([a-z])")


def value_of(cell: Any) -> float | None:
    """A number, or a verdict in a word (pass, fail, yes, no, tie …) as a number 0..1; None for
    anything else.
    """
    number = number_of(cell)
    return WORDS.get(str(cell).strip().casefold()) if number is None else number


def number_of(cell: Any) -> float | None:
    """A cell as a finite number: `3.5`, `3,5`, `1.234,5`, `12 %`; None for anything else. The last
    mark is the decimal one.
    """
    if isinstance(cell, bool):
        return float(cell)
    if isinstance(cell, (int, float)):
        return float(cell) if math.isfinite(cell) else None
    if not isinstance(cell, str):
        return None
    text = cell.strip().replace("\u00a0", "").replace("\u202f", "")
    share = text.endswith("%")
    text = text.rstrip("% ").replace("−", "-")
    if "," in text:
        text = (
            text.replace(",", "")
            if text.rfind(",") < text.rfind(".")
            else text.replace(".", "").replace(",", ".")
        )
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value) or "_" in text:
        return None
    return value / 100 if share else value


def verdict_of(cell: Any, names: Sequence[str]) -> tuple[float, ...] | None:
    """A verdict on the answers of these names: 1 for the best, 0 for the others, 0.5 for each in a
    tie; None for anything else.

    It is the name of an answer, its letter (a, b …), its place (first, second …, 1, 2 …), `A>B`, or
    a tie; of two answers also the win of the first as a number from 0 to 1.
    """
    whole = isinstance(cell, float) and cell.is_integer()
    n, text = len(names), str(int(cell) if whole else cell).strip().strip("[]").casefold()
    own = [name.casefold() for name in names]
    if text in own:
        return _won(own.index(text), n)
    if n == 2 and (win := number_of(cell)) is not None and 0.0 <= win <= 1.0:
        return win, 1.0 - win
    if n == 2 and (ordered := _ORDERED.fullmatch(text)):
        left, mark, right = ordered.groups()
        if {left, right} != {"a", "b"}:
            return None
        return (0.5, 0.5) if mark[0] == "=" else _won((left == "b") is (mark[0] == ">"), n)
    for places in ([chr(97 + k) for k in range(n)], [str(k + 1) for k in range(n)], _ORDINALS[:n]):
        if text in places:
            return _won(places.index(text), n)
    return (0.5,) * n if text in TIES else None


def _won(place: int, n: int) -> tuple[float, ...]:
    return tuple(float(place == k) for k in range(n))
