"""What an answer asserts at its end is its conclusion; what it supposes, denies, takes back or
breaks off is none.
"""

from __future__ import annotations

import pytest

from rm_gallery import RewardRegistry
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.core.text.answer import Extraction, last_boxed, read_statements
from rm_gallery.core.text.conclusion import asserted
from rm_gallery.core.text.expressions import find_answer
from rm_gallery.core.text.maths import verify_answer
from rm_gallery.core.text.values import choice_letter

NOTHING = [
    "I computed 42 first, but that turned out to be wrong, and I have no other idea.",
    "I first got 56, but this is wrong. I could not finish the computation.",
    "Answer: 42\n\nWait, that's not right. I can't determine it.",
    "Step 1: 7*8 = 56\nStep 2: subtract the",
    "We know that 6*7 = 42. Next we",
    "x=56 does not satisfy it",
    "Suppose the result is 42.",
    "Let me try 7: 7^2 = 49. Trying 8 gives 64.",
    "The maximum is at most 42.",
    "It is at least 42",
    "the 42nd",
    "x = 42 is an extraneous root, so there is no solution",
    r"\boxed{42} is what the book says, but it is false.",
    r"\boxed{\text{42 is wrong}}",
    "The book says 42.",
]
SOMETHING = [
    ("So the total is 42. Hmm, I forgot the last term; adding it gives 45.", "45"),
    ("The total is 42. I hope this helps!", "42"),
    ("If each has 6, then 7 of them have 42.", "42"),
    ("Trying 8 gives 64. That works.", "64"),
    ("My friend says the answer is 42, but I get 24.", "24"),
    (r"First \boxed{2}. Wait, that is wrong; it is \boxed{3}.", "3"),
    (r"First \boxed{7}, no wait, \boxed{8}.", "8"),
    (r"\boxed{35 cm} ++++++ \boxed{4}", "4"),
    (r"So we get \boxed{5}. I put it within \boxed{} as asked.", "5"),
    (r"I will put it in \boxed{your answer}. It is 42.", "42"),
    ("\\boxed{A = 5}\n\nAnswer: 6", "6"),
    (r"$x = \boxed{1}$ or $x = \boxed{2}$", "1, 2"),
]


@pytest.mark.parametrize("text", NOTHING)
def test_what_is_not_asserted_concludes_nothing(text: str) -> None:
    assert find_answer(text) is None


@pytest.mark.parametrize(("text", "value"), SOMETHING)
def test_the_last_assertion_is_the_conclusion(text: str, value: str) -> None:
    found = find_answer(text)
    assert found is not None and value in found.text
    assert not any(other in found.text for other in ("42", "64", "35") if other != value)


def test_signs_inside_formulas_end_no_sentence() -> None:
    for text in ("$5!$", "$$\n18\n$$", "\\begin{pmatrix}\n1\\\\\n2\n\\end{pmatrix}", "5! = 120"):
        assert asserted(text) == text


def test_a_box_that_is_taken_back_or_empty_is_none() -> None:
    assert last_boxed(r"\boxed{5} and then \boxed{}") == "5"
    assert last_boxed(r"\boxed{5}. This is wrong.") is None
    assert read_statements(r"\boxed{5}. This is wrong.").statements == []


@pytest.mark.parametrize(
    ("text", "boxed", "announced", "any_"),
    [
        (r"So it is \boxed{42}.", True, True, True),
        ("The answer is 42.", False, True, True),
        ("#### 42", False, True, True),
        ("<answer>42</answer>", False, True, True),
        ("42", False, True, True),
        ("Six times seven makes 42.", False, False, True),
        ("We have 6*7 = 42. Next we", False, False, False),
    ],
)
def test_extraction_says_what_counts(text: str, boxed: bool, announced: bool, any_: bool) -> None:
    ways: tuple[tuple[Extraction, bool], ...] = (
        ("boxed", boxed),
        ("announced", announced),
        ("any", any_),
    )
    for extraction, wanted in ways:
        assert (verify_answer(text, "42", extraction).status == "correct") is wanted
        for name in ("math_verify_reward", "tolerance_number_match", "number_accuracy"):
            if name == "number_accuracy" and extraction == "any":
                continue  # reads all numbers of the text
            reward = RewardRegistry.create(name, extraction=extraction)
            found = reward.evaluate(sample_of("?", text, reference="42"))
            assert (found.output[0].answer.reward.score == 1.0) is wanted, (name, extraction)


def test_letters_obey_the_same_setting() -> None:
    assert [
        choice_letter(r"\boxed{B}", extraction=way) for way in ("boxed", "announced", "any")
    ] == ["B", "B", "B"]
    assert [
        choice_letter("The answer is B.", extraction=way) for way in ("boxed", "announced", "any")
    ] == [None, "B", "B"]
    assert [
        choice_letter("(B) Paris is what fits here.", extraction=way)
        for way in ("boxed", "announced", "any")
    ] == [
        None,
        None,
        "B",
    ]


def test_several_letters_are_none_whatever_follows() -> None:
    for text in (
        "The answer is A, C 👍",
        "The answer is A and B 👍",
        "Answer: B or C seems right",
        "**A and D** because",
    ):
        assert choice_letter(text) is None, text
    for text in (
        "The answer is B, not C",
        "The answer is B and a cat",
        "The answer is B, D would be too big",
    ):
        assert choice_letter(text) == "B", text


@pytest.mark.parametrize(
    "text",
    [
        "Hypothetically it could be 42.",
        "It would be 42 if the rate were constant.",
        "42 cannot be correct.",
    ],
)
def test_what_may_or_cannot_be_is_not_asserted(text: str) -> None:
    assert find_answer(text) is None
