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


def covering(
    cases: Iterable[Values], *keys: Key, long: Callable[..., bool] = lambda *case: False
) -> list[Any]:
    """The cases `choose` names for `make test`, and the others as long ones of the full product;
    `long` names cases that are long by themselves.
    """
    cases = list(cases)
    quick = [case for case in cases if not long(*case)]
    rest = pytest.mark.long("the rest of a product")
    return [
        *(
            pytest.param(*case, marks=() if now else rest)
            for case, now in zip(quick, choose(quick, *keys), strict=True)
            if now or FULL
        ),
        *(_also(case, pytest.mark.long("above its kind")) for case in cases if long(*case)),
    ]


def some(values: Iterable[Any], count: int) -> list[Any]:
    """This many of the values, from all over the list, for `make test`; the others as long ones."""
    values = list(values)
    step = -(-len(values) // count)
    rest, now = pytest.mark.long("the rest of a list"), pytest.mark.smoke("one of a list")
    return [_also(each, rest if n % step else now) for n, each in enumerate(values)]


def apart(values: Iterable[Any], reason: str, *slow: object) -> list[Any]:
    """All values, of which these are long."""
    return [_also(each, pytest.mark.long(reason)) if each in slow else each for each in values]


def _also(each: Any, mark: pytest.MarkDecorator) -> Any:
    """A value, a tuple of those of several parameters, or what `pytest.param` made, with one more
    mark.
    """
    if not hasattr(each, "marks"):
        each = pytest.param(*each) if isinstance(each, tuple) else pytest.param(each)
    return pytest.param(*each.values, marks=[*each.marks, mark], id=each.id)
