"""Intervals hold the truth as often as they say where it is hardest: few clusters, rare labels,
raters that never differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.interval_coverage import Setting, coverage, passes, settings
from rm_gallery.core.stats import agreement
from rm_gallery.core.stats.uncertainty import Estimate, clustered_mean

Raters = Callable[[list[int], list[int]], Estimate | None]


@pytest.mark.parametrize(
    "estimate",
    [
        agreement.cohen_kappa_estimate,
        lambda a, b: agreement.cohen_kappa_estimate(a, b, weights="quadratic", categories=[0, 1]),
        lambda a, b: agreement.fleiss_kappa_estimate([a, b]),
        lambda a, b: agreement.krippendorff_alpha_estimate([a, b]),
        lambda a, b: agreement.krippendorff_alpha_estimate([a, b], metric="ordinal"),
        lambda a, b: agreement.krippendorff_alpha_estimate([a, b], metric="interval"),
    ],
)
def test_perfect_agreement_on_a_rare_label_says_less(estimate: Raters) -> None:
    lows = []
    for rare in (2, 5, 50):
        labels = [1] * rare + [0] * (100 - rare)
        found = estimate(labels, labels)
        assert found is not None and found.estimate == pytest.approx(1.0)
        ends = found.interval()
        assert ends is not None and ends.high == pytest.approx(1.0)
        lows.append(ends.low)
    assert lows[0] < lows[1] - 0.05 < lows[2] - 0.15 and lows[1] < 0.88


@pytest.mark.long("coverage by simulation")
def test_surely_lets_few_judges_pass_a_limit_that_is_their_own() -> None:
    assert passes(60, 0.92, 0.98, 0.7, 300) <= 0.03
    assert passes(50, 0.9, 0.97, 0.8, 300) <= 0.03


@pytest.mark.parametrize(
    ("clusters", "icc", "rate"), [(10, 0.6, 0.9), (8, 0.6, 0.85), (7, 0.4, 0.115)]
)
def test_a_share_of_few_clusters_that_are_alike_is_covered(
    clusters: int, icc: float, rate: float
) -> None:
    rng, held, odds = np.random.default_rng(1), 0, (1 - icc) / icc
    names = np.repeat(np.arange(clusters), 10)
    for _ in range(400):
        chance = rng.beta(rate * odds, (1 - rate) * odds, clusters)
        found = clustered_mean((rng.random(len(names)) < chance[names]) * 1.0, names)
        ends = None if found is None else found.interval()
        held += ends is not None and ends.covers(rate)
    assert held / 400 >= 0.92


def test_p_value_and_interval_of_clusters_agree() -> None:
    rng = np.random.default_rng(4)
    names = np.repeat(np.arange(30), 6)
    for _ in range(40):
        chance = rng.beta(3, 2, 30)
        found = clustered_mean((rng.random(len(names)) < chance[names]) * 1.0, names)
        assert found is not None
        p, ends = found.p_value(0.5), found.interval()
        assert p is not None and ends is not None and (p < 0.05) == (not ends.covers(0.5))


@pytest.mark.parametrize(
    "of", [*settings(60)[:2], Setting(12, 8.0, True, 0.5, 0.9, 0.8, 0.95, 0.7)]
)
def test_every_figure_is_covered_in_settings_by_lot(of: Setting) -> None:
    for name, found in coverage(of, 60).items():
        assert found.n < 30 or found.held >= 0.88, name
