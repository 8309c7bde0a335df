"""One choice is named, as a whole word, where the answer gives it."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.general.choice_match import ChoiceMatchReward
from tests.gallery.rules.support import score_of, unscored

CHOICES = ("positive", "negative", "very positive")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("positive", 1.0),
        ("Positive.", 1.0),
        ("The sentiment is positive.", 1.0),
        ("**positive**\r\n", 1.0),
        ("It could be negative, but the answer is positive", 1.0),
        ("It could be negative.\nYet: positive", 1.0),
        pytest.param("It is very positive", 0.0, id="the_longer_choice_wins"),
        pytest.param("positively", 0.0, id="part_of_a_word"),
        pytest.param("positive or negative", 0.0, id="two_choices"),
        ("neutral", 0.0),
        ("", 0.0),
    ],
)
def test_values(answer: str, expected: float) -> None:
    assert score_of(ChoiceMatchReward(choices=CHOICES), answer, "positive") == expected


@pytest.mark.parametrize(
    ("answer", "expected"), [("这条评论是正面的", 1.0), ("负面", 0.0), ("答案是正面，不是负面", 1.0)]
)
def test_chinese(answer: str, expected: float) -> None:
    assert score_of(ChoiceMatchReward(), answer, "正面", choices=["正面", "负面"]) == expected


def test_case() -> None:
    assert score_of(ChoiceMatchReward(choices=("US", "us"), case_sensitive=True), "us", "US") == 0.0


@pytest.mark.parametrize(
    ("reference", "metadata", "reason"),
    [
        ("a", {}, "no_choices"),
        (None, {"choices": ["a", "b"]}, "no_reference"),
        ("c", {"choices": ["a", "b"]}, "no_reference"),
    ],
)
def test_unscored(reference: str | None, metadata: dict[str, Any], reason: str) -> None:
    assert unscored(ChoiceMatchReward(), "a", reference, **metadata) == reason


@pytest.mark.parametrize("choices", [("a",), ("a", " ")])
def test_bad_choices(choices: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="choices"):
        ChoiceMatchReward(choices=choices)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("positive\n\nExplanation: no negative words.", "positive"),
        ("The answer is not positive.", None),
        ("The answer is not positive but negative.", "negative"),
        ("It's not positive, it's negative.", "negative"),
        ("The answer is positive, not negative.", "positive"),
        ("The answer is positive because there are no negative words.", "positive"),
        ("The answer is positive. Wait, no: the answer is negative.", "negative"),
        ("Positive. I see nothing negative.", "positive"),
        ("Positive, since nothing negative is said", "positive"),
        ("positive, negative", None),
        ("Positive is wrong. Negative is right.", "negative"),
        ("<answer>positive</answer>", "positive"),
        ('{"answer": "positive"}', "positive"),
        (r"\boxed{\text{positive}}", "positive"),
        ("<thinking>negative?</thinking>positive", "positive"),
        ("The answer is positive or negative.", None),
        ("La respuesta es positive.", "positive"),
        ("It is very positive.", "very positive"),
        ("not very positive", None),
        ("neither positive nor negative", None),
        ("The text is anything but positive.", None),
        ("The sentiment is hardly positive.", None),
        ("Is it positive?", None),
        ("I doubt it is positive.", None),
        ("It would be positive if the last line were missing.", None),
        ("答えはpositiveではありません。", None),
        ("Ответ не positive.", None),
        ("Partly positive, partly negative.", None),
        ("positive because there is nothing negative.", "positive"),
        ("The answer isn't negative, it's positive.", "positive"),
        ("While it has negative words, the overall sentiment is positive.", "positive"),
    ],
)
def test_a1_a6_what_is_denied_is_not_named(answer: str, expected: str | None) -> None:
    scores = {choice: score_of(ChoiceMatchReward(choices=CHOICES), answer, choice) for choice in CHOICES}
    assert scores == {choice: float(choice == expected) for choice in CHOICES}
