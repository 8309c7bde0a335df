"""What all problem generators share: the shape of a problem and small helpers for worked steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from data.builders.common import Draw

Worked = tuple[list[str], str]
"""The sentences of a solution, the last one holding the final number as its last number, and that
number.
"""


@dataclass(frozen=True)
class Problem:
    """A problem with one way of working that is right for the slip "" and goes wrong at one step
    for each other slip.
    """

    prompt: str
    work: Callable[[str, Draw], Worked]
    slips: tuple[str, ...]
    chinese: bool = False


def off(value: int, wrong: bool, draw: Draw) -> int:
    """Return the value, or when wrong a result that a hurried calculation could give."""
    if not wrong:
        return value
    steps = [step for step in (1, 2, 10, -1, -2, -10) if value + step > 0]
    if value >= 200:
        steps += [100, -100]
    return value + draw.pick(steps)
