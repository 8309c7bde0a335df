"""Texts made to be difficult: the search for the final answer stays quick and never raises."""

from __future__ import annotations

import random

import pytest

from rm_gallery.core.text.expressions import find_answer, find_reference

_PIECES = [
    *"0123456789{}$\\[]().,:;= -+*/^%#\n",
    r"\boxed{",
    r"\frac",
    r"\text{",
    "answer is ",
    "A: ",
    "####",
    "<think>",
    "</think>",
    "答案",
    "，",
    "。",
    "eggs ",
    "\x00",
    "\ud800",
]


@pytest.mark.parametrize("seed", range(3))
def test_random_texts(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(2000):
        text = "".join(rng.choices(_PIECES, k=rng.randint(0, 30)))
        found = find_answer(text)
        assert found is None or found.text != ""
        find_reference(text)


@pytest.mark.timeout(20)  # the slowest of them takes 0.05 s; a search of quadratic time would take minutes
@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{" * 30_000,
        r"\boxed{" + r"\[" * 100_000,
        r"\boxed{" + r"\(" * 900,
        r"\boxed{" + "1" * 1990 + r"\overline}",
        "answer " * 30_000,
        "answer is" + " " * 200_000,
        "答案" * 100_000,
        "A:" * 100_000,
        "A: " + " " * 200_000,
        "#### " * 40_000,
        "$" * 200_000,
        "{" * 200_000,
        "3" * 200_000,
        "*" * 200_000,
        "\n" * 200_000,
        " " * 200_000 + "x",
    ],
    ids=lambda text: text[:12].strip() or "blank",
)
def test_long_texts(text: str) -> None:
    found = find_answer(text)
    assert found is None or 0 < len(found.text) <= 2500


def test_answer_at_the_end_of_a_long_text() -> None:
    found = find_answer("We compute 7 again. " * 20_000 + "\nA: 18")
    assert found is not None
    assert found.text == "18"
