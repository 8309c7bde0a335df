"""Huge and odd texts cost every rule and every reader time in proportion, and end with a score or a reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from rm_gallery.core.text.expressions import find_answer
from rm_gallery.core.text.letters import choice_letter
from rm_gallery.core.text.quantities import find_quantities
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.core.utils.errors import MissingExtra
from rm_gallery.gallery.rm.alignment.harmlessness.refusal import refusal_in
from rm_gallery.gallery.rm.code.sql import ordered
from rm_gallery.gallery.rm.general.choice_match import chosen
from rm_gallery.gallery.rm.general.language_match import prose
from rm_gallery.gallery.rm.general.tolerance_number import answer_quantity
from rm_gallery.gallery.rm.instruction.checks import count_sentences
from rm_gallery.gallery.rm.instruction.ifeval import INSTRUCTIONS, follows
from tests.golden.test_readers import verdict
from tests.golden.test_rules import outcome, rules

PIECES = (
    [
        "a",
        "the cat sat. ",
        "1",
        "1,000.5 ",
        "1,",
        "中文。",
        "a\r\n",
        "[",
        "\\boxed{",
        "<think>",
        "</think>",
        "```\n",
        "a@a.",
    ]
    + [
        "<tool_call>{}</tool_call>",
        "```python\nx = 1\n```\n",
        "----- ",
        "the answer is ",
        "I'm sorry, ",
        "a [1]. ",
        "f(",
    ]
    + ['{"a":', "5 km/h ", "\ud800", "e\u0301\u200b", "$5$ ", "A. B. ", "+1 ", "<tool_call>", "\\[ ", "\\text{", "$$ "]
    + ["```" + " " * 500 + "`\n", "x@ ", "(A", " ", "½", "“", "Step 1: ", "so ", "1/", "5 or ", "=", "I cannot ", "B. "]
    + ["答案是", "正解は", "<answer>", "<answer>5</answer>", '"answer": ', '{"answer": {', "Wait, no: 5. ", "It's B. "]
    + ["not 5, ", "#### 5\n", "A: 5\n", "'", '"', "/*", "--", "ORDER ", "\n", "<<", ">>a<<", "**a", "Section", "{", "$"]
)
VERDICTS = [
    '{"score":[',
    "</best>",
    "<best>",
    "<best>1</best>",
    '{"best":1}',
    "<reason>",
    "<!--",
    "```\n",
    "{'best':",
    "x</think>",
] + ['"<best>1</best>', "<best>{", "【思考】", "\n<think>'</think>", "<think ", "<|channel|>", " </think>."]
ARGUMENTS: dict[str, Any] = {
    **{"keywords": ["a b", "x"], "keyword": "a", "forbidden_words": ["a" * 50, "b"], "relation": "less than"},
    **{"frequency": 1, "letter": "a", "let_frequency": 2, "let_relation": "at least", "language": "en"},
    **{"num_sentences": 2, "num_paragraphs": 3, "num_words": 5, "nth_paragraph": 2, "first_word": "a"},
    **{"num_placeholders": 2, "postscript_marker": "P.P.S", "num_bullets": 2, "num_highlights": 2, "num_sections": 2},
    **{"section_spliter": "Section", "prompt_to_repeat": "Say it.", "end_phrase": "End.", "capital_frequency": 2},
    "capital_relation": "at least",
}
READERS: dict[str, Callable[[str], object]] = {
    "final answer": find_answer,
    "letter": choice_letter,
    "quantity": lambda text: answer_quantity(text, find_quantities("5 km")[0]),
    "choice": lambda text: chosen(text, ("positive", "negative", "a")),
    "refusal": refusal_in,
    "reasoning": split_reasoning,
    "prose": prose,
    "query": ordered,
    "sentences": count_sentences,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "regex_match": {"params": {"pattern": r"\d+$"}},
    "json_schema": {"params": {"json_schema": {"type": "object"}}},
    "choice_match": {"params": {"choices": ["the cat is 42", "b"]}},
    "language_match": {"params": {"language": "en"}},
    "trajectory_cost": {"params": {"max_steps": 3}},
    "cosine_length_scaling": {"params": {"correctness": "number"}},
    "multiple_choice_letter": {"reference": "A"},
}
METADATA: dict[str, Any] = {"sources": ["a cat", "a dog"], "steps": 4, "tool_calls": [{"name": "f", "arguments": {}}]}
SLOW = frozenset({"code_execution", "code_unit_tests", "math_verify_reward", "sql_result_equality"})
"""They run in processes of their own, under a deadline of their own."""


def spent(work: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    work(text)
    return time.process_time() - began


def grows(work: Callable[[str], object], piece: str, size: int) -> bool:
    """Whether four times the text takes much more than four times the time; what takes next to none is not asked."""
    text = (piece * (size // len(piece) + 1))[:size]
    whole = spent(work, text)
    if whole < 0.15:
        return False
    # a collection of the whole test process may fall into one of the tries
    return min(whole, spent(work, text), spent(work, text)) > 8 * min(spent(work, text[: size // 4]) for _ in range(3))


def scored(name: str, answer: Any) -> dict[str, Any]:
    line = {"question": "How is it?", "reference": "the cat is 42", "metadata": METADATA, **SETTINGS.get(name, {})}
    try:
        rules()[name]().check()
    except MissingExtra as error:
        pytest.skip(str(error))
    return outcome(name, {**line, "answer": answer})


@pytest.mark.parametrize("name", [name for name in rules() if name not in SLOW])
def test_a_rule_takes_time_in_proportion_to_the_answer(name: str) -> None:
    size = 5_000 if name in ("bleu", "chrf") else 40_000
    assert [piece for piece in PIECES if grows(lambda text: scored(name, text), piece, size)] == []


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_time_in_proportion_to_the_text(name: str) -> None:
    assert [piece for piece in [*PIECES, *VERDICTS] if grows(READERS[name], piece, 120_000)] == []


@pytest.mark.parametrize("form", ["score", "best of 4", "best of 2"])
def test_a_reply_made_to_be_slow_is_not(form: str) -> None:
    assert [piece for piece in VERDICTS if grows(lambda text: verdict(form, text), piece, 120_000)] == []


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_an_instruction_is_checked_in_time_in_proportion(name: str) -> None:
    assert [p for p in PIECES if grows(lambda text: follows(text, name, ARGUMENTS, loose=True), p, 50_000)] == []


@pytest.mark.parametrize("name", [name for name in rules() if name not in SLOW])
def test_odd_answers_get_a_score_or_a_reason(name: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    parts = {"content": [{"type": "text", "text": "The answer is 42."}, image]}
    for answer in ("", " ", "\r\n", "\x00", "\ufeff42", "\ud83d", "🙂" * 3, "\u202e42", parts):
        found = scored(name, answer)
        assert found.get("status", "unscored") == "unscored", found


def test_the_final_answer_stands_at_the_end_of_a_long_text() -> None:
    found = find_answer("We compute 7 again. " * 20_000 + "\nA: 18")
    assert found is not None and found.text == "18"
