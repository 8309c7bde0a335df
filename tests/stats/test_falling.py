"""The test for falls keeps what it won, and takes scores that share the trait of their step for one."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from benchmarks.watched_falls import falling, found
from rm_gallery.core.stats.falling import FallTest


def seen(rates: list[float], icc: float = 0.0, seed: int = 0, size: int = 51) -> FallTest:
    """A test that has seen steps of so many scores."""
    rng, test, odds = np.random.default_rng(seed), FallTest(first=10), (1 - icc) / (icc or 1.0)
    for rate in rates:
        chance = rng.beta(rate * odds, (1 - rate) * odds) if icc else rate
        test.add(rng.binomial(1, chance, size).astype(float).tolist())
    return test


def test_what_was_won_against_a_mean_is_not_lost_as_data_arrive() -> None:
    # 10 or more of 12: one in 50 fails where 95 % are found, or passes where half are
    assert len(found(falling(0.5, 0.35), 51, 12, 5)) >= 10


def test_scores_of_one_step_with_a_common_trait_are_no_fall() -> None:
    # 5 % of 40 are above 5 in one of 70 cases; taken for independent, a quarter alarms
    assert len(found([0.9] * 80, 51, 40, 1, 0.05)) <= 5


@pytest.mark.long("many runs of training")
def test_falls_are_found_and_flat_runs_left_alone() -> None:
    assert len(found(falling(0.5, 0.35), 51, 30, 2)) >= 28
    # 3 of 2,000 are promised: above 1 of 100 in one of 100 cases
    assert len(found([0.5] * 80, 51, 100, 3)) <= 1
    # 5 % of 100 are above 10 in one of 90 cases
    assert len(found([0.5] * 80, 51, 100, 4, 0.05)) <= 10


def test_the_correlation_within_steps_is_measured() -> None:
    alike = seen([0.5] * 80, icc=0.05)
    assert alike.correlated and 0.025 < alike.correlation < 0.1
    assert seen([0.5] * 80, icc=0.3, size=6).correlated
    assert math.isnan(FallTest().correlation) and math.isnan(seen([0.5] * 9, size=1).correlation)
    lone = FallTest()
    for score in (0.0, 0.0, 0.0):
        lone.add([score] * 4)
    assert math.isnan(lone.correlation) and not lone.correlated
    for step in range(6):
        lone.add([step % 2.0] * 4)
    assert lone.correlation > 0.9
    assert FallTest.from_dict(lone.to_dict()).correlated


@pytest.mark.parametrize(
    "rates",
    [[0.5] * 60, np.linspace(0.2, 0.8, 60).tolist(), [0.6] * 20 + [0.2] * 40, [0.05] * 60],
    ids=["flat", "rising", "one sudden fall", "rare"],
)
def test_neither_chance_nor_a_moving_mean_is_a_correlation(rates: list[float]) -> None:
    assert sum(seen(rates, seed=seed).correlated for seed in range(20)) <= 4


def test_a_state_goes_on_where_it_was() -> None:
    test = seen([0.5] * 23, icc=0.1)
    again = FallTest.from_dict(json.loads(json.dumps(test.to_dict())))
    for scores in ([0.0, 1.0, 0.0], [0.0], [0.0, 0.0]):
        assert test.add(scores) == again.add(scores)
    assert test.to_dict() == again.to_dict() and test.correlation == again.correlation


def test_the_lowest_fall_that_a_baseline_can_tell_is_known() -> None:
    assert math.isnan(FallTest().visible(0.05)) and math.isnan(seen([0.5] * 10).visible(0.05))
    few, many = (seen([0.5] * 11, size=size).visible(0.05) for size in (6, 51))
    assert 0.1 < few < 0.3 < many < 0.48
    # 5 % of 60 scores are three: not even a fall to none is told
    assert seen([0.05] * 11, size=6).visible(0.05) == 0.0
    # a lasting fall to below it is told, whatever was lost meanwhile
    assert seen([0.5] * 11 + [many - 0.03] * 400).p_value <= 0.05
