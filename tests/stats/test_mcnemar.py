from __future__ import annotations

import pytest

from rm_gallery.core.stats.paired import mcnemar_exact
from rm_gallery.core.utils.errors import ConfigError


@pytest.mark.parametrize(
    ("k", "n", "p_value"),
    [
        (1, 10, 2 * (1 + 10) / 1024),
        (9, 10, 2 * (1 + 10) / 1024),
        (0, 5, 2 / 32),
        (5, 10, 1.0),
        (0, 0, 1.0),
        (0, 1, 1.0),
    ],
)
def test_fair_coin_by_hand(k: int, n: int, p_value: float) -> None:
    first = [True] * k + [False] * (n - k)
    assert mcnemar_exact(first, [not right for right in first]).p_value == pytest.approx(p_value, rel=1e-12)


def test_counts_only_where_the_judges_differ() -> None:
    first = [True] * 9 + [False] * 1 + [True] * 50 + [False] * 40 + [None, True]
    second = [False] * 9 + [True] * 1 + [True] * 50 + [False] * 40 + [True, None]
    result = mcnemar_exact(first, second)
    assert result[:2] == (9, 1)
    assert result.p_value == pytest.approx(22 / 1024, rel=1e-12)
    assert (result.n, result.n_left_out) == (100, 2)


def test_lengths_must_agree() -> None:
    with pytest.raises(ConfigError):
        mcnemar_exact([True], [])
