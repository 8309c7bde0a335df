"""Gaps between better and worse answers, and what best-of-N selection is worth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from rm_gallery.core.stats.margins import best_of_n_curve, expected_best, reward_gaps


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_expected_best_is_the_mean_over_all_draws(n: int) -> None:
    scores, values = [3.0, 1.0, 3.0, 2.0, 0.5], [1.0, 0.0, 0.0, 1.0, 1.0]
    picked = []
    for draw in itertools.combinations(range(5), n):
        top = max(scores[place] for place in draw)
        tied = [values[place] for place in draw if scores[place] == top]
        picked.append(sum(tied) / len(tied))
    assert expected_best(scores, values, n) == pytest.approx(math.fsum(picked) / len(picked))


def test_the_curve_rises_with_a_good_reward_and_falls_with_a_gamed_one() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(200, 16))
    good = best_of_n_curve((truth + rng.normal(size=truth.shape)).tolist(), truth.tolist())
    assert [point.n for point in good] == [1, 2, 4, 8, 16]
    assert all(a.value < b.value for a, b in itertools.pairwise(good))
    assert all(point.ci95.low < point.value < point.ci95.high and point.value <= point.oracle for point in good)
    # half of the reliability: sqrt(1/2) of the expected maximum of 16
    assert good[-1].value == pytest.approx(1.766 * math.sqrt(0.5), abs=0.12)
    gamed = best_of_n_curve((-truth).tolist(), truth.tolist())
    assert gamed[-1].score > gamed[0].score and gamed[-1].value < gamed[0].value


def test_gaps() -> None:
    rng = np.random.default_rng(0)
    rejected = rng.normal(size=1000)
    chosen = rejected + rng.normal(0.5, 1.0, 1000)
    found = reward_gaps(chosen, rejected)
    assert found is not None
    gaps = chosen - rejected
    assert found.n == 1000 and found.mean == pytest.approx(gaps.mean())
    assert found.ci95 == pytest.approx(
        (gaps.mean() - 1.96 * gaps.std() / 1000**0.5, gaps.mean() + 1.96 * gaps.std() / 1000**0.5), abs=0.003
    )
    assert found.quantiles == pytest.approx(np.quantile(gaps, (0.05, 0.25, 0.5, 0.75, 0.95)))
    assert found.positive == pytest.approx(np.mean(gaps > 0)) and found.effect == pytest.approx(0.5, abs=0.06)
    assert sum(found.counts) == 1000 and len(found.edges) == len(found.counts) + 1
