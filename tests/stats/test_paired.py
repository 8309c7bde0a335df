"""Differences of two judges on the same samples: what they equal, that they hold, several tests at
once, and which place they favour.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from rm_gallery.core.stats import significance
from rm_gallery.core.stats.planning import plan_difference

reference: Any = import_module("statsmodels.stats.contingency_tables").mcnemar
multipletests: Any = import_module("statsmodels.stats.multitest").multipletests


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 30))
def test_mcnemar_is_that_of_statsmodels(only_first: int, only_second: int, both: int) -> None:
    first = [True] * only_first + [False] * only_second + [True] * both
    second = [False] * only_first + [True] * only_second + [True] * both
    found = significance.mcnemar(first, second)
    assert found[:2] == (only_first, only_second) and found.n == len(first)
    assert found.p_exact == pytest.approx(
        reference([[both, only_first], [only_second, 0]], exact=True).pvalue
    )
    half = float(binom.pmf(only_first, only_first + only_second, 0.5))
    assert found.p_value == pytest.approx(
        1.0 if only_first == only_second else found.p_exact - half
    )


@pytest.mark.long("coverage by simulation")
def test_pairs_needed_is_the_plan_and_what_a_difference_like_this_one_takes() -> None:
    assert (
        significance.pairs_needed(0.03, 0.2)
        == plan_difference(effect=0.03, discordance=0.2).n
        == 1742
    )
    rng, needed = np.random.default_rng(0), significance.pairs_needed(0.06, 0.18)

    def found(n: int) -> tuple[float, int]:
        outcome = rng.choice(3, size=n, p=(0.12, 0.06, 0.82))
        result = significance.paired_difference(
            (outcome != 1).astype(float), (outcome != 0).astype(float)
        )
        return result.p_value or 0.0, result.needed or 0

    assert found(100_000)[1] == pytest.approx(needed, rel=0.08)
    assert np.mean([found(needed)[0] < 0.05 for _ in range(300)]) == pytest.approx(0.8, abs=0.07)


@pytest.mark.long("coverage by simulation")
@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_several_tests_are_corrected_as_elsewhere(n: int) -> None:
    p = (np.random.default_rng(n).random(n) ** 3).tolist()
    assert significance.holm(p) == pytest.approx(multipletests(p, method="holm")[1])


@pytest.mark.long("coverage by simulation")
@pytest.mark.parametrize(("per_prompt", "shared"), [(1, 0.0), (4, 0.5)])
def test_the_difference_is_covered_and_false_alarms_are_as_rare_as_said(
    per_prompt: int, shared: float
) -> None:
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
        found = significance.paired_mean(a, b, clusters=clusters)
        assert found is not None
        ends, p = found.interval(), found.p_value(0.0)
        assert ends is not None and p is not None and (p < 0.05) == (not ends.covers(0.0))
        inside += ends.covers(0.0)
    assert 0.93 <= inside / repeats <= 0.97


@given(st.integers(0, 80), st.integers(0, 80))
def test_the_sign_test_is_the_binomial_one(more: int, less: int) -> None:
    n = more + less
    assert significance.sign_test(more, less) == pytest.approx(
        binomtest(more, n).pvalue if n else 1.0
    )
    half = binom.pmf(min(more, less), n, 0.5) if n else 0.0
    assert significance.sign_test(more, less, mid=True) == pytest.approx(
        min(1.0, 2 * binom.cdf(min(more, less), n, 0.5) - half) if n else 1.0
    )


def test_a_sign_test_counts_clusters_where_rows_belong_together() -> None:
    """Thirty flips of one prompt once had p = 1.8e-12."""
    signs = [1.0] * 30
    assert significance.sign_test_over(signs, ["a"] * 30) is None
    assert significance.sign_test_over(signs) == significance.sign_test(30, 0)
    few = significance.sign_test_over(signs, ["abc"[k % 3] for k in range(30)])
    assert few is not None and few > 0.05
