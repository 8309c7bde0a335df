"""Position bias is a sign test of the pairs whose verdict depends on the order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from rm_gallery.core.stats.position import position_bias, sign_test


@given(st.integers(0, 80), st.integers(0, 80))
def test_the_sign_test_is_the_binomial_one(more: int, less: int) -> None:
    n = more + less
    assert sign_test(more, less) == pytest.approx(binomtest(more, n).pvalue if n else 1.0)
    half = binom.pmf(min(more, less), n, 0.5) if n else 0.0
    assert sign_test(more, less, mid=True) == pytest.approx(
        min(1.0, 2 * binom.cdf(min(more, less), n, 0.5) - half) if n else 1.0
    )


def test_a_judge_that_favours_the_first_is_seen() -> None:
    # 32 pairs go to whoever is first, 8 to whoever is second, 460 keep their verdict
    first, second = [1.0] * 32 + [0.0] * 8 + [1.0, 0.0] * 230, [0.0] * 32 + [1.0] * 8 + [1.0, 0.0] * 230
    found = position_bias(first, second)
    assert found.p_value == pytest.approx(0.000182166, abs=6e-10) and found.advantage == pytest.approx(24 / 500)
    assert found.ci95 is not None and found.ci95.low > 0.02
