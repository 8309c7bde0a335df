"""Quantities are compared in the reference's unit, within a tolerance."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from rm_gallery.core.text import quantities
from rm_gallery.core.text.quantities import find_quantities, units_of
from rm_gallery.core.utils.errors import ConfigError, MissingExtra
from rm_gallery.gallery.rm.general.tolerance_number import ToleranceNumberMatchReward
from tests.gallery.rules.support import score_of, unscored
from tests.support.shared_data import labelled_cases


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("5 km", "5000 m", 1.0),
        ("It is 5000m long", "5 km", 1.0),
        ("5 kg", "5 km", 0.0),
        ("68 °F", "20 °C", 1.0),
        ("20℃", "293.15 K", 1.0),
        ("20 degrees Celsius", "20 °C", 1.0),
        ("50%", "0.5", 1.0),
        ("50%", "50", 1.0),
        ("50", "50%", 1.0),
        ("0.5", "50%", 1.0),
        ("1 h 30 min", "90 minutes", 1.0),
        ("2小时30分", "150 min", 1.0),
        ("5 ft 3 in", "63 inches", 1.0),
        ("$1,000", "1000 USD", 1.0),
        ("$1,000", "1000 EUR", 0.0),
        ("$2 million", "$2,000,000", 1.0),
        ("$5K", "5000 dollars", 1.0),
        ("60 km/h", "16.6667 m/s", 1.0),
        ("9.81 m/s^2", "9.81 m/s²", 1.0),
        ("3 square feet", "0.27871 m^2", 1.0),
        ("2 kWh", "7.2 MJ", 1.0),
        ("1.5 L", "1500 mL", 1.0),
        ("三公里就是3公里", "3000米", 1.0),
        ("５公斤", "5000 g", 1.0),
        (r"$5\,\text{km}$", "5000 m", 1.0),
        (r"\boxed{20^\circ C}", "20 °C", 1.0),
        ("5 apples", "5 apples", 1.0),
        ("5 oranges", "5 apples", 0.0),
        pytest.param("5", "5 km", 1.0, id="no_unit_is_the_references_unit"),
        pytest.param("First 3 km, then 2 km: the answer is 5 km, or 3.107 miles", "5 km", 1.0, id="announced"),
        pytest.param("2 km and 3 km give 5 km in 10 minutes", "5 km", 1.0, id="last_of_the_kind"),
        pytest.param("There are 5 in total", "5", 1.0, id="in_is_a_word"),
        ("3.1416", "3.1415926", 1.0),
        ("3.2", "3.1415926", 0.0),
        ("-5", "5", 0.0),
        ("-1 1/2", "-1.5", 1.0),
        ("", "5 km", 0.0),
        ("no number\r\n", "5 km", 0.0),
        ("<think>5 km</think>6 km", "5 km", 0.0),
        ("The answer is between 5 km and 7 km.", "5 km", 0.0),
        ("more than 5 km", "5 km", 0.0),
        ("12–15 m", "15 m", 0.0),
        ("12 to 15 m", "15 m", 0.0),
        ("It can't be 15 m.", "15 m", 0.0),
        ("Is it 5 km?", "5 km", 0.0),
        ("negative 15 m", "15 m", 0.0),
        ("12.6 ± 0.1 m", "0.1 m", 0.0),
        ("(12.6 ± 0.1) m", "12.6 m", 1.0),
        ("5 км", "5 m", 0.0),
        ("5 км/ч", "5 km/h", 1.0),
        ("5 кг", "5 g", 0.0),
        ("5 Å", "5 A", 0.0),
        ("5 Stunden", "5 h", 1.0),
        ("3,5 heures", "5 h", 0.0),
        ("3,5 heures", "3.5 h", 1.0),
        ("15 metros por segundo", "15 m", 0.0),
        ("60千米每小时", "60 km/h", 1.0),
        ("3시간 30분", "3.5 h", 1.0),
        ("時速60キロ", "60 km/h", 1.0),
        ("1h30min", "90 min", 1.0),
        ("5 J", "5 Nm", 1.0),
        ("2π rad", "2 rad", 0.0),
        ("1.5·10³", "1500", 1.0),
        ("3:30", "3:31", 0.0),
        ("3:30", "3:30", 1.0),
    ],
)
def test_values(answer: str, reference: str, expected: float) -> None:
    assert score_of(ToleranceNumberMatchReward(), answer, reference) == expected


@pytest.mark.parametrize(
    ("settings", "answer", "reference", "expected"),
    [
        ({"relative_tolerance": 0.02}, "3.2", "3.1415926", 1.0),
        ({"relative_tolerance": 0}, "5000 m", "5 km", 1.0),
        ({"relative_tolerance": 0}, "5000.1 m", "5 km", 0.0),
        ({"relative_tolerance": 0, "absolute_tolerance": 0.1}, "5.05 km", "5 km", 1.0),
        ({"relative_tolerance": 0, "absolute_tolerance": 0.1}, "5200 m", "5 km", 0.0),
        ({"absolute_tolerance": 0.5}, "0.4", "0", 1.0),
        ({"require_unit": True}, "5", "5 km", 0.0),
        ({"require_unit": True}, "5", "5", 1.0),
    ],
)
def test_settings(settings: dict[str, Any], answer: str, reference: str, expected: float) -> None:
    assert score_of(ToleranceNumberMatchReward(**settings), answer, reference) == expected


def test_several_references() -> None:
    assert score_of(ToleranceNumberMatchReward(), "7 km", ["5 km", "7 km"]) == 1.0


@pytest.mark.parametrize("reference", [None, "", "many"])
def test_unscored(reference: str | None) -> None:
    assert unscored(ToleranceNumberMatchReward(), "5 km", reference) == "no_reference"


@pytest.mark.parametrize("wrong", [{"relative_tolerance": -0.1}, {"absolute_tolerance": float("inf")}])
def test_bad_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ToleranceNumberMatchReward(**wrong)


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        ("km", 1000.0),
        ("kilometers", 1000.0),
        ("Mg", 1000.0),
        ("mg", 1e-6),
        ("µs", 1e-6),
        ("m/s", 1.0),
        ("平方千米", 1e6),
    ]
    + [
        ("miles per hour", 0.44704),
        ("cubic meters", 1.0),
        ("N·m", 1.0),
        ("m s⁻²", 1.0),
        ("mA", 1e-3),
        ("GiB", 8 * 2.0**30),
    ],
)
def test_units(text: str, factor: float) -> None:
    assert units_of(text)[0].factor == pytest.approx(factor)


@pytest.mark.parametrize("text", ["", "apples", "m/apples", "km2km", "as", "points", "cats", "the", "x" * 100])
def test_no_units(text: str) -> None:
    assert units_of(text) == ()


def test_parts_of_one_quantity_must_stand_together() -> None:
    assert [q.value for q in find_quantities("5 km and 3 m")] == [5.0, 3.0]
    assert [q.value for q in find_quantities("5 km 300 m")] == [5.3]
    assert [q.value for q in find_quantities("5 m 3 s")] == [5.0, 3.0]


_A2 = r"""
5 V | 5 mV | 0
5 V | 5000 mV | 1
5 mA | 5 A | 0
1 GB | 1 MB | 0
1 GB | 1000 MB | 1
1 GB | 1024 MB | 1
1 GiB | 1 GB | 0
100 Mbps | 12.5 MB/s | 1
5 bar | 5 Pa | 0
5 eV | 5 J | 0
10 mol | 10 m | 0
10 apples | 10 m | 0
10 m | 10 apples | 0
5 red apples | 5 apples | 1
5 oranges | 5 apples | 0
5 min | 5 m | 0
10 mg | 10 Mg | 0
3/4 | 3/4 | 1
3 | 3/4 | 0
\frac{3}{4} | 0.75 | 1
1 1/2 hours | 90 min | 1
9.8 m s^-2 | 9.8 m/s² | 1
5 J/(kg·K) | 5 J/kg/K | 1
\boxed{5\ \mathrm{m\,s^{-1}}} | 5 m/s | 1
20 C | 20 °C | 1
180 degrees | 3.14159 rad | 1
2 tons | 2000 kg | 1
5 pounds | £5 | 1
5 pounds | 5 lb | 1
5 V or 6 V | 6 V | 0
The answer is 5 km, not 6 km. | 6 km | 0
The answer is not 6 km. | 6 km | 0
<answer>5 km</answer> | 5000 m | 1
v = 10 m / 2 s = 5 m/s | 5 m/s | 1
2024-05-01 | 2024-05-01 | 1
The answer is 2024-06-01. | 2024-05-01 | 0
6.6e-34 | 1.6e-19 | 0
1 000 m | 1 km | 1
""".strip().splitlines()


@pytest.mark.parametrize("case", _A2)
def test_a2_units_of_pint(case: str) -> None:
    answer, reference, expected = (part.strip() for part in case.split(" | "))
    assert score_of(ToleranceNumberMatchReward(), answer, reference) == float(expected)


def test_a2_without_pint_plain_numbers_work_and_units_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pint", None)
    quantities.forget_units()
    try:
        for answer, reference in [("The answer is 18 eggs.", "18"), ("50%", "0.5"), ("$1,000", "1000 USD")]:
            assert score_of(ToleranceNumberMatchReward(), answer, reference) == 1.0
        with pytest.raises(MissingExtra, match="pint"):
            score_of(ToleranceNumberMatchReward(), "5 km", "5000 m")
    finally:
        quantities.forget_units()


def test_a2_labelled_cases() -> None:
    rows = labelled_cases("quantities")
    reward = ToleranceNumberMatchReward()
    assert [row for row in rows if score_of(reward, row["answer"], row["reference"]) != row["expected"]] == []


@pytest.mark.parametrize(
    "answer",
    [
        "1e308 km",
        "-1e308 km",
        "1e308 Tm",
        "$1e308 B",
        "5 cubic Qm^4",
        "5 cubic quettameter^4",
        "7 m/cubic qm^4",
        "7 m·cubic Qm^3·cubic Qm^3",
    ],
)
@pytest.mark.parametrize("reference", ["5 m", "5 kg", "50%", "5 USD", "20 °C", "8"])
def test_what_leaves_the_range_of_numbers_is_wrong(answer: str, reference: str) -> None:
    assert score_of(ToleranceNumberMatchReward(), answer, reference) == 0.0
