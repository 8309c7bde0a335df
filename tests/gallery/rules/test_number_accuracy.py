"""Numbers are compared by value, wherever they stand."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.text.numbers import find_numbers
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.general.number_accuracy import Mode, NumberAccuracyReward
from tests.gallery.rules.support import score_of, unscored


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        pytest.param("1,000", "1000", 1.0, id="thousands_separator"),
        pytest.param("3 4 5 1", "1", 1.0, id="numbers_before_the_answer"),
        pytest.param("In 2024 it was 42", "42", 1.0, id="a_year_before_the_answer"),
        pytest.param("1e5", "100000", 1.0, id="exponent"),
        pytest.param("50%", "0.5", 1.0, id="percent_as_share"),
        pytest.param("50%", "50", 1.0, id="percent_as_figure"),
        pytest.param(".5", "0.5", 1.0, id="no_leading_zero"),
        pytest.param("3-5", "3 5", 1.0, id="hyphen_is_no_minus"),
        ("-5", "5", 0.0),
        ("1 2 3", "1 2 3", 1.0),
        pytest.param("3 2 1", "1 2 3", 1 / 3, id="order_counts"),
        ("1 2", "1 2 3 4", 0.5),
        ("none", "1", 0.0),
        ("", "1", 0.0),
        ("0.30000001", "0.3", 1.0),
        ("0.31", "0.3", 0.0),
        ("1000000.5", "1000000", 1.0),
        ("共１２３个", "123", 1.0),
        ("3万", "30000", 1.0),
        ("a\r\n7\r\n", "7", 1.0),
        ("9" * 5000, "9", 0.0),
    ],
)
def test_values(answer: str, reference: str, expected: float) -> None:
    assert score_of(NumberAccuracyReward(), answer, reference) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("mode", "answer", "reference", "expected"),
    [
        ("any_order", "3 2 1", "1 2 3", 1.0),
        ("any_order", "1 1 1", "1 2", 0.5),
        ("final", "so it is 42", "42", 1.0),
        pytest.param("final", "1 2 3 4 5 6", "3", 0.0, id="a_list_of_all_numbers_does_not_win"),
        pytest.param("ordered", "1 2 3 4 5 6", "3", 1.0, id="unless_the_mode_lets_it"),
        ("final", "7 3 5", "3 5", 1.0),
        ("final", "5", "3 5", 0.5),
        ("final", "", "3 5", 0.0),
    ],
)
def test_modes(mode: Mode, answer: str, reference: str, expected: float) -> None:
    assert score_of(NumberAccuracyReward(mode=mode), answer, reference) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("6.6e-34", "1.6e-19", 0.0),
        ("99999999999999999999", "99999999999999999998", 0.0),
        ("1.6e-19", "1.6e-19", 1.0),
        ("1000001", "1000000", 0.0),
        ("0.00001", "0.000011", 0.0),
        ("1e-9", "0", 0.0),
        ("<thinking>41</thinking>42", "41", 0.0),
    ],
)
def test_a7_a8_small_and_whole_numbers(answer: str, reference: str, expected: float) -> None:
    assert score_of(NumberAccuracyReward(), answer, reference) == expected


def test_tolerance() -> None:
    assert score_of(NumberAccuracyReward(tolerance=0.01), "3.14", "3.1416") == 1.0
    assert score_of(NumberAccuracyReward(tolerance=0), "3.14", "3.1416") == 0.0


@pytest.mark.parametrize("reference", [None, "", "no number here"])
def test_unscored_without_number(reference: str | None) -> None:
    assert unscored(NumberAccuracyReward(), "42", reference) == "no_reference"


@pytest.mark.parametrize("wrong", [{"tolerance": -1}, {"tolerance": float("nan")}, {"mode": "all"}, {"tol": 1}])
def test_bad_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        NumberAccuracyReward(**wrong)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,234,567.89", [1234567.89]),
        ("1\u202f000 and 2{,}500", [1000, 2500]),
        ("$1,200 and -$5", [1200, -5]),
        ("H2O, v2.1, GPT4", []),
        ("1.2.3", [1.2]),
        ("No.5", [5]),
        ("16 - 3 = 13", [16, 3, 13]),
        ("x=-3", [-3]),
        ("−7", [-7]),
        ("3 × 10^4, 3\\times 10^{-2}", [30000, 0.03]),
        ("2 million", [2e6]),
        ("42.", [42]),
        ("百分之50", [50]),
        ("1，2，3", [1, 2, 3]),
        ("1e999", []),
    ],
)
def test_find_numbers(text: str, values: list[float]) -> None:
    assert [number.value for number in find_numbers(text)] == pytest.approx(values)
