"""Advantages against figures worked out by hand; a reward that is missing counts nowhere and moves nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rm_gallery import ConfigError
from rm_gallery.train.advantages import (
    clipped,
    component_advantages,
    group_advantages,
    spread_of,
    weighted_sum,
    whitened,
)

NAN = math.nan
ROOT = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("method", "rewards", "groups", "expected"),
    [
        ("mean", [1, 0, 0, 0], 4, [0.75, -0.25, -0.25, -0.25]),
        ("std", [1, 0, 0, 0], 4, [1.5, -0.5, -0.5, -0.5]),  # the spread of the sample is 0.5
        ("std", [1, 0, 5, 3], 2, [ROOT, -ROOT, ROOT, -ROOT]),
        ("std", [1, 0, 5, 3], ["a", "b", "b", "a"], [-ROOT, -ROOT, ROOT, ROOT]),
        ("batch_std", [1, 0, 5, 3], 2, np.array([0.5, -0.5, 1, -1]) / np.std([1, 0, 5, 3], ddof=1)),
        ("leave_one_out", [1, 0, 0, 0], 4, [1, -1 / 3, -1 / 3, -1 / 3]),
        ("leave_one_out", [3, None, 1, NAN], 4, [2, 0, -2, 0]),
        ("rank", [10, -1, 0, 1e300], 4, [1 / 3, -1, -1 / 3, 1]),
        ("rank", [1, 1, 0, 0], 4, [2 / 3, 2 / 3, -2 / 3, -2 / 3]),
        ("rank", [1, None, 0], 3, [1, 0, -1]),
        ("std", [1, None, 0, None], 4, [ROOT, 0, -ROOT, 0]),
        ("std", [None, None, 1, 0], 2, [0, 0, ROOT, -ROOT]),
        ("mean", [7, None, 1, 0], 2, [0, 0, 0.5, -0.5]),  # alone in its group
        ("std", [1e300, -1e300, 1e300, -1e300], 4, np.array([1, -1, 1, -1]) * math.sqrt(0.75)),
        ("std", [0.1 + 0.2, 0.3], 2, [0, 0]),  # equal but for rounding
        ("std", [1, 2], 1, [0, 0]),
        ("std", [], 4, []),
    ],
)
def test_group_advantages(method: Any, rewards: Any, groups: Any, expected: Any) -> None:
    found = group_advantages(rewards, groups, method, eps=0.0)
    assert found == pytest.approx(np.array(expected, dtype=float), abs=1e-12)
    shown = group_advantages(rewards, groups, method, missing=NAN)
    assert [math.isnan(value) for value in shown] == [r is None or math.isnan(r) for r in rewards]


@pytest.mark.parametrize("method", ["std", "batch_std", "mean", "leave_one_out", "rank"])
def test_what_always_holds(method: Any) -> None:
    rng = np.random.default_rng(1)
    rewards = rng.normal(size=64)
    rewards[rng.random(64) < 0.2] = NAN
    found = group_advantages(rewards, 8, method)
    assert found.reshape(8, 8).sum(axis=1) == pytest.approx(np.zeros(8), abs=1e-9)
    assert (found[np.isnan(rewards)] == 0).all() and (found != 0).sum() > 40
    order = rng.permutation(64)  # the order of rows is nobody's business
    names = (np.arange(64) // 8)[order]
    assert group_advantages(rewards[order], [f"p{name}" for name in names], method) == pytest.approx(found[order])
    messages = [[{"role": "user", "content": str(name)}] for name in names]
    assert group_advantages(rewards[order], messages, method) == pytest.approx(found[order])


def test_what_is_added_to_the_spread_and_whose_spread_it_is() -> None:
    assert group_advantages([1, 0], 2, eps=0.5) == pytest.approx([0.5 / (ROOT + 0.5), -0.5 / (ROOT + 0.5)])
    assert group_advantages([1e-6, 0], 2) == pytest.approx(
        [0.5e-6 / (1e-6 * ROOT + 1e-4), -0.5e-6 / (1e-6 * ROOT + 1e-4)]
    )
    # a reward that is missing is no 0 in the spread of the batch either
    for rewards, groups in (([8, 10, 9, None], [0, 0, 1, 1]), ([8, 10, 9], [0, 0, 1])):
        assert group_advantages(rewards, groups, "batch_std", eps=0)[:3] == pytest.approx([-1, 1, 0])


def test_whitening_and_clipping() -> None:
    assert whitened([1, None, 3], eps=0) == pytest.approx([-ROOT, NAN, ROOT], nan_ok=True)
    assert whitened([2, 2, 2]) == pytest.approx([0, 0, 0])
    assert clipped([-20, None, 0.5, 1e300, math.inf], -10, 10) == pytest.approx([-10, NAN, 0.5, 10, 10], nan_ok=True)
    assert clipped([-20, 20], high=1) == pytest.approx([-20, 1])


def test_a_weighted_sum_tells_missing_from_zero() -> None:
    parts: dict[str, list[float | None]] = {"right": [1, 0, None, None], "long": [0.5, 1, 1, None]}
    assert weighted_sum(parts, {"long": -0.5}) == pytest.approx([0.75, -0.5, NAN, NAN], nan_ok=True)
    assert weighted_sum(parts, {"long": -0.5}, missing="zero") == pytest.approx([0.75, -0.5, -0.5, NAN], nan_ok=True)


def test_components_are_normalised_before_they_are_added() -> None:
    """The paper's own example: (0, 1), (0, 2), (1, 1) and (1, 2) collapse when two binary rewards are added up first."""
    first = {"a": [0, 1], "b": [0, 0]}  # sums 0 and 1
    second = {"a": [0, 1], "b": [0, 1]}  # sums 0 and 2
    added = [group_advantages(weighted_sum(parts), 2, eps=0) for parts in (first, second)]
    assert added[0] == pytest.approx(added[1])
    apart = [component_advantages(parts, 2, whiten=False, eps=0) for parts in (first, second)]
    assert apart[0] == pytest.approx([-ROOT, ROOT])
    assert apart[1] == pytest.approx([-2 * ROOT, 2 * ROOT])
    wide = {"right": [1, 0, 1, 0], "chars": [100, 900, 300, 500]}
    parts = component_advantages(wide, 4, {"chars": -0.1}, whiten=False, eps=0)
    assert parts[0] > parts[2] > parts[3] > parts[1]  # the wide scale does not drown the other
    assert component_advantages(wide, 4, {"chars": -0.1}, eps=0) == pytest.approx(whitened(parts, eps=0))
    missing = component_advantages({"a": [1, 0, None, None], "b": [2, None, 4, None]}, 4, whiten=False, eps=0)
    assert missing == pytest.approx([0, -ROOT, ROOT, 0])
    some: dict[str, list[float | None]] = {"a": [1, 0, None, 4], "b": [2, 1, None, 4]}
    whole = component_advantages(some, 4, eps=0)
    # what has no component at all is neither in the mean nor in the spread of the batch
    without = {name: [values[0], values[1], values[3]] for name, values in some.items()}
    assert whole[[0, 1, 3]] == pytest.approx(component_advantages(without, 3, eps=0))
    assert (whole[2], np.std(whole[[0, 1, 3]], ddof=1)) == pytest.approx((0, 1))


