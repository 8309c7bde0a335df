from __future__ import annotations

import pytest

from rm_gallery.core.stats.paired import mcnemar
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
    assert mcnemar(first, [not right for right in first]).p_exact == pytest.approx(p_value, rel=1e-12)


def test_counts_only_where_the_judges_differ() -> None:
    first = [True] * 9 + [False] * 1 + [True] * 50 + [False] * 40 + [None, True]
    second = [False] * 9 + [True] * 1 + [True] * 50 + [False] * 40 + [True, None]
    result = mcnemar(first, second)
    assert result[:2] == (9, 1)
    assert result.p_exact == pytest.approx(22 / 1024, rel=1e-12)
    assert (result.n, result.n_left_out) == (100, 2)


def test_lengths_must_agree() -> None:
    with pytest.raises(ConfigError):
        mcnemar([True], [])


def discordant(only_first: int, only_second: int, agreeing: int = 0) -> tuple[list[bool], list[bool]]:
    first = [True] * only_first + [False] * only_second + [True] * agreeing
    return first, [False] * only_first + [True] * only_second + [True] * agreeing


@pytest.mark.parametrize(
    ("b", "c", "mid_p", "exact"),
    [
        # judge statistics: 12 against 5 of 100
        (12, 5, 0.096252, 0.143463),
        # Fagerland, Lydersen and Laake 2013: airway hyper-responsiveness before and after a transplant, 1 against 7
        (1, 7, 0.0391, 0.0703),
        (0, 0, 1.0, 1.0),
    ],
)
def test_published_examples(b: int, c: int, mid_p: float, exact: float) -> None:
    found = mcnemar(*discordant(b, c, 50))
    assert (found.p_value, found.p_exact) == pytest.approx((mid_p, exact), rel=2e-3)


@pytest.mark.parametrize(("b", "c"), [(3, 9), (20, 11), (1, 0), (40, 42)])
def test_exact_equals_statsmodels(b: int, c: int) -> None:
    reference = pytest.importorskip("statsmodels.stats.contingency_tables").mcnemar
    expected = reference([[50, b], [c, 7]], exact=True).pvalue
    assert mcnemar(*discordant(b, c)).p_exact == pytest.approx(expected)
