"""The letter is read from many wordings, and an article is no letter."""

from __future__ import annotations

import pytest

from rm_gallery.core.text.letters import choice_letter
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.general.choice_letter import MultipleChoiceLetterReward
from tests.gallery.rules.support import score_of, unscored


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("b.", "B"),
        ("(B)", "B"),
        ("**B**", "B"),
        ("Ｂ", "B"),
        ("B\r\n", "B"),
        ("B. Paris", "B"),
        ("B) Paris", "B"),
        ("B: Paris", "B"),
        ("The answer is B.", "B"),
        ("The answer is (b)", "B"),
        ("Answer: **C**", "C"),
        ("The correct option is D: Paris", "D"),
        ("Option C is correct.", "C"),
        ("(B) is the correct answer", "B"),
        (r"So \boxed{\text{(D)}}", "D"),
        ("Thinking about it.\n\nB", "B"),
        ("A. x\nB. y\nC. z\nThe answer is C", "C"),
        ("The answer is A. Wait, no. The answer is B.", "B"),
        ("<think>The answer is A</think>The answer is B", "B"),
        ("None of the others fits (C)", "C"),
        ("答案是B", "B"),
        ("答案：Ｂ。", "B"),
        ("选项A错误，所以选B", "B"),
        ("不选A，选D", "D"),
        ("A是正确的", "A"),
        ("The answer is A because it fits", "A"),
        ("Answer: A. A dog", "A"),
        ("The correct option is (A) A cat", "A"),
        pytest.param("A cat sat on the mat.", None, id="an_article_is_no_letter"),
        pytest.param("The answer is a cat", None, id="nor_in_an_announcement"),
        pytest.param("Answer: A dog", None, id="nor_in_capitals"),
        pytest.param("I think so", None, id="a_pronoun_is_no_letter"),
        pytest.param("A or B", None, id="two_letters"),
        pytest.param("The answer is A or B", None, id="two_announced"),
        pytest.param("Both (A) and (B)", None, id="two_in_brackets"),
        pytest.param("A. x\nB. y\nC. z", None, id="a_list_of_all"),
        pytest.param("<think>The answer is A", None, id="never_stopped_thinking"),
        pytest.param("The answer is C++", None, id="a_longer_name"),
        pytest.param("The answer is E-coli", None, id="a_word_that_starts_with_it"),
        ("Paris", None),
        ("", None),
    ],
)
def test_letter(text: str, letter: str | None) -> None:
    assert choice_letter(text) == letter


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("B", "B", 1.0),
        ("C", "B", 0.0),
        ("B", "(b)", 1.0),
        ("B", "B. Paris", 1.0),
        ("no idea", "B", 0.0),
        ("", "B", 0.0),
    ],
)
def test_score(answer: str, reference: str, expected: float) -> None:
    assert score_of(MultipleChoiceLetterReward(), answer, reference) == expected


def test_reference_as_text_of_a_choice() -> None:
    choices = ["London", "Paris", "Rome"]
    assert score_of(MultipleChoiceLetterReward(), "The answer is B", "Paris", choices=choices) == 1.0
    assert score_of(MultipleChoiceLetterReward(), "The answer is E", "Paris", choices=choices) == 0.0


@pytest.mark.parametrize("reference", [None, "Paris", "Z"])
def test_unscored(reference: str | None) -> None:
    assert unscored(MultipleChoiceLetterReward(), "B", reference) == "no_reference"


@pytest.mark.parametrize("letters", ["", "AAB", "A1", "甲乙"])
def test_bad_letters(letters: str) -> None:
    with pytest.raises(ConfigError, match="letters"):
        MultipleChoiceLetterReward(letters=letters)
