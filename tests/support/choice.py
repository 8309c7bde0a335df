"""Which of many parameters `make test` tries: a covering choice. The others are `long`, and exist
only where the whole product is asked for, as in `.ci/run`: tests that nobody runs cost collection.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest

FULL = os.environ.get("RM_GALLERY_PRODUCT") == "full"

Values = tuple[Any, ...]
Key = Callable[..., Hashable]


def choose(cases: Iterable[Values], *keys: Key) -> list[bool]:
    """Which cases are needed so that each value of each key occurs; the same ones in every process.

    Two axes meet by a key of one and the group of the other: every door with every family of kinds.
    """
    cases = list(cases)
    missing = {(n, key(*case)) for case in cases for n, key in enumerate(keys)}
    order = random.Random(0).sample(range(len(cases)), len(cases))
    chosen = [False] * len(cases)
    for least in range(len(keys), 0, -1):  # whoever meets most first
        for place in order:
            met = {(n, key(*cases[place])) for n, key in enumerate(keys)} & missing
            if len(met) >= least:
                chosen[place] = True
                missing -= met
    return chosen


def covering(cases: Iterable[Values], *keys: Key) -> list[Any]:
    """The cases `choose` names for `make test`, and the others as long ones of the full product."""
    cases = list(cases)
    rest = pytest.mark.long("the rest of a product")
    return [
        pytest.param(*case, marks=() if now else rest)
        for case, now in zip(cases, choose(cases, *keys), strict=True)
        if now or FULL
    ]


def some(values: Iterable[Any], count: int) -> list[Any]:
    """This many of the values, from all over the list, for `make test`; the others as long ones."""
    values = list(values)
    step = -(-len(values) // count)
    return [
        _also(each, "the rest of a list") if n % step else each for n, each in enumerate(values)
    ]


def apart(values: Iterable[Any], reason: str, *slow: object) -> list[Any]:
    """All values, of which these are long."""
    return [_also(each, reason) if each in slow else each for each in values]


def _also(each: Any, reason: str) -> Any:
    """The value, or values of several parameters, or what `pytest.param` made, as a long one."""
    given = (
        each
        if hasattr(each, "marks")
        else pytest.param(*each)
        if type(each) is tuple
        else pytest.param(each)
    )
    return pytest.param(*given.values, marks=[*given.marks, pytest.mark.long(reason)], id=given.id)
