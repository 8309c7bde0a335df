"""Position bias and the sign test."""

from __future__ import annotations

import numpy as np
import pytest

from rm_gallery.core.stats.position import position_bias, sign_test
from rm_gallery.core.utils.errors import ConfigError


@pytest.mark.parametrize(
    ("more", "less", "mid", "p"),
    [
        (32, 8, False, 0.000182166),
        (8, 32, False, 0.000182166),
        (12, 5, True, 0.096252),
        (12, 5, False, 0.143463),
        (5, 5, False, 1.0),
        (0, 0, True, 1.0),
    ],
)
def test_published_sign_tests(more: int, less: int, mid: bool, p: float) -> None:
    assert sign_test(more, less, mid=mid) == pytest.approx(p, abs=6e-7)


def test_a_judge_that_favours_the_first_is_seen() -> None:
    # 32 pairs go to whoever is first, 8 to whoever is second, 460 keep their verdict
    first = [1.0] * 32 + [0.0] * 8 + [1.0, 0.0] * 230
    second = [0.0] * 32 + [1.0] * 8 + [1.0, 0.0] * 230
    found = position_bias(first, second)
    assert (found.favoured_first, found.favoured_second, found.n) == (32, 8, 500)
    assert found.p_value == pytest.approx(0.000182166, abs=6e-10)
    assert found.advantage == pytest.approx(24 / 500)
    assert found.ci95 is not None and found.ci95.low > 0.02


def test_ties_and_missing_verdicts() -> None:
    found = position_bias([1.0, 0.5, None, 0.5], [0.5, 0.5, 1.0, float("nan")])
    assert (found.favoured_first, found.favoured_second, found.n, found.n_left_out) == (1, 0, 2, 2)
    assert position_bias([None], [1.0])[:3] == (None, None, None)


def test_level_without_bias() -> None:
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(1000):
        p = rng.beta(0.5, 0.5, 200)
        p_value = position_bias((rng.random(200) < p) * 1.0, (rng.random(200) < p) * 1.0).p_value
        found += p_value is not None and p_value < 0.05
    assert 0.015 <= found / 1000 <= 0.055


def test_refused() -> None:
    with pytest.raises(ConfigError, match="found 1 and 2"):
        position_bias([1.0], [1.0, 0.0])
    with pytest.raises(ConfigError, match="within 0..1"):
        position_bias([2.0], [1.0])
    with pytest.raises(ConfigError, match="clusters needs one entry"):
        position_bias([1.0], [1.0], clusters=["a", "b"])
    with pytest.raises(ConfigError, match="at least 0"):
        sign_test(-1, 2)
