from __future__ import annotations

import math

import pytest

from rm_gallery.core.stats.intervals import mean_interval
from rm_gallery.core.utils.errors import ConfigError


def test_mean_of_one_to_five() -> None:
    # mean 3, s = sqrt(2.5), half width 2.7764451 * sqrt(2.5 / 5) = 1.9632432
    assert mean_interval([1, 2, 3, 4, 5]) == pytest.approx((3 - 1.9632432, 3 + 1.9632432), abs=1e-6)


@pytest.mark.parametrize("values", [[], [0.7]])
def test_one_value_has_no_interval(values: list[float]) -> None:
    assert mean_interval(values) is None


def test_shifting_the_values_shifts_the_interval() -> None:
    near, far = mean_interval([0.1, 0.2, 0.4]), mean_interval([1e9 + 0.1, 1e9 + 0.2, 1e9 + 0.4])
    assert near is not None
    assert far is not None
    assert far.high - far.low == pytest.approx(near.high - near.low, rel=1e-5)


def test_not_finite_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="finite"):
        mean_interval([1.0, math.nan])
