"""The loose mode also looks at the response without its first line, its last line and asterisks, never less."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.gallery.rm.instruction.ifeval import follows, loose_variants

JSON, END, QUOTED, COMMA = (
    "detectable_format:json_format",
    "startend:end_checker",
    "startend:quotation",
    "punctuation:no_comma",
)


@pytest.mark.parametrize(
    ("name", "kwargs", "text"),
    [
        (JSON, {}, "Sure:\n[1]"),
        (JSON, {}, "[1]\nHope that helps!"),
        (JSON, {}, "Sure:\n[1]\nHope that helps!"),
        (JSON, {}, "**[1]**"),
        (JSON, {}, "Sure:\n**[1]**\nThat is it."),
        (END, {"end_phrase": "the end"}, "Story. The End\n(150 words)"),
        (QUOTED, {}, '*"all of it"*'),
        (COMMA, {}, "Sure, here it is:\nNo pause here."),
    ],
)
def test_loose_accepts_what_strict_does_not(name: str, kwargs: dict[str, Any], text: str) -> None:
    assert not follows(text, name, kwargs)
    assert follows(text, name, kwargs, loose=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [(JSON, "Sure:\nhere it is:\n[1]"), (COMMA, "Sure, well.\nNo, pause.\nYes, so."), (JSON, "Sure:\n\n"), (JSON, "*")],
)
def test_loose_has_its_limits(name: str, text: str) -> None:
    assert not follows(text, name, loose=True)


def test_an_instruction_that_asterisks_fulfil_is_not_lost() -> None:
    assert follows("*a*", "detectable_format:number_highlighted_sections", {"num_highlights": 1}, loose=True)


def test_variants() -> None:
    assert loose_variants("*a\nb\nc") == ["*a\nb\nc", "b\nc", "*a\nb", "b", "a\nb\nc", "b\nc", "a\nb", "b"]
