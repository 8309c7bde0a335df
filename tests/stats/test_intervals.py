"""What a guesser scores is that of the binomial distribution and of counting every outcome."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from rm_gallery.core.stats.intervals import (
    Interval,
    chance_interval,
    chance_interval_of_means,
)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
@pytest.mark.parametrize(
    ("p", "n"), [(0.5, 1), (0.5, 10), (0.25, 96), (0.25, 1160), (0.5, 14543), (1 / 3, 3786)]
)
def test_equal_probabilities_equal_the_binomial(p: float, n: int, level: float) -> None:
    tail = (1 - level) / 2
    expected = binom.ppf(tail, n, p) / n, binom.ppf(1 - tail, n, p) / n
    assert chance_interval([p] * n, level) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.9, 1.0]), min_size=1, max_size=9))
def test_mixed_probabilities_equal_enumeration(probabilities: list[float]) -> None:
    n = len(probabilities)
    masses = [0.0] * (n + 1)
    for outcome in itertools.product((0, 1), repeat=n):
        masses[sum(outcome)] += math.prod(
            p if hit else 1 - p for p, hit in zip(probabilities, outcome, strict=True)
        )
    sums = list(itertools.accumulate(masses))
    if all(abs(total - end) > 1e-9 for total in sums for end in (0.025, 0.975)):
        low = next(k for k, total in enumerate(sums) if total > 0.025)
        high = next(k for k, total in enumerate(sums) if total >= 0.975)
        assert chance_interval(probabilities) == Interval(low / n, high / n)


def test_many_probabilities_meet_the_normal_limit_and_a_million_samples_stay_exact() -> None:
    spread = [0.4 + 0.2 * i / 3000 for i in range(3000)]
    deviation = math.sqrt(math.fsum(p * (1 - p) for p in spread))
    low, high = (
        math.floor(1499.9 - 1.959964 * deviation) / 3000,
        math.ceil(1499.9 + 1.959964 * deviation) / 3000,
    )
    assert chance_interval(spread) == pytest.approx((low, high), abs=1e-12)
    interval = chance_interval(
        itertools.chain(itertools.repeat(0.5, 500_000), itertools.repeat(0.25, 500_000))
    )
    deviation = math.sqrt(500_000 * (0.25 + 0.1875)) / 1_000_000
    assert interval == pytest.approx((0.375 - 1.96 * deviation, 0.375 + 1.96 * deviation), abs=3e-6)


def test_a_mean_of_subsets_has_the_spread_of_its_smallest_ones() -> None:
    # half the weight on 25 fair coins: sqrt(0.25/25 + 0.25/100000) / 2 = 0.05
    interval = chance_interval_of_means([[0.5] * 25, [0.5] * 100_000])
    assert interval == pytest.approx((0.5 - 1.96 * 0.05, 0.5 + 1.96 * 0.05), abs=0.01)
    assert interval == chance_interval_of_means([[0.5] * 25, [0.5] * 100_000])
    mixed = [0.25] * 300 + [0.5] * 200
    assert chance_interval_of_means([mixed]) == pytest.approx(chance_interval(mixed), abs=0.004)
    narrow, wide = chance_interval_of_means([mixed], 0.8), chance_interval_of_means([mixed], 0.99)
    assert narrow == pytest.approx(chance_interval(mixed, 0.8), abs=0.004) != wide
