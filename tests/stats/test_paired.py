"""Differences of two judges on the same samples: what they equal, that they hold, and several tests at once."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, false_discovery_control

from rm_gallery.core.stats.intervals import wilson_interval
from rm_gallery.core.stats.paired import benjamini_hochberg, holm, mcnemar, paired_difference, paired_mean, pairs_needed
from rm_gallery.core.stats.planning import plan_difference

reference: Any = import_module("statsmodels.stats.contingency_tables").mcnemar
multipletests: Any = import_module("statsmodels.stats.multitest").multipletests


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 30))
def test_mcnemar_is_that_of_statsmodels(only_first: int, only_second: int, both: int) -> None:
    first = [True] * only_first + [False] * only_second + [True] * both
    second = [False] * only_first + [True] * only_second + [True] * both
    found = mcnemar(first, second)
    assert found[:2] == (only_first, only_second) and found.n == len(first)
    assert found.p_exact == pytest.approx(reference([[both, only_first], [only_second, 0]], exact=True).pvalue)
    half = float(binom.pmf(only_first, only_first + only_second, 0.5))
    assert found.p_value == pytest.approx(1.0 if only_first == only_second else found.p_exact - half)


def test_twelve_against_five_of_a_hundred() -> None:
    first, second = [1.0] * 12 + [0.0] * 5 + [1.0] * 83, [0.0] * 12 + [1.0] * 5 + [1.0] * 83
    found = paired_difference(first, second)
    assert found.difference == pytest.approx(0.07)
    assert found.interval == pytest.approx((-0.009638, 0.149638), abs=0.001)  # Wald's limits
    assert found.p_value == pytest.approx(mcnemar([x > 0 for x in first], [x > 0 for x in second]).p_exact)


def test_the_half_width_is_that_of_the_difference() -> None:
    # differences 1, -1, 0, 0: variance 1/2, so 1.96 * sqrt(0.5 / 400)
    found = paired_difference([1.0, 0.0, 0.0, 1.0] * 100, [0.0, 1.0, 0.0, 1.0] * 100)
    assert found.difference == 0.0 and found.needed is None and found.p_value == pytest.approx(1.0)
    assert found.interval == pytest.approx((-0.0693, 0.0693), abs=0.001)
    copies = paired_difference([1.0] * 60 + [0.0] * 40, [0.5] * 100, clusters=[k // 4 for k in range(100)])
    rows = paired_difference([1.0] * 60 + [0.0] * 40, [0.5] * 100)
    assert copies.interval is not None and rows.interval is not None
    widths = [one.high - one.low for one in (copies.interval, rows.interval)]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.05)


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_judges_that_never_differ_are_near_each_other(n: int) -> None:
    # a share of samples above this one would have shown itself; separate intervals would be 5 to 50 times as wide
    unseen = wilson_interval(0, n).high
    for outcomes in ([1.0, 0.0] * (n // 2), [1.0] * n):
        for strata in (None, [k % 5 for k in range(n)]):
            found = paired_difference(outcomes, outcomes, strata=strata)
            assert found.interval == pytest.approx((-unseen, unseen), rel=0.05) and found.p_value == 1.0


def test_pairs_needed_is_the_plan_and_what_a_difference_like_this_one_takes() -> None:
    assert pairs_needed(0.03, 0.2) == plan_difference(effect=0.03, discordance=0.2).n == 1742
    rng, needed = np.random.default_rng(0), pairs_needed(0.06, 0.18)

    def found(n: int) -> tuple[float, int]:
        outcome = rng.choice(3, size=n, p=(0.12, 0.06, 0.82))
        result = paired_difference((outcome != 1).astype(float), (outcome != 0).astype(float))
        return result.p_value or 0.0, result.needed or 0

    assert found(100_000)[1] == pytest.approx(needed, rel=0.08)
    assert np.mean([found(needed)[0] < 0.05 for _ in range(300)]) == pytest.approx(0.8, abs=0.07)


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_several_tests_are_corrected_as_elsewhere(n: int) -> None:
    p = (np.random.default_rng(n).random(n) ** 3).tolist()
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])
    assert benjamini_hochberg(p) == pytest.approx(false_discovery_control(p))


@pytest.mark.parametrize(("per_prompt", "shared"), [(1, 0.0), (4, 0.5)])
def test_the_difference_is_covered_and_false_alarms_are_as_rare_as_said(per_prompt: int, shared: float) -> None:
    """Two judges with one part of their mistakes in common, and prompts that are hard for both."""
    rng, repeats, prompts = np.random.default_rng(1), 1000, 240 // per_prompt
    clusters = np.repeat(np.arange(prompts), per_prompt)
    inside = 0
    for _ in range(repeats):
        chance = 0.75 + shared * np.repeat(rng.uniform(-0.5, 0.5, prompts), per_prompt)
        favour = shared * np.repeat(rng.uniform(-0.3, 0.3, prompts), per_prompt)
        draws = rng.random((3, len(clusters)))
        a = np.where(draws[0] < 0.5, draws[1] < chance, draws[1] < chance + favour).astype(float)
        b = np.where(draws[0] < 0.5, draws[1] < chance, draws[2] < chance - favour).astype(float)
        found = paired_mean(a, b, clusters=clusters)
        assert found is not None
        assert (found.p_value(0.0) < 0.05) == (not found.interval().covers(0.0))
        inside += found.interval().covers(0.0)
    assert 0.93 <= inside / repeats <= 0.97
