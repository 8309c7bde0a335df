from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from rm_gallery.core.stats.resampling import (
    bootstrapped,
    draws_interval,
    mean_draws,
    named_generator,
)


@pytest.mark.parametrize(("value", "low", "high"), [(1.0, 0.97, 1.0), (0.0, 0.0, 0.03), (0.25, 0.16, 0.35)])
def test_outcomes_all_alike_are_not_taken_as_certain(value: float, low: float, high: float) -> None:
    interval = draws_interval(mean_draws({value: 100}, named_generator(0, "x")))
    assert interval is not None
    assert low < interval.low < interval.high <= high


def test_stream_depends_on_seed_and_name_only() -> None:
    counts = {0.0: 5, 1.0: 7}
    first = mean_draws(counts, named_generator(1, "Math"))
    assert np.array_equal(first, mean_draws({1.0: 7, 0.0: 5}, named_generator(1, "Math")))
    assert not np.array_equal(first, mean_draws(counts, named_generator(1, "Focus")))
    assert not np.array_equal(first, mean_draws(counts, named_generator(2, "Math")))
    assert np.array_equal(first, mean_draws(counts, named_generator(1 + 2**32, "Math")))


def test_undefined_draws_are_left_out() -> None:
    assert draws_interval(np.array([np.nan, 0.5, 0.5])) == (0.5, 0.5)
    assert draws_interval(np.array([np.nan])) is None


def _median_of_three(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """A figure that is no mean: the middle of three shares."""
    return np.median(sums[:, :3] / sums[:, 3:], axis=1)


def test_any_figure_of_column_sums_has_an_interval_over_clusters() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([(rng.random((400, 3)) < (0.3, 0.5, 0.7)).astype(float), np.ones(400)])
    alone = bootstrapped(rows, _median_of_three)
    assert alone is not None and alone.estimate == np.median(rows[:, :3].mean(axis=0))
    # near enough the standard error of the middle share
    assert alone.standard_error == pytest.approx(0.025, rel=0.15)
    copies = bootstrapped(np.repeat(rows, 4, axis=0), _median_of_three, clusters=np.repeat(np.arange(400), 4))
    assert copies is not None and copies.standard_error == pytest.approx(alone.standard_error, rel=0.1)
    again = bootstrapped(sparse.csr_array(rows), _median_of_three)
    assert again is not None and again.interval() == alone.interval()
    other = bootstrapped(rows, _median_of_three, seed=1)
    assert other is not None and other.interval() != alone.interval()


def test_a_figure_that_is_undefined_or_of_nothing_is_none() -> None:
    assert bootstrapped(np.zeros((0, 4)), _median_of_three) is None
    assert bootstrapped(np.zeros((3, 1)), lambda sums: np.full(len(sums), np.nan)) is None
    certain = bootstrapped(np.ones((20, 4)), _median_of_three)
    assert certain is not None and certain.interval().low < 0.9, "draws that are all alike say nothing"
