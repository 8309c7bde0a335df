"""A figure passes or fails by its whole interval, and intervals count what is independent."""

from __future__ import annotations

import numpy as np
import pytest

from rm_gallery.core.stats.intervals import Interval, wilson_interval
from rm_gallery.report.findings import Limit, decide, effective_n, found, net_interval, share_interval, sign_test

LOW, HIGH, BOTH = Limit(0.10, 0.25), Limit(0.70, 0.60, "high"), Limit(0.10, 0.20, "both")


@pytest.mark.parametrize(
    ("limit", "value", "low", "high", "clusters", "verdict"),
    [
        (LOW, 0.0, 0.0, 0.088, 40, "pass"),
        (LOW, 0.0, 0.0, 0.161, 20, "not enough"),
        (LOW, 0.12, 0.05, 0.20, 40, "warn"),
        (LOW, 0.50, 0.24, 0.76, 12, "warn"),
        (LOW, 0.90, 0.60, 0.98, 12, "fail"),
        (LOW, 0.0, 0.0, 0.05, 9, "not enough"),
        (LOW, 1.0, 0.57, 1.0, 5, "fail"),
        (LOW, 1.0, 0.51, 1.0, 4, "not enough"),
        (LOW, None, None, None, 40, "not enough"),
        (HIGH, 1.0, 0.91, 1.0, 40, "pass"),
        (HIGH, 0.75, 0.60, 0.85, 40, "not enough"),
        (HIGH, 0.65, 0.50, 0.78, 40, "warn"),
        (HIGH, 0.40, 0.26, 0.55, 40, "fail"),
        (BOTH, 0.0, -0.088, 0.088, 40, "pass"),
        (BOTH, -0.5, -0.7, -0.25, 40, "fail"),
        (BOTH, -0.15, -0.3, 0.02, 40, "warn"),
        (BOTH, 0.05, -0.1, 0.2, 40, "not enough"),
    ],
)
def test_the_whole_interval_decides(
    limit: Limit, value: float | None, low: float | None, high: float | None, clusters: int, verdict: str
) -> None:
    ci95 = None if low is None or high is None else Interval(low, high)
    assert decide(value, ci95, clusters, limit) == verdict


@pytest.mark.parametrize(
    ("values", "clusters", "n"),
    [
        ([0.0, 1.0, 1.0], "abc", 3),
        ([1.0] * 6, "aabbcc", 3),
        ([1.0, 0.0] * 10, "ab" * 10, 1),
        ([1.0, 0.0] * 10, [i // 2 for i in range(20)], 15),
        ([1.0] * 10 + [0.0] * 10, [i // 2 for i in range(20)], 6),
        ([0.5], "a", 1),
    ],
)
def test_values_of_one_cluster_are_worth_less(values: list[float], clusters: list[int] | str, n: int) -> None:
    assert effective_n(values, list(clusters)) == n


def test_the_worse_kind_of_cluster_counts() -> None:
    values, prompts = [1.0] * 30, [i % 5 for i in range(30)]
    both = found("p", "n", "", values, list(range(30)), LOW, crossed=prompts)
    assert (both.clusters, both.ci95, both.verdict) == (5, wilson_interval(5, 5), "fail")


def test_intervals_are_honest_at_their_ends() -> None:
    assert share_interval([0.0] * 40, 40)[1] == wilson_interval(0, 40)
    value, ci95 = net_interval([0.0] * 40, 40)
    assert value == 0.0
    assert ci95 is not None
    assert ci95.high == pytest.approx(wilson_interval(0, 40).high)
    assert share_interval([], 0) == (None, None)


@pytest.mark.parametrize(("won", "lost"), [(0.05, 0.05), (0.3, 0.1), (0.5, 0.5), (0.0, 0.2), (0.9, 0.05)])
def test_the_interval_of_a_net_covers(won: float, lost: float) -> None:
    """Multinomial draws of 60; between 92 and 99 % of the intervals hold the true net."""
    rng = np.random.default_rng(7)
    covered = []
    for up, down, _ in rng.multinomial(60, [won, lost, max(0.0, 1 - won - lost)], size=600):
        ci95 = net_interval([1.0] * up + [-1.0] * down + [0.0] * (60 - up - down), 60)[1]
        covered.append(ci95 is not None and ci95.covers(won - lost))
    assert 0.92 <= np.mean(covered) <= 1.0


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.9])
def test_the_interval_of_a_share_covers_where_prompts_come_several_times(rate: float) -> None:
    """Four values per prompt, half of the prompts all alike."""
    rng = np.random.default_rng(11)
    covered = []
    for _ in range(400):
        alike = rng.random((40, 1)) < 0.5
        one = rng.random((40, 1)) < rate
        values = np.where(alike, one, rng.random((40, 4)) < rate).astype(float).ravel().tolist()
        clusters = [i // 4 for i in range(160)]
        ci95 = share_interval(values, effective_n(values, clusters))[1]
        covered.append(ci95 is not None and ci95.covers(rate))
    assert np.mean(covered) >= 0.92


def test_the_sign_test_is_over_inconsistent_pairs_alone() -> None:
    """32 pairs always won by the first, 8 always by the second: judge_statistics, worked figure."""
    p = sign_test(32, 8)
    assert p == pytest.approx(0.000182, abs=1e-6)
    assert sign_test(0, 0) is None
    assert sign_test(4, 4) == 1.0
