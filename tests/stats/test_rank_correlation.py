from __future__ import annotations

import math

import pytest

from rm_gallery.core.stats.agreement import kendall_tau_b, spearman
from rm_gallery.core.utils.errors import ConfigError


@pytest.mark.parametrize(
    ("first", "second", "rho", "tau"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], 1.0, 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0, -1.0),
        # d = 1, 1, 0, 0: rho = 1 - 6*2/(4*15); one of six pairs discordant: tau = (5 - 1)/6
        ([1, 2, 3, 4], [2, 1, 3, 4], 0.8, 2 / 3),
        # two of three pairs concordant, one tied in the first only: tau-b = 2 / sqrt(2 * 3)
        ([1, 1, 2], [1, 2, 3], math.sqrt(3) / 2, 2 / math.sqrt(6)),
    ],
)
def test_by_hand(first: list[float], second: list[float], rho: float, tau: float) -> None:
    assert spearman(first, second) == pytest.approx(rho, abs=1e-12)
    assert kendall_tau_b(first, second) == pytest.approx(tau, abs=1e-12)


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([1.0], [2.0]), ([1.0, 1.0], [1.0, 2.0]), ([1.0, None], [1.0, 2.0])]
)
def test_undefined_is_none(first: list[float | None], second: list[float | None]) -> None:
    assert spearman(first, second) is None
    assert kendall_tau_b(first, second) is None


def test_missing_positions_are_left_out() -> None:
    assert spearman([1.0, None, 2.0, 9.0], [5.0, 1.0, 6.0, math.nan]) == pytest.approx(1.0)
    assert kendall_tau_b([1.0, None, 2.0, 9.0], [5.0, 1.0, 6.0, math.nan]) == 1.0


def test_lengths_must_agree() -> None:
    with pytest.raises(ConfigError):
        spearman([1.0], [1.0, 2.0])
    with pytest.raises(ConfigError):
        kendall_tau_b([1.0], [1.0, 2.0])
