"""DAPO's overlong punishment and cosine length scaling follow their papers' formulas in any unit of length."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rm_gallery.core.data.schema import Step
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.length.cosine import CosineLengthScalingReward, cosine_scaled
from rm_gallery.gallery.rm.length.measure import LengthUnit
from rm_gallery.gallery.rm.length.overlong import DapoSoftOverlongPunishmentReward, soft_overlong_punishment
from rm_gallery.gallery.rm.length.penalty import LengthPenaltyReward
from tests.gallery.rules.support import score_of, unscored
from tests.support.samples import make_sample, scores


@pytest.mark.parametrize(
    ("length", "expected"),
    [(0, 0.0), (79, 0.0), (80, 0.0), (81, -0.05), (90, -0.5), (100, -1.0), (101, -1.0), (110, -1.0)],
)
def test_overlong_values(length: int, expected: float) -> None:
    assert soft_overlong_punishment(length, 100, 20) == pytest.approx(expected)
    assert score_of(DapoSoftOverlongPunishmentReward(max_length=100, cache=20), "x" * length) == pytest.approx(expected)


@pytest.mark.parametrize(("length", "expected"), [(16384, 0.0), (18432, -0.5), (20480, -1.0), (20481, -1.0)])
def test_overlong_defaults_are_the_papers(length: int, expected: float) -> None:
    assert score_of(DapoSoftOverlongPunishmentReward(), "x" * length) == expected


@pytest.mark.parametrize(("length", "expected"), [(0, -1.0), (9, -0.1), (10, 0.0), (40, 0.0), (41, -0.1), (99, -2.0)])
def test_a_penalty_grows_with_every_character_too_few_or_too_many(length: int, expected: float) -> None:
    reward = LengthPenaltyReward(min_length=10, max_length=40, penalty_rate=0.1, max_penalty=2.0)
    assert scores(reward.evaluate(make_sample("x" * length))) == [pytest.approx(expected)]


def test_overlong_without_cache_is_a_step() -> None:
    assert [soft_overlong_punishment(n, 10, 0) for n in (9, 10, 11)] == [0.0, 0.0, -1.0]


class Encoder:
    """A tokenizer as transformers and tokenizers have them."""

    name_or_path = "toy"

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * add_special_tokens + [1] * len(text.split())

    def add_special_tokens(self) -> None:
        raise AssertionError("only its presence is looked at")


@pytest.mark.parametrize(
    ("unit", "tokenizer", "text", "length"),
    [
        ("chars", None, "ab cd", 5),
        ("chars", None, "中文", 2),
        ("words", None, "one two, three", 3),
        ("words", None, "中文 and 英文", 5),
        ("tokens", str.split, "one two three", 3),
        ("tokens", "whitespace", "one two, three", 3),
        ("tokens", Encoder(), "one two three", 3),
    ],
)
def test_units(unit: LengthUnit, tokenizer: Any, text: str, length: int) -> None:
    reward = DapoSoftOverlongPunishmentReward(unit=unit, tokenizer=tokenizer, max_length=10, cache=10)
    assert score_of(reward, text) == pytest.approx(-length / 10)


@pytest.mark.parametrize(
    "recorded", [{"completion_ids": [7] * 5}, {"completion_tokens": 5}, {"usage": {"completion_tokens": 5}}]
)
def test_recorded_tokens(recorded: dict[str, Any]) -> None:
    reward = DapoSoftOverlongPunishmentReward(unit="tokens", max_length=10, cache=10)
    assert score_of(reward, Step(content="x" * 99, additional_kwargs=recorded)) == -0.5


def test_tokens_that_nobody_counted() -> None:
    assert unscored(DapoSoftOverlongPunishmentReward(unit="tokens"), "text") == "no_token_count"


def test_a_tokenizer_in_a_description_is_a_name() -> None:
    described = DapoSoftOverlongPunishmentReward(unit="tokens", tokenizer=Encoder()).describe()
    assert described["tokenizer"]["name_or_path"] == "toy"


@pytest.mark.parametrize(
    "wrong", [{"max_length": 0}, {"cache": -1}, {"max_length": 5, "cache": 6}, {"unit": "lines"}, {"tokenizer": "gpt4"}]
)
def test_bad_overlong_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        DapoSoftOverlongPunishmentReward(**wrong)


@pytest.mark.parametrize(
    ("length", "right", "wrong"),
    [
        (0, 1.0, -1.0),
        (25, 0.9267767, -0.9267767),
        (50, 0.75, -0.75),
        (75, 0.5732233, -0.5732233),
        (100, 0.5, -0.5),
        (150, 0.5, -0.5),
    ],
)
def test_cosine_values(length: int, right: float, wrong: float) -> None:
    assert cosine_scaled(length, 100, 1.0, 0.5) == pytest.approx(right)
    assert cosine_scaled(length, 100, -1.0, -0.5) == pytest.approx(wrong)


@pytest.mark.parametrize(
    ("correctness", "answer", "reference", "right"),
    [
        ("exact", "42", "42", True),
        ("exact", "<think>so</think>\r\n42 ", "42", True),
        ("exact", "42.0", "42", False),
        ("exact", "答案", "答案", True),
        ("number", "it is 1,000", "1000", True),
        ("number", "it is 1,000 or 7", "1000", False),
        ("number", "", "1000", False),
        ("math", "The answer is 1/2", "0.5", True),
        ("math", r"So \boxed{\frac{1}{2}}", "0.5", True),
        ("math", "The answer is 3", "4", False),
        ("math", "", "4", False),
    ],
)
def test_cosine_correctness(correctness: Any, answer: str, reference: str, right: bool) -> None:
    assert (score_of(CosineLengthScalingReward(correctness=correctness), answer, reference) > 0) is right


@pytest.mark.parametrize(
    ("label", "right"), [(True, True), (0, False), ("correct", True), ("error", False), (1.0, True)]
)
def test_cosine_correctness_from_a_label(label: Any, right: bool) -> None:
    step = Step(content="x", label={"correctness": label})
    assert (score_of(CosineLengthScalingReward(correctness="label"), step) > 0) is right


@pytest.mark.parametrize(
    ("settings", "answer", "reference", "reason"),
    [
        ({}, "42", None, "no_reference"),
        ({"correctness": "number"}, "42", "none", "no_reference"),
        ({"correctness": "math"}, "42", "it depends", "no_gold"),
        ({"correctness": "label"}, "42", "42", "no_label"),
    ],
)
def test_cosine_unscored(settings: dict[str, Any], answer: str, reference: str | None, reason: str) -> None:
    assert unscored(CosineLengthScalingReward(**settings), answer, reference) == reason


def test_cosine_exceeding_answers() -> None:
    reward = CosineLengthScalingReward(max_length=5, exceed_value=-1.0)
    assert score_of(reward, "12345", "12345") == -1.0
    assert score_of(reward, "1234", "1234") > 0.5


@pytest.mark.parametrize(
    "wrong", [{"min_value_correct": 1.0, "max_value_correct": 0.5}, {"min_value_wrong": -2}, {"max_length": 0}]
)
def test_bad_cosine_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        CosineLengthScalingReward(**wrong)


def test_t1_a_wrong_answer_is_worth_more_the_longer_it_is_and_a_right_one_less() -> None:
    """Through the reward, since a swap of two of its fields inverts what a policy is trained to do."""
    reward = CosineLengthScalingReward(
        max_length=100, min_value_wrong=-0.9, max_value_wrong=-0.2, min_value_correct=0.3, max_value_correct=0.8
    )
    thoughts = ["<think>" + "x" * n + "</think>" for n in (0, 30, 200)]
    wrong, right = (
        [
            s
            for s in scores(reward.evaluate(make_sample(*(f"{t}{n}" for t in thoughts), reference="42")))
            if s is not None
        ]
        for n in (41, 42)
    )
    assert wrong == sorted(wrong) and right == sorted(right, reverse=True) and len(wrong + right) == 6
    short = len(f"{thoughts[0]}41") / 100
    share = (1 + math.cos(math.pi * short)) / 2
    assert [wrong[0], wrong[2]] == pytest.approx([-0.2 - 0.7 * share, -0.2])
    assert [right[0], right[2]] == pytest.approx([0.3 + 0.5 * share, 0.3])
