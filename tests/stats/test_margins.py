"""Gaps between better and worse answers, and what best-of-N selection is worth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from rm_gallery.core.stats.margins import best_of_n_curve, expected_best, reward_gaps
from rm_gallery.core.utils.errors import ConfigError


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_expected_best_is_the_mean_over_all_draws(n: int) -> None:
    scores, values = [3.0, 1.0, 3.0, 2.0, 0.5], [1.0, 0.0, 0.0, 1.0, 1.0]
    picked = []
    for draw in itertools.combinations(range(5), n):
        top = max(scores[place] for place in draw)
        tied = [values[place] for place in draw if scores[place] == top]
        picked.append(sum(tied) / len(tied))
    assert expected_best(scores, values, n) == pytest.approx(math.fsum(picked) / len(picked))


def test_expected_best_of_right_answers_is_pass_at_k() -> None:
    """With the truth as the score: 1 - C(wrong, n) / C(all, n)."""
    values = [1.0] * 3 + [0.0] * 17
    for n in (1, 5, 18):
        assert expected_best(values, values, n) == pytest.approx(1 - math.comb(17, n) / math.comb(20, n))
    for n in (0, 21):
        with pytest.raises(ConfigError):
            expected_best(values, values, n)


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


def test_all_points_rest_on_the_same_prompts() -> None:
    curve = best_of_n_curve([[1, 2, 3], [1, 2]], [[0, 1, 1], [0, 1]], ns=[1, 3])
    assert [point.n_prompts for point in curve] == [1, 1]
    assert [point.value for point in curve] == pytest.approx([2 / 3, 1.0])
    assert best_of_n_curve([[1, 2], [1, 2]], [[0, 1], [0, 1]])[-1].value == 1.0
    assert best_of_n_curve([], []) == [] and best_of_n_curve([[1.0]], [[1.0]], ns=[2]) == []


@pytest.mark.parametrize(
    ("scores", "values", "ns"), [([[1.0]], [], None), ([[1.0]], [[math.nan]], None), ([[1.0]], [[1.0]], [0])]
)
def test_curves_of_what_does_not_fit_are_refused(
    scores: list[list[float]], values: list[list[float]], ns: list[int] | None
) -> None:
    with pytest.raises(ConfigError):
        best_of_n_curve(scores, values, ns)


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


def test_gaps_at_the_edge() -> None:
    assert reward_gaps([], []) is None
    same = reward_gaps([1.0] * 20, [1.0] * 20)
    assert same is not None and (same.mean, same.tied, same.effect) == (0.0, 1.0, None)
    assert same.ci95.low < 0.0 < same.ci95.high and same.positive_ci95.high > 0.05
    huge = reward_gaps([1e300, -1e300], [0.0, 0.0])
    assert huge is not None and math.isfinite(huge.ci95.high)
    for chosen, rejected in (([1.0], []), ([math.inf], [0.0]), ([1e308], [-1e308])):
        with pytest.raises(ConfigError):
            reward_gaps(chosen, rejected)
