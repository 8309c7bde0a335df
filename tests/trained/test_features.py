"""Features of any text: named apart, finite and of moderate size; the figures themselves are golden (`tests/golden/train`)."""

from __future__ import annotations

import math

import pytest

from rm_gallery.gallery.rm.trained.features import answer_features, dense_names, read_conversation
from tests.train.preferences import turns

ODD = {
    "empty": "",
    "blank": " \r\n\t ",
    "one letter": "x",
    "long word": "x" * 200_000,
    "long text": "Use the knife. " * 13_000,
    "lines": "- a\n" * 50_000,
    "quotes": "'" * 50_000,
    "Chinese": "我不能帮您。" * 10_000,
    "numbers": "1.5 " * 20_000,
    "half a pair": "\ud800 and \udfff",
    "null": "a\x00b",
}


@pytest.mark.parametrize("name", ODD)
def test_any_text_gives_finite_figures_of_moderate_size(name: str) -> None:
    found = answer_features(read_conversation(turns(ODD[name])), ODD[name]).dense.tolist()
    assert len(found) == len(dense_names()) == len(set(dense_names()))
    assert all(math.isfinite(value) and abs(value) < 20 for value in found)


def test_line_ends_do_not_matter() -> None:
    text = "# Title\n\n- **one**\n- two\n\nHuman: no\n"
    unix, windows = (answer_features(read_conversation([]), each) for each in (text, text.replace("\n", "\r\n")))
    assert unix.dense.tolist() == windows.dense.tolist() and unix.hashed.tolist() == windows.hashed.tolist()
