"""Rank correlations are scipy's, and their intervals know units from copies of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr

from rm_gallery.core.stats.agreement import kendall_tau_b, spearman
from rm_gallery.core.stats.clustered import ClusteredMean
from rm_gallery.core.stats.correlation import kendall_tau_b_estimate, spearman_estimate

VALUES = st.one_of(st.integers(0, 4), st.floats(-9, 9), st.none())


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=20))
def test_they_are_those_of_scipy_over_what_both_have(pairs: list[tuple[float | None, float | None]]) -> None:
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    for ours, theirs in ((spearman, spearmanr), (kendall_tau_b, kendalltau)):
        found = ours(first, second)
        if len({a for a, _ in known}) < 2 or len({b for _, b in known}) < 2:
            assert found is None
        else:
            assert found == pytest.approx(float(theirs(*zip(*known, strict=True)).statistic), abs=1e-12)


@pytest.mark.parametrize("estimate", [kendall_tau_b_estimate, spearman_estimate])
def test_coverage(estimate: Callable[..., ClusteredMean | None]) -> None:
    rng, r, held = np.random.default_rng(0), 0.6, 0
    truth = 2 / math.pi * math.asin(r) if estimate is kendall_tau_b_estimate else 6 / math.pi * math.asin(r / 2)
    for _ in range(400):
        x, e = rng.standard_normal((2, 80))
        found = estimate(x.tolist(), (r * x + math.sqrt(1 - r * r) * e).tolist())
        held += found is not None and found.interval().covers(truth)
    assert 0.92 <= held / 400 <= 0.98


@pytest.mark.parametrize("estimate", [kendall_tau_b_estimate, spearman_estimate])
def test_the_error_is_that_of_leaving_units_out(estimate: Callable[..., ClusteredMean | None]) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 6, 60).astype(float)
    y = x + rng.integers(-3, 4, 60)
    rule = spearman if estimate is spearman_estimate else kendall_tau_b
    left = [rule(np.delete(x, k).tolist(), np.delete(y, k).tolist()) or 0.0 for k in range(60)]
    found = estimate(x.tolist(), y.tolist())
    assert found is not None and found.standard_error == pytest.approx(math.sqrt(59 * np.var(left)), rel=0.06)


def test_of_many_units_a_part_of_the_pairs_is_looked_at() -> None:
    rng = np.random.default_rng(0)
    x, e = rng.standard_normal((2, 4000))
    found = kendall_tau_b_estimate(x.tolist(), (x + e).tolist())
    assert found is not None and found.estimate == pytest.approx(kendalltau(x, x + e).statistic)
    small = kendall_tau_b_estimate(x[:1000].tolist(), (x + e)[:1000].tolist())
    assert small is not None and found.standard_error == pytest.approx(small.standard_error / 2, rel=0.1)
