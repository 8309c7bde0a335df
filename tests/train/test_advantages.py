"""What holds for advantages whatever the rewards; the figures themselves are golden (`tests/golden/train`)."""

from __future__ import annotations

import numpy as np
import pytest

from rm_gallery.train.advantages import METHODS, Method, group_advantages


@pytest.mark.parametrize("method", METHODS)
def test_groups_add_up_to_nothing_in_any_order_and_under_any_name(method: Method) -> None:
    rng = np.random.default_rng(1)
    rewards = rng.normal(size=64)
    rewards[rng.random(64) < 0.2] = np.nan
    found = group_advantages(rewards, 8, method)
    assert found.reshape(8, 8).sum(axis=1) == pytest.approx(np.zeros(8), abs=1e-9)
    assert (found[np.isnan(rewards)] == 0).all() and (found != 0).sum() > 40
    order = rng.permutation(64)
    for names in ((np.arange(64) // 8)[order], [f"p{place // 8}" for place in order]):
        assert group_advantages(rewards[order], names, method) == pytest.approx(found[order])
