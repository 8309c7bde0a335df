"""A choice covers what it is asked to cover, and what it leaves out runs where all is asked for."""

from __future__ import annotations

from itertools import product

import pytest

from tests.support import choice

CASES = list(product("abcdefgh", range(12), "xy"))


def chosen() -> list[tuple[str, int, str]]:
    needed = choice.choose(CASES, lambda a, n, x: (a, n % 3), lambda a, n, x: (n, x))
    return [case for case, now in zip(CASES, needed, strict=True) if now]


def test_every_value_of_every_key_occurs_in_few_cases_always_the_same() -> None:
    assert {(a, n % 3) for a, n, _ in chosen()} == set(product("abcdefgh", range(3)))
    assert {(n, x) for _, n, x in chosen()} == set(product(range(12), "xy"))
    assert len(chosen()) < 36 < len(CASES) and chosen() == chosen()


def test_the_others_exist_only_in_the_whole_product_and_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = choice.covering(CASES, lambda a, n, x: a)
    monkeypatch.setattr(choice, "FULL", True)
    every = choice.covering(CASES, lambda a, n, x: a)
    assert [each.values for each in every] == CASES
    assert [each.values for each in every if not each.marks] == [each.values for each in few]


def test_some_are_of_all_over_a_list_and_keep_their_marks() -> None:
    values = ["a", "b", pytest.param("c", marks=pytest.mark.slow, id="C"), "d"]
    a, b, c, d = choice.some(values, 2)
    assert [mark.name for mark in a.marks] == ["smoke"] and c.values == ("c",)
    assert (b.values, [mark.name for mark in b.marks]) == (("b",), ["long"])
    a, b, c, d = choice.some(values, 1)
    assert (c.id, [mark.name for mark in c.marks]) == ("C", ["slow", "long"])
    assert choice.apart("abc", "large", "b")[::2] == ["a", "c"]
