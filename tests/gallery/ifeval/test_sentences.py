"""Where a sentence ends."""

from __future__ import annotations

import pytest

from rm_gallery.gallery.rm.instruction.checks import count_sentences, split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", 0),
        ("...", 0),
        ("One", 1),
        ("One. Two.", 2),
        ("one. two. three", 3),
        ("Wait... no. Wait... No.", 3),
        ("Really?! Yes!!! Good.", 3),
        ('"Who is it?" he asked. "Me!" She left.', 3),
        ("Dr. J. R. Smith met Mrs. Jones at 3.5 p.m. sharp.", 1),
        ("See e.g. the book, i.e. that one, vs. this, etc. and more.", 1),
        ("We bought apples, pears, etc. Then we left.", 2),
        ("It was made in the U.S. by Acme Inc. in 1999. Then it broke.", 2),
        ("So did I. Then came plan B. It failed.", 2),
        ("This is plan B.", 1),
        ("1. First do this.\n2. Then do that.\na. Or this.", 3),
        ("A title\n\nA sentence.", 1),
        ("Visit www.example.com or a.b(c) for v1.2.3.", 1),
        ("**Bold end.** Next one. (In brackets.) Last", 4),
        ("今天很好。你呢？很好！好吧", 4),
        ("「好。」他说。", 2),
        ("यह एक वाक्य है। दूसरा वाक्य।", 2),
        ("ہاں۔ نہیں۔", 2),
        ("One.\r\nTwo.", 2),
    ],
)
def test_count(text: str, sentences: int) -> None:
    assert count_sentences(text) == sentences, split_sentences(text)


def test_the_parts_are_the_text() -> None:
    assert split_sentences("He left.  She stayed! Why? ") == ["He left.", "She stayed!", "Why?"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", [".", "a.", ". ", "a. ", "\n", ' "', "1.\n", "。", "...a ", "( "])
def test_long_texts_take_linear_time(piece: str) -> None:
    assert count_sentences(piece * 100_000) >= 0
