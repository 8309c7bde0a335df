"""Drift of a judge: worked figures, silence about chance flips, and sight of real changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rm_gallery.core.stats.drift import drift
from rm_gallery.core.stats.position import sign_test
from rm_gallery.core.utils.errors import ConfigError

OLD = [float(c) for c in "1100110110"] * 5
NEW = [float(c) for c in "1110100111"] * 5
GOLD = [float(c) for c in "1100110010"] * 5


def test_worked_example() -> None:
    found = drift(OLD, NEW, labels=GOLD)
    assert found.agreement is not None
    assert (found.agreement.old, found.agreement.new) == pytest.approx((0.9, 0.6))
    assert found.agreement.change == pytest.approx(-0.3)
    # the published Wald interval is [-0.427020, -0.172980]; with 15 changes one way, ours leans to the far side
    assert found.agreement.ci95 == pytest.approx((-0.45, -0.16), abs=0.03)
    assert found.agreement.p_value < 0.001
    assert sign_test(15, 0, mid=True) == pytest.approx(0.0000305176, abs=6e-11)
    assert found.flip_rate == pytest.approx(0.3)
    assert found.flip_ci95 == pytest.approx((0.178618, 0.446082), abs=0.015)  # published: Clopper and Pearson
    assert found.noise is None and found.excess_p is None
    assert any("agreement with the labels went from 0.9 to 0.6" in finding for finding in found.findings)
    assert any("Run one version twice" in note for note in found.notes)


def test_distance_beyond_noise_and_agreement_are_what_they_say() -> None:
    alternating = drift([0.0] * 9, [0.0] * 9, old_again=[[1.0] * 9], new_again=[[1.0] * 9], n_draws=100)
    # between the versions half of the pairs differ, within either version all of them
    assert (alternating.excess, alternating.noise) == (-0.5, 1.0)
    graded = drift([5, 5, 1], [3, 5, 1], labels=[5, 5, 1], bounds=(1, 5))
    assert graded.agreement is not None
    assert (graded.agreement.old, graded.agreement.new) == pytest.approx((1.0, 5 / 6)), (
        "two of four steps off, once in three"
    )


def runs(
    rng: np.random.Generator, p_old: NDArray[np.float64], p_new: NDArray[np.float64], n_old: int, n_new: int
) -> dict[str, Any]:
    olds = [(rng.random(len(p_old)) < p_old) * 1.0 for _ in range(n_old)]
    news = [(rng.random(len(p_new)) < p_new) * 1.0 for _ in range(n_new)]
    return {"old": olds[0], "new": news[0], "old_again": olds[1:], "new_again": news[1:], "n_draws": 400}


@pytest.mark.parametrize(("n_old", "n_new"), [(2, 1), (2, 2), (1, 3)])
def test_chance_flips_are_no_drift(n_old: int, n_new: int) -> None:
    rng = np.random.default_rng(n_old)
    alarms = 0
    for _ in range(200):
        p = rng.beta(0.3, 0.2, 150)  # most anchors are clear, some are a coin toss
        found = drift(**runs(rng, p, p, n_old, n_new), seed=int(rng.integers(1 << 30)))
        assert found.flip_rate > 0.0
        alarms += bool(found.findings)
    assert alarms / 200 <= 0.08


def test_one_flip_in_ten_thousand_is_no_drift() -> None:
    old = np.tile([1.0, 0.0], 5000)
    new = old.copy()
    new[0] = 0.0
    assert drift(old, new).findings == ()
    assert drift(old, new, old_again=[old]).findings == ()


def test_verdicts_that_swap_without_moving_the_mean_are_found_with_repeats() -> None:
    rng = np.random.default_rng(3)
    p = np.where(np.arange(300) % 2 == 0, 0.95, 0.05)
    moved = p.copy()
    moved[:30] = 1 - moved[:30]
    found = drift(**runs(rng, p, moved, 2, 1))
    assert found.excess_p is not None and found.excess_p < 0.01
    assert found.noise == pytest.approx(0.095, abs=0.05)
    assert found.noise is not None and found.flip_rate > found.noise
    assert len(found.findings) == 1 and "more than repeats" in found.findings[0]


def test_a_shift_of_graded_scores_is_found_at_its_size() -> None:
    rng = np.random.default_rng(4)
    true = rng.uniform(2, 4, 200)
    old, again, new = (np.clip(true + 0.2 * rng.standard_normal(200) + s, 1, 5) for s in (0, 0, 0.1))
    found = drift(old, new, old_again=[again], bounds=(1, 5), tolerance=0.5)
    assert found.shift.change == pytest.approx(0.1, abs=0.05)
    assert found.shift.ci95.low > 0
    assert "the mean score went from" in found.findings[0]
    assert found.flip_rate < 0.3


def test_clusters_widen_the_interval() -> None:
    rng = np.random.default_rng(5)
    old = rng.random(200)
    new = np.clip(old + np.repeat(rng.normal(0, 0.2, 20), 10), 0, 1)
    rows, prompts = drift(old, new), drift(old, new, clusters=np.repeat(np.arange(20), 10).tolist())
    assert prompts.shift.ci95.high - prompts.shift.ci95.low > 2 * (rows.shift.ci95.high - rows.shift.ci95.low)


def test_missing_anchors_are_counted() -> None:
    found = drift([1, None, 0, 1, 1], [1, 1, 0, None, 1], labels=[1, 1, None, 1, None])
    assert (found.n, found.n_missing, found.flip_rate, found.agreement) == (3, 2, 0.0, None)
    assert "2 of 5 anchors were not scored by both" in found.notes[0]
    assert "fewer than 2 anchors have a label" in found.notes[-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"new": [1.0]}, "one entry per anchor"),
        ({"labels": [1.0]}, "one entry per anchor"),
        ({"old": [None, None, 1.0], "new": [1.0, 1.0, 1.0]}, "1 anchors in common"),
        ({"tolerance": -1}, "tolerance is at least 0"),
        ({"old": [3.0, 1.0, 1.0]}, "a score is 3, outside the bounds 0..1"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        drift(**{"old": [1.0, 0.0, 1.0], "new": [1.0, 0.0, 0.0], **change})
