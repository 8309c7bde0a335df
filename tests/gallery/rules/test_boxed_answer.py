"""The last box is read with nested braces, and compared as text."""

from __future__ import annotations

import pytest

from rm_gallery.core.text.answer import last_boxed
from rm_gallery.gallery.rm.general.boxed import BoxedAnswerReward
from tests.gallery.rules.support import score_of, unscored


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{42}", "42"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\boxed{3}}", r"\boxed{3}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {7}", "7"),
        (r"\fbox{7}", "7"),
        (r"\boxed{答案}", "答案"),
        (r"\boxed{}", ""),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"\boxed 5", None),
        (r"\boxedfoo{5}", None),
        ("42", None),
        ("", None),
    ],
)
def test_last_boxed(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        (r"So $\boxed{42}$.", "42", 1.0),
        ("So\r\n\\boxed{ 42 }\r\n", "42", 1.0),
        (r"\boxed{\dfrac12}", r"\frac{1}{2}", 1.0),
        (r"\boxed{\left( 1,\, 2 \right)}", "(1,2)", 1.0),
        (r"\boxed{\text{yes}}", "yes", 1.0),
        (r"\boxed{\$5}", "5", 1.0),
        (r"\boxed{3}", r"The result: \boxed{3}", 1.0),
        (r"<think>\boxed{1}</think>\boxed{2}", "2", 1.0),
        pytest.param(r"\boxed{0.5}", r"\frac{1}{2}", 0.0, id="text_is_compared_not_value"),
        pytest.param("42", "42", 0.0, id="no_box"),
        pytest.param(r"\boxed{41}", "42", 0.0, id="wrong"),
        ("", "42", 0.0),
    ],
)
def test_score(answer: str, reference: str, expected: float) -> None:
    assert score_of(BoxedAnswerReward(), answer, reference) == expected


def test_without_normalisation() -> None:
    assert score_of(BoxedAnswerReward(normalize=False), r"\boxed{1, 2}", "1,2") == 0.0
    assert score_of(BoxedAnswerReward(normalize=False), r"\boxed{ 1,2 }", "1,2") == 1.0


def test_unscored() -> None:
    assert unscored(BoxedAnswerReward(), r"\boxed{42}") == "no_reference"
