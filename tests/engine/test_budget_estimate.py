"""An estimate from a probe covers what the rest really takes."""

from __future__ import annotations

import math
import random

import pytest

from rm_gallery.core.engine.calls.estimate import Estimate, Interval
from rm_gallery.core.engine.calls.prices import Usage
from rm_gallery.core.utils.errors import ConfigError


def test_equal_samples_leave_no_doubt() -> None:
    usages = [Usage(input_tokens=100, output_tokens=20, calls=2, cost=0.01)] * 10
    estimate = Estimate.from_probe(usages, [0.5] * 10, 110, concurrency=4)
    assert estimate.samples == 100
    assert estimate.calls == Interval(200, 200, 200)
    assert estimate.input_tokens == Interval(10_000, 10_000, 10_000)
    assert estimate.output_tokens.mean == 2_000
    assert estimate.cost is not None
    assert estimate.cost.mean == pytest.approx(1.0)
    assert estimate.seconds.mean == pytest.approx(100 * 0.5 / 4)


@pytest.mark.parametrize(("n_total", "concurrency", "seconds"), [(12, 100, 0.5), (10, 8, 0.0), (11, 1, 0.5)])
def test_wall_time_is_not_less_than_one_call(n_total: int, concurrency: int, seconds: float) -> None:
    estimate = Estimate.from_probe([Usage(calls=1)] * 10, [0.5] * 10, n_total, concurrency=concurrency)
    assert estimate.seconds.mean == pytest.approx(seconds)


def test_the_interval_covers_the_truth_about_95_times_in_100() -> None:
    rng = random.Random(7)
    covered = 0
    for _ in range(400):
        population = [Usage(input_tokens=int(rng.gauss(1000, 300)), calls=1) for _ in range(60)]
        probe = rng.sample(range(60), 10)
        estimate = Estimate.from_probe([population[i] for i in probe], [1.0] * 10, 60)
        truth = sum(usage.input_tokens for i, usage in enumerate(population) if i not in probe)
        covered += estimate.input_tokens.low <= truth <= estimate.input_tokens.high
    assert 0.92 <= covered / 400 <= 0.98


def test_one_probed_sample_gives_no_upper_bound() -> None:
    estimate = Estimate.from_probe([Usage(calls=1, cost=0.5)], [1.0], 11)
    assert estimate.cost == Interval(5.0, 0.0, math.inf)


@pytest.mark.parametrize(
    ("costs", "mean"),
    [([None, None], None), ([0.5, None], None), ([0.5, 0.7], 6.0)],
    ids=["no prices", "one without a price", "all priced"],
)
def test_cost_needs_a_price_for_every_sample(costs: list[float | None], mean: float | None) -> None:
    estimate = Estimate.from_probe([Usage(calls=1, cost=cost) for cost in costs], [1.0, 1.0], 12)
    assert (None if estimate.cost is None else estimate.cost.mean) == (None if mean is None else pytest.approx(mean))


def test_samples_answered_from_the_cache_cost_nothing() -> None:
    estimate = Estimate.from_probe([Usage(calls=1, cost=1.0), Usage()], [1.0, 0.0], 4)
    assert estimate.cost is not None
    assert estimate.cost.mean == pytest.approx(1.0)
    assert estimate.calls.mean == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("usages", "seconds", "n_total"), [([], [], 5), ([Usage()], [], 5), ([Usage()] * 3, [1.0] * 3, 2)]
)
def test_a_probe_that_does_not_fit_is_refused(usages: list[Usage], seconds: list[float], n_total: int) -> None:
    with pytest.raises(ConfigError, match="one usage and one latency"):
        Estimate.from_probe(usages, seconds, n_total)
