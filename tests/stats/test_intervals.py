"""Wilson's interval is scipy's and the mean's is Student's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rm_gallery.core.stats.intervals import Interval, mean_interval, wilson_interval

LEVELS = st.sampled_from([0.5, 0.8, 0.95, 0.99])


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), LEVELS)
def test_wilson_is_scipys(counts: tuple[int, int], level: float) -> None:
    expected = stats.binomtest(*counts).proportion_ci(level, method="wilson")
    found = wilson_interval(*counts, level)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert found.covers(counts[0] / counts[1]), "both ends included, without rounding past all or nothing"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=20), LEVELS)
def test_the_mean_is_students(values: list[int], level: float) -> None:
    if len(set(values)) > 1:
        expected = stats.t.interval(level, len(values) - 1, np.mean(values), stats.sem(values))
        assert mean_interval(values, level) == pytest.approx(expected, abs=1e-9)


def test_fractional_credit_lies_between_whole_ones() -> None:
    assert wilson_interval(2, 10).low < wilson_interval(2.5, 10).low < wilson_interval(3, 10).low
    assert [Interval(0.2, 0.4).covers(value) for value in (0.2, 0.4, 0.3, 0.19, 0.41)] == [
        True,
        True,
        True,
        False,
        False,
    ]
