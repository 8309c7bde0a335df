"""Long texts made of one piece take no longer than their length, whatever the instruction."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.gallery.rm.instruction.ifeval import INSTRUCTIONS, follows

ARGUMENTS: dict[str, Any] = {
    "keywords": ["a b", "x"],
    "keyword": "a",
    "forbidden_words": ["a" * 50, "b"],
    "relation": "less than",
    "frequency": 1,
    "letter": "a",
    "let_frequency": 2,
    "let_relation": "at least",
    "language": "en",
    "num_sentences": 2,
    "num_paragraphs": 3,
    "num_words": 5,
    "nth_paragraph": 2,
    "first_word": "a",
    "num_placeholders": 2,
    "postscript_marker": "P.P.S",
    "num_bullets": 2,
    "num_highlights": 2,
    "section_spliter": "Section",
    "num_sections": 2,
    "prompt_to_repeat": "Say it.",
    "end_phrase": "End.",
    "capital_frequency": 2,
    "capital_relation": "at least",
}
PIECES = [
    "*",
    "**a",
    "<<",
    ">>a<<",
    "[",
    "\n",
    "\n\n",
    " ",
    "-",
    "a",
    "a-",
    "'s",
    "Section",
    "p. ",
    "```",
    "{",
    "\u200b",
    "中",
]


@pytest.mark.timeout(30)  # all of it takes a second; quadratic time would take hours
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_linear_time(name: str) -> None:
    for piece in PIECES:
        assert follows(piece * (100_000 // len(piece)), name, ARGUMENTS, loose=True) in (True, False)
