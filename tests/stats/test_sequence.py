"""Confidence sequences and sequential tests: published figures, and errors over all looks together
in simulation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rm_gallery.core.stats.significance import ConfidenceSequence, SequentialTest

HUNDRED = [float(c) for c in "1110111101"] * 10
PAIRED = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, -1.0, 1.0, 0.0, 1.0] * 20


def sequence(values: list[float], **options: Any) -> ConfidenceSequence:
    made = ConfidenceSequence(**options)
    for value in values:
        made.add(value)
        assert made.interval.low <= made.interval.high
    return made


def test_published_empirical_bernstein() -> None:
    assert sequence(HUNDRED, method="empirical bernstein").interval == pytest.approx(
        (0.660621, 0.941589), abs=6e-7
    )
    paired = sequence(PAIRED, method="empirical bernstein", bounds=(-1, 1))
    assert paired.interval == pytest.approx((0.234196, 0.563536), abs=6e-7)


def test_capital_is_that_of_the_formula() -> None:
    values, null = [1.0, 0.5, 0.25, 1.0, 0.0, 0.75], 0.4
    test = SequentialTest(null)
    shares = np.array([0.002 * 1.36**k for k in range(20)])
    parts = shares / (shares + 0.03) / (shares / (shares + 0.03)).sum()
    best = 1.0
    above, below = np.ones(20), np.ones(20)
    for x in values:
        above *= 1 - shares + shares * x / null
        below *= 1 - shares + shares * (1 - x) / (1 - null)
        best = max(best, float(parts @ (above + below)) / 2)
        assert test.add(x) == pytest.approx(1 / best)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0), (1.0, 5.0)])
@pytest.mark.parametrize("fine", [False, True])
def test_the_interval_leaves_out_what_the_test_refutes(
    bounds: tuple[float, float], fine: bool
) -> None:
    rng = np.random.default_rng(0)
    low, high = bounds
    values = rng.random(300) if fine else rng.choice([0.0, 0.5, 1.0], 300, p=[0.2, 0.2, 0.6])
    interval = sequence(list(low + (high - low) * values), bounds=bounds).interval
    for end in interval:
        for move, refuted in ((-0.001, end == interval.low), (0.001, end == interval.high)):
            test = SequentialTest(end + move * (high - low), bounds)
            for value in values:
                test.add(low + (high - low) * value)
            assert (test.p_value <= 0.05) is refuted


def test_more_values_than_are_kept_apart_lose_little(monkeypatch: pytest.MonkeyPatch) -> None:
    values, made, exact = (
        np.random.default_rng(1).beta(4, 2, 1500),
        ConfidenceSequence(),
        ConfidenceSequence(),
    )
    made.extend(values)
    assert made.interval.high - made.interval.low < 4.4 * 1.96 * float(np.std(values)) / math.sqrt(
        1500
    )
    monkeypatch.setattr("rm_gallery.core.stats.significance._MOST_VALUES", 10_000)
    exact.extend(values)
    assert made.interval.low < exact.interval.low and exact.interval.high < made.interval.high, (
        "rounded away from it"
    )


def stops(p_win: float, p_tie: float, looks: int, streams: int, seed: int) -> list[int | None]:
    """At which look each simulated comparison is decided against 1/2; None where it never is."""
    rng = np.random.default_rng(seed)
    found: list[int | None] = []
    for _ in range(streams):
        test = SequentialTest(0.5)
        results = rng.choice([1.0, 0.5, 0.0], looks, p=[p_win, p_tie, 1 - p_win - p_tie])
        found.append(next((i for i, x in enumerate(results, 1) if test.add(x) <= 0.05), None))
    return found


@pytest.mark.long("coverage by simulation")
def test_equal_systems_are_rarely_told_apart_at_any_look() -> None:
    decided = stops(0.5, 0.0, 200, 250, seed=2) + stops(0.35, 0.3, 200, 250, seed=12)
    assert sum(look is not None for look in decided) / 500 <= 0.05


def test_fewer_looks_decide_no_more_and_an_interval_never_widens() -> None:
    one, many = ConfidenceSequence(), sequence(HUNDRED)
    one.extend(HUNDRED)
    assert one.interval.low <= many.interval.low and one.interval.high >= many.interval.high
    made = ConfidenceSequence(bounds=(1, 5))
    widths = []
    for value in [5, 5, 5, 4, 1, 5, 5, 1, 1, 1, 1, 1, 2] * 8:
        made.add(value)
        widths.append(made.interval.high - made.interval.low)
    assert widths == sorted(widths, reverse=True) and made.mean == pytest.approx(37 / 13)


@pytest.mark.parametrize("p", [0.5, 0.97])
def test_coverage_over_all_looks(p: float) -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(60):
        made = ConfidenceSequence()
        for x in (rng.random(150) < p) * 1.0:
            made.add(x)
        held += made.interval.covers(p)  # the intersection of all looks
    assert held >= 57
