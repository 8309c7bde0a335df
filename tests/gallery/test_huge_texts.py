"""Huge and odd texts cost every rule and every reader time in proportion, and end with a score or a
reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.text.canonical import fold, split_reasoning, turn_text
from rm_gallery.core.text.expressions import find_answer
from rm_gallery.core.text.quantities import find_quantities
from rm_gallery.core.text.values import choice_letter
from rm_gallery.core.utils.errors import MissingExtra
from rm_gallery.gallery.rm.alignment.harmlessness.refusal import refusal_in
from rm_gallery.gallery.rm.code import ordered
from rm_gallery.gallery.rm.general.match import chosen, prose
from rm_gallery.gallery.rm.general.numbers import answer_quantity
from rm_gallery.gallery.rm.instruction import INSTRUCTIONS, count_sentences, follows
from tests.golden.test_readers import verdict
from tests.golden.test_rules import outcome, rules
from tests.support.choice import apart
from tests.support.cpu import grows

GIVEN = json.loads((Path(__file__).parent / "huge_texts.json").read_text(encoding="utf-8"))
PIECES: list[str] = GIVEN["pieces"]
VERDICTS: list[str] = GIVEN["verdicts"]
READERS: dict[str, Callable[[str], object]] = {
    "final answer": find_answer, "letter": choice_letter,
    "quantity": lambda text: answer_quantity(text, find_quantities("5 km")[0]),
    "choice": lambda text: chosen(text, ("positive", "negative", "a")), "refusal": refusal_in, "reasoning": split_reasoning, "turn": turn_text, "folded": fold,
    "prose": prose, "query": ordered, "sentences": count_sentences,
}  # fmt: skip
SLOW = frozenset(
    {
        "code_execution",
        "code_unit_tests",
        "math_verify_reward",
        "calibrated_math",
        "sql_result_equality",
    }
)
"""They run in processes of their own, under a deadline of their own."""


def scored(name: str, answer: Any) -> dict[str, Any]:
    line = {"question": "How is it?", "reference": "the cat is 42", "metadata": GIVEN["metadata"]}
    line |= GIVEN["settings"].get(name, {})
    try:
        rules()[name]().check()
    except MissingExtra as error:
        pytest.skip(str(error))
    return outcome(name, {**line, "answer": answer})


LONG = (
    "choice", "letter", "final answer", "reasoning", "quantity", "folded",
    "choice_match", "citation_precision_recall", "number_accuracy", "loop_detection", "multiple_choice_letter",
    "cosine_length_scaling", "tolerance_number_match", "language_match", "f1_score", "privacy_leakage", "ngram_repetition_penalty",
    "keywords:forbidden_words", "length_constraints:number_words", "language:response_language",
    "change_case:english_lowercase",
)  # fmt: skip
"""Readers, rules and instructions that take longest."""


@pytest.mark.long("much work")
@pytest.mark.parametrize(
    "name", apart((name for name in rules() if name not in SLOW), "large texts", *LONG)
)
def test_a_rule_takes_time_in_proportion_to_the_answer(name: str) -> None:
    size = 3_000 if name in ("bleu", "chrf") else 24_000
    assert [piece for piece in PIECES if grows(lambda text: scored(name, text), piece, size)] == []


@pytest.mark.long("much work")
@pytest.mark.parametrize("name", apart(READERS, "large texts", *LONG))
def test_a_reader_takes_time_in_proportion_to_the_text(name: str) -> None:
    assert [piece for piece in [*PIECES, *VERDICTS] if grows(READERS[name], piece, 50_000)] == []


@pytest.mark.long("large texts")
@pytest.mark.parametrize("form", ["score", "best of 4", "best of 2"])
def test_a_reply_made_to_be_slow_is_not(form: str) -> None:
    assert [
        piece for piece in VERDICTS if grows(lambda text: verdict(form, text), piece, 120_000)
    ] == []


@pytest.mark.parametrize("name", apart(INSTRUCTIONS, "large texts", *LONG))
def test_an_instruction_is_checked_in_time_in_proportion(name: str) -> None:
    assert [
        p
        for p in PIECES
        if grows(lambda text: follows(text, name, GIVEN["arguments"], loose=True), p, 50_000)
    ] == []


@pytest.mark.parametrize("name", [name for name in rules() if name not in SLOW])
def test_odd_answers_get_a_score_or_a_reason(name: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    parts = {"content": [{"type": "text", "text": "The answer is 42."}, image]}
    for answer in ("", " ", "\r\n", "\x00", "\ufeff42", "\ud83d", "🙂" * 3, "\u202e42", parts):
        found = scored(name, answer)
        assert found.get("status", "unscored") == "unscored", found