@pytest.mark.parametrize(
    ("rewards", "counts", "kept", "hint"),
    [
        ([1, 0, 1, 1, 0, 0], (3, 2, 1, 1, 0), [1, 1, 0, 0, 0, 0], "2 of 3 groups have equal rewards and teach nothing"),
        ([1, 1, 1, 1, 0, 1], (3, 2, 2, 0, 0), [0, 0, 0, 0, 1, 1], "too easy"),
        ([0, 0, 0, 0, 0, 1], (3, 2, 0, 2, 0), [0, 0, 0, 0, 1, 1], "too hard"),
        ([2, 2, 2, 2], (2, 2, 0, 0, 0), [0, 0, 0, 0], "finer grades"),
        ([None, 1, None, None, 1, 0], (3, 0, 0, 0, 2), [0, 0, 0, 0, 1, 1], "most completions get no score"),
        ([1, 1, None, 1, 1, 0, 1, 0], (4, 1, 1, 0, 1), [0, 0, 0, 0, 1, 1, 1, 1], "1 of 4 groups have equal rewards"),
        ([1, 1, 1, 0, 0.5, 0], (3, 1, 1, 0, 0), [0, 0, 1, 1, 1, 1], ""),
        ([1, 0, 0, 1], (2, 0, 0, 0, 0), [1, 1, 1, 1], ""),
        ([], (0, 0, 0, 0, 0), [], ""),
    ],
)
def test_groups_without_a_signal(rewards: Any, counts: Any, kept: Any, hint: str) -> None:
    found = spread_of(rewards, 2)
    assert (found.n_groups, found.flat, found.flat_high, found.flat_low, found.unknown) == counts
    assert list(found.keep) == [bool(value) for value in kept]
    assert hint in found.hint and bool(found.hint) is bool(hint)
    if rewards:
        assert found.frac_reward_zero_std == counts[1] / counts[0]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: group_advantages([1, 2], 2, "sdt"), "There is no method 'sdt'. Did you mean std"),  # type: ignore[arg-type]
        (lambda: group_advantages([1, 2, 3], 2), "groups is 2: 3 rewards cannot be cut into groups of that size"),
        (lambda: group_advantages([1, 2], 0), "groups is 0"),
        (lambda: group_advantages([1, 2], ["a"]), "2 names of groups, are needed"),
        (lambda: group_advantages([1, math.inf], 2), "rewards[1] is inf"),
        (lambda: group_advantages(["a"], 1), "rewards: a list of numbers and None is needed"),  # type: ignore[list-item]
        (lambda: weighted_sum({"a": [1]}, {"b": 1}), "There is no component 'b'"),
        (lambda: weighted_sum({"a": [1]}, {"a": NAN}), "the weight of 'a' is nan"),
        (lambda: weighted_sum({"a": [1], "b": [1, 2]}), "component 'b' has 2 values and 'a' has 1"),
        (lambda: clipped([1], 2, 1), "low is 2 and high is 1"),
    ],
)
def test_what_does_not_fit_is_named(call: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        call()
    assert told in str(raised.value)
